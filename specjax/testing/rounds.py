"""Enumerates drafts of a tree on two small Markov models, and verifies them."""

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

# The last committed token.
ROOT = 0


@functools.cache
def tables(vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns transition tables of draft and target, `[V, V]` float32 each.

  The total variation is above 0.1 in each context. With three or more tokens,
  the residual has several tokens, so that its weights matter.
  """
  rng = np.random.default_rng(264 + vocab_size)
  draft = distributions.random_table(rng, vocab_size, vocab_size)
  return draft, distributions.random_table(rng, vocab_size, vocab_size)


@dataclasses.dataclass(frozen=True)
class Case:
  """All drafts of a tree on two models, with their probabilities.

  Attributes:
    topology: topology of the tree.
    vocab_size: `V`.
    valid: whether each node is valid; all by default.
    chosen: tokens of a deterministic draft, or None for a sampled one.
    goal: the goal, which must accept NumPy arrays, or None for the target.
  """

  topology: trees.Topology
  vocab_size: int = 3
  valid: tuple[bool, ...] | None = None
  chosen: tuple[int, ...] | None = None
  goal: base.Goal | None = None

  @property
  def is_valid(self) -> np.ndarray:
    """`[N]` bool, whether each node is valid."""
    num_nodes = self.topology.num_nodes
    return np.array(self.valid or [True] * num_nodes, bool)

  @functools.cached_property
  def draft(self) -> np.ndarray:
    """`[V, V]` float64, distributions of a sampled draft."""
    return normalize(tables(self.vocab_size)[0])

  @functools.cached_property
  def target(self) -> np.ndarray:
    """`[V, V]` float64, the distributions that the verifier must sample."""
    target: Any = normalize(tables(self.vocab_size)[1])
    draft: Any = self.draft
    if self.goal is None:
      return target
    return np.asarray(self.goal(target, draft, base.RawProbs(target, draft)))

  @functools.cached_property
  def drafts(self) -> np.ndarray:
    """`[n, N]` tokens of all trees that can be drafted."""
    if self.chosen:
      return np.array([self.chosen], int)
    tokens = range(self.vocab_size)
    drafts = itertools.product(tokens, repeat=self.topology.num_nodes)
    return np.array(list(drafts), int)

  @functools.cached_property
  def parent_tokens(self) -> np.ndarray:
    """`[n, N]` the token of each node's parent."""
    return np.pad(self.drafts, ((0, 0), (0, 1)), constant_values=ROOT)[
      :, np.array(self.topology.parents, int)
    ]

  @functools.cached_property
  def node_probs(self) -> np.ndarray:
    """`[n, N, V]` the distribution from which each node is drawn."""
    if self.chosen:
      return np.eye(self.vocab_size)[self.drafts]
    return self.draft[self.parent_tokens]

  @property
  def weights(self) -> np.ndarray:
    """`[n]` probabilities of the drafts."""
    probs = np.take_along_axis(self.node_probs, self.drafts[..., None], 2)
    return probs[..., 0].prod(axis=1)

  @property
  def expected(self) -> np.ndarray:
    """`[V**(D + 1)]` distribution of a completed round under the target."""
    return distributions.sequence_probs(
      self.target, ROOT, self.topology.depth + 1
    )

  def candidates(
    self, depth: int, context: int, counts: tuple[int, ...]
  ) -> Iterator[tuple[np.ndarray, int]]:
    """Yields pairs of a distribution of candidates and a number of them.

    Args:
      depth: depth of the level; past the last one, the number is 0.
      context: the token before the level.
      counts: possible numbers of active candidates.
    """
    choices = np.eye(self.vocab_size)
    drafts = choices if self.chosen else self.draft[[context]]
    nums = counts if depth < self.topology.depth else (0,)
    return itertools.product(drafts, nums)

  def tree(
    self, tokens: jax.Array, valid: jax.Array | None = None
  ) -> base.DraftTree:
    """Returns the tree of one row, as a drafter returns it.

    Args:
      tokens: `[N]`.
      valid: `[N]` bool; by default that of the case.
    """
    parent_tokens = jnp.append(tokens, ROOT)[
      np.array(self.topology.parents, int)
    ]
    draft = jnp.asarray(tables(self.vocab_size)[0])
    leaves = draft[jnp.append(ROOT, tokens)[self.topology.leaf_entries]]
    return base.DraftTree(
      tokens,
      self.topology,
      jnp.asarray(self.is_valid) if valid is None else valid,
      None if self.chosen else draft[parent_tokens],
      bonus_probs=base.Probs(leaves, leaves),
    )

  def verify(
    self,
    verifier: base.Verifier,
    key: jax.Array,
    tokens: jax.Array,
    valid: jax.Array | None = None,
  ) -> base.Outcome:
    """Returns the outcome of one row.

    Args:
      verifier: the verifier.
      key: random key.
      tokens: See `tree`.
      valid: See `tree`.
    """
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
  """Returns `[V**T]` weights of sequences that begin with a round.

  The length of a round depends on its tokens, so that rounds of one length do
  not have the target's distribution. A round that is completed to `T` tokens by
  the target has it.

  Args:
    tokens: `[n, T]` tokens of each round, of which `num_accepted + 1` count.
    num_accepted: `[n]`.
    weights: `[n]` weights, such as the probabilities of the rounds.
    table: `[V, V]` transition probabilities that complete a round.
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


def normalize(table: np.ndarray) -> np.ndarray:
  """Returns a table in float64, with rows that sum to 1."""
  table = table.astype(np.float64)
  return table / table.sum(axis=-1, keepdims=True)
