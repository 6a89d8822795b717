"""A workdir belongs to one version of the components of its user."""

import json
import os
from unittest import mock

import pytest

from experiments.common import configs
from experiments.common import sources
from experiments.common import workdirs
import specjax

_FILE = '''"""A bandit and a config."""

import ml_collections

import specjax
from specjax import base
from specjax import components


@components.component
class Constant(base.Bandit):
  """Selects one arm."""

  def select(self, key, state):
    return ARM


specjax.BANDITS['constant'] = Constant


def get_config():
  return ml_collections.ConfigDict({'experiment': 'toy', 'seed': 0})
'''


@pytest.fixture(autouse=True)
def _table_without_new_entries():
  with mock.patch.dict(specjax.BANDITS):
    yield


def _write(folder, arm='0', *changes):
  """Loads the file with a changed arm and other changes; returns its config."""
  text = _FILE.replace('ARM', arm)
  for old, new in changes:
    assert old in text
    text = text.replace(old, new)
  path = folder / 'constant.py'
  path.write_text(text)
  return configs.load(str(path))


def _begin(workdir):
  """Writes the config of a run; returns its fields."""
  with workdir:
    path = os.path.join(workdir, 'config.json')
    with open(path, encoding='utf-8') as file:
      return json.load(file)


def test_components_of_the_library_have_no_hash():
  assert not sources.hashes()


def test_a_changed_component_is_refused(tmp_path):
  run = tmp_path / 'run'
  fields = _begin(workdirs.Workdir(run, _write(tmp_path)))
  assert list(fields['component_sources']) == ['bandit constant']
  unchanged = _write(
    tmp_path,
    '0  # The first.',
    ("'toy', 'seed'", "'toy',\n    'seed'"),
  )
  workdirs.Workdir(run, unchanged)
  with pytest.raises(ValueError) as error:
    workdirs.Workdir(run, _write(tmp_path, '1'))
  assert str(error.value) == (
    f'{run} holds a run with other code: the source file of the bandit '
    'constant has changed since. Use another workdir, or delete this one.'
  )


def test_a_component_that_is_not_used_for_a_while_is_remembered(tmp_path):
  run, config = tmp_path / 'run', _write(tmp_path)
  _begin(workdirs.Workdir(run, config))
  del specjax.BANDITS['constant']
  _begin(workdirs.Workdir(run, config))
  config = _write(tmp_path, '1')
  with pytest.raises(ValueError, match='the bandit constant has changed'):
    workdirs.Workdir(run, config)


def test_a_component_without_a_file_has_no_hash():
  namespace = {}
  exec(_FILE.replace('ARM', '0'), namespace)  # As in a notebook.
  assert 'constant' in specjax.BANDITS and not sources.hashes()
