"""Block efficiency by domain, for every drafter and draft length."""

import collections

from experiments import batches
from experiments import results
from specjax import checks
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib


def run(config, workdir):
  """Decodes the eval files; a row for each way to decode and domain."""
  results.start(workdir)
  family = families.load(config.family)
  examples = examples_lib.read_split(config.data_dir, 'eval')
  jobs = fitting(config, family.tokenizer, examples)
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


def fitting(config, tokenizer, examples):
  """Returns domains and prompt tokens that fit, at most so many of a domain."""
  prompts = ((example.domain, [example.prompt]) for example in examples)
  jobs = fitting_turns(config, tokenizer, prompts)
  return [(domain, tokens) for domain, (tokens,) in jobs]


def fitting_turns(config, tokenizer, sessions):
  """Does what `fitting` does for sessions of some prompts.

  Args:
    config: with `max_new_tokens` and `max_length` of a turn, and
      `prompts_per_domain`.
    tokenizer: of the family.
    sessions: a label and the prompts of all turns, each.

  Returns:
    Labels and the prompt tokens of all turns.
  """
  jobs, counts, num_long = [], {}, 0
  for label, prompts in sessions:
    turns = [tokenizer.encode_prompt(prompt) for prompt in prompts]
    if max(map(len, turns)) + config.max_new_tokens > config.max_length:
      num_long += 1
    elif counts.get(label, 0) < config.prompts_per_domain:
      counts[label] = counts.get(label, 0) + 1
      jobs.append((label, turns))
  print(f'{len(jobs)} prompts; {num_long} do not fit into the buffer.')
  # Prompts of similar length share a batch.
  return sorted(jobs, key=lambda job: sum(map(len, job[1])))


def chosen_examples(config, family):
  """Returns the eval examples of `data_dir`, or those of the family."""
  if config.data_dir:
    return examples_lib.read_split(config.data_dir, 'eval')
  if not family.prompts:
    raise ValueError('The family has no prompts of its own: set data_dir.')
  return family.prompts


def chosen_prompts(config, family):
  """Returns domains and prompt tokens: of `data_dir`, or of the family.

  They are `prompts_per_domain` at most; those of `data_dir` fit.
  """
  examples = chosen_examples(config, family)
  if config.data_dir:
    return fitting(config, family.tokenizer, examples)
  return [
    (example.domain, family.tokenizer.encode_prompt(example.prompt))
    for example in first_of_each(examples, config.prompts_per_domain)
  ]


def first_of_each(examples, per_domain):
  """Returns the first examples of every domain, as many as asked for."""
  checks.check_range('prompts_per_domain', per_domain, 1)
  chosen, counts = [], collections.Counter()
  for example in examples:
    counts[example.domain] += 1
    if counts[example.domain] <= per_domain:
      chosen.append(example)
  return chosen


def _summary(outputs):
  efficiency, error = metrics.block_efficiency(outputs)
  return {
    'prompts': len(outputs),
    'tokens': sum(len(output.tokens) for output in outputs),
    'block_efficiency': efficiency,
    'standard_error': error,
    'first_accepted': float(metrics.acceptance_by_position(outputs)[0][0]),
  }
