"""What a coupling costs beside its inputs, and verification beside its round.

Every ratio is of medians over repeats in which both sides take turns.
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import arms as arms_lib
from experiments.common import configs
from experiments.common import log
from experiments.common import measure
from experiments.common import plots
from experiments.common import ways as ways_lib
from experiments.spectr import acceptance
from specjax import base
from specjax import checks
from specjax import couplings
from specjax import decoding
from specjax import families
from specjax.decoding import round as round_lib

# Leaves the device for a linear program, which no large vocabulary has.
_LEFT_OUT = 'otm_table'
# Fields that all times of a part depend on.
_OF_COUPLINGS = ('num_drafts', 'spread', 'values_per_repeat', 'repeats', 'seed')
_OF_VERIFIERS = ('family', 'batch_size', 'rounds', 'repeats', 'seed')


class Instances(NamedTuple):
  """Many calls of a coupling on one pair of distributions."""

  keys: jax.Array  # [n]
  candidates: jax.Array  # [n, K] int32, drawn from the draft
  active: jax.Array  # [K] bool, all true
  draft: jax.Array  # [V]
  target: jax.Array  # [V]


def run(config, workdir):
  """Returns a row for every coupling and vocabulary, and for every arm."""
  family = families.load(config.family)
  ways = _checked(config, family)
  units: dict[str, list[log.Unit]] = {
    'coupling': [
      {'vocab_size': size, **{name: config[name] for name in _OF_COUPLINGS}}
      for size in config.vocab_sizes
    ],
    'verification': [
      {'way': way.settings, **{name: config[name] for name in _OF_VERIFIERS}}
      for way in ways
    ],
  }

  def compute(unit):
    if unit['part'] == 'coupling':
      return {'rows': list(_couplings(unit))}
    way = next(way for way in ways if way.settings == unit['way'])
    return {'rows': [_verification(unit, family, way)]}

  named = [
    {'part': name} | unit for name, each in units.items() for unit in each
  ]
  outcomes = log.resume(workdir, named, compute, 'comparisons')
  return [row for outcome in outcomes for row in outcome['rows']]


def figures(rows):
  """Draws the cost of couplings by vocabulary, and shares of verification."""
  cost, verified = (
    [row for row in rows if row['part'] == name]
    for name in ('coupling', 'verification')
  )
  draw = functools.partial(
    plots.lines, cost, 'vocab_size', by='rule', xlabel='tokens in vocabulary'
  )
  label = 'time over that of one pass'
  made = {
    'calls': draw(y='ratio', ylabel=label),
    'in_loop': draw(y='ratio_in_loop', ylabel=f'{label}, in a loop'),
  }
  for figure in made.values():
    figure.axes[0].set(xscale='log', yscale='log')
  made['verification'] = plots.bars(
    verified, 'part', 'share', 'way', ylabel='share of the round'
  )
  return made


def _checked(config, family):
  """The ways to verify; what is wrong is refused here."""
  configs.check_counts(
    config, ('vocab_sizes', 'num_drafts', 'values_per_repeat')
  )
  configs.check_counts(config, ('batch_size', 'rounds', 'repeats'))
  checks.check_range('spread', config.spread, 0)
  ways = ways_lib.parse_all(config, list(family.drafters))
  for way in ways:
    _build(way, family)
  if config.batch_size > len(family.prompts):
    raise ValueError(
      f'batch_size must be at most the {len(family.prompts)} prompts of the '
      f'family, got {config.batch_size}.'
    )
  return ways


# A coupling against one pass over the two rows that it gets.


def _couplings(unit):
  """The time of each coupling over that of a pass."""
  rules = {'pass': one_pass}
  rules |= {k: v for k, v in couplings.COUPLINGS.items() if k != _LEFT_OUT}
  num = max(1, unit['values_per_repeat'] // unit['vocab_size'])
  sizes = unit['vocab_size'], unit['num_drafts']
  instances = make_instances(*sizes, unit['spread'], unit['seed'], num)
  by_call, in_loop = (
    measure.medians(
      [make(rule, instances) for rule in rules.values()], unit['repeats']
    )
    / num
    for make in (calls, loop)
  )
  for i, name in enumerate(rules):
    yield {
      'part': unit['part'],
      'rule': name,
      'vocab_size': unit['vocab_size'],
      'num_drafts': unit['num_drafts'],
      'call_ms': 1e3 * by_call[i],
      'ratio': by_call[i] / by_call[0],
      'loop_ms': 1e3 * in_loop[i],
      'ratio_in_loop': in_loop[i] / in_loop[0],
    }


def one_pass(key, candidates, active, draft, target):
  """What a coupling is measured by: reads both distributions once."""
  del key, candidates, active
  return jnp.minimum(draft, target).sum(), True


def make_instances(
  vocab_size: int, num_drafts: int, spread: float, seed: int, num: int
) -> Instances:
  """Returns `num` calls, each with candidates and a key of its own."""
  draft, target = acceptance.zipf_pair(vocab_size, spread, seed)
  uniforms = np.random.default_rng(seed).random((num, num_drafts))
  candidates = np.searchsorted(np.cumsum(draft, dtype=np.float64), uniforms)
  return Instances(
    keys=jax.random.split(jax.random.key(seed), num),
    candidates=jnp.minimum(candidates, vocab_size - 1).astype(jnp.int32),
    active=jnp.ones(num_drafts, bool),
    draft=jnp.asarray(draft),
    target=jnp.asarray(target),
  )


def calls(rule, instances: Instances) -> Callable[[], Any]:
  """Returns a function that makes the calls one by one, each waited for."""
  rule = jax.jit(rule)
  shared = instances[2:]
  varied = list(zip(instances.keys, instances.candidates))
  return lambda: [
    jax.block_until_ready(rule(*each, *shared))[0] for each in varied
  ]


def loop(rule, instances: Instances) -> Callable[[], Any]:
  """Returns a function that makes them in one compiled loop.

  As in a tree walk, each call finds its distributions in a table, at a row
  that is known only when the last call is done: nothing of it can be computed
  ahead.
  """

  @jax.jit
  def repeat(keys, candidates, active, drafts, targets):
    def body(row, each):
      token, _ = rule(*each, active, drafts[row], targets[row])
      # No token is negative, which the compiler cannot know.
      return jnp.where(token < 0, row, 1 - row), token

    return jax.lax.scan(body, 0, (keys, candidates))[1]

  tables = [jnp.stack([probs, probs]) for probs in instances[3:]]
  args = (*instances[:3], *tables)
  return lambda: jax.block_until_ready(repeat(*args))


# Verification against the whole round.


def _build(way, family):
  """The arm of a way, and the parameters of its drafter."""
  if len(way.arms) > 1 or not way.arms[0].tree:
    raise ValueError(f'{way.place} must be one arm that drafts a tree.')
  models = {'target': family.target, **family.drafters}
  return arms_lib.build(
    way.arms[0], arms_lib.Pool(models, way.sampling), way.place
  )


def _verification(unit, family, way):
  """The time of verification over that of its round."""
  num = unit['rounds']
  verifier, decoder, fresh = _decoder(unit, family, way)
  step = jax.jit(decoder.round_fn, donate_argnums=1)
  scored, state = record(decoder, step, fresh(), num)
  verify = jax.jit(jax.vmap(verifier))

  def verify_all():
    for each in scored:
      jax.block_until_ready(verify(*each))

  def play_all(state):
    for _ in range(num):
      state, _ = jax.block_until_ready(step(decoder.params, state))

  runs = [
    lambda: verify_all,
    lambda: functools.partial(play_all, jax.block_until_ready(fresh())),
  ]
  seconds = np.median(measure.in_turns(runs, unit['repeats']), axis=0) / num
  emitted = state.lengths - fresh().lengths
  return {
    'part': unit['part'],
    'way': way.label,
    'batch_size': unit['batch_size'],
    # Verification of a round is the longer the more of it is accepted.
    'block_efficiency': float(emitted.sum() / state.counters.pulls.sum()),
    'verify_ms': 1e3 * seconds[0],
    'round_ms': 1e3 * seconds[1],
    'share': seconds[0] / seconds[1],
  }


def _decoder(unit, family, way):
  """A verifier, the decoder that it is of, and what gives a fresh state.

  Every round is a whole one: there is no stop token, and always room.
  """
  arm, params = _build(way, family)
  prompts = [
    family.tokenizer.encode_prompt(example.prompt)
    for example in family.prompts[: unit['batch_size']]
  ]
  room = unit['rounds'] * (arm.drafter.topology.depth + 1)
  decoder = decoding.Decoder(
    family.target.functions,
    family.target.params,
    [(arm, params)],
    sampling=way.sampling,
    max_length=max(map(len, prompts)) + room,
  )
  fresh = functools.partial(decoder.init, prompts, room, seed=unit['seed'])
  return arm.verifier, decoder, fresh


def record(
  decoder: decoding.Decoder,
  step: Callable[[base.Params, Any], tuple[Any, Any]],
  state: decoding.DecodeState,
  num: int,
) -> tuple[list[tuple[Any, ...]], decoding.DecodeState]:
  """Plays rounds; returns what each one's verifier got, and the state.

  Args:
    decoder: of one arm.
    step: its jitted round.
    state: of the decode; may be donated by `step`.
    num: rounds to play.
  """
  plan, scored = decoder.round_fn, []

  @jax.jit
  def score(params, state):
    state, choice = round_lib.select(plan, state)
    (drafted,) = drafts = round_lib.draft(plan, params, state, choice)
    scored = round_lib.score(plan, params, state, choice, drafts)
    return choice.verify_keys, drafted.tree, scored.probs.processed

  for _ in range(num):
    scored.append(score(decoder.params, state))
    state, _ = step(decoder.params, state)
  return scored, state
