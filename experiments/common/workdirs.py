"""Folders of runs, each of one config."""

from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any

from experiments.common import configs

_NOT_SET = object()


class Workdir(os.PathLike):
  """The folder of a run, which is made when the first file is written there.

  `config.json` is written then, too, and not before: a run that is refused
  leaves no trace, and one that is killed shows what its files are of. So
  `os.path.join(workdir, name)` is for files to write; what is only to be read
  is under `str(workdir)`.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    config: Any,
    may_change: Sequence[str] = (),
  ):
    """Refuses a folder of a run of which a field differs that may not."""
    self._path = os.fspath(path)
    self._config = config.to_json(indent=2)
    old, new = self._read(), json.loads(self._config)
    self._stale = old not in (None, new)  # What is there is of another config.
    if self._stale:
      _check_same(self._path, old, new, may_change)

  def __str__(self) -> str:
    return self._path

  def __fspath__(self) -> str:
    if self._config is not None:
      self._begin()
    return self._path

  def _read(self):
    """The config of an earlier run, None if there was none."""
    path = pathlib.Path(self._path, 'config.json')
    try:
      return json.loads(path.read_text('utf-8')) if path.exists() else None
    except ValueError as error:
      raise ValueError(f'Cannot read {path}: {error}.') from error

  def _begin(self):
    """Makes the folder; no file is ever there beside the config of another."""
    config, self._config = self._config, None
    os.makedirs(self._path, exist_ok=True)
    if self._stale:
      pathlib.Path(self._path, 'results.json').unlink(missing_ok=True)
    replace(os.path.join(self._path, 'config.json'), config)


def replace(path: str, text: str) -> None:
  """Writes a file, of which at no moment there is only a part."""
  with open(f'{path}.part', 'w', encoding='utf-8') as file:
    file.write(text)
  os.replace(f'{path}.part', path)


def _check_same(path, old, new, may_change):
  """Refuses configs of which other fields differ than those that may."""
  old, new = (
    configs.flat({k: v for k, v in config.items() if k not in may_change})
    for config in (old, new)
  )
  different = [
    name
    for name in old | new
    if old.get(name, _NOT_SET) != new.get(name, _NOT_SET)
  ]
  if 'experiment' in different:
    different = ['experiment']  # Its fields are others anyway.
  if different:
    listed = '; '.join(
      f'{name} is {_said(old, name)} there and {_said(new, name)} here'
      for name in different
    )
    raise ValueError(
      f'{path} holds a run with other settings: {listed}. Use another workdir, '
      'or delete this one.'
    )


def _said(fields, name):
  if name not in fields:
    return 'not set'
  return json.dumps(fields[name], ensure_ascii=False)
