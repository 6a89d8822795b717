"""Builds the components of a config, such as 'ucb1(beta=0.01)'.

A component is a call, as in `experiments.common.calls`, or the object itself.
Names are looked up in the tables of `specjax`, and options are checked against
the signature of the class, so that a new line in a table makes a component
usable from configs.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import inspect
import types
import typing
from typing import Any

import jax

from experiments.common import calls
from experiments.common import configs
from specjax import bandits
from specjax import base
from specjax import couplings
from specjax import drafters
from specjax import evaluation
from specjax import goals
from specjax import registry
from specjax import rewards
from specjax import trees
from specjax import verifiers
from specjax.evaluation import scoring

_PLAIN = (bool, int, float, str, types.NoneType)

Factory = Callable[..., Any]


_COUPLINGS: Mapping[str, Factory] = collections.ChainMap(
  couplings.COUPLINGS, couplings.DISTINCT_COUPLINGS
)

# Kinds of components and their tables, by the annotation of a parameter.
KINDS: dict[Any, tuple[str, Callable[[], Mapping[str, Factory]]]] = {
  base.Bandit: ('bandit', lambda: bandits.BANDITS),
  base.Coupling: ('coupling', lambda: _COUPLINGS),
  base.Drafter: ('drafter', lambda: drafters.DRAFTERS),
  base.Goal: ('goal', lambda: goals.GOALS),
  base.Reward: ('reward', lambda: rewards.REWARDS),
  base.StopRule: ('stop', lambda: drafters.STOPS),
  base.Verifier: ('verifier', verifiers.factories),
  scoring.Metric: ('metric', lambda: evaluation.METRICS),
  trees.Topology: ('tree', lambda: trees.TREES),
}


def parse(kind: Any, entry: Any, location: str) -> Any:
  """Returns a component as a call whose class is known, or the object itself.

  Args:
    kind: a key of `KINDS`.
    entry: a call, its text, or a component of this kind.
    location: in the config, for error messages.

  Raises:
    ValueError: the entry is none of these, or there is no such component.
  """
  if isinstance(entry, kind):
    return entry
  call = calls.parse(entry, location)
  find(kind, call, location)
  return call


def build(
  kind: Any,
  entry: Any,
  location: str,
  providers: Mapping[Any, Any] = types.MappingProxyType({}),
) -> Any:
  """Builds a component.

  Args:
    kind: a key of `KINDS`.
    entry: a call, its text, or a component of this kind.
    location: in the config, for error messages.
    providers: functions for parameters that the experiment sets, by the name or
      the annotation of the parameter. Each takes the option's value, or None if
      the entry has no such option.

  Raises:
    ValueError: the component is unknown or its options are invalid.
  """
  if isinstance(entry, kind):
    return entry
  call = calls.parse(entry, location)
  factory = find(kind, call, location)
  options = _arguments(factory, call, location, providers)
  try:
    component = factory(**options)
    # A coupling means the tree walk with it.
    return verifiers.resolve(component) if kind is base.Verifier else component
  except (TypeError, ValueError) as error:
    raise ValueError(f'{location}: {call}: {error}') from error


def find(kind: Any, call: calls.Call, location: str) -> Factory:
  """Returns the class of a component, by its name in the table."""
  name, table = KINDS[kind]
  try:
    return registry.lookup(table(), name, call.name)
  except ValueError as error:
    raise ValueError(f'{location}: {error}') from None


def parameters(factory: Factory) -> dict[str, inspect.Parameter]:
  """Returns the parameters that are options, by name."""
  return {
    name: parameter
    for name, parameter in inspect.signature(factory).parameters.items()
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
  }


def bind(factory: Factory, call: calls.Call, location: str) -> dict[str, Any]:
  """Returns the options of an entry, by name."""
  names, list_names = list(parameters(factory)), _list_parameters(factory)
  options = dict(call.options)
  if len(call.args) > len(names):
    if list_names == names:
      raise ValueError(_list_error(location, call, list_names[0], call.args))
    raise ValueError(
      f'{location}: {call.name} takes at most {len(names)} arguments, got '
      f'{len(call.args)}.'
    )
  for name, value in zip(names, call.args):
    if name in options:
      raise ValueError(f'{location}: {call.name} is given {name} twice.')
    options[name] = value
  kinds = {p.kind for p in inspect.signature(factory).parameters.values()}
  if inspect.Parameter.VAR_KEYWORD not in kinds:
    noun = f'{location}: Unknown option'
    configs.check_known(options, names, noun, f' of {call.name}')
  for name in list_names:
    value = options.get(name)
    if isinstance(value, str | calls.Call):
      raise ValueError(_list_error(location, call, name, (value,)))
  return options


def _list_parameters(factory: Factory) -> list[str]:
  """Returns the names of the parameters that are lists."""
  return [
    name
    for name, parameter in parameters(factory).items()
    if typing.get_origin(parameter.annotation) is Sequence
  ]


def _list_error(
  location: str, call: calls.Call, name: str, values: Sequence[Any]
) -> str:
  """Returns an error message that shows how a list is written."""
  items = ', '.join(map(calls.as_text, values))
  return (
    f'{location}: {name} of {call.name} must be a list, as in '
    f'{call.name}([{items}]), got {items}.'
  )


def _arguments(
  factory: Factory,
  call: calls.Call,
  location: str,
  providers: Mapping[Any, Any],
) -> dict[str, Any]:
  """Returns the arguments that the class is called with."""
  options = bind(factory, call, location)
  for name, parameter in parameters(factory).items():
    annotation = parameter.annotation
    provide = providers.get(name) or providers.get(annotation)
    if provide is not None:
      value = provide(options.get(name))
      if value is not None:
        options[name] = value
    elif name in options:
      option_location = f'{location}.{name}'
      options[name] = _option(
        options[name], annotation, option_location, providers
      )
    if name not in options and parameter.default is parameter.empty:
      raise ValueError(
        f'{location}: {call.name} needs {name}, which is not set.'
      )
  return options


def _option(
  value: Any, annotation: Any, location: str, providers: Mapping[Any, Any]
) -> Any:
  """Returns an option's value, which is built if it is a component."""
  for kind in (annotation, *typing.get_args(annotation)):
    if kind in KINDS and value is not None:
      return build(kind, value, location, providers)
  plain = typing.get_args(annotation) or (annotation,)
  is_plain = all(type_ in _PLAIN for type_ in plain)
  if is_plain and not isinstance(value, jax.Array):
    if float in plain and type(value) is int:
      return float(value)
    if type(value) not in plain:
      names = ' or '.join(
        'None' if type_ is types.NoneType else type_.__name__ for type_ in plain
      )
      raise ValueError(f'{location} must be of type {names}, got {value!r}.')
  return value
