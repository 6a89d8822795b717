"""Prompt lookup: n-grams of the row's own text, and what followed them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import trees
from specjax.drafters import matching
from specjax.drafters import stateless

# Matches that are considered for each draft.
_MATCHES_PER_DRAFT = 8


@components.component
class PromptLookup(stateless.MatchingDrafter):
  """Copies from the row's prompt and output; it takes no parameters.

  A draft is what followed an earlier match of the last tokens: the longest
  match first, and of those the most recent one (prompt lookup decoding, PLD).
  Further drafts are the next ones that begin with another token.

  Attributes:
    draft_length: number of tokens of each chain.
    num_drafts: number of chains.
    max_ngram: number of tokens beyond which a match counts as no longer.
    min_ngram: number of tokens that must match for a draft; other
      implementations of PLD also have such a bound.
  """

  draft_length: int = components.static(default=8)
  num_drafts: int = components.static(default=1)
  _: dataclasses.KW_ONLY
  max_ngram: int = components.static(default=3)
  min_ngram: int = components.static(default=1)

  def __post_init__(self) -> None:
    checks.check_integers('draft_length', self.draft_length, 1)
    checks.check_integers('num_drafts', self.num_drafts, 1)
    checks.check_integers('max_ngram', self.max_ngram, 1)
    checks.check_integers('min_ngram', self.min_ngram, 1, self.max_ngram)

  @functools.cached_property
  def topology(self) -> trees.Topology:
    """The chains."""
    return trees.chains(self.num_drafts, self.draft_length)

  @functools.cached_property
  def longest_match(self) -> int:
    """`max_ngram`."""
    return self.max_ngram

  def look_up(
    self, params: base.Params, context: base.Context
  ) -> stateless.Lookup:
    """Returns what followed earlier matches."""
    del params
    return jax.vmap(self._look_up_row)(context.tokens, context.lengths)

  def _look_up_row(
    self, tokens: jax.Array, length: jax.Array
  ) -> stateless.Lookup:
    """Returns `[N]` tokens after matches in a row of `[S]` tokens."""
    size, num_drafts = len(tokens), self.num_drafts
    matched = matching.match_row(tokens, length, self.max_ngram)
    # As floats, since XLA sorts integers in full on CPU.
    order = (matched * size + np.arange(size)).astype(jnp.float32)
    # Several matches may go on alike: more are considered than are drafted.
    num = 1 if num_drafts == 1 else min(_MATCHES_PER_DRAFT * num_drafts, size)
    _, starts = jax.lax.top_k(order, num)
    continuations = jax.vmap(
      matching.row_continuation, in_axes=(None, None, 0, None)
    )(tokens, length, starts, self.draft_length)
    first = continuations[:, 0]
    repeats = first[:, None] == first[None]
    repeats &= np.tri(num, k=-1, dtype=bool)
    is_new = (matched[starts] >= self.min_ngram) & ~repeats.any(1)
    chosen = jnp.argsort(~is_new)[:num_drafts]
    draft = jnp.where(is_new[chosen, None], continuations[chosen], 0)
    draft = jnp.pad(draft, ((0, num_drafts - len(chosen)), (0, 0)))
    valid = jnp.pad(is_new[chosen], (0, num_drafts - len(chosen)))
    return stateless.Lookup(
      draft.T.ravel(), jnp.tile(valid, self.draft_length), matched[starts[0]]
    )
