"""A limit on the time of a process, which ends between two units of work."""

from collections.abc import Iterable
from collections.abc import Iterator
import math
import os
import threading
import time
from typing import Any

# After this moment, in seconds since the epoch, no unit of work is begun.
_DEADLINE = 'SPECJAX_DEADLINE'
# The process that gave the deadline.
_PARENT = 'SPECJAX_PARENT'
# The exit status of a process that ran out of time.
STATUS = 75
# Seconds between two looks at whether the parent process is alive.
_PAUSE = 0.5


class OutOfTime(Exception):
  """There was too little time for all of the work; what is done is logged."""

  def __init__(self) -> None:
    super().__init__(
      'Ran out of time: what is done is logged, and the same command goes on.'
    )


def environment(seconds: float) -> dict[str, str]:
  """Returns variables of a process that this one gives so many seconds."""
  return {_DEADLINE: str(time.time() + seconds), _PARENT: str(os.getpid())}


def seconds_left() -> float:
  """Returns the seconds until the deadline, which may be negative, or inf."""
  deadline = os.environ.get(_DEADLINE)
  return math.inf if not deadline else float(deadline) - time.time()


def check() -> None:
  """Raises `OutOfTime` after the deadline."""
  if seconds_left() <= 0:
    raise OutOfTime


def in_time(workdir: Any, outcomes: Iterable[Any]) -> Iterator[Any]:
  """Yields outcomes until there is no more time.

  Args:
    workdir: of the run, a `workdirs.Workdir`; it is marked as incomplete if
      outcomes are missing.
    outcomes: from `log.resume`.
  """
  try:
    yield from outcomes
  except OutOfTime:
    workdir.is_incomplete = True


def end_with_parent() -> None:
  """Ends this process soon after the one that gave it a deadline has ended.

  Otherwise it would hold the device and its workdir when the suite is resumed.
  """
  if parent := os.environ.get(_PARENT):
    watch = threading.Thread(target=_watch, args=(int(parent),), daemon=True)
    watch.start()


def _watch(parent):
  while os.getppid() == parent:
    time.sleep(_PAUSE)
  os._exit(1)
