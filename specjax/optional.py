"""Imports packages that only an extra of specjax installs."""

import importlib
from typing import Any


def load(module: str, extra: str, purpose: str) -> Any:
  """Imports a module of an optional package.

  Args:
    module: name of the module.
    extra: the extra of specjax that installs it.
    purpose: what needs it, the beginning of the error's sentence.

  Raises:
    ValueError: it is not installed; the error contains the command that
      installs it. Or its import fails; the error contains the cause.
  """
  package = module.split('.')[0]
  try:
    return importlib.import_module(module)
  except ImportError as error:
    remedy = f"pip install 'specjax[{extra}]'"
    if error.name not in (package, module):
      remedy = f'its import fails, {error}'
    raise ValueError(f'{purpose} needs the package {package}: {remedy}.') from (
      error
    )
