"""Whether the rejections of the mini family are those that theory predicts."""

import math

import jax
import numpy as np
import tqdm

from experiments import evaluate
from experiments import results
from specjax import decoding
from specjax import families
from specjax import sampling as sampling_lib
from specjax import theory


def run(config, workdir):
  """Writes a row for each drafter and domain; warns where one is flagged."""
  if config.requests_per_prompt < 1:
    raise ValueError(
      f'requests_per_prompt must be >= 1, got {config.requests_per_prompt}.'
    )
  results.start(workdir)
  family = families.load(config.family)
  # Repeats of the whole list: batches of any prompts have much the same shape.
  jobs = evaluate.chosen_prompts(config, family) * config.requests_per_prompt
  domains = np.array([domain for domain, _ in jobs])
  rows = []
  for drafter in config.drafters or family.drafters:
    diagnosis = _diagnose(config, family, drafter, [job[1] for job in jobs])
    for domain in ('all', *dict.fromkeys(domains)):
      chosen = (domain == 'all') | (domains == domain)
      row = {'drafter': drafter, 'domain': str(domain)}
      rows.append(row | _summary(_part(diagnosis, chosen)))
      results.log(workdir, rows[-1])
  results.write(workdir, rows)
  for row in rows:
    if row['flagged']:
      print(_warning(row))


def _diagnose(config, family, drafter, prompts):
  """Plays some rounds on all prompts and diagnoses them, `[len(prompts)]`."""
  sampling = sampling_lib.Sampling(config.temperature)
  decoder = families.decoder(
    family,
    drafter,
    draft_length=config.draft_length,
    verifier=config.verifier or None,
    sampling=sampling,
    max_length=config.max_length,
  )
  parts = []
  for start in tqdm.trange(0, len(prompts), config.batch_size, desc=drafter):
    batch = prompts[start : start + config.batch_size]
    # The last batch repeats a prompt rather than compiling a new shape.
    padded = batch + batch[-1:] * (config.batch_size - len(batch))
    state, infos = decoding.trace(
      decoder.round_fn,
      decoder.params,
      decoder.init(
        padded,
        config.max_new_tokens,
        seed=config.seed,
        request_ids=range(start, start + config.batch_size),
      ),
      config.rounds,
    )
    decoder.results(padded, state)  # Raises if a logit was not finite.
    diagnosis = theory.diagnose(
      family.target.functions,
      family.drafters[drafter].functions,
      decoder.params,
      np.array([len(prompt) for prompt in padded]),
      state.tokens,
      infos,
      sampling,
    )
    parts.append(_part(diagnosis, slice(len(batch))))
  return jax.tree.map(lambda *fields: np.concatenate(fields), *parts)


def _part(diagnosis, rows):
  return jax.tree.map(lambda field: field[rows], diagnosis)


def _summary(diagnosis):
  return {
    'tested': int(diagnosis.tested.sum()),
    'seen': int(diagnosis.seen.sum()),
    'predicted': float(diagnosis.predicted.sum()),
    'standard_error': math.sqrt(diagnosis.variance.sum()),
    'deviation': diagnosis.deviation,
    'flagged': bool(diagnosis.flagged),
  }


def _warning(row):
  return (
    f'Warning: {row["drafter"]}, {row["domain"]}: {row["seen"]} rejections, '
    f'but {row["predicted"]:.1f} +- {row["standard_error"]:.1f} are predicted.'
  )
