"""Retrieval: what followed the row's last tokens in a corpus.

REST (He et al. 2024).
"""

import dataclasses
import functools
from typing import ClassVar

import jax

from specjax import base
from specjax import checks
from specjax import components
from specjax import trees
from specjax.data import datastore as datastore_lib
from specjax.drafters import matching
from specjax.drafters import stateless


@components.component
class Retrieval(stateless.MatchingDrafter):
  """Drafts what followed the longest match in a `Datastore`.

  Its parameters are the `Datastore`, of the target's tokens.

  Attributes:
    topology: the tree of the most frequent continuations, at least one node.
    max_match: number of tokens of the longest suffix that is looked up, as in
      the paper, at most `datastore.DEPTH`.
    num_samples: number of matches that are considered, evenly spaced in the
      index where there are more.
  """

  topology: trees.Topology = components.static()
  _: dataclasses.KW_ONLY
  max_match: int = components.static(default=16)

  num_samples: ClassVar[int] = 32

  def __post_init__(self) -> None:
    checks.check_range('nodes of topology', self.topology.num_nodes, 1)
    checks.check_integers('max_match', self.max_match, 1, datastore_lib.DEPTH)

  @functools.cached_property
  def longest_match(self) -> int:
    """`max_match`."""
    return self.max_match

  def look_up(
    self, params: base.Params, context: base.Context
  ) -> stateless.Lookup:
    """Returns the most frequent continuations."""
    matching.check_store(params, 'retrieval')
    look_up_rows = jax.vmap(self._look_up_row, in_axes=(None, 0, 0))
    return look_up_rows(params, context.tokens, context.lengths)

  def _look_up_row(
    self, store: datastore_lib.Datastore, tokens: jax.Array, length: jax.Array
  ) -> stateless.Lookup:
    """Returns `[N]` tokens after matches of a row of `[S]` tokens."""
    match = matching.match_corpus(store, tokens, length, self.max_match)
    continuations, exists = matching.corpus_continuations(
      store, match, self.num_samples, self.topology.depth
    )
    weights = exists & (match.length > 0)
    draft = matching.vote(continuations, weights, self.topology)
    return stateless.Lookup(*draft, match.length)
