"""Goal distributions: what is sampled instead of the target."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.goals import deferral
from specjax.goals import lossy
from specjax.goals import mixture
from specjax.goals import target
from specjax.goals import token

GOALS = {
  'bild': deferral.bild,
  'chow': deferral.chow,
  'chow_log': deferral.chow_log,
  'diff': deferral.diff,
  'diff_log': deferral.diff_log,
  'lossy': lossy.lossy,
  'mixture': mixture.mixture,
  'opt': deferral.opt,
  'opt_log': deferral.opt_log,
  'target': target.target,
  'token_v1': token.token_v1,
  'token_v2': token.token_v2,
  'token_v3': token.token_v3,
}

# How far the mass of a goal may be from 1.
_TOLERANCE = 1e-3


def resolve(goal: base.Goal | None) -> base.Goal | None:
  """Returns a goal that takes `untempered`, or None for the target.

  A goal of two arguments does not ask how sure the models are.
  """
  if goal is None or goal is target.target():
    return None
  try:
    inspect.signature(goal).bind(None, None, None)
  except TypeError:
    return lambda target, draft, untempered=None: goal(target, draft)
  return goal


def check(goal: base.Goal | None, vocab_size: int) -> None:
  """Tries a goal on a few pairs of laws.

  Args:
    goal: from `resolve`.
    vocab_size: `V`.

  Raises:
    ValueError: it gives NaN, negative mass, or a mass other than 1.
  """
  if goal is None:
    return
  rng = np.random.default_rng(0)
  models = rng.dirichlet(np.full(vocab_size, 0.3), (2, 8))
  greedy = np.eye(vocab_size)[models.argmax(-1)]  # Of temperature 0.
  made = jax.vmap(goal)(
    *jnp.asarray(np.concatenate([models, greedy], axis=1), jnp.float32),
    tuple(jnp.asarray(np.concatenate([models, models], axis=1), jnp.float32)),
  )
  if isinstance(made, jax.core.Tracer):
    return  # Its parameters are not known while JAX traces.
  if not (made >= 0).all():
    raise ValueError(f'goal must give mass >= 0, got {np.min(made)}.')
  masses = np.asarray(made.sum(axis=1))
  worst = masses[np.argmax(np.abs(masses - 1))]
  if not abs(worst - 1) < _TOLERANCE:
    raise ValueError(
      f'goal must give laws of mass 1, got {worst}. (Lossy decoding with a '
      "fixed beta is the verifier 'lossy'.)"
    )


def laws(goal: base.Goal, tree: base.DraftTree, target: base.Laws) -> jax.Array:
  """Returns what a verifier is to sample behind each entry of one row's block.

  So any verifier that is lossless works for any goal. The draft's law is that
  of what it has proposed behind an entry, or would have behind a leaf
  (`leaf_laws`); where there is none, the goal is the target.

  Args:
    goal: from `resolve`.
    tree: of one row.
    target: `[N + 1, V]`.

  Returns:
    `[N + 1, V]`.
  """
  if not tree.topology.num_nodes and tree.leaf_laws is None:
    return target.sampled
  draft = _draft_laws(tree, target.sampled.shape[-1])
  made = jax.vmap(goal)(
    target.sampled, draft.sampled, (target.untempered, draft.untempered)
  )
  return jnp.where(told(tree)[:, None], made, target.sampled)


def told(tree: base.DraftTree) -> jax.Array:
  """Returns `[N + 1]` behind which entries of one row the draft has a law."""
  known = _children(tree).any(axis=1)
  if tree.leaf_laws is None:
    return known
  leaves = tree.topology.leaf_entries
  drawn = jnp.pad(tree.valid, (1, 0), constant_values=True)
  return known.at[leaves].set(drawn[leaves])


def _children(tree):
  """`[N + 1, N]` which valid nodes hang behind each entry."""
  entries = np.arange(tree.topology.num_nodes + 1)
  parents = np.array(tree.topology.parents, np.int32) + 1
  return (parents == entries[:, None]) & tree.valid


def _draft_laws(tree, vocab_size):
  """`[N + 1, V]` laws behind each entry, junk where there are none."""
  topology, rows = tree.topology, tree.laws
  if tree.probs is None:
    rows = base.Laws(*[jax.nn.one_hot(tree.tokens, vocab_size)] * 2)
  # Siblings have one law: the last that is valid stands for all.
  nodes = np.arange(topology.num_nodes)
  index = (_children(tree) * nodes).max(axis=1, initial=0)
  if tree.leaf_laws is not None:
    rows = jax.tree.map(
      lambda *each: jnp.concatenate(each), rows, tree.leaf_laws
    )
    leaves = topology.leaf_entries
    index = index.at[leaves].set(topology.num_nodes + np.arange(len(leaves)))
  return jax.tree.map(lambda law: law[index], rows)
