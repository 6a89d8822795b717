"""The tree walk: one coupling after the other, from the root down.

SpecTr (Sun et al. 2023), Algorithm 3, for any tree of i.i.d. children: chains
(ordinary speculative decoding), K chains and prefix trees; or of siblings that
have a distribution each.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import couplings
from specjax import trees


class _Walk(NamedTuple):
  """The state of a walk down a tree."""

  entries: jax.Array  # [N + 2] bool, whose path has the tokens picked so far
  entry: jax.Array  # [] one of them
  going: jax.Array  # [] bool, false past the end


class _Level(NamedTuple):
  """The pick of a level."""

  node: jax.Array  # [] int32
  token: jax.Array  # [] int32


@components.component
class TreeWalk(base.Verifier):
  """Applies a coupling at every level; the output is distributed as its tokens.

  The nodes that agree with the tokens picked so far are the next candidates.
  Where the coupling picks none of them, or there is none, the walk ends with
  the picked token as the correction or the bonus token.

  Attributes:
    coupling: of the classes of `COUPLINGS` or `DISTINCT_COUPLINGS`.
  """

  coupling: base.Coupling = couplings.Maximal()

  def __post_init__(self) -> None:
    if not isinstance(self.coupling, base.Coupling):
      raise ValueError(
        'coupling must be a Coupling, such as those of COUPLINGS, got '
        f'{self.coupling!r}.'
      )

  @property
  def is_greedy(self) -> bool:
    return self.coupling.is_greedy

  def accepts(self, siblings: base.Siblings) -> bool:
    """Accepts i.i.d. and chosen siblings, or else those of the coupling."""
    if self.coupling.accepts(base.Siblings.IID):
      # The coupling receives the distribution of the first sibling only.
      return super().accepts(siblings)
    return self.coupling.accepts(siblings)

  @property
  def _uses_all_probs(self) -> bool:
    """Whether the coupling receives the distribution of every sibling."""
    return self.accepts(base.Siblings.WITHOUT_REPLACEMENT)

  @property
  def judges_by_level(self) -> bool:
    return True

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    if tree.probs is None and not self.coupling.accepts(base.Siblings.IID):
      # Chosen tokens are compared with a sample of the target, which `Maximal`
      # draws at the lowest cost.
      return TreeWalk(couplings.Maximal())(key, tree, target_probs)
    topology = tree.topology
    keys = jax.random.split(key, topology.depth + 1)
    if isinstance(topology, trees.Topology) and topology.width <= 1:
      return self._walk_chain(keys, tree, target_probs)
    # On GPUs, a loop that ends early would ask the host at every level whether
    # it has ended; there, levels past the end are walked as well. For chosen
    # tokens, all picks are made at once on accelerators.
    arguments = keys, tree, target_probs
    if tree.probs is None:
      return jax.lax.platform_dependent(
        *arguments, cpu=self._walk_to_end, default=self._pick_all
      )
    return jax.lax.platform_dependent(
      *arguments, cuda=self._walk_all, default=self._walk_to_end
    )

  def _walk_chain(
    self, keys: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    """Walks all levels at once, as a path without branches is known beforehand.

    The vectorized call of the coupling only serves to find the last level.
    Where `accepted` does not depend on the token, as in `Maximal` and `OTM`,
    XLA drops the tokens that this call draws. The token of the last level comes
    from a second call.
    """
    length = tree.topology.num_nodes
    index = np.arange(length + 1, dtype=np.int32)
    num_valid = jnp.where(tree.valid, length, index[:-1]).min(initial=length)
    active = num_valid > index
    tokens = jnp.append(tree.tokens, 0)
    probs = jnp.zeros_like(target_probs)  # Nothing was sampled.
    if tree.probs is not None:
      probs = jnp.pad(tree.probs, [(0, 1), (0, 0)])
      if self._uses_all_probs:
        probs = probs[:, None]
    levels = (
      keys,
      tokens[:, None],
      _is_sampled(tree, active)[:, None],
      probs,
      target_probs,
    )
    picks, accepted = jax.vmap(self.coupling)(*levels)
    if tree.probs is None:
      accepted = active & (tokens == picks)
    end = jnp.where(accepted, length, index).min()
    pick, _ = self.coupling(*(level[end] for level in levels))
    return base.Outcome(
      path=jnp.asarray(index[:-1]),
      num_accepted=end,
      tokens=tokens.at[end].set(pick),
    )

  def _pick_all(
    self, keys: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    """Walks chosen tokens: the pick at an entry depends on no draft."""
    topology, size = tree.topology, target_probs.shape[-1]
    offsets = jnp.asarray(topology.offsets)
    no_candidates = (
      jnp.zeros(max(topology.width, 1), jnp.int32),
      jnp.zeros(max(topology.width, 1), bool),
      jnp.zeros(size, jnp.float32),
    )
    pick = lambda key, target: self.coupling(key, *no_candidates, target)[0]
    picks = jax.vmap(pick)(keys[jnp.maximum(offsets, 0)], target_probs)
    parent_picks = picks[jnp.asarray(topology.parents, jnp.int32) + 1]
    agrees = jnp.append(True, tree.valid & (tree.tokens == parent_picks))
    ancestors = jnp.asarray(topology.mask)  # From the root to each entry.
    reached = (agrees[None] | ~ancestors).all(axis=1)
    end = jnp.argmax(jnp.where(reached, offsets, -1))
    depths = jnp.asarray(topology.depths)[None]
    levels = np.arange(1, topology.depth + 1)[:, None]
    on_path = ancestors[end, None, 1:] & (depths == levels)
    path = jnp.argmax(on_path, axis=1).astype(jnp.int32)
    tokens = jnp.append(tree.tokens[path], 0).at[offsets[end]].set(picks[end])
    return base.Outcome(path, offsets[end], tokens)

  def _walk_all(
    self, keys: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    """Walks all levels; past the end of the walk, there is no node."""

    def walk_level(
      walk: _Walk, inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[_Walk, tuple[_Level, jax.Array]]:
      following, level = self._step(tree, target_probs, walk, *inputs)
      going = walk.going & following.going
      return following._replace(going=going), (level, going)

    _, (levels, going) = jax.lax.scan(
      walk_level,
      _start(tree.topology),
      (keys, _level_table(tree)),
      unroll=True,  # A loop would cut the CUDA graph of the round.
    )
    return base.Outcome(
      levels.node[:-1], going.sum(dtype=jnp.int32), levels.token
    )

  def _walk_to_end(
    self, keys: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    """Walks the levels up to the end of the walk."""
    table = _level_table(tree)

    def walk_level(
      carry: tuple[jax.Array, _Walk, _Level],
    ) -> tuple[jax.Array, _Walk, _Level]:
      depth, walk, levels = carry
      walk, level = self._step(
        tree, target_probs, walk, keys[depth], table[depth]
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

  def _step(
    self,
    tree: base.DraftTree,
    target_probs: jax.Array,
    walk: _Walk,
    key: jax.Array,
    nodes: jax.Array,
  ) -> tuple[_Walk, _Level]:
    """Walks one level, of `nodes` `[W]`; node `N` stands for a missing one."""
    parents = jnp.append(jnp.asarray(tree.topology.parents, jnp.int32), -1)
    candidates = jnp.append(tree.tokens, 0)[nodes]
    valid = jnp.append(tree.valid, False)[nodes]
    active = valid & walk.entries[parents[nodes] + 1]
    if tree.probs is None:  # Nothing was sampled.
      probs = jnp.zeros(target_probs.shape[-1:], jnp.float32)
    elif self._uses_all_probs:
      probs = tree.probs[nodes]
    else:
      probs = tree.probs[nodes[jnp.argmax(active)]]
    token, accepted = self.coupling(
      key,
      candidates,
      _is_sampled(tree, active),
      probs,
      target_probs[walk.entry],
    )
    agree = active & (candidates == token)
    node = nodes[jnp.argmax(agree)]
    walk = _Walk(
      entries=jnp.zeros_like(walk.entries).at[nodes + 1].set(agree),
      entry=node + 1,
      going=accepted if tree.probs is not None else agree.any(),
    )
    return walk, _Level(node, token)


@components.component
class Ensemble(TreeWalk):
  """The tree walk for siblings of different distributions.

  Each candidate is tested with its own distribution, such as those of children
  without replacement or of several drafters; by default, in multi-round
  rejection.

  Attributes:
    coupling: one that takes a distribution for each candidate.
  """

  coupling: base.Coupling = couplings.Multiround()

  def __post_init__(self) -> None:
    super().__post_init__()
    if not self.coupling.accepts(base.Siblings.WITHOUT_REPLACEMENT):
      raise ValueError(
        'coupling of Ensemble must take a distribution for each candidate, as '
        f'Multiround does, got {self.coupling}.'
      )

  def accepts(self, siblings: base.Siblings) -> bool:
    """Accepts all siblings that the coupling accepts."""
    return self.coupling.accepts(siblings)


@components.component
class Distinct(TreeWalk):
  """The tree walk for distinct siblings, drawn without replacement.

  Attributes:
    coupling: of the classes of `DISTINCT_COUPLINGS`.
  """

  coupling: base.Coupling = couplings.OTMDistinct()

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.coupling.accepts(base.Siblings.IID):
      raise ValueError(
        'coupling of Distinct must be for candidates that are drawn without '
        f'replacement, as OTMDistinct is, got {self.coupling}.'
      )


def _is_sampled(tree: base.DraftTree, active: jax.Array) -> jax.Array:
  """Returns which active nodes are samples of the draft's distribution.

  Chosen tokens are samples of no distribution, so they are no candidates: the
  pick is a token of the target, which may agree with one of them.
  """
  return active if tree.probs is not None else jnp.zeros_like(active)


def _start(topology: trees.Topology | trees.DynamicTopology) -> _Walk:
  """Returns the walk at the root, which is entry 0."""
  return _Walk(
    entries=jnp.zeros(topology.num_nodes + 2, bool).at[0].set(True),
    entry=jnp.int32(0),
    going=jnp.bool_(True),
  )


def _level_table(tree: base.DraftTree) -> jax.Array:
  """Returns `[D + 1, W]` nodes of each level; `N` stands for a missing one."""
  return jnp.asarray(tree.topology.level_table)
