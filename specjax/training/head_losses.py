"""Losses of heads on the features of a teacher that has read the rows before.

Pair `i` is of token `i + 1` and the features at token `i`; what a head computes
of it stands for the features at token `i + 1`, and predicts token `i + 2`. So
what is learnt of pair `i` is what the teacher computed at token `i + 1`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.data import packing
from specjax.training import losses

# `(params, x) -> logits[..., H]` of the tokens that can be drafted.
Logits = Callable[..., jax.Array]


class Recipe(NamedTuple):
  """How an EAGLE head is trained; the default is EAGLE-1's (Li et al. 2024).

  Attributes:
    steps: how often it reads its own outputs in place of features: 1 never,
      more as HASS and EAGLE-3's training-time test do.
    decay: weight of a step over that of the one before.
    feature_weight: of the distance to the teacher's features.
    token_weight: of KL(teacher || head).
    noise: features are moved by uniform noise of at most this, times 512 over
      the length of the rows.
  """

  steps: int = 1
  decay: float = 0.8
  feature_weight: float = 1.0
  token_weight: float = 0.1
  noise: float = 0.1


def feature_head(
  head: base.FeatureHead, drafted: Logits, teacher: Logits, recipe: Recipe
) -> losses.Loss:
  """Builds the loss of an EAGLE head.

  Of the teacher's distribution over a draft vocabulary, renormalised, it learns
  where the teacher's likeliest token is one of it.

  Args:
    head: the head; it reads `packing.TaughtBatch.taps`, or where its taps are
      (-1,) `features`.
    drafted: `(params, outputs) -> logits`, the head's.
    teacher: `(params, features) -> logits`, the teacher's of the same tokens.
    recipe: what is weighed how.

  Returns:
    A loss for a `packing.TaughtBatch`; its `frozen` are `(fixed, teacher)`,
    parameters of the head that are not trained, and of the teacher's head. The
    metrics have an acceptance rate for each step.
  """

  def loss_fn(params, frozen, batch, key):
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    inputs, pending = _inputs(head, params, batch, recipe, key), None
    total, metrics = jnp.zeros(()), {}
    for step in range(recipe.steps):
      outputs, pending = _read(head, params, batch, step, inputs, pending)
      lesson = _lesson(fixed, teacher, teacher_params, batch, step + 1)
      loss, own = losses.divergence(
        lesson.log_probs, drafted(params, outputs), lesson.known
      )
      distance = _smooth_distance(outputs, lesson.features)
      total += recipe.decay**step * (
        recipe.token_weight * loss
        + recipe.feature_weight * losses.mean(distance, lesson.weights)
      )
      metrics[f'acceptance_{step + 1}'] = own['acceptance']
      inputs = outputs
    return total, metrics | {'loss': total}

  return loss_fn


def medusa(
  drafted: Logits, teacher: Logits, num_steps: int, decay: float = 0.8
) -> losses.Loss:
  """Builds the loss of Medusa's heads, which learn the teacher's distributions.

  Args:
    drafted: `(params, features) -> logits[B, T, K, H]`, the heads'.
    teacher: as of `feature_head`.
    num_steps: `K`.
    decay: weight of a head over that of the one before (Cai et al. 2024).

  Returns:
    A loss, as that of `feature_head`.
  """

  def loss_fn(params, frozen, batch, key):
    del key
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    features = batch.features.astype(jnp.float32)
    logits = drafted(params, (features,))
    total, metrics = jnp.zeros(()), {}
    for step in range(num_steps):
      # The first head is of the token behind the next one.
      lesson = _lesson(fixed, teacher, teacher_params, batch, step + 1)
      loss, own = losses.divergence(
        lesson.log_probs, logits[:, :, step], lesson.known
      )
      total += decay**step * loss
      metrics[f'acceptance_{step + 1}'] = own['acceptance']
    return total, metrics | {'loss': total}

  return loss_fn


class _Lesson(NamedTuple):
  """What the teacher computed, some tokens later, at each token of a row."""

  features: jax.Array  # [B, T, F]
  log_probs: jax.Array  # [B, T, H]
  weights: jax.Array  # [B, T]
  known: jax.Array  # [B, T] weights where its best token can be drafted


def _lesson(fixed, teacher, params, batch, offset):
  features = later(batch.features, offset).astype(jnp.float32)
  one_text = _is_one_text(batch, offset)
  weights = jnp.where(one_text, later(batch.weights, offset), 0.0)
  known = weights
  if 'head_rows' in fixed:
    rows = fixed['head_rows'][later(batch.best, offset)]
    known = jnp.where(rows >= 0, weights, 0.0)
  log_probs = jax.nn.log_softmax(teacher(params, features))
  return _Lesson(features, log_probs, weights, known)


def later(values: jax.Array, offset: int) -> jax.Array:
  """Returns `[B, T, ...]` what stands `offset` tokens later; at the end 0."""
  pad = [(0, 0), (0, offset)] + [(0, 0)] * (values.ndim - 2)
  return jnp.pad(values[:, offset:], pad)


def _is_one_text(batch, offset):
  """`[B, T]` whether a token, and the one so much later, are of one text."""
  index = np.arange(batch.segments.shape[1])[None]
  same = later(batch.segments, offset) == batch.segments
  inside = index + offset < batch.segments.shape[1]
  return same & inside & (batch.segments >= 0)


def _inputs(head, params, batch: packing.TaughtBatch, recipe, key):
  """Features as the head reads them, with noise."""
  every = batch.taps if head.taps != (-1,) else (batch.features,)
  features = tuple(each.astype(jnp.float32) for each in every)
  largest = recipe.noise * 512 / batch.tokens.shape[1]
  if largest:
    keys = jax.random.split(key, len(features))
    features = tuple(
      each
      + jax.random.uniform(own, each.shape, minval=-largest, maxval=largest)
      for own, each in zip(keys, features)
    )
  return head.fuse(params, features)


def _read(head, params, batch, step, inputs, pending):
  """Reads pair `i + step` in place of pair `i`, behind its own way there.

  In the first step, pairs see those before them; later ones see what the first
  step saw, and the outputs that led to them.
  """
  positions = jnp.where(
    _is_one_text(batch, step + 1), batch.positions + step, -1
  )
  length = batch.tokens.shape[1]
  segments = batch.segments
  before = segments[:, :, None] == segments[:, None, :]
  before &= jnp.tri(length, dtype=bool)[None]
  itself = jnp.broadcast_to(jnp.eye(length, dtype=bool)[None], before.shape)
  return head.extend(
    params,
    None,
    later(batch.tokens, step + 1),
    inputs,
    pending=pending,
    positions=positions,
    mask=jnp.concatenate([before, *[itself] * step], axis=-1),
  )


def _smooth_distance(outputs, features):
  """`[B, T]` Huber's distance, the mean of all dimensions."""
  gap = jnp.abs(outputs - features)
  return jnp.where(gap < 1, gap**2 / 2, gap - 0.5).mean(-1)
