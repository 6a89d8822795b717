"""Exact acceptance probabilities for several chains on Markov models.

`K` chains of `L` tokens are drafted from one context. What happens after some
accepted tokens depends only on the last of them and on how many chains begin
with all of them. With these two numbers as its state, every token-by-token
verifier is itself a Markov chain. The state of block and of traversal
verification has a third number, the share, which takes few values.
"""

from collections.abc import Callable
import functools

import numpy as np
from numpy import typing as npt
from scipy import stats

from specjax import registry
from specjax.theory import picks
from specjax.theory import transition_tables

# Largest number of tuples of tokens that are enumerated.
MAX_TUPLES = 100_000


def acceptance_by_depth(
  target: npt.ArrayLike,
  draft: npt.ArrayLike,
  num_chains: int,
  length: int,
  rule: str = 'otm',
  start: int = 0,
) -> np.ndarray:
  """Returns `[L]`, how likely at least 1, 2, ... `L` tokens are accepted.

  Their sum plus 1 is the expected number of emitted tokens per target call
  (block efficiency).

  Args:
    target: `[V, V]` transition probabilities of the target model.
    draft: `[V, V]` transition probabilities of the draft model.
    num_chains: `K`, number of chains, which are drafted i.i.d.
    length: `L`, tokens in each chain.
    rule: name of a coupling or verifier, or another one, in `RULES`.
    start: last token of the context.

  Raises:
    ValueError: an argument is out of range, or a rule has more than
      `MAX_TUPLES` cases: `V**K` for couplings, `V**L` for `greedy_block`.
  """
  target, draft = transition_tables.normalize_stationary(
    target, draft, num_chains, length, start
  )
  acceptance_fn = registry.lookup(RULES, 'rule', rule)
  return acceptance_fn(_MarkovPair(draft, target), num_chains, length, start)


def check_tuples(vocab_size: int, num: int, name: str = 'V**K') -> None:
  """Raises `ValueError` if there are too many tuples of tokens."""
  if vocab_size**num > MAX_TUPLES:
    raise ValueError(
      f'{name} = {vocab_size}**{num} tuples of tokens exceed {MAX_TUPLES}.'
    )


class _MarkovPair:
  """The tables of both models, with cached results of single steps."""

  def __init__(self, draft: np.ndarray, target: np.ndarray):
    self.draft, self.target = draft, target
    self.step = functools.cache(self._step)
    self.proposal = functools.cache(self._proposal)

  def _step(self, coupling: str, token: int, num: int) -> np.ndarray:
    """Returns `[V, num + 1]` probabilities of what the coupling accepts.

    The indices are the accepted token and the number of chains that have it.

    Args:
      coupling: a name in `picks.PICKS`.
      token: last accepted token.
      num: number of chains that begin with all accepted tokens.
    """
    check_tuples(len(self.target), num)
    pair = self.draft[token], self.target[token]
    return self._joint(picks.PICKS[coupling](*pair, num), token, num)

  def _proposal(self, token: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `[V, num + 1]` for the proposed token, and its `[V]` marginal.

    The arguments are those of `_step`.
    """
    check_tuples(len(self.target), num)
    pair = self.draft[token], self.target[token]
    winners, probs = picks.proposals(*pair, num)
    return self._joint(winners, token, num), probs

  def _joint(self, pick_probs: np.ndarray, token: int, num: int) -> np.ndarray:
    """Returns `[V, num + 1]` from the picks `[V**num, V]`; see `_step`."""
    candidates = picks.tuples(len(self.target), num)
    weights = self.draft[token][candidates].prod(axis=1)
    counts = (candidates[..., None] == np.arange(len(self.target))).sum(axis=1)
    joint = np.zeros((len(self.target), num + 1))
    for picked, column in enumerate(counts.T):
      mass = weights * pick_probs[:, picked]
      joint[picked] = np.bincount(column, mass, minlength=num + 1)
    joint[:, 0] = 0.0  # The token is not a candidate, so the round ends.
    return joint


def _token_by_token(
  coupling: str, models: _MarkovPair, num_chains: int, length: int, start: int
) -> np.ndarray:
  """Returns the acceptance by depth of the tree walk with a coupling."""
  size = len(models.target)
  # How likely the walk is at each token, with each number of chains.
  state_probs = np.zeros((size, num_chains + 1))
  state_probs[start, num_chains] = 1.0
  reached = []
  for _ in range(length):
    next_probs = np.zeros_like(state_probs)
    for token, num in np.argwhere(state_probs):
      step = models.step(coupling, int(token), int(num))
      next_probs[:, : num + 1] += state_probs[token, num] * step
    state_probs = next_probs
    reached.append(state_probs.sum())
  return np.array(reached)


def _batch(
  models: _MarkovPair, num_chains: int, length: int, start: int
) -> np.ndarray:
  """Returns the acceptance by depth of the verifier `batch`.

  After the first token, only the chain whose first token was accepted is
  verified.
  """
  first = models.step('multiround', start, num_chains).sum(axis=1)
  reached = [first.sum()]
  if length > 1:
    later = [
      _token_by_token('maximal', models, 1, length - 1, token)
      for token in range(len(first))
    ]
    reached.extend(first @ np.stack(later))
  return np.array(reached)


def _block(
  models: _MarkovPair, num_chains: int, length: int, start: int
) -> np.ndarray:
  """Returns the acceptance by depth of the verifier `block`.

  It selects one path by priorities and verifies the path as a block.
  """
  # A state is the last token, the number of chains, and the share: the running
  # product of `target / proposal`, clipped at 1 after every token.
  state_probs = {(start, num_chains, 1.0): 1.0}
  reached = []
  for _ in range(length):
    next_probs: dict[tuple[int, int, float], float] = {}
    for (token, num, share), prob in state_probs.items():
      joint, proposal = models.proposal(token, num)
      for proposed, num_left in np.argwhere(joint):
        ratio = models.target[token, proposed] / proposal[proposed]
        state = int(proposed), int(num_left), min(share * ratio, 1.0)
        mass = prob * joint[proposed, num_left]
        next_probs[state] = next_probs.get(state, 0.0) + mass
    state_probs = next_probs
    reached.append(sum(prob * state[2] for state, prob in state_probs.items()))
  return np.array(reached)


def _greedy_block(
  models: _MarkovPair, num_chains: int, length: int, start: int
) -> np.ndarray:
  """Returns the acceptance by depth of greedy multi-path block verification.

  Thomas and Pal (2026, arXiv:2602.16961) order chains by `target / draft` of
  their first tokens, those that agree by that of their second ones, and so on.
  The last chain is selected, and verified as a block against the distribution
  of selected chains.
  """
  check_tuples(len(models.target), length, 'V**L')
  powers = np.arange(num_chains)

  def factor(low: float, prob: float) -> float:
    """Returns how much likelier the selected chain is to have a prefix.

    Args:
      low: probability that a chain comes before the prefix.
      prob: probability that a chain has the prefix.
    """
    return float(((low + prob) ** powers) @ (low ** powers[::-1]))

  # Each prefix has its last token, `low`, `prob` and share.
  prefixes = [(start, 0.0, 1.0, 1.0)]
  reached = []
  for _ in range(length):
    longer = []
    for token, low, prob, share in prefixes:
      parent_factor = factor(low, prob)
      draft, target = models.draft[token], models.target[token]
      possible = np.flatnonzero(draft)
      ratios = target[possible] / draft[possible]
      for i in np.argsort(ratios, kind='stable'):
        child_prob = prob * draft[possible[i]]
        ratio = ratios[i] * parent_factor / factor(low, child_prob)
        longer.append((possible[i], low, child_prob, min(share * ratio, 1.0)))
        low += child_prob
    prefixes = longer
    reached.append(
      sum(prob * factor(low, prob) * share for _, low, prob, share in prefixes)
    )
  return np.array(reached)


def _traversal(
  models: _MarkovPair, num_chains: int, length: int, start: int
) -> np.ndarray:
  """Returns the acceptance by depth of the verifier `traversal`.

  Siblings are tested in order, each with what the earlier ones left of the
  share and of the target, whatever their tokens are. A sibling or a node below
  it is accepted with its share, whatever is drafted below it. Of siblings with
  one token, the first has the chains of all.
  """

  @functools.cache
  def reach(token: int, num: int, share: float, depth: int) -> np.ndarray:
    """Returns `[depth]`, how likely 1, 2, ... nodes below one are accepted.

    Args:
      token: of the node.
      num: number of chains that begin with all tokens up to it.
      share: of the node, when it is entered.
      depth: number of levels below the node, at least 1.
    """
    reached = np.zeros(depth)
    draft, target = models.draft[token], models.target[token]
    possible = np.flatnonzero(draft)
    # How likely all earlier siblings are rejected, and how likely they are
    # rejected and none of them is a given token.
    rejected, without = 1.0, np.ones(len(draft))
    for num_later in reversed(range(num)):
      shares = np.minimum(share * target[possible] / draft[possible], 1.0)
      reached[0] += rejected * draft[possible] @ shares
      if depth > 1:
        for child, child_share in zip(possible.tolist(), shares.tolist()):
          repeats = np.arange(num_later + 1)
          weights = without[child] * draft[child]
          weights = weights * stats.binom.pmf(repeats, num_later, draft[child])
          for repeat, weight in enumerate(weights):
            below = reach(child, repeat + 1, child_share, depth - 1)
            reached[1:] += weight * below
      failures = np.zeros(len(draft))
      failures[possible] = draft[possible] * (1 - shares)
      rejected *= failures.sum()
      without *= failures.sum() - failures
      share, target = _without_sibling(share, target, draft)
    return reached

  return reach(start, num_chains, 1.0, length)


def _without_sibling(
  share: float, target: np.ndarray, draft: np.ndarray
) -> tuple[float, np.ndarray]:
  """Returns what the rejection of a child leaves of a share and a target."""
  excess = np.maximum(share * target - draft, 0)
  mass = excess.sum()
  if not mass:
    return 0.0, target
  return mass / (mass + 1 - share), excess / mass


RULES: dict[str, Callable[..., np.ndarray]] = {
  'batch': _batch,
  'block': _block,
  'greedy_block': _greedy_block,
  'traversal': _traversal,
  **{name: functools.partial(_token_by_token, name) for name in picks.PICKS},
}
