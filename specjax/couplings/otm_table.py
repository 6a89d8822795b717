"""The optimal transport by linear program, for small vocabularies.

SpecTr (Sun et al. 2023), equation (4). The reference that other couplings are
measured by, and the one that leaves the device: the host solves the program of
each new pair of distributions, and remembers it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling
from specjax.transport import linear_program


def otm_table(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Samples the optimal plan, given the active candidates.

  Args:
    key: consumed.
    candidates: `[W]` int32 tokens, i.i.d. from `draft`.
    active: `[W]` bool, which of them stand here; without any, the token is a
      sample of the target.
    draft: `[V]` float32.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`: `[]` int32, and whether it is an active candidate.

  Raises:
    ValueError: `V**W` exceeds `transport.linear_program.MAX_TUPLES`.
  """
  size, width = target.shape[0], candidates.shape[0]
  linear_program.check_size(size, width)
  weights = jax.pure_callback(
    _rows,
    jax.ShapeDtypeStruct(target.shape, jnp.float32),
    draft,
    target,
    candidates[jnp.argsort(~active)],  # The active ones first.
    active.sum(),
    vmap_method='broadcast_all',
  )
  uniforms = jax.random.uniform(
    key, (sampling.num_uniforms(size),), jnp.float32
  )
  token = sampling.draw(uniforms, weights)
  return token, (active & (candidates == token)).any()


def _rows(draft, target, candidates, num_active):
  """Token probabilities `[..., V]`, given the first `num_active` candidates."""
  draft, target, candidates, num_active = map(
    np.asarray, (draft, target, candidates, num_active)
  )
  batch, size = target.shape[:-1], target.shape[-1]
  cases = np.concatenate(
    [draft, target, num_active[..., None]], axis=-1, dtype=np.float32
  ).reshape(-1, 2 * size + 1)
  cases, which = np.unique(cases, axis=0, return_inverse=True)
  candidates = candidates.reshape(-1, candidates.shape[-1])
  rows = np.zeros((len(candidates), size), np.float32)
  for i, case in enumerate(cases):
    here, num = which.ravel() == i, int(case[-1])
    if num:
      plan = _plan(case[:size].tobytes(), case[size:-1].tobytes(), num)
      index = tuple(candidates[here, :num].T)
      rows[here] = plan[np.ravel_multi_index(index, (size,) * num)]
    else:
      rows[here] = case[size:-1]
  # Drafts of almost no chance may have got no mass at all.
  empty = rows.max(axis=-1, keepdims=True) <= 0
  rows = np.where(empty, target.reshape(-1, size), rows)
  return rows.reshape(*batch, size)


@functools.lru_cache(maxsize=1024)
def _plan(draft, target, num_drafts):
  return linear_program.solve_linear_program(
    np.frombuffer(draft, np.float32),
    np.frombuffer(target, np.float32),
    num_drafts,
  ).plan
