"""Limits the time of a process, which ends between two units of work."""

from collections.abc import Iterable
from collections.abc import Iterator
import math
import os
import threading
import time
from typing import Any

# The time, in seconds since the epoch, after which no unit of work begins.
_DEADLINE = 'SPECJAX_DEADLINE'
# The process that set the deadline.
_PARENT = 'SPECJAX_PARENT'
# The exit status of a process that ran out of time.
STATUS = 75
# Seconds between two checks whether the parent process is alive.
_PAUSE = 0.5


class OutOfTime(Exception):
  """Raised when the deadline is reached; finished work is in the log."""

  def __init__(self) -> None:
    super().__init__(
      'Ran out of time: finished work is logged, and the same command resumes.'
    )


def environment(seconds: float) -> dict[str, str]:
  """Returns environment variables that limit a child process to `seconds`."""
  return {_DEADLINE: str(time.time() + seconds), _PARENT: str(os.getpid())}


def remaining_seconds() -> float:
  """Returns the seconds until the deadline, which may be negative, or inf."""
  deadline = os.environ.get(_DEADLINE)
  return math.inf if not deadline else float(deadline) - time.time()


def check() -> None:
  """Raises `OutOfTime` after the deadline."""
  if remaining_seconds() <= 0:
    raise OutOfTime


def until_deadline(workdir: Any, outcomes: Iterable[Any]) -> Iterator[Any]:
  """Yields outcomes until the deadline.

  Args:
    workdir: the `workdirs.Workdir` of the run, which is marked as incomplete if
      outcomes are missing.
    outcomes: from `log.resume`.
  """
  try:
    yield from outcomes
  except OutOfTime:
    workdir.is_incomplete = True


def end_with_parent() -> None:
  """Ends this process soon after the process that set its deadline has ended.

  Otherwise it would hold the device and its workdir when the suite is resumed.
  """
  if parent := os.environ.get(_PARENT):
    watch = threading.Thread(target=_watch, args=(int(parent),), daemon=True)
    watch.start()


def _watch(parent: int) -> None:
  while os.getppid() == parent:
    time.sleep(_PAUSE)
  os._exit(1)
