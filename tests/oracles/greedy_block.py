"""Greedy multi-path block verification (Thomas and Pal 2026) of K chains.

The chain with the largest ratio `target / draft` is selected, token by token,
and verified as a block against the distribution of selected chains. Only its
prefix enters that distribution, not how many chains have the prefix.
"""

import itertools

import numpy as np


def select(target, draft, chains, start=0):
  """Returns the selected one of chains `[K, L]`."""
  rows = np.column_stack([np.full(len(chains), start), chains])
  ratios = target / draft
  ranks = np.argsort(np.argsort(ratios, axis=1, kind='stable'), axis=1)
  return chains[max(range(len(chains)), key=lambda k: _rank(ranks, rows[k]))]


def _rank(ranks, row):
  return tuple(ranks[pair] for pair in itertools.pairwise(row))


def prefixes(target, draft, num_chains, length, start=0):
  """Yields prefixes of the selected chain, with probability and share.

  Args:
    target: `[V, V]` transition probabilities.
    draft: `[V, V]`, all positive.
    num_chains: `K`.
    length: `L`.
    start: last token of the context.
  """
  yield from _longer(target, draft, num_chains, length, (start,), 0, 1, 1)


def _longer(target, draft, num_chains, length, prefix, low, high, share):
  """Yields longer prefixes; chains below this one have mass `low`.

  Those below and those that have the prefix have mass `high`.
  """
  if len(prefix) > length:
    return
  selected = high**num_chains - low**num_chains
  draft_row, target_row = draft[prefix[-1]], target[prefix[-1]]
  edge = low
  for token in np.argsort(target_row / draft_row, kind='stable'):
    below, edge = edge, edge + (high - low) * draft_row[token]
    prob = edge**num_chains - below**num_chains
    ratio = target_row[token] * selected / prob
    path, path_share = (*prefix, int(token)), min(share * ratio, 1.0)
    yield path[1:], prob, path_share
    yield from _longer(
      target, draft, num_chains, length, path, below, edge, path_share
    )


def accepted(target, draft, num_chains, length, start=0):
  """Returns the expected number of accepted tokens."""
  return sum(
    prob * share
    for _, prob, share in prefixes(target, draft, num_chains, length, start)
  )
