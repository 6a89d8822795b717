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
  """How a head is trained that drafts token by token.

  EAGLE-1 (Li et al. 2024) has 1 step, weights 1 and 0.1, and noise of 0.1.

  Attributes:
    steps: how often it reads its own outputs in place of features: 1 never,
      more as HASS and EAGLE-3's training-time test do.
    feature_weight: of the distance to the teacher's features.
    token_weight: of KL(teacher || head).
    noise: features are moved by uniform noise of at most this, times 512 over
      the length of the rows.
    decay: weight of a step over that of the one before.
  """

  steps: int
  feature_weight: float
  token_weight: float
  noise: float
  decay: float = 0.8


def feature_head(
  head: base.FeatureHead, drafted: Logits, teacher: Logits, recipe: Recipe
) -> losses.Loss:
  """Builds the loss of an EAGLE head.

  Of the teacher's distribution over a draft vocabulary, renormalised, it learns
  where the teacher's likeliest token is one of it.

  Args:
    head: the head; of its taps, -1 is `packing.TaughtBatch.features`, and the
      others are its `taps`, in their order.
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
    taught = _taught(teacher, teacher_params, batch)
    total, metrics = jnp.zeros((), jnp.float32), {}
    for step in range(recipe.steps):
      outputs, pending = _read(head, params, batch, step, inputs, pending)
      lesson = _lesson(fixed, taught, batch, step + 1)
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
  head: base.ParallelHead, drafted: Logits, teacher: Logits, decay: float = 0.8
) -> losses.Loss:
  """Builds the loss of Medusa's heads, which learn the teacher's distributions.

  Args:
    head: the heads; they read what `feature_head` reads.
    drafted: `(params, features) -> logits[B, T, K, H]`, the heads'.
    teacher: as of `feature_head`.
    decay: weight of a head over that of the one before (Cai et al. 2024).

  Returns:
    A loss, as that of `feature_head`.
  """

  def loss_fn(params, frozen, batch, key):
    del key
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    logits = drafted(params, _features(head.taps, batch))
    taught = _taught(teacher, teacher_params, batch)
    total, metrics = jnp.zeros((), jnp.float32), {}
    for step in range(head.num_steps):
      # The first head is of the token behind the next one.
      lesson = _lesson(fixed, taught, batch, step + 1)
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


def _taught(teacher, params, batch):
  """What the teacher computed, at each token: features and log-probabilities.

  Of all tokens at once, as its head costs more than a step does.
  """
  features = batch.features.astype(jnp.float32)
  return features, jax.nn.log_softmax(teacher(params, features))


def _lesson(fixed, taught, batch, offset):
  features, log_probs = (later(each, offset) for each in taught)
  one_text = _is_one_text(batch, offset)
  weights = jnp.where(one_text, later(batch.weights, offset), 0.0)
  known = weights
  if 'head_rows' in fixed:
    rows = fixed['head_rows'][later(batch.best, offset)]
    known = jnp.where(rows >= 0, weights, 0.0)
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


def _features(taps, batch: packing.TaughtBatch):
  """What a head of such taps reads; the batch has the others than -1."""
  others = iter(batch.taps)
  every = (batch.features if tap == -1 else next(others) for tap in taps)
  return tuple(each.astype(jnp.float32) for each in every)


def _inputs(head, params, batch, recipe, key):
  """Features as the head reads them, with noise."""
  features = _features(head.taps, batch)
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
    pending_kv=pending,
    positions=positions,
    mask=jnp.concatenate([before, *[itself] * step], axis=-1),
  )


def _smooth_distance(outputs, features):
  """`[B, T]` Huber's distance, the mean of all dimensions."""
  gap = jnp.abs(outputs - features)
  return jnp.where(gap < 1, gap**2 / 2, gap - 0.5).mean(-1)
