"""Exact distributions of verifiers on tiny Markov models.

All drafts are enumerated, and the uniforms integrated over the cells that the
oracles' breakpoints cut out of the unit cube.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax.testing import rounds
from tests import oracles
from tests import parts
from tests.oracles import enumeration

ROOT, Case = rounds.ROOT, rounds.Case


# A goal that is neither model's distribution.
HALF = parts.FunctionGoal(lambda target, draft, raw: (target + draft) / 2)


@dataclasses.dataclass(frozen=True)
class Joint(rounds.Case):
  """The trees of several members under one root, with different distributions.

  Attributes:
    members: The drafter of each node: 'draft'; 'other', which never repeats a
      token; or 'chosen', which does not sample.
  """

  members: tuple[str, ...] = ()

  @functools.cached_property
  def tables(self):
    """Returns the tables of all nodes, `[N, V, V]` float64."""
    identity = np.eye(self.vocab_size)
    tables = {
      'draft': self.draft,
      'other': rounds.normalize(self.draft[::-1] * (1 - identity)),
      'chosen': np.roll(identity, 1, axis=1),
    }
    return np.stack([tables[name] for name in self.members])

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
    return self.tables[nodes, self.parent_tokens]

  def tree(self, tokens, valid=None):
    nodes = np.arange(self.topology.num_nodes)
    parent_tokens = jnp.append(tokens, ROOT)[
      np.array(self.topology.parents, int)
    ]
    probs = jnp.asarray(self.tables, jnp.float32)[nodes, parent_tokens]
    valid = jnp.asarray(self.is_valid) if valid is None else valid
    return base.DraftTree(tokens, self.topology, valid, probs)


def joint(members, vocab_size=3, valid=None):
  """Returns the case that joins one topology per name in `members`."""
  topology, nodes = trees.join(members.values())
  names = np.empty(topology.num_nodes, object)
  for name, member_nodes in zip(members, nodes):
    names[member_nodes] = name
  return Joint(topology, vocab_size, valid, members=tuple(names))


class Integral(NamedTuple):
  """What a verifier does: `n` drafts, `C` cells."""

  probs: np.ndarray  # [V**(D + 1)] of the completed round
  outcome: base.Outcome  # [n, C, ...]
  mass: np.ndarray  # [n, C] probabilities

  @property
  def reach(self):
    """`[D]` probabilities that 1, 2, ... tokens are accepted."""
    depths = np.arange(self.outcome.tokens.shape[-1] - 1)
    longer = self.outcome.num_accepted[..., None] > depths
    return np.einsum('nc,ncd->d', self.mass, longer)

  def endings(self, vocab_size):
    """`[n, D + 1, V]` probabilities of a draft, accepted tokens and the next.

    On a chain, where the accepted tokens are the draft's first ones.
    """
    num, tokens = self.outcome.num_accepted, self.outcome.tokens
    next_tokens = np.take_along_axis(tokens, num[..., None], axis=-1)[..., 0]
    endings = np.zeros((len(num), tokens.shape[-1], vocab_size))
    np.add.at(
      endings, (np.arange(len(num))[:, None], num, next_tokens), self.mass
    )
    return endings


def integrate(
  case, verifier, points, volumes, *, parameters=(), drafts=None
) -> Integral:
  """Sums over all drafts and all cells of the uniforms.

  Args:
    case: The drafts and the target to verify.
    verifier: Receives `points` as its key. Splitting the key yields the entries
      of its first axis, and drawing uniforms yields the entries themselves.
      Trailing uniforms that do not matter may be missing.
    points: `[n, C, ..., 2]` for each draft, or a tuple of such arrays.
    volumes: `[n, C]`.
    parameters: Arguments of `verifier`, which is then a factory of verifiers
      that share one program.
    drafts: `[n, N]` and their probabilities `[n]`; by default all drafts of the
      case.
  """
  tokens, weights = drafts or (case.drafts, case.weights)
  join_halves = lambda low, high: np.concatenate([low, high], axis=1)
  points = jax.tree.map(
    lambda leaf: join_halves(leaf[..., 0], leaf[..., 1]), points
  )
  volumes = join_halves(volumes / 2, volumes / 2)
  nonzero = np.nonzero(volumes)
  rows = jax.tree.map(lambda leaf: np.float32(leaf[nonzero]), points)
  tokens = np.int32(tokens[nonzero[0]])
  shared = case.is_valid, tuple(map(np.float32, parameters))
  results = _program(verifier, case)((rows, tokens), shared)
  index = np.zeros(volumes.shape, int)
  index[nonzero] = np.arange(len(tokens))
  # Missing cells repeat the first cell of their draft.
  index = np.where(volumes > 0, index, index[:, :1])
  outcome = jax.tree.map(lambda leaf: leaf[index], results)
  mass = weights[:, None] * volumes
  probs = rounds.complete(
    outcome.tokens.reshape(-1, case.topology.depth + 1),
    outcome.num_accepted.ravel(),
    mass.ravel(),
    case.target,
  )
  return Integral(probs, outcome, mass)


def _program(verifier, case):
  """The compiled verifier, shared by cases that differ in what is valid."""
  if type(case) not in (Case, Joint):  # Equal ones may differ.
    return _compiled(verifier, case)
  chosen = case.chosen and (0,) * len(case.chosen)
  shared = dataclasses.replace(case, chosen=chosen, valid=None)
  return _shared_program(verifier, shared)


def _compiled(verifier, case):
  def verify(key, tokens, valid, parameters):
    rule = verifier(*parameters) if parameters else verifier
    return case.verify(rule, key, tokens, valid)

  return enumeration.compiled(verify)


_shared_program = functools.cache(_compiled)


def contexts(case, tokens):
  """Yields `(depth, parent token, active nodes)` for each step of a walk."""
  parents = np.array(case.topology.parents)
  steps = [(ROOT, [-1])]
  for depth in range(case.topology.depth + 1):
    longer = []
    for context, parent_nodes in steps:
      of_level = case.topology.depths == depth + 1
      nodes = np.flatnonzero(
        of_level & case.is_valid & np.isin(parents, parent_nodes)
      )
      yield depth, context, nodes
      for token in np.unique(tokens[nodes]):
        longer.append((token, nodes[tokens[nodes] == token]))
    steps = longer


def union(*functions):
  """Returns the breakpoints of several rules with equal numbers of uniforms."""

  def breakpoints(*args):
    breakpoint_lists = (function(*args) for function in functions)
    return [np.concatenate(steps) for steps in zip(*breakpoint_lists)]

  return breakpoints


def walk_cells(
  case,
  breakpoints=oracles.maximal.breakpoints,
  *,
  sibling_probs=False,
  only_sampled=True,
):
  """Returns uniforms `[n, C, levels, U, 2]` and volumes `[n, C]` per draft.

  Given the candidates, uniforms have few breakpoints: those of the contexts in
  which the verifier tests them.

  Args:
    case: The drafts and the target to verify.
    breakpoints: The function of an oracle, for the active candidates of a
      level; or a list with one function for each level that has uniforms. By
      default these are all levels and the bonus token.
    sibling_probs: Each candidate has its own distribution.
    only_sampled: Exclude nodes that were not sampled from the candidates.
  """
  levels = [*map(list, case.topology.levels), []]
  width = max(1, *map(len, levels))
  if callable(breakpoints):
    breakpoints = [breakpoints] * len(levels)
  grids = []
  for tokens, probs in zip(case.drafts, case.node_probs):
    steps = [[] for _ in breakpoints]
    for depth, context, nodes in contexts(case, tokens):
      if depth == len(steps):
        break
      nodes = nodes[:0] if only_sampled and case.chosen else nodes
      draft = case.draft[context]
      if sibling_probs and len(nodes):
        draft = probs[nodes]
      slots = [levels[depth].index(node) for node in nodes]
      args = draft, case.target[context], tokens[nodes], slots, width
      steps[depth].append(breakpoints[depth](*args))
    # If a level is not reached, its uniforms do not matter.
    steps = [level or [[[]] * len(steps[0][0])] for level in steps]
    grids.append(
      enumeration.product(
        [
          enumeration.cells([np.concatenate(axis) for axis in zip(*level)])
          for level in steps
        ]
      )
    )
  return padded(grids)


def padded(grids):
  """Stacks cells of several cases and pads them with cells of volume 0."""
  max_cells = max(len(volumes) for _, volumes in grids)
  stack = lambda arrays: np.stack(
    [
      np.pad(leaf, [(0, max_cells - len(leaf))] + [(0, 0)] * (leaf.ndim - 1))
      for leaf in arrays
    ]
  )
  return tuple(map(stack, zip(*grids)))
