"""Trees whose shape follows the draft's confidence: EAGLE-2.

Li et al. (2024b): the likeliest nodes of a level are read, each has its
likeliest tokens below it, and of all of them those with the highest probability
of their whole path make the tree. Tokens are chosen, not drawn; a tree of drawn
ones would not be exact once it is ranked.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import committed
from specjax.drafters import pairs


@registry.component(example={'num_nodes': 4, 'depth': 2, 'beam': 2})
def dynamic_tree(
  head: base.FeatureHead,
  num_nodes: int = 59,
  depth: int = 6,
  *,
  beam: int = 10,
  chunk: int = committed.CHUNK,
) -> base.Drafter:
  """Builds a drafter of trees of their own for every row and round.

  Args:
    head: on the target's features.
    num_nodes: of each tree, root excluded; at most as many as are ranked, `beam
      + (depth - 1) * beam**2`.
    depth: levels that are ranked.
    beam: nodes of a level that are read, and tokens below each.
    chunk: pairs a call with which a head that was not played catches up.

  Returns:
    The drafter; its state is the head's cache.

  Raises:
    ValueError: a number is out of range.
  """
  checks.check_range('depth', depth, 1)
  checks.check_range('beam', beam, 1, head.vocab_size)
  num_ranked = beam + (depth - 1) * beam**2
  checks.check_range('num_nodes', num_nodes, 1, num_ranked)
  reading = pairs.reading(head, depth, chunk)
  bounds = trees.Bounds(num_nodes, depth, min(num_nodes, beam**2))
  return base.Drafter(
    topology=bounds,
    init=functools.partial(pairs.init, reading),
    draft=functools.partial(_draft, _Plan(reading, bounds, beam)),
    commit=functools.partial(pairs.commit, reading),
    catch_up=pairs.catch_up(reading),
    # As many tokens as its levels have nodes, about.
    estimate=functools.partial(
      pairs.estimate,
      reading,
      sampling_lib.Sampling(),
      max(1, round(num_nodes / depth)),
    ),
    slot=base.StateSlot(reading, 0),
    taps=head.taps,
    feature_size=head.feature_size,
    num_calls=depth,
    vocab_size=head.vocab_size,
    distinct=True,
    greedy=True,
    max_length=head.max_length,
  )


class _Plan(NamedTuple):
  """What is read, and what is ranked."""

  reading: pairs.Reading
  bounds: trees.Bounds
  beam: int


class _Ranked(NamedTuple):
  """Nodes of one level, of which the tree may take some."""

  tokens: jax.Array  # [B, C] int32
  scores: jax.Array  # [B, C] log-probability of the path
  parents: jax.Array  # [B, C] int32 among all that are ranked, -1 is the root


class _Beam(NamedTuple):
  """Nodes of a level that are read."""

  tokens: jax.Array  # [B, K] int32
  scores: jax.Array  # [B, K]
  places: jax.Array  # [B, K] int32 among all that are ranked
  inputs: jax.Array  # [B, K, F] output behind each one's parent
  mask: jax.Array  # [B, K, M + K] what they attend to of what is pending


def _draft(plan: _Plan, keys, params, cache, context):
  """Reads the tail, then beam after beam, and ranks what was seen."""
  del keys
  num = pairs.num_pairs(context)
  tail = pairs.read_tail(
    plan.reading, plan.bounds.depth, params, cache, context
  )
  ranked, read = [_first_level(plan, params, tail.behind)], [tail.behind]
  beam, pending = _first_beam(ranked[0], tail), tail.pending
  for level in range(1, plan.bounds.depth):
    positions = jnp.broadcast_to(num[:, None] + level - 1, beam.tokens.shape)
    outputs, pending = plan.reading.head.extend(
      params,
      cache,
      beam.tokens,
      beam.inputs,
      pending_kv=pending,
      positions=positions,
      mask=beam.mask,
    )
    ranked.append(_next_level(plan, params, beam, outputs))
    read.append(outputs)
    first = sum(each.tokens.shape[1] for each in ranked[:-1])
    if level + 1 < plan.bounds.depth:
      beam = _next_beam(plan, ranked[-1], first, beam, outputs)
  logits = plan.reading.head.predict(params, jnp.concatenate(read, axis=1))
  # Of nodes whose parents were read one after the other, `beam` below each.
  behind = np.arange(sum(each.tokens.shape[1] for each in ranked)) // plan.beam
  return _tree(plan.bounds, ranked, num > 0, logits, behind), tail.pending


def _first_level(plan: _Plan, params, behind):
  """The tokens below the root."""
  scores, tokens = plan.reading.head.likeliest(params, behind, plan.beam)
  return _Ranked(tokens[:, 0], scores[:, 0], jnp.full_like(tokens[:, 0], -1))


def _first_beam(level, tail):
  """All of the first level, which see the tail and themselves."""
  batch, width = level.tokens.shape
  itself = jnp.broadcast_to(jnp.eye(width, dtype=bool), (batch, width, width))
  seen = jnp.broadcast_to(
    tail.seen[:, None], (batch, width, tail.seen.shape[1])
  )
  return _Beam(
    level.tokens,
    level.scores,
    jnp.broadcast_to(jnp.arange(width, dtype=jnp.int32), (batch, width)),
    jnp.broadcast_to(tail.behind, (batch, width, tail.behind.shape[-1])),
    jnp.concatenate([seen, itself], axis=-1),
  )


def _next_level(plan: _Plan, params, beam, outputs):
  """The tokens below a beam."""
  scores, tokens = plan.reading.head.likeliest(params, outputs, plan.beam)
  flat = lambda each: each.reshape(len(each), -1)
  return _Ranked(
    flat(tokens),
    flat(beam.scores[..., None] + scores),
    jnp.repeat(beam.places, plan.beam, axis=1),
  )


def _next_beam(plan: _Plan, level, first, beam, outputs):
  """The nodes of a level with the likeliest paths; `first` is its first."""
  scores, chosen = jax.lax.top_k(level.scores, plan.beam)
  row = chosen // plan.beam  # of the beam above
  itself = jnp.broadcast_to(
    jnp.eye(plan.beam, dtype=bool), (len(row), plan.beam, plan.beam)
  )
  return _Beam(
    trees.at_entries(level.tokens, chosen),
    scores,
    (first + chosen).astype(jnp.int32),
    trees.at_entries(outputs, row),
    jnp.concatenate([trees.at_entries(beam.mask, row), itself], axis=-1),
  )


def _tree(bounds, ranked, valid, logits, behind):
  """The nodes whose paths are likeliest; of equal ones, the shallower.

  `logits` are of all that was read, and `behind` which of it each one that is
  ranked hangs below.
  """
  tokens, scores, parents = (
    jnp.concatenate(parts, axis=1) for parts in zip(*ranked)
  )
  num_ranked = tokens.shape[1]
  best, index = jax.lax.top_k(scores, bounds.num_nodes)
  # Tokens that cannot be drafted have no path; they come last.
  index = jnp.sort(jnp.where(best > -jnp.inf, index, num_ranked), axis=1)
  exists = index < num_ranked
  above = trees.at_entries(parents, index)
  place = jax.vmap(functools.partial(jnp.searchsorted, method='compare_all'))(
    index, above
  )
  topology = trees.dynamic(
    jnp.where(above < 0, -1, place).astype(jnp.int32), exists, bounds
  )
  row = jnp.asarray(behind)[jnp.minimum(index, num_ranked - 1)]
  return base.DraftTree(
    trees.at_entries(tokens, index),
    topology,
    exists & valid[:, None],
    probs=None,
    raw_probs=trees.at_entries(jax.nn.softmax(logits), row),
  )
