"""Contract of every coupling, and the exact law of the maximal one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax.couplings import maximal
from tests import laws

# The greedy rule has the target's law only at temperature 0.
LOSSLESS = sorted(set(specjax.COUPLINGS) - {'greedy'})

PAIRS = {
  'generic': ([0.5, 0.2, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2]),
  'one-hot draft': ([0.0, 0.0, 1.0, 0.0], [0.3, 0.3, 0.3, 0.1]),
  'one-hot target': ([0.3, 0.3, 0.3, 0.1], [0.0, 0.0, 1.0, 0.0]),
  'both one-hot': ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]),
  'disjoint': ([0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]),
  'equal': ([0.4, 0.3, 0.3, 0.0], [0.4, 0.3, 0.3, 0.0]),
  'tied': ([0.25, 0.25, 0.25, 0.25], [0.25, 0.5, 0.25, 0.0]),
}
for seed in range(3):
  rows = np.random.default_rng(seed).dirichlet(np.ones(4), size=2)
  PAIRS[f'random {seed}'] = tuple(rows)
PAIRS = {
  name: tuple(np.array(row, np.float32) for row in pair)
  for name, pair in PAIRS.items()
}


@functools.cache
def over_cells(coupling):
  """The coupling of one candidate, jitted over `[C, 2]` uniforms and tokens.

  To be called where `jax.random.uniform` hands out its key.
  """
  one = lambda uniforms, candidate, *laws: coupling(
    uniforms, candidate[None], jnp.array([True]), *laws
  )
  over_points = jax.vmap(one, (0, None, None, None))
  return jax.jit(jax.vmap(over_points, (None, 0, None, None)))


def kernel(coupling, draft, target):
  """`[V, V + 1]` chance of each token given the one candidate, and acceptance.

  Exact: the coupling gets its uniforms from here, a pair for each cell of the
  unit square on which its outcome is constant.
  """
  points, areas = laws.uniform_cells([(draft, target)])
  pad = 64 - len(areas)  # one shape, so that all pairs share a program
  points, areas = np.pad(points, ((0, pad), (0, 0))), np.pad(areas, (0, pad))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.random, 'uniform', lambda key, shape: key)
    tokens, accepted = over_cells(coupling)(
      points, np.arange(draft.size), draft, target
    )
  chances = np.asarray(tokens)[..., None] == np.arange(draft.size)
  chances = np.concatenate([chances, np.asarray(accepted)[..., None]], -1)
  return np.einsum('c,xcy->xy', areas, chances)


@pytest.mark.parametrize('name', PAIRS)
def test_maximal_has_exactly_the_target_law(name):
  """Summed over the candidates; acceptance is 1 minus the total variation."""
  draft, target = PAIRS[name]
  chances = kernel(maximal.maximal, draft, target)
  law = draft.astype(np.float64) @ chances
  np.testing.assert_allclose(law[:-1], target, atol=1e-6)
  overlap = np.minimum(draft, target)
  np.testing.assert_allclose(law[-1], overlap.sum(), atol=1e-6)
  np.testing.assert_allclose(draft * chances[:, -1], overlap, atol=1e-6)


@pytest.mark.parametrize('name', ['generic', 'tied', 'random 0'])
def test_check_rejects_a_coupling_without_residual(name):
  draft, target = PAIRS[name]
  law = draft @ kernel(laws.resampling, draft, target)
  assert np.abs(law[:-1] - target).max() > 0.01


def test_residual_falls_back_to_the_target():
  law = jnp.array([0.5, 0.25, 0.25])
  np.testing.assert_array_equal(maximal.residual(law, law), law)
  np.testing.assert_allclose(
    maximal.residual(law, jnp.array([0.25, 0.75, 0.0])), [0, 0.5, 0]
  )


def test_maximal_never_accepts_a_token_of_target_mass_zero():
  """At uniform 0, `<=` would."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.random, 'uniform', lambda key, shape: key)
    token, accepted = maximal.maximal(
      jnp.zeros(2),
      jnp.array([0]),
      jnp.array([True]),
      jnp.array([0.5, 0.5]),
      jnp.array([0.0, 1.0]),
    )
  assert token == 1 and not accepted


def instances(num_candidates, size=400, vocab_size=5):
  """Random arguments of a coupling, one case a row."""
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(vocab_size, 0.5), size=(2, size))
  candidates = rng.integers(vocab_size, size=(size, num_candidates))
  return (
    jax.random.split(jax.random.key(7), size),
    jnp.asarray(candidates, jnp.int32),
    jnp.asarray(rng.random((size, num_candidates)) < 0.6),
    jnp.asarray(draft, jnp.float32),
    jnp.asarray(target, jnp.float32),
  )


@pytest.mark.parametrize('num_candidates', [1, 3])
@pytest.mark.parametrize('name', specjax.COUPLINGS)
def test_coupling_contract(name, num_candidates):
  """Types, jit, vmap; accepted exactly where an active candidate is picked."""
  coupling = specjax.COUPLINGS[name]
  cases = instances(num_candidates)
  tokens, accepted = jax.jit(jax.vmap(coupling))(*cases)
  assert tokens.shape == accepted.shape == (400,)
  assert (tokens.dtype, accepted.dtype) == (jnp.int32, jnp.bool_)
  _, candidates, active, _, target = cases
  np.testing.assert_array_equal(
    accepted, (active & (candidates == tokens[:, None])).any(1)
  )
  assert (np.take_along_axis(target, tokens[:, None], 1) > 0).all()
  single = jax.jit(coupling)
  for i in range(5):
    token, kept = single(*(each[i] for each in cases))
    assert (token, kept) == (tokens[i], accepted[i])
    assert token.shape == kept.shape == ()


@functools.cache
def over_rows(coupling):
  return jax.jit(jax.vmap(coupling, in_axes=(0, 0, None, None, None)))


@pytest.mark.parametrize('num_active', [0, 1, 3])
@pytest.mark.parametrize('name', LOSSLESS)
def test_coupling_of_iid_candidates_has_the_target_law(name, num_active):
  """30000 draws; a chi-square divergence of 0.002 fails with chance 0.999.

  Without a candidate that is active, the token is a sample of the target.
  """
  size = 30000
  draft, target = PAIRS['generic']
  candidates = np.random.default_rng(8).choice(
    4, size=(size, 3), p=draft.astype(np.float64) / draft.sum(dtype=np.float64)
  )
  # Not the first candidates: what is not active must not matter.
  active = np.arange(3) >= 3 - num_active
  keys = jax.random.split(jax.random.key(9), size)
  args = keys, candidates.astype(np.int32), active, draft, target
  tokens, accepted = over_rows(specjax.COUPLINGS[name])(*args)
  assert laws.chi_square(tokens, target) > 1e-4
  assert num_active or not accepted.any()
  if num_active:
    broken, _ = over_rows(laws.resampling)(*args)
    assert laws.chi_square(broken, target) < 1e-6


@pytest.mark.parametrize('num_candidates', [1, 3])
def test_greedy_picks_the_most_likely_token(num_candidates):
  cases = instances(num_candidates)
  tokens, _ = jax.vmap(specjax.COUPLINGS['greedy'])(*cases)
  np.testing.assert_array_equal(tokens, np.argmax(cases[-1], axis=1))
