"""The recipe of the shipped family, tiny, from raw text to a decoder."""

import functools
import json
import shutil

import pytest

from experiments import main
from experiments.common import methods
from specjax import families
from specjax.data import examples as examples_lib
from specjax.data import token_ids
from specjax.data import tokenizer as tokenizer_lib
from specjax.testing import toys
from tests.experiments import toy

pytestmark = pytest.mark.slow

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
  """Responses of a killed run, equal to those of a run that was not."""
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
  again = toy.torn(path.parent, tmp_path / 'again', 3)
  main.run(config, again)
  assert (again / 'responses.jsonl').read_text() == path.read_text()
  prompts, responses = token_ids.read(again / 'responses.npz')
  logged = [unit['outcome'] for unit in toy.units(again)]
  assert [each.tokens for each in responses] == [
    outcome['tokens'] for outcome in logged
  ]
  assert {each.temperature for each in responses} == {0.0, 1.0}
  assert len(prompts) == 3
  assert toy.units(again) == toy.units(path.parent)
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
  """By main, and by the checkpoints where main knows nothing of the run."""
  before = {path: path.read_bytes() for path in workdir.glob('*.safetensors')}
  other = config.copy_and_resolve_references()
  other.models.target.d_ff = 24
  with pytest.raises(ValueError, match='models.target.d_ff is 16 there and 24'):
    main.run(other, workdir)
  other = config.copy_and_resolve_references()
  other.training.learning_rate = 0.5
  said = (workdir / 'config.json').read_text()
  (workdir / 'config.json').unlink()
  with pytest.raises(ValueError, match='learning_rate was 0.01 and is 0.5'):
    main.run(other, workdir)
  assert not (workdir / 'config.json').exists()
  (workdir / 'config.json').write_text(said)
  assert before == {path: path.read_bytes() for path in before}


_TEXT = 'count to two: one two one two'


@pytest.fixture(scope='module', name='learn')
def _learn(family, tmp_path_factory):
  """Returns a config by name, which learns a short text from the toy target."""
  data = tmp_path_factory.mktemp('text')
  examples = [examples_lib.Example('toy', _TEXT, _TEXT * 2) for _ in range(9)]
  examples_lib.write(data / 'toy.train.jsonl', examples)

  def config(name, *heads):
    loaded = _load(
      name,
      data_dir=str(data),
      family=str(family),
      responses=(),
      row_length=64,
      training=_SHORT | {'batch_size': 2},
    )
    for head in heads:
      loaded.heads[head].options.head_size = 2048
    return loaded

  return config


def _with(family, path, into):
  """The toy family, with a drafter from a file."""
  drafters = [f'{name}.*' for name in toy.DRAFTERS]
  shutil.copytree(family, into, ignore=shutil.ignore_patterns(*drafters))
  shutil.copy(path, into)
  return families.load(str(into))


def _decode(loaded, arm):
  prompts = [loaded.tokenizer.encode_prompt(_TEXT)]
  decoder = methods.decoder(loaded, arm, sampling={'temperature': 0.0})
  return decoder.decode(prompts, 12)[0]


def test_a_drafter_is_distilled_and_drafts(tmp_path, family, learn):
  """It is a file without embedding, which its family lends it."""
  config = learn('train/distill')
  config.students = {'cut': {'layers': (0,), 'head_size': 2048}}
  main.run(config, tmp_path / 'run')
  first, last = _of_steps(tmp_path / 'run' / 'cut', 'acceptance')
  assert last > first
  path = tmp_path / 'run' / 'cut.safetensors'
  loaded = _with(family, path, tmp_path / 'family')
  cut = loaded.drafters['cut']
  table = lambda model: model.params['embedding']['embedding']
  assert table(cut) is table(loaded.target)
  assert cut.config.head_size == 2048
  drafted, plain = _decode(loaded, 'cut:2'), _decode(loaded, 'none')
  assert drafted.tokens == plain.tokens
  assert drafted.rounds < plain.rounds


# By kind: the head that is trained first, and arms.
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
}


@pytest.fixture(scope='module', name='trained')
def _trained(learn, tmp_path_factory):
  """Trains heads of a kind, once; returns the workdir and the rows."""

  @functools.cache
  def train(kind):
    first, _ = _HEADS[kind]
    config = learn(f'train/heads/{kind}', first)
    if first != kind:
      del config.heads[kind].training
    workdir = tmp_path_factory.mktemp(kind)
    return workdir, toy.run(config, workdir)

  return train


@pytest.mark.parametrize('kind', _HEADS)
def test_heads_are_trained_and_draft(kind, trained, family, tmp_path):
  """They are files without what is their target's, which lends it to them."""
  workdir, rows = trained(kind)
  begun, arms = _HEADS[kind]
  first, last = _of_steps(workdir / begun, 'acceptance_1')
  assert last > first
  assert rows[-1]['acceptance_1'] > rows[0]['acceptance_1']
  if begun != kind:  # It goes on where the first one ended.
    again, _ = _of_steps(workdir / kind, 'acceptance_1')
    assert again > (first + last) / 2
  path = workdir / f'{kind}.safetensors'
  loaded = _with(family, path, tmp_path / 'family')
  shared = loaded.target.params['embedding']['embedding']
  head = loaded.drafters[kind]
  assert head.params['embedding']['embedding'] is shared
  plain = _decode(loaded, 'none')
  for arm in arms:
    drafted = _decode(loaded, arm)
    assert drafted.tokens == plain.tokens
    assert drafted.rounds <= plain.rounds


def test_a_head_learns_on_from_a_file(trained, learn, tmp_path):
  """It begins as good as it was, but for what its file rounds."""
  workdir, _ = trained('eagle')
  further = learn('train/heads/eagle')
  recipe = further.heads.eagle_first.recipe
  start = str(workdir / 'eagle_first.safetensors')
  with further.ignore_type():
    further.heads = {'own': {'start': start, 'recipe': recipe}}
  main.run(further, tmp_path)
  first, last = _of_steps(workdir / 'eagle_first', 'loss')
  again, _ = _of_steps(tmp_path / 'own', 'loss')
  assert again < last + 0.2 * (first - last)


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


def _of_steps(folder, name):
  """A metric of the first step of training, and of the last."""
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  first, *_, last = [json.loads(line)[name] for line in lines]
  return first, last
