"""Text on a terminal, in the colours of where its tokens come from."""

import io
import os
import sys

_COLOURS = {
  'accepted': '\033[32m',
  'corrected': '\033[31m',
  'bonus': '\033[36m',
  'sampled': '',
}
_PLAIN = '\033[0m'


def accept_any_text() -> None:
  """Has characters replaced that an encoding lacks, for the whole process.

  Models write in all scripts; terminals and pipes of Windows, or of a locale
  that is not UTF-8, have few, and what is typed there may be no UTF-8.
  """
  for stream in (sys.stdin, sys.stdout):
    if isinstance(stream, io.TextIOWrapper):
      stream.reconfigure(errors='replace')


def paint(text: str, origin: str) -> str:
  """Returns a text in the colour of an origin, as of `decoding.Piece`.

  It stays plain where nobody sees colours, or does not want to (`NO_COLOR`).
  """
  if os.environ.get('NO_COLOR') or not sys.stdout.isatty():
    return text
  return f'{_COLOURS[origin]}{text}{_PLAIN}'


def legend() -> str:
  """Returns the names of the origins, each in its colour."""
  return ', '.join(paint(name, name) for name in list(_COLOURS)[:3])
