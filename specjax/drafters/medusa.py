"""Heads that draft all levels at once, each from the same hidden state: Medusa.

Cai et al. (2024). Head `k` predicts the `k`-th draft token whatever the other
heads predict, so that all nodes of a level have the same candidate children.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import acceptance_estimate
from specjax.drafters import siblings


@components.component
class Medusa(base.Drafter):
  """Drafts with one call of parallel heads, and without a cache.

  A chain is drawn from their distributions. In other trees, the children of a
  node are the most likely tokens, in their order, and the tree only has
  `raw_probs`.

  Attributes:
    head: the heads, at least as many as the tree is deep.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; usually the same as the target's.
    bonus_probs: whether a chain also has the probabilities at the bonus
      position, which takes one head more.

  Raises:
    ValueError: the tree has no nodes, or is deeper than there are heads.
  """

  head: base.ParallelHead
  topology: trees.Topology = components.static()
  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  _: dataclasses.KW_ONLY
  bonus_probs: bool = components.static(default=False)

  can_estimate = True
  num_calls = 1

  def __post_init__(self) -> None:
    check_depth(self.head, self.topology, self.bonus_probs)

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """The heads'."""
    return self.head.taps

  @functools.cached_property
  def feature_size(self) -> int:
    """The heads'."""
    return self.head.feature_size

  @functools.cached_property
  def vocab_size(self) -> int:
    """The heads'."""
    return self.head.vocab_size

  @functools.cached_property
  def siblings(self) -> base.Siblings:
    """Chosen, if there are any or noise is shared."""
    if self.topology.width > 1 or self.sampling.shared_noise:
      return base.Siblings.CHOSEN
    return base.Siblings.IID

  @functools.cached_property
  def greedy(self) -> bool:
    """True at temperature 0, and if tokens are chosen."""
    is_chosen = self.siblings is base.Siblings.CHOSEN
    return is_chosen or self.sampling.is_greedy

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.DraftState,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    """Reads the last hidden states, which are those before the last token."""
    del state
    at = context.lengths[:, None] - 2
    features = context.features_at(at)
    valid = jnp.broadcast_to(at >= 0, (len(at), self.topology.num_nodes))
    if self.siblings is base.Siblings.CHOSEN:
      tree = self._choose_tree(context.noise, params, features, valid)
    else:
      tree = self._draw_chain(keys, params, features, valid)
    return tree, ()

  def _choose_tree(
    self,
    noise: base.Noise | None,
    params: base.Params,
    features: tuple[jax.Array, ...],
    valid: jax.Array,
  ) -> base.DraftTree:
    """Returns a tree of the likeliest tokens, or those that noise selects."""
    logits = self.head.predict(params, features)[:, 0]
    rank = siblings.ranks(self.topology.parents)
    num_best = min(int(rank.max()) + 1, logits.shape[-1])
    if self.sampling.shared_noise:
      probs = sampling_lib.probabilities(logits, self.sampling)
      levels = np.arange(probs.shape[1])
      scores = siblings.shared_scores(noise, levels, probs)
      best, tokens = jax.lax.top_k(scores, num_best)
    else:
      best, tokens = self.head.likeliest(params, features, num_best)
      best, tokens = best[:, 0], tokens[:, 0]
    level, column = self.topology.depths - 1, np.minimum(rank, num_best - 1)
    exists = (best[:, level, column] > -jnp.inf) & (rank < num_best)[None]
    # A node is valid only if all nodes above it are.
    exists = trees.hold_along_paths(exists, self.topology.mask[1:, 1:])
    return base.DraftTree(
      tokens[:, level, column],
      self.topology,
      valid & exists,
      probs=None,
      raw_probs=jax.nn.softmax(logits)[:, level],
    )

  def _draw_chain(
    self,
    keys: jax.Array,
    params: base.Params,
    features: tuple[jax.Array, ...],
    valid: jax.Array,
  ) -> base.DraftTree:
    """Returns a chain, each token of which is drawn from its head."""
    depth, sampling = self.topology.depth, self.sampling
    logits = self.head.predict(params, features)[:, 0]
    shape = self.topology.num_nodes, sampling_lib.num_uniforms(logits.shape[-1])
    draw = lambda key: jax.random.uniform(key, shape, jnp.float32)
    uniforms = jax.vmap(draw)(keys)
    predicted = sampling_lib.both_probs(logits, sampling)
    probs, bonus_probs = (
      jax.tree.map(lambda leaf, part=part: leaf[:, part], predicted)
      for part in (slice(depth), slice(depth, depth + 1))
    )
    tokens = sampling_lib.tokens(
      uniforms, logits[:, :depth], probs.processed, sampling
    )
    return base.DraftTree(
      tokens,
      self.topology,
      valid,
      probs.processed,
      probs.raw,
      bonus_probs if self.bonus_probs else None,
    )

  def estimate(
    self,
    params: base.Params,
    state: base.DraftState,
    context: base.Context,
    rows: jax.Array,
    target: base.TargetProbs,
  ) -> tuple[base.DraftState, jax.Array, base.Probs]:
    """Compares the first head with the target at each committed position."""
    index = np.arange(target.probs.processed.shape[1])[None]
    at = target.start[:, None] - 2 + index
    logits = self.head.predict(params, context.features_at(at))[:, :, 0]
    is_chosen = self.siblings is base.Siblings.CHOSEN
    num_chosen = len(self.topology.levels[0]) if is_chosen else 0
    draft_probs = acceptance_estimate.draft_probs(
      logits, self.sampling, num_chosen
    )
    # The token after the first one is not predicted.
    is_predicted = at[..., None] >= 0
    probs = jax.tree.map(
      lambda leaf: jnp.where(is_predicted, leaf, 0.0), draft_probs
    )
    zeros = acceptance_estimate.zeros(target)
    acceptance = acceptance_estimate.fill_in(
      zeros, probs, target.start - 1, target
    )
    return state, jnp.zeros_like(rows, jnp.int32), acceptance


def check_depth(
  head: base.ParallelHead, topology: trees.Topology, bonus_probs: bool
) -> None:
  """Raises a `ValueError` if a tree has no nodes, or more levels than heads.

  Args:
    head: the heads.
    topology: of the tree.
    bonus_probs: whether a head more is needed.
  """
  deepest = head.num_steps - bonus_probs
  if not 1 <= topology.depth <= deepest:
    raise ValueError(
      f'topology must have a depth from 1 to {deepest}, as there are '
      f'{head.num_steps} heads, got {topology.depth}.'
    )
