"""Acceptance of i.i.d. drafts: linear program, closed forms, bounds."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import transport
from specjax.transport import bins
from specjax.transport import division
from specjax.transport import linear_program
from specjax.transport import priorities
from tests import oracles
from tests import tiers
from tests.oracles import otm

# Shared by all small pairs, so that each rule is compiled four times.
SIZES = (2, 3, 5, 8)
KINDS = (
  'generic',
  'peaked',
  'tied',
  'zeros',
  'one-hot draft',
  'one-hot target',
  'disjoint',
  'equal',
)


@jax.jit
def rules(draft, target, num_drafts):
  """What each rule accepts, and the union bound; all arguments are traced."""
  args = draft, target, num_drafts
  return {
    'optimal': transport.optimal_acceptance(*args),
    'otm': transport.otm_acceptance(*args),
    'kseq': transport.kseq_acceptance(*args),
    'multiround': transport.multiround_acceptance(*args),
    'union': transport.union_bound(*args),
  }


def random_pair(rng, size, kind):
  """Draft and target `[V]`, float32, of one of `KINDS`."""
  pair = rng.dirichlet(np.full(size, 0.2 if kind == 'peaked' else 1.0), size=2)
  if kind == 'tied':
    pair = rng.integers(1, 4, (2, size))
  elif kind == 'zeros':
    pair *= rng.random((2, size)) < 0.5
    pair[np.arange(2), rng.integers(size, size=2)] += 0.1  # Not all are 0.
  elif kind.startswith('one-hot'):
    pair[int(kind.endswith('target'))] = np.eye(size)[rng.integers(size)]
  elif kind == 'disjoint':
    cut = rng.integers(1, size)
    pair[0, cut:], pair[1, :cut] = 0, 0
  elif kind == 'equal':
    pair[1] = pair[0]
  return (pair / pair.sum(1, keepdims=True)).astype(np.float32)


divide = jax.jit(division.divide, static_argnames='num_steps')


class Case(NamedTuple):
  draft: np.ndarray
  target: np.ndarray
  num_drafts: int
  best: linear_program.Plan
  rules: dict


@functools.cache
def cases():
  """200 pairs with 1 to 4 drafts, solved: degenerate ones are the majority."""
  rng = np.random.default_rng(0)
  solved_cases = []
  for index in range(200):
    size = SIZES[index // 8 % 4]
    pair = random_pair(rng, size, KINDS[index % 8])
    args = *pair, int(rng.integers(1, 5))
    best = transport.solve_linear_program(*args)
    solved_cases.append(Case(*args, best, jax.device_get(rules(*args))))
  return solved_cases


def variation(draft, target):
  return np.maximum(np.float64(draft) - target, 0).sum()


def bernoulli(chance):
  return np.array([1 - chance, chance], np.float32)


def close(value, expected, atol=1e-6):
  np.testing.assert_allclose(value, expected, rtol=0, atol=atol)


def test_optimum_is_that_of_the_linear_program():
  for case in cases():
    close(case.rules['optimal'], case.best.acceptance)
    close(case.rules['otm'], case.best.acceptance)


def test_rules_accept_as_often_as_the_oracles():
  """By the distributions of all tuples of candidates, where these are few."""
  for draft, target, num, best, rule in cases():
    if len(draft) ** num > 700:
      continue
    pair = [
      np.float64(probs) / probs.sum(dtype=float) for probs in (draft, target)
    ]
    close(best.acceptance, oracles.otm_table.best(*pair, num)[0])
    root = oracles.kseq.factor(*pair, num, steps=60)
    close(rule['kseq'], oracles.acceptance('kseq', *pair, num, rho=root))
    for name in ('multiround', 'otm'):
      close(rule[name], oracles.acceptance(name, *pair, num))


def test_check_rejects_an_optimum_without_the_order_of_ratios():
  """As it comes, or by target alone: both happen to be right in few pairs."""
  generic = [case for case in cases()[::8] if case.num_drafts > 1]
  for order in (lambda case: np.arange(len(case.draft)), lambda case: case[1]):
    errors = [
      best_cut(*case[:3], np.argsort(order(case))) - case.best.acceptance
      for case in generic
    ]
    assert np.mean(np.array(errors) > 1e-3) > 0.3


def test_plan_of_the_linear_program_couples_drafts_and_target():
  for draft, target, num_drafts, best, _ in cases():
    size = len(draft)
    drafts = functools.reduce(np.multiply.outer, [draft] * num_drafts)
    assert best.plan.shape == (size**num_drafts, size)
    assert best.plan.min() > -1e-9
    close(best.plan.sum(1), drafts.ravel())
    close(best.plan.sum(0), target)
    tuples = np.array(list(np.ndindex(drafts.shape)))
    member = (tuples[:, :, None] == np.arange(size)).any(1)
    close((best.plan * member).sum(), best.acceptance)


def test_no_rule_beats_the_optimum_and_kseq_comes_near():
  """SpecTr, Theorem 1; one draft leaves nothing to choose."""
  for draft, target, num_drafts, _, rule in cases():
    best = rule['optimal']
    assert (1 - np.exp(-1)) * best - 1e-6 <= rule['kseq'] <= best + 1e-6
    assert rule['multiround'] <= best + 1e-6
    if num_drafts == 1:
      for name in ('optimal', 'otm', 'kseq', 'multiround'):
        close(rule[name], 1 - variation(draft, target))


def test_kseq_keeps_the_chain_of_inequalities_of_its_proof():
  """SpecTr, proof of Theorem 1."""
  for draft, target, k, _, rule in cases():
    draft, target = np.float64(draft), np.float64(target)
    spread = 1 - (1 - 1 / k) ** k
    overlap = np.minimum(draft, target / k).sum()
    chain = [
      rule['kseq'],
      1 - (1 - overlap) ** k,
      spread * np.minimum(k * draft, target).sum(),
      spread * rule['union'],
      spread * rule['optimal'],
    ]
    assert np.diff(chain).max() <= 1e-6


def test_more_drafts_are_accepted_more_often():
  """SpecTr, Lemma 1; in the end, all that can be drafted is accepted."""
  for draft, target, *_ in cases()[:64]:
    values = [rules(draft, target, k) for k in range(1, 7)]
    for name in ('optimal', 'otm', 'kseq', 'multiround', 'union'):
      assert np.diff([value[name] for value in values]).min() >= -1e-6
  draft, target = np.array([[4, 2, 2, 0, 0], [1, 2, 1, 3, 1]], np.float32) / 8
  for name in ('optimal', 'otm'):
    close(rules(draft, target, 128)[name], 0.5)


def test_optimum_lies_within_the_bounds_of_lemma_3():
  for draft, target, num_drafts, best, rule in cases():
    lower, upper = transport.acceptance_bounds(draft, target, num_drafts)
    assert lower - 1e-6 <= best.acceptance <= upper + 1e-6
    assert upper <= rule['union'] + 1e-6
    close(lower, (1 - (1 - 1 / num_drafts) ** num_drafts) * upper)
    if num_drafts == 1:
      close(upper, 1 - variation(draft, target))


# By chance of token 1 in the target, for 1 to 4 drafts: optimum, k-Seq and
# multi-round rejection, where the draft's chance is 1/4.
BERNOULLI = {
  0.1: [
    (0.85, 0.85, 0.85),
    (1, 0.973072, 0.9625),
    (1, 0.995406, 0.990625),
    (1, 0.999230, 0.997656),
  ],
  0.25: [(1, 1, 1)] * 4,
  0.75: [
    (0.5, 0.5, 0.5),
    (0.6875, 0.648268, 0.625),
    (0.828125, 0.754539, 0.71875),
    (0.933594, 0.829887, 0.789062),
  ],
  1.0: [(0.25,) * 3, (0.4375,) * 3, (0.578125,) * 3, (0.683594,) * 3],
}


@pytest.mark.parametrize('chance', BERNOULLI)
def test_values_of_two_tokens(chance):
  """The examples of SpecTr's Figures 4 and 6."""
  for index, values in enumerate(BERNOULLI[chance]):
    rule = rules(bernoulli(0.25), bernoulli(chance), index + 1)
    close([rule[name] for name in ('optimal', 'kseq', 'multiround')], values)


def test_closed_form_of_two_tokens():
  """SpecTr, equation (10), and Theory's `(u - v) u**(k - 1)` all rejected."""
  chances = np.array([0, 0.1, 0.25, 0.5, 0.6, 0.9, 1], np.float32)
  for num_drafts in (1, 2, 4):
    for u in chances:
      for v in chances:
        rule = rules(bernoulli(u), bernoulli(v), num_drafts)
        optimum = min(v, 1 - (1 - u) ** num_drafts) + min(
          1 - v, 1 - u**num_drafts
        )
        close(rule['optimal'], optimum)
        assert rule['multiround'] <= rule['kseq'] + 1e-6
        if u >= v:
          rejected = (u - v) * u ** (num_drafts - 1)
          close(rule['multiround'], 1 - rejected)


@pytest.mark.parametrize('num_drafts', [1, 2, 4])
def test_closed_form_of_uniform_distributions(num_drafts):
  """k-Seq is optimal, and so is the bound of Lemma 3."""
  draft = np.full(8, 1 / 8, np.float32)
  for num_tokens in range(1, 9):
    ratio = 8 / num_tokens
    target = (np.arange(8) < num_tokens) / np.float32(num_tokens)
    closed = 1 - (1 - 1 / ratio) ** num_drafts
    rule = rules(draft, target, num_drafts)
    for name in ('optimal', 'otm', 'kseq'):
      close(rule[name], closed)
    divided = divide(draft, target, num_drafts, 30)
    close(divided.factor, ratio * closed, atol=1e-5)
    close(transport.acceptance_bounds(draft, target, num_drafts)[1], closed)


def test_division_factor_is_the_root_that_lemma_4_describes():
  """Its function falls from `TV - TV**k` at 1 to at most 0 at the bounds."""
  for draft, target, k, *_ in cases():
    draft, target = np.float64(draft), np.float64(target)

    def excess(factor, draft=draft, target=target, k=k):
      factor = np.reshape(np.asarray(factor), (-1, 1))
      overlap = np.minimum(draft, target / factor).sum(1)
      return 1 - (1 - overlap) ** k - factor[:, 0] * overlap

    distance = variation(draft, target)
    close(excess(1), distance - distance**k)
    assert np.diff(excess(np.linspace(1, k + 2, 50))).max() <= 1e-6
    coarse, fine = (divide(draft, target, k, steps) for steps in (10, 30))
    # A root, from above: a factor below it has a negative residual.
    close(excess(fine.factor), 0)
    assert excess(coarse.factor) <= 1e-6
    assert -1e-6 <= coarse.factor - fine.factor <= (k - 1) / 2**10
    if 1e-6 < distance < 1 - 1e-6:  # Otherwise it is flat.
      with np.errstate(divide='ignore'):
        highest = (target[target > 0] / draft[target > 0]).max()
      assert 1 <= fine.factor <= min(k, highest) + 1e-5


def best_cut(draft, target, *args):
  """Computes the optimum in float64."""
  pair = np.float64(draft), np.float64(target)
  cut_fn = otm.best_cut if len(args) == 2 else otm.acceptance
  return cut_fn(*pair, *args)


def multiround(draft, target, num_drafts):
  """Theory, Theorem 3, in float64: each round meets what the last one left."""
  pair = [np.float64(probs) for probs in (draft, target)]
  pair = [probs / probs.sum() for probs in pair]
  return 1 - oracles.multiround.residuals(*pair, num_drafts)[1].prod()


def test_multiround_rejects_with_the_product_of_distances():
  for draft, target, num_drafts, _, rule in cases():
    close(rule['multiround'], multiround(draft, target, num_drafts))


def large_pair(kind, size):
  """Draft and target of a full vocabulary, float32."""
  rng = np.random.default_rng(1)
  if kind == 'zipf':
    logits = -1.1 * np.log(1 + rng.permutation(size))
    logits = np.stack([logits + rng.normal(size=size), logits])
    return np.asarray(jax.nn.softmax(logits.astype(np.float32)))
  return rng.dirichlet(np.full(size, kind), size=2).astype(np.float32)


@pytest.mark.parametrize('kind', [1.0, 0.1, 'zipf'])
@pytest.mark.parametrize('size', tiers.cases([256, 32000], 256))
def test_plan_at_full_vocabulary_is_near_optimal_and_can_be_had(size, kind):
  """Strassen: the best of `k` drafts is in a set no less than all of them.

  The bar is float32's where each token is an atom, and that of 256 atoms
  beyond.
  """
  pair = large_pair(kind, size)
  proposal_of = jax.jit(
    lambda *args: priorities.compute(*args).distribution(args[0])
  )
  for num_drafts in (2, 4, 8):
    rule, best = rules(*pair, num_drafts), best_cut(*pair, num_drafts)
    close(rule['optimal'], best, atol=2e-6)
    assert best - (2e-6 if size == 256 else 2e-4) <= rule['otm'] <= best + 2e-6
    draft, proposal = map(np.float64, (pair[0], proposal_of(*pair, num_drafts)))
    close(proposal.sum(), 1, atol=1e-5)
    assert proposal.min() >= 0
    order = np.argsort(proposal / np.where(draft > 0, draft, np.inf))
    slack = np.cumsum(proposal[order]) - np.cumsum(draft[order]) ** num_drafts
    assert slack.min() > -1e-5


# Rounding: `k` draws the more out of a mass near 1, the larger `k` is.
NUM_DRAFTS = np.array([1, 2, 3, 8, 17, 64])


@functools.cache
def rounded_pairs(size):
  """Draft and target by name, `[V]` float32, that leave little for an error.

  Their order is that of the ratios in some and random in others.
  """
  rng = np.random.default_rng(size)
  token = np.arange(size)
  zipf = (1 + token) ** -1.1
  noisy = zipf * np.exp(rng.normal(size=size))
  flat, half = np.ones(size), token < max(1, size // 2)
  pairs = {
    'uniform': (flat, flat),
    'uniform on half': (flat, half),
    'uniform on one less': (flat, token < size - 1),
    'draft on one less': (token < size - 1, flat),
    'zipf': (zipf, zipf),
    'zipf, noisy': (zipf, noisy),
    'zipf, shuffled': (zipf, rng.permutation(zipf)),
    'one-hot draft': (token == 0, zipf),
    'one-hot target': (zipf, token == size - 1),
    'both one-hot': (token == 0, token == size - 1),
    'disjoint': (half * zipf, ~half * flat),
    'peaked draft': (1e-3 * flat / size + (token == 0), flat),
  }
  for concentration in (0.01, 0.1, 1.0, 100.0):
    pair = rng.dirichlet(np.full(size, concentration), size=2)
    name = f'dirichlet {concentration}'
    pairs[name] = tuple(pair)
    nearly_equal = pair[0] * (1 + 1e-6 * rng.normal(size=size))
    pairs[f'{name}, nearly equal'] = pair[0], nearly_equal
    ulps = np.nextafter(pair[0].astype(np.float32), np.float32(1))
    pairs[f'{name}, an ulp off'] = pair[0], ulps
  return {
    name: tuple(
      (probs / probs.sum()).astype(np.float32)
      for probs in map(np.abs, pair_probs)
    )
    for name, pair_probs in pairs.items()
  }


@functools.cache
def rules_of(size):
  """Returns what each rule accepts by pair: `[K]`, as `NUM_DRAFTS`."""
  pairs = rounded_pairs(size)
  rules_by_num = jax.jit(jax.vmap(rules, (None, None, 0)))
  return {
    name: jax.device_get(rules_by_num(*pairs[name], NUM_DRAFTS))
    for name in pairs
  }


ROUNDED_SIZES = pytest.mark.parametrize(
  'size', tiers.cases([2, 3, 300, 1023, 4096, 32000], 3, 1023)
)


@ROUNDED_SIZES
def test_rounding_breaks_no_bound(size):
  for name, rule in rules_of(size).items():
    best, least = rule['optimal'], (1 - np.exp(-1)) * rule['optimal']
    for suboptimal in ('kseq', 'multiround', 'otm'):
      assert (rule[suboptimal] <= best + 1e-6).all(), (name, suboptimal)
    assert (best <= rule['union'] + 1e-6).all(), name
    assert (least <= rule['kseq'] + 1e-6).all(), name
    tolerance = 1e-6 if size <= priorities.NUM_ATOMS else 2e-4
    assert (best - tolerance <= rule['otm']).all(), name


@ROUNDED_SIZES
def test_rounding_is_below_1e_6(size):
  for name, pair in rounded_pairs(size).items():
    rule = rules_of(size)[name]
    for index, num_drafts in enumerate(NUM_DRAFTS):
      close(rule['optimal'][index], best_cut(*pair, num_drafts))
      close(rule['multiround'][index], multiround(*pair, num_drafts))
      drafted = 1 - (1 - np.float64(pair[0])) ** num_drafts
      close(rule['union'][index], np.minimum(pair[1], drafted).sum())


FUNCTIONS = (
  transport.optimal_acceptance,
  transport.otm_acceptance,
  transport.kseq_acceptance,
  transport.multiround_acceptance,
  transport.union_bound,
  transport.acceptance_bounds,
  transport.solve_linear_program,
)
HALF = [0.5, 0.5]


@pytest.mark.parametrize('function', FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
  ('args', 'message'),
  [
    ((HALF, HALF, 0), 'num_drafts must be an integer >= 1, got 0'),
    ((HALF, HALF, 1.5), 'num_drafts must be an integer >= 1, got 1.5'),
    ((HALF, HALF, np.nan), 'num_drafts must be an integer >= 1, got nan'),
    ((HALF, HALF, [1, 2]), r'num_drafts must be a scalar, got shape \(2,\)'),
    ((HALF, [0.2, 0.3, 0.5], 1), r'one size, got shapes \(2,\) and \(3,\)'),
    (([HALF], [HALF], 1), r'draft must be a vector .* shape \(1, 2\)'),
    (([], [], 1), r'draft must be a vector .* shape \(0,\)'),
    ((HALF, [1.5, -0.5], 1), 'target must not be negative, got -0.5 at tok'),
    (([0.5, 0.501], HALF, 1), 'draft must sum to 1 within 0.0001, got 1.001'),
    ((HALF, [np.nan, 1], 1), 'target must be finite, got nan at token 0'),
    (([1, np.inf], HALF, 1), 'draft must be finite, got inf at token 1'),
  ],
)
def test_what_is_no_question_is_refused(function, args, message):
  with pytest.raises(ValueError, match=message):
    function(*args)


@pytest.mark.parametrize(
  'function',
  [
    transport.optimal_acceptance,
    transport.otm_acceptance,
    transport.kseq_acceptance,
    transport.solve_linear_program,
  ],
)
def test_no_more_tokens_are_drawn_without_replacement_than_there_are(function):
  message = 'num_drafts must be <= 2, the number of tokens of draft .* got 3'
  with pytest.raises(ValueError, match=message):
    function([0.5, 0.5, 0.0], [0.2, 0.3, 0.5], 3, distinct=True)


def test_what_is_too_large_is_refused_with_a_way_out():
  probs = np.full(20, 1 / 20)
  message = r'20\*\*4 .* exceeds 100000; use optimal_acceptance'
  with pytest.raises(ValueError, match=message):
    transport.solve_linear_program(probs, probs, 4)
  with pytest.raises(ValueError, match=r'2\*\*20 .*210 .*use union_bound'):
    transport.acceptance_bounds(probs, probs, 2)


def test_values_are_checked_only_where_they_are_known():
  """While JAX traces, shapes are; eager and jitted calls agree."""
  rules(jnp.full(2, jnp.nan), jnp.ones(2), 0)
  with pytest.raises(ValueError, match='of one size'):
    rules(jnp.ones(2), jnp.ones(3), 1)
  draft, target, num_drafts, _, rule = cases()[0]
  close(
    transport.optimal_acceptance(draft, target, num_drafts), rule['optimal']
  )


@pytest.mark.parametrize('size', [bins.NUM_BINS, 100])
def test_bins_on_a_tpu_are_those_elsewhere(size):
  """Compares products with ones to scattering and gathering elsewhere."""
  rng = np.random.default_rng(0)
  table = jnp.float32(rng.normal(size=size))
  index = jnp.int32(rng.integers(size, size=5000))
  actual = jax.jit(bins.gather_by_matmul)(table, index)
  np.testing.assert_array_equal(actual, table[index])
  values = rng.dirichlet(np.ones(5000), size=2).T.astype(np.float32)
  expected = [np.bincount(index, column, bins.NUM_BINS) for column in values.T]
  for add in (bins.bin_sums, bins.bin_sums_by_matmul):
    sums = jax.jit(add)(jnp.asarray(values), index)
    np.testing.assert_allclose(sums.T, expected, rtol=1e-5, atol=1e-9)
