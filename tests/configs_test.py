"""Every config runs, as small as it can be, and leaves what it is for.

Models are random and the grids have one point, so that nothing is said about
results: what fails here is a field, a name or a path.
"""

import inspect
import json
import runpy

import pytest

from experiments import main
from experiments.common import results
from tests import small

_VARIANTS = small.gathered('VARIANTS')
_CHANGES = small.gathered('CHANGES')
_FILES = small.gathered('FILES')
_NO_ROWS = small.gathered('NO_ROWS')
_CASES = [
  (name, variant)
  for name in sorted(
    path.relative_to(small.CONFIGS).with_suffix('').as_posix()
    for path in small.CONFIGS.rglob('*.py')
  )
  for variant in small.variants(name)
]


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  return small.toy_folder(tmp_path_factory.mktemp('toys'))


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'variant'), _CASES, ids=[':'.join(filter(None, c)) for c in _CASES]
)
def test_a_config_runs(name, variant, folder, tmp_path):
  config = small.shrunk(name, folder, variant)
  asked = small.variants(name)
  earlier = [
    small.shrunk(name, folder, each) for each in asked[: asked.index(variant)]
  ]
  if config in earlier:
    return  # So small, they are the same.
  if small.decoded(config) in map(small.decoded, earlier):
    small.check_what_is_read(config)
    return
  main.run(config, tmp_path)
  left = json.loads((tmp_path / 'config.json').read_text())
  assert left == json.loads(config.to_json())
  for file in _FILES.get(name, ()):
    assert (tmp_path / file).stat().st_size
  if config.experiment == 'train.models':
    for model in config.models:
      assert (tmp_path / f'{model}.safetensors').stat().st_size
  elif name not in _NO_ROWS:
    assert results.read(tmp_path)['rows']


def test_the_tables_name_configs():
  names = {name for name, _ in _CASES}
  assert set(_CHANGES) | set(_VARIANTS) | set(_FILES) <= names


def test_all_configs_with_variants_are_in_the_table():
  for name in {name for name, _ in _CASES}:
    module = runpy.run_path(small.CONFIGS / f'{name}.py')
    parameters = inspect.signature(module['get_config']).parameters
    assert bool(parameters) == (name in _VARIANTS), name


def test_a_field_that_a_config_lacks_raises():
  config = small.load('quickstart')
  with pytest.raises((AttributeError, KeyError), match='draft_lenghts'):
    small.change(config, {'draft_lenghts': (2,)})
