"""Trees whose shape follows the draft's confidence: EAGLE-2.

Li et al. (2024b): the likeliest nodes of a level are expanded, each by its
likeliest tokens, and out of all of them those whose whole path has the highest
probability make up the tree. Tokens are chosen rather than sampled: a tree of
sampled tokens would not be exact once it is ranked.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import head_reader
from specjax.drafters import lag


@components.component
class DynamicTree(lag.LaggingDrafter):
  """Drafts trees whose shapes differ in every row and round.

  The state is the head's cache.

  Attributes:
    head: the head on the target's hidden states.
    num_nodes: number of nodes of each tree, root excluded; at most as many as
      are ranked, `beam + (depth - 1) * beam**2`.
    depth: number of levels that are ranked.
    beam: number of nodes that are expanded per level, and of tokens for each.

  Raises:
    ValueError: a number is out of range.
  """

  head: base.FeatureHead
  num_nodes: int = components.static(default=59)
  depth: int = components.static(default=6)
  _: dataclasses.KW_ONLY
  beam: int = components.static(default=10)

  sampling = sampling_lib.Sampling()
  siblings = base.Siblings.CHOSEN
  greedy = True

  def __post_init__(self) -> None:
    checks.check_integers('depth', self.depth, 1)
    checks.check_integers('beam', self.beam, 1, self.head.vocab_size)
    num_ranked = self.beam + (self.depth - 1) * self.beam**2
    checks.check_integers('num_nodes', self.num_nodes, 1, num_ranked)

  @functools.cached_property
  def reader(self) -> head_reader.HeadReader:
    """Reads pairs with the head."""
    return head_reader.make_reader(self.head, self.depth)

  @functools.cached_property
  def topology(self) -> trees.Bounds:
    """Bounds of the trees."""
    widest = min(self.num_nodes, self.beam**2)
    return trees.Bounds(self.num_nodes, self.depth, widest)

  @functools.cached_property
  def num_chosen(self) -> int:
    """About as many tokens as a level has nodes."""
    return max(1, round(self.num_nodes / self.depth))

  @functools.cached_property
  def num_calls(self) -> int:
    """One call per level."""
    return self.depth

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.Cache,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.PendingKV]:
    """Reads the tail, then beam after beam, and ranks all candidates."""
    del keys
    tail = self.reader.read_tail(
      params, state, context, self.depth, self.may_stop_early
    )
    num_entries, pending = self.reader.num_entries(context), tail.pending
    levels, outputs = [self._first_level(params, tail)], [tail.outputs]
    beam = _first_beam(levels[0], tail)
    for depth in range(1, self.depth):
      shape = beam.tokens.shape
      beam_outputs, pending = self.head.extend(
        params,
        state,
        beam.tokens,
        beam.inputs,
        pending_kv=pending,
        positions=jnp.broadcast_to(num_entries[:, None] + depth - 1, shape),
        mask=beam.mask,
      )
      num_above = sum(level.tokens.shape[1] for level in levels)
      levels.append(self._next_level(params, beam, beam_outputs))
      outputs.append(beam_outputs)
      if depth + 1 < self.depth:
        beam = self._next_beam(levels[-1], num_above, beam, beam_outputs)
    logits = self.head.predict(params, jnp.concatenate(outputs, axis=1))
    tree = self._rank(levels, num_entries > 0, jax.nn.softmax(logits))
    return tree, tail.pending

  def _first_level(self, params: base.Params, tail: lag.Tail) -> '_Level':
    """Returns the likeliest tokens after the root."""
    scores, tokens = self.head.likeliest(params, tail.outputs, self.beam)
    parents = jnp.full_like(tokens[:, 0], -1)
    return _Level(tokens[:, 0], scores[:, 0], parents)

  def _next_level(
    self, params: base.Params, beam: '_Beam', outputs: jax.Array
  ) -> '_Level':
    """Returns the likeliest tokens after each node of a beam."""
    scores, tokens = self.head.likeliest(params, outputs, self.beam)
    flatten = lambda values: values.reshape(len(values), -1)
    return _Level(
      flatten(tokens),
      flatten(beam.scores[..., None] + scores),
      jnp.repeat(beam.candidates, self.beam, axis=1),
    )

  def _next_beam(
    self, level: '_Level', num_above: int, beam: '_Beam', outputs: jax.Array
  ) -> '_Beam':
    """Returns the nodes of a level whose paths are likeliest.

    Args:
      level: of which they are chosen.
      num_above: number of candidates of the levels above.
      beam: their parents.
      outputs: `[B, K, F]` after the parents.
    """
    scores, chosen = jax.lax.top_k(level.scores, self.beam)
    parents = chosen // self.beam  # within the beam
    itself = jnp.broadcast_to(
      jnp.eye(self.beam, dtype=bool), (len(parents), self.beam, self.beam)
    )
    return _Beam(
      trees.at_entries(level.tokens, chosen),
      scores,
      (num_above + chosen).astype(jnp.int32),
      trees.at_entries(outputs, parents),
      jnp.concatenate([trees.at_entries(beam.mask, parents), itself], axis=-1),
    )

  def _rank(
    self, levels: list['_Level'], valid: jax.Array, raw_probs: jax.Array
  ) -> base.DraftTree:
    """Returns the tree of the nodes whose paths are likeliest.

    Candidates are numbered level by level, the children of a node one after
    the other. No node has a likelier path than its parent, and `top_k` prefers
    the first of equals, so that the parent of each chosen node is chosen.

    Args:
      levels: the candidates.
      valid: `[B]` rows that draft.
      raw_probs: `[B, R, V]` after the root and all nodes that were expanded.
    """
    tokens, scores, parents = (
      jnp.concatenate(parts, axis=1) for parts in zip(*levels)
    )
    num_ranked = tokens.shape[1]
    best, index = jax.lax.top_k(scores, self.num_nodes)
    # Tokens that cannot be drafted have no path; they come last.
    index = jnp.sort(jnp.where(best > -jnp.inf, index, num_ranked), axis=1)
    exists = index < num_ranked
    parents = trees.at_entries(parents, index)
    # From indices of candidates to indices of nodes of the tree.
    search = functools.partial(jnp.searchsorted, method='compare_all')
    nodes = jax.vmap(search)(index, parents)
    topology = trees.dynamic(
      jnp.where(parents < 0, -1, nodes).astype(jnp.int32), exists, self.topology
    )
    # Each node that was expanded has `beam` candidates below it.
    expanded = jnp.minimum(index, num_ranked - 1) // self.beam
    return base.DraftTree(
      trees.at_entries(tokens, index),
      topology,
      exists & valid[:, None],
      probs=None,
      raw_probs=trees.at_entries(raw_probs, expanded),
    )


class _Level(NamedTuple):
  """Candidates of one level, some of which become nodes of the tree."""

  tokens: jax.Array  # [B, C] int32
  scores: jax.Array  # [B, C] log-probability of the path
  parents: jax.Array  # [B, C] int32 among all candidates; -1 is the root


class _Beam(NamedTuple):
  """Nodes of a level that are expanded."""

  tokens: jax.Array  # [B, K] int32
  scores: jax.Array  # [B, K]
  candidates: jax.Array  # [B, K] int32 their indices
  inputs: jax.Array  # [B, K, F] output from which each was predicted
  mask: jax.Array  # [B, K, M + K] which uncommitted entries they attend to


def _first_beam(level: _Level, tail: lag.Tail) -> _Beam:
  """Returns all of the first level, which attends to the tail and to itself."""
  batch, width = level.tokens.shape
  itself = jnp.broadcast_to(jnp.eye(width, dtype=bool), (batch, width, width))
  exists = jnp.broadcast_to(
    tail.exists[:, None], (batch, width, tail.exists.shape[1])
  )
  return _Beam(
    level.tokens,
    level.scores,
    jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (batch, width)),
    jnp.broadcast_to(tail.outputs, (batch, width, tail.outputs.shape[-1])),
    jnp.concatenate([exists, itself], axis=-1),
  )
