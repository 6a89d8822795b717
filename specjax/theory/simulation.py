"""Thousands of runs at once, position by position.

The couplings of the decode loop, without its models and caches: what theory
predicts is checked against counts in seconds.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import couplings
from specjax import sampling


class Runs(NamedTuple):
  """What simulated runs have counted."""

  tokens: jax.Array  # [runs, horizon] int32
  rejected: jax.Array  # [runs, horizon] bool: the token is a correction


@functools.partial(
  jax.jit, static_argnames=('horizon', 'num_drafts', 'num_runs', 'coupling')
)
def simulate(
  key: jax.Array,
  target: jax.Array,
  draft: jax.Array,
  horizon: int,
  num_drafts: int = 1,
  num_runs: int = 1,
  coupling: base.Coupling = couplings.multiround,
) -> Runs:
  """Runs batch speculative sampling on Markov models.

  Yin et al. (2024), Algorithm 4; with one draft, their Algorithm 1. Where a run
  starts or a token was rejected, `num_drafts` candidates stand; behind an
  accepted one its own draft goes on alone, to the horizon.

  Args:
    key: consumed.
    target: `[V, V]`, or `[T, V, V]` where it changes from position to position
      (the last one goes on).
    draft: likewise.
    horizon: positions to fill.
    num_drafts: `K >= 1`.
    num_runs: how many runs, each from a uniform token.
    coupling: the rule at each position.
  """
  target, draft = (t if t.ndim == 3 else t[None] for t in (target, draft))
  start_key, run_key = jax.random.split(key)
  starts = jax.random.randint(start_key, (num_runs,), 0, target.shape[-1])

  def run(key, start):
    def step(carry, position):
      token, fresh = carry
      draft_key, couple_key = jax.random.split(
        jax.random.fold_in(key, position)
      )
      probs = draft[jnp.minimum(position, len(draft) - 1), token]
      shape = num_drafts, sampling.num_uniforms(draft.shape[-1])
      uniforms = jax.random.uniform(draft_key, shape)
      candidates = jax.vmap(sampling.draw, (0, None))(uniforms, probs)
      token, accepted = coupling(
        couple_key,
        candidates,
        fresh | (jnp.arange(num_drafts) == 0),
        probs,
        target[jnp.minimum(position, len(target) - 1), token],
      )
      return (token, ~accepted), (token, ~accepted)

    start = start.astype(jnp.int32), jnp.bool_(True)
    return Runs(*jax.lax.scan(step, start, jnp.arange(horizon))[1])

  return jax.vmap(run)(jax.random.split(run_key, num_runs), starts)
