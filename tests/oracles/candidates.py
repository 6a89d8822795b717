"""What the oracles share: tuples of candidates, tests in a row, draws."""

import itertools

import numpy as np


def tuples(vocab_size, num_drafts):
  """Returns `[V**n, n]` all tuples, in the order of `np.ndindex`."""
  every = list(itertools.product(range(vocab_size), repeat=num_drafts))
  return np.array(every, int).reshape(len(every), num_drafts)


def probabilities(draft, num_drafts, *, distinct=False):
  """Returns `[V**n]`, the probability of each tuple of candidates.

  Args:
    draft: `[V]`, the distribution that each candidate is sampled from.
    num_drafts: `n`.
    distinct: Candidates are sampled without replacement.
  """
  tokens = tuples(len(draft), num_drafts)
  token_probs = draft[tokens]
  if not distinct:
    return token_probs.prod(axis=1)
  one_hot = tokens[:, :, None] == np.arange(len(draft))
  is_new = one_hot.cumsum(axis=1) - one_hot == 0  # [V**n, n, V]
  remaining = is_new @ draft
  shares = np.divide(
    token_probs, remaining, out=np.zeros_like(token_probs), where=remaining > 0
  )
  return (shares * (is_new & one_hot).any(axis=2)).prod(axis=1)


def membership(vocab_size, num_drafts):
  """Returns `[V**n, V]` whether a token is one of the candidates."""
  tokens = tuples(vocab_size, num_drafts)
  return (tokens[:, :, None] == np.arange(vocab_size)).any(axis=1)


def passing(draft, target):
  """Returns `[V]` the probability to pass a test, `min(1, target / draft)`."""
  ratio = np.divide(target, draft, out=np.ones_like(target), where=draft > 0)
  return np.minimum(ratio, 1)


def in_sequence(tests, weights, target):
  """Returns `[V**n, V]` for candidates that are tested one after the other.

  Args:
    tests: `[n, V]` the probability to pass, for each position and token.
    weights: `[V]` what the token is drawn from if no candidate passes.
    target: `[V]` what it is drawn from where all of these are 0.
  """
  tokens = tuples(len(weights), len(tests))
  kept_probs = np.zeros((len(tokens), len(weights)))
  reached = np.ones(len(tokens))
  for column, probs in zip(tokens.T, tests):
    accept_probs = reached * probs[column]
    np.add.at(kept_probs, (np.arange(len(kept_probs)), column), accept_probs)
    reached = reached - accept_probs
  return completed(kept_probs, weights, target)


def completed(kept_probs, weights, target):
  """Returns rows `[m, V]`, whose missing mass follows the weights."""
  weights = weights if weights.sum() > 0 else target
  missing_mass = np.maximum(1 - kept_probs.sum(axis=1, keepdims=True), 0)
  return kept_probs + missing_mass * weights / weights.sum()


def cumulative(weights):
  """Returns the breakpoints of a draw from the positive part of weights."""
  sums = np.cumsum(np.maximum(weights, 0))
  return sums / sums[-1] if sums[-1] > 1e-6 else sums[:0]
