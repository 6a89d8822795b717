"""Distributions, integration and broken parts that several tests share."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from specjax import base
from specjax import registry
from specjax import sampling


def random_table(rng, *shape, low=0.1):
  """Random transition tables without tiny entries."""
  table = rng.uniform(low, 1, shape)
  return (table / table.sum(-1, keepdims=True)).astype(np.float32)


def sequence_probs(table, start, length, position=0):
  """`[V**length]` chances of the tokens after `start`, at `position`."""
  tables = np.asarray(table, np.float64)
  tables = tables if tables.ndim == 3 else tables[None]
  probs, last = np.ones(1), np.array([start])
  for step in range(position, position + length):
    rows = tables[min(step, len(tables) - 1)][last]
    probs = (probs[:, None] * rows / rows.sum(-1, keepdims=True)).ravel()
    last = np.arange(probs.size) % tables.shape[-1]
  return probs


def chi_square(sequences, probs):
  """P-value of `[n, T]` tokens under the `[V**T]` chances of their sequences.

  Sequences expected fewer than 5 times count as one cell; an impossible one
  fails at once.
  """
  sequences = np.asarray(sequences).reshape(len(sequences), -1)
  vocab_size = round(probs.size ** (1 / sequences.shape[1]))
  cells = np.ravel_multi_index(
    tuple(sequences.T), (vocab_size,) * sequences.shape[1]
  )
  counts = np.bincount(cells, minlength=probs.size)
  assert not counts[probs == 0].any(), 'a sequence of probability 0 was seen'
  probs = np.asarray(probs, np.float64)
  expected = len(cells) * probs / probs.sum()
  rare = expected < 5
  if rare.any():
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
  keep = expected > 0
  if keep.sum() < 2:
    return 1.0
  return stats.chisquare(counts[keep], expected[keep]).pvalue


def uniform(key, shape=()):
  """Stands for `jax.random.uniform` where a key is its numbers themselves.

  Numbers at the end that do not matter may be missing.
  """
  num = math.prod(shape)
  numbers = jnp.pad(key[:num], (0, max(num - len(key), 0)), constant_values=0.5)
  return numbers.reshape(shape)


def resampling(key, candidates, active, draft, target):
  """The maximal coupling, broken: what is rejected becomes a target sample."""
  accept_uniform, *target_uniforms = jax.random.uniform(key, (2,))
  candidate = candidates[jnp.argmax(active)]
  keep = active.any() & (accept_uniform * draft[candidate] < target[candidate])
  token = jnp.where(
    keep, candidate, sampling.draw(jnp.stack(target_uniforms), target)
  )
  return token, (active & (candidates == token)).any()


@registry.component
def alternating(num_arms):
  """The bandit that plays one arm after the other, whatever they earn."""
  return base.Bandit(
    num_arms,
    init=lambda: jnp.int32(0),
    select=lambda key, state: state % num_arms,
    update=lambda state, arm, reward, **extra: state + 1,
    update_all=lambda state, rewards: state,
  )
