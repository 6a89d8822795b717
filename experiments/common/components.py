"""Parses and builds the components of a config: a name and its options.

All kinds of components share one grammar. These are equal:

    'ucb1(beta=0.01)'
    ('ucb1', ...)             with positional arguments, as ('chain', 4)
    {'name': 'ucb1', 'beta': 0.01}

Options are Python literals or components: 'mixture(opt(0.2), chow(0.5))'.
Inside a call, a bare word is a string. Names are looked up in the tables of
`specjax`, and options are checked against the signature of the class, so that
a new line in a table makes a component usable from configs.
"""

import ast
import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import inspect
import re
import types
import typing
from typing import Any
from typing import NamedTuple

import jax

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

# Names of components and models, which may have hyphens except in a call.
_NAME = re.compile(r'[\w.-]+')
_PLAIN = (bool, int, float, str, types.NoneType)

Factory = Callable[..., Any]


class Spec(NamedTuple):
  """A component, parsed but not built; hashable."""

  name: str
  args: tuple[Any, ...] = ()
  options: tuple[tuple[str, Any], ...] = ()

  def __str__(self) -> str:
    arguments = [*map(_format, self.args)]
    arguments += [f'{name}={_format(value)}' for name, value in self.options]
    return f'{self.name}({", ".join(arguments)})' if arguments else self.name


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


def parse(entry: Any, location: str) -> Spec:
  """Parses a component.

  Args:
    entry: a component in one of the forms at the top of this file.
    location: in the config, for error messages.

  Raises:
    ValueError: the entry has none of these forms.
  """
  if isinstance(entry, Spec):
    return entry
  if isinstance(entry, str):
    return _parse_text(entry, location)
  name, args, options = None, (), {}
  if isinstance(entry, tuple | list) and entry:
    name, *args = entry
  elif hasattr(entry, 'items'):
    options = {key: _freeze(value) for key, value in entry.items()}
    name = options.pop('name', None)
  if isinstance(name, str):
    return Spec(name, tuple(map(_freeze, args)), tuple(options.items()))
  raise ValueError(
    f"{location} must be a name, a call such as 'opt(0.2)', or a dictionary "
    f'with a name, got {entry!r}.'
  )


def build(
  kind: Any,
  entry: Any,
  location: str,
  providers: Mapping[Any, Any] = types.MappingProxyType({}),
) -> Any:
  """Builds a component.

  Args:
    kind: a key of `KINDS`.
    entry: what `parse` takes.
    location: in the config, for error messages.
    providers: functions for parameters that the experiment sets, by the name or
      the annotation of the parameter. Each takes the option's value, or None if
      the entry has no such option.

  Raises:
    ValueError: the component is unknown or its options are invalid.
  """
  spec = parse(entry, location)
  factory = find(kind, spec, location)
  options = _arguments(factory, spec, location, providers)
  try:
    component = factory(**options)
    # A coupling means the tree walk with it.
    return verifiers.resolve(component) if kind is base.Verifier else component
  except (TypeError, ValueError) as error:
    raise ValueError(f'{location}: {spec}: {error}') from error


def find(kind: Any, spec: Spec, location: str) -> Factory:
  """Returns the class of a component, by its name in the table."""
  name, table = KINDS[kind]
  try:
    return registry.lookup(table(), name, spec.name)
  except ValueError as error:
    raise ValueError(f'{location}: {error}') from None


def parameters(factory: Factory) -> dict[str, inspect.Parameter]:
  """Returns the parameters that are options, by name."""
  return {
    name: parameter
    for name, parameter in inspect.signature(factory).parameters.items()
    if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
  }


def bind(factory: Factory, spec: Spec, location: str) -> dict[str, Any]:
  """Returns the options of an entry, by name."""
  names, list_names = list(parameters(factory)), _list_parameters(factory)
  options = dict(spec.options)
  if len(spec.args) > len(names):
    if list_names == names:
      raise ValueError(_list_error(location, spec, list_names[0], spec.args))
    raise ValueError(
      f'{location}: {spec.name} takes at most {len(names)} arguments, got '
      f'{len(spec.args)}.'
    )
  for name, value in zip(names, spec.args):
    if name in options:
      raise ValueError(f'{location}: {spec.name} is given {name} twice.')
    options[name] = value
  kinds = {p.kind for p in inspect.signature(factory).parameters.values()}
  if inspect.Parameter.VAR_KEYWORD not in kinds:
    noun = f'{location}: Unknown option'
    configs.check_known(options, names, noun, f' of {spec.name}')
  for name in list_names:
    value = options.get(name)
    if isinstance(value, str | Spec):
      raise ValueError(_list_error(location, spec, name, (value,)))
  return options


def _list_parameters(factory: Factory) -> list[str]:
  """Returns the names of the parameters that are lists."""
  return [
    name
    for name, parameter in parameters(factory).items()
    if typing.get_origin(parameter.annotation) is Sequence
  ]


def _list_error(
  location: str, spec: Spec, name: str, values: Sequence[Any]
) -> str:
  """Returns an error message that shows how a list is written."""
  items = ', '.join(map(_format, values))
  return (
    f'{location}: {name} of {spec.name} must be a list, as in '
    f'{spec.name}([{items}]), got {items}.'
  )


def _arguments(
  factory: Factory, spec: Spec, location: str, providers: Mapping[Any, Any]
) -> dict[str, Any]:
  """Returns the arguments that the class is called with."""
  options = bind(factory, spec, location)
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
        f'{location}: {spec.name} needs {name}, which is not set.'
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


def _parse_text(text: str, location: str) -> Spec:
  """Parses a name or a call."""
  text = text.strip()
  if _NAME.fullmatch(text):
    return Spec(text)
  try:
    call = ast.parse(text, mode='eval').body
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
      keywords = [(k.arg, _value(k.value)) for k in call.keywords]
      options = tuple((name, value) for name, value in keywords if name)
      if len(options) == len(keywords):
        args = tuple(map(_value, call.args))
        return Spec(call.func.id, args, options)
  except (SyntaxError, ValueError):
    pass
  raise ValueError(
    f"{location} must be a name or a call such as 'opt(0.2)', got {text!r}."
  )


def _value(node: ast.expr) -> Any:
  """Returns an argument of a call: a literal, a bare word or a call."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Call):
    return _parse_text(ast.unparse(node), 'an argument')
  if isinstance(node, ast.List | ast.Tuple):
    return tuple(map(_value, node.elts))
  return ast.literal_eval(node)


def _freeze(value: Any) -> Any:
  """Makes a value hashable: lists become tuples, dictionaries become specs."""
  if hasattr(value, 'items'):
    return parse(value, 'an option') if 'name' in value else value
  if isinstance(value, tuple | list) and not isinstance(value, Spec):
    return tuple(map(_freeze, value))
  return value


def _format(value: Any) -> str:
  """Formats a value as an argument of a call."""
  if isinstance(value, Spec):
    return str(value)
  if isinstance(value, tuple):
    items = ', '.join(map(_format, value))
    return f'({items},)' if len(value) == 1 else f'({items})'
  if isinstance(value, str) and value.isidentifier():
    return value
  return repr(value)
