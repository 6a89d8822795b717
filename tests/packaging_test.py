"""What an installed package is like, seen from outside of its checkout."""

import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

import specjax
from specjax.families import packages

_ROOT = pathlib.Path(__file__).parents[1]
_SETUP_FILES = 'setup.py', 'pyproject.toml', 'README.md', 'LICENSE'
# What setuptools calls to make an editable install.
_BUILD = "from setuptools import build_meta; build_meta.build_editable('wheel')"
_BUILD_WHEEL = "from setuptools import build_meta; build_meta.build_wheel('.')"
_MAX_BYTES = 100 * 2**20  # The limit of the Python Package Index for a file.
_COMMAND = re.compile(r"pip install -e '\.\[([\w,-]+)\]'")
# The second argument is the extra that installs the module.
_OPTIONAL = re.compile(r"optional\.load\(\s*'[\w.]+',\s*'([\w-]+)'")
_USE = 'import specjax; specjax.Sampling; print(specjax.__version__)'


def _python(folder, executable, code):
  """Runs code in a folder, which comes first on its path; returns its words."""
  process = subprocess.run(
    [executable, '-c', code], cwd=folder, capture_output=True, text=True
  )
  assert not process.returncode, process.stderr
  return process.stdout


def _install(checkout, folder):
  """Returns the Python of an environment with an editable install.

  Its other packages are those of this process, but for its editable installs.
  """
  _python(checkout, sys.executable, _BUILD)
  venv.create(folder, with_pip=False)
  (site,) = folder.glob('lib/python*/site-packages')
  (wheel,) = checkout.glob('wheel/*.whl')
  zipfile.ZipFile(wheel).extractall(site)
  (site / 'others.pth').write_text(sysconfig.get_paths()['purelib'])
  return folder / 'bin' / 'python'


def test_commands_name_extras_as_the_package_does():
  """Older versions of pip find no `lm_eval` where the extra is `lm-eval`."""
  extras = set(importlib.metadata.metadata('specjax').get_all('Provides-Extra'))
  files = [_ROOT / '.ci/run', *_ROOT.glob('*.md'), *_ROOT.glob('docs/*.md')]
  for folder in ('configs', 'experiments', 'specjax'):
    files += (_ROOT / folder).rglob('*.py')
  found = set()
  for path in files:
    text = path.read_text()
    for command in _COMMAND.findall(text):
      assert extras.issuperset(command.split(',')), path
    found.update(_OPTIONAL.findall(text))
  expected = {'evaluation', 'gguf', 'hub', 'lm-eval', 'tensorboard'}
  assert found == expected <= extras


@pytest.mark.slow
def test_the_package_is_found_beside_a_checkout_of_its_name(tmp_path):
  """There, the checkout itself looks like a package without contents."""
  pytest.importorskip('setuptools')
  checkout = tmp_path / 'parent' / 'specjax'
  ignored = shutil.ignore_patterns('*.safetensors', '__pycache__')
  shutil.copytree(_ROOT / 'specjax', checkout / 'specjax', ignore=ignored)
  for name in _SETUP_FILES:
    shutil.copy(_ROOT / name, checkout)
  python = _install(checkout, tmp_path / 'environment')
  for folder in (checkout.parent, checkout):
    assert _python(folder, python, _USE).strip() == specjax.__version__


@pytest.mark.slow
def test_a_wheel_has_all_of_the_package_but_fetched_weights(tmp_path):
  pytest.importorskip('setuptools')
  ignored = shutil.ignore_patterns('__pycache__')
  shutil.copytree(_ROOT / 'specjax', tmp_path / 'specjax', ignore=ignored)
  for name in _SETUP_FILES:
    shutil.copy(_ROOT / name, tmp_path)
  _python(tmp_path, sys.executable, _BUILD_WHEEL)
  (wheel,) = tmp_path.glob('*.whl')
  with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
  expected = {
    path.relative_to(tmp_path).as_posix()
    for path in (tmp_path / 'specjax').rglob('*')
    if path.is_file()
  }
  assert {name for name in names if name.startswith('specjax/')} == expected
  assert any(name.endswith('/LICENSE') for name in names)
  assert {name.split('/')[0] for name in names} == {
    'specjax',
    f'specjax-{specjax.__version__}.dist-info',
  }
  assert 'specjax/families/mini/target.safetensors' in expected
  for package in packages.PACKAGES.values():
    assert not any(name.endswith(package.file) for name in names)
  assert wheel.stat().st_size < _MAX_BYTES


def test_what_is_installed_has_the_version_of_the_package():
  pytest.importorskip('setuptools')
  tell = 'import runpy; runpy.run_path("setup.py")'
  process = subprocess.run(
    [sys.executable, '-c', tell, '--version'],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert process.stdout.splitlines()[-1:] == [specjax.__version__], (
    process.stderr
  )
  assert specjax.__version__ not in (_ROOT / 'setup.py').read_text()


def test_the_citation_and_the_changelog_are_of_this_version():
  citation = (_ROOT / 'CITATION.cff').read_text(encoding='utf-8')
  assert f'\nversion: {specjax.__version__}\n' in citation
  changes = (_ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')
  assert specjax.__version__ in changes
  papers = re.findall(r'arXiv:(\d+\.\d+)', citation)
  front = (_ROOT / 'README.md').read_text(encoding='utf-8')
  assert sorted(papers) == sorted(set(re.findall(r'arXiv:(\d+\.\d+)', front)))
