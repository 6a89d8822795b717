"""Config files: found, loaded, checked, and swept over."""

import ast
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import copy
import difflib
import inspect
import itertools
import json
import pathlib
import runpy
from typing import Any

import ml_collections
import numpy as np

_ROOT = pathlib.Path(__file__).parents[2]

# What `--smoke` sets in every config that has such a field, also within another
# one. A number keeps so many entries of a tuple.
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
  'training.steps': 2,
  'training.warmup_steps': 1,
  'methods': 2,
  'weights': 1,
}
# The prompts of a set, and the texts or responses of a domain.
_NUM_PROMPTS = 4


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


def load(path: str, smoke: bool = False) -> ml_collections.ConfigDict:
  """Loads a config: a file, and behind a colon what its `get_config` takes.

  Every config gets the field `sweep`, and one of a family also those of
  `prompts.load_family`, such as `chat` and `drafters`.

  Args:
    path: of the file, with the argument.
    smoke: whether the config is reduced to its smallest sizes: those that all
      configs have in common, and then the file's own `SMOKE`, a dictionary of
      fields and values, or its `SMOKES`, one for each of some arguments. Names
      of fields within others are joined by dots; a number keeps so many entries
      of a tuple.
  """
  file, _, argument = path.partition(':')
  if not pathlib.Path(file).is_file():
    raise ValueError(_unknown(file))
  module = runpy.run_path(file)
  get_config = module['get_config']
  takes = inspect.signature(get_config).parameters
  if argument and not takes:
    raise ValueError(f'{file} takes no argument, got {argument!r}.')
  config = get_config(argument) if argument else get_config()
  added = {'sweep': ''}
  if 'family' in config:
    chat = ml_collections.config_dict.placeholder(bool)
    added |= {'chat': chat, 'system': '', 'dtype': '', 'drafters': ''}
    added['mesh'] = {'data': 1, 'model': 1, 'split_drafters': True}
  for field, value in added.items():
    if field not in config:
      config[field] = value
  if smoke:
    reduced = module.get('SMOKES', {}).get(argument, module.get('SMOKE', {}))
    _reduce(config, reduced)
  return config


def described(config: ml_collections.ConfigDict, path: str) -> str:
  """Returns the docstring of a config's file, and its fields with their values.

  Args:
    config: from `load`.
    path: what it was loaded from.
  """
  file = path.partition(':')[0]
  about = docstring(str(pathlib.Path(file).resolve()))
  lines = [about, '', f'Fields of {path}, set by --config.FIELD=:']
  lines += [f'  {name} = {value!r}' for name, value in flat(config).items()]
  others = [each for each in variants(file) if each not in (file, path)]
  if others:
    lines += ['', 'Variants:', *(f'  {each}' for each in others)]
  return '\n'.join(lines)


def variants(path: str) -> list[str]:
  """Returns what `load` takes for each config of a file.

  A file whose `get_config` takes an argument names what it accepts, or
  examples of it, in `VARIANTS`.
  """
  arguments = runpy.run_path(path).get('VARIANTS', ('',))
  return [f'{path}:{argument}'.removesuffix(':') for argument in arguments]


def _unknown(file):
  """Says that there is no such config, and which have similar names."""
  stems = {name: pathlib.Path(name).stem for name in known()}
  stem = pathlib.Path(file).stem
  near = difflib.get_close_matches(file, stems, n=5, cutoff=0.8)
  alike = difflib.get_close_matches(stem, set(stems.values()), n=5)
  near += [n for each in alike for n, s in stems.items() if s == each]
  names = ', '.join(dict.fromkeys(near))
  nearest = f'; the nearest are {names}, and' if near else ';'
  return f'There is no config {file!r}{nearest} --help lists all.'


def _reduce(config, fields):
  """Sets the smallest sizes, and then the fields of the file's own."""
  for entry in config.get('prompts', {}).values():
    entry.limit = _NUM_PROMPTS
  changes = {'sweep': _first_point(config.sweep)}
  values = flat(config)
  for name, value in values.items():
    field = name.partition('.')[0]
    if field in ('num_texts', 'num_responses'):
      changes[name] = _NUM_PROMPTS
    for size, smallest in _SMALLEST.items():
      if value and field != 'sweep' and f'.{name}'.endswith(f'.{size}'):
        changes[name] = smallest
  # Also a field that holds others may be replaced.
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


def _first_point(sweep):
  """Returns the sweep of one point; of sizes, it has the smallest."""
  if not sweep:
    return sweep
  values = ast.literal_eval(sweep) if isinstance(sweep, str) else sweep
  point = {
    name: (_SMALLEST.get(name, each[0]),) for name, each in values.items()
  }
  return str(point) if isinstance(sweep, str) else point


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


@contextlib.contextmanager
def error_context(place: str, fields: Collection[str]) -> Iterator[None]:
  """Makes errors begin with a place in the config, and with its field.

  Args:
    place: such as 'heads.eagle'.
    fields: those of the place, of which the library names one.
  """
  try:
    yield
  except (TypeError, ValueError) as error:
    message = str(error)
    joint = '.' if message.split(' ')[0] in fields else ': '
    raise ValueError(f'{place}{joint}{message}') from error


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
  sweep = dictionary(config, 'sweep', {'draft_length': (2, 4)})
  return None if sweep is None else list(_points(config, sweep))


def dictionary(
  config: Any, name: str, example: dict[str, Any]
) -> dict[str, Any] | None:
  """Returns a field that holds a dictionary, or a text that is one.

  Args:
    config: with the field, or without.
    name: of the field.
    example: of its value, for the error.

  Returns:
    The dictionary; None if there is no such field or an empty text.
  """
  value = config.get(name, '')
  if value == '':
    return None
  found = value
  if isinstance(value, str):
    with contextlib.suppress(SyntaxError, ValueError):
      found = ast.literal_eval(value)
  if not hasattr(found, 'items'):
    raise ValueError(
      f'{name} must be a dictionary such as {example}, got {value!r}.'
    )
  return dict(found.items())


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
