"""Probabilities against float64 NumPy, draws against their exact chances."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling
from tests import optimized

LAST = np.nextafter(np.float32(1), np.float32(0))  # largest uniform

_many = jax.jit(jax.vmap(sampling.draw, in_axes=(0, None)))
_probabilities = jax.jit(sampling.probabilities, static_argnums=1)


def reference(logits, temperature, top_k, top_p, min_p):
  """One row in float64: temperature, then top-k, then top-p, then min-p."""
  logits = np.asarray(logits, np.float64)
  if temperature == 0:
    return np.eye(logits.size)[np.argmax(logits)]
  logits = logits / temperature
  if top_k is not None and top_k < logits.size:
    logits = np.where(logits >= np.sort(logits)[-top_k], logits, -np.inf)
  probs = np.exp(logits - logits.max())
  probs /= probs.sum()
  if top_p < 1:
    descending = np.sort(probs)[::-1]
    last = np.argmax(np.cumsum(descending) >= top_p)
    # Tied tokens differ in nothing but rounding.
    probs = np.where(probs >= descending[last] * (1 - 1e-12), probs, 0.0)
  probs[probs < min_p * probs.max()] = 0.0
  return probs / probs.sum()


def logit_rows(kind):
  rng = np.random.default_rng(1)
  rows = 2 * rng.normal(size=(40, 23)).astype(np.float32)
  if kind == 'tied':
    rows = np.round(rows)
  if kind == 'forbidden':
    rows[rng.random(rows.shape) < 0.5] = -np.inf
    rows[:, 7] = 0.5
    rows[0, np.arange(23) != 7] = -np.inf
  return rows


@pytest.mark.parametrize('kind', ['random', 'tied', 'forbidden'])
@pytest.mark.parametrize(
  ('temperature', 'top_k', 'top_p', 'min_p'),
  [
    (1.0, None, 1.0, 0.0),
    (0.0, None, 1.0, 0.0),
    (0.0, 3, 0.5, 0.0),
    (0.7, None, 1.0, 0.0),
    (1.0, 1, 1.0, 0.0),
    (1.0, 5, 1.0, 0.0),
    (1.0, 100, 1.0, 0.0),
    (1.0, None, 0.83, 0.0),
    (1.0, None, 0.01, 0.0),
    (2.5, 8, 0.71, 0.0),
    (0.3, 8, 0.97, 0.0),
    (0.0, None, 1.0, 0.4),
    (0.7, None, 1.0, 0.13),
    (1.0, None, 1.0, 1.0),
    (2.5, 8, 0.71, 0.37),
  ],
)
def test_probabilities_match_numpy(kind, temperature, top_k, top_p, min_p):
  rows = logit_rows(kind)
  settings = sampling.Sampling(temperature, top_k, top_p, min_p)
  probs = _probabilities(rows, settings)
  expected = [reference(row, temperature, top_k, top_p, min_p) for row in rows]
  assert probs.dtype == jnp.float32
  np.testing.assert_array_equal(np.asarray(probs) > 0, np.array(expected) > 0)
  np.testing.assert_allclose(probs, expected, atol=1e-6)


def _kept(probs, **settings):
  """How many tokens, the first ones, are possible."""
  logits = np.log(np.float32(probs))
  kept = np.asarray(_probabilities(logits, sampling.Sampling(**settings)) > 0)
  assert (np.diff(kept.astype(int)) <= 0).all()
  return kept.sum()


def test_filters_are_applied_temperature_first():
  """Top-p before the temperature would keep two tokens here, not three."""
  assert _kept([0.6, 0.25, 0.1, 0.05], temperature=3.0, top_p=0.8) == 3


def test_top_k_goes_before_top_p():
  """0.6 of what top-k leaves is one token; of all tokens it is two."""
  assert _kept([0.4, 0.25, 0.2, 0.15], top_k=2, top_p=0.6) == 1


def test_top_p_goes_before_min_p():
  """0.6 of what min-p leaves is one token; of all tokens it is two."""
  assert _kept([0.5, 0.25, 0.15, 0.1], top_p=0.6, min_p=0.4) == 2


def test_min_p_is_a_share_of_the_largest():
  logits = np.float32([0.0, 1.0, 0.0, -np.inf]) * np.log(np.float32(2))
  for min_p, probs in ((0.49, [0.25, 0.5, 0.25, 0]), (0.51, [0, 1, 0, 0])):
    settings = sampling.Sampling(min_p=min_p)
    actual = _probabilities(logits, settings)
    np.testing.assert_allclose(actual, probs, rtol=1e-6)


def test_tied_tokens_stay_or_go_together():
  logits = np.float32([1.0, 1.0, 0.0, 0.0, 0.0])
  for settings in (sampling.Sampling(top_k=3), sampling.Sampling(top_p=0.8)):
    assert np.all(np.asarray(_probabilities(logits, settings)) > 0)
  for settings in (sampling.Sampling(top_k=1), sampling.Sampling(top_p=0.1)):
    actual = _probabilities(logits, settings)
    np.testing.assert_allclose(actual, [0.5, 0.5, 0, 0, 0])


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_half_precision_logits_give_float32_probabilities(temperature):
  logits = np.array([[0.0, 3.0, 3.0]], np.float32)
  settings = sampling.Sampling(temperature)
  probs = _probabilities(logits.astype(jnp.bfloat16), settings)
  assert probs.dtype == jnp.float32
  expected = _probabilities(logits, settings) if temperature else [[0, 1, 0]]
  np.testing.assert_array_equal(probs, expected)


@pytest.mark.parametrize('top_p', [2**-10, 0.25, 0.5, 0.9, 1 - 2**-10])
def test_nucleus_threshold_is_exactly_the_sorted_one(top_p):
  """Multiples of 2**-10 add up without rounding, ties and edges included."""
  rng = np.random.default_rng(2)
  counts = rng.multinomial(1024, rng.dirichlet(np.full(60, 0.3)), size=300)
  descending = -np.sort(-counts, axis=1)
  last = np.argmax(np.cumsum(descending, 1) >= 1024 * top_p, axis=1)
  expected = np.take_along_axis(descending, last[:, None], 1) / 1024
  find = jax.jit(sampling._nucleus, static_argnums=1)
  threshold = find(np.float32(counts / 1024), top_p)
  np.testing.assert_array_equal(threshold, expected)


@pytest.mark.parametrize(
  ('fields', 'name'),
  [
    ({'temperature': -0.1}, 'temperature'),
    ({'temperature': math.nan}, 'temperature'),
    ({'temperature': 1e-40}, r'must be 0 \(greedy\) or .* got 1e-40'),
    ({'temperature': 9e-7}, 'temperature'),
    ({'top_k': 0}, 'top_k'),
    ({'top_p': 0.0}, 'top_p'),
    ({'top_p': 1.01}, 'top_p'),
    ({'top_p': math.nan}, 'top_p'),
    ({'min_p': -0.01}, r'min_p must lie in \[0, 1\], got -0\.01'),
    ({'min_p': 1.01}, 'min_p'),
    ({'min_p': math.nan}, 'min_p'),
  ],
)
def test_sampling_out_of_range_raises(fields, name):
  with pytest.raises(ValueError, match=name):
    sampling.Sampling(**fields)


@pytest.mark.parametrize('scale', [1e-4, 1.0, 300.0])
@pytest.mark.parametrize('vocab_size', [1, 2, 3, 16, 17, 90])
def test_draw_has_exactly_the_distribution_of_its_weights(vocab_size, scale):
  """Inversion gives each token one interval: its grid points are off by 1."""
  rng = np.random.default_rng(vocab_size)
  weights = scale * rng.random(vocab_size).astype(np.float32)
  weights[rng.random(vocab_size) < 0.3] = 0
  weights[vocab_size // 2] = scale
  size = 1 << 16
  tokens = np.asarray(_many((np.arange(size)[:, None] + 0.5) / size, weights))
  assert tokens.dtype == np.int32
  assert (np.diff(tokens) >= 0).all()
  probs = weights.astype(np.float64) / weights.sum(dtype=np.float64)
  counts = np.bincount(tokens, minlength=vocab_size)
  assert counts.size == vocab_size
  assert not counts[weights == 0].any()
  assert np.abs(counts - size * probs).max() <= 1 + 1e-6 * size


# The distribution of a draw, by the grid of its generator: multiples of 2**-23.
# What a uniform picks never falls as it grows, so that a bisection finds how
# many grid points pick each weight.

_GRID = 1 << 23


@optimized.jit
@jax.vmap
def _grid_points(weights):
  """`[n]` how many uniforms pick each of `n` weights."""
  entries = jnp.arange(weights.shape[0])
  pick = jax.vmap(
    lambda point: sampling._pick(point.astype(jnp.float32) / _GRID, weights)
  )

  def halve(_, bounds):
    low, high = bounds
    middle = (low + high) // 2
    is_past = pick(middle) > entries
    return jnp.where(is_past, low, middle + 1), jnp.where(is_past, middle, high)

  zeros = jnp.zeros_like(entries)
  _, ends = jax.lax.fori_loop(0, 24, halve, (zeros, zeros + _GRID))
  return jnp.diff(ends, prepend=0)


def grid_probs(weights):
  """`[V]` float64 chances with which `draw` gives each token."""
  num = sampling.num_uniforms(weights.shape[0])
  if num == 1:
    return np.asarray(_grid_points(weights[None])[0], np.float64) / _GRID
  blocks = sampling._blocks(weights, 0.0, num)
  block_probs = np.asarray(_grid_points(blocks), np.float64) / _GRID
  return (grid_probs(blocks.sum(-1))[:, None] * block_probs).ravel()[
    : len(weights)
  ]


def hard_weights(kind, vocab_size):
  """`[V]` float32 probabilities, as a softmax would round them."""
  rng = np.random.default_rng(6)
  ranks = np.arange(1, vocab_size + 1)
  weights = {
    'zipf': 1 / ranks,
    'zipf, shuffled': rng.permutation(1 / ranks),
    'steep': rng.permutation(1 / ranks**1.5),
    'uniform': np.ones(vocab_size),
    'sparse': rng.dirichlet(np.full(vocab_size, 0.1)),
    'softmax': np.exp(rng.normal(0, 4, vocab_size)),
  }[kind]
  return jnp.asarray(weights / weights.sum(), jnp.float32)


@pytest.mark.parametrize(
  ('vocab_size', 'kind'),
  [
    *itertools.product([384, 4096, 32_000], ['zipf', 'uniform', 'softmax']),
    (256_000, 'zipf, shuffled'),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in [
        *itertools.product(
          [385, 50_257], ['zipf', 'steep', 'uniform', 'sparse', 'softmax']
        ),
        *itertools.product([128_256, 256_000], ['steep', 'sparse']),
      ]
    ),
  ],
)
def test_draw_of_a_large_vocabulary_is_off_by_little(vocab_size, kind):
  """Total variation from the weights, over all uniforms of the generator.

  One uniform for the whole vocabulary was off by 5e-3 at 256,000 tokens.
  """
  weights = hard_weights(kind, vocab_size)
  nominal = np.asarray(weights, np.float64)
  probs = grid_probs(weights)
  assert probs.sum() == pytest.approx(1, abs=1e-12)
  assert not probs[nominal == 0].any()
  assert np.abs(probs - nominal / nominal.sum()).sum() / 2 < 2e-5


def test_enumeration_counts_what_every_uniform_picks():
  """The bisection against all 2**23 uniforms, one by one."""
  weights = hard_weights('sparse', 9)
  points = jnp.arange(_GRID, dtype=jnp.int32).reshape(-1, 1 << 15)
  pick = jax.vmap(lambda point: sampling.draw(point[None] / _GRID, weights))
  tokens = optimized.jit(lambda points: jax.lax.map(pick, points))(points)
  counts = np.bincount(np.asarray(tokens).ravel(), minlength=9)
  np.testing.assert_array_equal(counts, _grid_points(weights[None])[0])


def test_draw_takes_its_uniforms_level_by_level(monkeypatch):
  """Blocks of at most 5 weights: three uniforms, each on a coarse grid."""
  monkeypatch.setattr(sampling, '_SPREAD', 5)
  for vocab_size in (26, 90, 125):
    assert sampling.num_uniforms(vocab_size) == 3
    weights = np.random.default_rng(vocab_size).random(vocab_size)
    weights[::7] = 0
    weights = weights.astype(np.float32)
    size = 64
    grid = (np.indices((size,) * 3).reshape(3, -1).T + 0.5) / size
    draw = jax.jit(jax.vmap(lambda u, w: sampling.draw(u, w), (0, None)))
    tokens = np.asarray(draw(grid.astype(np.float32), weights))
    counts = np.bincount(tokens, minlength=vocab_size)
    assert counts.size == vocab_size and not counts[weights == 0].any()
    probs = weights / weights.sum(dtype=np.float64)
    # Each level is off by at most a step of the grid.
    assert np.abs(counts / size**3 - probs).max() < 3 / size


def test_draw_needs_as_many_uniforms_as_levels():
  with pytest.raises(ValueError, match=r'\(2,\) for 4096 weights, got \(1,\)'):
    sampling.draw(jnp.zeros(1), jnp.ones(4096))


@pytest.mark.parametrize('vocab_size', [1, 2, 9, 10])
def test_draw_of_one_hot_weights_is_the_hot_token(vocab_size):
  tokens = jax.jit(jax.vmap(_many, in_axes=(None, 0)))(
    np.float32([[0.0], [0.5], [LAST]]), np.eye(vocab_size, dtype=np.float32)
  )
  np.testing.assert_array_equal(tokens.T, [np.arange(vocab_size)] * 3)


_cumsum = jax.jit(jnp.cumsum)


@pytest.mark.parametrize('vocab_size', [7, 64, 1000, 131072, 256_000])
def test_draw_never_gives_a_token_of_weight_zero(vocab_size):
  """Uniforms at the seams of the cumulative sum, as it rounds.

  All weight lies in the first block, so that the seams are hit exactly. In a
  parallel sum, adding 0 can change the rounding: the sum then steps, even
  down, at tokens of weight 0.
  """
  rng = np.random.default_rng(3)
  num = sampling.num_uniforms(vocab_size)
  width = sampling._blocks(np.zeros(vocab_size), 0.0, num).shape[1]
  width = width if num > 1 else vocab_size
  for _ in range(5):
    weights = np.zeros(vocab_size, np.float32)
    weights[:width] = rng.random(width) * (rng.random(width) < 0.5)
    weights[width // 2] = 0.5
    cumulative = np.asarray(_cumsum(weights[:width]))
    seams = (cumulative / cumulative[-1]).astype(np.float32)
    seams = np.concatenate([seams, np.nextafter(seams, np.float32(0)), [0]])
    seams = np.clip(seams, 0, LAST).astype(np.float32)
    # The other levels have no choice, whatever their uniforms are.
    uniforms = np.tile(seams[:, None], (1, num))
    tokens = _many(uniforms, weights)
    assert (weights[tokens] > 0).all()


def test_draw_of_the_extreme_uniforms_skips_weight_zero_at_the_ends():
  weights = np.float32([0, 0, 0.25, 0, 0.5, 0.25, 0, 0])
  ends = np.float32([[0.0], [LAST]])
  np.testing.assert_array_equal(_many(ends, weights), [2, 5])


def test_draw_of_a_batch_is_the_draw_of_each_row():
  rng = np.random.default_rng(4)
  weights = rng.random((50, 11)).astype(np.float32)
  uniforms = rng.random((50, 1)).astype(np.float32)
  draw = jax.jit(sampling.draw)
  rows = [draw(u, row) for u, row in zip(uniforms, weights)]
  np.testing.assert_array_equal(
    jax.jit(jax.vmap(sampling.draw))(uniforms, weights), rows
  )


def test_row_key_depends_on_its_request_alone():
  key = jax.random.key(5)
  keys = sampling.row_keys(key, np.array([3, 8], np.uint32))
  alone = sampling.row_keys(key, np.array([8], np.uint32))
  data = np.asarray(jax.random.key_data(keys))
  np.testing.assert_array_equal(data[1:], jax.random.key_data(alone))
  assert (data[0] != data[1]).any()


def test_numbers_are_leaves_unless_they_skip_a_step():
  leaves = jax.tree.leaves
  assert leaves(sampling.Sampling(0.5, 3, 0.9, 0.1)) == [0.5, 0.9, 0.1]
  for temperature in (0, 1):
    assert leaves(sampling.Sampling(temperature)) == []
  logits = jnp.array([[1.0, 2.0, 3.0, -jnp.inf]])
  for values in ((0.7,), (2, 2), (1, None, 0.5), (0.7, 3, 0.9, 0.2)):
    how = sampling.Sampling(*values)
    np.testing.assert_allclose(
      jax.jit(sampling.probabilities)(logits, how),
      sampling.probabilities(logits, how),
      rtol=1e-6,
    )


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'temperature': jnp.float32(-1)}, 'temperature must be 0 .* got -1.0'),
    ({'temperature': np.array([0.5, -1])}, 'temperature must be 0'),
    ({'temperature': jnp.array(0.0)}, 'a number .* if it is 0, got 0.0'),
    ({'temperature': '0.7'}, "temperature must be a number, got '0.7'"),
    ({'top_p': jnp.float32(1.5)}, r'top_p must lie in \(0, 1\], got 1.5'),
    ({'top_k': 2.5}, 'top_k must be an integer, got 2.5'),
  ],
)
def test_arrays_are_checked_as_numbers_are(options, message):
  with pytest.raises(ValueError, match=message):
    sampling.Sampling(**options)


def test_several_settings_are_a_pytree_with_stacked_leaves():
  settings = [sampling.Sampling(0.7), sampling.Sampling(0.8)]
  stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *settings)
  np.testing.assert_array_equal(stacked.temperature, [0.7, 0.8])
