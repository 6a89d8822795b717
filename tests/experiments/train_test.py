"""The recipe of the shipped family, tiny, from raw text to a decoder."""

import json
import pathlib
import shutil

import pytest

from experiments import main
from experiments.common import configs
from experiments.common import log
from experiments.common import results
from experiments.common import ways
import specjax
from specjax import families
from specjax.data import examples as examples_lib
from specjax.testing import toys

pytestmark = pytest.mark.slow

_CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'
_SHORT = {
  'steps': 30,
  'batch_size': 4,
  'warmup_steps': 2,
  'learning_rate': 1e-2,
}


def _load(name, **fields):
  config = configs.load(str(_CONFIGS / f'{name}.py'))
  config.update(fields)
  return config


def _rows(config, workdir):
  main.run(config, workdir)
  return results.read(workdir)['rows']


def test_a_family_is_trained_and_decodes(tmp_path, monkeypatch):
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
  (row,) = _rows(target, folder)
  assert row['model'] == 'target' and row['bits_per_byte'] < 8
  _assert_other_training_is_refused(target, folder)

  responses = _sampled(tmp_path, data_dir, monkeypatch)
  drafters = _load('train/drafters', **shared, responses=(str(responses),))
  drafters.distill_from = str(folder / 'target.safetensors')
  for model in drafters.models.values():
    model.update(toys.TINY)
  drafters.training.update(_SHORT)
  main.run(drafters, tmp_path / 'drafters')
  for path in (tmp_path / 'drafters').glob('*.safetensors'):
    path.rename(folder / path.name)
  (folder / 'prompts.jsonl').write_text('{"prompt": "count"}\n')
  _assert_decodes(tmp_path, data_dir, row)


def _sampled(tmp_path, data_dir, monkeypatch):
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
  append, done = log._append, []

  def kill(workdir, row):
    append(workdir, row)
    done.append(row)
    if len(done) == 3:
      raise KeyboardInterrupt

  monkeypatch.setattr(log, '_append', kill)
  again = tmp_path / 'again' / 'responses.jsonl'
  with pytest.raises(KeyboardInterrupt):
    main.run(config, again.parent)
  main.run(config, again.parent)
  monkeypatch.undo()
  assert again.read_text() == path.read_text() and len(done) == 6
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
    ways=('large:2', 'small:2'),
  )
  rows = _rows(evaluate, tmp_path / 'evaluate')
  assert [row['domain'] for row in rows] == ['all', 'toy'] * 2
  assert all(1 <= row['block_efficiency'] <= 3 for row in rows)
  perplexity = _load('train/perplexity', **data_dir, **folder, row_length=64)
  bits = _rows(perplexity, tmp_path / 'perplexity')
  assert bits[0] == row and len(bits) == 4
  family = families.load(folder['family'])
  decoder = families.decoder(family, 'large', draft_length=2)
  (result,) = decoder.decode([family.tokenizer.encode_prompt('count 1')], 8)
  assert 0 < len(result.tokens) <= 8


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


def _taught(tmp_path, name):
  """A toy family, the text that it reads, and a config that learns from it."""
  family = tmp_path / 'family'
  family.mkdir()
  toys.write_family(family, {})
  text = 'count to two: one two one two'
  examples = [examples_lib.Example('toy', text, text * 2) for _ in range(9)]
  examples_lib.write(tmp_path / 'toy.train.jsonl', examples)
  config = _load(
    name,
    data_dir=str(tmp_path),
    family=str(family),
    responses=(),
    row_length=64,
    training=_SHORT | {'batch_size': 2},
  )
  return family, text, config


def test_a_drafter_is_distilled_and_drafts(tmp_path):
  """It is a file without embedding, which its family lends it."""
  family, text, config = _taught(tmp_path, 'train/distill')
  config.drafters = {'cut': {'layers': (0,), 'head_size': 2048}}
  main.run(config, tmp_path / 'run')
  lines = (tmp_path / 'run' / 'cut' / 'metrics.jsonl').read_text().splitlines()
  first, *_, last = [json.loads(line)['acceptance'] for line in lines]
  assert last > first
  shutil.copy(tmp_path / 'run' / 'cut.safetensors', family)
  loaded = families.load(str(family))
  cut = loaded.drafters['cut']
  table = lambda model: model.params['embedding']['embedding']
  assert table(cut) is table(loaded.target)
  assert cut.config.head_size == 2048
  prompts = [loaded.tokenizer.encode_prompt(text)]
  decode = lambda name, **options: families.decoder(
    loaded, name, sampling=specjax.Sampling(0.0), **options
  ).decode(prompts, 12)[0]
  drafted, plain = decode('cut', draft_length=2), decode(None)
  assert drafted.tokens == plain.tokens
  assert drafted.rounds < plain.rounds


@pytest.mark.parametrize(
  ('kind', 'arms'),
  [
    (
      'eagle',
      (
        'feature_head(eagle):3',
        'feature_head(eagle):eagle',
        'dynamic_tree(eagle, num_nodes=6, depth=3, beam=3)',
      ),
    ),
    ('eagle3', ('feature_head(eagle3):2.2',)),
    ('medusa', ('medusa(medusa):3', 'medusa(medusa):2.2')),
  ],
)
def test_heads_are_trained_and_draft(kind, arms, tmp_path):
  """They are files without what is their target's, which lends it to them."""
  family, text, config = _taught(tmp_path, f'train/heads/{kind}')
  begun = kind if kind == 'medusa' else f'{kind}_first'
  config.heads[begun].options.head_size = 2048
  if begun != kind:
    del config.heads[kind].training
  main.run(config, tmp_path / 'run')
  first, last = _of_steps(tmp_path / 'run' / begun, 'acceptance_1')
  assert last > first
  if begun != kind:  # It goes on where the first one ended.
    again, _ = _of_steps(tmp_path / 'run' / kind, 'acceptance_1')
    assert again > (first + last) / 2
  shutil.copy(tmp_path / 'run' / f'{kind}.safetensors', family)
  loaded = families.load(str(family))
  shared = loaded.target.params['embedding']['embedding']
  head = loaded.drafters[kind]
  assert head.params['embedding']['embedding'] is shared
  prompts = [loaded.tokenizer.encode_prompt(text)]
  decode = lambda arm: ways.decoder(
    loaded, arm, sampling={'temperature': 0.0}
  ).decode(prompts, 12)[0]
  plain, drafted = decode('none'), [decode(arm) for arm in arms]
  drafted.append(decode('early_exit(target, num_layers=1):2'))
  for each in drafted:
    assert each.tokens == plain.tokens
    assert each.rounds <= plain.rounds


def test_a_head_learns_on_from_a_file(tmp_path):
  """It begins as good as it was, but for what its file rounds."""
  _, _, config = _taught(tmp_path, 'train/heads/eagle')
  recipe = config.heads.eagle_first.recipe
  config.heads.eagle_first.options.head_size = 2048
  del config.heads['eagle']
  grown = _rows(config, tmp_path / 'run')
  further = config.copy_and_resolve_references()
  start = str(tmp_path / 'run' / 'eagle_first.safetensors')
  with further.ignore_type():
    further.heads = {'own': {'start': start, 'recipe': recipe}}
  main.run(further, tmp_path / 'further')
  first, last = _of_steps(tmp_path / 'run' / 'eagle_first', 'loss')
  again, _ = _of_steps(tmp_path / 'further' / 'own', 'loss')
  assert again < last + 0.2 * (first - last)
  assert grown[-1]['acceptance_1'] > grown[0]['acceptance_1']


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('recipe.noises', 0.1, "eagle_first.recipe: Unknown field 'noises'"),
    ('training', {'steps': 0}, 'steps must be >= 1, got 0'),
    ('trainings', {}, "eagle_first: Unknown field 'trainings'"),
  ],
)
def test_an_entry_is_refused_before_the_teacher_reads(
  field, value, message, tmp_path
):
  _, _, config = _taught(tmp_path, 'train/heads/eagle')
  config.heads.eagle_first.options.head_size = 2048
  with config.unlocked(), config.ignore_type():
    config.update_from_flattened_dict({f'heads.eagle_first.{field}': value})
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run' / 'teacher').exists()


@pytest.mark.parametrize('field', ['kind', 'options', 'recipe'])
def test_an_entry_must_be_whole(field, tmp_path):
  _, _, config = _taught(tmp_path, 'train/heads/eagle')
  del config.heads.eagle_first[field]
  with pytest.raises(ValueError, match=f'heads.eagle_first lacks {field}'):
    main.run(config, tmp_path / 'run')


@pytest.mark.parametrize(
  ('start', 'message'),
  [
    ('none.safetensors', 'eagle.start must be another head or a file, got'),
    ('eagle', 'eagle.start leads to eagle itself'),
    ('large', 'eagle.start must be a head, but .*large.safetensors is none'),
  ],
)
def test_a_head_begins_as_a_head(start, message, tmp_path):
  family, _, config = _taught(tmp_path, 'train/heads/eagle')
  toys.write_family(family, {'large': 0.2})
  config.heads.eagle.start = {'large': str(family / 'large.safetensors')}.get(
    start, start
  )
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')


def _of_steps(folder, name):
  """A metric of the first step of training, and of the last."""
  lines = (folder / 'metrics.jsonl').read_text().splitlines()
  first, *_, last = [json.loads(line)[name] for line in lines]
  return first, last
