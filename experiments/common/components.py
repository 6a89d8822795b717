"""Components as configs write them: a name of a table, and its options.

One grammar for all kinds. These are the same:

    'ucb1(beta=0.01)'
    ('ucb1', ...)             with positional arguments, as ('chain', 4)
    {'name': 'ucb1', 'beta': 0.01}

Options are Python literals, or components themselves: 'mixture(opt(0.2),
chow(0.5))'. Inside a call, a bare word is a string. The tables are those of
`specjax`, and what an option may be is read off its factory's signature, so
that a component is usable from a config with its line in the table.
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

# Names of components and of models: with hyphens, but in a call.
_NAME = re.compile(r'[\w.-]+')
_PLAIN = (bool, int, float, str, types.NoneType)

Factory = Callable[..., Any]


class Spec(NamedTuple):
  """A component as it was written, taken apart; hashable."""

  name: str
  args: tuple[Any, ...] = ()
  options: tuple[tuple[str, Any], ...] = ()

  def __str__(self) -> str:
    given = [*map(_written, self.args)]
    given += [f'{name}={_written(value)}' for name, value in self.options]
    return f'{self.name}({", ".join(given)})' if given else self.name


_COUPLINGS: Mapping[str, Factory] = collections.ChainMap(
  couplings.COUPLINGS, couplings.DISTINCT_COUPLINGS
)

# Kinds and their tables, by what parameters of factories are annotated with.
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


def parse(entry: Any, place: str) -> Spec:
  """Takes a component apart; `place` in the config begins what it refuses."""
  if isinstance(entry, Spec):
    return entry
  if isinstance(entry, str):
    return _of_text(entry, place)
  name, args, options = None, (), {}
  if isinstance(entry, tuple | list) and entry:
    name, *args = entry
  elif hasattr(entry, 'items'):
    options = {key: _frozen(value) for key, value in entry.items()}
    name = options.pop('name', None)
  if isinstance(name, str):
    return Spec(name, tuple(map(_frozen, args)), tuple(options.items()))
  raise ValueError(
    f"{place} must be a name, a call such as 'opt(0.2)', or a dictionary with "
    f'a name, got {entry!r}.'
  )


def build(
  kind: Any,
  entry: Any,
  place: str,
  given: Mapping[str, Any] = types.MappingProxyType({}),
) -> Any:
  """Builds a component of one of `KINDS`; refusals begin with the place.

  `given` is what the experiment knows, by names of parameters and by what they
  are annotated with: functions of an option (or of None, if there is none in
  the entry), which are called for the parameters that a factory has.
  """
  spec = parse(entry, place)
  factory = find(kind, spec, place)
  options = _arguments(factory, spec, place, given)
  try:
    component = factory(**options)
    # A coupling stands for the tree walk with it.
    return verifiers.resolve(component) if kind is base.Verifier else component
  except (TypeError, ValueError) as error:
    raise ValueError(f'{place}: {spec}: {error}') from error


def find(kind: Any, spec: Spec, place: str) -> Factory:
  """Returns the factory that a component's name stands for."""
  name, table = KINDS[kind]
  try:
    return registry.lookup(table(), name, spec.name)
  except ValueError as error:
    raise ValueError(f'{place}: {error}') from None


def parameters(factory: Factory) -> dict[str, inspect.Parameter]:
  """Returns the parameters that are options, by name."""
  return {
    name: each
    for name, each in inspect.signature(factory).parameters.items()
    if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
  }


def bind(factory: Factory, spec: Spec, place: str) -> dict[str, Any]:
  """Returns the options that are written, by name."""
  names, listed = list(parameters(factory)), _listed(factory)
  options = dict(spec.options)
  if len(spec.args) > len(names):
    if listed == names:
      raise ValueError(_needs_list(place, spec, listed[0], spec.args))
    raise ValueError(
      f'{place}: {spec.name} takes at most {len(names)} arguments, got '
      f'{len(spec.args)}.'
    )
  for name, value in zip(names, spec.args):
    if name in options:
      raise ValueError(f'{place}: {spec.name} is given {name} twice.')
    options[name] = value
  kinds = {p.kind for p in inspect.signature(factory).parameters.values()}
  if inspect.Parameter.VAR_KEYWORD not in kinds:
    what = f'{place}: Unknown option'
    configs.check_known(options, names, what, f' of {spec.name}')
  for name in listed:
    value = options.get(name)
    if isinstance(value, str | Spec):
      raise ValueError(_needs_list(place, spec, name, (value,)))
  return options


def _listed(factory):
  """Names of the parameters that are lists."""
  return [
    name
    for name, each in parameters(factory).items()
    if typing.get_origin(each.annotation) is Sequence
  ]


def _needs_list(place, spec, name, values):
  """Says how a list is written."""
  written = ', '.join(map(_written, values))
  return (
    f'{place}: {name} of {spec.name} must be a list, as in '
    f'{spec.name}([{written}]), got {written}.'
  )


def _arguments(factory, spec, place, given):
  """What the factory is called with."""
  options = bind(factory, spec, place)
  for name, each in parameters(factory).items():
    make = given.get(name) or given.get(each.annotation)
    if make is not None:
      value = make(options.get(name))
      if value is not None:
        options[name] = value
    elif name in options:
      at = f'{place}.{name}'
      options[name] = _option(options[name], each.annotation, at, given)
    if name not in options and each.default is each.empty:
      raise ValueError(f'{place}: {spec.name} needs {name}, which is not set.')
  return options


def _option(value, annotation, place, given):
  """An option's value: a component, if it is annotated with a kind."""
  for kind in (annotation, *typing.get_args(annotation)):
    if kind in KINDS and value is not None:
      return build(kind, value, place, given)
  plain = typing.get_args(annotation) or (annotation,)
  if all(each in _PLAIN for each in plain) and not isinstance(value, jax.Array):
    if float in plain and type(value) is int:
      return float(value)
    if type(value) not in plain:
      wanted = ' or '.join(
        'None' if each is types.NoneType else each.__name__ for each in plain
      )
      raise ValueError(f'{place} must be of type {wanted}, got {value!r}.')
  return value


def _of_text(text, place):
  """A name or a call."""
  text = text.strip()
  if _NAME.fullmatch(text):
    return Spec(text)
  try:
    call = ast.parse(text, mode='eval').body
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
      options = [(each.arg, _value(each.value)) for each in call.keywords]
      if all(name is not None for name, _ in options):
        args = tuple(map(_value, call.args))
        return Spec(call.func.id, args, tuple(options))
  except (SyntaxError, ValueError):
    pass
  raise ValueError(
    f"{place} must be a name or a call such as 'opt(0.2)', got {text!r}."
  )


def _value(node):
  """An argument in a call: a literal, a bare word or a call."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Call):
    return _of_text(ast.unparse(node), 'an argument')
  if isinstance(node, ast.List | ast.Tuple):
    return tuple(map(_value, node.elts))
  return ast.literal_eval(node)


def _frozen(value):
  """The same, hashable: of tuples, and of specs instead of dictionaries."""
  if hasattr(value, 'items'):
    return parse(value, 'an option') if 'name' in value else value
  if isinstance(value, tuple | list) and not isinstance(value, Spec):
    return tuple(map(_frozen, value))
  return value


def _written(value):
  """As it stands in a call."""
  if isinstance(value, Spec):
    return str(value)
  if isinstance(value, tuple):
    inside = ', '.join(map(_written, value))
    return f'({inside},)' if len(value) == 1 else f'({inside})'
  if isinstance(value, str) and value.isidentifier():
    return value
  return repr(value)
