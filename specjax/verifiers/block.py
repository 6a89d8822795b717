"""Block verification: a path is judged as a whole, not token by token.

Sun et al. (2024), "Block Verification Accelerates Speculative Decoding", for a
chain. Of a tree of i.i.d. children, such as K chains, a path is chosen first,
level by level: the candidate of highest priority, as in the coupling `otm`. The
path is then a chain that was drafted from the distributions of the proposals,
which are known, so that a round keeps at least as many tokens of it, in
expectation, as the tree walk with `otm` does, which would choose the same path.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling
from specjax import trees
from specjax.couplings import proposals


class _Path(NamedTuple):
  """A path down from the root; undefined past the first invalid node."""

  nodes: jax.Array  # [D] int32
  tokens: jax.Array  # [D] int32
  valid: jax.Array  # [D] bool
  probs: jax.Array  # [D, V], the distribution of each token


@components.component
class Block(base.Verifier):
  """Keeps the longest prefix of a path that passes its test.

  With `p_0 = 1` and `p_i = min(p_{i-1} target(x_i) / draft(x_i), 1)`, prefix
  `i` passes with probability `m_i / (m_i + 1 - p_i)`, where `m_i` is the mass
  of the residual `max(p_i target - draft, 0)` of the next token, and the whole
  path with probability `p_L`. A prefix may pass where shorter ones did not. In
  a tree, `draft` is the distribution of the proposals of the path.

  The output has the target's distribution. In expectation it keeps at least as
  many tokens of a chain as the tree walk does.
  """

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    topology, size = tree.topology, target_probs.shape[-1]
    num_tests, num_draw = topology.depth + 1, sampling.num_uniforms(size)
    is_chain = isinstance(topology, trees.Topology) and topology.width <= 1
    num_choose = 0 if is_chain else proposals.NUM_UNIFORMS * topology.width
    # The draw comes first: it is the same whatever was not drafted.
    draw_uniforms, test_uniforms, choose_uniforms = jnp.split(
      jax.random.uniform(
        key, (num_draw + num_tests + topology.depth * num_choose,), jnp.float32
      ),
      [num_draw, num_draw + num_tests],
    )
    if is_chain:
      path, targets = _chain(tree, size), target_probs
    else:
      level_uniforms = choose_uniforms.reshape(topology.depth, num_choose)
      path = _choose(level_uniforms, tree, target_probs)
      targets = target_probs[jnp.append(0, path.nodes + 1)]
    num_accepted, weights = _judge(test_uniforms, path, targets)
    token = sampling.draw(draw_uniforms, weights)
    tokens = jnp.append(path.tokens, 0)
    return base.Outcome(
      path=path.nodes,
      num_accepted=num_accepted,
      tokens=tokens.at[num_accepted].set(token),
    )


def _judge(
  uniforms: jax.Array, path: _Path, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns how many tokens are kept, and `[V]` weights of the next token."""
  index = jnp.arange(targets.shape[0])
  num_valid = jnp.cumprod(path.valid).sum()
  shares = _shares(path, targets)
  drafts = jnp.pad(path.probs, [(0, 1), (0, 0)])
  ends = (index == num_valid)[:, None]
  # After the last draft nothing is subtracted: the bonus token.
  residuals = jnp.where(
    ends, targets, jnp.maximum(shares[:, None] * targets - drafts, 0.0)
  )
  masses = jnp.where(ends[:, 0], shares, residuals.sum(axis=1))
  passed = uniforms * (masses + 1 - shares) < masses
  passed &= (index > 0) & (index <= num_valid)
  num_accepted = jnp.where(passed, index, 0).max().astype(jnp.int32)
  weights = residuals[num_accepted]
  return num_accepted, jnp.where(
    weights.sum() > 0, weights, targets[num_accepted]
  )


def _shares(path: _Path, targets: jax.Array) -> jax.Array:
  """Returns `[D + 1]` p_0 to p_D."""

  def step(share: jax.Array, ratio: jax.Array) -> tuple[jax.Array, jax.Array]:
    share = jnp.minimum(share * ratio, 1.0)
    return share, share

  index = np.arange(path.tokens.shape[0])
  at = index, path.tokens
  ratios = targets[at] / path.probs[at]
  # A few numbers: one kernel, where a loop would be several for each of them.
  _, shares = jax.lax.scan(step, jnp.float32(1), ratios, unroll=True)
  return jnp.append(1.0, shares)


def _chain(tree: base.DraftTree, size: int) -> _Path:
  """Returns the only path of a chain."""
  probs = tree.probs
  if probs is None:
    probs = jax.nn.one_hot(tree.tokens, size, dtype=jnp.float32)
  nodes = jnp.arange(tree.topology.num_nodes, dtype=jnp.int32)
  return _Path(nodes, tree.tokens, tree.valid, probs)


class _Level(NamedTuple):
  """The state of the choice of a path."""

  entries: jax.Array  # [N + 2] bool, entries that spell the tokens so far
  entry: jax.Array  # [] one of them


def _choose(
  uniforms: jax.Array, tree: base.DraftTree, target_probs: jax.Array
) -> _Path:
  """Returns the path of highest priorities in a tree."""
  num = tree.topology.num_nodes
  start = _Level(
    entries=jnp.zeros(num + 2, bool).at[0].set(True),
    entry=jnp.int32(0),
  )
  levels = jnp.asarray(tree.topology.level_table)[:-1]
  step = functools.partial(_choose_one, tree, target_probs)
  return jax.lax.scan(step, start, (levels, uniforms))[1]


def _choose_one(
  tree: base.DraftTree,
  target_probs: jax.Array,
  level: _Level,
  inputs: tuple[jax.Array, jax.Array],
) -> tuple[_Level, _Path]:
  """Chooses a node of one level, among those that agree with the path."""
  nodes, uniforms = inputs  # Node `N` stands for a missing one.
  parents = jnp.append(jnp.asarray(tree.topology.parents, jnp.int32), -1)
  candidates = jnp.append(tree.tokens, 0)[nodes]
  valid = jnp.append(tree.valid, False)[nodes]
  active = valid & level.entries[parents[nodes] + 1]
  target = target_probs[level.entry]
  if tree.probs is None:
    proposal = _propose_chosen(uniforms, candidates, active, target)
  else:
    probs = tree.probs[nodes[jnp.argmax(active)]]
    proposal = proposals.propose(uniforms, candidates, active, probs, target)
  token = candidates[proposal.candidate]
  agree = active & (candidates == token)
  node = nodes[proposal.candidate]
  entries = jnp.zeros_like(level.entries).at[nodes + 1].set(agree)
  path = _Path(node, token, agree.any(), proposal.probs)
  return _Level(entries, node + 1), path


def _propose_chosen(
  uniforms: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  target: jax.Array,
) -> proposals.Proposal:
  """Proposes one of several different tokens, as often as the target has it."""
  mass = jnp.where(active, target[candidates], 0.0)
  # Where the target has none of them, none is kept, whichever is proposed.
  mass = jnp.where(mass.sum() > 0, mass, active.astype(mass.dtype))
  index = sampling.draw(uniforms[: sampling.num_uniforms(mass.shape[0])], mass)
  total = jnp.where(active.any(), mass.sum(), 1.0)
  probs = jnp.zeros_like(target).at[candidates].add(mass / total)
  return proposals.Proposal(index, probs)
