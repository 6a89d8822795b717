"""Traversal verification: a tree is judged from its leaves to the root.

Weng et al. (2025), "Traversal Verification for Speculative Tree Decoding",
Algorithm 1. Notation: the paper's M_b is the target, its M_s is the draft, and
its p_alpha is the share.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling


class _Visit(NamedTuple):
  """The state of a traversal: the entries from the root to the current one."""

  shares: jax.Array  # [D + 1], of the entry of each depth
  targets: jax.Array  # [D + 1, V], distributions of the token after it
  end: jax.Array  # [] int32, the accepted entry; the root until there is one


@components.component
class Traversal(base.Verifier):
  """Accepts the first node that passes its test, with the path above it.

  Nodes are tested after all nodes below them, and after earlier siblings. Of
  siblings with one token, the first has the children of all. The
  share of a node is the probability that the node or one below is accepted:

      share(child) = min(share(parent) target(child) / draft(child), 1)

  and `share(root) = 1`. If neither a child nor a node below it is accepted,
  then with the mass `m` of the residual `max(share target - draft, 0)`, the
  share of the parent becomes `m / (m + 1 - share)`, and its target the
  residual, normalized. A node is accepted with its share once all its children
  were rejected, and the next token is drawn from what is left of its target.

  The output has the target's distribution, for siblings of all kinds, as each
  child is tested with its own distribution. On a chain, this is block
  verification, and no rule accepts more tokens in expectation. On a tree, the
  share of a node does not depend on what is drafted below it, so that further
  siblings are of use only where all before them were rejected.
  """

  def accepts(self, siblings: base.Siblings) -> bool:
    """Accepts all siblings."""
    return True

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    topology, size = tree.topology, target_probs.shape[-1]
    num_draw = sampling.num_uniforms(size)
    uniforms = jax.random.uniform(
      key, (num_draw + topology.num_nodes,), jnp.float32
    )
    targets = jnp.zeros((topology.depth + 1, size), jnp.float32)
    visit = _Visit(
      shares=jnp.ones(topology.depth + 1, jnp.float32),
      targets=targets.at[0].set(target_probs[0]),
      end=jnp.int32(0),
    )
    path = jnp.zeros(0, jnp.int32)
    if topology.num_nodes:
      step = functools.partial(_step, uniforms[num_draw:], tree, target_probs)
      nodes = _nodes(tree)
      visit, _ = jax.lax.scan(
        lambda visit, event: (step(visit, event), None), visit, nodes.order
      )
      path = nodes.ancestors[visit.end - 1]
    num_accepted = jnp.asarray(topology.offsets)[visit.end]
    token = sampling.draw(uniforms[:num_draw], visit.targets[num_accepted])
    tokens = jnp.append(jnp.append(tree.tokens, 0)[path], 0)
    return base.Outcome(path, num_accepted, tokens.at[num_accepted].set(token))


def _step(
  uniforms: jax.Array,
  tree: base.DraftTree,
  target_probs: jax.Array,
  visit: _Visit,
  event: jax.Array,
) -> _Visit:
  """Enters a node, or leaves it with its test.

  Args:
    uniforms: `[N]`, for the tests.
    tree: one row's tree.
    target_probs: `[N + 1, V]`.
    visit: the state before.
    event: of `_Nodes.order`.
  """
  num_nodes = tree.topology.num_nodes
  node, enters = event % num_nodes, event < num_nodes
  depth = jnp.asarray(tree.topology.depths)[node]
  token, size = tree.tokens[node], target_probs.shape[-1]
  if tree.probs is None:
    draft = jax.nn.one_hot(token, size, dtype=jnp.float32)
  else:
    draft = tree.probs[node]
  share, target = visit.shares[depth - 1], visit.targets[depth - 1]
  ratio = target[token] / draft[token]
  rest, residual = _without_child(share, target, draft)
  passed = ~enters & (uniforms[node] < visit.shares[depth])
  is_active = tree.valid[node] & (visit.end == 0)
  # An entry replaces the node's row; a rejection, that of its parent.
  row = jnp.where(enters, depth, depth - 1)
  new_share = jnp.where(enters, jnp.minimum(share * ratio, 1.0), rest)
  new_target = jnp.where(enters, target_probs[node + 1], residual)
  changes = is_active & ~passed
  write = lambda rows, new: rows.at[row].set(jnp.where(changes, new, rows[row]))
  return _Visit(
    shares=write(visit.shares, new_share),
    targets=write(visit.targets, new_target),
    end=jnp.where(is_active & passed, node + 1, visit.end),
  )


def _without_child(
  share: jax.Array, target: jax.Array, draft: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns share and target of a node after a child was rejected.

  Args:
    share: `[]` of the node.
    target: `[V]` after the node.
    draft: `[V]` that the child was drawn from.
  """
  excess = jnp.maximum(share * target - draft, 0.0)
  mass = excess.sum()
  has_mass = mass > 0  # If not, the node is the root or is rejected as well.
  share = jnp.where(has_mass, mass / (mass + 1 - share), 0.0)
  return share, jnp.where(has_mass, excess / mass, target)


class _Nodes(NamedTuple):
  """The order in which nodes are visited."""

  ancestors: jax.Array  # [N, D] int32, the path to each node, then `N`
  order: jax.Array  # [2 N] int32: `n` enters node `n`, and `N + n` leaves it


def _nodes(tree: base.DraftTree) -> _Nodes:
  """Returns the paths to the nodes, and the order of a depth-first search.

  The children of a node that repeats an earlier sibling's token go to the first
  of these siblings.
  """
  topology, num = tree.topology, tree.topology.num_nodes
  index, levels = np.arange(num), np.arange(1, topology.depth + 1)
  depths = jnp.asarray(topology.depths)
  # [N, D, N] whether a node is the ancestor of that depth, or the node itself.
  is_ancestor = jnp.asarray(topology.mask)[1:, None, 1:]
  is_ancestor &= depths[None, None] == levels[None, :, None]
  ancestors = jnp.where(is_ancestor.any(2), jnp.argmax(is_ancestor, 2), num)
  spelled = jnp.append(tree.tokens, -1)[ancestors]
  is_same = (spelled[:, None] == spelled[None]).all(2) & tree.valid[None]
  first = jnp.append(jnp.argmax(is_same, axis=1), num)[ancestors]
  is_itself = ancestors == index[:, None]
  path = jnp.where(is_itself, ancestors, first)
  # Sorted by their paths: a node is entered before those below it, whose paths
  # are longer, and left after them.
  keys = jnp.concatenate([jnp.where(path == num, -1, path), path])
  order = jnp.lexsort(keys.T[::-1])
  return _Nodes(ancestors.astype(jnp.int32), order.astype(jnp.int32))
