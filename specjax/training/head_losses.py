"""Losses of heads, from a teacher's stored features (`teacher.teach`).

Pair `i` joins token `i + 1` with the features at token `i`. The head's output
for it approximates the features at token `i + 1`, and predicts token `i + 2`.
Its training target is therefore the teacher's output at token `i + 1`.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import trees
from specjax.training import anchors
from specjax.training import losses

# `(params, x) -> logits[..., H]` of the tokens that can be drafted.
Logits = Callable[..., jax.Array]


class Recipe(NamedTuple):
  """Settings for training a head that drafts token by token.

  EAGLE-1 (Li et al. 2024) has 1 step, weights 1 and 0.1, and noise of 0.1.

  Attributes:
    steps: number of consecutive steps. The first reads the teacher's features,
      and the others the head's outputs, as in HASS and in EAGLE-3's
      training-time test.
    feature_weight: weight of the distance to the teacher's features.
    token_weight: weight of the loss on tokens.
    noise: amplitude of uniform noise on the features, times 512 over the length
      of the rows.
    decay: factor on the weight of each step after the first, or the weights of
      all steps.
    loss: the loss on tokens, a name in `losses.LOSSES`.
  """

  steps: int
  feature_weight: float
  token_weight: float
  noise: float
  decay: float | tuple[float, ...] = 0.8
  loss: str = 'kl'


def feature_head(
  head: base.FeatureHead, drafted: Logits, teacher: Logits, recipe: Recipe
) -> losses.Loss:
  """Builds the loss of an EAGLE head.

  With a reduced vocabulary, the teacher's distribution is renormalized over it,
  and only positions where it contains the teacher's likeliest token count.

  Args:
    head: the head. Its tap -1 is `packing.TaughtBatch.features`; its other taps
      are `packing.TaughtBatch.taps`, in their order.
    drafted: `(params, outputs) -> logits` of the head, for the tokens that can
      be drafted.
    teacher: `(params, features) -> logits` of the teacher, for the same tokens.
    recipe: number of steps, and weights.

  Returns:
    A loss for a `packing.TaughtBatch`; its `frozen` is a pair of the head's
    parameters that are not trained, and those of the teacher's output head.
    Metrics include an acceptance rate for each step.

  Raises:
    ValueError: the loss is unknown, or there is not one weight for each step.
  """
  position_loss = losses.find(recipe.loss)
  step_weights = losses.weights_by_depth(recipe.decay, recipe.steps)

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> losses.LossAndMetrics:
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    inputs, pending_kv = _inputs(head, params, batch, recipe, key), None
    teacher_outputs = _teacher_outputs(teacher, teacher_params, batch)
    total, metrics = jnp.zeros((), jnp.float32), {}
    for step, step_weight in enumerate(step_weights):
      outputs, pending_kv = _read(head, params, batch, step, inputs, pending_kv)
      targets = _targets(fixed, teacher_outputs, batch, step + 1)
      loss, step_metrics = losses.divergence(
        position_loss,
        targets.log_probs,
        drafted(params, outputs),
        targets.token_weights,
      )
      distance = _smooth_distance(outputs, targets.features)
      total += step_weight * (
        recipe.token_weight * loss
        + recipe.feature_weight * losses.mean(distance, targets.weights)
      )
      metrics[f'acceptance_{step + 1}'] = step_metrics['acceptance']
      inputs = outputs
    return total, metrics | {'loss': total}

  return loss_fn


def medusa(
  head: base.ParallelHead,
  drafted: Logits,
  teacher: Logits,
  decay: float | tuple[float, ...] = 0.8,
  loss: str | losses.PositionLoss = 'kl',
) -> losses.Loss:
  """Builds the loss of Medusa's heads, on the teacher's distributions.

  Args:
    head: the heads; see `feature_head`.
    drafted: `(params, features) -> logits[B, T, K, H]` of the heads.
    teacher: See `feature_head`.
    decay: factor on the weight of each head after the first (Cai et al. 2024),
      or the weights of all heads.
    loss: See `losses.distillation`.

  Returns:
    A loss, with arguments and metrics as those of `feature_head`.

  Raises:
    ValueError: the loss is unknown, or there is not one weight for each head.
  """
  position_loss = losses.find(loss)
  depth_weights = losses.weights_by_depth(decay, head.num_steps)

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> losses.LossAndMetrics:
    del key
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    logits = drafted(params, _features(head.taps, batch))
    teacher_outputs = _teacher_outputs(teacher, teacher_params, batch)
    # The target itself predicts the next token, the first head the second.
    targets = [
      _targets(fixed, teacher_outputs, batch, step + 1)
      for step in range(head.num_steps)
    ]
    return losses.divergence_by_depth(
      position_loss,
      depth_weights,
      (
        (target.log_probs, logits[:, :, step], target.token_weights)
        for step, target in enumerate(targets)
      ),
    )

  return loss_fn


def block_head(
  head: base.BlockHead,
  drafted: Logits,
  teacher: Logits,
  num_blocks: int = 64,
  decay: float | tuple[float, ...] = 0.8,
  loss: str | losses.PositionLoss = 'kl',
) -> losses.Loss:
  """Builds the loss of DFlash and DSpark, on the teacher's distributions.

  Blocks begin at random tokens of the text that have a weight. All of them are
  read at once; each attends to the features before its first token, as in the
  decode loop, and to itself.

  Args:
    head: the head; see `feature_head`.
    drafted: `(params, outputs, tokens) -> logits[B, T, H]`, given the tokens
      before the predicted ones.
    teacher: See `feature_head`.
    num_blocks: number of blocks in each row, `N`.
    decay: factor on the weight of each predicted token after the first, or the
      weights of all of them.
    loss: See `losses.distillation`.

  Returns:
    A loss, with arguments and metrics as those of `feature_head`.

  Raises:
    ValueError: the loss is unknown, `num_blocks` is out of range, or there is
      not one weight for each token.
  """
  checks.check_integers('num_blocks', num_blocks, 1)
  num_steps = head.block_size - head.first_output
  position_loss = losses.find(loss)
  depth_weights = losses.weights_by_depth(decay, num_steps)

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> losses.LossAndMetrics:
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    checks.check_integers('num_blocks', num_blocks, 1, batch.tokens.shape[1])
    starts = anchors.choose(key, batch, num_blocks)
    outputs = _read_blocks(head, params, batch, starts)
    # The teacher's outputs at these tokens predict what the blocks do.
    at = starts[..., None] + np.arange(num_steps)[None, None]
    logits = drafted(
      params,
      outputs.reshape(len(starts), -1, outputs.shape[-1]),
      trees.at_entries(batch.tokens, at.reshape(len(starts), -1)),
    ).reshape(*at.shape, -1)
    _, log_probs = _teacher_outputs(teacher, teacher_params, batch)
    weights = _block_weights(fixed, batch, starts, at)
    return losses.divergence_by_depth(
      position_loss,
      depth_weights,
      (
        (
          trees.at_entries(log_probs, at[..., step]),
          logits[:, :, step],
          weights[..., step],
        )
        for step in range(num_steps)
      ),
    )

  return loss_fn


def _read_blocks(
  head: base.BlockHead, params: base.Params, batch: Any, starts: jax.Array
) -> jax.Array:
  """Returns `[B, N, K, F]` outputs of blocks that begin at `[B, N]` tokens."""
  (num_rows, num_blocks), size = starts.shape, head.block_size
  entries = head.encode(params, _features(head.taps, batch), batch.positions)
  tokens = jnp.pad(
    trees.at_entries(batch.tokens, starts)[..., None],
    ((0, 0), (0, 0), (0, size - 1)),
    constant_values=head.mask_token,
  )
  positions = trees.at_entries(batch.positions, starts)[..., None]
  positions += np.arange(size)[None, None]
  segments = trees.at_entries(batch.segments, starts)
  index = np.arange(batch.tokens.shape[1])
  before = index[None, None] < starts[..., None]
  before &= batch.segments[:, None] == segments[..., None]
  block = np.repeat(np.arange(num_blocks), size)
  within = np.broadcast_to(
    block[:, None] == block[None], (num_rows, len(block), len(block))
  )
  outputs, _ = head.extend(
    params,
    None,
    tokens.reshape(num_rows, -1),
    pending_kv=entries,
    positions=positions.reshape(num_rows, -1),
    mask=jnp.concatenate([before[:, block], within], axis=-1),
  )
  outputs = outputs.reshape(*tokens.shape, -1)
  return outputs[:, :, head.first_output :]


def _block_weights(
  fixed: base.Params, batch: Any, starts: jax.Array, at: jax.Array
) -> jax.Array:
  """Returns `[B, N, K]` weights of the teacher's outputs at tokens `at`.

  They are 0 past the end of a block's text, and where the teacher's likeliest
  token cannot be drafted.
  """
  weights = anchors.weights_at(batch, starts, at)
  if 'head_rows' in fixed:
    best = trees.at_entries(batch.best, at.reshape(len(at), -1))
    rows = fixed['head_rows'][best].reshape(at.shape)
    weights = jnp.where(rows >= 0, weights, 0.0)
  return weights


class _Targets(NamedTuple):
  """Training targets at each token: the teacher's outputs at a later token.

  Attributes:
    features: `[B, T, F]`.
    log_probs: `[B, T, H]`.
    weights: `[B, T]`.
    token_weights: `[B, T]`, the weights, but 0 where the teacher's likeliest
      token cannot be drafted.
  """

  features: jax.Array
  log_probs: jax.Array
  weights: jax.Array
  token_weights: jax.Array


def _teacher_outputs(
  teacher: Logits, params: base.Params, batch: Any
) -> tuple[jax.Array, jax.Array]:
  """Returns the teacher's features and log-probabilities at all tokens.

  They are computed once, since its output head costs more than a step.
  """
  features = batch.features.astype(jnp.float32)
  return features, jax.nn.log_softmax(teacher(params, features))


def _targets(
  fixed: base.Params,
  teacher_outputs: tuple[jax.Array, jax.Array],
  batch: Any,
  offset: int,
) -> _Targets:
  """Returns the training targets of outputs for `offset` tokens later."""
  features, log_probs = (shift(values, offset) for values in teacher_outputs)
  is_same_text = _is_same_text(batch, offset)
  weights = jnp.where(is_same_text, shift(batch.weights, offset), 0.0)
  token_weights = weights
  if 'head_rows' in fixed:
    rows = fixed['head_rows'][shift(batch.best, offset)]
    token_weights = jnp.where(rows >= 0, weights, 0.0)
  return _Targets(features, log_probs, weights, token_weights)


def shift(values: jax.Array, offset: int) -> jax.Array:
  """Returns `[B, T, ...]` values of `offset` tokens later, 0 past the end."""
  padding = [(0, 0), (0, offset)] + [(0, 0)] * (values.ndim - 2)
  return jnp.pad(values[:, offset:], padding)


def _is_same_text(batch: Any, offset: int) -> jax.Array:
  """Returns `[B, T]` whether the token `offset` later is in the same text."""
  index = np.arange(batch.segments.shape[1])[None]
  is_same = shift(batch.segments, offset) == batch.segments
  is_inside = index + offset < batch.segments.shape[1]
  return is_same & is_inside & (batch.segments >= 0)


def _features(taps: tuple[int, ...], batch: Any) -> tuple[jax.Array, ...]:
  """Returns the features that a head with some taps reads."""
  others = iter(batch.taps)
  features = (batch.features if tap == -1 else next(others) for tap in taps)
  return tuple(feature.astype(jnp.float32) for feature in features)


def _inputs(
  head: base.FeatureHead,
  params: base.Params,
  batch: Any,
  recipe: Recipe,
  key: jax.Array,
) -> jax.Array:
  """Returns the head's inputs `[B, T, F]`: fused features with noise."""
  features = _features(head.taps, batch)
  amplitude = recipe.noise * 512 / batch.tokens.shape[1]
  if amplitude:
    keys = jax.random.split(key, len(features))
    features = tuple(
      feature
      + jax.random.uniform(
        feature_key, feature.shape, minval=-amplitude, maxval=amplitude
      )
      for feature_key, feature in zip(keys, features)
    )
  return head.fuse(params, features)


def _read(
  head: base.FeatureHead,
  params: base.Params,
  batch: Any,
  step: int,
  inputs: jax.Array,
  pending_kv: base.PendingKV | None,
) -> tuple[jax.Array, base.PendingKV]:
  """Reads pair `i + step` at index `i`, in step `step`.

  In the first step, pairs attend to all earlier pairs of their text. In later
  steps, they attend to the same pairs, and to the head's outputs on the path to
  them.
  """
  positions = jnp.where(
    _is_same_text(batch, step + 1), batch.positions + step, -1
  )
  length = batch.tokens.shape[1]
  segments = batch.segments
  causal = segments[:, :, None] == segments[:, None, :]
  causal &= jnp.tri(length, dtype=bool)[None]
  diagonal = jnp.broadcast_to(jnp.eye(length, dtype=bool)[None], causal.shape)
  return head.extend(
    params,
    None,
    shift(batch.tokens, step + 1),
    inputs,
    pending_kv=pending_kv,
    positions=positions,
    mask=jnp.concatenate([causal, *[diagonal] * step], axis=-1),
  )


def _smooth_distance(outputs: jax.Array, features: jax.Array) -> jax.Array:
  """Returns `[B, T]` Huber losses, averaged over dimensions."""
  gap = jnp.abs(outputs - features)
  return jnp.where(gap < 1, gap**2 / 2, gap - 0.5).mean(-1)
