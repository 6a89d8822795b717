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

from experiments import arms as arms_lib
from experiments import main
from specjax import bandits
from specjax.data import examples as examples_lib
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
# What get_config can be asked for, where there is more than one answer.
_TASKS = ('translation', 'summarization')
_VARIANTS = {
  'cascades/calibrate': _TASKS,
  'cascades/decoder_only': ('summarization',),
  'cascades/draft_lengths': _TASKS,
  'cascades/frontier': _TASKS,
  'cascades/rule_bandit': _TASKS,
  'cascades/temperatures': _TASKS,
  'cascades/variants': ('bild', 'lossy', 'token'),
  'metasd/specialist': ('all', 'code'),
  'metasd/specialists': ('', 'code'),
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
  'prompts': 2,
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
_TWO_ARMS = (('small', 1), ('prompt_lookup', 2))
_SPECIALISTS = (('code', 1), ('math', 1))
_UCB = 'ucb1:beta=0.01/block_divergence'
# A program for each takes long; that others are known is another test.
_BANDITS = (f'{_UCB}+32', 'hedge/block_divergence')
# Of one config, beside that; paths are filled in.
_CHANGES = {
  'banditspec/drafters': {
    'arms': (*_TWO_ARMS, ('retrieval', 1, 2), ('suffix', 2, 2)),
    'bandits': ('hedge:discount=0.8',),
    'datastore': '{family}/store/datastore.safetensors',
    'prompts_file': '{family}/prompts.jsonl',
  },
  'banditspec/lengths': {'draft_lengths': (0, 1), 'bandits': ('hedge',)},
  'banditspec/memory': {
    'arms': _TWO_ARMS,
    'baseline': 'small 1',
    'drafter': 'small',
    'draft_lengths': (0, 1),
    'bandits': ('hedge',),
  },
  'banditspec/regret': {'lengths': (20,), 'trace_rounds': 20, 'period': 9},
  'benchmark': {
    'draft_length': 2,
    'arms': (('small', 2), ('none', 0)),
    'costs': {
      'arms': (('small', 1),),
      'batch_sizes': (1,),
      'temperature': 0.0,
    },
    'peer': False,  # Another test has both packages.
  },
  'cascades/calibrate': {'dev_prompts': 2, 'test_prompts': 2},
  'cascades/rule_bandit': {'weights': (0.5,), 'bandits': ('thompson',)},
  'decode': {'prompts': 'what is it?'},
  'metasd/alignment': {
    'arms': _SPECIALISTS,
    'bandits': (_UCB,),
    'share_rounds': (1,),
  },
  'metasd/batches': {'arms': _SPECIALISTS, 'prompts_per_domain': 2},
  'metasd/caches': {
    'arms': _SPECIALISTS,
    'bandits': tuple(f'{_UCB}@{each}' for each in arms_lib.CATCH_UPS),
  },
  'metasd/draft_lengths': {'drafters': ('code', 'math')},
  'metasd/drafters': {'arms': _SPECIALISTS, 'bandits': _BANDITS},
  'metasd/languages': {
    'arms': tuple((name, 1) for name in _LANGUAGES[:2]),
    'bandits': _BANDITS,
  },
  'metasd/sessions': {'arms': _SPECIALISTS},
  'metasd/two_tasks': {'arms': _SPECIALISTS, 'bandits': _BANDITS},
  'spectr/acceptance': {'max_drafts': 2, 'zipf_size': 50},
  'spectr/cost': {
    'vocab_sizes': (64,),
    'values_per_repeat': 128,
    'num_drafts': 2,
    'draft_length': 2,
  },
  'spectr/decode': {'drafters': ('small',), 'num_drafts': (2,)},
  'spectr/latency': {'lengths': (2,), 'prefix_length': 4},
  'theory/batch_improvement': {'max_drafts': 2},
  'theory/diagnose': {'drafters': ('small',)},
  'theory/pareto': {'num_pairs': 1, 'runs': 50, 'epsilons': (0.0, 0.1)},
  'theory/rejections': {
    'horizons': (3,),
    'num_drafts': (1, 2),
    'simulated_drafts': (1,),
    'simulated_runs': 8,
    'runs_per_chunk': 4,
    'decoded_horizons': (3,),
    'decoded_drafts': (1,),
    'decoded_runs': 4,
  },
  'theory/winrate': {'epsilons': (0.1,)},
}
# What is left beside rows, or in their place.
_FILES = {
  'cascades/calibrate': ('choice.json',),
  'datastore': ('datastore.safetensors',),
  'metasd/responses': ('responses.jsonl',),
  'train/responses': ('responses.jsonl',),
  'train/tokenizer': ('tokenizer.json',),
}
_NO_ROWS = ('metasd/responses', 'train/responses', 'train/tokenizer')
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
  get_config = _module(name)['get_config']
  return get_config() if variant is None else get_config(variant)


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
    if name in config and _kind(config[name]) is _kind(value)
  }
  if 'num_responses' in config:
    changes['num_responses'] = dict.fromkeys(config.num_responses, 1)
  if config.experiment in ('cascades', 'calibrate'):
    changes['methods'] = {
      label: dict(entry) | {k: v[:1] for k, v in entry.items() if k == 'alphas'}
      for label, entry in config.methods.items()
    }
  _change(config, changes)


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
      field: value.format(family=family) if isinstance(value, str) else value
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
    assert json.loads((tmp_path / 'results.json').read_text())


def test_the_tables_name_configs():
  names = {name for name, _ in _CASES}
  assert set(_CHANGES) | set(_VARIANTS) | set(_FILES) <= names


def test_all_configs_with_variants_are_in_the_table():
  for name in {name for name, _ in _CASES}:
    parameters = inspect.signature(_module(name)['get_config']).parameters
    assert bool(parameters) == (name in _VARIANTS), name


def test_all_bandits_that_configs_ask_for_can_be_built():
  num = 0
  for name, variant in _CASES:
    entries = _get(name, variant).get('bandits', ())
    if isinstance(entries, tuple):
      for entry in entries:
        choice = arms_lib.parse(entry)
        bandits.BANDITS[choice.bandit](2, **choice.options)
        num += 1
  assert num > 30


def test_a_field_that_a_config_lacks_raises():
  config = _get('quickstart')
  with pytest.raises((AttributeError, KeyError), match='draft_lenghts'):
    _change(config, {'draft_lenghts': (2,)})
