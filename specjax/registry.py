"""Components as values, and tables of them by name."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import inspect
import types
from typing import Any
from typing import ParamSpec
from typing import TypeVar
from typing import overload

import jax
import numpy as np

_Arguments = ParamSpec('_Arguments')
_Component = TypeVar('_Component')

# Components that each factory remembers.
_REMEMBERED = 1024


@overload
def component(
  factory: Callable[_Arguments, _Component],
) -> Callable[_Arguments, _Component]: ...


@overload
def component(
  *,
  example: dict[str, Any] | None = None,
  params: Callable[..., Any] | None = None,
) -> Callable[
  [Callable[_Arguments, _Component]], Callable[_Arguments, _Component]
]: ...


def component(
  factory: Callable[..., Any] | None = None,
  *,
  example: dict[str, Any] | None = None,
  params: Callable[..., Any] | None = None,
) -> Any:
  """Makes components values: equal calls of a factory return one object.

  JAX shares compiled programs between static arguments that are equal, and
  functions are equal only to themselves. Every factory of the library is
  decorated with this, so that what is built twice is compiled once. Sequences
  and NumPy arrays are compared by their contents: a list equals a tuple, or an
  array, of the same numbers. Numbers of different types differ, as they do for
  JAX: 1, 1.0 and True are three values. A call with values that JAX traces is
  never remembered.

  The keywords are for contract tests, which a component enters with its line
  in a table: what they have to know beyond what they give to all components of
  its kind. They become attributes of the factory.

  Args:
    factory: builds the component.
    example: arguments that it is built with. What all of its kind are given,
      such as `num_arms` or `topology`, is added if the factory has it.
    params: of a model or a drafter, returns its parameters; takes arguments of
      the factory by their names, and `model_params`, those of the small model
      that drafters are given. None stands for the latter.
  """
  if factory is None:
    return functools.partial(component, example=example, params=params)
  signature = inspect.signature(factory)

  @functools.lru_cache(maxsize=_REMEMBERED)
  def remembered(call):
    # Arrays that are made here outlive the trace that may be in progress.
    with jax.ensure_compile_time_eval():
      return factory(*call.args, **call.kwargs)

  @functools.wraps(factory)
  def build(*args, **kwargs):
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if _is_traced(bound.arguments, set()):
      return factory(*args, **kwargs)
    try:
      call = _Call(_by_contents(bound.arguments), args, kwargs)
    except TypeError:  # Something has no hash.
      return factory(*args, **kwargs)
    return remembered(call)

  vars(build).update(example=example or {}, params=params)
  return build


class _Call:
  """Arguments of a factory, equal to others by their contents."""

  def __init__(self, key, args, kwargs):
    self.key, self.args, self.kwargs = key, args, kwargs
    self._hash = hash(key)

  def __hash__(self):
    return self._hash

  def __eq__(self, other):
    return self.key == other.key


def _by_contents(value):
  """Returns what stands for a value where calls are compared."""
  if isinstance(value, dict):
    named = ((name, _by_contents(each)) for name, each in value.items())
    return dict, frozenset(named)
  if isinstance(value, np.ndarray) and value.size and value.ndim:
    value = list(value)
  if isinstance(value, list | tuple):
    own = type(value) if hasattr(value, '_fields') else tuple
    return own, *map(_by_contents, value)
  if isinstance(value, functools.partial):
    return value.func, _by_contents(value.args), _by_contents(value.keywords)
  if isinstance(value, np.ndarray):
    return value.shape, value.dtype.str, value.tobytes()
  if isinstance(value, bool | int | float | np.number | np.bool_):
    return np.result_type(value), value
  return value


def _is_traced(value, seen):
  """Returns whether JAX traces a value, or what it holds or closes over.

  Args:
    value: anything.
    seen: functions that were looked into, as some close over themselves.
  """
  if isinstance(value, jax.core.Tracer):
    return True
  function = inspect.unwrap(value) if callable(value) else None
  if isinstance(function, types.FunctionType):
    if function in seen:
      return False
    seen.add(function)
  return any(_is_traced(part, seen) for part in _parts(value, function))


def _parts(value, function):
  """Returns what a value holds, or what a function closes over."""
  if isinstance(value, dict):
    return value.values()
  if isinstance(value, list | tuple):
    return value
  if isinstance(value, functools.partial):
    return value.func, value.args, value.keywords
  if not isinstance(function, types.FunctionType):
    return ()
  nothing = types.CellType()  # What stands for a name without a value yet.
  cells = [cell for cell in function.__closure__ or () if cell != nothing]
  closed = [cell.cell_contents for cell in cells]
  return closed, function.__defaults__ or (), function.__kwdefaults__ or {}


def lookup(
  table: Mapping[str, _Component], kind: str, name: str | None
) -> _Component:
  """Returns `table[name]`, or raises a `ValueError` that lists the names."""
  if name is None or name not in table:
    raise ValueError(
      f'Unknown {kind} {name!r}. Known: {", ".join(sorted(table))}.'
    )
  return table[name]
