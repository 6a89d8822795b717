"""Repositories on the Hugging Face Hub, as folders of the local cache."""

import os
import re

from specjax import json_files
from specjax import optional

_NAME = re.compile(r'([A-Za-z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?')
_FILE = ('.gguf', '.safetensors')  # The end of a file's path.
_CONFIG = 'config.json'
_FILES = ('*.json', '*.jinja', '*.safetensors')
# Further copies of the weights: of other libraries, and in subfolders.
_COPIES = ('consolidated*', '*/*')


def local_path(path: str | os.PathLike[str], *, weights: bool = True) -> str:
  """Returns a path on this disk, and fetches a repository of the Hub if needed.

  Args:
    path: a path; or `organization/name`, optionally followed by `@` and a
      branch, a tag or a commit, if there is no such path. Its files are then
      stored in the cache of the package huggingface_hub, which reads the user's
      token and the environment variables `HF_HOME` and `HF_HUB_OFFLINE`.
    weights: whether all files are fetched, or only `config.json`.

  Returns:
    The path with the home directory in place of `~`, or the folder in the
    cache. Paths that do not exist and cannot be repositories are unchanged.

  Raises:
    ValueError: the path may be a repository, but the package is not installed,
      the repository does not exist, is gated, cannot be reached, or has no
      `config.json`, or its weights are quantized.
  """
  expanded = os.path.expanduser(path)
  match = _NAME.fullmatch(expanded)
  if not match or expanded.endswith(_FILE) or os.path.exists(expanded):
    return expanded
  try:
    return _fetch(match[1], match[2], weights)
  except ValueError as error:
    raise ValueError(f'Cannot load {expanded}: {error}') from error


def _fetch(name: str, revision: str | None, weights: bool) -> str:
  """Returns the folder of a repository's files; see `local_path`.

  The weights are fetched last: a quantized model raises before.
  """
  hub = optional.load(
    'huggingface_hub',
    'hub',
    'there is no such path, and a repository on the Hugging Face Hub',
  )
  try:
    config = hub.hf_hub_download(name, _CONFIG, revision=revision)
    fields = json_files.load(config)
    if isinstance(fields, dict) and fields.get('quantization_config'):
      raise ValueError(
        f'the weights of {name} are quantized, which is not supported; load '
        'the model that they were made from.'
      )
    if not weights:
      return os.path.dirname(config)
    folder: str = hub.snapshot_download(
      name,
      revision=revision,
      allow_patterns=list(_FILES),
      ignore_patterns=list(_COPIES),
    )
  except hub.errors.GatedRepoError as error:
    raise ValueError(
      f'{name} is gated; accept its conditions on '
      f'https://huggingface.co/{name} and run hf auth login.'
    ) from error
  except hub.errors.RepositoryNotFoundError as error:
    raise ValueError(
      f'there is no such path, and no repository {name} on the Hugging Face '
      'Hub that you may read; if it is private, run hf auth login.'
    ) from error
  except hub.errors.LocalEntryNotFoundError as error:
    raise ValueError(
      f'there is no such path, and {name} is not in the cache of the Hugging '
      'Face Hub and could not be fetched; where the Hub can be reached, run '
      f'hf download {name}.'
    ) from error
  except hub.errors.RevisionNotFoundError as error:
    raise ValueError(f'{name} has no revision {revision}.') from error
  except hub.errors.EntryNotFoundError as error:
    raise ValueError(
      f'{name} has no {_CONFIG}; a GGUF file is loaded by the path that '
      f'hf download {name} FILE prints.'
    ) from error
  except (hub.errors.HfHubHTTPError, OSError) as error:
    raise ValueError(
      f'there is no such path, and fetching {name} from the Hugging Face Hub '
      f'failed: {error}.'
    ) from error
  if not any(file.endswith('.safetensors') for file in os.listdir(folder)):
    raise ValueError(
      f'{name} has no safetensors files, or they could not be fetched; '
      f'hf download {name} shows which.'
    )
  return folder
