"""Measures the costs of couplings and of verification.

A coupling is compared with one pass over its inputs, and verification with the
whole round. Ratios are ratios of medians over interleaved repeats.
"""

from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import compare
from experiments.common import configs
from experiments.common import costs
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.spectr import acceptance
from specjax import checks
from specjax import couplings
from specjax import decoding
from specjax import families
from specjax.decoding import round as round_lib
from specjax.decoding import timing

# Solves a linear program on the host, which is impossible for large
# vocabularies.
_EXCLUDED = 'otm_table'
_COUNTS = 'num_drafts', 'values_per_repeat', 'batch_size', 'rounds', 'repeats'


def prepare(config):
  """Returns the methods; prompts come from the family."""
  configs.check_counts(config, ('vocab_sizes', *_COUNTS))
  checks.check_range('spread', config.spread, 0)
  methods = methods_lib.parse_all(config, prompts_lib.drafter_names(config))
  family = prompts_lib.load_family(config)
  for method in methods:
    _check(method)
  return compare.Setup(family, methods, [])


def run(config, workdir):
  """Returns a row per coupling and vocabulary, and a row per method."""
  family, methods, _ = prepare(config)
  prompts = [
    family.tokenizer.encode_prompt(example.prompt) for example in family.prompts
  ]
  prompts = costs.batch(prompts, config.batch_size)
  names = *_COUNTS, 'family', 'spread', 'seed'
  shared = measure.unit({name: config[name] for name in names})
  units = [{'vocab_size': size} | shared for size in config.vocab_sizes]
  comparisons = [functools.partial(_couplings, unit) for unit in units]
  for method in methods:
    unit = {'label': method.label, 'method': method.settings} | shared
    decoder = _decoder(config, family, method, prompts)
    units.append(unit)
    comparisons.append(functools.partial(_verification, unit, decoder, prompts))
  compute = lambda comparison: {'rows': comparison()}
  outcomes = log.resume(workdir, units, compute, 'comparisons', comparisons)
  return [row for outcome in outcomes for row in outcome['rows']]


def figures(rows):
  """Draws the cost of couplings by vocabulary, and verification's shares."""
  cost, verified = (
    [row for row in rows if row['part'] == name]
    for name in ('coupling', 'verification')
  )
  by_size = plots.lines(
    cost,
    'vocab_size',
    'ratio',
    'rule',
    xlabel='vocabulary size',
    ylabel='time over that of one pass',
    adjust=lambda axes: axes.set(xscale='log', yscale='log'),
  )
  shares = plots.bars(
    verified, 'part', 'share', 'method', ylabel='share of the round time'
  )
  return {'couplings': by_size, 'verification': shares}


# A coupling and one pass over its two distributions.


def _couplings(unit: log.Unit) -> list[dict[str, Any]]:
  """Returns the time of each coupling over that of one pass."""
  rules = {'pass': one_pass}
  rules |= {
    name: coupling_class()
    for name, coupling_class in couplings.COUPLINGS.items()
    if name != _EXCLUDED
  }
  num = max(1, unit['values_per_repeat'] // unit['vocab_size'])
  sizes = unit['vocab_size'], unit['num_drafts']
  instances = make_instances(*sizes, unit['spread'], unit['seed'], num)
  loops = [loop(rule, *instances) for rule in rules.values()]
  seconds = measure.medians(loops, unit['repeats'])
  return [
    {
      'part': 'coupling',
      'rule': name,
      'vocab_size': unit['vocab_size'],
      'num_drafts': unit['num_drafts'],
      'ms': 1e3 * time / num,
      'ratio': time / seconds[0],
    }
    for name, time in zip(rules, seconds)
  ]


def one_pass(key, candidates, active, draft, target):
  """Reads both distributions once, as the reference for couplings."""
  del key, candidates, active
  return jnp.minimum(draft, target).sum(), True


def make_instances(vocab_size, num_drafts, spread, seed, num):
  """Returns keys `[n]`, candidates `[n, K]`, draft `[V]` and target `[V]`."""
  draft, target = acceptance.zipf_pair(vocab_size, spread, seed)
  uniforms = np.random.default_rng(seed).random((num, num_drafts))
  drawn = np.searchsorted(np.cumsum(draft, dtype=np.float64), uniforms)
  candidates = jnp.minimum(drawn, vocab_size - 1).astype(jnp.int32)
  keys = jax.random.split(jax.random.key(seed), num)
  return keys, candidates, jnp.asarray(draft), jnp.asarray(target)


def loop(rule, keys, candidates, draft, target):
  """Returns a function that runs all calls of a coupling in a compiled loop.

  As in a tree walk, each call looks up its distributions at a row that depends
  on the previous call, so that nothing can be computed ahead.
  """
  active = jnp.ones(candidates.shape[1], bool)

  @jax.jit
  def repeat(keys, candidates, drafts, targets):
    def body(row, instance):
      token, _ = rule(*instance, active, drafts[row], targets[row])
      # No token is negative, but the compiler cannot infer that.
      return jnp.where(token < 0, row, 1 - row), token

    return jax.lax.scan(body, 0, (keys, candidates))[1]

  tables = [jnp.stack([probs, probs]) for probs in (draft, target)]
  return lambda: jax.block_until_ready(repeat(keys, candidates, *tables))


# Verification and the whole round.


def _check(method: methods_lib.Method) -> None:
  if len(method.arms) > 1 or not method.arms[0].tree:
    raise ValueError(f'{method.location} must be one arm that drafts a tree.')


def _decoder(
  config: Any,
  family: families.Family,
  method: methods_lib.Method,
  prompts: Sequence[Sequence[int]],
) -> decoding.Decoder:
  """Builds the decoder of an arm, with room for all rounds."""
  longest = max(map(len, prompts))
  (arm,) = methods_lib.build(method, family, longest + 1).decoder.round_fn.arms
  room = config.rounds * (arm.drafter.topology.depth + 1)
  return methods_lib.build(method, family, longest + room).decoder


def _verification(
  unit: log.Unit,
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
) -> list[dict[str, Any]]:
  """Returns the time of verification over that of its round, as one row."""
  num = unit['rounds']
  (arm,) = decoder.round_fn.arms
  room = num * (arm.drafter.topology.depth + 1)
  start = timing.begin(decoder, prompts, room)
  scored, state = record(decoder, start, num)
  batched = jax.vmap(arm.verifier)
  verify = jax.jit(lambda rounds: jax.lax.map(lambda r: batched(*r), rounds))
  runs = [
    lambda: lambda: verify(scored),
    timing.prepare_rounds(decoder, prompts, room, num),
  ]
  seconds = np.median(measure.interleave(runs, unit['repeats']), axis=0) / num
  return [
    {
      'part': 'verification',
      'method': unit['label'],
      'batch_size': unit['batch_size'],
      # Verification takes longer if more tokens are accepted.
      'block_efficiency': float((state.lengths - start.lengths).mean() / num),
      'verify_ms': 1e3 * seconds[0],
      'round_ms': 1e3 * seconds[1],
      'share': seconds[0] / seconds[1],
    }
  ]


def record(decoder, state, num):
  """Runs rounds; returns the arguments of each verification, and the state."""
  round_fn, params = decoder.round_fn, decoder.params

  def step(state, _):
    selected, choice = round_lib.select(round_fn, state)
    drafts = round_lib.draft(round_fn, params, selected, choice, (0,))
    scores = round_lib.score(round_fn, params, selected, choice, drafts)
    args = choice.verify_keys, drafts[0].tree, scores.probs.processed
    return round_fn(params, state)[0], args

  run = jax.jit(lambda state: jax.lax.scan(step, state, length=num))
  state, args = run(state)
  return args, state
