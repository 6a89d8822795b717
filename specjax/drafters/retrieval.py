"""Retrieval: what followed the row's last tokens in a corpus.

REST (He et al. 2024).
"""

import jax

from specjax import base
from specjax import checks
from specjax import registry
from specjax import trees
from specjax.data import datastore as datastore_lib
from specjax.drafters import matching
from specjax.drafters import stateless


@registry.component(
  params=lambda: datastore_lib.build([[0, 1, 2, 1, 0, 2, 2, 1]], progress=False)
)
def retrieval(
  topology: trees.Topology,
  *,
  max_match: int = 16,
  min_match: int = 1,
  num_samples: int = 32,
) -> base.Drafter:
  """Builds a drafter that looks the longest match up in a `Datastore`.

  Args:
    topology: the tree of the most frequent continuations, at least one node.
    max_match: tokens beyond which a match counts as no longer, at most
      `datastore.DEPTH`.
    min_match: tokens that must match for a draft.
    num_samples: matches that are looked at, evenly spaced in the index, where
      there are more.

  Returns:
    The drafter; its parameters are a `Datastore`, of the target's tokens.
  """
  checks.check_range('nodes of topology', topology.num_nodes, 1)
  checks.check_range('max_match', max_match, 1, datastore_lib.DEPTH)
  checks.check_range('min_match', min_match, 1, max_match)
  checks.check_range('num_samples', num_samples, 1)

  def from_row(store, tokens, length):
    found = matching.in_corpus(store, tokens, length, max_match)
    continuations, there = matching.corpus_continuations(
      store, found, num_samples, topology.depth
    )
    weights = there & (found.length >= min_match)
    return matching.vote(continuations, weights, topology)

  def propose(store, context):
    matching.check_store(store, 'retrieval')
    rows = jax.vmap(from_row, in_axes=(None, 0, 0))
    return rows(store, context.tokens, context.lengths)

  return stateless.stateless(topology, propose)
