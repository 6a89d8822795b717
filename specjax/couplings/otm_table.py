"""The optimal transport by linear program, for small vocabularies.

SpecTr (Sun et al. 2023), equation (4). It is the reference for other couplings,
and the only one that leaves the device: the host solves the program of each new
pair of distributions, and keeps its solution.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling
from specjax.transport import linear_program


@components.component
class OTMTable(base.Coupling):
  """Samples the optimal plan, given the active candidates.

  Raises `ValueError` if `V**W` exceeds `transport.linear_program.MAX_TUPLES`.
  """

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
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


def _rows(
  draft: jax.Array | np.ndarray,
  target: jax.Array | np.ndarray,
  candidates: jax.Array | np.ndarray,
  num_active: jax.Array | np.ndarray,
) -> np.ndarray:
  """Returns token probabilities `[..., V]`, given the active candidates.

  Args:
    draft: `[..., V]`.
    target: `[..., V]`.
    candidates: `[..., W]`, the active ones first.
    num_active: `[...]`.
  """
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
    rows_of_case, num = which.ravel() == i, int(case[-1])
    if num:
      plan = _plan(case[:size].tobytes(), case[size:-1].tobytes(), num)
      index = tuple(candidates[rows_of_case, :num].T)
      rows[rows_of_case] = plan[np.ravel_multi_index(index, (size,) * num)]
    else:
      rows[rows_of_case] = case[size:-1]
  # Drafts of almost no probability may have received no mass at all.
  empty = rows.max(axis=-1, keepdims=True) <= 0
  rows = np.where(empty, target.reshape(-1, size), rows)
  return rows.reshape(*batch, size)


@functools.lru_cache(maxsize=1024)
def _plan(draft: bytes, target: bytes, num_drafts: int) -> np.ndarray:
  return linear_program.solve_linear_program(
    np.frombuffer(draft, np.float32),
    np.frombuffer(target, np.float32),
    num_drafts,
  ).plan
