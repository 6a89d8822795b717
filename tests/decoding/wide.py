"""Finds 64-bit computations and decodes texts in JAX's 64-bit mode.

JAX_ENABLE_X64=1 python -m tests.decoding.wide PART...

Run it in a separate process, because arrays and compiled functions from one
mode cannot be used in the other.
"""

import functools
import json
import sys

import jax
from jax.extend import core
import numpy as np

import specjax
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import trees
from specjax import verifiers
from specjax.decoding import continuous_batching
from specjax.decoding import prefill
from specjax.testing import bandits as bandit_checks
from specjax.testing import building
from specjax.testing import goals as goal_checks
from specjax.testing import rewards as reward_checks
from specjax.testing import verifiers as verifier_checks
from tests import arms
from tests import heads_test
from tests import sizes


def _lines(jaxpr):
  """Yields the source lines that compute 64-bit floats or random bits.

  Indices may have 64 bits. Python scalars are weakly typed, so they may have 64
  bits as well.
  """
  for equation in jaxpr.eqns:
    avals = [variable.aval for variable in equation.outvars]
    floats = any(
      getattr(aval, 'dtype', None) == np.float64 and not aval.weak_type
      for aval in avals
    )
    if floats or equation.params.get('bit_width') == 64:
      lines = str(equation.source_info.traceback).splitlines()
      frames = [line for line in lines if '/specjax/' in line]
      yield f'{equation.primitive.name} at {frames[0] if frames else lines[0]}'
    for inner in core.jaxprs_in_params(equation.params):
      yield from _lines(inner)


def _traced(function, *args):
  return _lines(jax.make_jaxpr(function)(*args).jaxpr)


def _bandit(factory):
  defaults = bandit_checks.default_arguments(3)
  bandit = factory(**building.arguments(factory, defaults, {}))
  rewards = np.float32([0, 0.5, 1])
  levels = base.Levels(*np.ones((2, 4), np.float32))

  def step(key):
    state = bandit.init()
    update = functools.partial(bandit.update, rewards=rewards, levels=levels)
    next_state = update(state, bandit.select(key, state), rewards[0])
    building.check_keeps(state, next_state, 'update')
    return next_state, bandit.update_all(state, rewards)

  return _traced(step, jax.random.key(0))


def _goal(goal_class):
  goal = goal_class(**goal_checks.EXAMPLES[goal_class])
  target, draft = goal_checks.pairs()
  raw = base.RawProbs(target, draft)
  return _traced(jax.vmap(goal), target, draft, raw)


def _reward(factory):
  defaults = {'costs': (1.0, 2.0), 'depths': (0, 2)}
  reward = factory(**building.arguments(factory, defaults, {}))
  return _traced(reward, reward_checks.info(2, 2, int))


def _verifier(name):
  for topology in trees.chain(2), trees.chains(2, 2):
    tree, target = verifier_checks.random_trees(topology)
    keys = jax.random.split(jax.random.key(0), len(target))
    try:
      yield from _traced(jax.vmap(verifiers.resolve(name)), keys, tree, target)
    except ValueError:
      continue  # It takes no such tree.


def _components():
  for check, table in (
    (_bandit, specjax.BANDITS),
    (_goal, specjax.GOALS),
    (_reward, specjax.REWARDS),
  ):
    for factory in table.values():
      yield from check(factory)
  for name in verifiers.factories():
    yield from _verifier(name)


def _many_arms():
  """Most drafters, trees and goals that need no head, as arms of a batch."""
  distinct = drafters.Autoregressive(
    arms.DRAFT[0], trees.prefix_tree((2, 1)), distinct=True
  )
  windowed = drafters.Windowed(arms.chain(2)[0].drafter)
  unsure = drafters.Unsure(0.3)
  return arms.decoder(
    arms.chains(),
    arms.model(trees.prefix_tree((2, 1)), verifier='kseq'),
    arms.chain(2, verifier='block'),
    arms.chain(2, goal=specjax.GOALS['chow'](0.3), stop=unsure),
    arms.deferred(arms.chain(2)),
    arms.arm(distinct, arms.DRAFT[1], 'distinct'),
    arms.arm(windowed, arms.DRAFT[1]),
    arms.lookup(),
    arms.arm(drafters.Suffix(2)),
    arms.none(),
    bandit='ucb1',
  )


_DECODERS = {
  'arms': _many_arms,
  'greedy': lambda: arms.decoder(
    arms.chain(2, temperature=0.0), arms.lookup(2), temperature=0.0
  ),
  'rows': lambda: arms.decoder(
    *(arms.chain(2), arms.chain(3)),
    bandit='thompson',
    per_row=True,
    feedback='full',
    warm_start=4,
  ),
  'heads': lambda: heads_test._decoder(
    heads_test._ALL, specjax.Sampling(top_p=0.9, min_p=0.1)
  ),
}


def _decode_programs(decoder):
  """Yields the prefill and the decode loop."""
  init = decoder.trace_init(2)
  yield init
  yield decoding.decode.trace(decoder.round_fn, decoder.params, init.out_info)


def _driver_programs(decoder):
  """Yields the programs that the other drivers compile for the same round."""
  setup, round_fn, params = decoder._setup, decoder.round_fn, decoder.params
  array = jax.ShapeDtypeStruct
  rows = array((2,), np.int32)
  state = decoder.trace_init(2).out_info
  columns = [array((4,), np.int32)] * 2
  queue = prefill.PromptBatch(
    array((4, 32), np.int32), *columns, array((4,), np.uint32)
  )
  batch = continuous_batching.Batch(state, rows)
  bandit = decoder._prompt_bandit_state(None)
  yield decoding.trace.trace(round_fn, params, state, 2)
  turns = array((2, 16), np.int32)
  yield prefill.append.trace(round_fn, params, state, turns, rows, rows)
  num = np.int32(4), np.int32(1), np.uint32(0)
  yield continuous_batching.decode_queue.trace(
    setup, params, batch, queue, *num, bandit
  )
  yield continuous_batching.narrow.trace(round_fn, batch, rows)
  yield continuous_batching.drain.trace(round_fn, params, batch, np.int32(1))


def lines_with_64_bits(part):
  """Yields the source lines of a part that compute with 64 bits."""
  if part == 'components':
    yield from _components()
  else:
    decoder = _DECODERS[part]()
    for program in _decode_programs(decoder):
      yield from _lines(program.jaxpr.jaxpr)
    if part == 'rows':
      for program in _driver_programs(decoder):
        yield from _lines(program.jaxpr.jaxpr)


def tokens():
  """Returns the tokens of each driver, with arms that a bandit samples."""
  decoder = arms.decoder(
    *(arms.chains(), arms.chain(2, verifier='block'), arms.none()),
    bandit='thompson',
  )
  rounds = decoder.stream(sizes.PROMPTS[1], 8)
  streamed = [piece.token for pieces in rounds for piece in pieces]
  queued_results = decoder.decode_many(sizes.PROMPTS, 8, batch_size=2)
  state = decoder.init(sizes.PROMPTS, 8)
  state, _ = decoding.trace(decoder.round_fn, decoder.params, state, 8)
  traced = arms.tokens(decoder.results(sizes.PROMPTS, state))
  texts = [[1, 2]] * len(sizes.PROMPTS)
  state = decoder.append(state, texts, 8)
  state = decoding.decode(decoder.round_fn, decoder.params, state)
  appended_tokens = arms.tokens(decoder.results(sizes.PROMPTS, state))
  decoded_tokens = arms.tokens(decoder.decode(sizes.PROMPTS, 8))
  return [
    decoded_tokens,
    arms.tokens(queued_results),
    streamed,
    traced,
    appended_tokens,
  ]


if __name__ == '__main__':
  if sys.argv[1:] == ['tokens']:
    print(json.dumps(tokens()))
  else:
    lines = [line for part in sys.argv[1:] for line in lines_with_64_bits(part)]
    sys.exit('\n'.join(lines) or 0)
