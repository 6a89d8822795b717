"""Parses the calls that configs write as strings: 'opt(0.2)'.

A component in a config is a name, such as 'otm', or a call of its class with
positional and named arguments, such as 'ucb1(beta=0.01)'. Arguments are Python
literals, sequences of arguments, or calls: 'mixture(opt(0.2), chow(0.5))'. A
bare word is a string: 'over_acceptance(0.1, target)'.
"""

import ast
import re
from typing import Any
from typing import NamedTuple

# Names of components and models, which may have hyphens except in a call.
_NAME = re.compile(r'[\w.-]+')


class Call(NamedTuple):
  """A call, parsed but not evaluated; hashable.

  A name is a call without arguments. `str` returns the text of the call, which
  `parse` turns into an equal call.
  """

  name: str
  args: tuple[Any, ...] = ()
  options: tuple[tuple[str, Any], ...] = ()

  def __str__(self) -> str:
    arguments = [*map(as_text, self.args)]
    arguments += [f'{name}={as_text(value)}' for name, value in self.options]
    return f'{self.name}({", ".join(arguments)})' if arguments else self.name


def parse(text: Any, location: str) -> Call:
  """Parses a name or a call.

  Args:
    text: the name or the call; a `Call` is returned as it is.
    location: in the config, for error messages.

  Raises:
    ValueError: the text is neither.
  """
  if isinstance(text, Call):
    return text
  if isinstance(text, str):
    if _NAME.fullmatch(text.strip()):
      return Call(text.strip())
    try:
      return _call(ast.parse(text.strip(), mode='eval').body)
    except (SyntaxError, ValueError):
      pass
  raise ValueError(
    f"{location} must be a name or a call such as 'opt(0.2)', got {text!r}."
  )


def as_text(value: Any) -> str:
  """Returns an argument as it is written in a call."""
  if isinstance(value, Call):
    return str(value)
  if isinstance(value, tuple):
    items = ', '.join(map(as_text, value))
    return f'({items},)' if len(value) == 1 else f'({items})'
  if isinstance(value, str) and value.isidentifier():
    return value
  return repr(value)


def _call(node: ast.expr) -> Call:
  """Returns the call of a node; raises `ValueError` if it is none."""
  if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
    raise ValueError
  options = [(keyword.arg, _value(keyword.value)) for keyword in node.keywords]
  named = tuple((name, value) for name, value in options if name is not None)
  if len(named) < len(options):  # Such as `f(**options)`.
    raise ValueError
  return Call(node.func.id, tuple(map(_value, node.args)), named)


def _value(node: ast.expr) -> Any:
  """Returns an argument: a literal, a bare word, a sequence or a call."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Call):
    return _call(node)
  if isinstance(node, ast.List | ast.Tuple):
    return tuple(map(_value, node.elts))
  return ast.literal_eval(node)
