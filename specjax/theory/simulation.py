"""Simulation of thousands of runs at once, position by position.

It uses the couplings of the decode loop without models and KV caches, so that
predictions of the theory can be compared with counts in seconds.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import couplings
from specjax import sampling


class Runs(NamedTuple):
  """The tokens of simulated runs, and which of them follow a rejection."""

  tokens: jax.Array  # [runs, horizon] int32
  rejected: jax.Array  # [runs, horizon] bool, whether the token is a correction


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
  coupling: base.Coupling = couplings.Multiround(),
) -> Runs:
  """Simulates batch speculative sampling on Markov models.

  Yin et al. (2024), Algorithm 4; with one draft, their Algorithm 1. There are
  `num_drafts` candidates at the start of a run and after a rejection. After an
  accepted candidate, only its own draft continues, up to the horizon.

  Args:
    key: consumed.
    target: transition probabilities `[V, V]` of the target model, or `[T, V,
      V]` if they change with the position (the last table is used for all later
      positions).
    draft: transition probabilities of the draft model, in the same form.
    horizon: number of positions to fill.
    num_drafts: `K >= 1`.
    num_runs: number of runs, each of which starts from a uniform token.
    coupling: the coupling that verifies the candidates at each position.

  Raises:
    ValueError: a number is below 1.
  """
  numbers = {'horizon': horizon, 'num_drafts': num_drafts, 'num_runs': num_runs}
  for name, number in numbers.items():
    checks.check_integers(name, number, 1)
  target, draft = (
    table if table.ndim == 3 else table[None] for table in (target, draft)
  )
  start_key, run_key = jax.random.split(key)
  starts = jax.random.randint(start_key, (num_runs,), 0, target.shape[-1])

  def run(key: jax.Array, start_token: jax.Array) -> Runs:
    # `fresh` is whether the run starts here or the last token was rejected.
    def step(
      carry: tuple[jax.Array, jax.Array], position: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
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

    start = start_token.astype(jnp.int32), jnp.bool_(True)
    return Runs(*jax.lax.scan(step, start, jnp.arange(horizon))[1])

  return jax.vmap(run)(jax.random.split(run_key, num_runs), starts)
