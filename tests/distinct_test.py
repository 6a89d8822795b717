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
from tests import oracles
from tests import tiers
from tests.oracles import candidates
from tests.oracles import enumeration
from tests.oracles import kseq_distinct
from tests.oracles import otm_distinct
from tests.oracles import otm_table
from tests.oracles import traversal
from tests.verifiers import exact

MOST = 4  # Draws that count.


@functools.partial(jax.jit, static_argnames=('statistic', 'most'))
def _evaluate_draws(statistic, weights, good, num, most):
  return statistic(weights, good, num, most, distinct.large_indices(weights))


def evaluate_draws(statistic, weights, good, num, most=MOST):
  """Pads few weights to five, so that they share a program."""
  weights = np.pad(np.float32(weights), (0, max(5 - len(weights), 0)))
  return _evaluate_draws(
    statistic, weights, np.float32(good), np.int32(num), most
  )


any_good = functools.partial(evaluate_draws, distinct.any_good)
count_good = functools.partial(evaluate_draws, distinct.count_good)
RULES = {
  'kseq': transport.kseq_acceptance,
  'otm': transport.otm_acceptance,
}
WEIGHTS = {
  'even': np.array([0.1, 0.1, 0.1]),
  'uneven': np.array([0.3, 0.2, 0.1, 0.05, 0.01]),
  'steep': np.array([0.999, 1e-4, 1e-5, 1e-6]),
}


def orders(probs, num):
  """Yields all draws of `num` different tokens, and their probabilities."""
  for tokens in itertools.permutations(range(len(probs)), num):
    chance, remaining = 1.0, 1.0
    for token in tokens:
      chance *= probs[token] / remaining
      remaining -= probs[token]
    yield tokens, chance


@pytest.mark.parametrize('num', [0, 1, 2, 3])
@pytest.mark.parametrize('weights', WEIGHTS.values(), ids=WEIGHTS)
def test_chance_of_a_good_draw_is_that_of_all_orders(weights, num):
  """Compares with a sum over all orders in which `num` bad draws come first."""
  bad = sum(chance for _, chance in orders(weights, num))
  actual = any_good(weights, 1 - sum(weights), num)
  assert actual == pytest.approx(1 - bad, abs=3e-6)


def test_a_good_draw_that_comes_late_is_a_number():
  """Covers times whose powers are too large for float32."""
  actual = any_good([1.0, 0.0], 1e-13, 2)
  assert actual == pytest.approx(1)


def test_small_weights_are_a_series():
  """Compares 2000 equal weights with a product in closed form.

  Only 128 of them are treated individually.
  """
  size, good = 2000, 0.1
  weights = np.full(size, (1 - good) / size)
  bad = np.prod(
    [(weights[0] * (size - i)) / (1 - weights[0] * i) for i in range(8)]
  )
  actual = any_good(weights, good, 8, most=8)
  assert actual == pytest.approx(1 - bad, abs=5e-6)


@pytest.mark.parametrize('num', [0, 1, 2, 3])
@pytest.mark.parametrize('weights', WEIGHTS.values(), ids=WEIGHTS)
def test_numbers_of_good_draws_are_those_of_all_draws(weights, num):
  good = 1 - sum(weights)
  # All draws of the last token are good.
  draft, covered = np.append(weights, good), np.append(0 * weights, good)
  expected = otm_distinct.counts(draft, covered, num)
  actual = count_good(weights, good, num)
  np.testing.assert_allclose(actual[:num], expected, atol=4e-6)
  assert not actual[num:].any()


def pair(seed, size=5):
  return np.random.default_rng(seed).dirichlet(np.full(size, 0.6), size=2)


@functools.partial(jax.jit, static_argnums=2)
def accepted_of(draft, target, num):
  """Returns what each rule accepts, without replacement and with it."""
  rules = {'best': transport.optimal_acceptance} | RULES
  return {
    name: [
      rule(draft, target, num, distinct=is_distinct)
      for is_distinct in (True, False)
    ]
    for name, rule in rules.items()
  }


@pytest.mark.parametrize('num', tiers.cases([1, 2, 3], 3))
def test_minimum_cut_is_the_linear_program(num):
  """Compares the optimum with the linear program, and the rules with both.

  A rule accepts at most the optimum, and at least as much as from i.i.d.
  drafts. `otm` accepts the most.
  """
  for seed in range(3):
    draft, target = pair(seed)
    solution = transport.solve_linear_program(draft, target, num, distinct=True)
    accepted = accepted_of(np.float32(draft), np.float32(target), num)
    best, _ = accepted['best']
    expected, _ = otm_table.best(draft, target, num, distinct=True)
    assert solution.acceptance == pytest.approx(expected, abs=1e-6)
    assert best == pytest.approx(expected, abs=1e-5)
    for name in RULES:
      without, iid = accepted[name]
      assert iid - 2e-3 <= without <= best + 1e-5
    assert accepted['otm'][0] >= accepted['kseq'][0] - 2e-3
    np.testing.assert_allclose(solution.plan.sum(axis=0), target, atol=1e-8)
    np.testing.assert_allclose(
      solution.plan.sum(axis=1),
      candidates.probabilities(draft, num, distinct=True),
      atol=1e-8,
    )


def test_of_drafts_without_replacement_more_is_accepted():
  accepted = accepted_of(*np.float32(pair(4)), 3)
  for name, (without, iid) in accepted.items():
    assert without > iid + 0.01, name


@pytest.mark.parametrize(
  ('size', 'num'), tiers.cases([(8, 4), (400, 2)], (8, 4))
)
def test_factor_of_marks_is_the_best_one(size, num):
  """Compares the factor with a fine grid, also for buckets of tokens."""
  draft, target = map(jnp.float32, pair(3, size))
  search = functools.partial(marks.mark, draft, target, jnp.int32(num), num)

  def accepted(mark):
    proposal = mark.draw_priorities(target).distribution(mark.distribution())
    return jnp.minimum(proposal, target).sum()

  def acceptance_at(log_factor):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(marks, '_maximize', lambda *_: log_factor)
      return accepted(search())

  grid = jax.jit(jax.vmap(acceptance_at))(jnp.linspace(-4, 6, 200))
  search_acceptance = jax.jit(lambda: accepted(search()))()
  assert float(search_acceptance) == pytest.approx(float(grid.max()), abs=1e-3)


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, 0, None, None, None, None))
def pick(coupling, key, *args):
  return coupling(key, *args)


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None))
def folded(key, index):
  return jax.random.fold_in(key, index)


def deviation(coupling, draft, target, width, num, num_keys=40_000):
  """Returns the largest deviation from the target in errors, and acceptance."""
  frequencies, variance, accepted = (
    np.zeros_like(target),
    np.zeros_like(target),
    0.0,
  )
  keys = jax.random.split(jax.random.key(5), num_keys)
  for i, (tokens, chance) in enumerate(orders(draft, width)):
    picked, kept = pick(
      coupling,
      folded(keys, i),
      np.int32(tokens),
      np.arange(width) < num,
      np.float32(sibling_drafts(draft, tokens)),
      np.float32(target),
    )
    share = np.bincount(picked, minlength=len(target)) / num_keys
    frequencies += chance * share
    variance += chance**2 * share * (1 - share) / num_keys
    accepted += chance * float(kept.mean())
  error = np.sqrt(np.maximum(variance, 1e-12))
  return np.abs((frequencies - target) / error).max(), accepted


def sibling_drafts(draft, tokens):
  """Returns `[n, V]` the distribution from which each token was drawn."""
  remaining, rows = draft.copy(), np.zeros((0, len(draft)))
  for token in tokens:
    rows = np.append(rows, [remaining / remaining.sum()], axis=0)
    remaining[token] = 0
  return rows


@functools.partial(jax.jit, static_argnums=3)
def choices(draft, target, num, most):
  """The division factor and the marks of the couplings."""
  divided = division.divide_distinct(draft, target, num, most)
  return divided, marks.mark(draft, target, num, most)


def choice_of(name, draft, target, num, width):
  pair = np.float32(draft), np.float32(target)
  divided, marked = jax.device_get(choices(*pair, np.int32(num), width))
  if name == 'kseq_distinct':
    return {'rho': float(divided.factor)}
  return {'covered': np.float64(marked.covered)}


compiled = functools.cache(enumeration.compiled)


@pytest.mark.parametrize(
  ('name', 'num'),
  [
    *itertools.product(['kseq_distinct'], [0, 1, 2, 3]),
    # Of three candidates there are too many cells: they are sampled below.
    *itertools.product(['otm_distinct'], [0, 1, 2]),
  ],
)
def test_couplings_have_exactly_the_distribution_of_their_oracle(name, num):
  """Enumerates tuples of up to three candidates; their mean is the target."""
  oracle, width = oracles.DISTINCT_ORACLES[name], 3
  draft, target = pair(1, 4)
  choice = choice_of(name, draft, target, num, width)
  tuples = candidates.tuples(len(draft), num)
  weights = candidates.probabilities(draft, num, distinct=True)
  actual = np.zeros((len(tuples), len(draft) + 1))
  for i in np.flatnonzero(weights):
    steps = oracle.breakpoints(
      draft, target, tuples[i], range(num), width, **choice
    )
    cells = enumeration.Cells([enumeration.cells(steps)])
    tokens, drafts = np.zeros(width, np.int32), np.tile(draft, (width, 1))
    tokens[:num], drafts[:num] = tuples[i], sibling_drafts(draft, tuples[i])
    args = (
      tokens,
      np.arange(width) < num,
      np.float32(drafts),
      np.float32(target),
    )
    picked, accepted = compiled(couplings.DISTINCT_COUPLINGS[name]())(
      (np.float32(cells.points),), args
    )
    actual[i, :-1] = np.bincount(picked, cells.volumes, len(draft))
    actual[i, -1] = cells.volumes @ accepted
  np.testing.assert_allclose(weights @ actual[:, :-1], target, atol=5e-6)
  rows, member = target[None], np.zeros((1, len(draft)))
  if num:
    rows = oracle.rows(draft, target, num, **choice)
    member = candidates.membership(len(draft), num)
  expected = np.column_stack([rows, (rows * member).sum(axis=1)])
  np.testing.assert_allclose(
    weights[:, None] * actual, weights[:, None] * expected, atol=5e-6
  )


@pytest.mark.parametrize('num', tiers.cases([1, 2, 3], 3))
def test_acceptance_is_that_of_the_oracles(num):
  """Allows for a candidate that is drawn from the residual of the target."""
  draft, target = pair(1, 4)
  accepted = accepted_of(np.float32(draft), np.float32(target), num)
  choice = choice_of('kseq_distinct', draft, target, num, 3)
  tested = kseq_distinct.accepted(draft, target, num, **choice)
  assert accepted['kseq'][0] == pytest.approx(tested, abs=2e-3)
  acceptance = oracles.acceptance('kseq_distinct', draft, target, num, **choice)
  assert tested - 1e-6 <= acceptance <= tested + 4e-3
  choice = choice_of('otm_distinct', draft, target, num, 3)
  acceptance = oracles.acceptance('otm_distinct', draft, target, num, **choice)
  foretold = float(accepted['otm'][0])
  assert foretold - 1e-5 <= acceptance < foretold + 0.1


@pytest.mark.parametrize(
  ('size', 'spread', 'below_kseq'),
  tiers.cases([(5, 0.5, 1e-3), (10, 0.1, 5e-3)], (5, 0.5, 1e-3)),
)
def test_otm_of_random_pairs_is_near_the_optimum_and_seldom_below_kseq(
  size, spread, below_kseq
):
  """Checks figures in `transport.marks`; a failed search accepts far less."""
  rng = np.random.default_rng(0)
  target, draft = rng.dirichlet(np.full(size, spread), (2, 400))
  rules = RULES | {'optimum': transport.optimal_acceptance}

  @jax.jit
  @jax.vmap
  def accepted(*pair):
    return {name: rule(*pair, 3, distinct=True) for name, rule in rules.items()}

  acceptances = accepted(np.float32(draft), np.float32(target))
  otm, kseq, optimum = (
    acceptances[name] for name in ('otm', 'kseq', 'optimum')
  )
  assert np.mean(otm) > 0.95 * np.mean(optimum)
  assert np.min(otm / optimum) > 0.75
  assert np.max(kseq - otm) < below_kseq


@pytest.mark.slow
def test_samples_of_otm_have_the_target_distribution():
  """Samples three candidates, which have too many cells to enumerate.

  Acceptance is the oracle's prediction.
  """
  draft, target = pair(1, 4)
  coupling = couplings.OTMDistinct()
  worst, accepted = deviation(coupling, draft, target, 3, 3)
  assert worst < 4.5
  choice = choice_of('otm_distinct', draft, target, 3, 3)
  expected = oracles.acceptance('otm_distinct', draft, target, 3, **choice)
  assert accepted == pytest.approx(expected, abs=4e-3)


@pytest.mark.parametrize(
  ('rare', 'rule'),
  tiers.cases(
    itertools.product([1e-4, 1e-8, 2e-14], RULES),
    *((1e-4, 'otm'), (2e-14, 'kseq')),
  ),
)
def test_couplings_have_the_target_distribution_of_rare_drafts(rare, rule):
  """Tests take long, or none is passed where none could be long enough."""
  draft = np.array([1.0, rare, 2 * rare, rare])
  target = np.array([0.0, 0.5, 0.25, 0.25])
  draft /= draft.sum()
  coupling = couplings.DISTINCT_COUPLINGS[f'{rule}_distinct']()
  worst, accepted = deviation(coupling, draft, target, 2, 2)
  assert worst < 4.5
  accepted_by_rule = accepted_of(np.float32(draft), np.float32(target), 2)
  foretold = float(accepted_by_rule[rule][0])
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
    return couplings.KSeqDistinct()(*args)


def all_count(*args):
  """Changes otm so that repeated draws of a token also count."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      distinct,
      'count_good',
      lambda weights, good, num, most, large: jax.scipy.stats.binom.pmf(
        jnp.arange(1.0, most + 1), num.astype(jnp.float32), good
      ),
    )
    return couplings.OTMDistinct()(*args)


@pytest.mark.parametrize(
  'broken', tiers.cases([iid_factor, all_count], all_count)
)
def test_check_rejects_what_is_for_iid_drafts(broken):
  draft, target = pair(1, 4)
  worst, _ = deviation(broken, draft, target, 3, 3)
  assert worst > 10


LENGTH, PROMPT = 3, [2, 0]
MODEL = specjax.models.Markov(3)


class Siblings(exact.Case):
  """Two siblings that are drawn without replacement."""

  @property
  def drafts(self):
    return np.array(list(itertools.permutations(range(self.vocab_size), 2)))

  @property
  def node_probs(self):
    draft = self.draft[exact.ROOT]
    return np.stack([sibling_drafts(draft, tokens) for tokens in self.drafts])

  def tree(self, tokens, valid=None):
    first = jnp.asarray(self.draft[exact.ROOT], jnp.float32)
    second = first.at[tokens[0]].set(0.0)
    probs = jnp.stack([first, second / second.sum()])
    return super().tree(tokens, valid)._replace(probs=probs)


def test_siblings_of_a_tree_have_exactly_the_target_distribution():
  """Enumerates drafts and uniforms, including the bonus token."""
  case = Siblings(trees.chains(2, 1))

  def breakpoints(draft, target, tokens, indices, width):
    choice = {'rho': None}
    if len(tokens):
      draft = draft[0]
      choice = choice_of('kseq_distinct', draft, target, len(tokens), width)
    return kseq_distinct.breakpoints(
      draft, target, tokens, indices, width, **choice
    )

  result = exact.integrate(
    case,
    verifiers.TreeWalk(couplings.KSeqDistinct()),
    *exact.walk_cells(case, breakpoints, sibling_probs=True),
  )
  np.testing.assert_allclose(result.probs, case.expected, atol=5e-6)


def test_traversed_siblings_have_exactly_the_target_distribution():
  case = Siblings(trees.chains(2, 1))
  tests = [
    traversal.traverse(
      tokens,
      case.topology.parents,
      probs,
      case.target[np.append(exact.ROOT, tokens)],
      case.is_valid,
    )
    for tokens, probs in zip(case.drafts, case.node_probs)
  ]
  grids = [enumeration.cells(traversal.breakpoints(row, 2)) for row in tests]
  result = exact.integrate(case, verifiers.Traversal(), *exact.padded(grids))
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('verifier', 'topology', 'rows'),
  [
    ('traversal', trees.prefix_tree((3, 2)), 20_000),
    ('ensemble', trees.chains(2, 2), 20_000),
    ('ensemble', trees.prefix_tree((3, 2)), 20_000),
    # Its integrals, of each row and round, take long.
    ('otm_distinct', trees.chains(2, 2), 4000),
  ],
)
def test_the_loop_has_the_target_distribution(verifier, topology, rows):
  rng = np.random.default_rng(12)
  target = distributions.random_table(rng, 3, 3, low=0.2)
  draft = distributions.random_table(rng, 3, 3, low=0.05)
  drafter = specjax.drafters.Autoregressive(MODEL, topology, distinct=True)
  arm = specjax.Arm(drafter, verifiers.resolve(verifier))
  decoder = specjax.Decoder(MODEL, target, [(arm, draft)])
  results = decoder.decode([PROMPT] * rows, LENGTH, seed=3)
  tokens = np.array([result.tokens for result in results])
  probs = distributions.sequence_probs(target, PROMPT[-1], LENGTH)
  assert distributions.chi_square(tokens, probs) > 1e-4


def test_greedy_siblings_are_the_most_likely_tokens():
  """Checks that distinct siblings save rounds."""
  rng = np.random.default_rng(2)
  target, draft = (distributions.random_table(rng, 9, 9) for _ in range(2))
  model, sampling = specjax.models.Markov(9), sampling_lib.Sampling(0.0)
  rounds = {}
  for distinct_siblings in (False, True):
    drafter = specjax.drafters.Autoregressive(
      model, trees.chains(3, 2), sampling, distinct=distinct_siblings
    )
    arm = specjax.Arm(drafter, verifiers.resolve('greedy'))
    decoder = specjax.Decoder(model, target, [(arm, draft)], sampling=sampling)
    results = decoder.decode([[i] for i in range(9)], 24)
    rounds[distinct_siblings] = sum(result.rounds for result in results)
  assert rounds[True] < rounds[False]


def test_siblings_of_other_drafters_are_refused():
  drafter = specjax.drafters.Autoregressive(MODEL, trees.chains(2, 2))
  arm = specjax.Arm(drafter, verifiers.resolve('distinct'))
  with pytest.raises(ValueError, match='all different, got a drafter'):
    specjax.Decoder(MODEL, np.full((3, 3), 1 / 3), [(arm, None)])
