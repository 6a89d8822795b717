"""How small each config is made for a test that runs it, on toys.

A module for each folder of `configs/`, with any of

    VARIANTS  what `get_config` is asked for, where it takes an argument
    CHANGES   fields of one config, beside those that all of them have
    FILES     what a run leaves beside rows
    NO_ROWS   configs that leave no rows, and what they are for instead
"""

import importlib
import math
import pathlib
import pkgutil
import runpy

import ml_collections

from experiments import main
from experiments.common import components
from experiments.common import configs
from experiments.common import prompts
from specjax.data import examples as examples_lib
from specjax.evaluation import scoring
from specjax.testing import toys

CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'
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
_HEADS = {
  **dict.fromkeys(('code', 'eagle', 'math'), 'eagle'),
  'eagle3': 'eagle3',
  'medusa': 'medusa',
}
# Of suites: one run, which is done in a moment.
SUITE = {
  'runs': ('configs/theory/batch_improvement.py --config.max_drafts=2',),
  'project': False,
}
# Of whatever config has such a field, of this type.
_SMALL = {
  'batch_size': 2,
  'batch_sizes': (2,),
  'cost_repeats': 1,
  'cost_rounds': 2,
  'draft_lengths': (2,),
  'max_length': 192,
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


def gathered(name):
  """One of the tables, of all folders; keys are config paths without `.py`."""
  table = {}
  for module in pkgutil.iter_modules([str(pathlib.Path(__file__).parent)]):
    each = importlib.import_module(f'tests.small.{module.name}')
    table |= getattr(each, name, {})
  return table


def load(name, variant=None):
  """A config by its path without `.py`."""
  path = CONFIGS / f'{name}.py'
  return configs.load(f'{path}:{variant}' if variant else str(path))


def shrunk(name, folder, variant=None):
  """A config as small as it can be; see `shrink`."""
  config = load(name, variant)
  shrink(config, name, folder)
  return config


def variants(name):
  """What the tests ask a config for, by its path without `.py`."""
  return gathered('VARIANTS').get(name, (None,))


def decoded(config):
  """A config without what is read, and what is asked of answers."""
  read = ('data_dir', 'metric', 'prompts') if config.get('prompts') else ()
  return {
    name: value for name, value in config.to_dict().items() if name not in read
  }


def check_what_is_read(config):
  """Builds prompts, and the metric by what they should be answered."""
  references = []
  if config.get('prompts'):
    sets = prompts.build(config, prompts.load_family(config))
    references = [job.reference for each in sets for job in each.jobs]
    assert len(references)
  if config.get('metric'):
    metric = components.build(scoring.Metric, config.metric, 'metric')
    assert math.isclose(metric(references, references).total, 100)


def documented(name):
  """The docstring of a config."""
  return runpy.run_path(CONFIGS / f'{name}.py')['__doc__']


def toy_folder(folder):
  """Writes a family and data of all domains; one prompt is a long one."""
  toys.write_family(folder, _DRAFTERS)
  texts = ('count to two', 'what is it?', 'one two', 'a b a b')
  examples = [
    examples_lib.Example(domain, text, f'yes, {text} 2 ' * 8)
    for domain in _DOMAINS
    for text in texts
  ]
  long = examples_lib.Example('translation_de-en', 'x y ' * 70, 'yes')
  for name in ('toy.train', 'toy.eval', 'responses', 'spec_bench'):
    examples_lib.write(folder / f'{name}.jsonl', [*examples, long])
  examples_lib.write(folder / 'prompts.jsonl', examples)
  (folder / 'plain').mkdir()
  toys.write_family(folder / 'plain', {'small': 0.3})
  toys.write_heads(folder / 'plain', _HEADS)
  (folder / 'chat').mkdir()
  toys.write_family(
    folder / 'chat', {'small': 0.1}, tokenizer=toys.chat_tokenizer()
  )
  config = load('train/datastore')
  _place(config, folder, 'data_dir=DATA')
  main.run(config, folder / 'store')
  return folder


def shrink(config, name, folder, keep=()):
  """Makes a config as small as it can be, with toys for models and data.

  Args:
    config: of the experiment; a field that it lacks raises.
    name: the config's path without `.py`.
    folder: from `toy_folder`.
    keep: fields that stay as they are, among those of `CHANGES`; sizes do not.
  """
  changes = {
    field: value
    for field, value in _SMALL.items()
    if config.get(field) and _kind(config[field]) is _kind(value)
  }
  if 'num_responses' in config:
    changes['num_responses'] = dict.fromkeys(config.num_responses, 1)
  change(config, changes)
  _place(config, folder, documented(name))
  own = gathered('CHANGES').get(name, {})
  change(
    config,
    {
      field: _with_paths(value, str(folder))
      for field, value in own.items()
      if field in _SMALL or field not in keep
    },
  )


def change(config, changes):
  """Sets fields; one that the config lacks raises."""
  config.lock()
  for name, value in changes.items():
    config[name] = value


def _with_paths(value, family):
  """The same, with the toy family's folder in place of `{family}`."""
  if isinstance(value, str):
    return value.replace('{family}', family)
  if isinstance(value, tuple):
    return tuple(_with_paths(each, family) for each in value)
  if isinstance(value, dict):
    return {key: _with_paths(each, family) for key, each in value.items()}
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
  change(config, changes)
  for name, model in config.get('models', {}).items():
    if isinstance(model, str):
      config.models[name] = str(folder / 'medium.safetensors')
    elif 'encoder_layers' in model:
      model.update({'encoder_layers': 1, 'decoder_layers': 1, 'd_model': 16})
      model.update({'num_heads': 1, 'head_dim': 16, 'd_ff': 16})
    elif 'num_layers' in model:
      model.update(toys.TINY)
