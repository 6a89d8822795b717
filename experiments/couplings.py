"""What a coupling costs beside its inputs, and verification beside its round.

Every ratio is of medians over repeats in which both sides take turns, so that
a drift of the machine's speed cancels.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import results
from experiments import transport
from specjax import base
from specjax import couplings
from specjax import decoding
from specjax import drafters
from specjax import families
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import round as round_lib

# Leaves the device for a linear program, which no large vocabulary has.
_LEFT_OUT = 'otm_table'


class Instances(NamedTuple):
  """Many calls of a coupling on one pair of distributions."""

  keys: jax.Array  # [n]
  candidates: jax.Array  # [n, K] int32, drawn from the draft
  active: jax.Array  # [K] bool, all true
  draft: jax.Array  # [V]
  target: jax.Array  # [V]


def run(config, workdir):
  """Writes a row for every comparison, with the device's name."""
  family = families.load(config.family)
  _check(config, family)
  results.start(workdir)
  device, rows = results.device(), []
  for part in (_couplings, _verifiers):
    for row in part(config, family):
      rows.append(row | {'device': device})
      results.log(workdir, rows[-1])
  results.write(workdir, rows)


def _check(config, family):
  for name in (
    'vocab_sizes',
    'num_drafts',
    'values_per_repeat',
    'draft_length',
    'batch_size',
    'rounds',
    'repeats',
  ):
    if not np.size(config[name]) or np.min(config[name]) < 1:
      raise ValueError(f'{name} must be >= 1, got {config[name]}.')
  if config.spread < 0:
    raise ValueError(f'spread must be >= 0, got {config.spread}.')
  registry.lookup(family.drafters, 'drafter', config.drafter)
  if config.batch_size > len(family.prompts):
    raise ValueError(
      f'batch_size must be at most the {len(family.prompts)} prompts of the '
      f'family, got {config.batch_size}.'
    )
  for name in config.verifiers:
    verifiers.resolve(name)


# A coupling against one pass over the two rows that it gets.


def _couplings(config, family):
  """The time of each coupling over that of a pass, by size of vocabulary."""
  del family
  rules = {'pass': one_pass}
  rules |= {k: v for k, v in couplings.COUPLINGS.items() if k != _LEFT_OUT}
  for vocab_size in config.vocab_sizes:
    num = max(1, config.values_per_repeat // vocab_size)
    instances = make_instances(config, vocab_size, num)
    label = f'{vocab_size} tokens'
    by_call, in_loop = (
      results.medians(
        config.repeats,
        [way(rule, instances) for rule in rules.values()],
        f'{label}, {way.__name__}',
      )
      / num
      for way in (calls, loop)
    )
    for i, name in enumerate(rules):
      yield {
        'benchmark': 'coupling',
        'rule': name,
        'vocab_size': vocab_size,
        'num_drafts': config.num_drafts,
        'call_ms': 1e3 * by_call[i],
        'ratio': by_call[i] / by_call[0],
        'loop_ms': 1e3 * in_loop[i],
        'ratio_in_loop': in_loop[i] / in_loop[0],
      }


def one_pass(key, candidates, active, draft, target):
  """What a coupling is measured by: reads both distributions once."""
  del key, candidates, active
  return jnp.minimum(draft, target).sum(), True


def make_instances(config, vocab_size: int, num: int) -> Instances:
  """Returns `num` calls, each with candidates and a key of its own."""
  draft, target = transport.zipf_pair(vocab_size, config.spread, config.seed)
  rng = np.random.default_rng(config.seed)
  uniforms = rng.random((num, config.num_drafts))
  candidates = np.searchsorted(np.cumsum(draft, dtype=np.float64), uniforms)
  return Instances(
    keys=jax.random.split(jax.random.key(config.seed), num),
    candidates=jnp.minimum(candidates, vocab_size - 1).astype(jnp.int32),
    active=jnp.ones(config.num_drafts, bool),
    draft=jnp.asarray(draft),
    target=jnp.asarray(target),
  )


def calls(rule, instances: Instances):
  """Returns a function that makes the calls one by one, each waited for."""
  rule = jax.jit(rule)
  shared = instances[2:]
  varied = list(zip(instances.keys, instances.candidates))
  return lambda: [
    jax.block_until_ready(rule(*each, *shared))[0] for each in varied
  ]


def loop(rule, instances: Instances):
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


def _verifiers(config, family):
  """The time of verification over that of its round, by rule."""
  model = family.drafters[config.drafter]
  sampling = sampling_lib.Sampling(config.temperature)
  drafter = drafters.DRAFTERS['autoregressive'](
    model.functions,
    trees.chains(config.num_drafts, config.draft_length),
    sampling,
  )
  prompts = [
    family.tokenizer.encode_prompt(example.prompt)
    for example in family.prompts[: config.batch_size]
  ]
  # Every round is a whole one: there is no stop token, and always room.
  room = config.rounds * (config.draft_length + 1)
  for rule in config.verifiers:
    decoder = decoding.Decoder(
      family.target.functions,
      family.target.params,
      [(base.Arm(drafter, verifiers.resolve(rule)), model.params)],
      sampling=sampling,
      max_length=max(map(len, prompts)) + room,
    )
    fresh = functools.partial(decoder.init, prompts, room, seed=config.seed)
    yield _verifier_row(config, rule, decoder, fresh)


def _verifier_row(config, rule, decoder, fresh):
  step = jax.jit(decoder.round_fn, donate_argnums=1)
  score = make_score(decoder.round_fn)
  scored, state = record(score, step, decoder.params, fresh(), config.rounds)
  verify = jax.jit(jax.vmap(verifiers.resolve(rule)))
  states = [fresh() for _ in range(config.repeats + 1)]

  def verify_all():
    for each in scored:
      jax.block_until_ready(verify(*each))

  def play_all():
    state = states.pop()
    for _ in range(config.rounds):
      state, _ = jax.block_until_ready(step(decoder.params, state))

  verify_time, round_time = (
    results.medians(config.repeats, [verify_all, play_all], rule)
    / config.rounds
  )
  emitted = state.lengths - fresh().lengths
  return {
    'benchmark': 'verification',
    'rule': rule,
    'batch_size': config.batch_size,
    'num_drafts': config.num_drafts,
    'draft_length': config.draft_length,
    # Verification of a round is the longer the more of it is accepted.
    'block_efficiency': float(emitted.sum() / state.counters.pulls.sum()),
    'verify_ms': 1e3 * verify_time,
    'round_ms': 1e3 * round_time,
    'share': verify_time / round_time,
  }


def make_score(plan: decoding.Round):
  """Returns `(params, state) -> (keys, tree, target_probs)` of a round.

  Args:
    plan: of one arm.
  """

  @jax.jit
  def score(params, state):
    state, choice = round_lib.select(plan, state)
    (drafted,) = drafts = round_lib.draft(plan, params, state, choice)
    scored = round_lib.score(plan, params, state, choice, drafts)
    return choice.verify_keys, drafted.tree, scored.probs.processed

  return score


def record(score, step, params, state, num: int) -> tuple[list[tuple], Any]:
  """Plays `num` rounds; returns what each one's verifier got, and the state.

  Args:
    score: from `make_score`.
    step: a jitted round.
    params: of all models.
    state: of the decode; may be donated by `step`.
    num: rounds to play.
  """
  scored = []
  for _ in range(num):
    scored.append(score(params, state))
    state, _ = step(params, state)
  return scored, state
