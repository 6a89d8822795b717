"""Decodes prompts of your own: from the command line or from a JSONL file."""

from experiments import batches
from experiments import results
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib

# One workdir will do for all that is asked.
MAY_CHANGE = ('prompts', 'prompts_file', 'batch_size')


def run(config, workdir):
  """Prints each text; `results.json` has a row for every prompt."""
  results.start(workdir)
  family = families.load(config.family)
  top_k = config.sampling.top_k or None
  decoder = families.decoder(
    family,
    config.drafter or None,
    draft_length=config.draft_length,
    sampling=sampling_lib.Sampling(**{**config.sampling, 'top_k': top_k}),
    max_length=config.max_length,
  )
  examples = _examples(config)
  rows = []
  outputs = batches.decode(
    decoder,
    [family.tokenizer.encode_prompt(e.prompt) for e in examples],
    config.max_new_tokens,
    config.batch_size,
    seed=config.seed,
    progress=False,
  )
  for example, output in zip(examples, outputs):
    row = {
      'domain': example.domain,
      'tokens': len(output.tokens),
      'rounds': output.rounds,
      'draft_calls': output.draft_calls,
      'accepted': int(output.accepted.sum()),
      'block_efficiency': metrics.block_efficiency([output])[0],
    }
    text = family.tokenizer.decode(output.tokens)
    results.log(workdir, row | {'prompt': example.prompt, 'response': text})
    print(f'{example.prompt}\n> {text}\n')
    rows.append(row)
  results.write(workdir, rows)


def _examples(config):
  if bool(config.prompts) == bool(config.prompts_file):
    raise ValueError(
      'Set one of prompts and prompts_file, got '
      f'{config.prompts!r} and {config.prompts_file!r}.'
    )
  if config.prompts_file:
    return examples_lib.read(config.prompts_file)
  return [examples_lib.Example('prompt', config.prompts)]
