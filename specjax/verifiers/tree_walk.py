"""The tree walk: one coupling after the other, from the root down.

SpecTr (Sun et al. 2023), Algorithm 3, for any tree of i.i.d. children: chains
(ordinary speculative decoding), K chains and prefix trees; or of independent
ones, each of which has a law of its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import couplings
from specjax import registry
from specjax import trees

# Couplings that take a law for each candidate.
_OF_OWN_LAWS = ('multiround',)


class _Walk(NamedTuple):
  depth: jax.Array  # [] levels passed
  here: jax.Array  # [N + 2] bool, block entries that spell the tokens so far
  at: jax.Array  # [] one of them
  path: jax.Array  # [D + 1]
  tokens: jax.Array  # [D + 1]
  going: jax.Array  # [] bool


@registry.component(topologies=[trees.chains(2, 2), trees.prefix_tree((2, 2))])
def tree_walk(
  coupling: str | base.Coupling = 'maximal',
  *,
  own_probs: bool = False,
) -> base.Verifier:
  """Builds the verifier that applies a coupling at every level.

  The nodes that agree with the tokens picked so far are the next candidates;
  where the coupling picks none of them, or none is left, the walk ends with its
  pick as the correction or the bonus token.

  Args:
    coupling: a name of `COUPLINGS` or a coupling.
    own_probs: hand the coupling `[W, V]` a law for each candidate, instead of
      the one that they share; for 'multiround', or another coupling that takes
      candidates of different laws.

  Returns:
    The verifier; its output has the target's law, by the coupling's.
  """
  if own_probs and isinstance(coupling, str) and coupling not in _OF_OWN_LAWS:
    raise ValueError(
      f'own_probs needs one of the couplings {_OF_OWN_LAWS}, got {coupling!r}.'
    )
  if isinstance(coupling, str):
    coupling = registry.lookup(couplings.COUPLINGS, 'coupling', coupling)

  def verify(key, tree, target_probs):
    topology = tree.topology
    # Node `N` is the one that is not there.
    levels = jnp.asarray(topology.level_table)
    parents = jnp.append(jnp.asarray(topology.parents, jnp.int32), -1)
    tokens = jnp.append(tree.tokens, 0)
    valid = jnp.append(tree.valid, False)
    keys = jax.random.split(key, topology.depth + 1)
    probs = tree.probs
    if probs is None or not topology.num_nodes:
      probs = jnp.zeros((1, target_probs.shape[-1]))  # Nothing was sampled.
    each = own_probs and topology.num_nodes and tree.probs is not None

    def step(walk):
      nodes = levels[walk.depth]
      candidates = tokens[nodes]
      active = valid[nodes] & walk.here[parents[nodes] + 1]
      # What was not sampled is no sample of any law: a token of the target's
      # own is among them as often as any could be.
      sampled = active if tree.probs is not None else jnp.zeros_like(active)
      token, accepted = coupling(
        keys[walk.depth],
        candidates,
        sampled,
        probs[nodes if each else nodes[jnp.argmax(active)]],
        target_probs[walk.at],
      )
      agree = active & (candidates == token)
      node = nodes[jnp.argmax(agree)]
      return _Walk(
        depth=walk.depth + 1,
        here=jnp.zeros_like(walk.here).at[nodes + 1].set(agree),
        at=node + 1,
        path=walk.path.at[walk.depth].set(node),
        tokens=walk.tokens.at[walk.depth].set(token),
        going=accepted if tree.probs is not None else agree.any(),
      )

    walk = jax.lax.while_loop(lambda walk: walk.going, step, _start(topology))
    return base.Outcome(
      path=walk.path[:-1],
      num_accepted=walk.depth - 1,
      tokens=walk.tokens,
    )

  return verify


@registry.component(topologies=[trees.chains(2, 2), trees.prefix_tree((2, 2))])
def ensemble() -> base.Verifier:
  """Builds the tree walk for siblings of different laws.

  By multi-round rejection, where each candidate is tried with its own law.
  """
  return tree_walk('multiround', own_probs=True)


def _start(topology):
  """At the root, which is entry 0 of the block."""
  return _Walk(
    depth=jnp.int32(0),
    here=jnp.zeros(topology.num_nodes + 2, bool).at[0].set(True),
    at=jnp.int32(0),
    path=jnp.zeros(topology.depth + 1, jnp.int32),
    tokens=jnp.zeros(topology.depth + 1, jnp.int32),
    going=jnp.bool_(True),
  )
