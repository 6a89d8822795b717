"""A small language model that drafts token by token, level by level.

The drafter's cache holds all committed tokens but the last one or two, which
its first step reads together: after full acceptance the last draft token was
never read, and needs no special case.
"""

from collections.abc import Callable
import functools

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


@base.component
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

  def draft(keys, params, cache, context):
    shape = topology.num_nodes, sampling_lib.num_uniforms(model.vocab_size)
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
    extension = _read_tail(model, params, cache, context)
    # Of the root, then of each level: its nodes stand behind it in the block.
    laws = [sampling_lib.laws(extension.logits[:, -1:], sampling)]
    of_nodes = [jax.tree.map(lambda law: law[:, :0], laws[0])]
    tokens = [jnp.zeros((len(context.lengths), 0), jnp.int32)]
    valid = [jnp.ones((len(context.lengths), 1), bool)]
    for depth, level in enumerate(topology.levels):
      row = _row_of_parent(topology, depth)
      law = jax.tree.map(lambda each, row=row: each[:, row], laws[-1])
      token = sampling_lib.tokens(uniforms[:, level], law.sampled, sampling)
      going = valid[-1][:, row]
      if stop is not None:
        going &= ~stop(law.untempered)
      of_nodes.append(law)
      tokens.append(token)
      valid.append(going)
      if depth < read_depth:
        last = context.lengths[:, None] - 1
        read = functools.partial(
          model.extend,
          params,
          cache,
          token,
          block=extension.block,
          positions=jnp.broadcast_to(last + depth + 1, token.shape),
          mask=_level_mask(topology, level),
        )
        if stop is None:
          extension = read()
        else:
          extension = _read_if(going.any(), read, extension.block)
        laws.append(sampling_lib.laws(extension.logits, sampling))
    join = lambda parts: jax.tree.map(
      lambda *each: jnp.concatenate(each, axis=1), *parts
    )
    leaves = lambda law: law[:, topology.leaf_entries]
    tree = base.DraftTree(
      join(tokens),
      topology,
      join(valid)[:, 1:],
      *join(of_nodes),
      leaf_laws=jax.tree.map(leaves, join(laws)) if leaf_laws else None,
    )
    return tree, extension.block

  return base.Drafter(
    topology=topology,
    init=lambda *args: _init(model, slack, *args),
    draft=draft,
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


def _read_tail(model, params, cache, context):
  """Reads the last two committed tokens, but none that the cache has."""
  positions = context.lengths[:, None] + np.arange(-_TAIL, 0)
  tail = jnp.take_along_axis(context.tokens, jnp.maximum(positions, 0), axis=1)
  cached = positions < cache.lengths[:, None]
  return model.extend(
    params, cache, tail, positions=jnp.where(cached, -1, positions)
  )


def _read_if(wanted, read, block):
  """Calls the model if that is wanted; else what it says is junk.

  What it has read before stays in the block.
  """
  shape = jax.eval_shape(read)

  def skip():
    junk = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    return junk._replace(block=jax.tree.map(base.pad_to, block, shape.block))

  return jax.lax.cond(wanted, read, skip)


def _row_of_parent(topology, depth):
  """Where in the level above each node of a level has its parent."""
  if depth == 0:
    return np.zeros(len(topology.levels[0]), np.int32)
  parents = np.array(topology.parents)[topology.levels[depth]]
  return parents - topology.levels[depth - 1][0]


def _level_mask(topology, level):
  """What the nodes of a level attend to: the tail and their ancestors."""
  ancestors = topology.mask[level + 1, 1 : level[-1] + 2]
  tail = np.ones((len(level), _TAIL), bool)
  return np.concatenate([tail, ancestors], axis=1)


def _commit(model, read_depth, cache, block, context, outcome, keep):
  """Keeps the tail and the accepted nodes that were read."""
  lag = (context.lengths - cache.lengths)[:, None]
  index = np.arange(_TAIL + read_depth)
  nodes = jnp.pad(outcome.path, ((0, 0), (0, _TAIL)))
  node = jnp.take_along_axis(nodes, jnp.maximum(index - lag, 0), axis=1)
  path = jnp.where(index < lag, index + _TAIL - lag, node + _TAIL)
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
