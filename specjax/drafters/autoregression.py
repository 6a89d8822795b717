"""A small language model that drafts token by token, level by level.

The drafter's cache holds all committed tokens but the last one or two: after
full acceptance the last draft token was never read. The first step reads what
is missing.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import padding
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees

# Committed tokens that the first step reads at most.
_TAIL = 2

# Tokens that a drafter reads at once when it catches up.
CHUNK = 16


@registry.component(example={'bonus_probs': True})
def autoregressive(
  model: base.LanguageModel,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  bonus_probs: bool = False,
  stop: base.Stop | None = None,
  chunk: int = CHUNK,
) -> base.Drafter:
  """Builds a drafter that samples i.i.d. children at every node.

  Args:
    model: the small model.
    topology: the tree to draft; the empty one only with `bonus_probs`.
    sampling: how tokens are drawn; the same as the target's, usually.
    bonus_probs: compute also the probabilities at the bonus positions, for one
      more model call.
    stop: where not to draft on, one of `STOPS`; what follows there is the
      target's to pick, as in a sequential cascade. Once all rows have stopped,
      the model is not called again.
    chunk: tokens a call with which a drafter that was not played catches up.

  Returns:
    The drafter; its state is the model's cache.
  """
  if topology.num_nodes < 1 and not bonus_probs:
    raise ValueError('topology must have at least one node, got none.')
  if chunk < 1:
    raise ValueError(f'chunk must be >= 1, got {chunk}.')
  # Levels that the model reads; the leaves only if they are asked for.
  read_depth = topology.depth if bonus_probs else topology.depth - 1
  plan = _Plan(model, topology, sampling, read_depth, bonus_probs, stop, chunk)
  return base.Drafter(
    topology=topology,
    init=functools.partial(_init, plan),
    draft=functools.partial(_draft, plan),
    commit=functools.partial(_commit, plan),
    catch_up=base.CatchUp(functools.partial(_catch_up, plan)),
    estimate=functools.partial(_estimate, plan),
    slot=base.StateSlot((model, chunk), read_depth),
    num_calls=1 + read_depth,
    vocab_size=model.vocab_size,
    partial=stop is not None,
  )


class _Plan(NamedTuple):
  """What is drafted, and how."""

  model: base.LanguageModel
  topology: trees.Topology
  sampling: sampling_lib.Sampling
  read_depth: int
  bonus_probs: bool
  stop: base.Stop | None
  chunk: int


class _Inputs(NamedTuple):
  """What all levels of a draft are computed from."""

  params: base.Params
  cache: base.Cache
  last: jax.Array  # [B, 1] position of the last committed token
  lag: jax.Array  # [B] committed tokens that the cache lacks
  uniforms: jax.Array  # [B, N, U]


class _Prediction(NamedTuple):
  """What the model says of the token behind a node."""

  logits: jax.Array  # [B, W, V]
  probs: base.Probs  # [B, W, V]


class _Level(NamedTuple):
  """What was drafted at one depth of the tree."""

  tokens: jax.Array  # [B, W] int32
  valid: jax.Array  # [B, W] bool
  at: _Prediction  # from which each node was drawn
  behind: _Prediction | None  # behind each; None if they are not read


def _init(plan: _Plan, params, context, max_length):
  """Reads the prompts, but for their tails."""
  # Room for the widest write behind the longest row, with leaves or without.
  size = max_length + max(plan.chunk, _TAIL + plan.topology.depth)
  cache = plan.model.init_cache(params, context.tokens.shape[0], size)
  lengths = jnp.maximum(context.lengths - _TAIL, 0)
  return plan.model.prefill(params, cache, context.tokens, lengths)[0]


# Draft.


def _draft(plan: _Plan, keys, params, cache, context):
  """Returns the tree, and the pending entries of what was read."""
  num_uniforms = sampling_lib.num_uniforms(plan.model.vocab_size)
  shape = plan.topology.num_nodes, num_uniforms
  inputs = _Inputs(
    params=params,
    cache=cache,
    last=context.lengths[:, None] - 1,
    lag=_lag(cache, context),
    uniforms=jax.vmap(lambda key: jax.random.uniform(key, shape))(keys),
  )
  logits, pending = _read_tail(plan, inputs, context)
  root = _predict(plan, logits)
  valid = jnp.ones(inputs.last.shape, bool)
  levels, pending = _grow(plan, inputs, 0, root, valid, pending)
  return _tree(plan, root, levels), pending


def _read_tail(plan: _Plan, inputs, context):
  """Reads the last committed tokens that the cache lacks, the last one first.

  The one before it is missing only behind a draft that was accepted in full.
  What is pending of it is junk elsewhere. A drafter that may stop often reads
  no other token, so that one less is worth a choice in the program.

  Returns:
    `[B, 1, V]` logits behind the last token, and what is pending.
  """
  positions = inputs.last - np.arange(_TAIL)[None]
  tail = jnp.take_along_axis(context.tokens, jnp.maximum(positions, 0), axis=1)
  missing = positions >= inputs.cache.lengths[:, None]
  positions = jnp.where(missing, positions, -1)
  read = functools.partial(_read_first, plan, inputs, tail, positions)
  if plan.stop is None:
    return read(_TAIL)
  room = jax.eval_shape(functools.partial(read, _TAIL))
  return jax.lax.cond(
    (inputs.lag > 1).any(),
    functools.partial(read, _TAIL),
    lambda: padding.pad_to(read(1), room),
  )


def _read_first(plan: _Plan, inputs, tokens, positions, num):
  """Reads the first tokens, each of which stands behind those after it."""
  extension = plan.model.extend(
    inputs.params,
    inputs.cache,
    tokens[:, :num],
    positions=positions[:, :num],
    mask=np.triu(np.ones((num, num), bool)),
  )
  return extension.logits[:, :1], extension.pending


def _predict(plan: _Plan, logits):
  return _Prediction(logits, sampling_lib.both_probs(logits, plan.sampling))


def _grow(plan: _Plan, inputs, depth, behind, valid, pending):
  """Drafts the levels from a depth on.

  Args:
    plan: of the whole tree.
    inputs: of all levels.
    depth: of the first level, from 0.
    behind: prediction behind the level above.
    valid: `[B, W]` of that level.
    pending: of what was read until there.

  Returns:
    The levels, and what is pending behind them.
  """
  if depth == plan.topology.depth:
    return [], pending
  row = _row_of_parent(plan.topology, depth)
  at = jax.tree.map(lambda each: each[:, row], behind)
  going = valid[:, row]
  if plan.stop is not None:
    going &= ~plan.stop(at.probs.raw)
  go = functools.partial(_grow_level, plan, inputs, depth, at, going, pending)
  if plan.stop is None:
    return go()
  # Once all rows have stopped, nothing is drawn or read any more.
  stop = functools.partial(_stopped, plan, inputs, depth, at, pending)
  return jax.lax.cond(going.any(), go, stop)


def _grow_level(plan: _Plan, inputs, depth, at, going, pending):
  """Draws and reads one level, and drafts what hangs below it."""
  drawn = inputs.uniforms[:, plan.topology.levels[depth]]
  tokens = sampling_lib.tokens(
    drawn, at.logits, at.probs.processed, plan.sampling
  )
  behind = None
  if depth < plan.read_depth:
    extension = _read_level(plan, inputs, depth, tokens, pending)
    behind = _predict(plan, extension.logits)
    pending = extension.pending
  levels, pending = _grow(plan, inputs, depth + 1, behind, going, pending)
  return [_Level(tokens, going, at, behind), *levels], pending


def _stopped(plan: _Plan, inputs, first, at, pending):
  """What `_grow` returns where nothing is drafted from a depth on."""
  levels, whole = [], pending
  for depth in range(first, plan.topology.depth):
    shape = len(inputs.last), len(plan.topology.levels[depth])
    tokens, nothing = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
    zeros = jnp.zeros((*shape, plan.model.vocab_size))
    junk, behind = _Prediction(zeros, base.Probs(zeros, zeros)), None
    if depth < plan.read_depth:
      behind = junk
      step = functools.partial(_read_level, plan, inputs, depth)
      whole = jax.eval_shape(step, tokens, whole).pending
    levels.append(
      _Level(tokens, nothing, at if depth == first else junk, behind)
    )
  return levels, padding.pad_to(pending, whole)


def _read_level(plan: _Plan, inputs, depth, tokens, pending):
  """Reads the nodes of a level, which stand behind what is pending."""
  level = plan.topology.levels[depth]
  return plan.model.extend(
    inputs.params,
    inputs.cache,
    tokens,
    pending=pending,
    positions=jnp.broadcast_to(inputs.last + depth + 1, tokens.shape),
    mask=_level_mask(plan.topology, level, inputs.lag),
  )


def _row_of_parent(topology, depth):
  """`[W]` which row of the level above each node of a level hangs below."""
  if not depth:
    return np.zeros(len(topology.levels[0]), np.int32)
  parents = np.array(topology.parents)[topology.levels[depth]]
  return parents - topology.levels[depth - 1][0]


def _level_mask(topology, level, lag):
  """`[B, W, M + W]` what the nodes of a level attend to, by `_lag`.

  The tail, as far as it was read, and their ancestors.
  """
  ancestors = topology.mask[level + 1, 1 : level[-1] + 2]
  tail = np.arange(_TAIL)[None, None] < lag[:, None, None]
  each = [
    jnp.broadcast_to(mask, (len(lag), len(level), mask.shape[-1]))
    for mask in (tail, ancestors)
  ]
  return jnp.concatenate(each, axis=-1)


def _tree(plan: _Plan, root, levels):
  """Joins levels; `root` is the prediction behind the root."""
  join = lambda parts: jax.tree.map(
    lambda *each: jnp.concatenate(each, axis=1), *parts
  )
  nothing = jax.tree.map(lambda probs: probs[:, :0], root.probs)
  tokens = jnp.zeros((len(root.logits), 0), jnp.int32)
  bonus = None
  if plan.bonus_probs:
    behind = join([root.probs, *(level.behind.probs for level in levels)])
    leaves = plan.topology.leaf_entries
    bonus = jax.tree.map(lambda probs: probs[:, leaves], behind)
  probs = join([nothing, *(level.at.probs for level in levels)])
  return base.DraftTree(
    tokens=join([tokens, *(level.tokens for level in levels)]),
    topology=plan.topology,
    valid=join([tokens.astype(bool), *(level.valid for level in levels)]),
    probs=probs.processed,
    raw_probs=probs.raw,
    bonus_probs=bonus,
  )


# Commit.


def _lag(cache, context):
  """`[B]` committed tokens that the cache lacks."""
  return context.lengths - cache.lengths


def _commit(plan: _Plan, cache, pending, context, outcome, rows):
  """Commits the tail, in its order, and the accepted nodes that were read."""
  lag = _lag(cache, context)[:, None]
  index = np.arange(_TAIL + plan.read_depth)[None]
  nodes = jnp.pad(outcome.path, ((0, 0), (0, _TAIL)))
  node = jnp.take_along_axis(nodes, jnp.maximum(index - lag, 0), axis=1)
  path = jnp.where(index < lag, lag - 1 - index, node + _TAIL)
  num = lag[:, 0] + jnp.minimum(outcome.num_accepted, plan.read_depth)
  return plan.model.commit(cache, pending, path, jnp.where(rows, num, 0))


# Catch up.


def _catch_up(plan: _Plan, params, cache, context, rows):
  """Reads what other drafters committed, up to the tail that a draft reads."""
  end = jnp.where(rows, context.lengths - _TAIL, 0)
  read = jax.lax.while_loop(
    lambda cache: (end > cache.lengths).any(),
    lambda cache: _read_chunk(plan, params, cache, context, end, plan.chunk)[0],
    cache,
  )
  return read, read.lengths - cache.lengths


def _estimate(plan: _Plan, params, cache, context, rows, target):
  """Reads all but the last committed token, and compares with the target."""
  end = jnp.where(rows, context.lengths - 1, 0)
  num_committed = target.probs.processed.shape[1]
  chunk = min(plan.chunk, num_committed + 1)

  def step(carry):
    cache, acceptance = carry
    new, logits = _read_chunk(plan, params, cache, context, end, chunk)
    probs = sampling_lib.both_probs(logits, plan.sampling)
    return new, _acceptance(probs, cache.lengths, target, acceptance)

  nothing = jnp.zeros((len(rows), num_committed))
  read, acceptance = jax.lax.while_loop(
    lambda carry: (end > carry[0].lengths).any(),
    step,
    (cache, base.Probs(nothing, nothing)),
  )
  return read, read.lengths - cache.lengths, acceptance


def _read_chunk(plan: _Plan, params, cache, context, end, chunk):
  """Reads `chunk` tokens behind the cache; commits those before `end` `[B]`.

  Returns:
    The cache, and `[B, chunk, V]` logits.
  """
  at = cache.lengths[:, None] + np.arange(chunk)[None]
  tokens = jnp.take_along_axis(context.tokens, at, axis=1, mode='clip')
  extension = plan.model.extend(params, cache, tokens)
  path = jnp.broadcast_to(np.arange(chunk), tokens.shape)
  num = jnp.minimum(
    jnp.maximum(end - cache.lengths, 0), _once_read(chunk, extension)
  )
  cache = plan.model.commit(cache, extension.pending, path, num)
  return cache, extension.logits


def _once_read(chunk, extension):
  """Returns `chunk`, which XLA can know only when the model has read its cache.

  So the write to the cache comes behind, in place; see `kv_cache.commit`.
  """
  if not extension.features:
    return chunk
  bad = jnp.isnan(extension.features[-1]).any()
  return jnp.where(bad, chunk + 1, chunk)


def _acceptance(probs, first, target, acceptance):
  """Fills in `1 - TV` at the committed positions that `probs` are of.

  `probs[:, i]` are those of what follows the token at position `first + i`.
  """
  num_read, num_committed = (
    each.processed.shape[1] for each in (probs, target.probs)
  )
  index = np.arange(num_committed)[None]
  at = target.start[:, None] - 1 + index - first[:, None]
  here = (0 <= at) & (at < num_read)

  def fill(own, other, before):
    own = jnp.take_along_axis(own, at[..., None], axis=1, mode='clip')
    return jnp.where(here, jnp.minimum(own, other).sum(-1), before)

  return jax.tree.map(fill, probs, target.probs, acceptance)
