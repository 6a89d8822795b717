"""What a coupling costs beside its inputs, and verification beside its round.

Every ratio is of medians over repeats in which both sides take turns.
"""

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
from specjax.decoding import round as round_lib
from specjax.decoding import timing

# Leaves the device for a linear program, which no large vocabulary has.
_LEFT_OUT = 'otm_table'
_COUNTS = 'num_drafts', 'values_per_repeat', 'batch_size', 'rounds', 'repeats'


def prepare(config):
  """Returns the methods; prompts are those of the family."""
  configs.check_counts(config, ('vocab_sizes', *_COUNTS))
  checks.check_range('spread', config.spread, 0)
  methods = methods_lib.parse_all(config, prompts_lib.drafter_names(config))
  family = prompts_lib.load_family(config)
  for method in methods:
    _check(method)
  return compare.Plan(family, methods, [])


def run(config, workdir):
  """Returns a row for every coupling and vocabulary, and for every method."""
  family, methods, _ = prepare(config)
  prompts = [
    family.tokenizer.encode_prompt(example.prompt) for example in family.prompts
  ]
  prompts = costs.batch(prompts, config.batch_size)
  decoders = {
    method.label: _decoder(config, family, method, prompts)
    for method in methods
  }
  names = *_COUNTS, 'family', 'spread', 'seed'
  shared = {name: config[name] for name in names}
  units = [{'vocab_size': size} | shared for size in config.vocab_sizes]
  for method in methods:
    units.append({'label': method.label, 'method': method.settings} | shared)

  def compute(unit):
    if 'vocab_size' in unit:
      return {'rows': _couplings(unit)}
    return {'rows': [_verification(unit, decoders[unit['label']], prompts)]}

  outcomes = log.resume(workdir, units, compute, 'comparisons')
  return [row for outcome in outcomes for row in outcome['rows']]


def figures(rows):
  """Draws the cost of couplings by vocabulary, and shares of verification."""
  cost, verified = (
    [row for row in rows if row['part'] == name]
    for name in ('coupling', 'verification')
  )
  by_size = plots.lines(
    cost,
    'vocab_size',
    'ratio',
    'rule',
    xlabel='tokens in vocabulary',
    ylabel='time over that of one pass',
  )
  by_size.axes[0].set(xscale='log', yscale='log')
  shares = plots.bars(
    verified, 'part', 'share', 'method', ylabel='share of the round'
  )
  return {'couplings': by_size, 'verification': shares}


# A coupling against one pass over the two rows that it gets.


def _couplings(unit):
  """The time of each coupling over that of a pass."""
  rules = {'pass': one_pass}
  rules |= {
    name: coupling_class()
    for name, coupling_class in couplings.COUPLINGS.items()
    if name != _LEFT_OUT
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
      'ms': 1e3 * each / num,
      'ratio': each / seconds[0],
    }
    for name, each in zip(rules, seconds)
  ]


def one_pass(key, candidates, active, draft, target):
  """What a coupling is measured by: reads both distributions once."""
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
  """Returns a function that makes all calls of a coupling, in a compiled loop.

  As in a tree walk, each call finds its distributions in a table, at a row
  that is known only when the last call is done: nothing of it can be computed
  ahead.
  """
  active = jnp.ones(candidates.shape[1], bool)

  @jax.jit
  def repeat(keys, candidates, drafts, targets):
    def body(row, each):
      token, _ = rule(*each, active, drafts[row], targets[row])
      # No token is negative, which the compiler cannot know.
      return jnp.where(token < 0, row, 1 - row), token

    return jax.lax.scan(body, 0, (keys, candidates))[1]

  tables = [jnp.stack([probs, probs]) for probs in (draft, target)]
  return lambda: jax.block_until_ready(repeat(keys, candidates, *tables))


# Verification against the whole round.


def _check(method):
  if len(method.arms) > 1 or not method.arms[0].tree:
    raise ValueError(f'{method.place} must be one arm that drafts a tree.')


def _decoder(config, family, method, prompts):
  """The decoder of an arm, with room for all rounds."""
  longest = max(map(len, prompts))
  (arm,) = methods_lib.build(method, family, longest + 1).decoder.round_fn.arms
  room = config.rounds * (arm.drafter.topology.depth + 1)
  return methods_lib.build(method, family, longest + room).decoder


def _verification(unit, decoder, prompts):
  """The time of verification over that of its round."""
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
  seconds = np.median(measure.in_turns(runs, unit['repeats']), axis=0) / num
  return {
    'part': 'verification',
    'method': unit['label'],
    'batch_size': unit['batch_size'],
    # Verification of a round is the longer the more of it is accepted.
    'block_efficiency': float((state.lengths - start.lengths).mean() / num),
    'verify_ms': 1e3 * seconds[0],
    'round_ms': 1e3 * seconds[1],
    'share': seconds[0] / seconds[1],
  }


def record(decoder, state, num):
  """Plays rounds; returns the arguments of each verification, and the state."""
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
