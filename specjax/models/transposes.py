"""Transposed copies of kernels, for products of a few rows on CPUs.

Verifying a draft multiplies a few rows, one for each token, by every kernel. On
a CPU, such a product should take little longer than that of one row, since most
of its time is spent reading the kernel. XLA's product of rows `[R, D]` with a
kernel `[D, O]` takes 2 to 4 times as long for five rows as for one. Its product
of the transposed kernel `[O, D]` with the rows, whose result `[O, R]` is
transposed afterwards, takes 1.2 to 2.3 times as long. Times on two cores of an
AMD EPYC with AVX-512 over those of one row, for the kernels of SmolLM2:

    kernel       size             8 rows       16 rows
    query        576 x 576        2.4 -> 1.5   3.0 -> 1.8
    gate, up     576 x 1536       3.8 -> 2.2   4.8 -> 2.6
    down         1536 x 576       2.5 -> 1.2   3.1 -> 1.7
    output head  576 x 49152      2.1 -> 1.2   2.3 -> 1.4

The sums of up to four rows are longer, and fewer, if two rows of the transposed
kernel are one (`_multiply_pairs`). SmolLM2's calls for 2, 3 and 4 tokens then
take 1.2 to 1.4 times as long as a call for one, instead of 1.4 to 1.5 without
pairs, on two cores of an AMD EPYC with AVX2 (docs/models.md has the command).
Whether copies pay for more than 8 rows depends on the processor.

One row, and more rows than `WIDTHS[-1]`, are multiplied by the kernel itself,
so that a model has both. A decoder makes the copies once (`add`); other users
of a model's parameters never see them. A tied output head needs no copy, as the
embedding is stored in this order.
"""

from collections.abc import Iterable
import functools
from typing import Any
import weakref

from flax import nnx
import jax
import jax.numpy as jnp

from specjax import base

# Name of the copy, next to `kernel`.
NAME = 'transposed'
# Numbers of rows that are multiplied; fewer rows are padded. Products of 5 to 7
# rows take longer than those of 8, and those of 3 rows no shorter than of 4;
# those of 24 rows are shorter than of 32.
WIDTHS = 2, 4, 8, 16, 24, 32
# Products of up to so many rows are summed in pairs, if their sums have fewer
# terms than this.
_MAX_PAIRED_WIDTH = 4
_LONG = 1024
# Entries of the smallest kernel for which a copy pays.
_MIN_SIZE = 2**17

# Copies by the id of the original, which they do not outlive.
_copies: dict[int, tuple[Any, jax.Array]] = {}


def is_faster(num_rows: int, weights: Any) -> bool:
  """Returns whether `multiply` is faster than the product with the kernel.

  Args:
    num_rows: number of rows.
    weights: the kernel, transposed or not, or its shape and type.
  """
  is_few = WIDTHS[0] <= num_rows <= WIDTHS[-1]
  return is_few and weights.size >= _MIN_SIZE and weights.dtype == jnp.float32


def multiply(x: jax.Array, transposed: jax.Array) -> jax.Array:
  """Returns the product `[R, O]` of rows `[R, D]` and a kernel.

  Args:
    x: the rows, as many as `is_faster` accepts.
    transposed: `[O, D]`.
  """
  num_rows = len(x)
  width = next(width for width in WIDTHS if width >= num_rows)
  padded = jnp.pad(x, ((0, width - num_rows), (0, 0)))
  num_outputs, num_inputs = transposed.shape
  is_short = num_inputs < _LONG and num_outputs % 2 == 0
  if is_short and width <= _MAX_PAIRED_WIDTH:
    product = _multiply_pairs(padded, transposed)
  else:
    product = _multiply_left(transposed, padded).T
  return product[:num_rows]


def _multiply_pairs(x: jax.Array, transposed: jax.Array) -> jax.Array:
  """Returns the product as `multiply`, by sums that are twice as long.

  Two rows `a, b` of the transposed kernel, one after the other, are a row of
  twice the length, which is multiplied by each row of `x` twice:

      [a b] * [x 0] = a * x        [a b] * [0 x] = b * x

  Args:
    x: `[R, D]`.
    transposed: `[O, D]`, where `O` is even.
  """
  num_outputs, num_inputs = transposed.shape
  pairs = transposed.reshape(num_outputs // 2, 2 * num_inputs)
  zeros = jnp.zeros_like(x)
  product = _multiply_left(pairs, jnp.block([[x, zeros], [zeros, x]]))
  product = product.reshape(num_outputs // 2, 2, len(x))
  return jnp.moveaxis(product, -1, 0).reshape(len(x), num_outputs)


def _multiply_left(left: jax.Array, x: jax.Array) -> jax.Array:
  """Returns the product `[O, R]` of `[O, D]` and rows `[R, D]`."""
  product = jnp.einsum('od,rd->or', left, x, preferred_element_type=jnp.float32)
  # Without the barrier, XLA swaps the factors and is as slow as before.
  return jax.lax.optimization_barrier(product)


def add(params: base.Params) -> base.Params:
  """Returns parameters with transposed copies of kernels, if they are on a CPU.

  Copies are kept as long as their originals, so that decoders with the same
  parameters share them. Kernels on several devices get none.

  Args:
    params: nested dicts and arrays, which are not modified.

  Returns:
    The argument itself if it has no such kernel.
  """
  if not isinstance(params, dict):
    return params
  added = {name: add(child) for name, child in params.items()}
  kernel: Any = params.get('kernel')
  if _is_worthwhile(kernel):
    added[NAME] = _transposed(kernel)
  is_same = all(added.get(name) is params.get(name) for name in added)
  return params if is_same else added


def remove(params: base.Params) -> base.Params:
  """Returns parameters without the copies of `add`."""
  if not isinstance(params, dict):
    return params
  return {name: remove(child) for name, child in params.items() if name != NAME}


def paths(params: base.Params) -> frozenset[tuple[str, ...]]:
  """Returns the paths of the layers in a model's parameters with copies."""
  if not isinstance(params, dict):
    return frozenset()
  found = {(name, *path) for name in params for path in paths(params[name])}
  return frozenset(found | {()} if NAME in params else found)


def add_to_modules(
  model: nnx.Module, layers: Iterable[tuple[str, ...]]
) -> None:
  """Gives layers copies with undefined values.

  Args:
    model: the model, which is modified in place.
    layers: from `paths`.
  """
  for path in layers:
    module: Any = functools.reduce(getattr, path, model)
    shape = module.out_features, module.in_features
    setattr(module, NAME, nnx.Param(jnp.zeros(shape, jnp.float32)))


def _is_worthwhile(kernel: Any) -> bool:
  """Returns whether an array is a kernel on a CPU that should have a copy."""
  if not isinstance(kernel, jax.Array) or isinstance(kernel, jax.core.Tracer):
    return False
  devices = kernel.devices()
  is_on_cpu = len(devices) == 1 and next(iter(devices)).platform == 'cpu'
  return is_on_cpu and kernel.ndim == 2 and is_faster(WIDTHS[-1], kernel)


def _transposed(kernel: jax.Array) -> jax.Array:
  """Returns the copy of a kernel; makes it at the first call."""
  key = id(kernel)
  if key not in _copies:
    forget = lambda reference: _copies.pop(key, None)
    # The barrier keeps XLA from storing it in the order of the original.
    copy = jax.jit(lambda array: jax.lax.optimization_barrier(array.T))(kernel)
    _copies[key] = weakref.ref(kernel, forget), copy
  return _copies[key][1]
