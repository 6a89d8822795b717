"""Win rates of lossy decoding rules, by the target's own likelihood.

Yin et al. (2024), Section 4.2, Tables 1 and 2. The score of a response is the
mean log-likelihood per token that the target gives it. This is no reward model:
it shows what the target finds likely, not what is good, and does not fall where
a rule prefers likely tokens more than the target does.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import results
from specjax import decoding
from specjax import families
from specjax import sampling as sampling_lib
from specjax import verifiers

# What identifies a row.
_SETTINGS = (
  'method',
  'against',
  'epsilon',
  'drafter',
  'draft_length',
  'prompts',
  'responses',
  'max_new_tokens',
  'temperature',
  'seed',
)
_REPLACEMENTS = {'OPT': 'residual', 'UNO': 'target'}

# `(responses) -> [P]`: the score of one response to each prompt.
Judge = Callable[[Sequence[Sequence[int]]], np.ndarray]


class Sample(NamedTuple):
  """Samples of one method, scored."""

  scores: np.ndarray  # [P, n]
  rejections: float  # rejected drafts per token


def run(config, workdir):
  """Writes a row for each comparison; goes on where it stopped."""
  if config.responses < 1:
    raise ValueError(f'responses must be >= 1, got {config.responses}.')
  family = families.load(config.family)
  prompts = [family.tokenizer.encode_prompt(e.prompt) for e in family.prompts]
  if not prompts:
    raise ValueError('The family has no prompts of its own.')
  judge = make_judge(family.target, prompts)
  done = results.done(workdir, _SETTINGS)
  rows = []
  pairs = [('target', config.drafter, None)]
  pairs += [('OPT', 'UNO', epsilon) for epsilon in config.epsilons]
  for number, pair in enumerate(tqdm.tqdm(pairs, desc='comparisons')):
    settings = _settings(config, prompts, *pair)
    row = done.get(tuple(settings.values()))
    if row is None:
      first, second = (
        # Seeds of their own: no two methods, and no two rows, share a draft.
        sample(
          _decoder(config, family, method, pair[2]),
          prompts,
          judge,
          config.responses,
          config.max_new_tokens,
          seed=config.seed + 2 * number + i,
        )
        for i, method in enumerate(pair[:2])
      )
      row = settings | compare(first, second)
      results.log(workdir, row)
    rows.append(row)
  results.write(workdir, rows)
  path = os.path.join(workdir, 'win_rates.png')
  plot(rows, path)
  print(f'\nWin rates, scores and rejections: {path}')


def make_judge(target: families.Model, prompts: Sequence[Sequence[int]]):
  """Returns a `Judge`; the target reads the prompts but once."""
  lengths = np.array([len(prompt) for prompt in prompts])
  tokens = np.zeros((len(prompts), lengths.max()), np.int32)
  for row, prompt in zip(tokens, prompts):
    row[: len(prompt)] = prompt
  model, params = target.functions, target.params
  prefill = jax.jit(lambda *args: model.prefill(*args)[0])
  cache = prefill(
    params, model.init_cache(params, *tokens.shape), tokens, lengths - 1
  )

  def judge(responses):
    longest = max(map(len, responses))
    # Powers of two, so that responses of similar length share a program.
    width = 1 << (longest - 1).bit_length()
    read = np.zeros((len(prompts), 1 + width), np.int32)
    for row, prompt, response in zip(read, prompts, responses, strict=True):
      row[0] = prompt[-1]
      row[1 : 1 + len(response)] = response
    lengths = np.array([len(response) for response in responses])
    return np.asarray(_mean_log_likelihood(model, params, cache, read, lengths))

  return judge


@functools.partial(jax.jit, static_argnames='model')
def _mean_log_likelihood(model, params, cache, tokens, lengths):
  """`[P]`, over the first `lengths` tokens behind the first one."""
  logits = model.extend(params, cache, tokens[:, :-1]).logits
  said = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
  said -= jax.nn.logsumexp(logits, axis=-1)
  counted = jnp.arange(said.shape[1])[None] < lengths[:, None]
  return jnp.where(counted, said, 0).sum(1) / lengths.astype(jnp.float32)


def sample(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  judge: Judge,
  num_responses: int,
  max_new_tokens: int,
  seed: int = 0,
) -> Sample:
  """Draws and scores `n` responses to every prompt, a batch for each."""
  scores, rejected, emitted = [], 0, 0
  for i in range(num_responses):
    start = decoder.init(
      prompts,
      max_new_tokens,
      seed=seed,
      request_ids=i * len(prompts) + np.arange(len(prompts)),
    )
    for step in decoding.stream(decoder.round_fn, decoder.params, start):
      state, info = step
      # A correction stands where a draft was rejected; a bonus behind all.
      corrected = info.num_accepted < jnp.minimum(info.num_emitted, info.depth)
      rejected += int(corrected.sum())
    responses = [r.tokens for r in decoder.results(prompts, state)]
    emitted += sum(map(len, responses))
    scores.append(judge(responses))
  return Sample(np.stack(scores, axis=1), rejected / emitted)


def compare(first: Sample, second: Sample) -> dict[str, float]:
  """Returns how often `first` wins a prompt, and what both are like.

  All responses to a prompt are compared with all of the other method's; the
  prompt is won by the method that wins more of these comparisons. The prompts
  lost are those that were neither won nor tied.
  """
  sign = np.sign(first.scores[:, :, None] - second.scores[:, None])
  balance = sign.sum((1, 2))
  rate = float((balance > 0).mean())
  gap = first.scores.mean(1) - second.scores.mean(1)
  return {
    'win_rate': rate,
    'standard_error': float(np.sqrt(rate * (1 - rate) / len(sign))),
    'tied': float((balance == 0).mean()),
    'comparisons_won': float((sign > 0).mean()),
    'score': float(first.scores.mean()),
    'against_score': float(second.scores.mean()),
    'gap_error': float(gap.std() / np.sqrt(len(gap))),
    'rejections': first.rejections,
    'against_rejections': second.rejections,
  }


def plot(rows: list[dict], path: str) -> None:
  """Draws win rates, mean scores and rejections of `run`'s rows.

  Bars of two standard errors; dashed lines are the models alone.
  """
  matplotlib.use('Agg')
  alone, *others = rows
  figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout='constrained')
  ticks = np.arange(len(rows))
  panels[0].bar(
    ticks,
    [row['win_rate'] for row in rows],
    yerr=[2 * row['standard_error'] for row in rows],
    color=['0.6'] + ['tab:blue'] * len(others),
    capsize=3,
  )
  panels[0].bar(
    ticks,
    [row['tied'] for row in rows],
    bottom=[row['win_rate'] for row in rows],
    color='0.85',
    label='tied',
    zorder=0,
  )
  panels[0].legend(fontsize='small')
  names = [f'{alone["method"]},\n{alone["against"]}']
  names += [f'OPT,\nUNO\n{row["epsilon"]}' for row in others]
  panels[0].set_xticks(ticks, names, fontsize='small')
  panels[0].axhline(0.5, color='black', linewidth=0.8)
  panels[0].set_ylim(0, 1)
  panels[0].set_title('prompts won by the first')
  for axes, field, title in (
    (panels[1], 'score', 'mean log-likelihood of the target'),
    (panels[2], 'rejections', 'rejections per token'),
  ):
    for i, (method, name) in enumerate(
      (('method', field), ('against', f'against_{field}'))
    ):
      if others:
        axes.plot(
          [row['epsilon'] for row in others],
          [row[name] for row in others],
          marker='os'[i],
          markersize=(7, 4)[i],
          label=others[0][method],
        )
      if field == 'score':
        axes.axhline(
          alone[name], color=f'C{i + 2}', linestyle='--', label=alone[method]
        )
    axes.set_xscale('log')
    axes.set_xlabel('epsilon')
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize='small')
  panels[2].set_ylim(bottom=0)
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _settings(config, prompts, *pair):
  values = (
    *pair,
    config.drafter,
    config.draft_length,
    len(prompts),
    config.responses,
    config.max_new_tokens,
    config.temperature,
    config.seed,
  )
  return dict(zip(_SETTINGS, values, strict=True))


def _decoder(config, family, method, epsilon):
  """A rule with its draft, or a model alone where there is no epsilon."""
  options = {
    'sampling': sampling_lib.Sampling(config.temperature),
    'max_length': config.max_length,
  }
  if epsilon is not None:
    return families.decoder(
      family,
      config.drafter,
      draft_length=config.draft_length,
      verifier=verifiers.over_acceptance(epsilon, _REPLACEMENTS[method]),
      **options,
    )
  models = {**family.drafters, 'target': family.target}
  return decoding.speculative(
    models[method].functions,
    models[method].params,
    None,
    stop_tokens=[family.tokenizer.end_id],
    **options,
  )
