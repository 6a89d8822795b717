"""The tree walk: one coupling after the other, from the root down.

SpecTr (Sun et al. 2023), Algorithm 3, for any tree of i.i.d. children: chains
(ordinary speculative decoding), K chains and prefix trees; or of independent
ones, each of which has a distribution of its own.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import couplings
from specjax import registry
from specjax import trees

# Couplings that take a distribution for each candidate.
_OF_OWN_PROBS = ('multiround',)


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
    own_probs: hand the coupling `[W, V]`, a distribution for each candidate,
      instead of the one that they share; for 'multiround', or another coupling
      that takes candidates of different distributions.

  Returns:
    The verifier; its output has the target's distribution, by the coupling's.
  """
  if own_probs and isinstance(coupling, str) and coupling not in _OF_OWN_PROBS:
    raise ValueError(
      f'own_probs needs one of the couplings {_OF_OWN_PROBS}, got {coupling!r}.'
    )
  if isinstance(coupling, str):
    coupling = registry.lookup(couplings.COUPLINGS, 'coupling', coupling)()

  return TreeWalk(coupling, own_probs)


@registry.component(topologies=[trees.chains(2, 2), trees.prefix_tree((2, 2))])
def ensemble() -> base.Verifier:
  """Builds the tree walk for siblings of different distributions.

  By multi-round rejection, where each candidate is tried with its own
  distribution.
  """
  return tree_walk('multiround', own_probs=True)


@registry.component(topologies=[trees.chains(2, 2), trees.prefix_tree((2, 2))])
def distinct(coupling: str = 'otm_distinct') -> base.Verifier:
  """Builds the tree walk for siblings that are drawn without replacement.

  Args:
    coupling: a name of `DISTINCT_COUPLINGS`.
  """
  found = registry.lookup(couplings.DISTINCT_COUPLINGS, 'coupling', coupling)
  return TreeWalk(found(), own_probs=True, distinct=True)


@dataclasses.dataclass(frozen=True)
class TreeWalk:
  """A verifier, see `tree_walk`."""

  coupling: base.Coupling
  own_probs: bool
  distinct: bool = False

  @property
  def greedy(self) -> bool:
    """Whether it is exact only where no token is drawn."""
    return self.coupling.is_greedy

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    topology = tree.topology
    chain = isinstance(topology, trees.Topology) and topology.width <= 1
    walk = _walk_chain if chain else _walk_tree
    keys = jax.random.split(key, topology.depth + 1)
    coupling = self.coupling
    if self.distinct and tree.probs is None:
      # Chosen tokens are compared with a sample of the target, which a coupling
      # for drawn ones would take long to make.
      coupling = couplings.Maximal()
    return walk(coupling, self.own_probs, keys, tree, target_probs)


def _is_sampled(tree, active):
  """Which of the active nodes are samples of the draft's distribution.

  What was not sampled is no sample of any distribution: a token of the target's
  own is among such nodes as often as any could be.
  """
  return active if tree.probs is not None else jnp.zeros_like(active)


# Of a chain.


def _walk_chain(coupling: base.Coupling, own_probs, keys, tree, target_probs):
  """All levels at once, as a path without branches is known beforehand.

  Of the levels, only whether they accept is used. So with a coupling that knows
  this without its token, as `maximal` and `otm` do, the program computes what
  replaces a token once, where one is replaced.
  """
  length = tree.topology.num_nodes
  index = np.arange(length + 1, dtype=np.int32)
  num_valid = jnp.where(tree.valid, length, index[:-1]).min(initial=length)
  active = num_valid > index
  tokens = jnp.append(tree.tokens, 0)
  probs = jnp.zeros_like(target_probs)  # Nothing was sampled.
  if tree.probs is not None:
    probs = jnp.pad(tree.probs, [(0, 1), (0, 0)])
  each = own_probs and tree.probs is not None
  levels = (
    keys,
    tokens[:, None],
    _is_sampled(tree, active)[:, None],
    probs[:, None] if each else probs,
    target_probs,
  )
  picks, accepted = jax.vmap(coupling)(*levels)
  if tree.probs is None:
    accepted = active & (tokens == picks)
  end = jnp.where(accepted, length, index).min()
  pick, _ = coupling(*(level[end] for level in levels))
  return base.Outcome(
    path=jnp.asarray(index[:-1]),
    num_accepted=end,
    tokens=tokens.at[end].set(pick),
  )


# Of a tree.


class _Walk(NamedTuple):
  """Where the walk stands."""

  here: jax.Array  # [N + 2] bool, entries that spell the tokens so far
  at: jax.Array  # [] one of them
  going: jax.Array  # [] bool


class _Level(NamedTuple):
  """What the walk picks at a level."""

  node: jax.Array  # [] int32
  token: jax.Array  # [] int32


def _walk_tree(coupling: base.Coupling, own_probs, keys, tree, target_probs):
  """Level by level: the candidates hang on what was picked before.

  On GPUs, a loop that ends early would ask the host at every level whether it
  has ended; there, levels past the end are walked as well. Of chosen tokens,
  all picks are made at once on accelerators.
  """
  to_end = functools.partial(_walk_to_end, coupling, own_probs)
  walk_all = functools.partial(_walk_all, coupling, own_probs)
  arguments = keys, tree, target_probs
  if tree.probs is None:
    pick_all = functools.partial(_pick_all, coupling)
    return jax.lax.platform_dependent(*arguments, cpu=to_end, default=pick_all)
  return jax.lax.platform_dependent(*arguments, cuda=walk_all, default=to_end)


def _pick_all(coupling: base.Coupling, keys, tree, target_probs):
  """The walk of chosen tokens: what is picked at an entry hangs on no draft."""
  topology, size = tree.topology, target_probs.shape[-1]
  offsets = jnp.asarray(topology.offsets)
  nothing = (
    jnp.zeros(max(topology.width, 1), jnp.int32),
    jnp.zeros(max(topology.width, 1), bool),
    jnp.zeros(size, jnp.float32),
  )
  pick = lambda key, target: coupling(key, *nothing, target)[0]
  picks = jax.vmap(pick)(keys[jnp.maximum(offsets, 0)], target_probs)
  above = picks[jnp.asarray(topology.parents, jnp.int32) + 1]
  agrees = jnp.append(True, tree.valid & (tree.tokens == above))
  lines = jnp.asarray(topology.mask)  # From the root to each entry.
  reached = (agrees[None] | ~lines).all(axis=1)
  end = jnp.argmax(jnp.where(reached, offsets, -1))
  depths = jnp.asarray(topology.depths)[None]
  levels = np.arange(1, topology.depth + 1)[:, None]
  on_path = lines[end, None, 1:] & (depths == levels)
  path = jnp.argmax(on_path, axis=1).astype(jnp.int32)
  tokens = jnp.append(tree.tokens[path], 0).at[offsets[end]].set(picks[end])
  return base.Outcome(path, offsets[end], tokens)


def _start(topology):
  """At the root, which is entry 0."""
  return _Walk(
    here=jnp.zeros(topology.num_nodes + 2, bool).at[0].set(True),
    at=jnp.int32(0),
    going=jnp.bool_(True),
  )


def _walk_all(coupling: base.Coupling, own_probs, keys, tree, target_probs):
  """All levels; past the end of the walk, no node is there."""

  def walk_level(walk, inputs):
    new, level = _step(coupling, own_probs, tree, target_probs, walk, *inputs)
    new = new._replace(going=walk.going & new.going)
    return new, (level, new.going)

  _, (levels, going) = jax.lax.scan(
    walk_level,
    _start(tree.topology),
    (keys, _level_table(tree)),
    unroll=True,  # A loop would cut the CUDA graph of the round.
  )
  return base.Outcome(
    levels.node[:-1], going.sum(dtype=jnp.int32), levels.token
  )


def _walk_to_end(coupling: base.Coupling, own_probs, keys, tree, target_probs):
  """The levels up to the end of the walk."""
  table = _level_table(tree)

  def walk_level(carry):
    depth, walk, levels = carry
    walk, level = _step(
      coupling, own_probs, tree, target_probs, walk, keys[depth], table[depth]
    )
    write = lambda all_levels, new: all_levels.at[depth].set(new)
    return depth + 1, walk, jax.tree.map(write, levels, level)

  zeros = jnp.zeros(tree.topology.depth + 1, jnp.int32)
  depth, _, levels = jax.lax.while_loop(
    lambda carry: carry[1].going,
    walk_level,
    (jnp.int32(0), _start(tree.topology), _Level(zeros, zeros)),
  )
  return base.Outcome(levels.node[:-1], depth - 1, levels.token)


def _level_table(tree):
  """`[D + 1, W]` nodes of each level; `N` is the one that is not there."""
  return jnp.asarray(tree.topology.level_table)


def _step(coupling: base.Coupling, own_probs, tree, target_probs, walk, key,
          nodes):  # fmt: skip
  """One level, of `nodes` `[W]`; node `N` is the one that is not there."""
  topology = tree.topology
  parents = jnp.append(jnp.asarray(topology.parents, jnp.int32), -1)
  candidates = jnp.append(tree.tokens, 0)[nodes]
  valid = jnp.append(tree.valid, False)[nodes]
  active = valid & walk.here[parents[nodes] + 1]
  probs = tree.probs
  if probs is None:
    # Nothing was sampled.
    probs = jnp.zeros((1, target_probs.shape[-1]), jnp.float32)
  each = own_probs and tree.probs is not None
  token, accepted = coupling(
    key,
    candidates,
    _is_sampled(tree, active),
    probs[nodes if each else nodes[jnp.argmax(active)]],
    target_probs[walk.at],
  )
  agree = active & (candidates == token)
  node = nodes[jnp.argmax(agree)]
  walk = _Walk(
    here=jnp.zeros_like(walk.here).at[nodes + 1].set(agree),
    at=node + 1,
    going=accepted if tree.probs is not None else agree.any(),
  )
  return walk, _Level(node, token)
