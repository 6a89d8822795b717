"""The distribution of every coupling's token: exact, and sampled."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import couplings
from specjax import transport
from specjax.couplings import residuals
from specjax.testing import distributions
from specjax.transport import division
from specjax.transport import linear_program
from specjax.transport import priorities
from tests import oracles
from tests import parts
from tests import tiers
from tests.oracles import candidates as candidates_lib
from tests.oracles import enumeration
from tests.oracles import otm

# The greedy rule has the target's distribution only at temperature 0.
LOSSLESS = sorted(set(specjax.COUPLINGS) - {'greedy'})

PAIRS = {
  'generic': ([0.5, 0.2, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2]),
  'one-hot draft': ([0.0, 0.0, 1.0, 0.0], [0.3, 0.3, 0.3, 0.1]),
  'one-hot target': ([0.3, 0.3, 0.3, 0.1], [0.0, 0.0, 1.0, 0.0]),
  'both one-hot': ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]),
  'disjoint': ([0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]),
  'equal': ([0.4, 0.3, 0.3, 0.0], [0.4, 0.3, 0.3, 0.0]),
  'tied': ([0.25, 0.25, 0.25, 0.25], [0.25, 0.5, 0.25, 0.0]),
  'truncated': ([0.5, 0.3, 0.2, 0.0], [0.0, 0.1, 0.5, 0.4]),
}
for seed in range(3):
  rows = np.random.default_rng(seed).dirichlet(np.ones(4), size=2)
  PAIRS[f'random {seed}'] = tuple(rows)
PAIRS['six tokens'] = np.random.default_rng(3).dirichlet(np.ones(6), size=2)
# More tokens than a plan has atoms, few of which have any mass.
PAIRS['many tokens'] = np.zeros((2, priorities.NUM_ATOMS + 44))
PAIRS['many tokens'][:, [5, 90, 200, 299]] = [
  [0.4, 0.3, 0.3, 0.0],
  [0.1, 0.35, 0.25, 0.3],
]
PAIRS = {
  name: tuple(np.array(row, np.float32) for row in pair)
  for name, pair in PAIRS.items()
}
SMALL = [name for name, (draft, _) in PAIRS.items() if draft.size <= 6]
WIDTH = 3  # Candidates of a coupling, of which the last ones may be active.


def padded(pair):
  """A small pair of six tokens, so that all of them share a program."""
  size = max(len(pair[0]), 6)
  return [np.pad(probs, (0, size - len(probs))) for probs in pair]


@functools.cache
def compiled(coupling):
  """Where a part of a coupling is patched, a `functools.partial` is new."""
  return enumeration.compiled(coupling)


def exact_rows(
  coupling, oracle, pair, num, *, width=WIDTH, parameters=(), **choices
):
  """Enumerates the distribution of the token and the acceptance.

  Args:
    coupling: receives its uniforms as its key.
    oracle: the oracle whose breakpoints bound the cells.
    pair: draft and target.
    num: `n`, the number of active candidates; 0 gives one row.
    width: number of candidates, of which the last `n` are active.
    parameters: further arguments of the coupling.
    **choices: options of the oracle.

  Returns:
    `[V**n, V + 1]` rows, for the tokens that have any mass; the draft and
    target of these tokens; and the probability of each tuple.
  """
  support = np.flatnonzero(pair[0] + pair[1])
  draft, target = (np.float64(probs[support]) for probs in pair)
  tuples = candidates_lib.tuples(len(support), num)
  indices = np.arange(width - num, width)
  weights = candidates_lib.probabilities(draft, num)
  cells = enumeration.Cells(
    [
      enumeration.cells(
        oracle.breakpoints(draft, target, tokens, indices, width, **choices)
      )
      for tokens in tuples[weights > 0]
    ]
  )
  case = np.flatnonzero(weights > 0)[cells.case]
  candidates = np.zeros((len(case), width), np.int32)
  candidates[:, indices] = support[tuples[case]]
  active = np.arange(width) >= width - num
  tokens, accepted = compiled(coupling)(
    (np.float32(cells.points), candidates),
    (active, *padded(pair), *map(np.float32, parameters)),
  )
  assert np.isin(tokens, support).all()
  tokens = np.searchsorted(support, tokens)
  rows = np.zeros((len(tuples), len(support) + 1))
  np.add.at(rows, (case, tokens), cells.volumes)
  np.add.at(rows, (case, -1), cells.volumes * accepted)
  return rows, draft, target, weights


def check_rows(
  coupling, oracle, pair, num, *, width=WIDTH, parameters=(), **choices
):
  """Checks the token's distribution against the oracle and the target."""
  actual, draft, target, weights = exact_rows(
    coupling, oracle, pair, num, width=width, parameters=parameters, **choices
  )
  probs = weights @ actual[:, :-1]
  np.testing.assert_allclose(probs, target, atol=1e-6)
  rows = target[None]
  member = np.zeros_like(rows)
  if num:
    rows = oracle.rows(draft, target, num, **choices)
    member = candidates_lib.membership(len(target), num)
  expected = np.column_stack([rows, (rows * member).sum(axis=1)])
  np.testing.assert_allclose(
    weights[:, None] * actual, weights[:, None] * expected, atol=1e-6
  )


def choices_of(name, pair, num):
  """Returns what a coupling is free to choose, as the library chooses it."""
  if name == 'otm_table' and num:  # Several plans may be optimal.
    support = np.flatnonzero(pair[0] + pair[1])
    full = padded(pair)
    transport_plan = transport.solve_linear_program(*full, num).plan
    table = transport_plan.reshape([len(full[0])] * (num + 1))
    table = table[np.ix_(*[support] * (num + 1))]
    return {'plan': table.reshape(-1, len(support))}
  if name == 'otm' and len(pair[0]) > priorities.NUM_ATOMS and num:
    ranking = jax.device_get(priorities_of(*pair, np.float32(num)))
    support = np.flatnonzero(pair[0] + pair[1])
    atom, fraction, *atoms = (np.float64(leaf) for leaf in ranking)
    return {
      'plan': otm.Plan(atom[support].astype(int), fraction[support], *atoms)
    }
  return {}


@pytest.mark.parametrize('name', LOSSLESS)
def test_coupling_has_exactly_the_distribution_of_its_oracle(name):
  """For all tuples of none to three candidates; the mean is the target's."""
  oracle = oracles.ORACLES[name]
  for label in SMALL:
    pair = PAIRS[label]
    is_limited = label not in ('generic', 'truncated', 'tied')
    largest = 3 if name in ('kseq', 'multiround', 'maximal') else 2
    for num in range(4 if not is_limited else largest + 1):
      if len(pair[0]) > 4 and num > 2:
        continue
      choices = choices_of(name, pair, num)
      check_rows(specjax.COUPLINGS[name](), oracle, pair, num, **choices)


@pytest.mark.parametrize('label', SMALL)
def test_maximal_alone_has_exactly_the_distribution_of_its_oracle(label):
  """Tests a single candidate, which runs another program."""
  check_rows(couplings.Maximal(), oracles.maximal, PAIRS[label], 1, width=1)


@pytest.mark.slow
def test_priorities_of_many_tokens_have_exactly_the_target_distribution():
  pair = PAIRS['many tokens']
  choices = choices_of('otm', pair, 2)
  check_rows(couplings.OTM(), otm, pair, 2, **choices)


def kseq_with(key, candidates, active, draft, target, rho):
  """k-Seq with another division factor."""

  def divided(draft, target, num_drafts):
    overlap = jnp.minimum(draft, target / rho).sum()
    passed = 1 - (1 - overlap) ** num_drafts.astype(jnp.float32)
    return division.Division(rho, overlap, passed)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(division, 'divide', divided)
    return couplings.KSeq()(key, candidates, active, draft, target)


# Division factors, by the root of what k-Seq bisects and by `k`.
FACTORS = {
  'root': lambda root, k: root,
  'a tenth above': lambda root, k: 1.1 * root,
  'midway': lambda root, k: (root + k) / 2,
  'k': lambda root, k: k,
  'twice k': lambda root, k: 2 * k,
}


@pytest.mark.parametrize(
  'factor', tiers.cases(FACTORS, 'root', 'midway', 'twice k')
)
def test_kseq_is_exact_for_every_factor_from_the_root_on(factor):
  """Checks Theorem 1; at the root, acceptance is the rate of passed tests."""
  for name in SMALL:
    for num in (2, 3):
      pair = PAIRS[name]
      exact = list(map(np.float64, pair))
      root = oracles.kseq.factor(*exact, num, steps=60)
      rho = FACTORS[factor](root, float(num))
      rho = float(np.float32(rho))
      check_rows(kseq_with, oracles.kseq, pair, num, rho=rho, parameters=(rho,))
      if factor == 'root':
        expected = transport.kseq_acceptance(*pair, num)
        acceptance = oracles.acceptance('kseq', *exact, num, rho=rho)
        np.testing.assert_allclose(acceptance, expected, rtol=0, atol=1e-6)


def marginal(coupling, oracle, pair, num, **options):
  """Returns the `[V]` distribution of the token, and the target."""
  rows, _, target, weights = exact_rows(coupling, oracle, pair, num, **options)
  return weights @ rows[:, :-1], target


@pytest.mark.parametrize('num', [2, 3])
@pytest.mark.parametrize('share', [0.9, 0.0])
def test_check_rejects_a_factor_below_the_root(share, num):
  """Uses factors whose residual would be negative; 1 divides no test."""
  for name in ('generic', 'truncated', 'random 1'):
    pair = PAIRS[name]
    root = oracles.kseq.factor(*map(np.float64, pair), num, steps=60)
    rho = float(np.float32(share * root + 1 - share))
    probs, target = marginal(
      kseq_with, oracles.kseq, pair, num, rho=rho, parameters=(rho,)
    )
    assert np.abs(probs - target).max() > (1e-3 if share else 0.01), name


class OwnRanks:
  """Breakpoints of `otm` for candidates that keep their own ranks."""

  @staticmethod
  def breakpoints(draft, target, tokens, indices, width):
    ranking = otm.make_plan(draft, target, len(tokens))
    ranking = ranking._replace(win_density=ranking.proposal_ratio)
    return otm.breakpoints(draft, target, tokens, indices, width, ranking)


@pytest.mark.parametrize('name', ['generic', 'tied', 'random 0'])
@pytest.mark.parametrize('part', ['residual', 'swaps'])
def test_check_rejects_a_broken_coupling(part, name, monkeypatch):
  """Covers a missing residual, and candidates that keep their own ranks."""
  broken, oracle, num = parts.Resampling(), oracles.maximal, 1
  if part == 'swaps':
    oracle, num, compute = OwnRanks, 2, priorities.compute
    broken = own_ranks
    monkeypatch.setattr(
      priorities,
      'compute',
      lambda *args: (ranking := compute(*args))._replace(
        win_density=ranking.proposal_ratio
      ),
    )
  probs, target = marginal(broken, oracle, PAIRS[name], num)
  assert np.abs(probs - target).max() > 0.01


# Another object, for which another program is compiled.
own_ranks = functools.partial(couplings.OTM())


@pytest.mark.parametrize('num_drafts', [1, 2, 3, 8])
@pytest.mark.parametrize('size', [3, 6, priorities.NUM_ATOMS + 44])
def test_priorities_make_the_distribution_that_they_promise(size, num_drafts):
  """Computes the distribution from the candidates' ranks; ties break evenly.

  A candidate wins in atom `j` with the mean of `k (below + mass u)**(k-1)` over
  `u`.
  """
  rng = np.random.default_rng(size)
  for concentration in (0.1, 1.0):
    pair = rng.dirichlet(np.full(size, concentration), size=2)
    pair[0, rng.integers(size)] = 0
    draft, target = (pair / pair.sum(1, keepdims=True)).astype(np.float32)
    ranking = jax.device_get(
      priorities_of(draft, target, np.float32(num_drafts))
    )
    proposal = np.float64(otm.proposal(ranking, np.float64(draft)))
    ranking = otm.Plan(
      ranking.atom, *(np.float64(leaf) for leaf in ranking[1:])
    )
    ranks = np.stack([otm.rank_probs(ranking, token) for token in range(size)])
    joint_probs = np.float64(draft)[:, None] * ranks
    mass = joint_probs.sum(axis=0)
    above = np.cumsum(mass)
    wins = above**num_drafts - (above - mass) ** num_drafts
    wins = np.divide(wins, mass, out=np.zeros_like(wins), where=mass > 0)
    np.testing.assert_allclose(proposal, joint_probs @ wins, rtol=0, atol=1e-6)


priorities_of = jax.jit(priorities.compute)


# Grid points of a float32 uniform.
_GRID = 1 << 23


@jax.jit
def partner_points(atom_cdf, partner_cdf):
  """Returns `[M, M]` how many uniforms give each atom each partner.

  The partner never falls as the uniform grows: a bisection finds the ends.
  """
  atoms = jnp.arange(atom_cdf.shape[0])
  pick = jax.vmap(
    jax.vmap(
      lambda atom, point: priorities.partner(
        atom_cdf, partner_cdf, atom, point / _GRID
      ),
      (None, 0),
    )
  )

  def halve(_, bounds):
    low, high = bounds
    middle = (low + high) // 2
    is_past = pick(atoms, middle.astype(jnp.float32)) > atoms[None]
    return jnp.where(is_past, low, middle + 1), jnp.where(is_past, middle, high)

  zeros = jnp.zeros((len(atoms), len(atoms)), jnp.int32)
  _, ends = jax.lax.fori_loop(0, 24, halve, (zeros, zeros + _GRID))
  return jnp.diff(ends, prepend=0, axis=1)


def partner_chances(atom_cdf, partner_cdf):
  """Returns each atom's probability of each partner, in float64.

  The shapes are `[M, M]`, and `[M]` whether an atom has any mass.
  """
  atom_cdf, partner_cdf = np.float64(atom_cdf), np.float64(partner_cdf)
  low = np.append(0, atom_cdf[:-1])[:, None]
  edges = np.append(np.append(0, partner_cdf[:-1]), np.inf)
  overlap = np.minimum(atom_cdf[:, None], edges[1:]) - np.maximum(
    low, edges[:-1]
  )
  sizes = atom_cdf[:, None] - low
  return np.maximum(overlap, 0) / np.where(sizes > 0, sizes, 1), sizes[:, 0] > 0


@pytest.mark.slow
@pytest.mark.parametrize('num_drafts', [2, 8])
@pytest.mark.parametrize('vocab_size', [300, 4096, 256_000])
def test_ranks_of_otm_are_off_by_little(vocab_size, num_drafts):
  """Bounds the total variation of a draft's rank over all uniforms."""
  rng = np.random.default_rng(vocab_size)
  pair = rng.dirichlet(np.full(vocab_size, 0.3), size=2).astype(np.float32)
  ranking = jax.device_get(priorities_of(*pair, np.float32(num_drafts)))
  size = len(ranking.win_density)
  weights = np.float64(pair[0]) * [1 - ranking.fraction, ranking.fraction]
  atoms = np.stack([ranking.atom, np.minimum(ranking.atom + 1, size - 1)])
  mass = np.bincount(atoms.ravel(), weights.ravel(), size)
  wins, short = (
    np.float64(ranking.win_density),
    np.float64(ranking.proposal_ratio - ranking.win_density),
  )
  distance = np.abs(wins - wins[:, None])
  swaps = np.abs(short)[:, None] / np.where(distance > 0, distance, np.inf)
  variation = 0.0
  for atom_cdf, partner_cdf, mask in (
    (ranking.deficit_cdf, ranking.surplus_cdf, short > 0),
    (ranking.surplus_cdf, ranking.deficit_cdf, short <= 0),
  ):
    chances, nonempty = partner_chances(atom_cdf, partner_cdf)
    actual = np.asarray(partner_points(atom_cdf, partner_cdf)) / _GRID
    moved = np.abs(actual - chances) * np.clip(swaps, 0, 1)
    variation += (mass * moved.sum(1))[mask & nonempty].sum() / 2
  assert variation < 2e-5


def test_residual_falls_back_to_the_target():
  probs = jnp.array([0.5, 0.25, 0.25])
  np.testing.assert_array_equal(residuals.residual(probs, probs), probs)
  np.testing.assert_allclose(
    residuals.residual(probs, jnp.array([0.25, 0.75, 0.0])), [0, 0.5, 0]
  )


@pytest.mark.parametrize('width', [1, 3])
@pytest.mark.parametrize('name', specjax.COUPLINGS)
def test_no_coupling_emits_a_token_of_target_mass_zero(
  name, width, monkeypatch
):
  """At uniform 0, `<=` would; nor where hardly ever such drafts are made."""
  monkeypatch.setattr(
    jax.random, 'uniform', lambda _, shape, dtype: jnp.zeros(shape, dtype)
  )
  coupling = jax.jit(functools.partial(specjax.COUPLINGS[name]()))
  for draft, target in (
    ([0.5, 0.5, 0.0], [0.0, 1.0, 0.0]),
    ([0.5, 0.4999, 0.0001], [0.3, 0.7, 0.0]),
  ):
    draft, target = np.float32(draft), np.float32(target)
    unwanted = np.argmin(np.where(draft > 0, target, 1.0)).astype(np.int32)
    token, accepted = coupling(
      None, np.full(width, unwanted), np.ones(width, bool), draft, target
    )
    assert target[token] > 0 and not accepted


def truncated(seed, size, top_k):
  """Draft and target `[V]` of which only the likeliest tokens are left."""
  weights = np.exp(2 * np.random.default_rng(seed).normal(size=(2, size)))
  weights *= weights >= np.sort(weights)[:, -top_k, None]
  return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


SAMPLED = {
  'random': np.random.default_rng(10).dirichlet(np.ones(5), size=2),
  'tied': [[0.2] * 5, [0.2, 0.4, 0.2, 0.2, 0]],
  'truncated': truncated(12, 5, 3),
  'many tokens': truncated(13, priorities.NUM_ATOMS + 44, 20),
}
SIZE = 10**6


@functools.cache
def keys():
  return jax.random.split(jax.random.key(9), SIZE)


@functools.cache
def iid(pair):
  """`[SIZE, 3]` candidates from the pair's draft."""
  sums = np.cumsum(SAMPLED[pair][0], dtype=np.float64)
  uniforms = np.random.default_rng(8).random((SIZE, 3))
  tokens = np.searchsorted(sums / sums[-1], uniforms, side='right')
  return tokens.astype(np.int32)


@functools.cache
def over_rows(coupling):
  @jax.jit
  def run(keys, candidates, *args):
    one = lambda row: coupling(*row, *args)
    # In batches, for large vocabularies.
    return jax.lax.map(one, (keys, candidates), batch_size=SIZE // 20)

  return run


def foretold(name, pair, num):
  """Returns the probability that a candidate is accepted, from the oracle."""
  pair = np.float32(SAMPLED[pair])
  support = np.flatnonzero(pair.sum(axis=0))
  choices = choices_of(name, pair, num)
  small = np.float64(pair[:, support])
  return oracles.acceptance(name, *small, num, **choices)


def sample(coupling, pair, num_active):
  """P-value and acceptance of a million tokens; the last ones are active."""
  draft, target = np.asarray(SAMPLED[pair], np.float32)
  active = np.arange(3) >= 3 - num_active
  tokens, accepted = over_rows(coupling)(
    keys(), iid(pair), active, draft, target
  )
  return distributions.chi_square(tokens, target), np.mean(accepted)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'pair', 'num_active'),
  [
    # With true keys; all other pairs are in the exact test.
    *itertools.product(LOSSLESS, ['random'], [3]),
    *itertools.product(
      sorted(set(LOSSLESS) - {'otm_table'}), ['truncated'], [0, 2]
    ),
    ('otm', 'many tokens', 3),
  ],
)
def test_token_of_iid_candidates_has_the_target_distribution(
  name, pair, num_active
):
  """Detects a chi-square divergence of 6e-5 with probability 0.999.

  This holds for 5 tokens; for 20 tokens it is 9e-5. Without an active
  candidate, the token is a sample from the target. Acceptance lies within five
  standard errors (at most 0.0005) of the oracle's prediction.
  """
  p_value, accepted = sample(specjax.COUPLINGS[name](), pair, num_active)
  assert p_value > 1e-4
  if not num_active:
    assert accepted == 0
    return
  expected = foretold(name, pair, num_active)
  error = 5 * np.sqrt(max(expected * (1 - expected), 0) / SIZE) + 1e-6
  assert abs(accepted - expected) <= error


@pytest.mark.parametrize(
  ('pair', 'num_active'),
  tiers.cases([('random', 1), ('tied', 2), ('truncated', 3)], ('truncated', 3)),
)
def test_check_rejects_samples_of_a_broken_coupling(pair, num_active):
  assert sample(parts.Resampling(), pair, num_active)[0] < 1e-6


@pytest.mark.parametrize('num_candidates', [1, 3])
def test_greedy_picks_the_most_likely_token(num_candidates):
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(5, 0.5), size=(2, 400))
  candidates = rng.integers(5, size=(400, num_candidates))
  active = rng.random((400, num_candidates)) < 0.6
  keys = jax.random.split(jax.random.key(7), 400)
  tokens, _ = jax.vmap(couplings.Greedy())(
    keys, candidates, active, jnp.float32(draft), jnp.float32(target)
  )
  np.testing.assert_array_equal(tokens, np.argmax(target, axis=1))


def test_table_of_too_many_tuples_is_refused():
  """While it is traced, with a way out."""
  size = round(linear_program.MAX_TUPLES ** (1 / 3)) + 1
  probs = jax.ShapeDtypeStruct((size,), jnp.float32)
  candidates = jax.ShapeDtypeStruct((3,), jnp.int32)
  active = jax.ShapeDtypeStruct((3,), jnp.bool_)
  with pytest.raises(ValueError, match=rf'{size}\*\*3 .* the coupling otm'):
    jax.eval_shape(
      couplings.OTMTable(),
      jax.random.key(0),
      candidates,
      active,
      probs,
      probs,
    )
