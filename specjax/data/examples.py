"""Prompts with responses, read from JSONL files."""

from collections.abc import Iterable
from collections.abc import Sequence
import json
import os
from typing import NamedTuple


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
    ValueError: a line is no such object; the message names file and line.
  """
  stem = os.path.basename(path).split('.')[0]
  examples = []
  with open(path, 'rb') as file:  # So that bad UTF-8 has a line.
    for number, line in enumerate(file, start=1):
      if line.strip():
        examples.append(_parse(line, stem, f'{path}, line {number}'))
  return examples


def read_split(data_dir: str | os.PathLike[str], split: str) -> list[Example]:
  """Reads every `*.{split}.jsonl` of a folder, in the order of their names.

  Raises:
    ValueError: the folder has no such file.
  """
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


def write(path: str | os.PathLike[str], examples: Iterable[Example]) -> None:
  """Writes examples as JSONL."""
  with open(path, 'w', encoding='utf-8') as file:
    for example in examples:
      file.write(json.dumps(example._asdict(), ensure_ascii=False) + '\n')


def _parse(line: bytes, domain: str, where: str) -> Example:
  try:
    row = json.loads(line)
  except ValueError as error:
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
  return Example(**fields)
