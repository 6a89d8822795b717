"""Config files: found, loaded, checked, and swept over."""

import ast
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import copy
import inspect
import itertools
import json
import pathlib
import runpy
from typing import Any

import ml_collections
import numpy as np

_ROOT = pathlib.Path(__file__).parents[2]


def known() -> dict[str, str]:
  """Returns the first line of each config's docstring, by path."""
  paths = sorted((_ROOT / 'configs').rglob('*.py'))
  names = [path.relative_to(_ROOT).as_posix() for path in paths]
  return {name: docstring(name).split('\n')[0] for name in names}


def listed() -> str:
  """Returns a line for each of `known`, to be printed."""
  return '\n'.join(f'  {path:<38} {line}' for path, line in known().items())


def docstring(path: str) -> str:
  """Returns the docstring of a config file."""
  tree = ast.parse((_ROOT / path).read_text(encoding='utf-8'))
  return ast.get_docstring(tree) or ''


def experiments() -> list[str]:
  """Returns the names that a config's `experiment` may have."""
  folder = _ROOT / 'experiments'
  return [
    '.'.join(path.relative_to(folder).with_suffix('').parts)
    for path in sorted(folder.rglob('*.py'))
    if '\ndef run(config, workdir):' in path.read_text('utf-8')
  ]


def load(path: str) -> ml_collections.ConfigDict:
  """Loads a config: a file, and behind a colon what its `get_config` takes.

  Every config gets the field `sweep`, and one of a family also `chat` and
  `system`, see `prompts.load_family`.
  """
  file, _, argument = path.partition(':')
  if not pathlib.Path(file).is_file():
    raise ValueError(f'There is no config {file!r}. There are:\n{listed()}')
  get_config = runpy.run_path(file)['get_config']
  takes = inspect.signature(get_config).parameters
  if argument and not takes:
    raise ValueError(f'{file} takes no argument, got {argument!r}.')
  config = get_config(argument) if argument else get_config()
  added = {'sweep': ''}
  if 'family' in config:
    chat = ml_collections.config_dict.placeholder(bool)
    added |= {'chat': chat, 'system': '', 'dtype': ''}
    added['mesh'] = {'data': 1, 'model': 1, 'split_drafters': True}
  for field, value in added.items():
    if field not in config:
      config[field] = value
  return config


def check_fields(config: ml_collections.ConfigDict, argv: list[str]) -> None:
  """Refuses `--config.FIELD=` of a field that the config lacks."""
  fields = flat(config)
  names = [word.lstrip('-').split('=')[0] for word in argv[1:]]
  named = [name[7:] for name in names if name.startswith('config.')]
  check_known(named, fields, 'Unknown config field')


def check_known(
  names: Iterable[str], known: Collection[str], what: str, of: str = ''
) -> None:
  """Refuses a name that is not known; `what` and `of` stand around it."""
  for name in names:
    if name not in known:
      said = f'Known: {", ".join(known)}.' if known else 'It has none.'
      raise ValueError(f'{what} {name!r}{of}. {said}')


def check_counts(config: Any, names: Sequence[str], low: float = 1) -> None:
  """Refuses fields that hold a number below `low`, or none at all."""
  for name in names:
    if not np.size(config[name]) or np.min(config[name]) < low:
      raise ValueError(f'{name} must be >= {low}, got {config[name]}.')


def flat(config: Any) -> dict[str, Any]:
  """Returns all fields; the names of nested ones are joined by dots."""
  fields = {}
  for name, value in config.items():
    nested = flat(value) if hasattr(value, 'items') else {}
    named = {f'{name}.{inner}': each for inner, each in nested.items()}
    fields |= named or {name: value}
  return fields


def points(
  config: ml_collections.ConfigDict,
) -> list[tuple[dict[str, Any], ml_collections.ConfigDict]] | None:
  """Returns each combination of a sweep's values, with its config, or None.

  `config.sweep` is a dictionary of fields and tuples of values, or a text that
  is one; there is no sweep if it is empty.
  """
  sweep = config.get('sweep', '')
  if sweep == '':
    return None
  if isinstance(sweep, str):
    with contextlib.suppress(SyntaxError, ValueError):
      sweep = ast.literal_eval(sweep)
  if not hasattr(sweep, 'items'):
    raise ValueError(
      "sweep must be a dictionary such as {'draft_length': (2, 4)}, got "
      f'{config.sweep!r}.'
    )
  return list(_points(config, dict(sweep.items())))


def _points(config, sweep) -> Iterator[tuple[dict[str, Any], Any]]:
  check_known(sweep, flat(config), 'Unknown field', ' of sweep')
  for name, values in sweep.items():
    if not isinstance(values, tuple | list) or not values:
      raise ValueError(f'sweep of {name} must hold values, got {values!r}.')
    said = [json.dumps(value, default=str) for value in values]
    for i, value in enumerate(values):
      if said[i] in said[:i]:
        raise ValueError(f'sweep of {name} holds {value!r} twice.')
  if not sweep:
    raise ValueError('sweep must hold at least one field, got {}.')
  for each in itertools.product(*sweep.values()):
    values = dict(zip(sweep, each))
    point = copy.deepcopy(config)
    with point.ignore_type():  # It may have been a dictionary.
      point.sweep = ''
    for name, value in values.items():
      try:
        point.update_from_flattened_dict({name: value})
      except (TypeError, ValueError) as error:
        raise ValueError(f'sweep of {name}: {error}.') from error
    yield values, point
