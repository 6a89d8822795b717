"""What every drafter keeps."""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import drafters
from specjax import sampling
from specjax import trees
from specjax.testing import building
from specjax.testing import values

_ROWS, _NUM_COMMITTED, _BUFFER = 3, 2, 16
# How often something is drafted, to compare tokens with their probabilities.
_NUM_DRAFTS = 4096
# Standard errors at which a frequency is not that of its probability.
_LIMIT = 5.5


class _Turn(NamedTuple):
  """What a drafter does in a round, and where others have played."""

  tree: base.DraftTree
  before: base.DraftState
  committed: base.DraftState
  reads: list[Any]  # `(state, num_tokens)` after no token, and after two
  estimated: Any  # None if the drafter has no estimate


def check_drafter(factory: building.Factory, /, **options: Any) -> None:
  """Checks a factory of drafters.

  Shapes and types of the tree; tokens of the vocabulary, which are drawn from
  the distributions that the tree holds, or chosen; a state that a loop can
  carry; a row that depends on its own text and key alone; equal arguments give
  one object.

  Args:
    factory: builds the drafter; it need not be in a table. It is given `model`,
      `topology`, `draft_length`, `sampling`, `drafter` and `drafters`, if it
      has such parameters, and `head`, if that is annotated as a
      `base.FeatureHead` or as a `base.ParallelHead`. The vocabulary has 3
      tokens.
    **options: what it is built with, beside these and its example.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(factory):
    building.check_documented(factory)
    chosen = building.arguments(factory, given(factory), options)
    drafter = factory(**chosen)
    _check(drafter, building.params_of(factory, chosen))
    values.check_value(factory, chosen)


def given(
  factory: building.Factory, how: sampling.Sampling = sampling.Sampling()
) -> dict[str, Any]:
  """Returns what a factory of drafters may ask for.

  Args:
    factory: builds the drafter.
    how: it draws, and drafters inside of it do.
  """
  model, tree = building.model(), trees.prefix_tree((2, 2))
  inner = drafters.DRAFTERS['autoregressive'](model, tree, how)
  return {
    'model': model,
    'topology': tree,
    'draft_length': tree.depth,
    'sampling': how,
    'head': building.head(factory),
    'drafter': inner,
    'drafters': [inner] * 2,
  }


def _check(drafter: base.Drafter, params: base.Params) -> None:
  keys = jax.random.split(jax.random.key(0), _NUM_DRAFTS * _ROWS)
  turn = functools.partial(_turn, drafter)
  like = jax.eval_shape(turn, keys[:_ROWS], params, contexts(drafter))
  _check_types(drafter, like)
  # Distributions are compared with many drafts of the same rows.
  copies = 1 if like.tree.probs is None else _NUM_DRAFTS
  keys = keys[: copies * _ROWS]

  @jax.jit
  def draft(keys, params, context, few):
    state = drafter.init(params, context, _BUFFER)
    tree, _ = drafter.draft(keys, params, state, context)
    if drafter.estimate is None:
      return tree, None
    state = drafter.init(params, few, _BUFFER)
    return tree, _estimate(drafter, params, state, few)[-1]

  few = contexts(drafter)
  made = draft(keys, params, contexts(drafter, copies), few)
  tree, acceptance = jax.device_get(made)
  _check_tree(tree)
  _check_siblings(drafter, tree)
  if acceptance is not None:
    _check_acceptance(acceptance)
  # Neighbours in the other order, and another junk behind the texts.
  turned = contexts(drafter, copies, junk=1, order=slice(None, None, -1))
  other, _ = jax.device_get(draft(keys[::-1], params, turned, few))
  for one, two in zip(jax.tree.leaves(tree), jax.tree.leaves(other)):
    building.require_close(
      one,
      two[::-1],
      1e-6,
      'The draft of a row, with tokens that are not valid, must not depend on '
      'other rows, or on the junk behind its text',
    )
  if tree.probs is not None:
    _check_draws(tree)


def _check_types(drafter: base.Drafter, like: _Turn) -> None:
  """Shapes and types of all that a round returns, before it is compiled."""
  _check_tree_types(drafter, like.tree)
  building.check_keeps(like.before, like.committed, 'commit')
  for state, num_tokens in like.reads:
    _check_read(like.before, state, num_tokens, 'catch_up')
  # Nobody asks a drafter for it that can be behind its own rounds.
  needed = drafter.catch_up is None or not drafter.catch_up.every_round
  building.require(
    not needed or like.estimated is not None,
    'A drafter needs an estimate, unless it must catch up in every round.',
  )
  if like.estimated is not None:
    state, num_tokens, acceptance = like.estimated
    _check_read(like.before, state, num_tokens, 'estimate')
    for chances in base.Probs(*acceptance):
      shape = _ROWS, _NUM_COMMITTED
      building.require(
        building.is_like(chances, shape, jnp.float32),
        f'The estimate is an acceptance of each position, {shape} float32, got '
        f'{building.abstract(chances)}.',
      )
  building.require(
    drafter.num_calls >= 0, f'num_calls must be >= 0, got {drafter.num_calls}.'
  )
  hash(drafter.slot)


def _turn(
  drafter: base.Drafter,
  keys: jax.Array,
  params: base.Params,
  context: base.Context,
) -> _Turn:
  state = drafter.init(params, context, _BUFFER)
  depth, every = drafter.topology.depth, jnp.ones(_ROWS, bool)
  tree, proposal = drafter.draft(keys, params, state, context)
  outcome = base.Outcome(
    path=jnp.zeros((_ROWS, depth), jnp.int32),
    num_accepted=jnp.zeros(_ROWS, jnp.int32),
    tokens=jnp.zeros((_ROWS, depth + 1), jnp.int32),
  )
  committed = drafter.commit(state, proposal, context, outcome, every)
  reads, estimated = [], None
  if drafter.catch_up is not None:
    read = functools.partial(drafter.catch_up.read, params, state)
    reads = [read(each, every) for each in (context, _longer(context))]
  if drafter.estimate is not None:
    estimated = _estimate(drafter, params, state, context)
  return _Turn(tree, state, committed, reads, estimated)


def _longer(context: base.Context) -> base.Context:
  """The texts, once others have committed tokens."""
  return context._replace(lengths=context.lengths + _NUM_COMMITTED)


def _estimate(
  drafter: base.Drafter, params: base.Params, state: Any, context: base.Context
) -> Any:
  """What the drafter estimates of the tokens that others have committed."""
  assert drafter.estimate is not None
  shape = _ROWS, _NUM_COMMITTED, building.VOCAB_SIZE
  probs = jax.nn.softmax(jax.random.normal(jax.random.key(1), shape))
  target = base.TargetProbs(context.lengths, base.Probs(probs, probs))
  every = jnp.ones(_ROWS, bool)
  return drafter.estimate(params, state, _longer(context), every, target)


def contexts(
  drafter: base.Drafter,
  copies: int = 1,
  junk: int = 0,
  order: slice = slice(None),
) -> base.Context:
  """Returns rows of 1, 2 and 3 tokens, with the features that are asked for.

  Args:
    drafter: what sees them.
    copies: how often all rows are there.
    junk: added to what stands behind the texts.
    order: of the rows.
  """
  size = building.VOCAB_SIZE
  tokens = np.random.default_rng(19).integers(size, size=(_ROWS, _BUFFER))
  lengths = np.arange(_ROWS) + 1
  behind = np.arange(_BUFFER) >= lengths[:, None]
  tokens = np.where(behind, (tokens + junk) % size, tokens)
  # Those of the last token are not known yet.
  unknown = np.arange(_BUFFER)[None] >= lengths[:, None] - 1
  features = np.random.default_rng(20).normal(
    size=(len(drafter.taps), _ROWS, _BUFFER, drafter.feature_size or 1)
  )
  features = features + junk * unknown[..., None]
  rows = np.tile(np.arange(_ROWS), copies)[order]
  return base.Context(
    jnp.asarray(tokens[rows], jnp.int32),
    jnp.asarray(lengths[rows]),
    tuple(jnp.asarray(each[rows], jnp.float32) for each in features),
  )


def _check_tree_types(drafter: base.Drafter, tree: base.DraftTree) -> None:
  topology = tree.topology
  _check_topology(drafter, topology)
  shape = _ROWS, topology.num_nodes
  building.require(
    building.is_like(tree.tokens, shape, jnp.int32),
    f'There are tokens of each node, {shape} int32, got '
    f'{building.abstract(tree.tokens)}.',
  )
  building.require(
    building.is_like(tree.valid, shape, jnp.bool_),
    f'It must hold valid of each node, {shape} bool, got '
    f'{building.abstract(tree.valid)}.',
  )
  distributions = _distributions(tree)
  if distributions:
    building.require(
      drafter.vocab_size == building.VOCAB_SIZE,
      f'vocab_size must be that of its distributions, {building.VOCAB_SIZE}, '
      f'got {drafter.vocab_size}.',
    )
  for probs, entries in distributions:
    whole = _ROWS, len(entries), building.VOCAB_SIZE
    building.require(
      building.is_like(probs, whole, jnp.float32),
      f'There is a distribution of each node, {whole} float32, got '
      f'{building.abstract(probs)}.',
    )


def _distributions(tree: base.DraftTree) -> list[tuple[Any, np.ndarray]]:
  """Distributions, and the entries that they belong to (0 is the root)."""
  topology = tree.topology
  nodes = np.arange(topology.num_nodes) + 1
  each = tree.probs, tree.raw_probs
  found = [(probs, nodes) for probs in each if probs is not None]
  for probs in tree.bonus_probs or ():
    assert isinstance(topology, trees.Topology)
    found.append((probs, topology.leaf_entries))
  return found


def _check_tree(tree: base.DraftTree) -> None:
  """Tokens, valid nodes, and distributions where something was proposed."""
  inside = (0 <= tree.tokens) & (tree.tokens < building.VOCAB_SIZE)
  building.require(
    inside.all(),
    'Tokens must be of the vocabulary, also where they are not valid.',
  )
  topology, parents = tree.topology, np.asarray(tree.topology.parents, int)
  if isinstance(topology, trees.DynamicTopology):
    keeps = jax.jit(lambda topology: topology.is_valid)(topology)
    building.require(np.all(keeps), 'Its trees must keep to their bounds.')
  parents = np.broadcast_to(parents, tree.valid.shape)
  drawn = np.pad(tree.valid, ((0, 0), (1, 0)), constant_values=True)
  building.require(
    (np.take_along_axis(drawn, parents + 1, axis=1) | ~tree.valid).all(),
    'The parent of a valid node must be valid, too.',
  )
  for probs, entries in _distributions(tree):
    sums = np.where(drawn[:, entries], probs.sum(-1), 1)
    building.require_close(
      sums, np.ones_like(sums), 1e-6, 'All distributions must have mass 1'
    )


def _check_siblings(drafter: base.Drafter, tree: base.DraftTree) -> None:
  """That tokens are chosen, and siblings different, where the drafter says so.

  Verifiers that need it are otherwise taken for arms that they are not exact
  for.
  """
  if drafter.greedy and tree.probs is not None:
    largest = np.where(tree.valid, tree.probs.max(-1), 1)
    building.require(
      (largest > 1 - 1e-6).all(),
      'A drafter that is greedy must have chosen its tokens: its probs must be '
      f'None or one-hot, got a largest probability of {largest.min():.3g}.',
    )
  if drafter.distinct:
    parents = np.broadcast_to(tree.topology.parents, tree.tokens.shape)
    same = (tree.tokens[:, None] == tree.tokens[:, :, None]) & (
      parents[:, None] == parents[:, :, None]
    )
    same &= tree.valid[:, None] & tree.valid[:, :, None]
    same &= ~np.eye(tree.tokens.shape[1], dtype=bool)[None]
    building.require(
      not same.any(), 'Valid siblings of a distinct drafter must be different.'
    )


def _check_topology(drafter: base.Drafter, topology: Any) -> None:
  """The static tree, or trees within the bounds."""
  if isinstance(drafter.topology, trees.Topology):
    building.require(
      topology == drafter.topology,
      f'The topology of its trees must be {drafter.topology}, got {topology}.',
    )
    return
  building.require(
    isinstance(topology, trees.DynamicTopology)
    and topology.bounds == drafter.topology,
    f'Its trees must be dynamic ones of {drafter.topology}, got {topology}.',
  )


def _check_draws(tree: base.DraftTree) -> None:
  """Tokens are as frequent as the distributions say that they were drawn from.

  Of a correct drafter, a frequency is as far from its probability as is refused
  here with a chance below 1e-5; a probability that is wrong by 0.05 is found.
  """
  assert tree.probs is not None
  tokens, valid, probs = (
    each.reshape(_NUM_DRAFTS, _ROWS, *each.shape[1:])
    for each in (tree.tokens, tree.valid, tree.probs)
  )
  drawn = tokens[..., None] == np.arange(building.VOCAB_SIZE)
  valid = valid[..., None]
  gap = np.where(valid, drawn - probs, 0).sum(0)
  variance = np.where(valid, probs * (1 - probs), 0).sum(0)
  building.require(
    (np.abs(gap) <= _LIMIT * np.sqrt(variance) + 1e-3).all(),
    'All tokens must be drawn from the probs of their node: of '
    f'{_NUM_DRAFTS} drafts, some are too frequent or too rare.',
  )


def _check_read(before: Any, state: Any, num_tokens: Any, what: str) -> None:
  """The state behind what others committed, and how much of it was read."""
  building.check_keeps(before, state, what)
  building.require(
    building.is_like(num_tokens, (_ROWS,), jnp.int32),
    f'{what} must return a number of tokens of each row, int32, got '
    f'{building.abstract(num_tokens)}.',
  )


def _check_acceptance(acceptance: Any) -> None:
  """How likely drafts would have been accepted where others committed."""
  for chances in base.Probs(*acceptance):
    building.require(
      ((0 <= chances) & (chances <= 1 + 1e-6)).all(),
      'An estimate of acceptance is a probability, in [0, 1].',
    )
