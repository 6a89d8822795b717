"""What all checks share: how a factory is called, and how a check fails."""

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
from specjax.models import adapters
from specjax.models import config
from specjax.models import head_config
from specjax.models import heads
from specjax.testing import distributions

Factory = Callable[..., Any]

# Of the small model that drafters are given.
VOCAB_SIZE = 3


def require(holds: Any, sentence: str) -> None:
  """Raises an `AssertionError` of the sentence unless something holds."""
  if not holds:
    raise AssertionError(sentence)


def require_close(
  one: Any, other: Any, tolerance: float, sentence: str
) -> None:
  """Raises an `AssertionError` unless two arrays are equal up to a tolerance.

  Args:
    one: an array.
    other: another of its shape.
    tolerance: largest difference of two entries.
    sentence: what must hold, without a full stop.
  """
  gap = np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64))
  largest = gap.max(initial=0.0)  # NaN, if an entry is.
  require(
    largest <= tolerance, f'{sentence}; they differ by up to {largest:.2g}.'
  )


@contextlib.contextmanager
def about(factory: Factory) -> Iterator[None]:
  """Has what fails begin with the factory's name."""
  try:
    yield
  except AssertionError as error:
    name = getattr(factory, '__name__', repr(factory))
    raise AssertionError(f'{name}: {error}') from error


def check_documented(factory: Factory) -> None:
  """An entry of a table can be called, and has a docstring."""
  require(callable(factory), 'It must be a function or a class.')
  doc = inspect.getdoc(factory)
  # Dataclasses without one get their signature.
  has_doc = doc and not doc.startswith(f'{factory.__name__}(')
  require(has_doc, 'It must have a docstring.')


def named(function: Factory, values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns those of the values that a function has parameters for."""
  names = inspect.signature(function).parameters
  return {name: value for name, value in values.items() if name in names}


def arguments(
  factory: Factory, given: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns what a component is built with.

  Args:
    factory: builds the component.
    given: what all of its kind are given, if they have such parameters.
    options: arguments of this component, which take precedence.
  """
  chosen = {**named(factory, given), **options}
  try:
    inspect.signature(factory).bind(**chosen)
  except TypeError as error:
    raise AssertionError(
      f'The example must hold all that the factory needs: {error}.'
    ) from error
  return chosen


@functools.cache
def _head_config(kind: str) -> head_config.HeadConfig:
  target = config.TransformerConfig(
    vocab_size=VOCAB_SIZE,
    num_layers=2,
    d_model=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    d_ff=12,
  )
  return heads.configure(kind, target)


def head(factory: Factory) -> Any:
  """Returns the small head that a drafter is given, of its parameter's type."""
  parameter = inspect.signature(factory).parameters.get('head')
  kinds: dict[Any, str] = {
    base.FeatureHead: 'eagle',
    base.ParallelHead: 'medusa',
  }
  kind = kinds.get(parameter.annotation) if parameter else None
  return kind and heads.head(_head_config(kind))


def head_params(small: base.FeatureHead | base.ParallelHead) -> base.Params:
  """Returns the parameters of what `head` returns, far from all alike."""
  return _head_params(
    'eagle' if isinstance(small, base.FeatureHead) else 'medusa'
  )


@functools.cache
def _head_params(kind: str) -> base.Params:
  params = adapters.init_params(jax.random.key(20), _head_config(kind))
  rng = np.random.default_rng(21)
  return jax.tree.map(
    lambda leaf: leaf + np.float32(0.4 * rng.normal(size=leaf.shape)),
    jax.device_get(params),
  )


@components.component
class _Layered(models.Markov):
  """A Markov model with early exits, each of which is the whole model."""

  num_layers: int = components.static(default=2)

  def exit(self, num_layers: int) -> base.LanguageModel:
    """Returns another component for each number of layers."""
    return _Layered(self.vocab_size, num_layers)


def model() -> base.LanguageModel:
  """Returns the small model that drafters are given, with early exits."""
  return _Layered(VOCAB_SIZE)


def table() -> jax.Array:
  """Returns the parameters of `model`."""
  rng = np.random.default_rng(18)
  return jnp.asarray(distributions.random_table(rng, VOCAB_SIZE, VOCAB_SIZE))


def abstract(tree: Any) -> Any:
  """Returns shapes and types of the leaves, and how they hang together."""
  return jax.tree.map(
    lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), tree
  )


def is_like(value: Any, shape: tuple[int, ...], dtype: Any) -> bool:
  """Returns whether a value is an array of a shape and a type."""
  return abstract(value) == (shape, jnp.dtype(dtype))


def check_keeps(before: Any, after: Any, what: str) -> None:
  """A loop carries a state of one shape and type."""
  require(
    abstract(after) == abstract(before),
    f'{what} must keep the state: its structure, shapes and types were '
    f'{abstract(before)} and became {abstract(after)}.',
  )
