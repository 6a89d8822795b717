"""Builds components with default arguments, and raises errors of checks."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import models
from specjax.models import config
from specjax.models import flax_modules
from specjax.models import head_config
from specjax.models import heads
from specjax.testing import distributions

# The class of a component, or a function that returns a metric.
Constructor = Callable[..., Any]

# Vocabulary size of the small model in the arguments of drafters.
VOCAB_SIZE = 3


def require(condition: Any, sentence: str) -> None:
  """Raises an `AssertionError` with the sentence unless a condition holds."""
  if not condition:
    raise AssertionError(sentence)


def require_close(
  array: Any, other: Any, tolerance: float, sentence: str
) -> None:
  """Raises an `AssertionError` unless two arrays are equal up to a tolerance.

  Args:
    array: an array.
    other: an array with the same shape.
    tolerance: maximum difference of two entries.
    sentence: the required property, without a full stop.
  """
  array, other = np.asarray(array, np.float64), np.asarray(other, np.float64)
  is_equal = array == other  # They may be infinite.
  gap = np.abs(np.where(is_equal, 0, array) - np.where(is_equal, 0, other))
  largest = gap.max(initial=0.0)  # NaN if an entry is NaN.
  require(
    largest <= tolerance, f'{sentence}; they differ by up to {largest:.2g}.'
  )


@contextlib.contextmanager
def error_context(constructor: Constructor) -> Iterator[None]:
  """Prefixes errors of checks with the name of the component's class."""
  try:
    yield
  except AssertionError as error:
    name = getattr(constructor, '__name__', repr(constructor))
    raise AssertionError(f'{name}: {error}') from error


def check_documented(constructor: Constructor) -> None:
  """Checks that an entry of a table can be called and has a docstring."""
  require(callable(constructor), 'It must be a function or a class.')
  doc = inspect.getdoc(constructor)
  # The default docstring of a dataclass is its signature.
  has_doc = doc and not doc.startswith(f'{constructor.__name__}(')
  require(has_doc, 'It must have a docstring.')


def library_entries(table: Mapping[str, Constructor]) -> list[Constructor]:
  """Returns the entries of a table that are defined in specjax.

  Arguments of checks that are known for the library's components must not be
  those of components that a user has added to the table.

  Args:
    table: constructors by name.
  """
  return [
    entry for entry in table.values() if entry.__module__.startswith('specjax.')
  ]


def select_arguments(
  function: Callable[..., Any], values: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the values for which a function has parameters."""
  names = inspect.signature(function).parameters
  return {name: value for name, value in values.items() if name in names}


def arguments(
  constructor: Constructor,
  defaults: Mapping[str, Any],
  options: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the arguments with which a component is built.

  Args:
    constructor: builds the component.
    defaults: arguments that are used if the constructor has the parameters.
    options: arguments of this component, which take precedence.

  Raises:
    AssertionError: an argument is missing or unknown.
  """
  selected = {**select_arguments(constructor, defaults), **options}
  try:
    inspect.signature(constructor).bind(**selected)
  except TypeError as error:
    raise AssertionError(
      f'The example must contain all required arguments: {error}.'
    ) from error
  return selected


@functools.cache
def _head_config(kind: str) -> head_config.HeadConfig:
  """Returns the config of a small head for a small target."""
  target = config.TransformerConfig(
    vocab_size=VOCAB_SIZE,
    num_layers=2,
    d_model=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    d_ff=12,
  )
  options: dict[str, Any] = {'markov_rank': 2} if kind == 'dflash' else {}
  return heads.configure(kind, target, **options)


def head(constructor: Constructor) -> Any:
  """Returns a small head for the parameter `head` of a drafter's class.

  Its kind is that of the annotation; None if there is no such parameter.
  """
  parameter = inspect.signature(constructor).parameters.get('head')
  kinds: dict[Any, str] = {
    base.FeatureHead: 'eagle',
    base.ParallelHead: 'medusa',
    base.BlockHead: 'dflash',
  }
  kind = kinds.get(parameter.annotation) if parameter else None
  return kind and heads.head(_head_config(kind))


@functools.cache
def head_params(small_head: Any) -> base.Params:
  """Returns random parameters of a head from `head`, with various entries."""
  params = flax_modules.init_params(jax.random.key(20), small_head.config)
  rng = np.random.default_rng(21)
  return jax.tree.map(
    lambda leaf: leaf + np.float32(0.4 * rng.normal(size=leaf.shape)),
    jax.device_get(params),
  )


@components.component
class _Layered(models.Markov):
  """A Markov model with early exits, all of which are the whole model."""

  num_layers: int = components.static(default=2)

  def exit(self, num_layers: int) -> base.LanguageModel:
    """Returns a component that depends on the number of layers."""
    return _Layered(self.vocab_size, num_layers)


def model() -> base.LanguageModel:
  """Returns a small model with early exits, for drafters."""
  return _Layered(VOCAB_SIZE)


def table() -> jax.Array:
  """Returns the parameters of `model`."""
  rng = np.random.default_rng(18)
  return jnp.asarray(distributions.random_table(rng, VOCAB_SIZE, VOCAB_SIZE))


def abstract(tree: Any) -> Any:
  """Returns a tree of the shapes and types of all leaves."""
  return jax.tree.map(
    lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), tree
  )


def is_like(value: Any, shape: tuple[int, ...], dtype: Any) -> bool:
  """Returns whether a value is an array with a shape and a type."""
  return abstract(value) == (shape, jnp.dtype(dtype))


def check_keeps(before: Any, after: Any, method: str) -> None:
  """Checks that a method keeps the structure, shapes and types of a state.

  Args:
    before: the state before.
    after: the state after.
    method: name of the method, for the error.
  """
  require(
    abstract(after) == abstract(before),
    f'{method} must keep the structure, shapes and types of the state, '
    f'{abstract(before)}, got {abstract(after)}.',
  )
