"""How many tokens are accepted with shared noise, exactly, on Markov models.

With shared noise, the tokens of a position race: token `v` arrives at a time
that is exponential with rate `target(v)`, or `draft(v)`, from one number for
both models, and the first to arrive is the sample (Daliri et al. 2025,
"Coupling without Communication and Drafter-Invariant Speculative Decoding").
"""

import itertools
import math

import numpy as np
from numpy import typing as npt

from specjax.theory import chains
from specjax.theory import transition_tables


def shared_noise_acceptance(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  start: int = 0,
) -> np.ndarray:
  """Returns `[L]`, how likely at least 1, 2, ... `L` tokens are accepted.

  The first tokens of the chains are the first `K` to arrive in the draft's
  race, which all differ; each further token is the first of its race. See
  `acceptance_by_depth`, whose chains are drafted i.i.d.

  Args:
    target: `[V, V]` transition probabilities of the target model.
    draft: `[V, V]` transition probabilities of the draft model.
    num_chains: `K`, number of chains; there are at most `V`.
    length: `L`, tokens in each chain.
    start: last token of the context.

  Raises:
    ValueError: an argument is out of range, or `V**min(K, V)` exceeds
      `chains.MAX_TUPLES`.
  """
  target, draft = transition_tables.normalize_stationary(
    target, draft, num_chains, length, start
  )
  size = len(target)
  chains.check_tuples(size, min(num_chains, size))
  probs = _agreement(target[start], draft[start], num_chains)
  steps = np.stack([_agreement(*rows, 1) for rows in zip(target, draft)])
  reached = [probs.sum()]
  for _ in range(length - 1):
    probs = probs @ steps
    reached.append(probs.sum())
  return np.array(reached)


def _agreement(target: np.ndarray, draft: np.ndarray, num: int) -> np.ndarray:
  """Returns `[V]`, how likely a token is the target's and is drafted.

  Let token `i` win the target's race, at a time `t` that is exponential with
  rate 1. Token `j` is then ahead of `i` in the draft's race unless it arrives
  late, with probability `exp(-t gap(j))`, independently of the others. So all
  tokens of a set are late with probability `1 / (1 + sum of their gaps)`, and
  inclusion and exclusion give the probability that fewer than `num` are ahead.

  Args:
    target: `[V]`.
    draft: `[V]`.
    num: how many of the first tokens of the draft's race are drafted.
  """
  probs = np.zeros(len(target))
  for token in np.flatnonzero((target > 0) & (draft > 0)):
    latest = draft * target[token] / draft[token]
    gaps = np.delete(np.maximum(latest - target, 0), token)
    if num > len(gaps):  # Every token is drafted.
      probs[token] = target[token]
      continue
    for count in range(num):
      # Over the sets of fewer than `num` tokens that contain `count` given
      # ones, with alternating signs.
      factor = math.comb(len(gaps) - count - 1, num - count - 1)
      factor *= (-1) ** (num - count - 1)
      for ahead in itertools.combinations(gaps, count):
        late = gaps.sum() - sum(ahead)
        probs[token] += factor * target[token] / (1 + late)
  return probs
