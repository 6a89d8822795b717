"""How many tokens SpecTr-GBV is meant to accept, exactly, on Markov models.

SpecTr-GBV (Lin et al. 2026, arXiv:2604.25925) couples the `K` chains of a round
with a block of target tokens. It gives each prefix `x` of a chain a probability
`A(x)` of being accepted, which is at most that of `x` under the target:

    A(x) = target(x) (1 - (1 - min(draft(x) / target(x), 1))^K),

with `target(x)` and `draft(x)` of the whole prefix. For one chain, this is the
smaller of the two, as in greedy block verification (Sun et al. 2024). A prefix
may thus be accepted more often than the next token allows, `A(x t) > A(x)
target(t | x)`, which later rounds must make up for: until the block ends, they
sample from what the accepted prefixes leave of the target's distribution.
"""

import numpy as np
from numpy import typing as npt

from specjax.theory import chains
from specjax.theory import transition_tables


def spectr_gbv_acceptance(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  start: int = 0,
) -> np.ndarray:
  """Returns `[L]`, the sums of `A(x)` over prefixes of 1, 2, ... `L` tokens.

  These are acceptances in a round that follows no other. They may exceed
  `best_accepted`, whose later rounds sample from the target itself, but not
  `best_transport`.

  Args:
    target: `[V, V]` transition probabilities of the target model.
    draft: `[V, V]` transition probabilities of the draft model.
    num_chains: `K`, number of chains, which are drafted i.i.d.
    length: `L`, tokens in each chain.
    start: last token of the context.

  Raises:
    ValueError: an argument is out of range, or `V**L` exceeds
      `chains.MAX_TUPLES`.
  """
  target, draft = transition_tables.normalize_stationary(
    target, draft, num_chains, length, start
  )
  size = len(target)
  chains.check_tuples(size, length, 'V**L')
  tokens, target_probs, draft_probs = np.array([start]), np.ones(1), np.ones(1)
  reached = []
  for _ in range(length):
    target_probs = (target_probs[:, None] * target[tokens]).ravel()
    draft_probs = (draft_probs[:, None] * draft[tokens]).ravel()
    tokens = np.tile(np.arange(size), len(tokens))
    reached.append(_accepted(target_probs, draft_probs, num_chains).sum())
  return np.array(reached)


def _accepted(
  target_probs: np.ndarray, draft_probs: np.ndarray, num_chains: int
) -> np.ndarray:
  """Returns `A` of each prefix."""
  possible = target_probs > 0
  ratios = draft_probs[possible] / target_probs[possible]
  missed = (1 - np.minimum(ratios, 1)) ** num_chains
  return target_probs[possible] * (1 - missed)
