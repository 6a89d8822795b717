"""Siblings that are drawn without replacement: chances, couplings, the loop."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import couplings
from specjax import sampling as sampling_lib
from specjax import transport
from specjax import trees
from specjax import verifiers
from specjax.testing import distributions
from specjax.transport import distinct
from specjax.transport import division
from specjax.transport import marks


@functools.partial(jax.jit, static_argnames=('found', 'most'))
def of_draws(found, weights, good, num, most):
  return found(weights, good, num, most, distinct.large_ones(weights))


any_good = functools.partial(of_draws, distinct.any_good)
count_good = functools.partial(of_draws, distinct.count_good)
RULES = {
  'kseq': transport.kseq_acceptance,
  'otm': transport.otm_acceptance,
}
WEIGHTS = {
  'even': (0.1, 0.1, 0.1),
  'uneven': (0.3, 0.2, 0.1, 0.05, 0.01),
  'steep': (0.999, 1e-4, 1e-5, 1e-6),
}


def orders(probs, num):
  """Yields all draws of `num` different tokens, and how likely each is."""
  for tokens in itertools.permutations(range(len(probs)), num):
    chance, left = 1.0, 1.0
    for token in tokens:
      chance *= probs[token] / left
      left -= probs[token]
    yield tokens, chance


@pytest.mark.parametrize('num', [0, 1, 2, 3])
@pytest.mark.parametrize('weights', WEIGHTS.values(), ids=WEIGHTS)
def test_chance_of_a_good_draw_is_that_of_all_orders(weights, num):
  """What is left when `num` others come first: a product of each order's."""
  bad = sum(chance for _, chance in orders(weights, num))
  args = jnp.float32(weights), jnp.float32(1 - sum(weights)), num
  assert any_good(*args, most=4) == pytest.approx(1 - bad, abs=3e-6)


def test_a_good_draw_that_comes_late_is_a_number():
  """Powers of such times are too large for float32."""
  found = any_good(jnp.float32([1.0, 0.0]), jnp.float32(1e-13), 2, most=2)
  assert found == pytest.approx(1)


def test_small_weights_are_a_series():
  """Of 2000 equal ones, 128 are looked at alone: a product in closed form."""
  size, good = 2000, 0.1
  weights = np.full(size, (1 - good) / size)
  bad = np.prod(
    [(weights[0] * (size - i)) / (1 - weights[0] * i) for i in range(8)]
  )
  found = any_good(jnp.float32(weights), jnp.float32(good), 8, most=8)
  assert found == pytest.approx(1 - bad, abs=5e-6)


def counts_of_draws(weights, good, num):
  """`[num + 1]` how many of the draws that count are good, draw by draw."""
  found = np.zeros(num + 1)

  def draw(others, count, chance):
    if len(others) + count == num:
      found[count] += chance
      return
    new = {i: weight for i, weight in enumerate(weights) if i not in others}
    left = good + sum(new.values())
    draw(others, count + 1, chance * good / left)
    for token, weight in new.items():
      draw(others | {token}, count, chance * weight / left)

  draw(frozenset(), 0, 1.0)
  return found


@pytest.mark.parametrize('num', [0, 1, 2, 3])
@pytest.mark.parametrize('weights', WEIGHTS.values(), ids=WEIGHTS)
def test_numbers_of_good_draws_are_those_of_all_draws(weights, num):
  good = 1 - sum(weights)
  want = np.pad(counts_of_draws(weights, good, num), (0, 4 - num))
  found = count_good(jnp.float32(weights), jnp.float32(good), num, most=4)
  np.testing.assert_allclose(found, want[1:], atol=4e-6)


def pair(seed, size=5):
  return np.random.default_rng(seed).dirichlet(np.full(size, 0.6), size=2)


@pytest.mark.parametrize('num', [1, 2, 3])
@pytest.mark.parametrize('seed', range(3))
def test_minimum_cut_is_the_linear_program(seed, num):
  """Rules accept less than it, but no less than of i.i.d. drafts; otm most."""
  draft, target = pair(seed)
  plan = transport.solve_linear_program(draft, target, num, distinct=True)
  best = transport.optimal_acceptance(draft, target, num, distinct=True)
  assert best == pytest.approx(plan.acceptance, abs=1e-5)
  found = []
  for rule in RULES.values():
    own = rule(draft, target, num, distinct=True)
    iid = rule(draft, target, num)
    assert iid - 2e-3 <= own <= best + 1e-5
    found.append(own)
  kseq, otm = found
  assert otm >= kseq - 2e-3
  np.testing.assert_allclose(plan.plan.sum(axis=0), target, atol=1e-8)
  chances = dict(orders(draft, num))
  tuples = itertools.product(range(len(draft)), repeat=num)
  want = [chances.get(each, 0.0) for each in tuples]
  np.testing.assert_allclose(plan.plan.sum(axis=1), want, atol=1e-8)


@pytest.mark.parametrize(
  'rule', [transport.optimal_acceptance, *RULES.values()]
)
def test_of_drafts_without_replacement_more_is_accepted(rule):
  own = functools.partial(rule, *pair(4), 3)
  assert own(distinct=True) > own() + 0.01


@pytest.mark.parametrize('size', [8, 400])
@pytest.mark.parametrize('num', [2, 4])
def test_factor_of_marks_is_the_best_one(size, num):
  """Of a fine grid, also where atoms are buckets of tokens."""
  draft, target = map(jnp.float32, pair(3, size))
  search = functools.partial(marks.mark, draft, target, jnp.int32(num), num)

  def accepted(found):
    proposal = found.plan(target).distribution(found.distribution())
    return jnp.minimum(proposal, target).sum()

  def at(log_factor):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(marks, '_maximise', lambda *_: log_factor)
      return accepted(search())

  grid = jax.jit(jax.vmap(at))(jnp.linspace(-4, 6, 200))
  own = jax.jit(lambda: accepted(search()))()
  assert float(own) == pytest.approx(float(grid.max()), abs=1e-3)


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, 0, None, None, None, None))
def pick(coupling, key, *args):
  return coupling(key, *args)


def deviation(coupling, draft, target, width, num, num_keys=40_000):
  """The largest of the tokens' frequencies from the target, in their errors."""
  found, variance, accepted = np.zeros_like(target), np.zeros_like(target), 0.0
  keys = jax.random.split(jax.random.key(5), num_keys)
  for i, (tokens, chance) in enumerate(orders(draft, width)):
    left, own = draft.copy(), []
    for token in tokens:
      own.append(left / left.sum())
      left[token] = 0
    picked, kept = pick(
      coupling,
      jax.vmap(jax.random.fold_in, (0, None))(keys, i),
      jnp.array(tokens, jnp.int32),
      jnp.arange(width) < num,
      jnp.array(own, jnp.float32),
      jnp.array(target, jnp.float32),
    )
    share = np.bincount(picked, minlength=len(target)) / num_keys
    found += chance * share
    variance += chance**2 * share * (1 - share) / num_keys
    accepted += chance * float(kept.mean())
  error = np.sqrt(np.maximum(variance, 1e-12))
  return np.abs((found - target) / error).max(), accepted


@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize(
  ('width', 'num'), [(1, 1), (2, 0), (2, 2), (3, 2), (3, 3)]
)
def test_couplings_have_the_target_distribution(width, num, rule):
  """By enumeration of what is drawn; accepted as often as is foretold."""
  draft, target = pair(1, 4)
  coupling = couplings.DISTINCT_COUPLINGS[f'{rule}_distinct']
  worst, accepted = deviation(coupling, draft, target, width, num)
  assert worst < 4.5
  want = 0.0
  if num:
    want = float(RULES[rule](draft, target, num, distinct=True))
  # What is left of the target may be a candidate, too.
  assert want - 4e-3 < accepted < want + (4e-3 if rule == 'kseq' else 0.1)


@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize('rare', [1e-4, 1e-8, 2e-14])
def test_couplings_have_the_target_distribution_of_rare_drafts(rare, rule):
  """Tests take long, or none is passed where none could be long enough."""
  draft = np.array([1.0, rare, 2 * rare, rare])
  target = np.array([0.0, 0.5, 0.25, 0.25])
  draft /= draft.sum()
  coupling = couplings.DISTINCT_COUPLINGS[f'{rule}_distinct']
  worst, accepted = deviation(coupling, draft, target, 2, 2)
  assert worst < 4.5
  foretold = RULES[rule](draft, target, 2, distinct=True)
  assert accepted >= foretold - 4e-3
  assert (foretold > 0.3) == (rare > 1e-13)


def iid_factor(*args):
  """k-Seq with the division factor of as many i.i.d. tests."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      division,
      'divide_distinct',
      lambda draft, target, num, most: division.divide(draft, target, num),
    )
    return couplings.kseq_distinct(*args)


def all_count(*args):
  """otm as if draws of tokens that were seen counted, too."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      distinct,
      'count_good',
      lambda weights, good, num, most, large: jax.scipy.stats.binom.pmf(
        jnp.arange(1.0, most + 1), num.astype(jnp.float32), good
      ),
    )
    return couplings.otm_distinct(*args)


@pytest.mark.parametrize('broken', [iid_factor, all_count])
def test_check_rejects_what_is_for_iid_drafts(broken):
  draft, target = pair(1, 4)
  worst, _ = deviation(broken, draft, target, 3, 3)
  assert worst > 10


ROWS, LENGTH, PROMPT = 20000, 3, [2, 0]
MODEL = specjax.MODELS['markov'](3)


@pytest.mark.parametrize(
  'verifier', [*couplings.DISTINCT_COUPLINGS, 'ensemble']
)
@pytest.mark.parametrize(
  'topology',
  [trees.chains(2, 2), trees.prefix_tree((3, 2))],
  ids=['2x2', '3.2'],
)
def test_the_loop_has_the_target_distribution(topology, verifier):
  rng = np.random.default_rng(12)
  target = distributions.random_table(rng, 3, 3, low=0.2)
  draft = distributions.random_table(rng, 3, 3, low=0.05)
  drafter = specjax.DRAFTERS['autoregressive'](MODEL, topology, distinct=True)
  arm = specjax.Arm(drafter, verifiers.resolve(verifier))
  decoder = specjax.Decoder(MODEL, target, [(arm, draft)])
  results = decoder.decode([PROMPT] * ROWS, LENGTH, seed=3)
  tokens = np.array([result.tokens for result in results])
  probs = distributions.sequence_probs(target, PROMPT[-1], LENGTH)
  assert distributions.chi_square(tokens, probs) > 1e-4


def test_greedy_siblings_are_the_most_likely_tokens():
  """So that a row has what the target wants more often than one chain."""
  rng = np.random.default_rng(2)
  target, draft = (distributions.random_table(rng, 9, 9) for _ in range(2))
  model, sampling = specjax.MODELS['markov'](9), sampling_lib.Sampling(0.0)
  rounds = {}
  for distinct_siblings in (False, True):
    drafter = specjax.DRAFTERS['autoregressive'](
      model, trees.chains(3, 2), sampling, distinct=distinct_siblings
    )
    arm = specjax.Arm(drafter, verifiers.resolve('greedy'))
    decoder = specjax.Decoder(model, target, [(arm, draft)], sampling=sampling)
    results = decoder.decode([[i] for i in range(9)], 24)
    rounds[distinct_siblings] = sum(result.rounds for result in results)
  assert rounds[True] < rounds[False]


def test_siblings_of_other_drafters_are_refused():
  drafter = specjax.DRAFTERS['autoregressive'](MODEL, trees.chains(2, 2))
  arm = specjax.Arm(drafter, verifiers.resolve('distinct'))
  with pytest.raises(ValueError, match='drawn without replacement, got'):
    specjax.Decoder(MODEL, np.full((3, 3), 1 / 3), [(arm, None)])
