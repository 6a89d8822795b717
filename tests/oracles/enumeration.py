"""Exact distributions of what draws uniforms: an integral over all of them.

The outcome is constant on the cells that its breakpoints cut out of the unit
cube. Each cell is evaluated near two opposite corners: a breakpoint that is not
where the outcome steps spoils the sum.
"""

import functools

import jax
import numpy as np
import pytest

from tests import parts

# Corners keep clear of the breakpoints, which are float32 numbers.
_MARGIN = 2e-6
# Rows of one call: all numbers of cells share a program.
_CHUNK = 4096


def cells(axes):
  """Returns `[C, U, 2]` corners and `[C]` volumes; `U` axes' breakpoints."""
  edges = [
    np.unique(np.clip(np.append(steps, [0, 1]), 0, 1).round(7))
    for steps in axes
  ]
  margins = [np.minimum(_MARGIN, np.diff(edge) / 2) for edge in edges]
  corners = [
    [edge[:-1] + margin for edge, margin in zip(edges, margins)],
    [edge[1:] - margin for edge, margin in zip(edges, margins)],
  ]
  points = [np.stack(np.meshgrid(*low, indexing='ij'), -1) for low in corners]
  volumes = functools.reduce(np.multiply.outer, map(np.diff, edges))
  return np.stack(points, -1).reshape(-1, len(axes), 2), volumes.ravel()


def product(levels):
  """Returns `[C, L, U, 2]` corners and volumes of `L` independent levels."""
  index = np.indices([len(volumes) for _, volumes in levels])
  index = index.reshape(len(levels), -1)
  points = [points[entry] for (points, _), entry in zip(levels, index)]
  volumes = [volumes[entry] for (_, volumes), entry in zip(levels, index)]
  return np.stack(points, 1), np.prod(volumes, axis=0)


class Cells:
  """The cells of several cases, one after the other."""

  def __init__(self, grids):
    """Args: grids: `(points [C, ..., 2], volumes [C])` of each case."""
    sizes = [len(volumes) for _, volumes in grids]
    points = np.concatenate([points for points, _ in grids])
    volumes = np.concatenate([volumes for _, volumes in grids])
    # Both corners of a cell share its volume.
    self.points = np.concatenate([points[..., 0], points[..., 1]])
    self.volumes = np.concatenate([volumes, volumes]) / 2
    self.case = np.tile(np.repeat(np.arange(len(grids)), sizes), 2)


def compiled(function):
  """Returns a function over rows, whose keys are their uniforms.

  Args:
    function: of a key and other arguments; its parts draw with
      `jax.random.uniform` from the key, or from the entries of its first axis
      where they split it.
  """
  program = jax.jit(
    lambda args, shared: jax.vmap(lambda *row: function(*row, *shared))(*args)
  )

  def run(rows, shared=()):
    """Returns the results for rows `[R, ...]`, as NumPy arrays."""
    num = len(jax.tree.leaves(rows)[0])
    results = []
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(jax.random, 'split', lambda key, num=2: key)
      patch.setattr(jax.random, 'uniform', parts.uniform)
      for start in range(0, num, _CHUNK):
        indices = np.minimum(np.arange(start, start + _CHUNK), num - 1)
        chunk = jax.tree.map(lambda leaf, indices=indices: leaf[indices], rows)
        results.append(jax.device_get(program(chunk, shared)))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *results)

  return run
