"""Reads prompts and responses from JSONL files."""

import codecs
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import json
import os
from typing import NamedTuple

from specjax.data import layouts
from specjax.data import lines


class Example(NamedTuple):
  """A prompt, which may have a response; one line of a JSONL file.

  Attributes:
    domain: name of the kind of text, such as 'math'.
    prompt: the prompt, the first turn of a conversation.
    response: the response to it, or ''.
    follow_ups: the user's later turns.
  """

  domain: str
  prompt: str
  response: str = ''
  follow_ups: tuple[str, ...] = ()


def read(path: str | os.PathLike[str]) -> list[Example]:
  """Reads examples from a JSONL file.

  Args:
    path: a file with one JSON object per line, of one of `layouts.LAYOUTS`: a
      string `prompt` and, optionally, strings `response` and `domain`, or the
      layout of a public data set; other keys are ignored. Blank lines are
      skipped. The domain defaults to the file's name up to the first dot.

  Returns:
    The examples in the order of the file.

  Raises:
    ValueError: the file cannot be read, or a line is not such an object; the
      error names file and line.
  """
  return list(read_by_line(path).values())


def read_by_line(
  path: str | os.PathLike[str],
  reject: Callable[[ValueError], None] | None = None,
) -> dict[int, Example]:
  """Reads examples from a JSONL file, by the numbers of their lines.

  Args:
    path: See `read`.
    reject: receives the error of each bad line, which is then skipped; by
      default, the first error is raised.

  Raises:
    ValueError: See `read`.
  """
  stem = os.path.basename(path).split('.')[0]
  examples = {}
  # Lines are bytes, so that errors of UTF-8 also have a line.
  for number, line in enumerate(lines.read(os.path.expanduser(path)), start=1):
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
  """Reads all files `*.{split}.jsonl` of a folder, in the order of their names.

  Args:
    data_dir: the folder.
    split: name of the split, such as 'train'.

  Raises:
    ValueError: the folder has no such file, or one cannot be read; see `read`.
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


def select_domain(
  examples: Iterable[Example], domain: str | Sequence[str]
) -> list[Example]:
  """Returns the examples of a domain and of its subdomains.

  Args:
    examples: examples of any domains.
    domain: the domain, several domains, or 'all'. 'translation' also selects
      subdomains such as 'translation_de-en'.

  Raises:
    ValueError: a domain has no examples; the error lists the known domains.
  """
  examples = list(examples)
  names = [domain] if isinstance(domain, str) else domain
  known = sorted({example.domain for example in examples})
  selected = set()
  for name in names:
    matches = [
      x for x in known if name == 'all' or f'{x}_'.startswith(f'{name}_')
    ]
    if not matches:
      raise ValueError(f'Unknown domain {name!r}. Known: {", ".join(known)}.')
    selected.update(matches)
  return [example for example in examples if example.domain in selected]


def check_text(name: str, text: str) -> None:
  """Raises `ValueError` if a text contains half a surrogate pair.

  JSON and the command line can contain one, but tokenizers refuse it.

  Args:
    name: name of the text, for the error.
    text: the text.
  """
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise ValueError(
      f'{name} must be Unicode text, got half a surrogate pair '
      f'({text[error.start]!r}) at character {error.start}.'
    ) from error


def write(path: str | os.PathLike[str], examples: Iterable[Example]) -> None:
  """Writes examples as JSONL."""
  with open(path, 'w', encoding='utf-8') as file:
    for example in examples:
      row = example._asdict()
      if follow_ups := row.pop('follow_ups'):
        row['turns'] = [example.prompt, *follow_ups]
      file.write(json.dumps(row, ensure_ascii=False) + '\n')


def _parse(line: bytes, domain: str, location: str) -> Example:
  """Returns the example of a line.

  Args:
    line: the line.
    domain: default of its domain.
    location: file and number of the line, for errors.
  """
  try:
    row = json.loads(line.decode())
  except (RecursionError, ValueError) as error:
    raise ValueError(f'{location}: not JSON: {error}.') from error
  if not isinstance(row, dict):
    raise ValueError(f"{location}: must be an object with a 'prompt'.")
  try:
    fields = {'domain': domain} | layouts.convert(row)
  except ValueError as error:
    raise ValueError(f'{location}: {error}') from error
  texts = {key: [fields[key]] for key in fields.keys() - {'follow_ups'}}
  texts['turns'] = fields.get('follow_ups', ())
  for key, values in texts.items():
    for value in values:
      if not isinstance(value, str):
        raise ValueError(
          f'{location}: {key!r} must be a string, got {type(value).__name__}.'
        )
      check_text(f'{location}: {key!r}', value)
  return Example(**fields)
