"""Batch speculative sampling: the first chain whose first token is accepted.

Yin et al. (2024), Algorithm 4, read as its proof needs it: the round is lost
only if all chains fail the test at the root, and the token is then drawn from
what `K` rejections left of the target, without a further residual. Notation:
the paper's p is the draft, its q is the target.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import couplings
from specjax import trees
from specjax.verifiers import walks


@components.component
class Batch(base.Verifier):
  """Verifies K chains; with one chain, it is the tree walk.

  The first tokens go through multi-round rejection. After the first one that is
  accepted, only its chain is verified, token by token. Chosen tokens go through
  the tree walk, which is exact for them as well.
  """

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    keys = jax.random.split(key)
    if not tree.topology.num_nodes:
      return _sample(keys[0], target_probs[0])
    num_chains, length = _shape(tree)
    walk = walks.TreeWalk(couplings.Maximal())
    if tree.probs is None:
      return walk(key, tree, target_probs)
    first, active = tree.tokens[:num_chains], tree.valid[:num_chains]
    token, accepted = couplings.Multiround()(
      keys[0], first, active, tree.probs[0], target_probs[0]
    )
    # A token that was rejected once is never accepted later in the round.
    chain = jnp.argmax(active & (first == token))
    nodes = (chain + num_chains * np.arange(length)).astype(jnp.int32)
    below = nodes[1:]
    chain_outcome = walk(
      keys[1],
      base.DraftTree(
        tree.tokens[below],
        trees.chain(length - 1),
        tree.valid[below],
        tree.probs[below],
      ),
      target_probs[nodes + 1],
    )
    return base.Outcome(
      path=jnp.append(nodes[0], below[chain_outcome.path]),
      num_accepted=jnp.where(accepted, chain_outcome.num_accepted + 1, 0),
      tokens=jnp.append(token, chain_outcome.tokens),
    )


def _sample(key: jax.Array, target: jax.Array) -> base.Outcome:
  """Returns the outcome without a draft: the token of chains not drafted."""
  token, _ = couplings.Multiround()(
    key, jnp.zeros(1, jnp.int32), jnp.zeros(1, bool), target, target
  )
  return base.Outcome(jnp.zeros(0, jnp.int32), jnp.int32(0), token[None])


def _shape(tree: base.DraftTree) -> tuple[int, int]:
  """Returns the number of chains and their length."""
  topology = tree.topology
  if not isinstance(topology, trees.Topology):
    raise ValueError(
      'Batch speculative sampling needs chains from the root, got a tree whose '
      'shape differs from row to row.'
    )
  num_chains = len(topology.levels[0])
  if topology != trees.chains(num_chains, topology.depth):
    raise ValueError(
      'Batch speculative sampling needs chains from the root, got a tree with '
      f'parents {topology.parents}.'
    )
  return num_chains, topology.depth
