"""The loss of models that draft all tokens in one call: PARD.

"PARD: Accelerating LLM Inference with Low-Cost Parallel Draft Model Adaptation"
(arXiv:2504.18583). A token of the text, the anchor, is followed by mask tokens
as in the decode loop (`drafters.parallel`). The anchor predicts the first draft
token, and its `k`-th mask token draft token `k + 1`. The anchors of a row share
its text, so that one call reads the text and the mask tokens of all anchors:

    index      0 1 2 3 4    anchor 1's masks    anchor 3's masks
    token      a b c d e        m  m                m  m
    position   0 1 2 3 4        2  3                4  5
    attends    causally         a b, m              a b c d, m

Conditional drop of tokens (section 3.3): later draft tokens are trained from
fewer anchors, since most of the cost is theirs. An anchor that is kept for a
draft token is kept for all earlier ones, whose mask tokens it attends to.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import trees
from specjax.training import anchors as anchors_lib
from specjax.training import losses

# `(params, features) -> logits[..., H]` of the tokens that can be drafted.
Logits = Callable[..., jax.Array]


def parallel(
  model: base.LanguageModel,
  drafted: Logits,
  teacher: Logits,
  *,
  mask_token: int,
  depth: int,
  keep: float = 0.7,
  min_keep: float = 0.2,
  decay: float | tuple[float, ...] = 1.0,
  loss: str | losses.PositionLoss = 'kl',
) -> losses.Loss:
  """Builds the loss of PARD, on a teacher's stored features (`teacher.teach`).

  With a reduced vocabulary, sums are over its tokens only, as in
  `losses.taught`.

  Args:
    model: the model, decoder-only.
    drafted: `(params, features) -> logits` of the model.
    teacher: `(params, features) -> logits` of the teacher, for the same tokens.
    mask_token: the token that is read in place of the tokens to predict.
    depth: number of draft tokens, one more than mask tokens.
    keep: ratio of the numbers of anchors of consecutive draft tokens.
    min_keep: lower limit of the fraction of anchors.
    decay: factor on the weight of each draft token after the first, or the
      weights of all draft tokens.
    loss: See `losses.distillation`.

  Returns:
    A loss for a `packing.TaughtBatch`; its `frozen` is a pair of the model's
    parameters that are not trained, and the teacher's. Metrics include an
    acceptance rate for each draft token.

  Raises:
    ValueError: the loss is unknown, the mask token is not in the vocabulary,
      there are no mask tokens, a fraction is not in [0, 1], or there is not one
      weight for each draft token.
  """
  checks.check_integers('mask_token', mask_token, 0, model.vocab_size - 1)
  checks.check_integers('depth', depth, 2)
  checks.check_range('keep', keep, 0, 1)
  checks.check_range('min_keep', min_keep, 0, 1)
  position_loss = losses.find(loss)
  depth_weights = losses.weights_by_depth(decay, depth)

  def loss_fn(
    params: base.Params, frozen: base.Params, batch: Any, key: jax.Array
  ) -> losses.LossAndMetrics:
    fixed, teacher_params = frozen
    params = {**params, **fixed}
    counts = num_anchors(batch.tokens.shape[1], depth, keep, min_keep)
    anchors = anchors_lib.choose(key, batch, counts[0])
    features = read(model, params, batch, anchors, counts, mask_token)
    target_log = losses.taught_log_probs(teacher, teacher_params, batch)
    predictions = [(target_log, drafted(params, features[0]), batch.weights)]
    for num_masks, (count, outputs) in enumerate(zip(counts, features[1:]), 1):
      kept = anchors[:, :count]
      indices = kept + num_masks
      weights = anchors_lib.weights_at(batch, kept, indices[..., None])[..., 0]
      predictions.append(
        (
          trees.at_entries(target_log, indices),
          drafted(params, outputs),
          weights,
        )
      )
    return losses.divergence_by_depth(position_loss, depth_weights, predictions)

  return loss_fn


def num_anchors(
  row_length: int, depth: int, keep: float, min_keep: float
) -> tuple[int, ...]:
  """Returns how many anchors a row has for each draft token after the first.

  The first draft token is trained at all tokens, and draft token `k` at a
  fraction `max(keep**(k - 1), min_keep)` of them, at least at one.

  Args:
    row_length: number of tokens in a row.
    depth: See `parallel`.
    keep: See `parallel`.
    min_keep: See `parallel`.
  """
  fractions = (max(keep**step, min_keep) for step in range(1, depth))
  return tuple(max(round(row_length * fraction), 1) for fraction in fractions)


def read(
  model: base.LanguageModel,
  params: base.Params,
  batch: Any,
  anchors: jax.Array,
  counts: Sequence[int],
  mask_token: int,
) -> list[jax.Array]:
  """Reads the text and the mask tokens of all anchors in one call.

  Args:
    model: the model.
    params: its parameters.
    batch: a `packing.Batch` or a `packing.TaughtBatch`, with rows of `T`
      tokens.
    anchors: `[B, N]` indices of the tokens after which mask tokens are read.
    counts: for each mask token, how many of the anchors have it; not more than
      have the one before.
    mask_token: See `parallel`.

  Returns:
    The inputs of the model's output head for each draft token: `[B, T, F]` for
    the first, and `[B, counts[k], F]` for those of the mask tokens.
  """
  num_rows, length = batch.tokens.shape
  # The anchor and the number of each mask token, `[M]`.
  slots = np.concatenate([np.arange(count) for count in counts])
  numbers = np.repeat(np.arange(1, len(counts) + 1), counts)
  masked_anchors = anchors[:, slots]
  starts = trees.at_entries(batch.positions, masked_anchors)
  mask_positions = jnp.where(starts >= 0, starts + numbers[None], -1)
  anchor_segments = trees.at_entries(batch.segments, masked_anchors)
  index = np.arange(length)[None, None]
  # All of the text that ends with the query, or with its anchor.
  ends = jnp.concatenate(
    [
      jnp.broadcast_to(np.arange(length)[None], batch.tokens.shape),
      masked_anchors,
    ],
    axis=1,
  )
  segments = jnp.concatenate([batch.segments, anchor_segments], axis=1)
  to_text = index <= ends[..., None]
  to_text &= segments[..., None] == batch.segments[:, None]
  same_anchor = slots[:, None] == slots[None]
  to_masks = np.pad(
    same_anchor & (numbers[:, None] >= numbers[None]), ((length, 0), (0, 0))
  )
  output = model.extend(
    params,
    None,
    jnp.pad(
      batch.tokens, ((0, 0), (0, len(slots))), constant_values=mask_token
    ),
    positions=jnp.concatenate([batch.positions, mask_positions], axis=1),
    mask=jnp.concatenate(
      [to_text, jnp.broadcast_to(to_masks[None], (num_rows, *to_masks.shape))],
      axis=-1,
    ),
  )
  return jnp.split(
    output.features[-1], np.cumsum([length, *counts])[:-1], axis=1
  )
