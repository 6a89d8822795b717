"""Finds, loads and checks config files, and expands their sweeps."""

import ast
import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import copy
import dataclasses
import difflib
import inspect
import pathlib
import runpy
import textwrap
from typing import Any

import ml_collections
import numpy as np

from experiments.common import sweeps

_ROOT = pathlib.Path(__file__).parents[2]

# Values that `--smoke` sets in every config with such a field, at any depth.
# For a tuple, an integer is the number of entries that are kept.
_SMALLEST = {
  'arms': 2,
  'bandits': 1,
  'batch_size': 2,
  'batch_sizes': (2,),
  'cost_repeats': 1,
  'cost_rounds': 2,
  'max_new_tokens': 2,
  'num_batches': 2,
  'num_rounds': 2,
  'num_seeds': 1,
  'prompts_per_domain': 2,
  'repeats': 1,
  'rounds': 2,
  'router_prompts': 2,
  'row_length': 64,
  'runs': 2,
  'training.batch_size': 2,
  'training.epochs': 1,
  'training.steps': 2,
  'training.warmup_steps': 1,
  'methods': 2,
  'weights': 1,
}
# Prompts per prompt set, and texts or responses per domain, with `--smoke`.
_NUM_PROMPTS = 4


def titles() -> dict[str, str]:
  """Returns the first line of each config's docstring, by path."""
  paths = sorted((_ROOT / 'configs').rglob('*.py'))
  names = [path.relative_to(_ROOT).as_posix() for path in paths]
  return {name: docstring(name).split('\n')[0] for name in names}


def title_lines(folder: str) -> str:
  """Returns the `titles` of the configs in a folder as lines of text.

  Raises:
    ValueError: the folder has no configs.
  """
  above = pathlib.Path(folder).resolve()
  lines = [
    f'  {path:<38} {line}'
    for path, line in titles().items()
    if (_ROOT / path).is_relative_to(above)
  ]
  if not lines:
    raise ValueError(_unknown_error(folder))
  return '\n'.join(lines)


def overview() -> list[str]:
  """Returns the titles of configs, and the names of those in folders."""
  in_no_folder, folders = {}, collections.defaultdict(list)
  for path, line in titles().items():
    folder, _, name = path.removeprefix('configs/').rpartition('/')
    if folder:
      folders[folder].append(name.removesuffix('.py'))
    else:
      in_no_folder[path] = line
  width = max(map(len, in_no_folder))
  lines = [f'  {path:<{width}} {line}' for path, line in in_no_folder.items()]
  for folder, names in folders.items():
    text = f'  configs/{folder}/: {", ".join(names)}'
    lines += textwrap.wrap(text, 80, subsequent_indent='    ')
  return lines


def docstring(path: str) -> str:
  """Returns the docstring of a config file."""
  tree = ast.parse((_ROOT / path).read_text(encoding='utf-8'))
  return ast.get_docstring(tree) or ''


def experiments() -> list[str]:
  """Returns all names that are valid for a config's field `experiment`."""
  folder = _ROOT / 'experiments'
  return [
    '.'.join(path.relative_to(folder).with_suffix('').parts)
    for path in sorted(folder.rglob('*.py'))
    if '\ndef run(config, workdir):' in path.read_text('utf-8')
  ]


def load(path: str, smoke: bool = False) -> ml_collections.ConfigDict:
  """Loads a config: a file, and after a colon the argument of `get_config`.

  Every config receives the field `sweep`; a config with a family also receives
  the fields of `prompts.load_family`, such as `chat` and `drafters`, and
  `imports`, modules whose components are imported before methods are parsed.

  Args:
    path: the path of the file, with the argument if there is one.
    smoke: whether the config is reduced to its smallest sizes. These are the
      sizes that all configs share, then the file's own `SMOKE`, a dictionary
      from fields to values, or `SMOKES`, with one such dictionary per argument.
      Names of nested fields are joined by dots; for a tuple, an integer is the
      number of entries that are kept.
  """
  file, _, argument = path.partition(':')
  if not pathlib.Path(file).is_file():
    raise ValueError(_unknown_error(file))
  module = runpy.run_path(file)
  get_config = module['get_config']
  parameters = inspect.signature(get_config).parameters
  if argument and not parameters:
    raise ValueError(f'{file} takes no argument, got {argument!r}.')
  config = get_config(argument) if argument else get_config()
  sweep = config.get('sweep', '')
  if 'sweep' in config:
    del config.sweep
  # A flag sets it to any Python literal.
  added = {'sweep': ml_collections.FieldReference(sweep, field_type=object)}
  if 'family' in config:
    chat = ml_collections.config_dict.placeholder(bool)
    added |= {'chat': chat, 'system': '', 'dtype': '', 'drafters': ''}
    added['mesh'] = {'data': 1, 'model': 1, 'split_drafters': True}
    added['vocabulary'] = 'shared'
    added['imports'] = ()
  for field, value in added.items():
    if field not in config:
      config[field] = value
  if smoke:
    reduced = module.get('SMOKES', {}).get(argument, module.get('SMOKE', {}))
    _reduce(config, reduced)
  return config


def describe(config: ml_collections.ConfigDict, path: str) -> str:
  """Returns the docstring of a config's file, and its fields with their values.

  Args:
    config: the config, from `load`.
    path: the path that it was loaded from.
  """
  file = path.partition(':')[0]
  about = docstring(str(pathlib.Path(file).resolve()))
  lines = [about, '', f'Fields of {path}, set by --config.FIELD=:']
  lines += [f'  {name} = {value!r}' for name, value in flat(config).items()]
  other_paths = [v for v in variants(file) if v not in (file, path)]
  if other_paths:
    lines += ['', 'Variants:', *(f'  {variant}' for variant in other_paths)]
  return '\n'.join(lines)


def variants(path: str) -> list[str]:
  """Returns the paths, as `load` takes them, of all configs in a file.

  A file whose `get_config` takes an argument lists the valid arguments, or
  examples of them, in `VARIANTS`.
  """
  arguments = runpy.run_path(path).get('VARIANTS', ('',))
  return [f'{path}:{argument}'.removesuffix(':') for argument in arguments]


def _unknown_error(file: str) -> str:
  """Returns an error message that suggests configs with similar names."""
  stems = {name: pathlib.Path(name).stem for name in titles()}
  stem = pathlib.Path(file).stem
  matches = difflib.get_close_matches(file, stems, n=5, cutoff=0.8)
  close_stems = difflib.get_close_matches(stem, set(stems.values()), n=5)
  matches += [
    n for close in close_stems for n, s in stems.items() if s == close
  ]
  names = ', '.join(dict.fromkeys(matches))
  nearest = f'; the nearest are {names}, and' if matches else ';'
  return f'There is no config {file!r}{nearest} --help lists all.'


def _reduce(config: ml_collections.ConfigDict, fields: dict[str, Any]) -> None:
  """Sets the smallest sizes, and then the fields of the file's `SMOKE`."""
  for entry in config.get('prompts', {}).values():
    entry.limit = _NUM_PROMPTS
  values, changes = flat(config), {}
  if config.sweep:
    point = sweeps.changes(config.sweep)[0]
    smallest = {name: _SMALLEST.get(name, point[name]) for name in point}
    changes['sweep'] = (smallest,)
  for name, value in values.items():
    field = name.partition('.')[0]
    if field in ('num_texts', 'num_responses'):
      changes[name] = _NUM_PROMPTS
    for size, smallest in _SMALLEST.items():
      if value and f'.{name}'.endswith(f'.{size}'):
        changes[name] = smallest
  # A field with nested fields may be replaced as a whole.
  holders = {
    name.rsplit('.', depth)[0]: None
    for name in values
    for depth in range(name.count('.') + 1)
  }
  check_known(fields, values | holders, 'Unknown field', ' of SMOKE')
  changes |= fields
  for name, change in changes.items():
    if isinstance(change, int) and isinstance(values.get(name), tuple):
      changes[name] = values[name][:change]
  config.lock()
  config.update_from_flattened_dict(changes)


def change(
  config: ml_collections.ConfigDict, fields: Mapping[str, Any]
) -> dict[str, Any]:
  """Sets fields of a config.

  Args:
    config: the config, from `load`.
    fields: values of fields, nested as they are in the config.

  Returns:
    The values; names of nested fields are joined by dots.

  Raises:
    ValueError: there is no such field, or it has another type.
  """
  values = dict(_leaves(config, fields))
  check_known(values, flat(config), 'Unknown config field')
  for name, value in values.items():
    if name == 'sweep':
      value = sweeps.changes(value)
    elif isinstance(config[name], str) and hasattr(value, 'items'):
      value = str(value)  # As a flag sets it.
    try:
      config.update_from_flattened_dict({name: value})
    except TypeError as error:
      raise ValueError(f'{name}: {error}') from error
  return values


def _leaves(
  config: Any, fields: Mapping[str, Any], prefix: str = ''
) -> Iterator[tuple[str, Any]]:
  """Yields names and values of fields; names that are nested have dots."""
  for name, value in fields.items():
    nested = config.get(name)
    if hasattr(value, 'items') and isinstance(
      nested, ml_collections.ConfigDict
    ):
      yield from _leaves(nested, value, f'{prefix}{name}.')
    else:
      yield f'{prefix}{name}', value


def check_fields(config: ml_collections.ConfigDict, argv: list[str]) -> None:
  """Raises `ValueError` for a flag `--config.FIELD=` without such a field."""
  fields = flat(config)
  names = [word.lstrip('-').split('=')[0] for word in argv[1:]]
  field_names = [name[7:] for name in names if name.startswith('config.')]
  check_known(field_names, fields, 'Unknown config field')


def check_known(
  names: Iterable[str],
  known: Collection[str],
  prefix: str,
  suffix: str = '',
) -> None:
  """Checks that all names are known.

  Args:
    names: the names to check.
    known: the valid names.
    prefix: the error message up to the name, such as 'Unknown field'.
    suffix: the rest of the sentence, such as ' of a method'.

  Raises:
    ValueError: a name is not known.
  """
  for name in names:
    if name not in known:
      hint = f'Known: {", ".join(known)}.' if known else 'It has none.'
      raise ValueError(f'{prefix} {name!r}{suffix}. {hint}')


@contextlib.contextmanager
def error_context(location: str, fields: Collection[str]) -> Iterator[None]:
  """Prefixes errors with a location in the config.

  Args:
    location: such as 'heads.eagle'.
    fields: the fields there; a message that begins with one is joined by a dot.

  Raises:
    ValueError: the body raised a `TypeError` or a `ValueError`.
  """
  try:
    yield
  except (TypeError, ValueError) as error:
    message = str(error)
    joint = '.' if message.split(' ')[0] in fields else ': '
    raise ValueError(f'{location}{joint}{message}') from error


def check_counts(config: Any, names: Sequence[str], low: float = 1) -> None:
  """Raises `ValueError` for fields without numbers, or with one below `low`."""
  for name in names:
    if not np.size(config[name]) or np.min(config[name]) < low:
      raise ValueError(f'{name} must be >= {low}, got {config[name]}.')


def flat(config: Any) -> dict[str, Any]:
  """Returns all fields; names of nested fields are joined by dots."""
  fields = {}
  for name, value in config.items():
    nested = flat(value) if hasattr(value, 'items') else {}
    inner = {
      f'{name}.{key}': inner_value for key, inner_value in nested.items()
    }
    fields |= inner or {name: value}
  return fields


class _Encoder(ml_collections.config_dict.CustomJSONEncoder):
  """Encodes components as their text."""

  def default(self, obj: Any) -> Any:
    return str(obj) if dataclasses.is_dataclass(obj) else super().default(obj)


def as_json(config: ml_collections.ConfigDict) -> str:
  """Returns a config as JSON; components that are objects become text."""
  return config.to_json(_Encoder, indent=2)


def points(
  config: ml_collections.ConfigDict,
) -> list[tuple[sweeps.Change, ml_collections.ConfigDict]] | None:
  """Returns each change of `config.sweep` with the changed config.

  Returns:
    The changes and configs; None if the config has no sweep.

  Raises:
    ValueError: the sweep is invalid, or changes a field that does not exist or
      has another type.
  """
  sweep = config.get('sweep', '')
  if sweep == '':
    return None
  expanded, fields = [], flat(config)
  for change in sweeps.changes(sweep):
    check_known(change, fields, 'Unknown field', ' of sweep')
    point = copy.deepcopy(config)
    with point.ignore_type():  # It may be a tuple.
      point.sweep = ''
    for name, value in change.items():
      try:
        point.update_from_flattened_dict({name: value})
      except (TypeError, ValueError) as error:
        raise ValueError(f'sweep of {name}: {error}.') from error
    expanded.append((change, point))
  return expanded
