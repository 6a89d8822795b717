"""Heads that draft all levels at once, each from the same feature: Medusa.

Cai et al. (2024). Head `k` predicts the `k`-th draft token whatever the others
are, so that all nodes of a level have the same candidates below them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import committed
from specjax.drafters import siblings


@registry.component
def medusa(
  head: base.ParallelHead,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  bonus_probs: bool = False,
) -> base.Drafter:
  """Builds a drafter without a cache, which costs one call of the heads.

  A chain is drawn from their distributions. In other trees, the children of a
  node are the most likely tokens, in their order, and only `raw_probs` are
  there.

  Args:
    head: the heads, at least as many as the tree is deep.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; the same as the target's, usually.
    bonus_probs: a chain tells also the probabilities at the bonus position, for
      which one head more is needed.

  Raises:
    ValueError: the tree has no nodes, or is deeper than there are heads.
  """
  most = head.num_steps - bonus_probs
  if not 1 <= topology.depth <= most:
    raise ValueError(
      f'topology must have a depth from 1 to {most}, as there are '
      f'{head.num_steps} heads, got {topology.depth}.'
    )
  return base.Drafter(
    topology=topology,
    init=lambda params, context, max_length: (),
    draft=functools.partial(_draft, head, topology, sampling, bonus_probs),
    commit=lambda state, proposal, context, outcome, rows: state,
    estimate=functools.partial(
      _estimate,
      head,
      sampling,
      len(topology.levels[0]) if topology.width > 1 else 0,
    ),
    taps=head.taps,
    feature_size=head.feature_size,
    num_calls=1,
    vocab_size=head.vocab_size,
    distinct=topology.width > 1,
    greedy=not sampling.temperature or topology.width > 1,
  )


def _draft(head, topology, sampling, bonus_probs, keys, params, state, context):
  """The heads read the last feature, of the token before the last."""
  del state
  at = context.lengths[:, None] - 2
  features = _features(context, at)
  logits = head.predict(params, features)[:, 0]
  valid = jnp.broadcast_to(at >= 0, (len(at), topology.num_nodes))
  if topology.width > 1:
    rank = siblings.ranks(topology.parents)
    _, best = head.likeliest(params, features, int(rank.max()) + 1)
    level = topology.depths - 1
    raw = jax.nn.softmax(logits)[:, level]
    tree = base.DraftTree(
      best[:, 0][:, level, rank], topology, valid, probs=None, raw_probs=raw
    )
    return tree, ()
  num = sampling_lib.num_uniforms(logits.shape[-1])
  shape = topology.num_nodes, num
  uniforms = jax.vmap(lambda key: jax.random.uniform(key, shape, jnp.float32))(
    keys
  )
  every = sampling_lib.both_probs(logits, sampling)
  depth = topology.depth
  probs, bonus = (
    jax.tree.map(lambda each, part=part: each[:, part], every)
    for part in (slice(depth), slice(depth, depth + 1))
  )
  tokens = sampling_lib.tokens(
    uniforms, logits[:, :depth], probs.processed, sampling
  )
  tree = base.DraftTree(
    tokens,
    topology,
    valid,
    probs.processed,
    probs.raw,
    bonus if bonus_probs else None,
  )
  return tree, ()


def _features(context, at):
  """Features at `[B, T]`; zeros before 0."""
  exists = at[..., None] >= 0
  return tuple(
    jnp.where(exists, trees.at_entries(each, at), 0)
    for each in context.features
  )


def _estimate(head, sampling, num_chosen, params, state, context, rows, target):
  """Compares the first head with the target, at each committed position."""
  index = np.arange(target.probs.processed.shape[1])[None]
  at = target.start[:, None] - 2 + index
  logits = head.predict(params, _features(context, at))[:, :, 0]
  # Nothing is predicted of the token behind the first one.
  predicts = at[..., None] >= 0
  probs = jax.tree.map(
    lambda each: jnp.where(predicts, each, 0.0),
    committed.drafted(logits, sampling, num_chosen),
  )
  chances = committed.acceptance(
    probs, target.start - 1, target, committed.nothing(target)
  )
  return state, jnp.zeros_like(rows, jnp.int32), chances
