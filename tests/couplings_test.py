"""The distribution of every coupling's token: exact, and sampled."""

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
from specjax.couplings import residuals
from specjax.testing import distributions
from specjax.transport import division
from specjax.transport import linear_program
from specjax.transport import priorities
from tests import parts

# The greedy rule has the target's distribution only at temperature 0.
LOSSLESS = sorted(set(specjax.COUPLINGS) - {'greedy'})

# How often each accepts one of its active candidates; the maximal coupling may
# also happen on one that it did not try.
ACCEPTANCE = {
  'kseq': transport.kseq_acceptance,
  'maximal': lambda *pair_and_num: transport.optimal_acceptance(
    *pair_and_num[:2], 1
  ),
  'multiround': transport.multiround_acceptance,
  'otm': transport.otm_acceptance,
  'otm_table': transport.optimal_acceptance,
}

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
SMALL = [name for name, (draft, _) in PAIRS.items() if draft.size == 4]


# Exact distributions. A coupling gets its uniforms from here, near two opposite
# corners of each cell of the unit cube on which its outcome is constant: a step
# that is off its place shows at one of them. Cells are a product: over each
# candidate's tokens and own uniforms,
# `(tokens [C], bounds [C, U, 2], chances [C])`, and over the uniforms that all
# share, `(bounds [R, S, 2], chances [R])`.

# How far corners keep clear of a step, which is where float32 has it.
_MARGIN = 1e-5


def pass_cells(draft, thresholds):
  """A candidate that passes where its uniform is below its threshold."""
  edges = np.clip(thresholds, 0, 1)
  return (
    np.tile(np.arange(draft.size), 2),
    np.concatenate([_bounds(0, edges), _bounds(edges, 1)])[:, None],
    np.concatenate([draft * edges, draft * (1 - edges)]),
  )


def axis_cells(*breaks):
  """The unit interval, cut: `[R, 1, 2]` bounds and `[R]` lengths."""
  edges = np.clip(np.concatenate([[0.0, 1.0], *breaks]), 0, 1)
  edges = np.unique(edges.round(9))
  return _bounds(edges[:-1], edges[1:])[:, None], np.diff(edges)


def _bounds(low, high):
  return np.stack(np.broadcast_arrays(low, high), axis=-1)


def draws(*weights):
  """Where the draws from each of the weights change."""
  return [np.cumsum(each) / each.sum() for each in weights if each.sum() > 1e-6]


def ratios(target, draft):
  """Acceptance thresholds, 1 where nothing is drafted."""
  return np.divide(target, draft, out=np.ones(target.size), where=draft > 0)


def maximal_cells(draft, target, width):
  assert width == 1
  residual = np.maximum(target - draft, 0)
  tests = [pass_cells(draft, ratios(target, draft))]
  return tests, axis_cells(*draws(residual, target)), join_first


def kseq_cells(draft, target, width):
  divided = division.divide(draft, target, width)
  residual = np.asarray(residuals.divided_residual(draft, target, divided))
  tests = pass_cells(draft, ratios(target, draft * np.float64(divided.factor)))
  return [tests] * width, axis_cells(*draws(residual, target)), join_last


def multiround_cells(draft, target, width):
  tests, left = [], target
  for _ in range(width):
    tests.append(pass_cells(draft, ratios(left, draft)))
    excess = np.maximum(left - draft, 0)
    left = excess / excess.sum() if excess.sum() > 1e-6 else left
  return tests, axis_cells(*draws(left)), join_last


def otm_cells(draft, target, width):
  plan = priorities.plan(jnp.asarray(draft), jnp.asarray(target), width)
  proposal = np.float64(plan.distribution(draft))
  tokens, uniforms, chances, _ = map(np.array, zip(*rank_cells(plan, draft)))
  accept, accept_chances = axis_cells(ratios(target, proposal)[draft > 0])
  draw, draw_chances = axis_cells(
    *draws(np.maximum(target - proposal, 0), target)
  )
  parts = [
    (accept, accept_chances),
    (draw, draw_chances),
  ]
  index = np.indices([len(chances) for _, chances in parts])
  index = index.reshape(len(parts), -1)
  rest = [values[at] for (values, _), at in zip(parts, index)]
  rest_chances = [chances[at] for (_, chances), at in zip(parts, index)]

  def join(tests, rest):
    own = np.swapaxes(tests, 1, 2).reshape(len(rest), -1, 2)
    return np.concatenate([rest, own], axis=1)

  return (
    [(tokens, uniforms, chances)] * width,
    (np.concatenate(rest, axis=1), np.prod(rest_chances, axis=0)),
    join,
  )


def otm_table_cells(draft, target, width):
  plan = transport.solve_linear_program(draft, target, width).plan
  tokens = np.flatnonzero(draft)
  tests = tokens, np.zeros((tokens.size, 0, 2)), draft[tokens]
  return [tests] * width, axis_cells(*draws(*plan)), lambda _, rest: rest


def join_first(tests, rest):
  return np.concatenate([tests[:, :, 0], rest], axis=1)


def join_last(tests, rest):
  return np.concatenate([rest, tests[:, :, 0]], axis=1)


def rank_cells(plan, draft):
  """Yields `(token, [3, 2] bounds, chance, rank)` of one candidate.

  The uniforms are for the token's atom, for the partner and for the swap.
  """
  wins, wanted, lacking, exceeding = map(np.float64, plan[2:])
  for token in np.flatnonzero(draft):
    fraction, first = float(plan.fraction[token]), int(plan.atom[token])
    last = len(wins) - 1
    for split, atom, chance in (
      ((0, fraction), min(first + 1, last), fraction),
      ((fraction, 1), first, 1 - fraction),
    ):
      short = wanted[atom] - wins[atom]
      own, other = (lacking, exceeding) if short > 0 else (exceeding, lacking)
      low = own[atom - 1] if atom else 0.0
      size = own[atom] - low
      breaks = (other - low) / size if size > 0 else []
      for place, length in zip(*axis_cells(breaks)):
        # Float32 knows a place no better than the sums that it is among.
        blur = min(1e-7 / size, length / 2) if size > 0 else 0.0
        inner = place[0] + np.array([blur, -blur])
        partner = np.searchsorted(
          other, low + place.mean() * size, side='right'
        )
        partner = min(partner, last)
        distance = abs(wins[partner] - wins[atom])
        bar = min(abs(short) / distance, 1.0) if distance else 0.0
        for swap, area, rank in (
          ((0, bar), bar, partner),
          ((bar, 1), 1 - bar, atom),
        ):
          weight = draft[token] * chance * length * area
          if weight > 0:
            yield token, np.array([split, inner, swap]), weight, rank


CELLS = {
  'kseq': kseq_cells,
  'maximal': maximal_cells,
  'multiround': multiround_cells,
  'otm': otm_cells,
  'otm_table': otm_table_cells,
}


@functools.cache
def over_cells(coupling):
  """To be called where `jax.random.uniform` hands out its key.

  Where a part of a coupling is patched, `functools.partial` makes it a new one.
  """
  return jax.jit(jax.vmap(coupling, (0, 0, None, None, None)))


def exact_probs(coupling, cells, pair, width):
  """`[V + 1]` distribution of the token, and acceptance, by enumeration."""
  draft, target = pair
  tests, (rest, chances), join = cells(*map(np.float64, pair), width)
  kept = [chance > 0 for *_, chance in tests]
  tests = [[each[at] for each in test] for test, at in zip(tests, kept)]
  shape = [len(chance) for *_, chance in tests] + [len(chances)]
  index = np.indices(shape).reshape(len(shape), -1)
  *own, last = index
  candidates = np.stack([test[0][at] for test, at in zip(tests, own)], 1)
  uniforms = np.stack([test[1][at] for test, at in zip(tests, own)], 1)
  uniforms = join(uniforms, rest[last])
  chances = chances[last] * np.prod(
    [test[2][at] for test, at in zip(tests, own)], axis=0
  )
  # Powers of 4, so that most pairs share a program.
  pad = 4 ** int(np.ceil(np.log(len(chances)) / np.log(4))) - len(chances)
  extend = lambda rows: np.concatenate([rows, np.repeat(rows[:1], pad, 0)])
  margin = np.minimum(_MARGIN, np.diff(uniforms)[..., 0] / 2)
  probs = 0.0
  for corner in (uniforms[..., 0] + margin, uniforms[..., 1] - margin):
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(jax.random, 'uniform', parts.uniform)
      results = over_cells(coupling)(
        extend(corner).astype(np.float32),
        extend(candidates).astype(np.int32),
        np.ones(width, bool),
        draft,
        target,
      )
    tokens, accepted = (np.asarray(each)[: len(chances)] for each in results)
    chance = np.bincount(tokens, chances, draft.size)
    probs += np.append(chance, chances @ accepted) / 2
  return probs


@pytest.mark.parametrize(
  ('name', 'pair', 'width'),
  [
    *itertools.product(['maximal'], [*SMALL, 'six tokens'], [1]),
    *itertools.product(['kseq', 'multiround'], SMALL, [2, 3]),
    *itertools.product(['otm', 'otm_table'], SMALL, [2]),
    *itertools.product(['otm_table'], ['generic', 'truncated', 'tied'], [3]),
    *itertools.product(['otm'], ['generic', 'truncated', 'tied'], [3]),
    *itertools.product(['otm'], ['six tokens', 'many tokens'], [2]),
  ],
)
def test_coupling_has_exactly_the_target_distribution(name, pair, width):
  """And accepts as often as transport says.

  k-Seq's division factor is that of ten bisections here.
  """
  pair = PAIRS[pair]
  probs = exact_probs(specjax.COUPLINGS[name], CELLS[name], pair, width)
  np.testing.assert_allclose(probs[:-1], pair[1], atol=1e-6)
  wanted = ACCEPTANCE[name](*pair, width)
  atol = 1e-3 if name == 'kseq' else 1e-6
  np.testing.assert_allclose(probs[-1], wanted, rtol=0, atol=atol)


def test_kseq_accepts_what_theorem_1_says_at_the_root(monkeypatch):
  divide = functools.partial(division.divide, num_steps=30)
  monkeypatch.setattr(division, 'divide', divide)
  coupling = functools.partial(couplings.kseq)
  for name in ('generic', 'truncated', 'random 1'):
    probs = exact_probs(coupling, kseq_cells, PAIRS[name], 3)
    wanted = transport.kseq_acceptance(*PAIRS[name], 3)
    np.testing.assert_allclose(probs[-1], wanted, rtol=0, atol=1e-6)


# Division factors, by the root of what k-Seq bisects and by `k`.
FACTORS = {
  'root': lambda root, k: root,
  'a tenth above': lambda root, k: 1.1 * root,
  'midway': lambda root, k: (root + jnp.float32(k)) / 2,
  'k': lambda root, k: jnp.full_like(root, k),
  'twice k': lambda root, k: jnp.full_like(root, 2 * k),
}


def divide_by(choose, divide=division.divide):
  """What stands for `division.divide`, with another factor than the root."""

  def divided(draft, target, num_drafts):
    root = divide(draft, target, num_drafts, num_steps=30).factor
    factor = choose(root, num_drafts)
    overlap = jnp.minimum(draft, target / factor).sum()
    passed = 1 - (1 - overlap) ** jnp.float32(num_drafts)
    return division.Division(factor, overlap, passed)

  return divided


def kseq_accepts(draft, target, factor, num_drafts):
  """By a test, or by the residual, which may pick a rejected draft."""
  covered = np.minimum(draft, target / factor)
  rejected = draft - covered
  missed = rejected.sum() ** num_drafts
  share = (1 - missed) / covered.sum() if covered.any() else 0
  left = np.maximum(target - share * covered, 0)
  among = missed - (rejected.sum() - rejected) ** num_drafts
  return 1 - missed + left @ among / max(left.sum(), 1e-9)


@pytest.mark.parametrize('width', [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize('factor', FACTORS)
def test_kseq_is_exact_for_every_factor_from_the_root_on(
  factor, width, monkeypatch
):
  """Theorem 1; and it accepts what the tests and the residual say."""
  monkeypatch.setattr(division, 'divide', divide_by(FACTORS[factor]))
  coupling = functools.partial(couplings.kseq)
  for name in SMALL:
    pair = PAIRS[name]
    probs = exact_probs(coupling, kseq_cells, pair, width)
    np.testing.assert_allclose(probs[:-1], pair[1], atol=1e-6, err_msg=name)
    divided = division.divide(*map(jnp.asarray, pair), width)
    wanted = kseq_accepts(*map(np.float64, (*pair, divided.factor)), width)
    np.testing.assert_allclose(probs[-1], wanted, atol=1e-6, err_msg=name)
    if factor == 'root':
      assert abs(wanted - divided.acceptance) < 1e-6, name


@pytest.mark.parametrize('width', [2, 3])
def test_check_rejects_a_factor_below_the_root(width, monkeypatch):
  """A tenth of the way to 1: the residual would have to be negative."""
  below = lambda root, k: 0.9 * root + 0.1
  monkeypatch.setattr(division, 'divide', divide_by(below))
  for name in ('generic', 'truncated', 'random 1'):
    pair = PAIRS[name]
    coupling = functools.partial(couplings.kseq)
    probs = exact_probs(coupling, kseq_cells, pair, width)
    assert np.abs(probs[:-1] - pair[1]).max() > 1e-3, name


@pytest.mark.parametrize('pair', ['generic', 'tied', 'random 0'])
@pytest.mark.parametrize('part', ['residual', 'division', 'swaps'])
def test_check_rejects_a_broken_coupling(part, pair, monkeypatch):
  """No residual; each test at full chance; each candidate in its own rank."""
  name, broken = 'maximal', parts.resampling
  if part == 'division':
    name, broken = 'kseq', functools.partial(couplings.kseq)
    undivided = lambda draft, target, num: division.Division(
      jnp.float32(1),
      jnp.minimum(draft, target).sum(),
      1 - (1 - jnp.minimum(draft, target).sum()) ** jnp.float32(num),
    )
    monkeypatch.setattr(division, 'divide', undivided)
  if part == 'swaps':
    name, broken = 'otm', functools.partial(specjax.COUPLINGS['otm'])
    plan = priorities.plan
    monkeypatch.setattr(
      priorities,
      'plan',
      lambda *args: (own := plan(*args))._replace(wins=own.wanted),
    )
  width = 1 if name == 'maximal' else 2
  probs = exact_probs(broken, CELLS[name], PAIRS[pair], width)
  assert np.abs(probs[:-1] - PAIRS[pair][1]).max() > 0.01


@pytest.mark.parametrize('num_drafts', [1, 2, 3, 8])
@pytest.mark.parametrize('size', [3, 6, priorities.NUM_ATOMS + 44])
def test_priorities_make_the_distribution_that_they_promise(size, num_drafts):
  """By the ranks that candidates draw; ties are broken evenly.

  One wins in atom `j` with the mean of `k (below + mass u)**(k-1)` over `u`.
  """
  rng = np.random.default_rng(size)
  for concentration in (0.1, 1.0):
    pair = rng.dirichlet(np.full(size, concentration), size=2)
    pair[0, rng.integers(size)] = 0
    draft, target = (pair / pair.sum(1, keepdims=True)).astype(np.float32)
    plan = jax.device_get(jax.jit(priorities.plan)(draft, target, num_drafts))
    tokens, _, chances, ranks = map(np.array, zip(*rank_cells(plan, draft)))
    mass = np.bincount(ranks, chances, plan.wins.size)
    above = np.cumsum(mass)
    wins = above**num_drafts - (above - mass) ** num_drafts
    wins = np.divide(wins, mass, out=np.zeros_like(wins), where=mass > 0)
    probs = np.bincount(tokens, chances * wins[ranks], size)
    np.testing.assert_allclose(
      plan.distribution(draft), probs, rtol=0, atol=1e-6
    )


# Grid points of a float32 uniform.
_GRID = 1 << 23


@jax.jit
def partner_points(own, other):
  """`[M, M]` how many uniforms give each atom each partner.

  The partner never falls as the uniform grows: a bisection finds the ends.
  """
  atoms = jnp.arange(own.shape[0])
  pick = jax.vmap(
    jax.vmap(
      lambda atom, point: priorities.partner(own, other, atom, point / _GRID),
      (None, 0),
    )
  )

  def halve(_, bounds):
    low, high = bounds
    middle = (low + high) // 2
    past = pick(atoms, middle.astype(jnp.float32)) > atoms[None]
    return jnp.where(past, low, middle + 1), jnp.where(past, middle, high)

  zeros = jnp.zeros((len(atoms), len(atoms)), jnp.int32)
  _, ends = jax.lax.fori_loop(0, 24, halve, (zeros, zeros + _GRID))
  return jnp.diff(ends, prepend=0, axis=1)


def partner_chances(own, other):
  """`[M, M]` of each atom's own share, the part of each partner, in float64."""
  own, other = np.float64(own), np.float64(other)
  low = np.append(0, own[:-1])[:, None]
  edges = np.append(np.append(0, other[:-1]), np.inf)
  inside = np.minimum(own[:, None], edges[1:]) - np.maximum(low, edges[:-1])
  sizes = own[:, None] - low
  return np.maximum(inside, 0) / np.where(sizes > 0, sizes, 1), sizes[:, 0] > 0


@pytest.mark.parametrize('num_drafts', [2, 8])
@pytest.mark.parametrize('vocab_size', [300, 4096, 256_000])
def test_ranks_of_otm_are_off_by_little(vocab_size, num_drafts):
  """Total variation of a draft's rank, over all uniforms of the generator."""
  rng = np.random.default_rng(vocab_size)
  pair = rng.dirichlet(np.full(vocab_size, 0.3), size=2).astype(np.float32)
  plan = jax.jit(priorities.plan)(*pair, num_drafts)
  size = len(plan.wins)
  weights = np.float64(pair[0]) * [1 - plan.fraction, plan.fraction]
  atoms = np.stack([plan.atom, plan.next(plan.atom)])
  mass = np.bincount(atoms.ravel(), weights.ravel(), size)
  wins, short = np.float64(plan.wins), np.float64(plan.wanted - plan.wins)
  distance = np.abs(wins - wins[:, None])
  swaps = np.abs(short)[:, None] / np.where(distance > 0, distance, np.inf)
  off = 0.0
  for own, other, here in (
    (plan.lacking, plan.exceeding, short > 0),
    (plan.exceeding, plan.lacking, short <= 0),
  ):
    chances, some = partner_chances(own, other)
    found = np.asarray(partner_points(own, other)) / _GRID
    moved = np.abs(found - chances) * np.clip(swaps, 0, 1)
    off += (mass * moved.sum(1))[here & some].sum() / 2
  assert off < 2e-5


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
    jax.random, 'uniform', lambda _, shape=(): jnp.zeros(shape)
  )
  for draft, target in (
    ([0.5, 0.5, 0.0], [0.0, 1.0, 0.0]),
    ([0.5, 0.4999, 0.0001], [0.3, 0.7, 0.0]),
  ):
    draft, target = jnp.array(draft), jnp.array(target)
    unwanted = jnp.argmin(jnp.where(draft > 0, target, 1.0)).astype(jnp.int32)
    token, accepted = specjax.COUPLINGS[name](
      None, jnp.full(width, unwanted), jnp.ones(width, bool), draft, target
    )
    assert target[token] > 0 and not accepted


def truncated(seed, size, top_k):
  """Draft and target `[V]` of which only the likeliest tokens are left."""
  logits = 2 * jax.random.normal(jax.random.key(seed), (2, size))
  return np.asarray(
    sampling_lib.probabilities(logits, sampling_lib.Sampling(top_k=top_k))
  )


SAMPLED = {
  'random': np.random.default_rng(10).dirichlet(np.ones(5), size=2),
  'one-hot draft': [[0, 0, 1, 0, 0], [0.3, 0.3, 0.2, 0.1, 0.1]],
  'one-hot target': [[0.3, 0.3, 0.2, 0.1, 0.1], [0, 0, 1, 0, 0]],
  'disjoint': [[0.6, 0.4, 0, 0, 0], [0, 0, 0.2, 0.7, 0.1]],
  'equal': [[0.4, 0.3, 0.2, 0.1, 0]] * 2,
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
    *itertools.product(LOSSLESS, ['random'], [0, 3]),
    *itertools.product(LOSSLESS, ['one-hot draft'], [1]),
    *itertools.product(LOSSLESS, ['truncated'], [2]),
    # Others are in the table's exact test: it takes seconds for a million.
    *itertools.product(
      sorted(set(LOSSLESS) - {'otm_table'}),
      ['one-hot target', 'disjoint', 'equal', 'tied'],
      [2],
    ),
    *itertools.product(['kseq', 'multiround', 'otm'], ['tied'], [3]),
    ('otm', 'many tokens', 3),
  ],
)
def test_token_of_iid_candidates_has_the_target_distribution(
  name, pair, num_active
):
  """A chi-square divergence of 6e-5 fails with chance 0.999.

  That is with 5 tokens, and 9e-5 with 20. Without a candidate that is active,
  the token is a sample of the target. Acceptance is within five standard
  errors, of at most 0.0005, of what transport says.
  """
  p_value, accepted = sample(specjax.COUPLINGS[name], pair, num_active)
  assert p_value > 1e-4
  if not num_active:
    assert accepted == 0
    return
  if name not in ACCEPTANCE:
    return  # Of a new coupling, `transport` need not know.
  draft, target = np.asarray(SAMPLED[pair], np.float32)
  wanted = float(ACCEPTANCE[name](draft, target, num_active))
  error = 5 * np.sqrt(max(wanted * (1 - wanted), 0) / SIZE) + 1e-6
  fewer = 1e-3 if name == 'kseq' else 0  # Ten bisections, not the root.
  assert wanted - fewer - error <= accepted
  assert accepted <= wanted + error or (name == 'maximal' and num_active > 1)


@pytest.mark.parametrize(
  ('pair', 'num_active'), [('random', 1), ('tied', 2), ('truncated', 3)]
)
def test_check_rejects_samples_of_a_broken_coupling(pair, num_active):
  assert sample(parts.resampling, pair, num_active)[0] < 1e-6


@pytest.mark.parametrize('num_candidates', [1, 3])
def test_greedy_picks_the_most_likely_token(num_candidates):
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(5, 0.5), size=(2, 400))
  candidates = rng.integers(5, size=(400, num_candidates))
  active = rng.random((400, num_candidates)) < 0.6
  keys = jax.random.split(jax.random.key(7), 400)
  tokens, _ = jax.vmap(specjax.COUPLINGS['greedy'])(
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
      specjax.COUPLINGS['otm_table'],
      jax.random.key(0),
      candidates,
      active,
      probs,
      probs,
    )
