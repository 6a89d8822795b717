"""Recipes at the papers' scale, with tiny models and files of their layouts."""

import json

import jax
import numpy as np
import pytest

from experiments import main
from experiments.common import configs
from experiments.common import prompts
from experiments.common import results
from specjax import families
from specjax import models
from specjax.data import examples as examples_lib
from specjax.models import checkpoint
from specjax.testing import toys
from tests import smoke

_RECIPES = {
  'banditspec/eagle2_7b': ('llama3', 'qwen2'),
  'cascades/paper_scale': (
    *('t5_wmt', 't5_xsum', 't5_cnn_dm', 'gemma_wmt', 'gemma_cnn_dm'),
    *('gemma_gsm8k', 'gemma_mbpp', 'gemma_squad', 'gemma_web_questions'),
    *('gemma_natural_questions', 'gemma_trivia_qa'),
  ),
  'metasd/vicuna_7b': ('heads', 'chains'),
  'theory/pythia': ('',),
}
_NAMES = [
  f'{path}:{variant}' if variant else path
  for path, variants in _RECIPES.items()
  for variant in variants
]
# By file: a row as in the public data set, with short texts.
_ROWS = {
  'wmt14_en-de': {'translation': {'en': 'one two', 'de': 'yes, two'}},
  'xsum': {'id': '0', 'document': 'one two', 'summary': 'yes'},
  'cnn_dailymail': {'id': '0', 'article': 'one two', 'highlights': 'yes'},
  'gsm8k': {'question': 'one two', 'answer': 'yes #### 2'},
  'mbpp': {'task_id': 1, 'text': 'count', 'code': 'yes', 'test_list': []},
  'squad_v2': {
    **{'id': '0', 'title': 'yes', 'context': 'one two', 'question': 'count'},
    'answers': {'text': ['yes', 'two'], 'answer_start': [4, 4]},
  },
  'web_questions': {'url': 'yes', 'question': 'count', 'answers': ['yes']},
  'nq_open': {'question': 'count', 'answer': ['yes', 'two']},
  'trivia_qa': {
    **{'question': 'count', 'question_id': '0'},
    'answer': {'value': 'yes', 'aliases': ['yes', 'two'], 'type': 'one'},
  },
  'alpaca_farm_eval': {'instruction': 'count', 'input': '', 'output': 'yes'},
}


def test_all_variants_are_covered():
  for path, variants in _RECIPES.items():
    names = configs.variants(f'{smoke.ROOT}/configs/{path}.py')
    assert len(list(names)) == len(variants), path


@pytest.mark.parametrize('name', _NAMES)
def test_an_error_lists_all_that_is_missing(name):
  """Paths that a flag replaced are not among them."""
  config = smoke.load(name)
  with pytest.raises(ValueError, match='^Put these files there') as caught:
    prompts.load_family(config)
  for path, source in config.sources:
    assert f'{path} ({source})' in str(caught.value)
  first, _ = config.sources[0]
  assert first == config.family
  config.family = 'mini'
  with pytest.raises(ValueError, match='^Put these files there') as caught:
    prompts.drafter_names(config)
  assert f'{first} (' not in str(caught.value)


@pytest.mark.parametrize(
  'name', [name for name in _NAMES if name.startswith(('casc', 'theory'))]
)
def test_a_recipe_runs_with_tiny_models(name, tmp_path):
  """One command suffices once weights and data are where the error says."""
  family = tmp_path / 'family'
  family.mkdir()
  toys.write_family(family, {}, tokenizer=toys.chat_tokenizer())
  draft = tmp_path / 'draft'
  draft.mkdir()
  toys.write_family(draft, {}, tokenizer=toys.chat_tokenizer())
  config = configs.load(_path(name), True)
  (entry,) = config.prompts.values()
  stem = entry['source'].removeprefix('data/').removesuffix('.jsonl')
  data = tmp_path / f'{stem}.jsonl'
  data.write_text(f'{json.dumps(_ROWS[stem])}\n' * 3)
  entry['source'] = str(data)
  config.family = str(family)
  config.drafters = {'small': str(draft)}
  config.update({'max_new_tokens': 6, 'max_length': 96, 'dtype': ''})
  config.batch_size = 3
  if 'num_seeds' in config:
    config.num_seeds = 2
  main.run(config, tmp_path / 'run')
  assert results.read(tmp_path / 'run')['rows']


def test_drafters_for_chains_are_trained_and_draft(tmp_path):
  """Follows the recipe: responses, a small model that reads them, chains."""
  weights = tmp_path / 'weights'
  weights.mkdir()
  toys.write_family(weights, {'small': 0.3}, tokenizer=toys.chat_tokenizer())
  family = families.load(weights)
  small = family.drafters['small']
  models.save(models.Checkpoint(*small), tmp_path / 'start')
  examples = [
    examples_lib.Example('code', f'count to two: {text}', 'one two')
    for text in ('one', 'two', 'a b', 'x y')
  ]
  for split in ('train', 'eval'):
    examples_lib.write(tmp_path / f'code.{split}.jsonl', examples)
  shared = {'family': str(weights), 'data_dir': str(tmp_path)}
  responses = configs.load(_path('metasd/responses'), True)
  responses.update(shared | {'max_prompt_tokens': 32, 'max_new_tokens': 16})
  responses.num_responses = {'code': 4}
  main.run(responses, tmp_path / 'responses')

  training = configs.load(_path('metasd/vicuna_68m:code'), True)
  assert not training.distill_from
  training.tokenizer = str(weights / 'tokenizer.json')
  training.responses = (str(tmp_path / 'responses' / 'responses.npz'),)
  training.models.code = str(tmp_path / 'start')
  training.training.learning_rate = 1e-2
  main.run(training, tmp_path / 'code')
  path = tmp_path / 'code' / 'code.safetensors'
  config, params = checkpoint.load(path)
  assert config == small.config
  old, new = (
    jax.tree.leaves(tree['embedding'])[0] for tree in (small.params, params)
  )
  assert not np.allclose(old, new, atol=1e-3)

  chains = configs.load(_path('metasd/vicuna_7b:chains'), True)
  arms = ('code:5', 'all:5')
  chains.update(shared | {'arms': arms, 'methods': (), 'dtype': ''})
  chains.drafters = {'code': str(path), 'all': str(path)}
  chains.prompts['in domain'].domains = ('code',)
  chains.update({'max_new_tokens': 6, 'max_length': 96})
  main.run(chains, tmp_path / 'chains')
  rows = results.read(tmp_path / 'chains')['rows']
  assert {row['method'] for row in rows} == {*arms, 'uniform', 'oracle'}


def _path(name):
  path, colon, argument = name.partition(':')
  return f'{smoke.ROOT}/configs/{path}.py{colon}{argument}'
