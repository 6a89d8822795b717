"""Suffix decoding: drafts are as long as the match deserves.

SuffixDecoding (Oliaro et al. 2024), where matches are searched anew in place of
suffix trees that are kept.
"""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import trees
from specjax.data import datastore as datastore_lib
from specjax.drafters import matching
from specjax.drafters import stateless


@components.component
class Suffix(stateless.MatchingDrafter):
  """Drafts the longer, the longer a match in the row or in a corpus is.

  All positions with the longest match, in the row's prompt and output and in
  the corpus, vote on the draft token by token; the row's own, most recent
  first, win ties. Its parameters are a `Datastore` of the target's tokens, or
  None to match only the row's own text.

  Attributes:
    draft_length: largest number of tokens of each chain.
    num_drafts: number of chains, which begin with different tokens.
    max_match: number of tokens beyond which a match counts as no longer, at
      most `datastore.DEPTH`; it bounds the depth of the paper's suffix trees.
    factor: number of drafted tokens per token that matched, above 0; `alpha` in
      the paper.
    num_samples: largest number of positions that vote, in the row and in the
      corpus each.
  """

  draft_length: int = components.static(default=8)
  num_drafts: int = components.static(default=1)
  _: dataclasses.KW_ONLY
  max_match: int = components.static(default=16)
  factor: float = 1.0

  num_samples: ClassVar[int] = 16

  def __post_init__(self) -> None:
    checks.check_integers('draft_length', self.draft_length, 1)
    checks.check_integers('max_match', self.max_match, 1, datastore_lib.DEPTH)
    checks.check_positive('factor', self.factor)
    checks.check_integers('num_drafts', self.num_drafts, 1)

  @functools.cached_property
  def topology(self) -> trees.Topology:
    """The chains."""
    return trees.chains(self.num_drafts, self.draft_length)

  @functools.cached_property
  def longest_match(self) -> int:
    """`max_match`."""
    return self.max_match

  def look_up(
    self, params: base.Params, context: base.Context
  ) -> stateless.Lookup:
    """Returns the continuations of the longest matches."""
    if params is not None:
      matching.check_store(params, 'suffix')
    look_up_rows = jax.vmap(self._look_up_row, in_axes=(None, 0, 0))
    return look_up_rows(params, context.tokens, context.lengths)

  def _look_up_row(
    self,
    store: datastore_lib.Datastore | None,
    tokens: jax.Array,
    length: jax.Array,
  ) -> stateless.Lookup:
    """Returns `[N]` tokens after matches of a row of `[S]` tokens."""
    continuations, matched = self._row_matches(tokens, length)
    if store is not None:
      in_corpus = self._corpus_matches(store, tokens, length)
      continuations = jnp.concatenate([continuations, in_corpus[0]])
      matched = jnp.concatenate([matched, in_corpus[1]])
    longest = matched.max()
    weights = (matched == longest) & (longest > 0)
    draft, valid = matching.vote(continuations, weights, self.topology)
    max_depth = self.factor * longest.astype(jnp.float32)
    within = self.topology.depths.astype(np.float32) <= max_depth
    return stateless.Lookup(
      jnp.where(within, draft, 0), valid & within, longest
    )

  def _row_matches(
    self, tokens: jax.Array, length: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what followed the longest matches in the row, and their length.

    Returns:
      `[M, D]` continuations, and `[M]` numbers of tokens that matched; 0 where
      there is no match.
    """
    matched = matching.match_row(tokens, length, self.max_match)
    longest = matched.max()
    # The most recent ones; as floats, since XLA sorts integers in full on CPU.
    index = np.arange(len(tokens), dtype=np.float32)
    recency = jnp.where(matched == longest, index, -1.0)
    num = min(self.num_samples, len(tokens))
    recency, starts = jax.lax.top_k(recency, num)
    continuations = jax.vmap(
      matching.row_continuation, in_axes=(None, None, 0, None)
    )(tokens, length, starts, self.topology.depth)
    return continuations, jnp.where(recency >= 0, longest, 0)

  def _corpus_matches(
    self, store: datastore_lib.Datastore, tokens: jax.Array, length: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what followed the longest matches in the corpus; as above."""
    match = matching.match_corpus(store, tokens, length, self.max_match)
    continuations, exists = matching.corpus_continuations(
      store, match, self.num_samples, self.topology.depth
    )
    return continuations, jnp.where(exists, match.length, 0)
