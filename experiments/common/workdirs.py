"""Manages the folders of runs; each folder belongs to one config."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
from typing import Any

from experiments.common import configs
from experiments.common import locks
from experiments.common import sources
from specjax import json_files
from specjax import write_errors

_NOT_SET = object()
# The entry of `config.json` with the hashes of users' components.
_SOURCES = 'component_sources'


class Workdir(os.PathLike):
  """The folder of a run.

  `with workdir:` creates and locks the folder, so that a folder that cannot be
  written is detected before any work is done. Nested blocks hold the lock until
  the outermost block ends. If nothing was written by then, the folder is
  removed: a rejected run leaves no trace.

  `config.json` is written with the first file and not before, so that even the
  files of a killed run have their config. Hence `os.path.join(workdir, name)`
  is for files to be written; files to be read are under `str(workdir)`.

  Attributes:
    is_incomplete: whether the run ended before its work, for lack of time.
  """

  def __init__(
    self,
    path: str | os.PathLike[str],
    config: Any,
    may_change: Sequence[str] = (),
  ):
    """Raises `ValueError` if the folder belongs to a run with other settings.

    So it does if the source file of a user's component has changed.

    Args:
      path: the folder, which need not exist.
      config: the config of the run.
      may_change: fields that may differ from those of an earlier run.
    """
    self._path = os.path.expanduser(path)
    self._config = configs.as_json(config)
    self._may_change = may_change
    self._sources = sources.hashes()
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
    """Returns whether existing files belong to another, compatible config."""
    path = os.path.join(self._path, 'config.json')
    old = json_files.load(path) if os.path.exists(path) else None
    if old is None:
      return False
    if not isinstance(old, dict):
      raise ValueError(f'{path} must hold a JSON object.')
    old_sources, new = old.pop(_SOURCES, {}), json.loads(self._config)
    _check_sources(self._path, old_sources, self._sources)
    # Records of components that this run does not use stay in the log.
    self._sources = old_sources | self._sources
    if old == new:
      return False
    _check_same(self._path, old, new, self._may_change)
    return True

  def _begin(self):
    """Creates the folder and writes its config before any other file."""
    self._is_begun = True
    os.makedirs(self._path, exist_ok=True)
    if self._is_stale:
      pathlib.Path(self._path, 'results.json').unlink(missing_ok=True)
    text = self._config
    if self._sources:
      fields = json.loads(text) | {_SOURCES: self._sources}
      text = json.dumps(fields, indent=2)
    replace(os.path.join(self._path, 'config.json'), text)


def replace(path: str, text: str) -> None:
  """Writes a file atomically.

  Raises:
    ValueError: it cannot be written.
  """
  part = f'{path}.{os.getpid()}.part'  # No other process writes it.
  with write_errors.explain(path):
    try:
      with open(part, 'w', encoding='utf-8') as file:
        file.write(text)
        file.flush()
        # Otherwise a crash may leave an empty file.
        os.fsync(file.fileno())
      os.replace(part, path)
    except OSError:
      pathlib.Path(part).unlink(missing_ok=True)
      raise


@contextlib.contextmanager
def _folder(path: str) -> Iterator[None]:
  """Creates a folder, and removes it at the end if it is empty."""
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
    for folder in missing:
      with contextlib.suppress(OSError):
        os.rmdir(folder)


def _check_same(
  path: str,
  old: dict[str, Any],
  new: dict[str, Any],
  may_change: Sequence[str],
) -> None:
  """Raises `ValueError` if configs differ in fields that may not change."""
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
    different = ['experiment']  # Its fields differ anyway.
  if different:
    listed = '; '.join(
      f'{name} is {_encode(old, name)} there and {_encode(new, name)} here'
      for name in different
    )
    raise ValueError(
      f'{path} holds a run with other settings: {listed}. Use another workdir, '
      'or delete this one.'
    )


def _check_sources(path: str, old: dict[str, str], new: dict[str, str]) -> None:
  """Raises `ValueError` if the code of a component has changed."""
  changed = [name for name in old if old[name] != new.get(name, old[name])]
  if changed:
    raise ValueError(
      f'{path} holds a run with other code: the source file of the '
      f'{" and the ".join(changed)} has changed since. Use another workdir, or '
      'delete this one.'
    )


def _encode(fields: dict[str, Any], name: str) -> str:
  if name not in fields:
    return 'not set'
  return json.dumps(fields[name], ensure_ascii=False)
