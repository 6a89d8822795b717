"""Suffix decoding: as far as the match is long, from own text and a corpus.

SuffixDecoding (Oliaro et al. 2024), with matches found anew in place of trees
that are kept.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry
from specjax import trees
from specjax.data import datastore as datastore_lib
from specjax.drafters import matching
from specjax.drafters import stateless


@registry.component(params=lambda: None)
def suffix(
  draft_length: int = 8,
  num_drafts: int = 1,
  *,
  max_match: int = 16,
  min_match: int = 1,
  factor: float = 1.0,
  num_samples: int = 16,
) -> base.Drafter:
  """Builds a drafter that trusts a match as far as it is long.

  All places with the longest match, in the row's prompt and output and in a
  corpus, vote on the draft token by token; the row's own, most recent first,
  win ties.

  Args:
    draft_length: most tokens of each chain.
    num_drafts: chains, which begin with different tokens.
    max_match: tokens beyond which a match counts as no longer, at most
      `datastore.DEPTH`.
    min_match: tokens that must match for a draft.
    factor: drafted tokens for each token that matched.
    num_samples: places that vote at most, of the row's own and of the corpus's
      each.

  Returns:
    The drafter; its parameters are a `Datastore` of the target's tokens, or
    None for the row's own text only.
  """
  checks.check_range('draft_length', draft_length, 1)
  checks.check_range('max_match', max_match, 1, datastore_lib.DEPTH)
  checks.check_range('min_match', min_match, 1, max_match)
  checks.check_range('num_samples', num_samples, 1)
  if not factor > 0:
    raise ValueError(f'factor must be > 0, got {factor}.')
  checks.check_range('num_drafts', num_drafts, 1)
  topology = trees.chains(num_drafts, draft_length)

  plan = _Plan(topology, max_match, min_match, factor, num_samples)
  return stateless.stateless(topology, functools.partial(_propose, plan))


class _Plan(NamedTuple):
  """What is drafted, and from which matches."""

  topology: trees.Topology
  max_match: int
  min_match: int
  factor: float
  num_samples: int


def _propose(plan, store, context):
  if store is not None:
    matching.check_store(store, 'suffix')
  rows = jax.vmap(functools.partial(_from_row, plan), in_axes=(None, 0, 0))
  return rows(store, context.tokens, context.lengths)


def _from_row(plan, store, tokens, length):
  """Lets the places with the longest match vote, as far as that is trusted."""
  continuations, matched = _from_own(plan, tokens, length)
  if store is not None:
    others = _from_corpus(plan, store, tokens, length)
    continuations = jnp.concatenate([continuations, others[0]])
    matched = jnp.concatenate([matched, others[1]])
  longest = matched.max()
  weights = (matched == longest) & (longest >= plan.min_match)
  draft, valid = matching.vote(continuations, weights, plan.topology)
  trust = plan.factor * longest.astype(jnp.float32)
  trusted = plan.topology.depths.astype(np.float32) <= trust
  return jnp.where(trusted, draft, 0), valid & trusted


def _from_own(plan, tokens, length):
  """What followed the longest matches in the row, and how long those are."""
  matched = matching.own(tokens, length, plan.max_match)
  longest = matched.max()
  # The most recent ones; as floats, since XLA sorts integers in full on CPU.
  index = np.arange(len(tokens), dtype=np.float32)
  recency = jnp.where(matched == longest, index, -1.0)
  recency, places = jax.lax.top_k(recency, min(plan.num_samples, len(tokens)))
  continuations = jax.vmap(
    matching.own_continuation, in_axes=(None, None, 0, None)
  )(tokens, length, places, plan.topology.depth)
  return continuations, jnp.where(recency >= 0, longest, 0)


def _from_corpus(plan, store, tokens, length):
  """The same of the corpus."""
  found = matching.in_corpus(store, tokens, length, plan.max_match)
  continuations, there = matching.corpus_continuations(
    store, found, plan.num_samples, plan.topology.depth
  )
  return continuations, jnp.where(there, found.length, 0)
