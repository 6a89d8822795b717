"""Stores sampled responses as token ids, in one compressed file."""

from collections.abc import Mapping
from collections.abc import Sequence
import os
import tokenize
from typing import Any
from typing import NamedTuple
import zipfile
import zlib

import numpy as np

from specjax import write_errors

# What NumPy raises for corrupt files.
_CORRUPT = (
  EOFError,
  KeyError,
  ValueError,
  tokenize.TokenError,
  zipfile.BadZipFile,
  zlib.error,
)


class Prompt(NamedTuple):
  """A prompt as token ids.

  Attributes:
    domain: name of the kind of text, such as 'math'.
    tokens: its tokens.
  """

  domain: str
  tokens: Sequence[int]


class Response(NamedTuple):
  """A response as token ids.

  Attributes:
    prompt: index of its prompt.
    temperature: temperature at which it was sampled.
    tokens: its tokens, with the stop token if there is one.
  """

  prompt: int
  temperature: float
  tokens: Sequence[int]


def write(
  path: str | os.PathLike[str],
  prompts: Sequence[Prompt],
  responses: Sequence[Response],
) -> None:
  """Writes responses and the prompts that have responses, each once.

  A token takes two bytes before compression if all ids are below 65,536.

  Args:
    path: the file.
    prompts: prompts, to which `Response.prompt` refers.
    responses: the responses.

  Raises:
    ValueError: the file cannot be written.
  """
  indices = sorted({response.prompt for response in responses})
  new_index = {index: i for i, index in enumerate(indices)}
  used = [prompts[index] for index in indices]
  domains = sorted({prompt.domain for prompt in used})
  arrays: dict[str, Any] = {
    'domains': np.array(domains, np.str_),
    'prompt_domains': np.array(
      [domains.index(prompt.domain) for prompt in used], np.uint16
    ),
    **_to_ragged('prompt', [prompt.tokens for prompt in used]),
    'response_prompts': np.array(
      [new_index[response.prompt] for response in responses], np.uint32
    ),
    'response_temperatures': np.array(
      [response.temperature for response in responses], np.float32
    ),
    **_to_ragged('response', [response.tokens for response in responses]),
  }
  part = f'{os.fspath(path)}.{os.getpid()}.part'
  with write_errors.explain(path):
    try:
      with open(part, 'wb') as file:
        np.savez_compressed(file, **arrays)
      os.replace(part, path)
    except OSError:
      if os.path.exists(part):
        os.unlink(part)
      raise


def read(
  path: str | os.PathLike[str],
) -> tuple[list[Prompt], list[Response]]:
  """Returns the prompts and responses of a file.

  Raises:
    ValueError: the file cannot be read, or `write` did not write it.
  """
  try:
    with np.load(os.path.expanduser(path), allow_pickle=False) as file:
      arrays = dict(file)
    domains = arrays['domains'][arrays['prompt_domains']].tolist()
    prompts = map(Prompt, domains, _from_ragged('prompt', arrays))
    responses = map(
      Response,
      arrays['response_prompts'].tolist(),
      arrays['response_temperatures'].tolist(),
      _from_ragged('response', arrays),
    )
    return list(prompts), list(responses)
  except OSError as error:
    reason = error.strerror or error
    raise ValueError(f'Cannot read {path}: {reason}.') from error
  except _CORRUPT as error:
    raise ValueError(f'{path} holds no responses: {error}.') from error


def _to_ragged(
  name: str, rows: Sequence[Sequence[int]]
) -> dict[str, np.ndarray]:
  """Returns rows of ids as a concatenated array and an array of lengths."""
  ids = np.concatenate([np.zeros(0, np.int64), *rows]).astype(np.int64)
  if ids.min(initial=0) < 0:
    raise ValueError(f'Token ids must be >= 0, got {ids.min()}.')
  fits_in_16_bits = ids.max(initial=0) < 2**16
  return {
    f'{name}_tokens': ids.astype(np.uint16 if fits_in_16_bits else np.uint32),
    f'{name}_lengths': np.array([len(row) for row in rows], np.uint32),
  }


def _from_ragged(
  name: str, arrays: Mapping[str, np.ndarray]
) -> list[list[int]]:
  """Returns rows of ids; inverts `_to_ragged`."""
  ends = np.cumsum(arrays[f'{name}_lengths'])
  tokens = arrays[f'{name}_tokens']
  return [row.tolist() for row in np.split(tokens, ends)[:-1]]
