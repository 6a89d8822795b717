"""Training for parallel drafting reads what the decode loop reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import trees
from specjax.data import packing
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.training import parallel_losses
from specjax.training import teacher
from tests import arms
from tests import parallel_test
from tests import sizes

_MASK = parallel_test.MASK
_CONFIG = config_lib.TransformerConfig(
  vocab_size=13,
  num_layers=2,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
)
_MODEL = adapters.Transformer(_CONFIG)
_HEAD = adapters.head_logits(_CONFIG)
_KEY = jax.random.key(0)
_ALL = {'keep': 1.0, 'min_keep': 1.0}


def _params(seed):
  """Returns parameters whose logits differ by several."""
  params = flax_modules.init_params(jax.random.key(seed), _CONFIG)
  return jax.tree.map(lambda x: 12 * x if x.ndim > 1 else x, params)


def _taught(folder, params):
  """Two texts in one row, padding, and the teacher's outputs."""
  draw = np.random.default_rng(3)
  sequences = [
    (draw.integers(13, size=size).tolist(), start)
    for size, start in ((7, 1), (5, 2))
  ]
  rows = packing.pack(sequences, row_length=16, seed=0)
  return teacher.teach(_MODEL, params, rows, str(folder))


def _loss(**options):
  return jax.jit(
    parallel_losses.parallel(
      _MODEL, _HEAD, _HEAD, mask_token=_MASK, **_ALL | options
    )
  )


def test_logits_are_those_of_the_decode_loop():
  """At every text of a decode, all levels of the draft have equal logits."""
  arm, params = parallel_test.parallel(trees.chain(3), arms.TARGET, 1.0)
  decoder = arms.decoder((arm, params))
  rounds = parallel_test.rounds_of(
    decoder.round_fn, decoder.params, decoder.init(sizes.PROMPTS, 24), 8
  )
  model, model_params = arms.TARGET
  head = jax.jit(adapters.head_logits(model.config))
  read = jax.jit(
    lambda batch, anchors: parallel_losses.read(
      model, model_params, batch, anchors, (4, 4), _MASK
    )
  )
  errors, shifted = [], []
  for texts, lengths, _, probs, _ in zip(*map(np.array, rounds)):
    positions = np.broadcast_to(np.arange(texts.shape[1]), texts.shape)
    inside = positions < lengths[:, None]
    batch = packing.Batch(
      texts,
      np.where(inside, positions, -1),
      np.where(inside, 0, -1),
      np.float32(inside),
    )
    # The other anchors of a row must not matter.
    anchors = np.stack([lengths - 2, lengths - 1, 0 * lengths, lengths - 1], 1)
    anchors = np.maximum(anchors, 0)
    first, *others = read(batch, anchors)
    outputs = [first[np.arange(len(texts)), lengths - 1]]
    outputs += [features[:, 1] for features in others]
    logits = head(model_params, jnp.stack(outputs, 1))
    draft = np.asarray(jax.nn.softmax(logits))
    errors.append(np.abs(draft - probs).max())
    shifted.append(np.abs(draft[:, 1:] - probs[:, :-1]).max())
  assert max(errors) < 1e-5 and min(shifted) > 1e-3


def test_the_loss_equals_its_definition(tmp_path):
  """The oracle reads each anchor's text and mask tokens as a plain chain."""
  params, teacher_params = _params(0), _params(1)
  batch = _taught(tmp_path, teacher_params)
  chain = jax.jit(
    lambda params, tokens: jax.nn.log_softmax(
      _MODEL.extend(params, None, tokens).logits[0]
    )
  )

  def log_probs(params, tokens):
    """Of a text, padded at its end so that all share one program."""
    padded = np.int32([[*tokens, *[0] * (12 - len(tokens))]])
    return np.asarray(chain(params, padded))[: len(tokens)]

  sums, overlaps, total = np.zeros((3, 3))
  for segment in (0, 1):
    inside = batch.segments[0] == segment
    text, weights = batch.tokens[0][inside], batch.weights[0][inside]
    target = log_probs(teacher_params, text)
    for anchor in range(len(text)):
      draft = log_probs(params, [*text[: anchor + 1], _MASK, _MASK])
      for step in range(min(3, len(text) - anchor)):
        at = anchor + step
        gap = target[at] - draft[at]
        sums[step] += weights[at] * (np.exp(target[at]) * gap).sum()
        overlap = np.exp(np.minimum(target[at], draft[at])).sum()
        overlaps[step] += weights[at] * overlap
        total[step] += weights[at]
  loss_fn = _loss(depth=3, decay=(1.0, 0.5, 0.25))
  loss, metrics = loss_fn(params, ({}, teacher_params), batch, _KEY)
  # The teacher's features are stored as float16.
  expected = ([1, 0.5, 0.25] * sums / total).sum()
  np.testing.assert_allclose(loss, expected, rtol=1e-2)
  rates = [metrics[f'acceptance_{depth}'] for depth in (1, 2, 3)]
  np.testing.assert_allclose(rates, overlaps / total, rtol=1e-2)


def test_dropped_anchors_change_later_tokens_only(tmp_path):
  params, teacher_params = _params(0), _params(1)
  batch = _taught(tmp_path, teacher_params)
  frozen = {}, teacher_params
  rates = []
  for options in ({}, {'keep': 0.5, 'min_keep': 0.3}):
    loss_fn = _loss(depth=3, **options)
    for seed in range(3):
      _, metrics = loss_fn(params, frozen, batch, jax.random.key(seed))
      rates.append([float(metrics[f'acceptance_{k}']) for k in (1, 2, 3)])
  rates = np.array(rates)
  np.testing.assert_allclose(rates[:, 0], rates[0, 0], rtol=1e-6)
  np.testing.assert_allclose(rates[:3], rates[[0] * 3], rtol=1e-5)
  assert len(np.unique(rates[3:, 2])) == 3


def test_anchors_are_dropped_as_in_the_paper():
  assert parallel_losses.num_anchors(100, 6, 0.7, 0.2) == (70, 49, 34, 24, 20)
  assert parallel_losses.num_anchors(4, 3, 0.5, 0.0) == (2, 1)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'mask_token': 13}, r'^mask_token must lie in \[0, 12\], got 13'),
    ({'depth': 1}, '^depth must be >= 2, got 1'),
    ({'keep': 1.5}, r'^keep must lie in \[0, 1\], got 1.5'),
    ({'loss': 'l2'}, "^Unknown loss 'l2'"),
    ({'decay': (1.0,)}, '^decay must be a number or have 2 entries'),
  ],
)
def test_an_invalid_option_raises(options, message):
  with pytest.raises(ValueError, match=message):
    parallel_losses.parallel(
      _MODEL, _HEAD, _HEAD, **{'mask_token': _MASK, 'depth': 2} | options
    )
