"""Goals at work: which is the target, is it sound, what it gives in a tree."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax.goals import lossless

# How far the mass of a goal may be from 1.
_TOLERANCE = 1e-3


def is_target(goal: base.Goal | None) -> bool:
  """Returns whether a goal is the target itself: lossless."""
  return goal is None or goal is lossless.target()


def check(goal: base.Goal | None, vocab_size: int) -> None:
  """Tries a goal on a few pairs of distributions.

  Args:
    goal: None is the target.
    vocab_size: `V`.

  Raises:
    ValueError: it gives NaN, negative mass, or a mass other than 1.
  """
  if goal is None:
    return
  raw = _example_pairs(vocab_size)
  made = _on_pairs(goal, np.concatenate([raw, _one_hot(raw)], axis=1), raw)
  if isinstance(made, jax.core.Tracer):
    return  # Its parameters are not known while JAX traces.
  if not (made >= 0).all():
    raise ValueError(f'goal must give mass >= 0, got {np.min(made)}.')
  masses = np.asarray(made.sum(axis=1))
  worst = masses[np.argmax(np.abs(masses - 1))]
  if not abs(worst - 1) < _TOLERANCE:
    raise ValueError(
      f'goal must give distributions of mass 1, got {worst}. (Lossy decoding '
      "with a fixed beta is the verifier 'lossy'.)"
    )


def is_one_hot(goal: base.Goal, vocab_size: int, greedy: bool) -> bool:
  """Returns whether a goal is one-hot at temperature 0.

  It is evaluated on a few pairs of distributions. The mixture of two rules is
  an example of a goal that is not. While JAX traces the goal's parameters, the
  answer is false.

  Args:
    goal: other than the target.
    vocab_size: `V`.
    greedy: whether the drafter's distributions are one-hot as well.
  """
  raw = _example_pairs(vocab_size)
  target, draft = _one_hot(raw)
  made = _on_pairs(goal, np.stack([target, draft if greedy else raw[1]]), raw)
  if isinstance(made, jax.core.Tracer):
    return False
  return bool((made.max(axis=1) > 1 - _TOLERANCE).all())


def _example_pairs(vocab_size):
  """`[2, n, V]` distributions of a target and a draft, sharp and flat.

  The mass is on a few tokens, whatever `V` is: else all would be flat.
  """
  rng = np.random.default_rng(0)
  few = min(vocab_size, 8)
  pairs = rng.dirichlet(np.full(few, 0.3), (2, 16))
  return np.pad(pairs, [(0, 0), (0, 0), (0, vocab_size - few)])


def _one_hot(models):
  """The distributions at temperature 0."""
  return np.arange(models.shape[-1]) == models.argmax(-1)[..., None]


def _on_pairs(goal, processed, raw):
  """`[n, V]` the goals of `[2, n, V]` pairs; raw ones are repeated."""
  raw = np.tile(raw, (1, processed.shape[1] // raw.shape[1], 1))
  target, draft = jnp.asarray(processed, jnp.float32)
  return jax.vmap(_with_raw(goal))(
    target, draft, tuple(jnp.asarray(raw, jnp.float32))
  )


def probs(
  goal: base.Goal, tree: base.DraftTree, target: base.Probs
) -> jax.Array:
  """Returns what a verifier is to sample behind each entry of one row's tree.

  So any verifier that is lossless works for any goal. The draft's distribution
  is that of the tokens proposed after an entry (see `DraftTree.both_probs`), or
  that of a bonus position (`bonus_probs`); after an entry that has neither, the
  goal is the target.

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
  made = jax.vmap(_with_raw(goal))(
    target.processed, draft.processed, (target.raw, draft.raw)
  )
  return jnp.where(has_draft_probs(tree)[:, None], made, target.processed)


def has_draft_probs(tree: base.DraftTree) -> jax.Array:
  """Returns `[N + 1]` behind which entries of one row the draft has some."""
  known = _valid_children(tree).any(axis=1)
  if tree.bonus_probs is None:
    return known
  leaves = leaf_entries(tree.topology)
  drawn = jnp.pad(tree.valid, (1, 0), constant_values=True)
  return known.at[leaves].set(drawn[leaves])


def _valid_children(tree):
  """`[N + 1, N]` which valid nodes hang behind each entry."""
  return jnp.asarray(tree.topology.children) & tree.valid[None]


def leaf_entries(
  topology: trees.Topology | trees.DynamicTopology,
) -> np.ndarray:
  """Returns the entries to which `bonus_probs` belong."""
  if not isinstance(topology, trees.Topology):
    raise ValueError(
      'bonus_probs need a static topology, got trees of their own for every '
      'row.'
    )
  return topology.leaf_entries


def _with_raw(goal):
  """A goal of two arguments does not ask how sure the models are."""
  try:
    inspect.signature(goal).bind(None, None, None)
  except TypeError:
    return lambda target, draft, raw=None: goal(target, draft)
  return goal


def _draft_probs(tree, vocab_size):
  """`[N + 1, V]` probabilities after each entry, undefined if it has none."""
  topology, rows = tree.topology, tree.both_probs(vocab_size)
  index = jnp.zeros(topology.num_nodes + 1, jnp.int32)
  if topology.num_nodes:
    # The first sibling with a prediction stands for all: later ones may have
    # been drawn from what it has left, which is irrelevant to the goal.
    predicts = rows.raw.sum(-1) != 0
    children = _valid_children(tree)
    counts = children, children & predicts[None]
    index = jnp.argmax(sum(each.astype(jnp.int32) for each in counts), axis=1)
    # Nothing shows how sure the others are.
    unsure = jnp.full_like(rows.raw, 1 / vocab_size)
    rows = rows._replace(raw=jnp.where(predicts[:, None], rows.raw, unsure))
  if tree.bonus_probs is not None:
    rows = jax.tree.map(
      lambda *each: jnp.concatenate(each), rows, tree.bonus_probs
    )
    leaves = leaf_entries(topology)
    index = index.at[leaves].set(topology.num_nodes + np.arange(len(leaves)))
  return jax.tree.map(lambda each: each[index], rows)
