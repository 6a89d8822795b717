"""Losses of heads: what is learnt of which token, step by step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from specjax.data import packing
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import heads
from specjax.training import head_losses
from specjax.training import teacher
from tests import tiers

_TARGET = config_lib.TransformerConfig(
  vocab_size=13,
  num_layers=4,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
)
_MODEL = adapters.Transformer(_TARGET)
_KEY = jax.random.key(0)
_WIDTH = 16  # Of rows.
_STILL = head_losses.Recipe(
  steps=3, feature_weight=1.0, token_weight=0.1, noise=0.0
)


def _spread(params, key, scale=0.4):
  rng = np.random.default_rng(key)
  return jax.tree.map(
    lambda leaf: (
      leaf + np.float32(scale * rng.normal(size=leaf.shape))
      if jnp.issubdtype(leaf.dtype, jnp.floating)
      else leaf
    ),
    jax.device_get(params),
  )


_PARAMS = _spread(flax_modules.init_params(jax.random.key(1), _TARGET), 2)


def _taught(folder, taps=()):
  """Two texts in one row, of which the second begins with two tokens given."""
  draw = np.random.default_rng(3)
  sequences = [
    (draw.integers(13, size=n).tolist(), s) for n, s in ((9, 1), (6, 3))
  ]
  rows = packing.pack(sequences, row_length=_WIDTH, seed=0)
  return teacher.teach(_MODEL, _PARAMS, rows, str(folder), taps=taps)


def _made(kind, **options):
  config = heads.configure(kind, _TARGET, **options)
  tokens = np.arange(0, 13, 2) if options.get('head_size') else None
  start = heads.begin(_KEY, config, _TARGET, _PARAMS, tokens)
  fixed = {k: start.pop(k) for k in ('embedding', 'head_rows') if k in start}
  return config, _spread(start, 4), fixed


def _texts(batch):
  """The tokens, features, weights and normalizers of each text."""
  for segment in np.unique(batch.segments[batch.segments >= 0]):
    row, index = np.nonzero(batch.segments == segment)
    one = packing.take(batch, row[0])
    yield packing.take(one, index)


def _reference(head, extend, drafted, teach, recipe, params, text):
  """Sums of the loss over one text, pair by pair, by reading each way anew.

  In step `s`, the pair at `i + s` is read after the true features up to `i` and
  the outputs of the steps before. Padding, which no pair sees, makes one
  program of all lengths.
  """
  taps = text.taps if head.taps != (-1,) else (text.features,)
  taps = tuple(np.asarray(tap, np.float32)[None] for tap in taps)
  fused = np.asarray(jax.jit(head.fuse)(params, taps))

  def output(tokens, features):
    """Of the last pair of some."""
    widths = (0, 0), (0, _WIDTH - tokens.shape[1])
    out = extend(
      params, None, np.pad(tokens, widths), np.pad(features, (*widths, (0, 0)))
    )
    return np.asarray(out[0])[:, tokens.shape[1] - 1 :][:, :1]

  sums = np.zeros((recipe.steps, 3))  # KL, distance, weight
  for i in range(len(text.tokens) - 1):
    inputs = fused[:, : i + 1]
    for step in range(recipe.steps):
      position = i + step + 1  # The token whose features the output stands for.
      if position >= len(text.tokens):
        break
      tokens = np.asarray(text.tokens[None, 1 : position + 1], np.int32)
      out = output(tokens, inputs)
      features = np.asarray(
        text.features[None, position : position + 1], np.float32
      )
      log = special.log_softmax(teach(_PARAMS, features)[0, 0])
      log_probs = special.log_softmax(drafted(params, out)[0, 0])
      gap = np.abs(out - features)
      sums[step] += text.weights[position] * np.array([
        (np.exp(log) * (log - log_probs)).sum(),
        np.where(gap < 1, gap**2 / 2, gap - 0.5).mean(),
        1.0,
      ])  # fmt: skip
      inputs = np.concatenate([inputs, out], axis=1)
  return sums


@pytest.mark.parametrize('kind', tiers.cases(['eagle', 'eagle3'], 'eagle3'))
def test_steps_are_aligned_with_the_text(kind, tmp_path):
  config, params, fixed = _made(kind)
  head = heads.head(config)
  batch = _taught(tmp_path, config.taps if kind == 'eagle3' else ())
  drafted = heads.drafted_logits(config)
  teach = adapters.head_logits(_TARGET)
  loss_fn = head_losses.feature_head(head, drafted, teach, _STILL)
  loss, _ = jax.jit(loss_fn)(params, (fixed, _PARAMS), batch, _KEY)
  whole = {**params, **fixed}
  jitted = map(jax.jit, (head.extend, drafted, teach))
  reference = functools.partial(_reference, head, *jitted, _STILL, whole)
  sums = sum(map(reference, _texts(batch)))
  kl, distance, weight = sums.T
  expected = (
    _STILL.decay ** np.arange(3) * (0.1 * kl + distance) / weight
  ).sum()
  np.testing.assert_allclose(loss, expected, rtol=2e-4)


@pytest.mark.parametrize(
  'moved', tiers.cases(['tokens', 'features', 'weights'], 'features')
)
def test_a_shift_by_one_is_found(moved, tmp_path):
  config, params, fixed = _made('eagle')
  batch = _taught(tmp_path)
  teach = adapters.head_logits(_TARGET)
  loss_fn = jax.jit(
    head_losses.feature_head(
      heads.head(config), heads.drafted_logits(config), teach, _STILL
    )
  )
  shifted = batch._replace(**{moved: np.roll(getattr(batch, moved), 1, axis=1)})
  losses = [
    float(loss_fn(params, (fixed, _PARAMS), rows, _KEY)[0])
    for rows in (batch, shifted)
  ]
  assert abs(losses[0] / losses[1] - 1) > 5e-3


def test_medusas_heads_learn_later_and_later_tokens(tmp_path):
  config, params, fixed = _made('medusa', num_steps=3)
  batch = _taught(tmp_path)
  teach, drafted = adapters.head_logits(_TARGET), heads.drafted_logits(config)
  head = heads.head(config)
  loss_fn = head_losses.medusa(head, drafted, teach)
  loss, _ = jax.jit(loss_fn)(params, (fixed, _PARAMS), batch, _KEY)
  whole, expected = {**params, **fixed}, 0.0
  teach, logits_fn = jax.jit(teach), jax.jit(drafted)
  for step in range(3):
    total, weight = 0.0, 0.0
    for text in _texts(batch):
      features = np.asarray(text.features, np.float32)[None]
      log_probs = special.log_softmax(
        logits_fn(whole, (features,))[0, :, step], -1
      )
      log = special.log_softmax(teach(_PARAMS, features)[0], -1)
      for i in range(len(text.tokens) - step - 1):
        position = i + step + 1
        kl = (np.exp(log[position]) * (log[position] - log_probs[i])).sum()
        total += text.weights[position] * float(kl)
        weight += text.weights[position]
    expected += 0.8**step * total / weight
  np.testing.assert_allclose(loss, expected, rtol=2e-4)


def test_a_draft_vocabulary_hides_tokens_that_it_lacks(tmp_path):
  """Only positions count whose likeliest token can be drafted."""
  config, params, fixed = _made('eagle3', head_size=7)
  batch = _taught(tmp_path, config.taps)
  narrow, narrow_params = cutting.narrow_head(
    _TARGET, _PARAMS, np.arange(0, 13, 2)
  )
  recipe = head_losses.Recipe(1, 0.0, 1.0, 0.0)
  loss_fn = jax.jit(
    head_losses.feature_head(
      heads.head(config),
      heads.drafted_logits(config),
      adapters.head_logits(narrow),
      recipe,
    )
  )
  frozen = fixed, narrow_params
  loss, _ = loss_fn(params, frozen, batch, _KEY)
  hidden = batch._replace(
    weights=np.where(batch.best % 2, 0, batch.weights).astype(np.float32)
  )
  np.testing.assert_allclose(loss_fn(params, frozen, hidden, _KEY)[0], loss)
  assert 0 < hidden.weights.sum() < batch.weights.sum()


def test_noise_is_another_one_in_each_step_and_small_in_long_rows(tmp_path):
  config, params, fixed = _made('eagle')
  batch = _taught(tmp_path)
  losses = {
    noise: jax.jit(
      head_losses.feature_head(
        heads.head(config),
        heads.drafted_logits(config),
        adapters.head_logits(_TARGET),
        _STILL._replace(noise=noise),
      )
    )
    for noise in (0.0, 1e-5)
  }
  loss = lambda noise, key: float(
    losses[noise](params, (fixed, _PARAMS), batch, jax.random.key(key))[0]
  )
  still = loss(0.0, 0)
  assert loss(0.0, 1) == still
  moved = {loss(1e-5, key) for key in range(3)}
  assert len(moved) == 3 and max(abs(change - still) for change in moved) < 0.01


def test_no_blocks_are_refused():
  with pytest.raises(ValueError, match='num_blocks must be >= 1, got 0'):
    head_losses.block_head(None, None, None, num_blocks=0)
