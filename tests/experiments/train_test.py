"""The recipe of the shipped family, tiny, from raw text to a decoder."""

import functools
import json
import shutil

import jax
import ml_collections
import numpy as np
import pytest
import safetensors
from safetensors import numpy

from experiments import main
from experiments.common import limits
from experiments.common import methods
from experiments.common import prompts as prompts_lib
from experiments.train import growth
from specjax import families
from specjax.data import examples as examples_lib
from specjax.data import token_ids
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import vocabularies
from specjax.testing import toys
from tests.experiments import toy

_SHORT = {
  'steps': 30,
  'batch_size': 4,
  'warmup_steps': 2,
  'learning_rate': 1e-2,
}


def _load(name, **fields):
  config = toy.config(name, None, {})
  config.update(fields)
  return config


def test_a_family_is_trained_and_decodes(tmp_path):
  data = tmp_path / 'data'
  data.mkdir()
  line = '{"prompt": "count %d", "response": "one two three four"}\n'
  for split in ('train', 'eval'):
    text = ''.join(line % i for i in range(64))
    (data / f'toy.{split}.jsonl').write_text(text)
  data_dir = {'data_dir': str(data)}
  tokenizer = _load('train/tokenizer', **data_dir, vocab_size=280)
  main.run(tokenizer, tmp_path / 'tokenizer')

  shared = data_dir | {
    'tokenizer': str(tmp_path / 'tokenizer' / 'tokenizer.json'),
    'row_length': 64,
  }
  folder = tmp_path / 'family'
  target = _load('train/target', **shared)
  target.models.target.update(toys.TINY)
  target.training.update(_SHORT)
  (row,) = toy.run(target, folder)
  assert row['model'] == 'target' and row['bits_per_byte'] < 8
  _assert_other_training_is_refused(target, folder)

  responses = _sampled(tmp_path, data_dir)
  drafters = _load('train/drafters', **shared, responses=(str(responses),))
  drafters.distill_from = str(folder / 'target.safetensors')
  del drafters.models.medium
  for model in drafters.models.values():
    model.update(toys.TINY)
  drafters.training.update(_SHORT)
  main.run(drafters, tmp_path / 'drafters')
  for path in (tmp_path / 'drafters').glob('*.safetensors'):
    path.rename(folder / path.name)
  (folder / 'prompts.jsonl').write_text('{"prompt": "count"}\n')
  _assert_decodes(tmp_path, data_dir, row)


def _sampled(tmp_path, data_dir):
  """Samples responses in a killed run and compares them with a full run."""
  config = _load(
    'train/responses',
    **data_dir,
    family=str(tmp_path / 'family'),
    num_responses={'all': 3},
    temperatures=(0.0, 1.0),
    max_prompt_tokens=32,
    max_new_tokens=8,
    batch_size=2,
  )
  path = tmp_path / 'responses' / 'responses.jsonl'
  main.run(config, path.parent)
  assert len(path.read_text().splitlines()) == 6
  torn_dir = toy.torn_workdir(path.parent, tmp_path / 'again', 3)
  main.run(config, torn_dir)
  assert (torn_dir / 'responses.jsonl').read_text() == path.read_text()
  prompts, responses = token_ids.read(torn_dir / 'responses.npz')
  outcomes = [unit['outcome'] for unit in toy.units(torn_dir)]
  assert [response.tokens for response in responses] == [
    outcome['tokens'] for outcome in outcomes
  ]
  assert {response.temperature for response in responses} == {0.0, 1.0}
  assert len(prompts) == 3
  assert toy.units(torn_dir) == toy.units(path.parent)
  return path


def _assert_decodes(tmp_path, data_dir, row):
  """The trained family is evaluated, and decodes."""
  folder = {'family': str(tmp_path / 'family')}
  evaluate = _load(
    'evaluate',
    **data_dir,
    **folder,
    prompts_per_domain=3,
    max_new_tokens=4,
    batch_size=2,
    methods=('small:2',),
  )
  rows = toy.run(evaluate, tmp_path / 'evaluate')
  assert [row['domain'] for row in rows] == ['all', 'toy']
  assert all(1 <= row['block_efficiency'] <= 3 for row in rows)
  perplexity = _load('train/perplexity', **data_dir, **folder, row_length=64)
  bits = toy.run(perplexity, tmp_path / 'perplexity')
  assert bits[0] == row and len(bits) == 3


def _assert_other_training_is_refused(config, workdir):
  """Checks errors from main and, without the saved config, from checkpoints."""
  contents = {path: path.read_bytes() for path in workdir.glob('*.safetensors')}
  other_config = config.copy_and_resolve_references()
  other_config.models.target.d_ff = 24
  with pytest.raises(ValueError, match='models.target.d_ff is 16 there and 24'):
    main.run(other_config, workdir)
  other_config = config.copy_and_resolve_references()
  other_config.training.learning_rate = 0.5
  config_text = (workdir / 'config.json').read_text()
  (workdir / 'config.json').unlink()
  with pytest.raises(ValueError, match='learning_rate was 0.01 and is 0.5'):
    main.run(other_config, workdir)
  assert not (workdir / 'config.json').exists()
  (workdir / 'config.json').write_text(config_text)
  assert contents == {path: path.read_bytes() for path in contents}


_TEXT = 'count to two: one two one two'


@pytest.fixture(scope='module', name='learn')
def _learn(family, tmp_path_factory):
  """Returns a config by name, which learns a short text from the toy target."""
  data = tmp_path_factory.mktemp('text')
  examples = [examples_lib.Example('toy', _TEXT, _TEXT * 2) for _ in range(9)]
  examples_lib.write(data / 'toy.train.jsonl', examples)

  def config(name, *heads):
    loaded_config = _load(
      name,
      data_dir=str(data),
      family=str(family),
      responses=(),
      row_length=64,
      training=_SHORT | {'batch_size': 2},
    )
    for head in heads:
      loaded_config.heads[head].options.head_size = 2048
    return loaded_config

  return config


def _load_with_drafter(family, path, folder):
  """Loads the toy family with a drafter from a file."""
  drafters = [f'{name}.*' for name in toy.DRAFTERS]
  shutil.copytree(family, folder, ignore=shutil.ignore_patterns(*drafters))
  shutil.copy(path, folder)
  return families.load(str(folder))


def _decode(family, arm):
  prompts = [family.tokenizer.encode_prompt(_TEXT)]
  config = ml_collections.ConfigDict({'sampling': {'temperature': 0.0}})
  method = methods.parse(config, arm, list(family.drafters), 'arm')
  decoder = methods.build(method, family, max_length=256).decoder
  return decoder.decode(prompts, 12)[0]


def test_a_drafter_is_distilled_and_drafts(tmp_path, family, learn):
  """Saves the drafter without the embedding, which its family provides."""
  config = learn('train/distill')
  config.students = {'cut': {'layers': (0,), 'head_size': 2048}}
  main.run(config, tmp_path / 'run')
  first, last = _first_and_last(tmp_path / 'run' / 'cut', 'acceptance')
  assert last > first
  path = tmp_path / 'run' / 'cut.safetensors'
  loaded_family = _load_with_drafter(family, path, tmp_path / 'family')
  cut = loaded_family.drafters['cut']
  table = lambda model: model.params['embedding']['embedding']
  assert table(cut) is table(loaded_family.target)
  assert cut.config.head_size == 2048
  draft_result, plain_result = (
    _decode(loaded_family, 'cut:2'),
    _decode(loaded_family, 'none'),
  )
  assert draft_result.tokens == plain_result.tokens
  assert draft_result.rounds < plain_result.rounds


def test_a_distilled_drafter_learns_to_draft_in_one_call(
  tmp_path, family, learn
):
  """Its reduced vocabulary and the embedding of its target are kept."""
  config = learn('train/distill')
  config.students = {'cut': {'layers': (0,), 'head_size': 64}}
  config.training.steps = 3
  main.run(config, tmp_path / 'run')
  path = tmp_path / 'run' / 'cut.safetensors'
  _load_with_drafter(family, path, tmp_path / 'family')
  config = _learn_parallel(learn, start='cut')
  config.family = str(tmp_path / 'family')
  config.training.steps = 3
  main.run(config, tmp_path / 'parallel')
  path = tmp_path / 'parallel' / 'near_parallel.safetensors'
  with safetensors.safe_open(path, framework='numpy') as file:
    assert not any(name.startswith('embedding') for name in file.keys())
  loaded_family = _load_with_drafter(family, path, tmp_path / 'both')
  assert loaded_family.drafters['near_parallel'].config.head_size == 64
  assert _decode(loaded_family, 'parallel(near_parallel):2').tokens


_PARALLEL = {'start': 'near', 'parallel': {'mask_token': 0, 'depth': 3}}


def _learn_parallel(learn, **changes):
  config = learn('train/parallel')
  config.students = {'near_parallel': _PARALLEL | changes}
  return config


def test_a_parallel_drafter_is_trained_and_drafts(tmp_path, family, learn):
  """It begins as a drafter, and its file names the mask token."""
  main.run(_learn_parallel(learn), tmp_path / 'run')
  for depth in (2, 3):
    name = f'acceptance_{depth}'
    first, last = _first_and_last(tmp_path / 'run' / 'near_parallel', name)
    assert last > first
  path = tmp_path / 'run' / 'near_parallel.safetensors'
  loaded_family = _load_with_drafter(family, path, tmp_path / 'family')
  drafter = loaded_family.drafters['near_parallel']
  assert drafter.model.mask_token == 0
  start = families.load(str(family)).drafters['near']
  assert drafter.params.keys() == start.params.keys()
  plain_result = _decode(loaded_family, 'none')
  draft_result = _decode(loaded_family, 'parallel(near_parallel):3')
  assert draft_result.tokens == plain_result.tokens
  assert draft_result.rounds < plain_result.rounds


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'start': 'other'}, "^students.near_parallel.*Unknown start 'other'"),
    ({'layers': (0,)}, "^students.near_parallel.*Unknown field 'layers'"),
    (
      {'parallel': {'mask_token': 0, 'depth': 1}},
      '^students.near_parallel.parallel.depth must be >= 2, got 1',
    ),
    (
      {'parallel': {'mask_token': 0, 'deep': 2}},
      "^students.near_parallel.parallel: .*argument 'deep'",
    ),
    (
      {'parallel': {'mask_token': 2, 'depth': 3}},
      '^students.near_parallel.parallel.mask_token must not occur in the .* 2',
    ),
  ],
)
def test_an_invalid_student_raises(changes, message, learn, tmp_path):
  with pytest.raises(ValueError, match=message):
    main.run(_learn_parallel(learn, **changes), tmp_path / 'run')


# By kind: the head that is trained first, and the arms.
_HEADS = {
  'eagle': (
    'eagle_first',
    (
      'feature_head(eagle):3',
      'dynamic_tree(eagle, num_nodes=6, depth=3, beam=3)',
    ),
  ),
  'eagle3': ('eagle3_first', ('feature_head(eagle3):2.2',)),
  'medusa': ('medusa', ('medusa(medusa):3', 'medusa(medusa):2.2')),
  'dflash': ('dflash', ('block_head(dflash):3', 'block_head(dflash):2.2')),
}


@pytest.fixture(scope='module', name='train_heads')
def _train_heads(learn, tmp_path_factory):
  """Trains heads of a kind, once; returns the workdir and the rows."""

  @functools.cache
  def train(kind):
    first, _ = _HEADS[kind]
    config = learn(f'train/heads/{kind}', first)
    if 'training' in config.heads[kind]:
      del config.heads[kind].training
    if kind == 'dflash':
      config.heads.dflash.options.mask_token = 0  # The text contains no 0.
    workdir = tmp_path_factory.mktemp(kind)
    return workdir, toy.run(config, workdir)

  return train


@pytest.mark.parametrize('kind', _HEADS)
def test_heads_are_trained_and_draft(kind, train_heads, family, tmp_path):
  """Saves heads without the embedding, which the target provides."""
  workdir, rows = train_heads(kind)
  first_head, arms = _HEADS[kind]
  first, last = _first_and_last(workdir / first_head, 'acceptance_1')
  assert last > first
  assert rows[-1]['acceptance_1'] > rows[0]['acceptance_1']
  if first_head != kind:  # It starts from the first head.
    resumed_first, _ = _first_and_last(workdir / kind, 'acceptance_1')
    assert resumed_first > (first + last) / 2
  path = workdir / f'{kind}.safetensors'
  loaded_family = _load_with_drafter(family, path, tmp_path / 'family')
  target_table = loaded_family.target.params['embedding']['embedding']
  head = loaded_family.drafters[kind]
  assert head.params['embedding']['embedding'] is target_table
  plain_result = _decode(loaded_family, 'none')
  for arm in arms:
    draft_result = _decode(loaded_family, arm)
    assert draft_result.tokens == plain_result.tokens
    assert draft_result.rounds <= plain_result.rounds


def test_a_head_waits_for_the_head_that_it_continues(
  train_heads, learn, tmp_path, monkeypatch
):
  """In the end, a run out of time has the heads of an uninterrupted one."""
  workdir, _ = train_heads('eagle')
  config = learn('train/heads/eagle', 'eagle_first')
  del config.heads.eagle.training
  with monkeypatch.context() as patches:
    patches.setattr(growth, 'seconds', lambda *args: 0.0)
    with pytest.raises(limits.OutOfTime):
      main.run(config, tmp_path)
  assert (tmp_path / 'eagle_first').exists()
  assert not (tmp_path / 'eagle').exists()
  main.run(config, tmp_path)
  params, expected = (
    numpy.load_file(folder / 'eagle.safetensors')
    for folder in (tmp_path, workdir)
  )
  jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_a_head_fits_its_target_in_the_type_of_its_file(
  learn, family, tmp_path
):
  """Though its target computed in another type."""
  config = learn('train/heads/medusa', 'medusa')
  config.dtype = 'bfloat16'
  config.training.steps = 3
  main.run(config, tmp_path / 'run')
  path = tmp_path / 'run' / 'medusa.safetensors'
  loaded_family = _load_with_drafter(family, path, tmp_path / 'family')
  assert 'medusa' in loaded_family.drafters
  with config.ignore_type():
    config.heads = {
      'continued': {'start': str(path), 'recipe': config.heads.medusa.recipe}
    }
  main.run(config, tmp_path / 'continued')


def test_a_head_learns_on_from_a_file(train_heads, learn, tmp_path):
  """Starts from the loss of the saved head, except for rounding in its file."""
  workdir, _ = train_heads('eagle')
  config = learn('train/heads/eagle')
  recipe = config.heads.eagle_first.recipe
  start = str(workdir / 'eagle_first.safetensors')
  with config.ignore_type():
    config.heads = {'continued': {'start': start, 'recipe': recipe}}
  main.run(config, tmp_path)
  first, last = _first_and_last(workdir / 'eagle_first', 'loss')
  resumed_loss, _ = _first_and_last(tmp_path / 'continued', 'loss')
  assert resumed_loss < last + 0.2 * (first - last)


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('recipe.noises', 0.1, "eagle_first.recipe: Unknown field 'noises'"),
    (
      'training',
      {'steps': 0},
      '^heads.eagle_first.training.steps must be >= 1, got 0',
    ),
    (
      'options.head_size',
      10**6,
      r'^heads.eagle_first.options.head_size must lie in \[1, \d+\]',
    ),
    ('options', {'heads': 1}, '^heads.eagle_first.options: .*heads'),
    ('trainings', {}, "eagle_first: Unknown field 'trainings'"),
    ('recipe.loss', 'l2', "^heads.eagle_first.recipe: Unknown loss 'l2'"),
    (
      'recipe.decay',
      (1.0, 0.5),
      '^heads.eagle_first.recipe.decay must be a number or have 1 entries',
    ),
  ],
)
def test_an_entry_is_refused_before_the_teacher_reads(
  field, value, message, learn, tmp_path
):
  config = learn('train/heads/eagle', 'eagle_first')
  with config.unlocked(), config.ignore_type():
    config.update_from_flattened_dict({f'heads.eagle_first.{field}': value})
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'heads.dflash.options.mask_token': 2},
      '^heads.dflash.options.mask_token must not occur in the training text, ',
    ),
    (
      {'row_length': 48},
      r'^heads.dflash.recipe.num_blocks must lie in \[1, 48\], got 64',
    ),
  ],
)
def test_a_block_head_is_refused_before_the_teacher_reads(
  changes, message, learn, tmp_path
):
  config = learn('train/heads/dflash', 'dflash')
  config.update_from_flattened_dict(changes)
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')


def test_text_that_is_too_long_for_the_target_raises(learn, tmp_path):
  path = tmp_path / 'responses.jsonl'
  examples_lib.write(path, [examples_lib.Example('toy', 'a', 'one ' * 3000)])
  config = learn('train/heads/medusa', 'medusa')
  config.responses = (str(path),)
  config.row_length = 4096
  message = 'row_length must be at most 2048, the length of texts .*, got 4096'
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')


def test_a_student_has_the_vocabulary_of_its_target(
  learn, family, tmp_path, monkeypatch
):
  loaded_family = families.load(str(family))
  near = loaded_family.drafters['near']
  model = vocabularies.resize(near.model, near.model.vocab_size + 8)
  padded = near._replace(model=model)
  monkeypatch.setattr(
    prompts_lib,
    'load_family',
    lambda config: loaded_family._replace(drafters={'near': padded}),
  )
  with pytest.raises(
    ValueError, match="start must have the vocabulary .*'near"
  ):
    main.run(_learn_parallel(learn), tmp_path / 'run')


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('distill', {'training.steps': 0}, '^training.steps must be >= 1, got 0'),
    (
      'distill',
      {'students.small.layers': (0,), 'students.small.head_size': 99_999},
      r'^students.small.head_size must lie in \[1, \d+\], got 99999',
    ),
    (
      'distill',
      {'students.small.layers': (0, 99)},
      r'^students.small.layers must be some of 0 to \d+, got \(0, 99\)',
    ),
    (
      'target',
      {'models.target.d_ff': 0},
      '^models.target.d_ff must be >= 1, got 0',
    ),
    ('target', {'training.steps': 0}, '^training.steps must be >= 1, got 0'),
  ],
)
def test_a_bad_value_is_named_by_its_field(
  name, changes, message, learn, tmp_path
):
  config = learn(f'train/{name}')
  config.update_from_flattened_dict(changes)
  if name == 'target':
    tokenizer_lib.train([], 260).save(tmp_path)
    config.tokenizer = str(tmp_path)
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('field', ['kind', 'options', 'recipe'])
def test_an_entry_must_be_whole(field, learn, tmp_path):
  config = learn('train/heads/eagle')
  del config.heads.eagle_first[field]
  with pytest.raises(ValueError, match=f'heads.eagle_first lacks {field}'):
    main.run(config, tmp_path / 'run')


@pytest.mark.parametrize(
  ('start', 'message'),
  [
    ('none.safetensors', 'eagle.start must be another head or a file, got'),
    ('eagle', 'eagle.start leads to eagle itself'),
    ('far', 'eagle.start must be a head, got the model .*far.safetensors'),
  ],
)
def test_a_head_begins_as_a_head(start, message, learn, family, tmp_path):
  config = learn('train/heads/eagle')
  config.heads.eagle.start = {'far': str(family / 'far.safetensors')}.get(
    start, start
  )
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')


def _first_and_last(folder, name):
  """Returns a metric at the first step of training and at the last step."""
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  first, *_, last = [json.loads(line)[name] for line in lines]
  return first, last
