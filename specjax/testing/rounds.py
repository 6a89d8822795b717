"""All drafts of a tree on two small Markov models, and what a round becomes."""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax.goals import apply as goal_lib
from specjax.testing import distributions

ROOT = 0  # the last committed token


@functools.cache
def tables(vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns transition tables of draft and target, `[V, V]` float32 each.

  The total variation is above 0.1 in each context, and of three tokens or more,
  not just one is in the residual: there, its weights matter.
  """
  rng = np.random.default_rng(264 + vocab_size)
  draft = distributions.random_table(rng, vocab_size, vocab_size)
  return draft, distributions.random_table(rng, vocab_size, vocab_size)


@dataclasses.dataclass(frozen=True)
class Case:
  """A tree on two models: all of its drafts, and how likely each is.

  Attributes:
    topology: of the tree.
    vocab_size: `V`.
    valid: of each node; all by default.
    chosen: tokens of a deterministic draft, or None for a sampled one.
    goal: the goal, also evaluated on tables of NumPy, or None for the target.
  """

  topology: trees.Topology
  vocab_size: int = 3
  valid: tuple[bool, ...] | None = None
  chosen: tuple[int, ...] | None = None
  goal: base.Goal | None = None

  @property
  def is_valid(self) -> np.ndarray:
    """`[N]` bool."""
    num_nodes = self.topology.num_nodes
    return np.array(self.valid or [True] * num_nodes, bool)

  @functools.cached_property
  def draft(self) -> np.ndarray:
    """`[V, V]` float64, of a sampled draft."""
    return normalised(tables(self.vocab_size)[0])

  @functools.cached_property
  def target(self) -> np.ndarray:
    """`[V, V]` float64, the distributions that the verifier must sample."""
    target: Any = normalised(tables(self.vocab_size)[1])
    draft: Any = self.draft
    if self.goal is None:
      return target
    return np.asarray(self.goal(target, draft, base.RawProbs(target, draft)))

  @functools.cached_property
  def drafts(self) -> np.ndarray:
    """`[n, N]` tokens of all trees that can be drafted."""
    tokens = range(self.vocab_size)
    every = itertools.product(tokens, repeat=self.topology.num_nodes)
    return np.array([self.chosen] if self.chosen else list(every), int)

  @functools.cached_property
  def before(self) -> np.ndarray:
    """`[n, N]` the token that each node follows."""
    return np.pad(self.drafts, ((0, 0), (0, 1)), constant_values=ROOT)[
      :, np.array(self.topology.parents, int)
    ]

  @functools.cached_property
  def node_probs(self) -> np.ndarray:
    """`[n, N, V]` the distribution of each node's draft."""
    if self.chosen:
      return np.eye(self.vocab_size)[self.drafts]
    return self.draft[self.before]

  @property
  def weights(self) -> np.ndarray:
    """`[n]` probabilities of the drafts."""
    chances = np.take_along_axis(self.node_probs, self.drafts[..., None], 2)
    return chances[..., 0].prod(axis=1)

  @property
  def want(self) -> np.ndarray:
    """`[V**(D + 1)]` distribution of a completed round."""
    return distributions.sequence_probs(
      self.target, ROOT, self.topology.depth + 1
    )

  def candidates(
    self, depth: int, context: int, counts: tuple[int, ...]
  ) -> Iterator[tuple[np.ndarray, int]]:
    """Yields distributions of active candidates of a level, and how many.

    Args:
      depth: of the level; behind the last one, there are none.
      context: the token before.
      counts: how many may be active.
    """
    choices = np.eye(self.vocab_size)
    drafts = choices if self.chosen else self.draft[[context]]
    nums = counts if depth < self.topology.depth else (0,)
    return itertools.product(drafts, nums)

  def tree(
    self, tokens: jax.Array, valid: jax.Array | None = None
  ) -> base.DraftTree:
    """Returns one row's tree, as a drafter would report it.

    Args:
      tokens: `[N]`.
      valid: `[N]` bool, where it is not that of the case.
    """
    before = jnp.append(tokens, ROOT)[np.array(self.topology.parents, int)]
    draft = jnp.asarray(tables(self.vocab_size)[0])
    leaves = draft[jnp.append(ROOT, tokens)[self.topology.leaf_entries]]
    return base.DraftTree(
      tokens,
      self.topology,
      jnp.asarray(self.is_valid) if valid is None else valid,
      None if self.chosen else draft[before],
      bonus_probs=base.Probs(leaves, leaves),
    )

  def verify(
    self,
    verifier: base.Verifier,
    key: jax.Array,
    tokens: jax.Array,
    valid: jax.Array | None = None,
  ) -> base.Outcome:
    """Returns the outcome of one row's tree. See `tree` for the arguments."""
    tree = self.tree(tokens, valid)
    target = jnp.asarray(tables(self.vocab_size)[1])
    probs = target[jnp.append(ROOT, tokens)]
    if self.goal is not None:
      probs = goal_lib.probs(self.goal, tree, base.Probs(probs, probs))
    return verifier(key, tree, probs)


def complete(
  tokens: np.ndarray,
  num_accepted: np.ndarray,
  weights: np.ndarray,
  table: np.ndarray,
) -> np.ndarray:
  """Returns `[V**T]` sums of the weights of rounds that a table continues.

  A round's length depends on its tokens, so rounds of one length do not have
  the target's distribution: what has it is a round and what follows.

  Args:
    tokens: `[n, T]` of each round, of which `num_accepted + 1` count.
    num_accepted: `[n]`.
    weights: `[n]`, such as the probabilities of the rounds.
    table: `[V, V]` of what follows.
  """
  vocab_size, length = len(table), tokens.shape[1]
  probs = np.zeros(vocab_size**length)
  for num in range(1, length + 1):
    rows = num_accepted + 1 == num
    cells = np.ravel_multi_index(
      tuple(tokens[rows, :num].T), (vocab_size,) * num
    )
    mass = np.bincount(cells, weights[rows], vocab_size**num)
    for _ in range(num, length):
      mass = (mass.reshape(-1, vocab_size, 1) * table).ravel()
    probs += mass
  return probs


def normalised(table: np.ndarray) -> np.ndarray:
  """Returns the table in float64, with rows of mass 1."""
  table = table.astype(np.float64)
  return table / table.sum(axis=-1, keepdims=True)
