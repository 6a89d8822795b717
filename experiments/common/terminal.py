"""Prints text on a terminal, in the colors of its tokens' origins."""

import io
import os
import sys

_COLORS = {
  'accepted': '\033[32m',
  'corrected': '\033[31m',
  'bonus': '\033[36m',
  'sampled': '',
}
_PLAIN = '\033[0m'


def accept_any_text() -> None:
  """Replaces characters that an encoding lacks, for the whole process.

  Models write in all scripts. Terminals and pipes on Windows, or in a locale
  that is not UTF-8, support few of them, and typed input may not be UTF-8.
  """
  for stream in (sys.stdin, sys.stdout):
    if isinstance(stream, io.TextIOWrapper):
      stream.reconfigure(errors='replace')


def paint(text: str, origin: str) -> str:
  """Returns a text in the color of an origin of `decoding.Piece`.

  The text stays plain if the output is not a terminal or `NO_COLOR` is set.
  """
  if os.environ.get('NO_COLOR') or not sys.stdout.isatty():
    return text
  return f'{_COLORS[origin]}{text}{_PLAIN}'


def legend() -> str:
  """Returns the names of the origins in their colors."""
  return ', '.join(paint(name, name) for name in list(_COLORS)[:3])
