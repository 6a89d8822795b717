"""Checks of drafters."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import types
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import drafters
from specjax import sampling
from specjax import trees
from specjax.data import datastore
from specjax.testing import building
from specjax.testing import values

_ROWS, _NUM_COMMITTED, _BUFFER = 3, 2, 16
# Arguments that drafters of the library need in addition to `given`.
EXAMPLES: dict[building.Factory, dict[str, Any]] = {
  drafters.Autoregressive: {'bonus_probs': True},
  drafters.DynamicTree: {'num_nodes': 4, 'depth': 2, 'beam': 2},
  drafters.EarlyExit: {'num_layers': 1},
  drafters.FeatureHeadDrafter: {'bonus_probs': True},
}
# Functions that return parameters, where they are not those of one model.
PARAMS: dict[building.Factory, Callable[[], base.Params]] = {
  drafters.Ensemble: lambda: (building.table(),) * 2,
  drafters.Retrieval: lambda: datastore.build(
    [[0, 1, 2, 1, 0, 2, 2, 1]], progress=False
  ),
  drafters.Suffix: lambda: None,
}
# Siblings that must be different tokens.
_DISTINCT = (base.Siblings.WITHOUT_REPLACEMENT, base.Siblings.CHOSEN)
# How often something is drafted, to compare tokens with their probabilities.
_NUM_DRAFTS = 4096
# Standard errors at which a frequency is not that of its probability.
_LIMIT = 5.5


class _Round(NamedTuple):
  """The results of all of a drafter's methods in one round."""

  tree: base.DraftTree
  initial_state: base.DraftState
  committed_state: base.DraftState
  catch_ups: list[Any]  # `(state, num_tokens)` after no token, and after two
  estimate: Any  # None if the drafter cannot estimate


def check_drafter(
  drafter_class: building.Factory,
  /,
  *,
  params: base.Params = None,
  **options: Any,
) -> None:
  """Checks a class of drafters.

  The tree has the right shapes and types; its tokens belong to the vocabulary
  and are chosen, or drawn from the distributions that the tree holds; a loop
  can carry the state; a row depends only on its own text and key; equal
  arguments make equal drafters.

  Args:
    drafter_class: the class; it need not be in a table. It is given `model`,
      `topology`, `draft_length`, `sampling`, `drafter` and `drafters`, if it
      has such parameters, and `head`, if that is annotated as a
      `base.FeatureHead` or as a `base.ParallelHead`. The vocabulary has 3
      tokens.
    params: parameters of the drafter; by default those of the model or head
      that it is given.
    **options: arguments of the drafter, in addition to these.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(drafter_class):
    building.check_documented(drafter_class)
    chosen = arguments(drafter_class, options=options)
    values.check_component(drafter_class, chosen)
    if params is None:
      params = example_params(drafter_class, chosen)
    _check(drafter_class(**chosen), params)


def arguments(
  drafter_class: building.Factory,
  how: sampling.Sampling = sampling.Sampling(),
  options: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
  """Returns arguments with which a drafter is built.

  Args:
    drafter_class: of the drafter.
    how: tokens are drawn, by the drafter and by drafters inside of it.
    options: arguments that are set in addition.
  """
  model, tree = building.model(), trees.prefix_tree((2, 2))
  inner = drafters.Autoregressive(model, tree, how)
  given = {
    'model': model,
    'topology': tree,
    'draft_length': tree.depth,
    'sampling': how,
    'head': building.head(drafter_class),
    'drafter': inner,
    'drafters': [inner] * 2,
  }
  example = EXAMPLES.get(drafter_class, {})
  return building.arguments(drafter_class, given, {**example, **options})


def example_params(
  drafter_class: building.Factory, chosen: Mapping[str, Any]
) -> base.Params:
  """Returns parameters of a drafter that is built with `arguments`."""
  if drafter_class in PARAMS:
    return PARAMS[drafter_class]()
  head = chosen.get('head')
  return building.table() if head is None else building.head_params(head)


def _check(drafter: base.Drafter, params: base.Params) -> None:
  keys = jax.random.split(jax.random.key(0), _NUM_DRAFTS * _ROWS)
  play_round = functools.partial(_play_round, drafter)
  shapes = jax.eval_shape(play_round, keys[:_ROWS], params, contexts(drafter))
  _check_types(drafter, shapes)
  # Distributions are compared with many drafts of the same rows.
  copies = 1 if shapes.tree.probs is None else _NUM_DRAFTS
  keys = keys[: copies * _ROWS]

  @jax.jit
  def draft(drafter, keys, params, context, few):
    state = drafter.init(params, context, _BUFFER)
    tree, _ = drafter.draft(keys, params, state, context)
    if not drafter.can_estimate:
      return tree, None
    state = drafter.init(params, few, _BUFFER)
    return tree, _estimate(drafter, params, state, few)[-1]

  few = contexts(drafter)
  drafted = draft(drafter, keys, params, contexts(drafter, copies), few)
  tree, acceptance = jax.device_get(drafted)
  _check_tree(tree)
  _check_siblings(drafter, tree)
  if acceptance is not None:
    _check_acceptance(acceptance)
  # Neighbors in the other order, and other junk after the texts.
  reversed_rows = contexts(drafter, copies, junk=1, order=slice(None, None, -1))
  other, _ = jax.device_get(
    draft(drafter, keys[::-1], params, reversed_rows, few)
  )
  for one, two in zip(jax.tree.leaves(tree), jax.tree.leaves(other)):
    building.require_close(
      one,
      two[::-1],
      1e-6,
      'The draft of a row, with tokens that are not valid, must not depend on '
      'other rows, or on the undefined tokens after its text',
    )
  if tree.probs is not None:
    _check_draws(tree)


def _check_types(drafter: base.Drafter, shapes: _Round) -> None:
  """Checks shapes and types of all results, before anything is compiled."""
  _check_tree_types(drafter, shapes.tree)
  building.check_keeps(shapes.initial_state, shapes.committed_state, 'commit')
  for state, num_tokens in shapes.catch_ups:
    _check_read(shapes.initial_state, state, num_tokens, 'catch_up')
  # A drafter that lags after its own rounds is never asked to estimate.
  building.require(
    drafter.lags_after_own_rounds or shapes.estimate is not None,
    'A drafter needs an estimate, unless it must catch up in every round.',
  )
  if shapes.estimate is not None:
    state, num_tokens, acceptance = shapes.estimate
    _check_read(shapes.initial_state, state, num_tokens, 'estimate')
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


def _play_round(
  drafter: base.Drafter,
  keys: jax.Array,
  params: base.Params,
  context: base.Context,
) -> _Round:
  state = drafter.init(params, context, _BUFFER)
  depth, every = drafter.topology.depth, jnp.ones(_ROWS, bool)
  tree, proposal = drafter.draft(keys, params, state, context)
  outcome = base.Outcome(
    path=jnp.zeros((_ROWS, depth), jnp.int32),
    num_accepted=jnp.zeros(_ROWS, jnp.int32),
    tokens=jnp.zeros((_ROWS, depth + 1), jnp.int32),
  )
  committed = drafter.commit(state, proposal, context, outcome, every)
  catch_ups, estimate = [], None
  if drafter.can_catch_up:
    catch_ups = [
      drafter.catch_up(params, state, text, every)
      for text in (context, _longer(context))
    ]
  if drafter.can_estimate:
    estimate = _estimate(drafter, params, state, context)
  return _Round(tree, state, committed, catch_ups, estimate)


def _longer(context: base.Context) -> base.Context:
  """The texts, once others have committed tokens."""
  return context._replace(lengths=context.lengths + _NUM_COMMITTED)


def _estimate(
  drafter: base.Drafter, params: base.Params, state: Any, context: base.Context
) -> Any:
  """Returns the drafter's estimate for tokens that others have committed."""
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
    junk: added to the undefined tokens and features after the texts.
    order: of the rows.
  """
  size = building.VOCAB_SIZE
  tokens = np.random.default_rng(19).integers(size, size=(_ROWS, _BUFFER))
  lengths = np.arange(_ROWS) + 1
  is_undefined = np.arange(_BUFFER) >= lengths[:, None]
  tokens = np.where(is_undefined, (tokens + junk) % size, tokens)
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
    tuple(jnp.asarray(states[rows], jnp.float32) for states in features),
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
    probs_shape = _ROWS, len(entries), building.VOCAB_SIZE
    building.require(
      building.is_like(probs, probs_shape, jnp.float32),
      f'There is a distribution of each node, {probs_shape} float32, got '
      f'{building.abstract(probs)}.',
    )


def _distributions(tree: base.DraftTree) -> list[tuple[Any, np.ndarray]]:
  """Distributions, and the entries that they belong to (0 is the root)."""
  topology = tree.topology
  nodes = np.arange(topology.num_nodes) + 1
  by_node = tree.probs, tree.raw_probs
  distributions = [(probs, nodes) for probs in by_node if probs is not None]
  for probs in tree.bonus_probs or ():
    assert isinstance(topology, trees.Topology)
    distributions.append((probs, topology.leaf_entries))
  return distributions


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
  if drafter.siblings in _DISTINCT:
    parents = np.broadcast_to(tree.topology.parents, tree.tokens.shape)
    same = (tree.tokens[:, None] == tree.tokens[:, :, None]) & (
      parents[:, None] == parents[:, :, None]
    )
    same &= tree.valid[:, None] & tree.valid[:, :, None]
    same &= ~np.eye(tree.tokens.shape[1], dtype=bool)[None]
    building.require(
      not same.any(),
      'Valid siblings must be different if a drafter chooses them, or draws '
      'them without replacement.',
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
    array.reshape(_NUM_DRAFTS, _ROWS, *array.shape[1:])
    for array in (tree.tokens, tree.valid, tree.probs)
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
