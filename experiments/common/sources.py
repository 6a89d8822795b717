"""Hashes the source files of components that are not part of specjax.

A log contains everything that its records depend on, except for code. A run
that resumes with another version of a user's component would mix the outputs of
both, so that the hashes are kept with its config.
"""

import ast
import functools
import hashlib
import inspect
import os
from typing import Any

from experiments.common import components


def hashes() -> dict[str, str]:
  """Returns hashes of the source files of all components of users.

  Comments and formatting do not count, nor does the function `get_config`: a
  file may contain both components and a config, whose fields are compared.

  Returns:
    The hashes, by kind and name of each component, such as 'drafter cycle'.
  """
  found = {}
  for kind, table in components.KINDS.values():
    for name, constructor in table().items():
      if constructor.__module__.split('.')[0] != 'specjax':
        path = _source_file(constructor)
        if path is not None:
          found[f'{kind} {name}'] = _hash(path)
  return found


def _source_file(constructor: Any) -> str | None:
  """Returns the file that defines a class or a function; None if unknown.

  The module of a config file is not imported, so that only its code shows the
  file.
  """
  members = [constructor]
  if inspect.isclass(constructor):
    members += vars(constructor).values()
  for member in members:
    if isinstance(member, functools.cached_property):
      member = member.func
    code = getattr(inspect.unwrap(member), '__code__', None)
    if code is not None and os.path.isfile(code.co_filename):
      return code.co_filename
  return None


def _hash(path: str) -> str:
  """Returns a short hash of the code of a file without its config."""
  with open(path, 'rb') as file:
    tree = ast.parse(file.read())
  tree.body = [
    node
    for node in tree.body
    if not (isinstance(node, ast.FunctionDef) and node.name == 'get_config')
  ]
  return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]
