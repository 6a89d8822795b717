"""Block efficiency by domain, for every drafter and draft length."""

from experiments import batches
from experiments import results
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib


def run(config, workdir):
  """Decodes the eval files; a row for each way to decode and domain."""
  results.start(workdir)
  family = families.load(config.family)
  jobs = prompts(config, family.tokenizer)
  rows = []
  for drafter in config.drafters or family.drafters:
    for length in config.draft_lengths:
      decoder = families.decoder(
        family,
        drafter,
        draft_length=length,
        sampling=sampling_lib.Sampling(config.temperature),
        max_length=config.max_length,
      )
      outputs = list(
        batches.decode(
          decoder,
          [tokens for _, tokens in jobs],
          config.max_new_tokens,
          config.batch_size,
          seed=config.seed,
        )
      )
      by_domain = {'all': outputs}
      for (domain, _), output in zip(jobs, outputs):
        by_domain.setdefault(domain, []).append(output)
      for domain, each in by_domain.items():
        row = {'drafter': drafter, 'draft_length': length, 'domain': domain}
        rows.append(row | _summary(each))
        results.log(workdir, rows[-1])
  results.write(workdir, rows)


def prompts(config, tokenizer):
  """Returns domains and prompt tokens of the eval files."""
  examples = examples_lib.read_split(config.data_dir, 'eval')
  return fitting(config, tokenizer, examples)


def fitting(config, tokenizer, examples):
  """Returns domains and prompt tokens that fit, at most so many of a domain."""
  jobs, counts, num_long = [], {}, 0
  for example in examples:
    tokens = tokenizer.encode_prompt(example.prompt)
    if len(tokens) + config.max_new_tokens > config.max_length:
      num_long += 1
    elif counts.get(example.domain, 0) < config.prompts_per_domain:
      counts[example.domain] = counts.get(example.domain, 0) + 1
      jobs.append((example.domain, tokens))
  print(f'{len(jobs)} prompts; {num_long} do not fit into the buffer.')
  # Prompts of similar length share a batch.
  return sorted(jobs, key=lambda job: len(job[1]))


def chosen_prompts(config, family):
  """Returns domains and prompt tokens: of `data_dir`, or of the family."""
  if config.data_dir:
    return prompts(config, family.tokenizer)
  if not family.prompts:
    raise ValueError('The family has no prompts of its own: set data_dir.')
  return [
    (example.domain, family.tokenizer.encode_prompt(example.prompt))
    for example in family.prompts
  ]


def _summary(outputs):
  efficiency, error = metrics.block_efficiency(outputs)
  return {
    'prompts': len(outputs),
    'tokens': sum(len(output.tokens) for output in outputs),
    'block_efficiency': efficiency,
    'standard_error': error,
    'first_accepted': float(metrics.acceptance_by_position(outputs)[0]),
  }
