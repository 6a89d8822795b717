"""Training losses: `(params, frozen, batch, key) -> (loss, metrics)`.

`frozen` are parameters that are not trained, such as a distillation target's.
They are an argument, so that they do not become constants of the compiled step.
`key` is a random key, which differs in every step. A model is a function
`(params, batch) -> logits[B, T, V]`, see `adapters.teacher_forced`.

A drafter is trained with one of `LOSSES`, which compare its distribution with
the target's, at each position. `divergence` averages them over positions.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import registry

Forced = Callable[..., jax.Array]
LossAndMetrics = tuple[jax.Array, dict[str, jax.Array]]
Loss = Callable[..., LossAndMetrics]
# `(target_log[..., H], draft_log[..., H], weights[...]) -> values[...]`: how
# far the draft distribution is from the target distribution at each position.
# The values are not weighted yet.
PositionLoss = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

# Log-probabilities count as at least this, so that values and gradients are
# finite where a token is excluded; no model assigns so little to a token.
_MIN_LOG = -1e4
# Decay of the weight of KL in `hybrid`, the value of the paper.
_ETA = 3.0


def kl(
  target_log: jax.Array, draft_log: jax.Array, weights: jax.Array
) -> jax.Array:
  """Returns KL(target || draft) `[...]` in nats.

  Args:
    target_log: `[..., H]` log-probabilities of the target.
    draft_log: `[..., H]` log-probabilities of the drafter.
    weights: `[...]`, not used.
  """
  del weights
  target_log, draft_log = _finite(target_log), _finite(draft_log)
  return (jnp.exp(target_log) * (target_log - draft_log)).sum(-1)


def reverse_kl(
  target_log: jax.Array, draft_log: jax.Array, weights: jax.Array
) -> jax.Array:
  """Returns KL(draft || target) `[...]` in nats; for the arguments, see `kl`.

  It is large where the drafter predicts what the target does not (MiniLLM, Gu
  et al. 2024; DistillSpec, Zhou et al. 2024).
  """
  return kl(draft_log, target_log, weights)


def jsd(
  target_log: jax.Array, draft_log: jax.Array, weights: jax.Array
) -> jax.Array:
  """Returns Jensen-Shannon divergences `[...]` in nats, at most log 2.

  This is the mean of KL(target || average) and KL(draft || average), where
  `average` is that of both distributions (Lin 1991). For the arguments, see
  `kl`.
  """
  target_log, draft_log = _finite(target_log), _finite(draft_log)
  mean_log = jnp.logaddexp(target_log, draft_log) - math.log(2)
  to_mean = lambda log_probs: kl(log_probs, mean_log, weights)
  return (to_mean(target_log) + to_mean(draft_log)) / 2


def tv(
  target_log: jax.Array, draft_log: jax.Array, weights: jax.Array
) -> jax.Array:
  """Returns total variation distances `[...]`: `1 - sum_x min(target, draft)`.

  This is the rejection rate of one draft token at temperature 1 (Leviathan et
  al. 2023, Corollary 3.6). For the arguments, see `kl`.
  """
  del weights
  excess = jnp.exp(draft_log) - jnp.exp(target_log)
  return jnp.maximum(excess, 0).sum(-1)


def acceptance(
  target_log: jax.Array, draft_log: jax.Array, weights: jax.Array
) -> jax.Array:
  """Returns `-log sum_x min(target, draft)` `[...]`: the LK loss.

  Samarin et al. 2026 (arXiv:2602.23881). Its gradient is that of `tv`, divided
  by the acceptance rate, so that it does not vanish where hardly any token is
  accepted. The sum is computed from logarithms and never underflows. For the
  arguments, see `kl`.
  """
  del weights
  smaller = jnp.minimum(_finite(target_log), _finite(draft_log))
  return -jax.nn.logsumexp(smaller, axis=-1)


def hybrid(
  target_log: jax.Array, draft_log: jax.Array, weights: jax.Array
) -> jax.Array:
  """Returns `ratio * kl + (1 - ratio) * tv` `[...]`: the hybrid LK loss.

  Samarin et al. 2026 (arXiv:2602.23881): `ratio = exp(-3 * acceptance)` has no
  gradient, and the training moves from `kl` to `tv` as the acceptance rate
  grows. As in SpecForge (`core/lk_loss.py`), the acceptance rate is averaged
  over all positions of one depth of the draft; other implementations compute
  the ratio for each token.

  Args:
    target_log: See `kl`.
    draft_log: See `kl`.
    weights: `[...]` weights of the positions in the average.
  """
  distance = tv(target_log, draft_log, weights)
  rate = jax.lax.stop_gradient(mean(1 - distance, weights))
  ratio = jnp.exp(-_ETA * rate)
  return ratio * kl(target_log, draft_log, weights) + (1 - ratio) * distance


LOSSES: dict[str, PositionLoss] = {
  'acceptance': acceptance,
  'hybrid': hybrid,
  'jsd': jsd,
  'kl': kl,
  'reverse_kl': reverse_kl,
  'tv': tv,
}


def find(loss: str | PositionLoss) -> PositionLoss:
  """Returns a loss of `LOSSES` by its name; a function is returned as it is.

  Raises:
    ValueError: there is no loss of this name; the known ones are listed.
  """
  return loss if callable(loss) else registry.lookup(LOSSES, 'loss', loss)


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


def distillation(
  draft: Forced, target: Forced, loss: str | PositionLoss = 'kl'
) -> Loss:
  """Builds token-level distillation.

  Its metrics include the acceptance rate at temperature 1,
  `sum_x min(target, draft)`.

  Args:
    draft: the model that is trained.
    target: the teacher, whose parameters are `frozen`.
    loss: a name in `LOSSES`, or a function like them.

  Raises:
    ValueError: the loss is unknown.
  """
  position_loss = find(loss)

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> LossAndMetrics:
    del key
    target_logits = jax.lax.stop_gradient(target(frozen, batch))
    target_log = jax.nn.log_softmax(target_logits)
    return divergence(
      position_loss, target_log, draft(params, batch), batch.weights
    )

  return loss_fn


def taught(
  draft: Forced, head: Forced, loss: str | PositionLoss = 'kl'
) -> Loss:
  """Builds `distillation` from a teacher's stored features (`teacher.teach`).

  With a reduced vocabulary, the sums are over its tokens only, since the draft
  model cannot emit the others.

  Args:
    draft: `(params, fixed, batch) -> logits[B, T, H]` of the reduced
      vocabulary, with trained parameters and fixed ones.
    head: `(teacher_params, features[B, T, F]) -> logits[B, T, H]`, the
      teacher's output head for the same tokens.
    loss: See `distillation`.

  Returns:
    A loss for a `packing.TaughtBatch`; its `frozen` is a pair of the fixed
    parameters and the teacher's.

  Raises:
    ValueError: the loss is unknown.
  """
  position_loss = find(loss)

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> LossAndMetrics:
    del key
    fixed, teacher_params = frozen
    return divergence(
      position_loss,
      taught_log_probs(head, teacher_params, batch),
      draft(params, fixed, batch),
      batch.weights,
    )

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
  position_loss: PositionLoss,
  target_log: jax.Array,
  draft_logits: jax.Array,
  weights: jax.Array,
) -> LossAndMetrics:
  """Returns the mean loss of a drafter's predictions, and metrics.

  Args:
    position_loss: one of `LOSSES`.
    target_log: `[..., H]` log-probabilities.
    draft_logits: `[..., H]`.
    weights: `[...]` weights of the positions.

  Returns:
    The weighted mean, and metrics with the loss and the acceptance rate.
  """
  draft_log = jax.nn.log_softmax(draft_logits)
  loss = mean(position_loss(target_log, draft_log, weights), weights)
  overlap = jnp.exp(jnp.minimum(target_log, draft_log)).sum(-1)
  return loss, {'loss': loss, 'acceptance': mean(overlap, weights)}


def divergence_by_depth(
  position_loss: PositionLoss,
  depth_weights: Sequence[float],
  predictions: Iterable[tuple[jax.Array, jax.Array, jax.Array]],
) -> LossAndMetrics:
  """Returns the weighted sum of `divergence` over the depths of a draft.

  Args:
    position_loss: one of `LOSSES`.
    depth_weights: the weight of each depth, see `weights_by_depth`.
    predictions: the last three arguments of `divergence` for each depth.

  Returns:
    The sum, and metrics with it and the acceptance rate at each depth.
  """
  total, metrics = jnp.zeros((), jnp.float32), {}
  for depth, (weight, arrays) in enumerate(
    zip(depth_weights, predictions, strict=True), 1
  ):
    loss, depth_metrics = divergence(position_loss, *arrays)
    total += weight * loss
    metrics[f'acceptance_{depth}'] = depth_metrics['acceptance']
  return total, metrics | {'loss': total}


def weights_by_depth(
  decay: float | Sequence[float], depth: int
) -> tuple[float, ...]:
  """Returns the weights of the losses of a draft's tokens, by their depth.

  Args:
    decay: factor on the weight of each token after the first, which has weight
      1; or the weights of all tokens.
    depth: number of tokens.

  Raises:
    ValueError: a weight is negative, or their number is not `depth`.
  """
  checks.check_range('decay', decay, 0)
  if not isinstance(decay, Sequence):
    return tuple(decay**index for index in range(depth))
  if len(decay) != depth:
    raise ValueError(
      f'decay must be a number or have {depth} entries, one for each token of '
      f'the draft, got {tuple(decay)}.'
    )
  return tuple(decay)


def taught_log_probs(
  head: Forced, teacher_params: base.Params, batch: Any
) -> jax.Array:
  """Returns the teacher's log-probabilities `[B, T, H]` from stored features.

  Those of a reduced vocabulary are not renormalized.

  Args:
    head: See `taught`.
    teacher_params: the teacher's parameters.
    batch: a `packing.TaughtBatch`.
  """
  logits = head(teacher_params, batch.features.astype(jnp.float32))
  return logits - batch.normalizers[..., None]


def mean(values: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns the weighted mean; 0 if all weights are 0."""
  return (values * weights).sum() / jnp.maximum(weights.sum(), 1.0)


def _finite(log_probs: jax.Array) -> jax.Array:
  """Returns log-probabilities, those of excluded tokens as finite numbers."""
  return jnp.maximum(log_probs, _MIN_LOG)
