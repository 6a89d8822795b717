"""Sampled responses as token ids, in one compressed file."""

from collections.abc import Sequence
import os
from typing import NamedTuple
import zipfile

import numpy as np


class Prompt(NamedTuple):
  """A prompt as a model reads it."""

  domain: str
  tokens: Sequence[int]


class Response(NamedTuple):
  """A response, with its stop token if it has one."""

  prompt: int  # its index among the prompts
  temperature: float  # at which it was sampled
  tokens: Sequence[int]


def write(
  path: str | os.PathLike[str],
  prompts: Sequence[Prompt],
  responses: Sequence[Response],
) -> None:
  """Writes responses, and once each of the prompts that they have.

  A token takes two bytes where all ids are below 65,536, before compression.

  Raises:
    ValueError: the file cannot be written.
  """
  used = sorted({each.prompt for each in responses})
  place = {index: number for number, index in enumerate(used)}
  chosen = [prompts[index] for index in used]
  domains = sorted({each.domain for each in chosen})
  arrays = {
    'domains': np.array(domains, np.str_),
    'prompt_domains': np.array(
      [domains.index(each.domain) for each in chosen], np.uint16
    ),
    **_ragged('prompt', [each.tokens for each in chosen]),
    'response_prompts': np.array(
      [place[each.prompt] for each in responses], np.uint32
    ),
    'response_temperatures': np.array(
      [each.temperature for each in responses], np.float32
    ),
    **_ragged('response', [each.tokens for each in responses]),
  }
  part = f'{os.fspath(path)}.{os.getpid()}.part'
  try:
    with open(part, 'wb') as file:
      np.savez_compressed(file, **arrays)
    os.replace(part, path)
  except OSError as error:
    if os.path.exists(part):
      os.unlink(part)
    reason = error.strerror or error
    raise ValueError(f'Cannot write {path}: {reason}.') from error


def read(
  path: str | os.PathLike[str],
) -> tuple[list[Prompt], list[Response]]:
  """Returns the prompts and responses of a file.

  Raises:
    ValueError: the file cannot be read, or `write` has not written it.
  """
  try:
    with np.load(os.path.expanduser(path), allow_pickle=False) as file:
      arrays = dict(file)
    domains = arrays['domains'][arrays['prompt_domains']].tolist()
    prompts = map(Prompt, domains, _rows('prompt', arrays))
    responses = map(
      Response,
      arrays['response_prompts'].tolist(),
      arrays['response_temperatures'].tolist(),
      _rows('response', arrays),
    )
    return list(prompts), list(responses)
  except OSError as error:
    reason = error.strerror or error
    raise ValueError(f'Cannot read {path}: {reason}.') from error
  except (KeyError, ValueError, zipfile.BadZipFile) as error:
    raise ValueError(f'{path} holds no responses: {error}.') from error


def _ragged(name, rows):
  """Rows of ids, one behind the other, and their lengths."""
  ids = np.concatenate([np.zeros(0, np.uint32), *rows]).astype(np.uint32)
  small = ids.max(initial=0) < 2**16
  return {
    f'{name}_tokens': ids.astype(np.uint16) if small else ids,
    f'{name}_lengths': np.array([len(row) for row in rows], np.uint32),
  }


def _rows(name, arrays):
  ends = np.cumsum(arrays[f'{name}_lengths'])
  tokens = arrays[f'{name}_tokens']
  return [row.tolist() for row in np.split(tokens, ends)[:-1]]
