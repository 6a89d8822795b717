"""Text on a terminal, in the colours of where its tokens come from."""

import os
import sys

_COLOURS = {
  'accepted': '\033[32m',
  'corrected': '\033[31m',
  'bonus': '\033[36m',
  'sampled': '',
}
_PLAIN = '\033[0m'


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
