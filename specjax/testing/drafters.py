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
from specjax.decoding import feedback
from specjax.testing import building
from specjax.testing import values

_ROWS, _NUM_COMMITTED, _BUFFER = 3, 2, 16
# Arguments of the library's drafters in addition to the default ones.
EXAMPLES: dict[building.Constructor, dict[str, Any]] = {
  drafters.Autoregressive: {'bonus_probs': True},
  drafters.BlockHeadDrafter: {'bonus_probs': True},
  drafters.DynamicTree: {'num_nodes': 4, 'depth': 2, 'beam': 2},
  drafters.EarlyExit: {'num_layers': 1},
  drafters.FeatureHeadDrafter: {'bonus_probs': True},
  drafters.Lookahead: {'window': 2, 'ngram': 3, 'candidates': 2},
  drafters.Parallel: {'mask_token': 1, 'bonus_probs': True},
  drafters.Rescored: {'top': 2, 'bonus_probs': True},
  drafters.TokenRecycling: {
    'vocab_size': building.VOCAB_SIZE,
    'num_successors': 2,
  },
}
# Functions that return parameters of drafters other than single models.
PARAMS: dict[building.Constructor, Callable[[], base.Params]] = {
  drafters.Ensemble: lambda: (building.table(),) * 2,
  drafters.LookupOr: lambda: (None, building.table()),
  drafters.Rescored: lambda: (
    building.head_params(building.head(drafters.Rescored)),
    building.table(),
  ),
  drafters.Retrieval: lambda: datastore.build(
    [[0, 1, 2, 1, 0, 2, 2, 1]], progress=False
  ),
  drafters.Suffix: lambda: None,
  drafters.TokenRecycling: lambda: jnp.array([[1, 2], [2, -1], [0, 1]]),
}
# Siblings that must be different tokens.
_DISTINCT = (base.Siblings.WITHOUT_REPLACEMENT, base.Siblings.CHOSEN)
# Number of drafts whose tokens are compared with their probabilities.
_NUM_DRAFTS = 4096
# Standard errors beyond which a frequency contradicts its probability.
_LIMIT = 5.5


class _Round(NamedTuple):
  """The results of all methods of a drafter in one round.

  Attributes:
    tree: the draft tree.
    initial_state: the state before the round.
    committed_state: the state after `commit`.
    observed_state: the state after `observe`, if the drafter reads what the
      target predicts.
    catch_ups: pairs `(state, num_tokens)` from `catch_up`, after no token and
      after two tokens; empty if the drafter cannot catch up.
    estimate: result of `estimate`, or None if the drafter cannot estimate.
  """

  tree: base.DraftTree
  initial_state: base.DraftState
  committed_state: base.DraftState
  observed_state: base.DraftState
  catch_ups: list[Any]
  estimate: Any


def check_drafter(
  drafter_class: building.Constructor,
  /,
  *,
  params: base.Params = None,
  **options: Any,
) -> None:
  """Checks a class of drafters.

  The tree has the right shapes and types; its tokens belong to the vocabulary
  and are chosen, or drawn from the distributions in the tree; a loop can carry
  the state; a row depends only on its own text and key; an estimate agrees with
  the draft at its position; equal arguments make equal drafters.

  Args:
    drafter_class: the class; it need not be in a table. It receives `model`,
      `topology`, `draft_length`, `sampling`, `drafter`, `drafters` and
      `lookup`, if it has these parameters, and `head`, if that is annotated as
      a kind of head, such as `base.FeatureHead`. The vocabulary has 3 tokens.
    params: parameters of the drafter; by default those of the model or head
      that it receives.
    **options: arguments of the drafter, in addition to these.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(drafter_class):
    building.check_documented(drafter_class)
    drafter_arguments = arguments(drafter_class, options=options)
    values.check_component(drafter_class, drafter_arguments)
    if params is None:
      params = example_params(drafter_class, drafter_arguments)
    _check(drafter_class(**drafter_arguments), params)


def arguments(
  drafter_class: building.Constructor,
  how: sampling.Sampling = sampling.Sampling(),
  options: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict[str, Any]:
  """Returns arguments with which a drafter is built.

  Args:
    drafter_class: class of the drafter.
    how: sampling of the drafter and of drafters inside of it.
    options: additional arguments, which take precedence.
  """
  model, tree = building.model(), trees.prefix_tree((2, 2))
  inner = drafters.Autoregressive(model, tree, how)
  defaults = {
    'model': model,
    'topology': tree,
    'draft_length': tree.depth,
    'sampling': how,
    'head': building.head(drafter_class),
    'drafter': inner,
    'drafters': [inner] * 2,
    'lookup': drafters.PromptLookup(tree.depth + 1),
  }
  example = EXAMPLES.get(drafter_class, {})
  return building.arguments(drafter_class, defaults, {**example, **options})


def example_params(
  drafter_class: building.Constructor, drafter_arguments: Mapping[str, Any]
) -> base.Params:
  """Returns parameters of a drafter that is built with `arguments`."""
  if drafter_class in PARAMS:
    return PARAMS[drafter_class]()
  head = drafter_arguments.get('head')
  return building.table() if head is None else building.head_params(head)


def _check(drafter: base.Drafter, params: base.Params) -> None:
  """Checks a drafter."""
  keys = jax.random.split(jax.random.key(0), _NUM_DRAFTS * _ROWS)
  run_round = functools.partial(_run_round, drafter)
  shapes = jax.eval_shape(run_round, keys[:_ROWS], params, contexts(drafter))
  _check_types(drafter, shapes)
  # Distributions are compared with many drafts of the same rows.
  copies = 1 if shapes.tree.probs is None else _NUM_DRAFTS
  keys = keys[: copies * _ROWS]

  @jax.jit
  def draft(
    drafter: base.Drafter,
    keys: jax.Array,
    params: base.Params,
    context: base.Context,
    small_context: base.Context,
  ) -> tuple[base.DraftTree, Any]:
    """Returns a draft of one context; an estimate, and a draft, of another."""
    state = _begin(drafter, params, context)
    state = _observe(drafter, keys, params, state, context)
    tree, _ = drafter.draft(keys, params, state, context)
    if not drafter.can_estimate:
      return tree, None
    state = _begin(drafter, params, small_context)
    estimate = _estimate(drafter, params, state, small_context)[-1]
    drafted, _ = drafter.draft(keys[:_ROWS], params, state, small_context)
    return tree, (estimate, _acceptance_of_draft(drafted))

  small_context = contexts(drafter)
  results = draft(
    drafter, keys, params, contexts(drafter, copies), small_context
  )
  tree, estimated = jax.device_get(results)
  _check_tree(tree)
  _check_siblings(drafter, tree)
  # The rows in reverse order, with other junk after the texts.
  reversed_rows = contexts(drafter, copies, junk=1, order=slice(None, None, -1))
  other, _ = jax.device_get(
    draft(drafter, keys[::-1], params, reversed_rows, small_context)
  )
  for leaf, reversed_leaf in zip(jax.tree.leaves(tree), jax.tree.leaves(other)):
    building.require_close(
      leaf,
      reversed_leaf[::-1],
      1e-6,
      'The draft of a row, including invalid nodes, must not depend on other '
      'rows, or on undefined tokens after its text',
    )
  if tree.probs is not None:
    _check_draws(tree)
  if estimated is not None:
    _check_estimate(*estimated)


def _check_types(drafter: base.Drafter, shapes: _Round) -> None:
  """Checks shapes and types of all results, before anything is compiled."""
  _check_tree_types(drafter, shapes.tree)
  building.check_keeps(shapes.initial_state, shapes.committed_state, 'commit')
  building.check_keeps(shapes.initial_state, shapes.observed_state, 'observe')
  for state, num_tokens in shapes.catch_ups:
    _check_read(shapes.initial_state, state, num_tokens, 'catch_up')
  # A drafter that lags after its own rounds never estimates.
  building.require(
    drafter.lags_after_own_rounds or shapes.estimate is not None,
    'A drafter must implement estimate unless it catches up in every round.',
  )
  if shapes.estimate is not None:
    state, num_tokens, acceptance = shapes.estimate
    _check_read(shapes.initial_state, state, num_tokens, 'estimate')
    for rates in base.Probs(*acceptance):
      shape = _ROWS, _NUM_COMMITTED
      building.require(
        building.is_like(rates, shape, jnp.float32),
        f'An estimate must have an acceptance rate per position, {shape} '
        f'float32, got {building.abstract(rates)}.',
      )
  building.require(
    drafter.num_calls >= 0, f'num_calls must be >= 0, got {drafter.num_calls}.'
  )
  hash(drafter.slot)


def _run_round(
  drafter: base.Drafter,
  keys: jax.Array,
  params: base.Params,
  context: base.Context,
) -> _Round:
  """Calls all methods of a drafter."""
  state = _begin(drafter, params, context)
  depth, every = drafter.topology.depth, jnp.ones(_ROWS, bool)
  tree, proposal = drafter.draft(keys, params, state, context)
  outcome = _nothing_accepted(depth)
  committed = drafter.commit(state, proposal, context, outcome, every)
  observed = _observe(drafter, keys, params, state, context)
  catch_ups, estimate = [], None
  if drafter.can_catch_up:
    catch_ups = [
      drafter.catch_up(params, state, text, every)
      for text in (context, _longer(context))
    ]
  if drafter.can_estimate:
    estimate = _estimate(drafter, params, state, context)
  return _Round(tree, state, committed, observed, catch_ups, estimate)


def _begin(
  drafter: base.Drafter, params: base.Params, context: base.Context
) -> base.DraftState:
  """Returns the state before the first draft, after reading what it must."""
  state = drafter.init(params, context, _BUFFER)
  if not (drafter.can_catch_up and drafter.lags_after_own_rounds):
    return state
  every = jnp.ones(len(context.lengths), bool)
  return drafter.catch_up(params, state, context, every)[0]


def _observe(
  drafter: base.Drafter,
  keys: jax.Array,
  params: base.Params,
  state: base.DraftState,
  context: base.Context,
) -> base.DraftState:
  """Returns the state after a target's call on the drafter's own tree."""
  if not drafter.num_likeliest:
    return state
  tree, _ = drafter.draft(keys, params, state, context)
  last = context.last_tokens()
  tokens = jnp.append(last, tree.tokens, axis=1)
  ranks = np.arange(drafter.num_likeliest)
  scored = base.Scored(
    tokens,
    valid=jnp.pad(tree.valid, ((0, 0), (1, 0)), constant_values=True),
    likeliest=(tokens[..., None] + ranks[None, None]) % building.VOCAB_SIZE,
  )
  return drafter.observe(state, scored, jnp.ones(len(tokens), bool))


def _longer(context: base.Context) -> base.Context:
  """Returns the context after other drafters have committed tokens."""
  return context._replace(lengths=context.lengths + _NUM_COMMITTED)


def _estimate(
  drafter: base.Drafter, params: base.Params, state: Any, context: base.Context
) -> Any:
  """Returns the drafter's estimate for tokens that others have committed."""
  target = base.TargetProbs(context.lengths, _target_probs())
  every = jnp.ones(_ROWS, bool)
  return drafter.estimate(params, state, _longer(context), every, target)


def _target_probs() -> base.Probs:
  """Returns the target's probabilities at the tokens that were committed."""
  shape = _ROWS, _NUM_COMMITTED, building.VOCAB_SIZE
  probs = jax.nn.softmax(jax.random.normal(jax.random.key(1), shape))
  return base.Probs(probs, probs)


def _acceptance_of_draft(tree: base.DraftTree) -> feedback.Acceptance:
  """Returns how likely the first level of a tree is accepted."""
  size = _ROWS, tree.topology.num_nodes + 1, building.VOCAB_SIZE
  sampled = jax.tree.map(
    lambda probs: jnp.broadcast_to(probs[:, :1], size), _target_probs()
  )
  outcome = _nothing_accepted(tree.topology.depth)
  return feedback.tree_acceptance(tree, sampled, outcome)


def _nothing_accepted(depth: int) -> base.Outcome:
  """Returns the outcome of a round that rejects a draft of this depth."""
  return base.Outcome(
    path=jnp.zeros((_ROWS, depth), jnp.int32),
    num_accepted=jnp.zeros(_ROWS, jnp.int32),
    tokens=jnp.zeros((_ROWS, depth + 1), jnp.int32),
  )


def contexts(
  drafter: base.Drafter,
  copies: int = 1,
  junk: int = 0,
  order: slice = slice(None),
) -> base.Context:
  """Returns rows of 1, 2 and 3 tokens, with the features that a drafter reads.

  Args:
    drafter: the drafter.
    copies: number of copies of all rows.
    junk: number that is added to undefined tokens and features.
    order: order of the rows.
  """
  size = building.VOCAB_SIZE
  tokens = np.random.default_rng(19).integers(size, size=(_ROWS, _BUFFER))
  lengths = np.arange(_ROWS) + 1
  is_undefined = np.arange(_BUFFER) >= lengths[:, None]
  tokens = np.where(is_undefined, (tokens + junk) % size, tokens)
  # Features of the last token are not known yet.
  unknown = np.arange(_BUFFER)[None] >= lengths[:, None] - 1
  features = np.random.default_rng(20).normal(
    size=(len(drafter.taps), _ROWS, _BUFFER, drafter.feature_size or 1)
  )
  features = features + junk * unknown[..., None]
  rows = np.tile(np.arange(_ROWS), copies)[order]
  return base.Context(
    jnp.asarray(tokens[rows], jnp.int32),
    jnp.asarray(lengths[rows]),
    tuple(jnp.asarray(feature[rows], jnp.float32) for feature in features),
  )


def _check_tree_types(drafter: base.Drafter, tree: base.DraftTree) -> None:
  """Checks the topology, and shapes and types of a draft tree."""
  topology = tree.topology
  _check_topology(drafter, topology)
  shape = _ROWS, topology.num_nodes
  building.require(
    building.is_like(tree.tokens, shape, jnp.int32),
    f'The tree must have tokens of all nodes, {shape} int32, got '
    f'{building.abstract(tree.tokens)}.',
  )
  building.require(
    building.is_like(tree.valid, shape, jnp.bool_),
    f'The tree must have valid of all nodes, {shape} bool, got '
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
      f'The tree must have distributions of all nodes, {probs_shape} float32, '
      f'got {building.abstract(probs)}.',
    )


def _distributions(tree: base.DraftTree) -> list[tuple[Any, np.ndarray]]:
  """Returns distributions, and the entries of their nodes (0 is the root)."""
  topology = tree.topology
  nodes = np.arange(topology.num_nodes) + 1
  distributions = [
    (probs, nodes)
    for probs in (tree.probs, tree.raw_probs)
    if probs is not None
  ]
  for probs in tree.bonus_probs or ():
    assert isinstance(topology, trees.Topology)
    distributions.append((probs, topology.leaf_entries))
  return distributions


def _check_tree(tree: base.DraftTree) -> None:
  """Checks tokens and valid nodes, and distributions of valid nodes."""
  is_inside = (0 <= tree.tokens) & (tree.tokens < building.VOCAB_SIZE)
  building.require(
    is_inside.all(),
    'Tokens must be in the vocabulary, also at invalid nodes.',
  )
  topology, parents = tree.topology, np.asarray(tree.topology.parents, int)
  if isinstance(topology, trees.DynamicTopology):
    is_valid = jax.jit(lambda topology: topology.is_valid)(topology)
    building.require(np.all(is_valid), 'Trees must keep to their bounds.')
  parents = np.broadcast_to(parents, tree.valid.shape)
  is_drawn = np.pad(tree.valid, ((0, 0), (1, 0)), constant_values=True)
  building.require(
    (np.take_along_axis(is_drawn, parents + 1, axis=1) | ~tree.valid).all(),
    'The parent of a valid node must be valid, too.',
  )
  for probs, entries in _distributions(tree):
    sums = np.where(is_drawn[:, entries], probs.sum(-1), 1)
    building.require_close(
      sums, np.ones_like(sums), 1e-6, 'All distributions must have mass 1'
    )


def _check_siblings(drafter: base.Drafter, tree: base.DraftTree) -> None:
  """Checks that greedy drafters choose tokens, and that siblings differ.

  Verifiers are exact only if the drafter's `greedy` and `siblings` are true.
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
  """Checks that a tree is the static one, or a dynamic one in the bounds."""
  if isinstance(drafter.topology, trees.Topology):
    building.require(
      topology == drafter.topology,
      f'The topology of trees must be {drafter.topology}, got {topology}.',
    )
    return
  building.require(
    isinstance(topology, trees.DynamicTopology)
    and topology.bounds == drafter.topology,
    f'Trees must be dynamic, with {drafter.topology}, got {topology}.',
  )


def _check_draws(tree: base.DraftTree) -> None:
  """Checks that tokens are drawn from the distributions of their nodes.

  A correct drafter fails with probability below 1e-5. Probabilities that are
  wrong by 0.05 are detected.
  """
  assert tree.probs is not None
  tokens, valid, probs = (
    values.reshape(_NUM_DRAFTS, _ROWS, *values.shape[1:])
    for values in (tree.tokens, tree.valid, tree.probs)
  )
  is_token = tokens[..., None] == np.arange(building.VOCAB_SIZE)
  valid = valid[..., None]
  gap = np.where(valid, is_token - probs, 0).sum(0)
  variance = np.where(valid, probs * (1 - probs), 0).sum(0)
  building.require(
    (np.abs(gap) <= _LIMIT * np.sqrt(variance) + 1e-3).all(),
    'All tokens must be drawn from the probs of their node, but in '
    f'{_NUM_DRAFTS} drafts, some are too frequent or too rare.',
  )


def _check_read(before: Any, state: Any, num_tokens: Any, method: str) -> None:
  """Checks the state and the numbers of tokens that a method returns."""
  building.check_keeps(before, state, method)
  building.require(
    building.is_like(num_tokens, (_ROWS,), jnp.int32),
    f'{method} must return a number of tokens per row, int32, got '
    f'{building.abstract(num_tokens)}.',
  )


def _check_estimate(estimate: Any, drafted: feedback.Acceptance) -> None:
  """Checks that estimates are probabilities, and the first those of a draft.

  Args:
    estimate: `[B, P]` at committed positions.
    drafted: how likely the draft at the first of them is accepted.
  """
  known = drafted.known[:, 0]
  for rates, expected in zip(base.Probs(*estimate), drafted.by_position):
    building.require(
      ((0 <= rates) & (rates <= 1 + 1e-6)).all(),
      'An estimated acceptance rate must lie in [0, 1].',
    )
    building.require_close(
      np.where(known, rates[:, 0], 0),
      np.where(known, expected[:, 0], 0),
      1e-5,
      'The estimate at the first committed position must be that of a draft '
      "there: 1 - TV of its distribution, or the target's mass on all tokens "
      'that it chooses',
    )
