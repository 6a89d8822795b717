"""Ways to trade quality for cost: rules, and the baselines beside them.

Almost all are a drafter, a verifier and a goal in the one loop: a cascade that
runs its models one after the other is a drafter that stops where its rule
defers, and an oracle is one that drafts nothing but gives its distribution.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from experiments import arms as arms_lib
from experiments import results
from specjax import bandits
from specjax import base
from specjax import checks
from specjax import decoding
from specjax import drafters
from specjax import families
from specjax import goals
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.evaluation import likelihood
from specjax.goals import deferral


class Setup(NamedTuple):
  """What all methods of a plot share."""

  family: families.Family
  draft: families.Model
  sampling: sampling_lib.Sampling
  draft_length: int
  max_new_tokens: int
  max_length: int
  seed: int


class Run(NamedTuple):
  """A prompt decoded."""

  result: decoding.Result
  seconds: float  # of the loop, and of scoring if there is any
  reading: float  # seconds of reading the prompt
  target_calls: int


# `(prompt tokens, number of the prompt) -> Run`.
Play = Callable[[Sequence[int], int], Run]


def plays(
  setup: Setup, method: str, alphas: Sequence[float], **options: Any
) -> list[Play]:
  """Returns how a method decodes a prompt, for each alpha.

  Args:
    setup: of the plot.
    method: a name of `METHODS`.
    alphas: of the method's rule.
    **options: of the method.

  Raises:
    ValueError: the method is unknown, or an alpha is out of its range.
  """
  return registry.lookup(METHODS, 'method', method)(setup, alphas, **options)


def _drafter(setup, topology, **options):
  return drafters.DRAFTERS['autoregressive'](
    setup.draft.functions, topology, setup.sampling, **options
  )


def _target(setup, alpha):
  del setup, alpha
  return base.Arm(drafters.DRAFTERS['none'](), verifiers.resolve('maximal'))


def _lossless(setup, alpha, *, num_drafts=1):
  del alpha
  shape = trees.chains(num_drafts, setup.draft_length)
  verifier = verifiers.default(setup.sampling.temperature, num_drafts)
  return base.Arm(_drafter(setup, shape), verifiers.resolve(verifier))


def _lossy(setup, alpha, *, beta=1.0):
  shape = trees.chain(setup.draft_length)
  verifier = verifiers.VERIFIERS['lossy'](alpha, beta)
  return base.Arm(_drafter(setup, shape), verifier)


def _rule(setup, alpha, *, goal, num_drafts=1, bonus_probs=True):
  """A speculative cascade; without `bonus_probs`, bonus tokens are target's."""
  shape = trees.chains(num_drafts, setup.draft_length)
  return base.Arm(
    _drafter(setup, shape, bonus_probs=bonus_probs),
    verifiers.resolve(verifiers.default(1.0, num_drafts)),
    goals.GOALS[goal](alpha),
  )


def _sequential(setup, alpha, *, goal, stop, window=10):
  """Algorithm 2: drafts until the rule or the window hands over."""
  stop = functools.partial(stop, alpha=alpha)
  drafter = _drafter(setup, trees.chain(window), stop=stop)
  goal = goals.GOALS[goal](alpha)
  return base.Arm(drafter, verifiers.resolve('maximal'), goal)


def _oracle(setup, alpha, *, goal):
  """Algorithm 3: asks both models for every token."""
  drafter = _drafter(setup, trees.chain(0), bonus_probs=True)
  goal = goals.GOALS[goal](alpha)
  return base.Arm(drafter, verifiers.resolve('maximal'), goal)


def _bild_original(setup, alpha, *, fallback, window=10):
  """Drafts until the draft is unsure, then rolls back to a surprise."""
  stop = functools.partial(deferral.unsure, alpha=fallback)
  drafter = _drafter(setup, trees.chain(window), stop=stop, bonus_probs=True)
  goal = goals.GOALS['bild'](alpha, fallback)
  return base.Arm(drafter, verifiers.resolve('maximal'), goal)


# `(setup, alpha, **options) -> base.Arm`.
ARMS = {
  'bild_original': _bild_original,
  'lossless': _lossless,
  'lossy': _lossy,
  'lossy_tuned': functools.partial(_rule, goal='lossy'),
  'oracle_diff': functools.partial(_oracle, goal='diff'),
  'oracle_diff_log': functools.partial(_oracle, goal='diff_log'),
  'target': _target,
  'token_cascade': functools.partial(
    _sequential, goal='chow', stop=deferral.unsure
  ),
  'token_cascade_log': functools.partial(
    _sequential, goal='chow_log', stop=deferral.unsure_log
  ),
} | {
  rule: functools.partial(_rule, goal=rule)
  for rule in (
    'bild',
    'chow',
    'chow_log',
    'diff',
    'diff_log',
    'opt',
    'opt_log',
    'token_v1',
    'token_v2',
    'token_v3',
  )
}


def arm(
  setup: Setup, method: str, alpha: float, **options: Any
) -> tuple[base.Arm, base.Params]:
  """Returns a method's arm with one alpha, and its drafter's parameters.

  Args:
    setup: of the plot.
    method: a name of `ARMS`.
    alpha: of the method's rule.
    **options: of the method.

  Raises:
    ValueError: the method is unknown, or alpha is out of its range.
  """
  built = registry.lookup(ARMS, 'method', method)(setup, alpha, **options)
  return built, None if method == 'target' else setup.draft.params


def _of_arm(method):
  """Plays the arm of a method."""

  def make(setup, alphas, **options):
    arms = [arm(setup, method, alpha, **options) for alpha in alphas]
    target = setup.family.target
    decoder = arms_lib.decoder(
      setup.family,
      arms[:1],
      'fixed',
      setup.sampling,
      max_length=setup.max_length,
    )
    fixed = bandits.BANDITS['fixed'](1)

    # One program for all alphas.
    @functools.partial(jax.jit, donate_argnames='state')
    def loop(alpha, params, state):
      built, _ = arm(setup, method, alpha, **options)
      round_fn = decoding.make_round(
        target.functions, [built], fixed, sampling=setup.sampling
      )
      return decoding.decode(round_fn, params, state)

    return [
      functools.partial(
        _play,
        setup,
        decoder,
        functools.partial(loop, np.float32(alpha), decoder.params),
      )
      for alpha in alphas
    ]

  return make


def _play(setup, decoder, loop, tokens, number):
  state, reading = _timed(
    decoder.init,
    [tokens],
    setup.max_new_tokens,
    seed=setup.seed,
    request_ids=[number],
  )
  state, seconds = _timed(loop, state=state)
  (result,) = decoder.results([tokens], state)
  return Run(result, seconds, reading, result.rounds)


def _timed(function, *args, **kwargs):
  """What a function computes, and the seconds until that is there."""
  return results.timed(lambda: jax.block_until_ready(function(*args, **kwargs)))


def _plain(setup, model, sampling=None):
  """Plays a model alone."""
  decoder = decoding.speculative(
    model.functions,
    model.params,
    None,
    sampling=sampling or setup.sampling,
    stop_tokens=[setup.family.tokenizer.end_id],
    max_length=setup.max_length,
  )
  loop = functools.partial(decoding.decode, decoder.round_fn, decoder.params)
  return functools.partial(_play, setup, decoder, loop)


def _draft(setup, alphas):
  play = _plain(setup, setup.draft)
  return [lambda *args: play(*args)._replace(target_calls=0)] * len(alphas)


def _min_p(setup, alphas):
  """The target alone, without what is unlikely: of `alpha` as `token_v3`."""
  temperature = setup.sampling.temperature
  return [
    _plain(
      setup,
      setup.family.target,
      sampling_lib.Sampling(temperature, min_p=1 - alpha),
    )
    for alpha in alphas
  ]


def _sequence_cascade(setup, alphas):
  """Equation (1): the draft's answer, if that is likely enough to it."""
  checks.check_range('alpha of sequence_cascade', alphas, 0, 1)
  first = _once(_score_after(setup, _plain(setup, setup.draft)))
  second = _once(_plain(setup, setup.family.target))

  def play(alpha, tokens, number):
    tokens = tuple(tokens)
    run, chance = first(tokens, number)
    if chance >= 1 - alpha:
      return run._replace(target_calls=0)
    other = second(tokens, number)
    return other._replace(
      seconds=run.seconds + other.seconds, reading=run.reading + other.reading
    )

  return [functools.partial(play, alpha) for alpha in alphas]


def _once(play):
  """Plays each prompt once for all alphas; the clock is of a second call."""

  @functools.cache
  def settled(*args):
    play(*args)
    return play(*args)

  return settled


def _score_after(setup, play):
  """Plays, and asks the model how likely its answer is."""
  functions, params = setup.draft.functions, setup.draft.params

  def scored(tokens, number):
    run = play(tokens, number)
    sequence = [*tokens, *run.result.tokens], len(tokens)
    said, seconds = _timed(
      likelihood.likelihood, functions, params, [sequence], batch_size=1
    )
    run = run._replace(seconds=run.seconds + seconds)
    return run, math.exp(said.nats[0])

  return scored


METHODS = {name: _of_arm(name) for name in ARMS} | {
  'draft': _draft,
  'min_p': _min_p,
  'sequence_cascade': _sequence_cascade,
}
