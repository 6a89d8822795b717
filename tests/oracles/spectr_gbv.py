"""SpecTr-GBV (Lin et al. 2026) on Markov models, by its released code.

The code is `src/engine.py` of github.com/junemily/SpecTr-GBV at e399f44. The
chains of a round are tested one after the other, each from its first token,
past those that are accepted, to its end; see `tests`. Unless a whole chain was
accepted, the next token comes from a residual of the accepted prefix. With one
chain, this is greedy block verification (Sun et al. 2024).
"""

import itertools

import numpy as np


class Round:
  """One round, with `K` i.i.d. chains of `L` tokens."""

  def __init__(self, target, draft, num_chains, length, start=0):
    self.target, self.draft = target, draft
    self.num_chains, self.length, self.start = num_chains, length, start

  def probs(self, table, prefix):
    """`[V]` of all prefixes with one more token."""
    tokens = (self.start, *prefix)
    return (
      np.prod([table[p] for p in itertools.pairwise(tokens)])
      * table[tokens[-1]]
    )

  def drafted(self, prefix):
    """How likely a chain begins with a prefix."""
    prob = self.probs(self.draft, prefix[:-1])[prefix[-1]]
    return 1 - (1 - prob) ** self.num_chains

  def next_masses(self, prefix):
    """`[V]`, how likely a prefix with one more token should be accepted."""
    target = self.probs(self.target, prefix)
    ratios = np.minimum(self.probs(self.draft, prefix) / target, 1)
    return target * (1 - (1 - ratios) ** self.num_chains)

  def passing(self, prefix):
    """How likely the test of a prefix passes."""
    mass = self.next_masses(prefix[:-1])[prefix[-1]]
    longer = 0.0
    if len(prefix) < self.length:
      longer = self.next_masses(prefix).sum()
    return (mass - longer) / (self.drafted(prefix) - longer)

  def accepted(self):
    """Returns `{prefix: probability}` of the accepted prefixes."""
    probs = {}
    tuples = itertools.product(range(len(self.draft)), repeat=self.length)
    for chains in itertools.product(list(tuples), repeat=self.num_chains):
      weight = np.prod(
        [self.probs(self.draft, chain[:-1])[chain[-1]] for chain in chains]
      )
      for prefix, prob in self.tests(chains, (), frozenset()):
        probs[prefix] = probs.get(prefix, 0.0) + weight * prob
    return probs

  def tests(self, chains, accepted, failed):
    """Yields accepted prefixes with probabilities, from the next chain on."""
    if not chains:
      yield accepted, 1.0
      return
    chain, *later = chains
    # Every prefix is tested unless it has failed, also where a shorter one has.
    states = [(accepted, failed, 1.0)]
    for num in range(len(accepted) + 1, self.length):
      states = list(self.test(chain[:num], states))
    whole = self.passing(chain)
    for accepted, failed, prob in states:
      yield chain, prob * whole
      for prefix, later_prob in self.tests(later, accepted, failed):
        yield prefix, prob * (1 - whole) * later_prob

  def test(self, prefix, states):
    """Yields the states after one test."""
    passing = self.passing(prefix)
    for accepted, failed, prob in states:
      if prefix in failed:
        yield accepted, failed, prob
      else:
        yield prefix, failed, prob * passing
        yield accepted, failed | {prefix}, prob * (1 - passing)

  def left(self, prefix):
    """`[V]`, what the masses leave for one token more than a prefix."""
    return self.probs(self.target, prefix) - self.next_masses(prefix)

  def released_residual(self, prefix):
    """`[V]`, which is `left` with one chain only."""
    target = self.probs(self.target, prefix)
    ratios = np.minimum(self.probs(self.draft, prefix) / target, 1)
    return target * (1 - ratios**self.num_chains)

  def block(self, residual, rest):
    """`[V] * L`, how likely the first `L` tokens are emitted.

    Args:
      residual: weights of the next token, given an accepted prefix.
      rest: weights of a later token, given all tokens before it.
    """
    probs = np.zeros((len(self.draft),) * self.length)
    for accepted, mass in self.accepted().items():
      ends, weights = {accepted: mass}, residual
      for _ in range(self.length - len(accepted)):
        ends = {
          (*prefix, token): prob * share
          for prefix, prob in ends.items()
          for token, share in enumerate(_normalize(weights(prefix)))
        }
        weights = rest
      for tokens, prob in ends.items():
        probs[tokens] += prob
    return probs


def _normalize(weights):
  """Returns probabilities, or zeros where no token is possible."""
  return weights / (weights.sum() or 1.0)
