"""Training losses: `(params, frozen, batch, key) -> (loss, metrics)`.

`frozen` are parameters that are not trained (a distillation target), passed as
an argument so that they are never baked into the compiled step. `key` is of a
loss's randomness, another one in every step. A model is what
`adapters.teacher_forced` makes of it: `(params, batch) -> logits[B, T, V]`.
"""

from collections.abc import Callable
from collections.abc import Mapping

import jax
import jax.numpy as jnp

Forced = Callable[..., jax.Array]
Loss = Callable[..., tuple[jax.Array, dict[str, jax.Array]]]


def token_losses(logits: jax.Array, tokens: jax.Array) -> jax.Array:
  """Returns `[B, T]` nats of predicting each next token; the last is 0."""
  scores = jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], axis=-1)
  losses = jax.nn.logsumexp(logits[:, :-1], axis=-1) - scores[..., 0]
  return jnp.pad(losses, ((0, 0), (0, 1)))


def cross_entropy(forced: Forced) -> Loss:
  """Builds the loss of ordinary language modelling, in nats per token."""

  def loss_fn(params, frozen, batch, key):
    del frozen, key
    losses = token_losses(forced(params, batch), batch.tokens)
    loss = mean(losses, batch.weights)
    return loss, {'loss': loss}

  return loss_fn


def distillation(draft: Forced, target: Forced) -> Loss:
  """Builds token-level distillation: KL(target || draft), in nats per token.

  Its metrics include the acceptance rate that the draft would have at
  temperature 1, `sum_x min(target, draft)`.
  """

  def loss_fn(params, frozen, batch, key):
    del key
    target_logits = jax.lax.stop_gradient(target(frozen, batch))
    target_log = jax.nn.log_softmax(target_logits)
    return divergence(target_log, draft(params, batch), batch.weights)

  return loss_fn


def taught(draft: Forced, head: Forced) -> Loss:
  """Builds `distillation` of a teacher that has read the rows before.

  Of the divergence, it takes what the tokens of a reduced draft vocabulary
  contribute; what the teacher gives to all others no draft can reach.

  Args:
    draft: `(params, fixed, batch) -> logits[B, T, H]` of the draft vocabulary,
      with parameters that are trained and others that are not.
    head: `(teacher, features[B, T, F]) -> logits[B, T, H]`, the teacher's for
      the same tokens.

  Returns:
    A loss for a `packing.TaughtBatch`; its `frozen` are `(fixed, teacher)`.
  """

  def loss_fn(params, frozen, batch, key):
    del key
    fixed, teacher = frozen
    target_logits = head(teacher, batch.features.astype(jnp.float32))
    target_log = target_logits - batch.normalizers[..., None]
    draft_logits = draft(params, fixed, batch)
    return divergence(target_log, draft_logits, batch.weights)

  return loss_fn


def together(loss_fns: Mapping[str, Loss]) -> Loss:
  """Joins losses of several models into one, to train them side by side.

  Args:
    loss_fns: name to a loss.

  Returns:
    A loss of `{name: params}`, the sum; metrics are named `name/metric`. What
    the losses share, a distillation target's forward pass above all, is
    compiled once.
  """

  def loss_fn(params, frozen, batch, key):
    total = jnp.zeros((), jnp.float32)
    metrics: dict[str, jax.Array] = {}
    for name, each in loss_fns.items():
      loss, own = each(params[name], frozen, batch, key)
      total += loss
      metrics |= {f'{name}/{key}': value for key, value in own.items()}
    return total, metrics | {'loss': total}

  return loss_fn


def divergence(
  target_log: jax.Array, draft_logits: jax.Array, weights: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """Returns KL(target || draft) in nats a token, with the acceptance rate.

  Args:
    target_log: `[..., H]` logarithms of probabilities.
    draft_logits: `[..., H]`.
    weights: `[...]`.
  """
  draft_log = jax.nn.log_softmax(draft_logits)
  target_probs = jnp.exp(target_log)
  divergence = (target_probs * (target_log - draft_log)).sum(-1)
  overlap = jnp.minimum(target_probs, jnp.exp(draft_log)).sum(-1)
  loss = mean(divergence, weights)
  return loss, {'loss': loss, 'acceptance': mean(overlap, weights)}


def mean(values: jax.Array, weights: jax.Array) -> jax.Array:
  """Returns the weighted mean, 0 where all weights are."""
  return (values * weights).sum() / jnp.maximum(weights.sum(), 1.0)
