"""Toy models and texts in the place of those that configs name."""

import pathlib

from configs.train.heads import growth
from configs.train.heads import losses
from experiments import main
from experiments.common import configs
from experiments.common import workdirs
from specjax.data import examples as examples_lib
from specjax.testing import toys

ROOT = pathlib.Path(__file__).parents[1]
PATHS = sorted(
  path.relative_to(ROOT).as_posix() for path in ROOT.glob('configs/**/*.py')
)
_DOMAINS = (
  *('code', 'instruct', 'lm', 'math', 'qa', 'shakespeare', 'summarization'),
  *(f'translation_{name}-en' for name in ('de', 'fr', 'ja', 'ru', 'zh')),
)
# How far the model of each drafter is from the target.
MODELS = {
  'large': 0.1,
  'medium': 0.2,
  'small': 0.3,
  **dict.fromkeys(('all', 'translation', *_DOMAINS), 0.2),
}
_HEADS = {
  **dict.fromkeys(('code', 'math', 'qa'), 'eagle'),
  **dict.fromkeys(('summarization', 'translation', 'eagle'), 'eagle'),
  **{kind: kind for kind in ('eagle3', 'medusa', 'dflash')},
  **dict.fromkeys(('start', *losses.LOSSES), 'eagle'),
  **dict.fromkeys(growth.NAMES.values(), 'eagle'),
}


def toy_folder(factory):
  """Writes families and texts of all domains; returns their folder.

  The folder itself is a family of models, and `heads/heads` one of heads. They
  have one tokenizer and models of one size, so that programs are the same.

  Args:
    factory: pytest's `tmp_path_factory`.
  """
  folder = factory.getbasetemp() / 'toys'
  if folder.exists():
    return folder
  folder.mkdir()
  tokenizer = toys.chat_tokenizer()
  toys.write_family(folder, MODELS, tokenizer=tokenizer)
  texts = ('count to two', 'what is it?', 'one two', 'a b a b')
  examples = [
    examples_lib.Example(domain, text, f'yes, {text} 2 ' * 8)
    for domain in _DOMAINS
    for text in texts
  ]
  long = examples_lib.Example('translation_de-en', 'x y ' * 35, 'yes, 2')
  for name in ('toy.train', 'toy.eval', 'responses', 'spec_bench'):
    examples_lib.write(folder / f'{name}.jsonl', [*examples, long])
  examples_lib.write(folder / 'prompts.jsonl', examples)
  (folder / 'heads').mkdir()
  models = {name: MODELS[name] for name in ('medium', 'small')}
  toys.write_family(folder / 'heads', models, tokenizer=tokenizer)
  toys.write_heads(folder / 'heads', _HEADS)
  examples_lib.write(folder / 'heads' / 'prompts.jsonl', examples)
  config = with_toys(load('train/datastore'), folder)
  store = workdirs.Workdir(folder / 'store', config)
  main.experiment(config).run(config, store)
  return folder


def load(name, smoke=False):
  """Loads a config by its path in `configs/`, without `.py`, and argument."""
  path, colon, argument = name.partition(':')
  return configs.load(f'{ROOT}/configs/{path}.py{colon}{argument}', smoke)


def with_toys(config, folder):
  """Returns the config, whose models and texts are those of `toy_folder`."""
  heads = ('heads', 'feature_head(', 'dynamic_tree(')
  names = f'{config.get("family", "")} {config.get("arms", "")}'
  paths = {
    'tokenizer': 'tokenizer.json',
    'distill_from': 'target.safetensors',
    'data_dir': '',
    'family': 'heads/heads' if any(name in names for name in heads) else '',
  }
  for field, path in paths.items():
    is_shipped = config.get(field, '').startswith('specjax/')
    if field in config and (config[field] or not path) and not is_shipped:
      config[field] = str(folder / path)
  if config.get('sources'):
    with config.unlocked():
      del config.sources, config.drafters
    for prompts in config.prompts.values():
      if prompts.get('source'):
        prompts['source'] = str(folder / 'spec_bench.jsonl')
  if config.get('responses'):
    config.responses = (str(folder / 'responses.jsonl'),)
  if 'epochs' in config.get('training', {}):
    config.training.batch_size = 2  # Texts of a domain fill few rows.
  for name, model in config.get('models', {}).items():
    if isinstance(model, str):
      config.models[name] = str(folder / 'medium.safetensors')
  for head in config.get('heads', {}).values():
    if 'options' in head:
      head.options.head_size = 64  # The vocabulary is small.
    elif head.start.endswith('.safetensors'):
      head.start = str(folder / 'heads/heads/eagle.safetensors')
  is_estimate = config.experiment == 'accelerators.estimates'
  if is_estimate and config.devices != ('cpu',):
    # Compilers for other devices, and the largest models, are not needed.
    config.update({'devices': ('cpu',), 'targets': ('smollm2',), 'run': False})
  if config.experiment == 'timed_suite':
    # One short part is enough to see that the suite works.
    part = config.parts.c_responses
    part.small.num_responses.all = 4
    part.small.temperatures = (0.0,)
    config.parts = {'c_responses': part}
  return config


def sized(name, folder):
  """Loads a config at its own sizes, with toy models and texts."""
  return with_toys(load(name), folder)


def smoke(name, folder):
  """Loads a config at its smallest sizes, with toy models and texts."""
  return with_toys(load(name, smoke=True), folder)
