"""Folders of runs, each of one config."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
from typing import Any

from experiments.common import configs
from experiments.common import locks
from specjax import json_files
from specjax import write_errors

_NOT_SET = object()


class Workdir(os.PathLike):
  """The folder of a run.

  `with workdir:` makes the folder and keeps other processes out of it, so that
  a folder that cannot be written is found before any work is done; nested ones
  are held until the outermost ends. If nothing was written by then, the folder
  is removed: a run that is refused leaves no trace.

  `config.json` is written with the first file, and not before, so that a run
  that is killed shows what its files are of. So `os.path.join(workdir, name)`
  is for files to write; what is only to be read is under `str(workdir)`.

  Attributes:
    is_incomplete: whether the run ended before its work, for lack of time.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    config: Any,
    may_change: Sequence[str] = (),
  ):
    """Refuses a folder of a run of which a field differs that may not."""
    self._path = os.path.expanduser(path)
    self._config = config.to_json(indent=2)
    self._may_change = may_change
    self.is_incomplete = False
    self._is_begun = False
    self._num_holders, self._hold = 0, contextlib.ExitStack()
    self._is_stale = self._check()

  def __str__(self) -> str:
    return self._path

  def __fspath__(self) -> str:
    if not self._is_begun:
      self._begin()
    return self._path

  def __enter__(self) -> 'Workdir':
    if not self._num_holders:
      with contextlib.ExitStack() as stack:
        stack.enter_context(_folder(self._path))
        stack.enter_context(locks.held(self._path))
        # Another run may have written since.
        self._is_stale |= self._check()
        self._hold = stack.pop_all()
    self._num_holders += 1
    return self

  def __exit__(self, *exception: Any) -> None:
    self._num_holders -= 1
    if not self._num_holders:
      self._hold.close()

  def _check(self):
    """Whether what is there is of another config, which must be allowed."""
    path = os.path.join(self._path, 'config.json')
    old = json_files.load(path) if os.path.exists(path) else None
    new = json.loads(self._config)
    if old in (None, new):
      return False
    if not isinstance(old, dict):
      raise ValueError(f'{path} must hold a JSON object.')
    _check_same(self._path, old, new, self._may_change)
    return True

  def _begin(self):
    """Makes the folder; no file is ever there beside the config of another."""
    self._is_begun = True
    os.makedirs(self._path, exist_ok=True)
    if self._is_stale:
      pathlib.Path(self._path, 'results.json').unlink(missing_ok=True)
    replace(os.path.join(self._path, 'config.json'), self._config)


def replace(path: str, text: str) -> None:
  """Writes a file, of which at no moment there is only a part.

  Raises:
    ValueError: it cannot be written.
  """
  part = f'{path}.{os.getpid()}.part'  # Of no other process.
  with write_errors.explain(path):
    try:
      with open(part, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        # Else a crash may leave the name of no content.
        os.fsync(file.fileno())
      os.replace(part, path)
    except OSError:
      pathlib.Path(part).unlink(missing_ok=True)
      raise


@contextlib.contextmanager
def _folder(path: str) -> Iterator[None]:
  """Makes a folder, and removes it in the end if nothing is in it."""
  missing = [path] if not os.path.isdir(path) else []
  while missing and (above := os.path.dirname(missing[-1].rstrip(os.sep))):
    if os.path.exists(above):
      break
    missing.append(above)
  try:
    try:
      os.makedirs(path, exist_ok=True)
    except OSError as error:
      raise ValueError(
        f'workdir must be a folder that can be written, got {path}: '
        f'{error.strerror}.'
      ) from error
    yield
  finally:
    for each in missing:
      with contextlib.suppress(OSError):
        os.rmdir(each)


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
