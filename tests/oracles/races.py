"""How often two races with the same noise agree, by quadrature.

Given that the target's race is won by token `i` at time `t`, each other token
`j` is ahead of `i` in the draft's race independently of the others.
"""

import numpy as np


def agreement(draft, target, num):
  """Returns `[V]`, how likely a token wins and leads the draft's race.

  Args:
    draft: `[V]`.
    target: `[V]`, whose race the token wins.
    num: how many of the first tokens of the draft's race are drafted.
  """
  grid, weights = np.polynomial.laguerre.laggauss(60)
  probs = np.zeros(len(draft))
  for i in np.flatnonzero((draft > 0) & (target > 0)):
    others = np.delete(np.arange(len(draft)), i)
    # Token `j` arrives after `t target[j]`, as it has not won; it is ahead of
    # `i` if it arrives before `t draft[j] target[i] / draft[i]`.
    latest = draft[others] * target[i] / draft[i]
    gap = np.maximum(latest - target[others], 0)
    ahead = -np.expm1(-grid[:, None] * gap)
    counts = np.zeros((len(grid), len(others) + 1))
    counts[:, 0] = 1
    for column in ahead.T[..., None]:
      counts = counts * (1 - column) + np.roll(counts, 1, axis=1) * column
    probs[i] = target[i] * weights @ counts[:, :num].sum(axis=1)
  return probs
