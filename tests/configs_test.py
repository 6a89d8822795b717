"""Every config runs, as small as it can be, and leaves what it is for.

Models are random and the grids have one point, so that nothing is said about
results: what fails here is a field, a name or a path.
"""

import inspect
import json
import pathlib
import runpy

import ml_collections
import pytest

from experiments import main
from experiments.common import configs
from experiments.common import results
from specjax.data import examples as examples_lib
from tests import small
from tests import toys

_CONFIGS = pathlib.Path(__file__).parents[1] / 'configs'
_LANGUAGES = tuple(
  f'translation_{name}-en' for name in ('de', 'fr', 'ja', 'ru', 'zh')
)
_DOMAINS = (
  *('code', 'instruct', 'lm', 'math', 'qa', 'shakespeare', 'summarization'),
  *_LANGUAGES,
)
# By name, how far each is from the target.
_DRAFTERS = {
  'large': 0.1,
  'medium': 0.2,
  'small': 0.3,
  **dict.fromkeys(('all', 'translation', *_DOMAINS), 0.2),
}
# Of whatever config has such a field, of this type.
_SMALL = {
  'batch_size': 2,
  'batch_sizes': (2,),
  'cost_repeats': 1,
  'cost_rounds': 2,
  'draft_lengths': (2,),
  'max_new_tokens': 2,
  'num_batches': 2,
  'num_prompts': 2,
  'num_rounds': 2,
  'num_seeds': 1,
  'prompts_per_domain': 1,
  'repeats': 1,
  'requests_per_prompt': 1,
  'responses': 2,
  'rounds': 2,
  'router_prompts': 2,
  'row_length': 64,
  'runs': 2,
  'target_length': 16,
  'temperatures': (0.0,),
  'training': {
    'steps': 2,
    'batch_size': 2,
    'learning_rate': 1e-3,
    'warmup_steps': 1,
  },
}
_VARIANTS = small.gathered('VARIANTS')
_CHANGES = small.gathered('CHANGES')
_FILES = small.gathered('FILES')
_NO_ROWS = small.gathered('NO_ROWS')
_CASES = [
  (name, variant)
  for name in sorted(
    path.relative_to(_CONFIGS).with_suffix('').as_posix()
    for path in _CONFIGS.rglob('*.py')
  )
  for variant in _VARIANTS.get(name, (None,))
]


def _module(name):
  return runpy.run_path(_CONFIGS / f'{name}.py')


def _get(name, variant=None):
  path = _CONFIGS / f'{name}.py'
  return configs.load(f'{path}:{variant}' if variant else str(path))


def _change(config, changes):
  """Sets fields; one that the config lacks raises."""
  config.lock()
  for name, value in changes.items():
    config[name] = value


def _shrink(config):
  """What is common to all that have such fields."""
  changes = {
    name: value
    for name, value in _SMALL.items()
    if config.get(name) and _kind(config[name]) is _kind(value)
  }
  if 'num_responses' in config:
    changes['num_responses'] = dict.fromkeys(config.num_responses, 1)
  _change(config, changes)


def _with_paths(value, family):
  """The same, with the toy family's folder in place of `{family}`."""
  if isinstance(value, str):
    return value.replace('{family}', family)
  if isinstance(value, tuple):
    return tuple(_with_paths(each, family) for each in value)
  return value


def _kind(value):
  return dict if isinstance(value, ml_collections.ConfigDict) else type(value)


def _place(config, folder, documented):
  """Has all paths lead to toys, where the documented command has some."""
  paths = {
    'family': folder,
    'tokenizer': folder / 'tokenizer.json',
    'target': folder / 'target.safetensors',
    'distill_from': folder / 'target.safetensors',
    'responses': (str(folder / 'responses.jsonl'),),
  }
  changes = {
    name: path if isinstance(path, tuple) else str(path)
    for name, path in paths.items()
    if config.get(name) and isinstance(config[name], str | tuple)
  }
  if 'data_dir=DATA' in documented:
    changes['data_dir'] = str(folder)
  _change(config, changes)
  for name, model in config.get('models', {}).items():
    if isinstance(model, str):
      config.models[name] = str(folder / 'medium.safetensors')
    elif 'encoder_layers' in model:
      model.update({'encoder_layers': 1, 'decoder_layers': 1, 'd_model': 16})
      model.update({'num_heads': 1, 'head_dim': 16, 'd_ff': 16})
    else:
      model.update(toys.TINY)


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  """A family, and data of all domains: one long prompt among short ones."""
  folder = tmp_path_factory.mktemp('toys')
  toys.write_family(folder, _DRAFTERS)
  texts = ('count to two', 'what is it?', 'one two', 'a b a b')
  examples = [
    examples_lib.Example(domain, text, f'yes, {text} ' * 8)
    for domain in _DOMAINS
    for text in texts
  ]
  long = examples_lib.Example('translation_de-en', 'x y ' * 70, 'yes')
  for name in ('toy.train', 'toy.eval', 'responses'):
    examples_lib.write(folder / f'{name}.jsonl', [*examples, long])
  examples_lib.write(folder / 'prompts.jsonl', examples)
  config = _get('datastore')
  _place(config, folder, 'data_dir=DATA')
  main.run(config, folder / 'store')
  return folder


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'variant'), _CASES, ids=[':'.join(filter(None, c)) for c in _CASES]
)
def test_a_config_runs(name, variant, folder, tmp_path):
  config = _get(name, variant)
  _shrink(config)
  _place(config, folder, _module(name)['__doc__'])
  family = str(folder)
  _change(
    config,
    {
      field: _with_paths(value, family)
      for field, value in _CHANGES.get(name, {}).items()
    },
  )
  main.run(config, tmp_path)
  left = json.loads((tmp_path / 'config.json').read_text())
  assert left == json.loads(config.to_json())
  for file in _FILES.get(name, ()):
    assert (tmp_path / file).stat().st_size
  if config.experiment == 'train':
    for model in config.models:
      assert (tmp_path / f'{model}.safetensors').stat().st_size
  elif name not in _NO_ROWS:
    assert results.read(tmp_path)['rows']


def test_the_tables_name_configs():
  names = {name for name, _ in _CASES}
  assert set(_CHANGES) | set(_VARIANTS) | set(_FILES) <= names


def test_all_configs_with_variants_are_in_the_table():
  for name in {name for name, _ in _CASES}:
    parameters = inspect.signature(_module(name)['get_config']).parameters
    assert bool(parameters) == (name in _VARIANTS), name


def test_a_field_that_a_config_lacks_raises():
  config = _get('quickstart')
  with pytest.raises((AttributeError, KeyError), match='draft_lenghts'):
    _change(config, {'draft_lenghts': (2,)})
