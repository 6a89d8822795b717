"""Prompts with responses, read from JSONL files."""

import codecs
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import json
import os
from typing import NamedTuple

from specjax.data import lines


class Example(NamedTuple):
  """One line of a JSONL file."""

  domain: str
  prompt: str
  response: str = ''


def read(path: str | os.PathLike[str]) -> list[Example]:
  """Reads examples from a JSONL file.

  Args:
    path: a file of one JSON object a line, with a string `prompt` and, where
      present, strings `response` and `domain`; other keys are ignored. Blank
      lines are skipped. The domain defaults to the file's name up to the first
      dot.

  Returns:
    The examples in file order.

  Raises:
    ValueError: the file cannot be read, or a line is no such object; the
      message names file and line.
  """
  return list(numbered(path).values())


def numbered(
  path: str | os.PathLike[str],
  reject: Callable[[ValueError], None] | None = None,
) -> dict[int, Example]:
  """Reads examples from a JSONL file, by the numbers of their lines.

  Args:
    path: as in `read`.
    reject: is given the error of each bad line, which is then skipped; by
      default, the first one is raised.

  Raises:
    ValueError: as in `read`.
  """
  stem = os.path.basename(path).split('.')[0]
  examples = {}
  found = lines.read(os.path.expanduser(path))  # Bad UTF-8 has a line, too.
  for number, line in enumerate(found, start=1):
    if number == 1:
      line = line.removeprefix(codecs.BOM_UTF8)
    if not line.strip():
      continue
    try:
      examples[number] = _parse(line, stem, f'{path}, line {number}')
    except ValueError as error:
      if reject is None:
        raise
      reject(error)
  return examples


def read_split(data_dir: str | os.PathLike[str], split: str) -> list[Example]:
  """Reads every `*.{split}.jsonl` of a folder, in the order of their names.

  Raises:
    ValueError: the folder has no such file, or one of them is refused as by
      `read`.
  """
  data_dir = os.path.expanduser(data_dir)
  suffix = f'.{split}.jsonl'
  names = (
    sorted(name for name in os.listdir(data_dir) if name.endswith(suffix))
    if os.path.isdir(data_dir)
    else []
  )
  if not names:
    raise ValueError(f'data_dir must hold files *{suffix}, got {data_dir!r}.')
  return [
    example for name in names for example in read(os.path.join(data_dir, name))
  ]


def of_domain(
  examples: Iterable[Example], domain: str | Sequence[str]
) -> list[Example]:
  """Returns the examples of a domain and of its parts; of all, for 'all'.

  'translation' has the part 'translation_de-en'. Several domains may be given.

  Raises:
    ValueError: there are none of a domain; the message lists the domains.
  """
  examples = list(examples)
  domains = [domain] if isinstance(domain, str) else domain
  known = sorted({example.domain for example in examples})
  chosen = set()
  for each in domains:
    parts = [
      x for x in known if each == 'all' or f'{x}_'.startswith(f'{each}_')
    ]
    if not parts:
      raise ValueError(f'Unknown domain {each!r}. Known: {", ".join(known)}.')
    chosen.update(parts)
  return [example for example in examples if example.domain in chosen]


def check_text(what: str, text: str) -> None:
  """Raises a `ValueError` if a text holds half a surrogate pair.

  JSON and the command line can hold one, but no tokenizer takes it.
  """
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise ValueError(
      f'{what} must be Unicode text, got half a surrogate pair '
      f'({text[error.start]!r}) at character {error.start}.'
    ) from error


def write(path: str | os.PathLike[str], examples: Iterable[Example]) -> None:
  """Writes examples as JSONL."""
  with open(path, 'w', encoding='utf-8') as file:
    for example in examples:
      file.write(json.dumps(example._asdict(), ensure_ascii=False) + '\n')


def _parse(line: bytes, domain: str, where: str) -> Example:
  try:
    row = json.loads(line.decode())
  except (RecursionError, ValueError) as error:
    raise ValueError(f'{where}: not JSON: {error}.') from error
  if not isinstance(row, dict) or 'prompt' not in row:
    raise ValueError(f"{where}: must be an object with a 'prompt'.")
  fields = {'domain': domain} | {
    key: row[key] for key in Example._fields if key in row
  }
  for key, value in fields.items():
    if not isinstance(value, str):
      raise ValueError(
        f'{where}: {key!r} must be a string, got {type(value).__name__}.'
      )
    check_text(f'{where}: {key!r}', value)
  return Example(**fields)
