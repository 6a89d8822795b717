"""A small language model that drafts token by token, level by level.

The drafter's cache holds all committed tokens but the last one or two: after
full acceptance the last draft token was never read. The first step reads what
is missing.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib
from specjax import trees

# Committed tokens that the first step reads.
_TAIL = 2

# Tokens that a drafter reads at once when it catches up.
CHUNK = 16


@base.component(example={'leaf_laws': True})
def autoregressive(
  model: base.LanguageModel,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  leaf_laws: bool = False,
  stop: Callable[[jax.Array], jax.Array] | None = None,
  chunk: int = CHUNK,
) -> base.Drafter:
  """Builds a drafter that samples i.i.d. children at every node.

  Args:
    model: the small model.
    topology: the tree to draft; the empty one only with `leaf_laws`.
    sampling: how tokens are drawn; the same as the target's, usually.
    leaf_laws: report also what the model says after the leaves, for one more
      model call.
    stop: `(law[..., V]) -> [...]` where not to draft, by the law before
      temperature, top-k and top-p; what follows there is the target's to say,
      as in a sequential cascade. Once all rows have stopped, the model is not
      called again.
    chunk: tokens a call with which a drafter that was not played catches up.

  Returns:
    The drafter; its state is the model's cache.
  """
  if topology.num_nodes < 1 and not leaf_laws:
    raise ValueError('topology must have at least one node, got none.')
  if chunk < 1:
    raise ValueError(f'chunk must be >= 1, got {chunk}.')
  # Levels that the model reads; the leaves only if they are asked for.
  read_depth = topology.depth if leaf_laws else topology.depth - 1
  # Room for the widest write behind the longest row, with leaves or without.
  slack = max(chunk, _TAIL + topology.depth)

  plan = _Plan(model, topology, sampling, read_depth, stop)
  return base.Drafter(
    topology=topology,
    init=lambda *args: _init(model, slack, *args),
    draft=lambda *args: _draft(plan, leaf_laws, *args),
    commit=lambda *args: _commit(model, read_depth, *args),
    catch_up=lambda *args: _catch_up(model, sampling, chunk, *args),
    num_calls=1 + read_depth,
    memory=(model, chunk),
    vocab_size=model.vocab_size,
    partial=stop is not None,
  )


def _init(model, slack, params, tokens, lengths, max_length):
  """Reads the prompts, but for their tails."""
  cache = model.init_cache(params, tokens.shape[0], max_length + slack)
  return model.prefill(params, cache, tokens, jnp.maximum(lengths - _TAIL, 0))


class _Plan(NamedTuple):
  """What is drafted, and how."""

  model: base.LanguageModel
  topology: trees.Topology
  sampling: sampling_lib.Sampling
  read_depth: int
  stop: Callable[[jax.Array], jax.Array] | None


class _Level(NamedTuple):
  """What was drafted at one depth of the tree."""

  tokens: jax.Array  # [B, W] int32
  valid: jax.Array  # [B, W] bool
  laws: base.Laws  # [B, W, V] of each node
  behind: base.Laws | None  # [B, W, V] behind each; None if they were not read


def _draft(plan, leaf_laws, keys, params, cache, context):
  """Returns the tree, and the block of what was read."""
  model, topology = plan.model, plan.topology
  shape = topology.num_nodes, sampling_lib.num_uniforms(model.vocab_size)
  uniforms = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
  last = context.lengths[:, None] - 1
  lag = _lag(cache, context)

  def read(depth, token, block):
    """Reads the nodes of a level, which stand behind it in the block."""
    return model.extend(
      params,
      cache,
      token,
      block=block,
      positions=jnp.broadcast_to(last + depth + 1, token.shape),
      mask=_level_mask(topology, topology.levels[depth], lag),
    )

  logits, block = _read_tail(plan, params, cache, context)
  root = sampling_lib.laws(logits, plan.sampling)
  valid = jnp.ones(last.shape, bool)
  levels, block = _grow(plan, read, uniforms, 0, root, valid, block)
  return _tree(topology, root, levels, leaf_laws), block


def _grow(plan, read, uniforms, depth, behind, valid, block):
  """Returns the levels from a depth on, and the block behind them.

  Args:
    plan: of the whole tree.
    read: `(depth, token, block) -> Extension`.
    uniforms: `[B, N, U]`.
    depth: of the first level, from 0.
    behind: `[B, W, V]` what the model says behind the level above.
    valid: `[B, W]` of that level.
    block: what was read until there.
  """
  topology = plan.topology
  if depth == topology.depth:
    return [], block
  row = _row_of_parent(topology, depth)
  law = jax.tree.map(lambda each: each[:, row], behind)
  going = valid[:, row]

  def go():
    drawn = uniforms[:, topology.levels[depth]]
    token = sampling_lib.tokens(drawn, law.sampled, plan.sampling)
    said, grown = None, block
    if depth < plan.read_depth:
      extension = read(depth, token, block)
      said = sampling_lib.laws(extension.logits, plan.sampling)
      grown = extension.block
    levels, grown = _grow(plan, read, uniforms, depth + 1, said, going, grown)
    return [_Level(token, going, law, said), *levels], grown

  if plan.stop is None:
    return go()
  going &= ~plan.stop(law.untempered)
  # Once all rows have stopped, nothing is drawn or read any more.
  return jax.lax.cond(
    going.any(), go, lambda: _stopped(plan, read, depth, law, block)
  )


def _stopped(plan, read, depth, law, block):
  """What `_grow` returns where nothing is drafted, by the law at its depth."""
  levels, whole = [], block
  for at in range(depth, plan.topology.depth):
    shape = len(law.sampled), len(plan.topology.levels[at])
    token, nothing = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
    zeros = jnp.zeros((*shape, law.sampled.shape[-1]))
    junk, said = base.Laws(zeros, zeros), None
    if at < plan.read_depth:
      said = junk
      step = functools.partial(read, at)
      whole = jax.eval_shape(step, token, whole).block
    levels.append(_Level(token, nothing, law if at == depth else junk, said))
  return levels, jax.tree.map(base.pad_to, block, whole)


def _tree(topology, root, levels, leaf_laws):
  """Joins levels; behind the root, the model says `root`."""
  join = lambda parts: jax.tree.map(
    lambda *each: jnp.concatenate(each, axis=1), *parts
  )
  nothing = jax.tree.map(lambda law: law[:, :0], root)
  tokens = jnp.zeros((len(root.sampled), 0), jnp.int32)
  leaves = None
  if leaf_laws:
    said = join([root, *(level.behind for level in levels)])
    leaves = jax.tree.map(lambda law: law[:, topology.leaf_entries], said)
  return base.DraftTree(
    join([tokens, *(level.tokens for level in levels)]),
    topology,
    join([tokens.astype(bool), *(level.valid for level in levels)]),
    *join([nothing, *(level.laws for level in levels)]),
    leaf_laws=leaves,
  )


def _read_tail(plan, params, cache, context):
  """Reads the last committed tokens that the cache lacks, the last one first.

  The one before it is missing only behind a draft that was accepted in full.
  What a block has of it is junk elsewhere. A drafter that may stop often reads
  no other token, so that one less is worth a choice in the program.
  """
  positions = context.lengths[:, None] - 1 - np.arange(_TAIL)
  tail = jnp.take_along_axis(context.tokens, jnp.maximum(positions, 0), axis=1)
  positions = jnp.where(positions < cache.lengths[:, None], -1, positions)

  def read(num):
    extension = plan.model.extend(
      params,
      cache,
      tail[:, :num],
      positions=positions[:, :num],
      mask=np.triu(np.ones((num, num), bool)),
    )
    return extension.logits[:, :1], extension.block

  def read_one():
    logits, block = read(1)
    room = jax.eval_shape(lambda: read(_TAIL))[1]
    return logits, jax.tree.map(base.pad_to, block, room)

  if plan.stop is None:
    return read(_TAIL)
  return jax.lax.cond(
    (_lag(cache, context) > 1).any(), lambda: read(_TAIL), read_one
  )


def _lag(cache, context):
  """`[B]` committed tokens that the cache lacks."""
  return context.lengths - cache.lengths


def _row_of_parent(topology, depth):
  """Where in the level above each node of a level has its parent."""
  if depth == 0:
    return np.zeros(len(topology.levels[0]), np.int32)
  parents = np.array(topology.parents)[topology.levels[depth]]
  return parents - topology.levels[depth - 1][0]


def _level_mask(topology, level, lag):
  """`[B, W, M + W]` what the nodes of a level attend to, by `_lag`.

  The tail, as far as it was read, and their ancestors.
  """
  ancestors = topology.mask[level + 1, 1 : level[-1] + 2]
  tail = np.arange(_TAIL) < lag[:, None, None]
  each = [
    jnp.broadcast_to(mask, (len(lag), len(level), mask.shape[-1]))
    for mask in (tail, ancestors)
  ]
  return jnp.concatenate(each, axis=-1)


def _commit(model, read_depth, cache, block, context, outcome, keep):
  """Keeps the tail, in its order, and the accepted nodes that were read."""
  lag = _lag(cache, context)[:, None]
  index = np.arange(_TAIL + read_depth)
  nodes = jnp.pad(outcome.path, ((0, 0), (0, _TAIL)))
  node = jnp.take_along_axis(nodes, jnp.maximum(index - lag, 0), axis=1)
  path = jnp.where(index < lag, lag - 1 - index, node + _TAIL)
  num = lag[:, 0] + jnp.minimum(outcome.num_accepted, read_depth)
  return model.keep(cache, block, path, jnp.where(keep, num, 0))


def _catch_up(
  model, sampling, chunk, params, cache, context, wanted, committed=None
):
  """Reads what other drafters committed, in chunks.

  Up to the tail, which a draft reads anyway; or all but the last token, if the
  laws at what was committed are asked for.
  """
  start = cache.lengths
  end = context.lengths - (_TAIL if committed is None else 1)
  if committed is not None:
    chunk = min(chunk, committed.laws.sampled.shape[1] + 1)

  def behind(cache):
    return jnp.where(wanted, jnp.maximum(end - cache.lengths, 0), 0)

  def read(carry):
    cache, overlap = carry
    at = cache.lengths[:, None] + np.arange(chunk)
    tokens = jnp.take_along_axis(context.tokens, at, axis=1, mode='clip')
    extension = model.extend(params, cache, tokens)
    path = jnp.broadcast_to(np.arange(chunk), tokens.shape)
    num = jnp.minimum(behind(cache), _once_read(chunk, extension))
    if committed is not None:
      laws = sampling_lib.laws(extension.logits, sampling)
      overlap = _overlap(laws, cache.lengths, committed, overlap)
    return model.keep(cache, extension.block, path, num), overlap

  overlap = None
  if committed is not None:
    overlap = jax.tree.map(lambda law: jnp.zeros(law.shape[:2]), committed.laws)
  cache, overlap = jax.lax.while_loop(
    lambda carry: (behind(carry[0]) > 0).any(), read, (cache, overlap)
  )
  return base.CatchUp(cache, cache.lengths - start, overlap)


def _once_read(chunk, extension):
  """Returns `chunk`, which XLA can tell only when the model has read its cache.

  So the write to the cache comes behind, in place; see `kv_cache.keep`.
  """
  if extension.features is None:
    return chunk
  return jnp.where(jnp.isnan(extension.features).any(), chunk + 1, chunk)


def _overlap(laws, first, committed, overlap):
  """Fills in `1 - TV` at the committed positions that `laws` are of.

  `laws[:, i]` is what follows the token at position `first + i`.
  """
  num_read, num_committed = (
    each.sampled.shape[1] for each in (laws, committed.laws)
  )
  at = committed.start[:, None] - 1 + np.arange(num_committed) - first[:, None]
  here = (0 <= at) & (at < num_read)

  def fill(law, target, before):
    law = jnp.take_along_axis(law, at[..., None], axis=1, mode='clip')
    return jnp.where(here, jnp.minimum(law, target).sum(-1), before)

  return jax.tree.map(fill, laws, committed.laws, overlap)
