"""Training losses: `(params, frozen, batch, key) -> (loss, metrics)`.

`frozen` are parameters that are not trained, such as a distillation target's.
They are an argument, so that they do not become constants of the compiled step.
`key` is a random key, which differs in every step. A model is a function
`(params, batch) -> logits[B, T, V]`, see `adapters.teacher_forced`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax import base

Forced = Callable[..., jax.Array]
LossAndMetrics = tuple[jax.Array, dict[str, jax.Array]]
Loss = Callable[..., LossAndMetrics]


def token_losses(logits: jax.Array, tokens: jax.Array) -> jax.Array:
  """Returns the losses `[B, T]` of predicting the next token, in nats.

  The last loss of a row is 0.

  Args:
    logits: `[B, T, V]`.
    tokens: `[B, T]` int32.
  """
  scores = jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], axis=-1)
  losses = jax.nn.logsumexp(logits[:, :-1], axis=-1) - scores[..., 0]
  return jnp.pad(losses, ((0, 0), (0, 1)))


def cross_entropy(forced: Forced) -> Loss:
  """Builds the loss of ordinary language modeling, in nats per token.

  Args:
    forced: the model.
  """

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> LossAndMetrics:
    del frozen, key
    losses = token_losses(forced(params, batch), batch.tokens)
    loss = mean(losses, batch.weights)
    return loss, {'loss': loss}

  return loss_fn


def distillation(draft: Forced, target: Forced) -> Loss:
  """Builds token-level distillation: KL(target || draft), in nats per token.

  Its metrics include the acceptance rate at temperature 1,
  `sum_x min(target, draft)`.

  Args:
    draft: the model that is trained.
    target: the teacher, whose parameters are `frozen`.
  """

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> LossAndMetrics:
    del key
    target_logits = jax.lax.stop_gradient(target(frozen, batch))
    target_log = jax.nn.log_softmax(target_logits)
    return divergence(target_log, draft(params, batch), batch.weights)

  return loss_fn


def taught(draft: Forced, head: Forced) -> Loss:
  """Builds `distillation` from a teacher's stored features (`teacher.teach`).

  The divergence is summed over the tokens of a reduced vocabulary only, since
  the draft model cannot emit the others.

  Args:
    draft: `(params, fixed, batch) -> logits[B, T, H]` of the reduced
      vocabulary, with trained parameters and fixed ones.
    head: `(teacher_params, features[B, T, F]) -> logits[B, T, H]`, the
      teacher's output head for the same tokens.

  Returns:
    A loss for a `packing.TaughtBatch`; its `frozen` is a pair of the fixed
    parameters and the teacher's.
  """

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> LossAndMetrics:
    del key
    fixed, teacher_params = frozen
    target_logits = head(teacher_params, batch.features.astype(jnp.float32))
    target_log = target_logits - batch.normalizers[..., None]
    draft_logits = draft(params, fixed, batch)
    return divergence(target_log, draft_logits, batch.weights)

  return loss_fn


def joint(loss_fns: Mapping[str, Loss]) -> Loss:
  """Builds the sum of the losses of several models, to train them together.

  Args:
    loss_fns: losses by the names of the models.

  Returns:
    A loss for parameters `{name: params}`; metrics are named `name/metric`.
    Common computations, such as the forward pass of a distillation target, are
    compiled once.
  """

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> LossAndMetrics:
    total = jnp.zeros((), jnp.float32)
    metrics: dict[str, jax.Array] = {}
    for name, model_loss_fn in loss_fns.items():
      loss, model_metrics = model_loss_fn(params[name], frozen, batch, key)
      total += loss
      for metric, value in model_metrics.items():
        metrics[f'{name}/{metric}'] = value
    return total, metrics | {'loss': total}

  return loss_fn


def divergence(
  target_log: jax.Array, draft_logits: jax.Array, weights: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns KL(target || draft) in nats per token, and metrics.

  Args:
    target_log: `[..., H]` log-probabilities.
    draft_logits: `[..., H]`.
    weights: `[...]` weights of the tokens.

  Returns:
    The weighted mean, and metrics with the loss and the acceptance rate.
  """
  draft_log = jax.nn.log_softmax(draft_logits)
  target_probs = jnp.exp(target_log)
  divergence = (target_probs * (target_log - draft_log)).sum(-1)
  overlap = jnp.minimum(target_probs, jnp.exp(draft_log)).sum(-1)
  loss = mean(divergence, weights)
  return loss, {'loss': loss, 'acceptance': mean(overlap, weights)}


def mean(values: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns the weighted mean; 0 if all weights are 0."""
  return (values * weights).sum() / jnp.maximum(weights.sum(), 1.0)
