"""How much of several chains is accepted, exactly, on Markov models.

`K` chains of `L` tokens are drafted from one context. What is accepted later
hangs on the last token and on how many chains have spelt all tokens so far:
with these two as a state, every rule that goes token by token is a Markov chain
of its own. Block verification has a third number, the share of the target that
is left, of which few values occur.
"""

from collections.abc import Callable
import functools

import numpy as np
from numpy import typing as npt

from specjax import registry
from specjax.theory import picks
from specjax.theory import transition_tables

# The most tuples of candidates that are enumerated.
MAX_TUPLES = 100_000


def acceptance_by_depth(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  rule: str = 'otm',
  start: int = 0,
) -> np.ndarray:
  """Returns `[L]` chances that at least 1, 2, ... `L` tokens are accepted.

  Their sum and 1 is the block efficiency of one round.

  Args:
    target: `[V, V]` transition probabilities of the target.
    draft: `[V, V]` of the drafter.
    num_chains: `K`, drafted i.i.d.
    length: `L`, tokens of each chain.
    rule: one of `RULES`.
    start: the token before them.

  Raises:
    ValueError: an argument is out of range, or `V**K` exceeds `MAX_TUPLES`.
  """
  target, draft = transition_tables.normalize_stationary(
    target, draft, num_chains, length, start
  )
  size = len(target)
  if size**num_chains > MAX_TUPLES:
    raise ValueError(
      f'V**K = {size}**{num_chains} tuples of candidates exceed {MAX_TUPLES}.'
    )
  walk = registry.lookup(RULES, 'rule', rule)
  return walk(_Models(draft, target), num_chains, length, start)


class _Models:
  """Both tables, and what steps from a token do, each computed once."""

  def __init__(self, draft, target):
    self.draft, self.target = draft, target
    self.step = functools.cache(self._step)
    self.proposal = functools.cache(self._proposal)

  def _step(self, coupling, before, num):
    """`[V, num + 1]` chances of the token that is accepted, and of survivors.

    Args:
      coupling: a name of `picks.PICKS`.
      before: the last token.
      num: chains that have spelt it.
    """
    pair = self.draft[before], self.target[before]
    return self._joint(picks.PICKS[coupling](*pair, num), before, num)

  def _proposal(self, before, num):
    """As above, of the token that is proposed; and `[V]` what it is from."""
    pair = self.draft[before], self.target[before]
    winners, probs = picks.proposals(*pair, num)
    return self._joint(winners, before, num), probs

  def _joint(self, chosen, before, num):
    candidates = picks.tuples(len(self.target), num)
    weights = self.draft[before][candidates].prod(axis=1)
    counts = (candidates[..., None] == np.arange(len(self.target))).sum(axis=1)
    joint = np.zeros((len(self.target), num + 1))
    for token, column in enumerate(counts.T):
      mass = weights * chosen[:, token]
      joint[token] = np.bincount(column, mass, minlength=num + 1)
    joint[:, 0] = 0.0  # Not one of the candidates: the round ends.
    return joint


def _token_by_token(coupling, models, num_chains, length, start):
  """Of the tree walk with a coupling."""
  size = len(models.target)
  # Of each token and number of chains, how likely the walk is there.
  here = np.zeros((size, num_chains + 1))
  here[start, num_chains] = 1.0
  reach = []
  for _ in range(length):
    below = np.zeros_like(here)
    for before, num in np.argwhere(here):
      step = models.step(coupling, int(before), int(num))
      below[:, : num + 1] += here[before, num] * step
    here = below
    reach.append(here.sum())
  return np.array(reach)


def _batch(models, num_chains, length, start):
  """Of `batch`: the chain whose first token is accepted is verified alone."""
  first = models.step('multiround', start, num_chains).sum(axis=1)
  reach = [first.sum()]
  if length > 1:
    rest = [
      _token_by_token('maximal', models, 1, length - 1, token)
      for token in range(len(first))
    ]
    reach.extend(first @ np.stack(rest))
  return np.array(reach)


def _block(models, num_chains, length, start):
  """Of `block`: a path is chosen and judged as a whole."""
  here = {(start, num_chains, 1.0): 1.0}
  reach = []
  for _ in range(length):
    below: dict[tuple[int, int, float], float] = {}
    for (before, num, share), chance in here.items():
      joint, probs = models.proposal(before, num)
      for token, survivors in np.argwhere(joint):
        ratio = models.target[before, token] / probs[token]
        state = int(token), int(survivors), min(share * ratio, 1.0)
        mass = chance * joint[token, survivors]
        below[state] = below.get(state, 0.0) + mass
    here = below
    reach.append(sum(chance * state[2] for state, chance in here.items()))
  return np.array(reach)


RULES: dict[str, Callable[..., np.ndarray]] = {
  'batch': _batch,
  'block': _block,
  **{name: functools.partial(_token_by_token, name) for name in picks.PICKS},
}
