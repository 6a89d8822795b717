"""Lookahead decoding: n-grams from the target's guesses at later positions.

Fu et al. (2024, arXiv:2402.02057). Nothing is trained, and no model drafts.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import trees
from specjax.drafters import acceptance_estimate

# In place of the first token of an n-gram that is no longer in the pool.
_REPLACED = -1


class LookaheadState(NamedTuple):
  """The window of guesses and the pool of n-grams of each row."""

  guesses: jax.Array  # [B, ngram - 1, window] int32, by level and column
  ngrams: jax.Array  # [B, S, ngram] int32, a ring
  num_ngrams: jax.Array  # [B] int32, how many have entered the pool


@components.component
class Lookahead(base.Drafter):
  """Drafts n-grams from a pool, next to a window of guesses that fills it.

  The window has `ngram - 1` levels and `window` columns. The guess on level `i`
  of column `j` is for position `i + j` after the last token, which takes the
  place of the guess on level 0 of column 0. In the tree, level 0 is a chain,
  and the other levels of a column are a chain below its level 0. The target
  predicts what follows each column: the column and this prediction are an
  n-gram, which enters the pool. The predictions become the last level, the
  other levels move up by one, and so the window moves on by one position, as a
  Jacobi iteration does, however many tokens the round has accepted. The tree
  also has the candidates: the newest n-grams in the pool that begin with the
  last token.

  As in the authors' code (`ALWAYS_FWD_ONE`), guesses are the target's likeliest
  tokens at any temperature. The differences are:

  - at the start, the guess for the first position of the window is the prompt's
    last token, and the prompt, repeated, follows: level 1 begins with its first
    token, level 2 with its second, and so on. In their code, level 0 starts
    with random tokens of the prompt, and the other levels are filled in rounds
    without candidates;
  - of n-grams with the same two first tokens, the pool keeps only the newest,
    since siblings in a tree are different;
  - guesses in the window may be accepted as candidates are. A guess that
    repeats a sibling is scored, but cannot be accepted;
  - a stop token may stay in the window.

  The window stays as it is in rounds that another arm has drafted: a call
  counts if it has scored exactly the tree that the state drafts.

  Attributes:
    window: number of columns, at least 1; `W` in the paper.
    ngram: number of tokens of an n-gram, at least 2; `N` in the paper.
    candidates: number of n-grams that are drafted, at least 1; `G` in the
      paper. The defaults are those in the authors' example.
  """

  _: dataclasses.KW_ONLY
  window: int = components.static(default=7)
  ngram: int = components.static(default=5)
  candidates: int = components.static(default=7)

  can_estimate = True
  num_likeliest = 1
  siblings = base.Siblings.CHOSEN
  greedy = True

  def __post_init__(self) -> None:
    checks.check_integers('window', self.window, 1)
    checks.check_integers('ngram', self.ngram, 2)
    checks.check_integers('candidates', self.candidates, 1)

  @functools.cached_property
  def guess_index(self) -> tuple[np.ndarray, np.ndarray]:
    """Level and column of the guesses in the tree, in the order of its nodes.

    The guess in the root's place is not among them.
    """
    guesses = [
      (level, column)
      for level in range(self.ngram - 1)
      for column in range(self.window)
    ]
    guesses.sort(key=lambda guess: (sum(guess), guess))
    levels, columns = np.array(guesses).T
    return levels[1:], columns[1:]

  @functools.cached_property
  def _joined(self) -> tuple[trees.Topology, tuple[np.ndarray, ...]]:
    """The tree, and which nodes the candidates and the guesses have in it."""
    number = {(0, 0): -1}
    parents = list[int]()
    for node, (level, column) in enumerate(zip(*self.guess_index)):
      number[level, column] = node
      above = (level - 1, column) if level else (0, column - 1)
      parents.append(number[above])
    return trees.join(
      [
        trees.chains(self.candidates, self.ngram - 1),
        trees.Topology(tuple(parents)),
      ]
    )

  @functools.cached_property
  def topology(self) -> trees.Topology:
    """The candidates and the window under one root."""
    return self._joined[0]

  @functools.cached_property
  def last_entries(self) -> np.ndarray:
    """`[window]` the entry after which the target predicts each column."""
    levels, columns = self.guess_index
    _, (_, nodes) = self._joined
    entries = np.zeros(self.window, np.int32)  # The root, unless it is a guess.
    is_last = levels == self.ngram - 2
    entries[columns[is_last]] = nodes[is_last] + 1
    return entries

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> LookaheadState:
    """Returns windows of the prompts' tokens, and empty pools."""
    del params
    shape = self.ngram - 1, self.window
    levels, columns = np.indices(shape, np.int32)
    offsets = jnp.asarray(levels + columns - 1).ravel()
    positions = offsets[None] % context.lengths[:, None]
    guesses = trees.at_entries(context.tokens, positions)
    rows = len(context.lengths)
    # All n-grams of a text, as each round emits a token.
    size = max_length * max(self.window, self.candidates)
    return LookaheadState(
      guesses.reshape(rows, *shape),
      jnp.full((rows, size, self.ngram), _REPLACED, jnp.int32),
      jnp.zeros(rows, jnp.int32),
    )

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: LookaheadState,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    """Drafts the candidates for the last token, and the window."""
    del keys, params
    last = context.last_tokens()[:, 0]
    tokens, valid = jax.vmap(self._draft_row)(state, last)
    return base.DraftTree(tokens, self.topology, valid, probs=None), ()

  def _draft_row(
    self, state: LookaheadState, last: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns `[N]` tokens and which are valid."""
    topology, nodes = self._joined
    order = np.argsort(np.concatenate(nodes))
    found, is_found = self._look_up(state, last)
    guesses = state.guesses[self.guess_index]
    tokens = jnp.append(found.T.ravel(), guesses)[order]
    exists = jnp.append(
      jnp.tile(is_found, self.ngram - 1), jnp.ones_like(guesses, bool)
    )[order]
    # Candidates come first in each level, then level 0 of the window.
    parents = np.array(topology.parents)
    is_sibling_before = parents[:, None] == parents[None]
    is_sibling_before &= np.tri(len(parents), k=-1, dtype=bool)
    repeats = (tokens[:, None] == tokens[None]) & is_sibling_before
    is_new = exists & ~(repeats & exists[None]).any(1)
    return tokens, (is_new[None] | ~topology.mask[1:, 1:]).all(1)

  def _look_up(
    self, state: LookaheadState, token: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Finds the newest n-grams of a row that begin with a token.

    Returns:
      `[candidates, ngram - 1]` the tokens that follow it, whose first ones
      differ, and `[candidates]` which of them exist.
    """
    size = len(state.ngrams)
    # That of the newest n-gram is the largest.
    recency = (jnp.arange(size) - state.num_ngrams) % size
    recency = jnp.where(state.ngrams[:, 0] == token, recency, -1)
    # As floats, since XLA sorts integers in full on CPU.
    newest, slots = jax.lax.top_k(recency.astype(jnp.float32), self.candidates)
    is_found = newest >= 0
    return jnp.where(is_found[:, None], state.ngrams[slots, 1:], 0), is_found

  def observe(
    self, state: LookaheadState, scored: base.Scored, rows: jax.Array
  ) -> LookaheadState:
    """Moves the windows on, and puts their n-grams into the pools."""
    return jax.vmap(self._observe_row)(state, scored, rows)

  def _observe_row(
    self, state: LookaheadState, scored: base.Scored, is_live: jax.Array
  ) -> LookaheadState:
    """Returns a row's window and pool after a call of the target."""
    nodes = slice(1, self.topology.num_nodes + 1)
    tokens, valid = self._draft_row(state, scored.tokens[0])
    same_tokens = (scored.tokens[nodes] == tokens).all()
    same_nodes = (scored.valid[nodes] == valid).all()
    moves_on = same_tokens & same_nodes & is_live
    guesses = state.guesses.at[0, 0].set(scored.tokens[0])
    predicted = scored.likeliest[self.last_entries, 0]
    columns = jnp.concatenate([guesses, predicted[None]])  # [ngram, window]
    return LookaheadState(
      jnp.where(moves_on, columns[1:], state.guesses),
      _push(state.ngrams, state.num_ngrams, columns.T, moves_on),
      state.num_ngrams + jnp.where(moves_on, self.window, 0),
    )

  def estimate(
    self,
    params: base.Params,
    state: LookaheadState,
    context: base.Context,
    rows: jax.Array,
    target: base.TargetProbs,
  ) -> tuple[LookaheadState, jax.Array, base.Probs]:
    """Returns the target's mass on what would be drafted at each position.

    At the first one, these are the candidates and the guesses; at the others,
    the candidates that are in the pool before the round.
    """
    del params
    before = acceptance_estimate.tokens_before(context, target)
    found, is_found = jax.vmap(jax.vmap(self._look_up, (None, 0)))(
      state, before
    )
    mass = acceptance_estimate.mass(target, found[..., 0], is_found)
    first = self.topology.levels[0]
    tokens, valid = jax.vmap(self._draft_row)(state, before[:, 0])
    at_start = jax.tree.map(lambda probs: probs[:, :1], target.probs)
    mass_at_start = acceptance_estimate.mass(
      base.TargetProbs(target.start, at_start),
      tokens[:, None, first],
      valid[:, None, first],
    )
    acceptance = jax.tree.map(
      lambda later, start: later.at[:, :1].set(start), mass, mass_at_start
    )
    return state, jnp.zeros_like(rows, jnp.int32), acceptance


def _push(
  ngrams: jax.Array, num_ngrams: jax.Array, new: jax.Array, moves_on: jax.Array
) -> jax.Array:
  """Puts n-grams into a row's pool, in place of those that begin alike.

  Args:
    ngrams: `[S, ngram]` the pool.
    num_ngrams: `[]` int32, how many have entered it.
    new: `[window, ngram]`, the newest last.
    moves_on: `[]` bool; if it is false, the pool stays as it is.
  """
  size, num_new = len(ngrams), len(new)
  begin_alike = lambda old: (old[:, None, :2] == new[None, :, :2]).all(-1)
  is_replaced = begin_alike(ngrams).any(1) & moves_on
  is_later = np.triu(np.ones((num_new, num_new), bool), k=1)
  is_repeated = (begin_alike(new) & is_later).any(1)
  new = new.at[:, 0].set(jnp.where(is_repeated, _REPLACED, new[:, 0]))
  first = jnp.where(is_replaced, _REPLACED, ngrams[:, 0])
  slots = (num_ngrams + np.arange(num_new, dtype=np.int32)) % size
  slots = jnp.where(moves_on, slots, size)  # Nothing is written there.
  return ngrams.at[:, 0].set(first).at[slots].set(new, mode='drop')
