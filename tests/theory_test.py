"""Theory, by enumeration: expected rejections, the price of bias, regret."""

import collections
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from specjax import couplings
from specjax import theory
from specjax.testing import distributions
from specjax.theory import constant
from specjax.theory import pareto
from specjax.theory import regret
from tests import parts
from tests import tiers

RNG = np.random.default_rng(20)


def random_probs(rng, *shape):
  """`[..., V]` float64, of quite unlike entries."""
  table = rng.uniform(0.1, 1, shape) ** 2
  return table / table.sum(-1, keepdims=True)


# Expected rejections.


def enumerate_runs(target, draft, horizon, num_drafts=1, share=1.0):
  """Enumerates Algorithm 4 test by test, along all texts.

  Args:
    target: `probs(prefix)` of the target model.
    draft: `probs(prefix)` of the draft model.
    horizon: number of positions to fill.
    num_drafts: number of candidates where a round begins.
    share: `[]` or `[V]` share of a test's greatest probability; the target's
      residual then replaces rejected drafts.

  Returns:
    `[V**horizon]` distribution of the texts, and the expected rejections.
  """
  runs, rejections = {((), True): 1.0}, 0.0
  for _ in range(horizon):
    longer = collections.Counter()
    for (prefix, begins), chance in runs.items():
      goal, drafted = target(prefix), draft(prefix)
      residual = goal
      for _ in range(num_drafts if begins else 1):
        passed = share * np.minimum(drafted, residual)
        for token, prob in enumerate(chance * passed):
          longer[(*prefix, token), False] += prob
        chance *= 1 - passed.sum()
        residual = residual - passed
        residual = residual / residual.sum() if residual.sum() > 1e-12 else goal
      rejections += chance
      for token, prob in enumerate(chance * residual):
        longer[(*prefix, token), True] += prob
    runs = longer
  texts = itertools.product(range(len(goal)), repeat=horizon)
  probs = np.array([runs[text, True] + runs[text, False] for text in texts])
  return probs, rejections


def text_probs(model, size, horizon):
  """Returns the `[V**horizon]` probabilities of all texts."""
  probs = np.ones(1)
  for length in range(horizon):
    prefixes = itertools.product(range(size), repeat=length)
    probs = (
      probs[:, None] * np.array([model(prefix) for prefix in prefixes])
    ).ravel()
  return probs


def from_table(table, start):
  """Returns `probs(prefix)` of a Markov model, after a token."""
  table = table if table.ndim == 3 else table[None]
  return lambda prefix: table[min(len(prefix), len(table) - 1)][
    (start, *prefix)[-1]
  ]


def of_two_tokens(seed, size):
  """`probs(prefix)` that sees two tokens, and the position's parity."""
  table = random_probs(np.random.default_rng(seed), 2, size + 1, size + 1, size)
  return lambda prefix: table[(len(prefix) % 2, *(size, size, *prefix)[-2:])]


CASES = {
  'stationary': ((4, 4), 3),
  'changing': ((3, 3, 3), 5),
  'two tokens': (None, 5),
}
each_case = pytest.mark.parametrize('name', CASES)


@functools.cache
def models(name):
  """Returns theory arguments, and `[(chance, target, draft)]` per start."""
  shape, _ = CASES[name]
  if shape is None:
    pair = of_two_tokens(1, 3), of_two_tokens(2, 3)
    return pair, {}, [(1.0, *pair)]
  rng = np.random.default_rng(len(shape))
  pair = tuple(random_probs(rng, 2, *shape))
  initial = random_probs(rng, shape[-1])
  starts = [
    (chance, *(from_table(table, start) for table in pair))
    for start, chance in enumerate(initial)
  ]
  return pair, {'initial': initial}, starts


@each_case
@pytest.mark.parametrize('num_drafts', [1, 2, 3])
def test_expected_rejections_are_those_of_the_algorithm(name, num_drafts):
  pair, options, starts = models(name)
  _, horizon = CASES[name]
  total = 0
  for chance, target, draft in starts:
    probs, rejections = enumerate_runs(target, draft, horizon, num_drafts)
    np.testing.assert_allclose(
      probs, text_probs(target, len(target(())), horizon), atol=1e-9
    )
    total += chance * rejections
  actual = theory.batch_expected_rejections(
    *pair, horizon, num_drafts, **options
  )
  assert actual == pytest.approx(total, abs=1e-6)
  if num_drafts == 1:
    actual = theory.expected_rejections(*pair, horizon, **options)
    assert actual == pytest.approx(total, abs=1e-6)


def mean_distance(target, draft, horizon):
  """Sums `E[TV]` over positions along texts from the target."""
  size, total = len(target(())), 0.0
  for length in range(horizon):
    chances = text_probs(target, size, length)
    prefixes = itertools.product(range(size), repeat=length)
    for chance, prefix in zip(chances, prefixes):
      total += chance * 0.5 * np.abs(target(prefix) - draft(prefix)).sum()
  return total


@each_case
def test_one_draft_is_rejected_with_the_total_variation(name):
  """Checks Theorem 1."""
  pair, options, starts = models(name)
  _, horizon = CASES[name]
  expected = sum(
    chance * mean_distance(*models_of_start, horizon)
    for chance, *models_of_start in starts
  )
  actual = theory.expected_rejections(*pair, horizon, **options)
  assert actual == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('share', [0.0, 0.5, [0.9, 1.0, 0.4]])
def test_other_unbiased_rules_are_rejected_more_often(share):
  """Checks Theorem 2 for rules that pass a share of `min(1, target/draft)`."""
  (target, draft), *_ = models('two tokens')
  probs, rejections = enumerate_runs(target, draft, 4, share=np.array(share))
  np.testing.assert_allclose(probs, text_probs(target, 3, 4), atol=1e-9)
  assert rejections > theory.expected_rejections(target, draft, 4) + 0.05


def test_tables_start_from_a_uniform_token_by_default():
  pair, *_ = models('stationary')
  np.testing.assert_allclose(
    theory.batch_expected_rejections(*pair, 3, 2),
    theory.batch_expected_rejections(*pair, 3, 2, initial=np.ones(4)),
  )


def test_one_target_call_a_token_if_draft_and_target_share_no_token():
  target, draft = np.tile([0.5, 0.5, 0, 0], (2, 4, 1))
  draft = draft[:, ::-1]
  for num_drafts in (1, 3, math.inf):
    actual = theory.batch_expected_rejections(target, draft, 7, num_drafts)
    assert actual == pytest.approx(7)
  assert theory.expected_rejections(target, target, 7) == 0
  assert theory.expected_rejections(target, draft, 0) == 0


@each_case
@pytest.mark.parametrize('withheld', [False, True])
def test_many_drafts_tend_to_the_limit(name, withheld):
  """Checks Proposition 1: tokens that are never drafted remain rejected."""
  (target, draft), options, _ = models(name)
  horizon = CASES[name][1] - 1
  if withheld:  # The last token is never drafted.
    weights = np.array([1.0, 1.0, *[1.0] * (name == 'stationary'), 0.0])
    renew = lambda probs: probs * weights / (probs @ weights)[..., None]
    full = draft
    draft = (
      (lambda prefix: renew(full(prefix))) if callable(full) else renew(full)
    )
  rejections = functools.partial(
    theory.batch_expected_rejections, target, draft, horizon, **options
  )
  counts = [rejections(num_drafts=num) for num in (1, 2, 4, 4000, math.inf)]
  assert (np.diff(counts[:3]) < 0).all()
  assert counts[3] == pytest.approx(counts[4], abs=1e-6)
  assert counts[4] > 0.05
  # Were nothing withheld, a first token would be accepted for sure.
  options = {**options, 'num_drafts': math.inf}
  alone = theory.batch_expected_rejections(target, draft, 1, **options)
  assert alone > 0.05 if withheld else alone == 0


# Simulations. A mean of 5000 runs is off by 0.04 rejections or so; one that is
# wrong by 0.25, 2% of the whole, fails with chance 0.99.

RUNS, HORIZON, SIZE = 5000, 50, 7


@functools.cache
def chains():
  target, draft = random_probs(
    np.random.default_rng(21), 2, HORIZON, SIZE, SIZE
  )
  return target.astype(np.float32), draft.astype(np.float32)


def simulate(num_drafts, coupling=couplings.Multiround()):
  """Simulated runs, and how many errors their mean is from theory's."""
  target, draft = chains()
  runs = theory.simulate(
    jax.random.key(num_drafts),
    jnp.asarray(target),
    jnp.asarray(draft),
    HORIZON,
    num_drafts,
    RUNS,
    coupling,
  )
  counts = np.asarray(runs.rejected).sum(axis=1)
  expected = theory.batch_expected_rejections(
    target, draft, HORIZON, num_drafts
  )
  return runs, (counts.mean() - expected) / (counts.std() / math.sqrt(RUNS))


def p_values(runs):
  """Yields p-values of tokens 1 and 2, and of tokens 3 and 4 given the second.

  They take part in 49 cells each; without the residual, p is below 1e-20.
  """
  target, _ = chains()
  first = np.mean(
    [distributions.sequence_probs(target, start, 2) for start in range(SIZE)],
    axis=0,
  )
  tokens = np.asarray(runs.tokens)
  yield distributions.chi_square(tokens[:, :2], first)
  reached = first.reshape(SIZE, SIZE).sum(axis=0)
  third = np.einsum('x,xy,yz->yz', reached, target[2], target[3])
  yield distributions.chi_square(tokens[:, 2:4], third.ravel())


@pytest.mark.parametrize('num_drafts', tiers.cases([1, 2, 5], 2))
def test_simulated_rejections_and_tokens_are_as_foretold(num_drafts):
  runs, deviation = simulate(num_drafts)
  assert runs.tokens.shape == runs.rejected.shape == (RUNS, HORIZON)
  assert abs(deviation) < 3
  assert min(p_values(runs)) > 1e-3


def test_checks_reject_a_simulation_without_residual():
  runs, deviation = simulate(1, parts.Resampling())
  assert abs(deviation) > 10
  assert max(p_values(runs)) < 1e-6


# What more drafts are worth.


batch_improvement = jax.jit(theory.batch_improvement)


@pytest.mark.parametrize('num_drafts', [1, 2, 3, 8])
def test_improvement_has_its_closed_forms(num_drafts):
  for size in (1, 3, 6):
    draft, target = (
      np.full(6, 1 / 6),
      np.append(np.full(size, 1 / size), [0] * 6),
    )
    distance = 1 - size / 6
    actual = batch_improvement(draft, target[:6], num_drafts)
    assert actual == pytest.approx(distance - distance**num_drafts, abs=1e-6)
  for u, v in ((0.9, 0.5), (0.4, 0.1), (1.0, 0.3), (0.6, 0.6)):
    draft, target = np.array([u, 1 - u]), np.array([v, 1 - v])
    actual = batch_improvement(draft, target, num_drafts)
    expected = (u - v) * (1 - u ** (num_drafts - 1))
    assert actual == pytest.approx(expected, abs=1e-6)


def test_improvement_is_the_gain_of_one_position_and_tends_to_the_distance():
  draft, target = random_probs(RNG, 2, 5)
  models_of = lambda prefix: target, lambda prefix: draft
  one, three = (
    theory.batch_expected_rejections(*models_of, 1, num) for num in (1, 3)
  )
  actual = batch_improvement(draft, target, 3)
  assert actual == pytest.approx(one - three, abs=1e-6)
  limit = batch_improvement(draft, target, 1000)
  assert limit == pytest.approx(one, abs=1e-6)
  assert batch_improvement(draft, target, 1) == pytest.approx(0)


# Rejection against bias.

PAIRS = random_probs(RNG, 6, 2, 5)
# Tokens that only one of both may say.
PAIRS[0, 0, 0], PAIRS[1, 1, 0] = 0, 0
PAIRS /= PAIRS.sum(-1, keepdims=True)
each_pair = pytest.mark.parametrize(('draft', 'target'), PAIRS)


def least_accept(draft, target):
  return np.minimum(1, target / np.maximum(draft, 1e-9))


def rules(draft, target):
  """Rules that accept at least as often as a lossless one."""
  least = least_accept(draft, target)
  for epsilon in (0.0, 0.02, 0.1, 0.4, 1.0):
    yield pareto.over_acceptance(draft, target, epsilon)
  for share in (0.3, np.random.default_rng(22).random(len(draft))):
    yield least + share * (1 - least)


@each_pair
def test_rejection_and_bias_sum_to_the_distance(draft, target):
  """Theorem 5; the replacement by a target sample is never better."""
  distance = 0.5 * np.abs(draft - target).sum()
  assert pareto.front(draft, target) == pytest.approx(distance, abs=1e-6)
  for accept in rules(draft, target):
    best = pareto.point(accept, draft, target)
    assert sum(best) == pytest.approx(distance, abs=1e-6)
    deficit = np.abs(target - accept * draft).sum()
    least_bias = 0.5 * (deficit - float(best.rejection))  # Theorem 4.
    assert best.bias == pytest.approx(least_bias, abs=1e-6)
    plain = pareto.point(accept, draft, target, target)
    assert plain.rejection == best.rejection
    assert plain.bias >= best.bias - 1e-6
    kept = accept * draft
    output = kept + (1 - kept.sum()) * target
    assert plain.bias == pytest.approx(
      0.5 * np.abs(output - target).sum(), abs=1e-6
    )


@each_pair
def test_over_acceptance_runs_from_one_end_of_the_front_to_the_other(
  draft, target
):
  points = [
    pareto.point(pareto.over_acceptance(draft, target, epsilon), draft, target)
    for epsilon in (0.0, 0.02, 0.1, 0.4, 1.0)
  ]
  rejections, biases = np.array(points).T
  assert biases[0] == pytest.approx(0, abs=1e-6)
  assert rejections[-1] == pytest.approx(0, abs=1e-6)
  assert (np.diff(rejections) <= 1e-6).all() and rejections[1] < rejections[0]
  assert (np.diff(biases) >= -1e-6).all()


@each_pair
def test_the_best_replacement_has_the_bias_of_a_linear_program(draft, target):
  """Over all replacements (Theorem 4), for any accepting rule."""
  size = len(draft)
  rng = np.random.default_rng(23)
  for accept in (rng.random(size), rng.random(size) ** 0.2, np.ones(size)):
    rejection = ((1 - accept) * draft).sum()
    lacking = target - accept * draft
    # Minimise the sum of `off >= |lacking - rejection * replacement|`.
    eye = np.eye(size)
    solution = optimize.linprog(
      np.append(np.zeros(size), np.full(size, 0.5)),
      A_ub=np.block([[-rejection * eye, -eye], [rejection * eye, -eye]]),
      b_ub=np.append(-lacking, lacking),
      A_eq=np.append(np.ones(size), np.zeros(size))[None],
      b_eq=[1],
    )
    best = pareto.point(accept, draft, target)
    assert best.bias == pytest.approx(solution.fun, abs=1e-6)


@each_pair
def test_rules_that_accept_seldom_enough_need_no_bias(draft, target):
  for share in (0.0, 0.5, 1.0, RNG.random(len(draft))):
    accept = share * least_accept(draft, target)
    assert pareto.point(accept, draft, target).bias == pytest.approx(
      0, abs=1e-6
    )


# Drafters of constant acceptance.

each_acceptance = pytest.mark.parametrize('acceptance', [0.0, 0.3, 0.9, 1.0])
each_length = pytest.mark.parametrize('draft_length', [1, 2, 5])


def accepted_probs(acceptance, draft_length):
  """`[L + 1]` chances of the accepted drafts, by all outcomes of all tests."""
  probs = np.zeros(draft_length + 1)
  for passed in itertools.product([0, 1], repeat=draft_length):
    chance = np.where(passed, acceptance, 1 - acceptance).prod()
    probs[np.cumprod(passed).sum()] += chance
  return probs


@each_acceptance
@each_length
def test_block_lengths_are_those_of_all_outcomes(acceptance, draft_length):
  probs = accepted_probs(acceptance, draft_length)
  actual = constant.block_lengths(acceptance, draft_length)
  np.testing.assert_allclose(actual, probs, atol=1e-12)
  mean = probs @ np.arange(1, draft_length + 2)
  assert constant.block_efficiency(acceptance, draft_length) == pytest.approx(
    mean
  )


@each_acceptance
@each_length
@pytest.mark.parametrize('num_tokens', [0, 1, 4, 30])
def test_expected_rounds_are_those_of_all_sums(
  acceptance, draft_length, num_tokens
):
  """Counts one more round while fewer than `num_tokens` are emitted."""
  probs = np.append(0, accepted_probs(acceptance, draft_length))
  emitted, rounds = np.ones(1), 0.0
  while (going := emitted[:num_tokens].sum()) > 1e-15:
    rounds += going
    emitted = np.convolve(emitted, probs)
  actual = constant.expected_rounds(acceptance, draft_length, num_tokens)
  assert actual == pytest.approx(rounds)
  # By Wald's identity; the last round may overshoot by up to `L` tokens.
  mean = probs @ np.arange(draft_length + 2)
  assert actual >= num_tokens / mean - 1e-9
  assert actual <= (num_tokens + draft_length) / mean + 1e-9


@pytest.mark.parametrize(('num_tokens', 'rounds'), [(1, 1), (100, 21.81)])
def test_printed_upper_bound_of_rounds_is_too_low(num_tokens, rounds):
  """Tests MetaSD's Lemma 12 where rounds emit more than two tokens."""
  actual = constant.expected_rounds(0.9, 5, num_tokens)
  assert actual == pytest.approx(rounds, abs=0.005)
  paper_bound = (num_tokens + 1) / constant.block_efficiency(0.9, 5)
  assert actual > paper_bound + 0.2


@each_acceptance
@each_length
def test_reward_statistics_are_those_of_all_outcomes(acceptance, draft_length):
  """Checks MetaSD's Lemmas 5 and 7, and their other forms."""
  probs = accepted_probs(acceptance, draft_length)
  reward = np.arange(draft_length + 1) / draft_length
  statistics = constant.reward_statistics(acceptance, draft_length)
  assert statistics.efficiency_mean == pytest.approx(probs @ reward)
  variance = probs @ (reward - probs @ reward) ** 2
  assert statistics.efficiency_variance == pytest.approx(variance, abs=1e-12)
  assert statistics.divergence_mean == acceptance
  if acceptance < 1:
    a, n = acceptance, draft_length
    scale = (1 - a**n) / (n * (1 - a))
    assert statistics.efficiency_mean == pytest.approx(
      scale * statistics.divergence_mean
    )
    closed = 1 - (2 * n + 1) * (a**n - a ** (n + 1)) - a ** (2 * n + 1)
    assert statistics.efficiency_variance == pytest.approx(
      a * closed / (n * (1 - a)) ** 2, abs=1e-12
    )


@each_length
def test_divergence_varies_at_most_as_bounded(draft_length):
  """Checks Lemma 6 for independent distributions, and with a fair coin.

  Over 10000 rounds the variance is far from the bound. It reaches the bound
  exactly where each draft agrees either completely or not at all.
  """
  rng = np.random.default_rng(24)
  draft, target = random_probs(rng, 2, 10000, draft_length, 2)
  overlap = np.minimum(draft, target).sum(-1)
  statistics = constant.reward_statistics(overlap.mean(), draft_length)
  rewards = overlap.mean(1)
  assert rewards.mean() == pytest.approx(statistics.divergence_mean)
  assert 0 < rewards.var() < statistics.divergence_variance_bound
  coins = np.array(list(itertools.product([0, 1], repeat=draft_length)))
  assert coins.mean(1).var() == pytest.approx(
    statistics.divergence_variance_bound
  )


def divergence_is_clearer(acceptance, best_acceptance, draft_length):
  """Returns whether Theorem 3 promises that divergence separates better."""
  variance, best_variance = (
    constant.reward_statistics(a, draft_length).efficiency_variance
    for a in (acceptance, best_acceptance)
  )
  steps = np.arange(1, draft_length + 1)
  slope = (steps * best_acceptance ** (steps - 1)).sum()
  is_enough = 4 * draft_length**3 * best_variance >= slope**2
  return is_enough and variance < best_variance


def test_signal_is_clearer_by_divergence_where_it_is_promised():
  """MetaSD's Theorem 3 with 5 drafts, and the numbers found for it."""
  variance = lambda a: constant.reward_statistics(a, 5).efficiency_variance
  clearer = functools.partial(divergence_is_clearer, draft_length=5)
  assert [clearer(0.001, best) for best in (0.0560, 0.0562)] == [False, True]
  assert [clearer(0.001, best) for best in (0.8073, 0.8075)] == [True, False]
  assert not clearer(0.7, 0.3)  # It varies more than the best arm.
  grid = np.linspace(0, 1, 1001)
  variances = np.array([variance(a) for a in grid])
  peak = int(variances.argmax())
  assert grid[peak] == pytest.approx(0.816, abs=0.001)
  assert variances[peak] == pytest.approx(0.155, abs=0.0005)
  assert (np.diff(variances[: peak + 1]) > 0).all()


@each_length
def test_feedback_signals(draft_length):
  grid = np.linspace(0, 1, 21)
  num_promised = 0
  for acceptance, best in itertools.combinations(grid, 2):
    stats, of_best = (
      constant.reward_statistics(a, draft_length) for a in (acceptance, best)
    )
    gap = best - acceptance
    by_divergence = constant.feedback_signal(
      gap,
      stats.divergence_variance_bound / 2,
      of_best.divergence_variance_bound,
    )
    least = 4 * draft_length * gap**2
    assert by_divergence == pytest.approx(least)
    if divergence_is_clearer(acceptance, best, draft_length):
      num_promised += 1
      by_efficiency = constant.feedback_signal(
        of_best.efficiency_mean - stats.efficiency_mean,
        stats.efficiency_variance,
        of_best.efficiency_variance,
      )
      assert least >= by_efficiency - 1e-12
  # With one draft, both rewards are the same but for what they see of it.
  assert num_promised or draft_length == 1


# Regret.


def test_upper_bound_of_ucb_by_hand():
  """Sums gap/4 (4 + 32/gap^2 (1 + 2 log)) over the two gaps, 1 and 2."""
  first = 4 + 32 * (1 + 2 * math.log(4 * 3 * 100**2 / 0.5))
  second = 4 + 8 * (1 + 2 * math.log(4 * 3 * 100**2 / (2 * 0.5)))
  expected = first / 4 + second / 2 + math.pi**2 / 12 + 3
  assert regret.ucb_upper_bound([3, 4, 2], 4, 100) == pytest.approx(expected)
  # The case of two arms is from a calculator; then only the best arm.
  actual = regret.ucb_upper_bound([2, 3], 4, 100, delta=0.5)
  assert actual == pytest.approx(270.458, abs=0.001)
  assert regret.ucb_upper_bound([2], 4, 9, 0.3) == pytest.approx(
    1 + math.pi**2 / 20
  )


@pytest.mark.parametrize(
  ('num_tokens', 'best_rounds', 'expected'),
  [(100, 30, 94.193), (10000, 3000, 604.64)],
)
def test_upper_bound_of_exp3_by_hand(num_tokens, best_rounds, expected):
  """Covers the case of few tokens first, and then that of many."""
  actual = regret.exp3_upper_bound(4, 2, num_tokens, best_rounds)
  assert actual == pytest.approx(expected, abs=0.01)


PROBS, TABLE = np.full(2, 0.5), np.full((2, 2), 0.5)


@pytest.mark.parametrize(
  ('call', 'words'),
  [
    (
      lambda: theory.expected_rejections(TABLE, TABLE, -1),
      'horizon must be >= 0, got -1',
    ),
    (
      lambda: theory.batch_expected_rejections(TABLE, TABLE, 1, 0),
      'num_drafts must be an integer >= 1 or infinity, got 0',
    ),
    (
      lambda: theory.batch_expected_rejections(TABLE, TABLE, 1, 1.5),
      'num_drafts must be an integer .* got 1.5',
    ),
    (
      lambda: theory.batch_expected_rejections(TABLE, TABLE, 1, math.nan),
      'num_drafts must be an integer .* got nan',
    ),
    (
      lambda: theory.expected_rejections(PROBS, TABLE, 1),
      r'target must be a table .* got shape \(2,\)',
    ),
    (
      lambda: theory.expected_rejections(TABLE, TABLE[:1], 1),
      r'draft must be a table .* got shape \(1, 1, 2\)',
    ),
    (
      lambda: theory.expected_rejections(TABLE, np.eye(3), 1),
      r'of one size, got tables \(1, 3, 3\) and',
    ),
    (
      lambda: theory.expected_rejections(TABLE, [[2, -1], [0, 1]], 1),
      'draft must be finite and not negative',
    ),
    (
      lambda: theory.expected_rejections(TABLE * math.nan, TABLE, 1),
      'target must be finite and not negative',
    ),
    (
      lambda: theory.expected_rejections(TABLE * 0.9, TABLE, 1),
      'Rows of target must sum to 1, got 0.9',
    ),
    (
      lambda: theory.expected_rejections(*[lambda prefix: PROBS] * 2, 20),
      r'V\*\*horizon = 2\*\*20 texts exceeds 1000000',
    ),
    (
      lambda: theory.batch_improvement(PROBS, PROBS * 2, 2),
      'target must sum to 1',
    ),
    (lambda: theory.batch_improvement(PROBS, PROBS, 0), 'num_drafts must be'),
    (lambda: pareto.point(PROBS, PROBS * 2, PROBS), 'draft must sum to 1'),
    (
      lambda: pareto.point(PROBS, PROBS, -PROBS),
      'target must not be negative',
    ),
    (lambda: pareto.front(PROBS, np.ones(1)), 'must be of one size'),
    (
      lambda: constant.block_lengths(1.1, 2),
      r'acceptance must lie in \[0, 1\]',
    ),
    (lambda: constant.block_efficiency(0.5, 0), 'draft_length must be >= 1'),
    (
      lambda: constant.block_efficiency(0.5, 1.5),
      'draft_length must be an integer, got 1.5',
    ),
    (
      lambda: theory.simulate(None, TABLE, TABLE, 3, num_drafts=0),
      'num_drafts must be >= 1, got 0',
    ),
    (lambda: constant.expected_rounds(0.5, 2, -1), 'num_tokens must be >= 0'),
    (
      lambda: constant.expected_rounds(-0.1, 2, 1),
      'acceptance must lie in',
    ),
    (lambda: constant.reward_statistics(math.nan, 2), 'acceptance must lie in'),
    (lambda: regret.ucb_upper_bound([], 2, 9), 'means must be a list'),
    (lambda: regret.ucb_upper_bound([0.5], 2, 9), 'means must be a list'),
    (lambda: regret.ucb_upper_bound([2, math.nan], 2, 9), 'means must be'),
  ],
)
def test_bad_input_is_refused(call, words):
  with pytest.raises(ValueError, match=words):
    call()
