"""Goals in a draft tree: their checks, and the distribution at each entry."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax.goals import deferral
from specjax.goals import lossless
from specjax.goals import mixture
from specjax.goals import token

# How far the mass of a goal may be from 1.
_TOLERANCE = 1e-3


def is_target(goal: base.Goal | None) -> bool:
  """Returns whether a goal is the target itself: lossless."""
  return goal is None or isinstance(goal, lossless.Target)


def check(goal: base.Goal | None, vocab_size: int) -> None:
  """Evaluates a goal on a few pairs of distributions.

  Args:
    goal: None is the target.
    vocab_size: `V`.

  Raises:
    ValueError: `goal` is not a `Goal`, or returns NaN, negative mass or a mass
      other than 1.
  """
  if goal is None:
    return
  if not isinstance(goal, base.Goal):
    raise ValueError(
      f'goal must be a Goal, such as those of GOALS, got {goal!r}.'
    )
  raw = _example_pairs(vocab_size)
  processed = np.concatenate([raw, _one_hot(raw)], axis=1)
  goal_probs = _on_pairs(goal, processed, raw)
  if isinstance(goal_probs, jax.core.Tracer):
    return  # Its numbers are not known while JAX traces.
  if not (goal_probs >= 0).all():
    raise ValueError(f'goal must give mass >= 0, got {np.min(goal_probs)}.')
  masses = np.asarray(goal_probs.sum(axis=1))
  worst = masses[np.argmax(np.abs(masses - 1))]
  if not abs(worst - 1) < _TOLERANCE:
    raise ValueError(
      f'goal must give distributions of mass 1, got {worst}. (Lossy decoding '
      "with a fixed beta is the verifier 'lossy'.)"
    )


def is_one_hot(goal: base.Goal, vocab_size: int, greedy: bool) -> bool:
  """Returns whether a goal is one-hot at temperature 0.

  Rules that keep some drafts are not if the draft is not one-hot, nor are
  mixtures of two goals. Other goals are evaluated on a few pairs of
  distributions. While JAX traces a goal's numbers, the answer is false.

  Args:
    goal: other than the target.
    vocab_size: `V`.
    greedy: whether the drafter's distributions are one-hot as well.
  """
  keeps_drafts = isinstance(goal, (deferral.Deferral, token.TokenRule))
  if isinstance(goal, mixture.Mixture) or (keeps_drafts and not greedy):
    return False
  raw = _example_pairs(vocab_size)
  target, draft = _one_hot(raw)
  processed = np.stack([target, draft if greedy else raw[1]])
  goal_probs = _on_pairs(goal, processed, raw)
  if isinstance(goal_probs, jax.core.Tracer):
    return False
  return bool((goal_probs.max(axis=1) > 1 - _TOLERANCE).all())


def _example_pairs(vocab_size: int) -> np.ndarray:
  """Returns `[2, n, V]` distributions of a target and a draft, sharp and flat.

  The mass is on a few tokens, whatever `V` is: else all would be flat.
  """
  rng = np.random.default_rng(0)
  few = min(vocab_size, 8)
  pairs = rng.dirichlet(np.full(few, 0.3), (2, 16))
  return np.pad(pairs, [(0, 0), (0, 0), (0, vocab_size - few)])


def _one_hot(raw: np.ndarray) -> np.ndarray:
  """Returns the distributions at temperature 0."""
  return np.arange(raw.shape[-1]) == raw.argmax(-1)[..., None]


def _on_pairs(
  goal: base.Goal, processed: np.ndarray, raw: np.ndarray
) -> jax.Array:
  """Returns the `[n, V]` goals of `[2, n, V]` pairs; raw pairs are repeated."""
  raw = np.tile(raw, (1, processed.shape[1] // raw.shape[1], 1))
  target, draft = jnp.asarray(processed, jnp.float32)
  return jax.vmap(goal)(
    target, draft, base.RawProbs(*jnp.asarray(raw, jnp.float32))
  )


def probs(
  goal: base.Goal, tree: base.DraftTree, target: base.Probs
) -> jax.Array:
  """Returns the goal distribution after each entry of one row's tree.

  A verifier that is lossless for the target samples any goal exactly. The
  draft's distribution is that of the tokens proposed after an entry (see
  `DraftTree.both_probs`), or that of a bonus position (`bonus_probs`); after an
  entry that has neither, the goal is the target.

  Args:
    goal: other than the target.
    tree: of one row.
    target: `[N + 1, V]`.

  Returns:
    `[N + 1, V]`.
  """
  if not tree.topology.num_nodes and tree.bonus_probs is None:
    return target.processed
  draft = _draft_probs(tree, target.processed.shape[-1])
  goal_probs = jax.vmap(goal)(
    target.processed, draft.processed, base.RawProbs(target.raw, draft.raw)
  )
  known = has_draft_probs(tree)[:, None]
  return jnp.where(known, goal_probs, target.processed)


def has_draft_probs(tree: base.DraftTree) -> jax.Array:
  """Returns `[N + 1]` after which entries of one row the draft predicts."""
  known = _valid_children(tree).any(axis=1)
  if tree.bonus_probs is None:
    return known
  leaves = leaf_entries(tree.topology)
  drawn = jnp.pad(tree.valid, (1, 0), constant_values=True)
  return known.at[leaves].set(drawn[leaves])


def _valid_children(tree: base.DraftTree) -> jax.Array:
  """Returns `[N + 1, N]` which valid nodes are children of each entry."""
  return jnp.asarray(tree.topology.children) & tree.valid[None]


def leaf_entries(
  topology: trees.Topology | trees.DynamicTopology,
) -> np.ndarray:
  """Returns the entries to which `bonus_probs` belong."""
  if not isinstance(topology, trees.Topology):
    raise ValueError(
      'bonus_probs need a static topology, got trees whose shape differs from '
      'row to row.'
    )
  return topology.leaf_entries


def _draft_probs(tree: base.DraftTree, vocab_size: int) -> base.Probs:
  """Returns `[N + 1, V]` probabilities after each entry, undefined if none."""
  topology, rows = tree.topology, tree.both_probs(vocab_size)
  index = jnp.zeros(topology.num_nodes + 1, jnp.int32)
  if topology.num_nodes:
    # The first sibling with a prediction stands for all: later ones may have
    # been drawn from what it has left, which is irrelevant to the goal.
    predicts = rows.raw.sum(-1) != 0
    children = _valid_children(tree)
    rank = children.astype(jnp.int32)
    rank += (children & predicts[None]).astype(jnp.int32)
    index = jnp.argmax(rank, axis=1)
    # Nothing shows how sure the others are.
    unsure = jnp.full_like(rows.raw, 1 / vocab_size)
    rows = rows._replace(raw=jnp.where(predicts[:, None], rows.raw, unsure))
  if tree.bonus_probs is not None:
    rows = jax.tree.map(
      lambda *parts: jnp.concatenate(parts), rows, tree.bonus_probs
    )
    leaves = leaf_entries(topology)
    index = index.at[leaves].set(topology.num_nodes + np.arange(len(leaves)))
  return jax.tree.map(lambda probs: probs[index], rows)
