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
    message = f'{purpose} needs the package {package}: '
    if error.name in (package, module):
      message += f"pip install 'specjax[{extra}]'."
    else:
      message += f'its import fails, {error}.'
    raise ValueError(message) from error
