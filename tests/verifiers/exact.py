"""Exact distributions of verifiers on tiny Markov models.

All drafts are enumerated, and the uniforms integrated: a verifier's outcome is
constant on the cells that its breakpoints cut out of the unit cube. They are
computed from the rules' formulas, and each cell is looked at near two opposite
corners: a breakpoint that is not where the verifier steps spoils the sum.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import trees
from specjax.testing import rounds
from specjax.transport import division
from specjax.transport import priorities
from tests import parts

ROOT, Case = rounds.ROOT, rounds.Case
_MARGIN = 2e-6


def half(target, draft):
  """A goal that is neither model's distribution."""
  return 0.5 * target + 0.5 * draft


@dataclasses.dataclass(frozen=True)
class Joint(rounds.Case):
  """The trees of several members under one root, each of its own distribution.

  Attributes:
    members: who has drafted each node: 'draft'; 'other', which never repeats a
      token; or 'chosen', which does not sample.
  """

  members: tuple[str, ...] = ()

  @functools.cached_property
  def tables(self):
    """`[N, V, V]` float64 of each node."""
    same = np.eye(self.vocab_size)
    known = {
      'draft': self.draft,
      'other': rounds.normalised(self.draft[::-1] * (1 - same)),
      'chosen': np.roll(same, 1, axis=1),
    }
    return np.stack([known[name] for name in self.members])

  @functools.cached_property
  def drafts(self):
    rows = [()]
    for parent, table in zip(self.topology.parents, self.tables):
      rows = [
        (*row, token)
        for row in rows
        for token in np.flatnonzero(table[ROOT if parent < 0 else row[parent]])
      ]
    return np.array(rows, int)

  @functools.cached_property
  def node_probs(self):
    nodes = np.arange(self.topology.num_nodes)
    return self.tables[nodes, self.before]

  def candidates(self, depth, context, counts):
    """Yields `[n, V]` the distributions of the active candidates, and `n`.

    Any may be active, but at the root all that are valid are.
    """
    here = self.is_valid & (self.topology.depths == depth + 1)
    rows = self.tables[here, context]
    choices = [True, False] if depth else [True]
    for active in itertools.product(choices, repeat=len(rows)):
      yield rows[np.array(active, bool)], sum(active)

  def tree(self, tokens):
    nodes = np.arange(self.topology.num_nodes)
    before = jnp.append(tokens, ROOT)[np.array(self.topology.parents, int)]
    probs = jnp.asarray(self.tables, jnp.float32)[nodes, before]
    return base.DraftTree(
      tokens, self.topology, jnp.asarray(self.is_valid), probs
    )


def joint(members, vocab_size=3, valid=None):
  """The case of a topology for each of `members`, by their names."""
  topology, nodes = trees.join(members.values())
  names = np.empty(topology.num_nodes, object)
  for name, own in zip(members, nodes):
    names[own] = name
  return Joint(topology, vocab_size, valid, members=tuple(names))


class Integral(NamedTuple):
  """What a verifier does: `n` drafts, `C` cells."""

  probs: np.ndarray  # [V**(D + 1)] of the completed round
  outcome: base.Outcome  # [n, C, ...]
  mass: np.ndarray  # [n, C] chances

  @property
  def reach(self):
    """`[D]` chances that 1, 2, ... tokens are accepted."""
    depths = np.arange(self.outcome.tokens.shape[-1] - 1)
    longer = self.outcome.num_accepted[..., None] > depths
    return np.einsum('nc,ncd->d', self.mass, longer)

  def endings(self, vocab_size):
    """`[n, D + 1, V]` chances of a draft, its accepted tokens and the next.

    On a chain, where the accepted tokens are the draft's first ones.
    """
    num, tokens = self.outcome.num_accepted, self.outcome.tokens
    last = np.take_along_axis(tokens, num[..., None], axis=-1)[..., 0]
    endings = np.zeros((len(num), tokens.shape[-1], vocab_size))
    np.add.at(endings, (np.arange(len(num))[:, None], num, last), self.mass)
    return endings


def integrate(case, verifier, points, volumes) -> Integral:
  """Sums over all drafts and all cells of the uniforms.

  Args:
    case: what is verified.
    verifier: gets `points` as its key; where it splits it, it gets the entries
      of the first axis, and where it draws uniforms, what it draws them from;
      uniforms at the end that do not matter may be missing.
    points: `[C, ..., 2]`, or `[n, C, ..., 2]` with cells of each draft's own;
      or a tuple of them.
    volumes: `[C]` or `[n, C]`.
  """

  axis = None if volumes.ndim == 1 else 0
  both = lambda low, high: np.concatenate([low, high], axis=volumes.ndim - 1)
  points = jax.tree.map(lambda leaf: both(leaf[..., 0], leaf[..., 1]), points)
  volumes = both(volumes / 2, volumes / 2)
  run = jax.vmap(functools.partial(case.verify, verifier), (0, None))
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.random, 'split', lambda key, num=2: key)
    patch.setattr(jax.random, 'uniform', parts.uniform)
    outcome = jax.jit(jax.vmap(run, (axis, 0)))(
      jax.tree.map(np.float32, points), case.drafts.astype(np.int32)
    )
  outcome = jax.tree.map(np.asarray, outcome)
  mass = case.weights[:, None] * volumes
  probs = rounds.complete(
    outcome.tokens.reshape(-1, case.topology.depth + 1),
    outcome.num_accepted.ravel(),
    mass.ravel(),
    case.target,
  )
  return Integral(probs, outcome, mass)


def cells(axes):
  """`[C, n, 2]` corners and `[C]` volumes, by the breakpoints of `n` axes.

  The corners keep clear of the breakpoints, which are float32 numbers.
  """
  edges = [
    np.unique(np.clip(np.append(breaks, [0, 1]), 0, 1).round(7))
    for breaks in axes
  ]
  margins = [np.minimum(_MARGIN, np.diff(each) / 2) for each in edges]
  corners = [
    [each[:-1] + margin for each, margin in zip(edges, margins)],
    [each[1:] - margin for each, margin in zip(edges, margins)],
  ]
  points = [np.stack(np.meshgrid(*each, indexing='ij'), -1) for each in corners]
  volumes = functools.reduce(np.multiply.outer, map(np.diff, edges))
  return np.stack(points, -1).reshape(-1, len(axes), 2), volumes.ravel()


def ratios(draft, target):
  """Breakpoints of the tests `u * draft < target`."""
  return target[draft > 0] / draft[draft > 0]


def cumulative(weights):
  """Breakpoints of a draw from the positive part of weights."""
  sums = np.cumsum(np.maximum(weights, 0))
  return sums / sums[-1] if sums[-1] > 1e-6 else sums[:0]


def left_over(draft, target, num):
  """The target and what 1 to `num` rejections leave of it, `[num + 1, V]`.

  Of drafts of one distribution `[V]`, or of one for each `[num, V]`.
  """
  left = [target]
  for probs in np.broadcast_to(draft, (num, len(target))):
    excess = np.maximum(left[-1] - probs, 0)
    mass = excess.sum()
    left.append(excess / mass if mass > 1e-6 else left[-1])
  return np.array(left)


# Breakpoints of a coupling's uniforms, one entry each, for `num` active
# candidates of `width`; without any, only the target is drawn from.


def maximal_axes(draft, target, num, width):
  """Of `maximal`, and of its twin that draws from the target."""
  draws = np.append(cumulative(target), cumulative(target - draft))
  return [ratios(draft, target), draws] if num else [[], draws]


_divide = jax.jit(division.divide)


def kseq_axes(draft, target, num, width):
  factor = float(_divide(draft, target, num).factor)
  covered = np.minimum(draft, target / factor)
  overlap = covered.sum()
  share = (1 - (1 - overlap) ** num) / overlap if overlap else 0
  tests = ratios(factor * draft, target) if num else []
  return [cumulative(target - share * covered)] + [tests] * width


def multiround_axes(draft, target, num, width):
  left = left_over(draft, target, num)
  tests = list(map(ratios, np.broadcast_to(draft, (num, len(target))), left))
  return [cumulative(left[num])] + tests + [[]] * (width - num)


def otm_axes(draft, target, num, width):
  """Of what the candidates' priorities are drawn from nothing is known here."""
  assert not num, 'only for draws from the target'
  return [[], cumulative(target)]


AXES = {
  'kseq': kseq_axes,
  'maximal': maximal_axes,
  'multiround': multiround_axes,
  'otm': otm_axes,
}


def level_cells(case, axes, depth, counts):
  """Cells of the coupling at one level, whatever its context is there.

  Args:
    case: what is verified.
    axes: an entry of `AXES`.
    depth: of the level.
    counts: how many candidates may be active.
  """
  contexts = [ROOT] if depth == 0 else range(case.vocab_size)
  width = max((len(level) for level in case.topology.levels), default=1)
  found = [
    axes(draft, case.target[context], num, width)
    for context in contexts
    for draft, num in case.candidates(depth, context, counts)
  ]
  return cells([np.concatenate(breaks) for breaks in zip(*found)])


def walk_cells(case, axes=maximal_axes, counts=(1,)):
  """`[C, D + 1, n, 2]` uniforms of a tree walk, and `[C]` volumes.

  The levels are independent; the other arguments are those of `level_cells`.
  """
  levels = [
    level_cells(case, axes, depth, counts)
    for depth in range(case.topology.depth + 1)
  ]
  return _product(levels)


# Cells of each draft's own. Where the candidates are known, uniforms have few
# breakpoints: those of the contexts in which they are looked at.


_plan = jax.jit(priorities.plan)


def priority_axes(draft, target, tokens, places, width):
  """Breakpoints of each candidate's atom, partner and swap, by uniform.

  Returns:
    They, and `[V]` what the candidate of highest priority is distributed as.
  """
  plan = jax.device_get(_plan(draft, target, len(tokens)))
  wins, wanted, lacking, exceeding = map(np.float64, plan[2:])
  breaks = {}
  for token, place in zip(tokens, places):
    partners, swaps = [], []
    for atom in {int(plan.atom[token]), int(plan.next(plan.atom[token]))}:
      short = wanted[atom] - wins[atom]
      own, other = (lacking, exceeding) if short > 0 else (exceeding, lacking)
      low = own[atom - 1] if atom else 0.0
      distances = np.abs(wins - wins[atom])
      if own[atom] > low:
        partners.extend((other - low) / (own[atom] - low))
        swaps.extend(abs(short) / distances[distances > 0])
    breaks[place] = [plan.fraction[token]]
    breaks[width + place] = partners
    breaks[2 * width + place] = swaps
  return breaks, np.float64(plan.distribution(draft))


def contexts(case, tokens):
  """Yields `(depth, token before, active nodes)` of all steps of a walk."""
  parents = np.array(case.topology.parents)
  steps = [(ROOT, [-1])]
  for depth in range(case.topology.depth + 1):
    longer = []
    for context, here in steps:
      of_level = case.topology.depths == depth + 1
      nodes = np.flatnonzero(of_level & case.is_valid & np.isin(parents, here))
      yield depth, context, nodes
      for token in np.unique(tokens[nodes]):
        longer.append((token, nodes[tokens[nodes] == token]))
    steps = longer


def own_cells(case, own, num_uniforms, num_levels):
  """`[n, C, levels, U, 2]` uniforms of each draft, and `[n, C]` volumes.

  Args:
    case: what is verified.
    own: `(draft, target, tokens, places, width)` to breakpoints by uniform, of
      the active candidates of a level.
    num_uniforms: `U`, of each level.
    num_levels: from the root on, that have uniforms.
  """
  levels = [*map(list, case.topology.levels), []]
  width = max(map(len, levels))
  found = []
  for tokens in case.drafts:
    axes = [[[] for _ in range(num_uniforms)] for _ in range(num_levels)]
    for depth, context, nodes in contexts(case, tokens):
      if depth < num_levels:
        pair = case.draft[context], case.target[context]
        places = [levels[depth].index(node) for node in nodes]
        breaks = own(*pair, tokens[nodes], places, width)
        for uniform, more in breaks.items():
          axes[depth][uniform].extend(more)
    found.append(_product([cells(each) for each in axes]))
  return tuple(padded(part) for part in zip(*found))


def padded(arrays):
  """Stacks arrays of different lengths; behind their ends there is 0."""
  most = max(map(len, arrays))
  return np.stack(
    [
      np.pad(each, [(0, most - len(each))] + [(0, 0)] * (each.ndim - 1))
      for each in arrays
    ]
  )


def _product(levels):
  """Of the cells of independent levels."""
  index = np.indices([len(volumes) for _, volumes in levels])
  index = index.reshape(len(levels), -1)
  points = [points[at] for (points, _), at in zip(levels, index)]
  volumes = [volumes[at] for (_, volumes), at in zip(levels, index)]
  return np.stack(points, 1), np.prod(volumes, axis=0)
