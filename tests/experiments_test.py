"""Experiments, from the command line down to what they leave on disk."""

import collections
import importlib
import json
import pathlib
import runpy
import subprocess
import sys
import types

import matplotlib.image
import ml_collections
import pytest

from experiments import bandits
from experiments import evaluate
from experiments import main
from experiments import prompt_sets
from experiments import results
from specjax import families
from tests import toys

_ROOT = pathlib.Path(__file__).parents[1]


def _load(name):
  return runpy.run_path(_ROOT / 'configs' / name)['get_config']()


def _run(config, workdir):
  """Runs an experiment in this process; returns its rows."""
  main.run(config, workdir)
  path = workdir / 'results.json'
  return json.loads(path.read_text()) if path.exists() else None


def _main(*flags):
  return subprocess.run(
    [sys.executable, '-m', 'experiments.main', *flags],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )


@pytest.mark.slow
def test_quickstart(tmp_path, capsys):
  config = _load('quickstart.py')
  config.update(
    {'draft_lengths': (2,), 'prompts_per_domain': 1, 'max_new_tokens': 8}
  )
  plain, speculative = _run(config, tmp_path)
  assert plain['block_efficiency'] == 1 < speculative['block_efficiency'] <= 3
  assert matplotlib.image.imread(tmp_path / 'acceptance.png').std() > 0
  printed = capsys.readouterr().out
  assert '\033[32m' in printed and families.load().prompts[0].prompt in printed
  lines = (tmp_path / 'metrics.jsonl').read_text().splitlines()
  assert [json.loads(line)['draft_length'] for line in lines] == [0, 2]


@pytest.mark.slow
def test_decode_from_a_file_does_not_depend_on_the_batch(tmp_path):
  path = tmp_path / 'mine.jsonl'
  path.write_text('{"prompt": "a b"}\n{"prompt": "what is it?"}\n')
  config = _load('decode.py')
  config.update({'prompts_file': str(path), 'max_new_tokens': 6})
  alone = _run(config, tmp_path / 'alone')
  config.batch_size = 2
  assert _run(config, tmp_path / 'batch') == alone
  assert [row['domain'] for row in alone] == ['mine', 'mine']


def test_decode_needs_exactly_one_source_of_prompts(tmp_path):
  with pytest.raises(ValueError, match='one of prompts and prompts_file'):
    _run(_load('decode.py'), tmp_path)


@pytest.mark.slow
def test_benchmark(tmp_path):
  config = _load('benchmark.py')
  config.update(
    {
      'draft_length': 2,
      'draft_lengths': (2,),
      'batch_sizes': (2,),
      'temperatures': (0.0,),
      'num_prompts': 2,
      'max_new_tokens': 8,
      'rounds': 4,
      'repeats': 1,
      'arms': (('small', 2), ('none', 0)),
      'costs': {
        'arms': (('small', 1),),
        'batch_sizes': (1,),
        'temperature': 0.0,
      },
    }
  )
  rows = _run(config, tmp_path)
  names = [row['benchmark'] for row in rows]
  assert names.count('round') == 2 and names.count('decode') == 4
  assert names.count('features') == 1
  assert all(row['ratio'] > 0 and row['device'] for row in rows)
  # Same weights, same greedy outputs in an independent implementation.
  assert [row['same_outputs'] for row in rows[-2:]] == [2, 2]


@pytest.mark.slow
def test_a_family_is_trained_and_decodes(tmp_path):
  """The recipe of the shipped family, tiny, from raw text to a decoder."""
  data = tmp_path / 'data'
  data.mkdir()
  line = '{"prompt": "count %d", "response": "one two three four"}\n'
  for split in ('train', 'eval'):
    text = ''.join(line % i for i in range(64))
    (data / f'toy.{split}.jsonl').write_text(text)
  tokenizer = _load('train/tokenizer.py')
  tokenizer.update({'data_dir': str(data), 'vocab_size': 280})
  _run(tokenizer, tmp_path / 'tokenizer')

  shared = {
    'data_dir': str(data),
    'tokenizer': str(tmp_path / 'tokenizer' / 'tokenizer.json'),
    'row_length': 64,
  }
  short = {
    'steps': 30,
    'batch_size': 4,
    'warmup_steps': 2,
    'learning_rate': 1e-2,
  }
  target = _load('train/target.py')
  target.update(shared)
  target.models.target.update(toys.TINY)
  target.training.update(short)
  (row,) = _run(target, tmp_path / 'family')
  assert row['model'] == 'target' and row['bits_per_byte'] < 8
  _assert_other_training_is_refused(target, tmp_path / 'family')

  weights = str(tmp_path / 'family' / 'target.safetensors')
  responses = _load('train/responses.py')
  responses.update(
    {
      'data_dir': str(data),
      'tokenizer': shared['tokenizer'],
      'target': weights,
      'num_responses': {'all': 3},
      'temperatures': (0.0, 1.0),
      'max_prompt_tokens': 32,
      'max_new_tokens': 8,
      'batch_size': 4,
    }
  )
  sampled = tmp_path / 'responses' / 'responses.jsonl'
  _run(responses, sampled.parent)
  whole = sampled.read_text()
  assert len(whole.splitlines()) == 6
  # Killed in the middle of a line, the run goes on where it stopped.
  sampled.write_text(''.join(whole.splitlines(True)[:4]) + '{"torn')
  _run(responses, sampled.parent)
  assert sampled.read_text() == whole

  drafters = _load('train/drafters.py')
  drafters.update(shared)
  drafters.responses = (str(sampled),)
  drafters.distill_from = weights
  for model in drafters.models.values():
    model.update(toys.TINY)
  drafters.training.update(short)
  _run(drafters, tmp_path / 'drafters')
  for path in (tmp_path / 'drafters').glob('*.safetensors'):
    path.rename(tmp_path / 'family' / path.name)
  (tmp_path / 'family' / 'prompts.jsonl').write_text('{"prompt": "count"}\n')

  evaluate = _load('evaluate.py')
  evaluate.update(
    {
      'data_dir': str(data),
      'family': str(tmp_path / 'family'),
      'prompts_per_domain': 3,
      'max_new_tokens': 4,
      'batch_size': 2,
      'draft_lengths': (2,),
    }
  )
  rows = _run(evaluate, tmp_path / 'evaluate')
  assert [row['domain'] for row in rows] == ['all', 'toy'] * 3
  assert all(1 <= row['block_efficiency'] <= 3 for row in rows)

  perplexity = _load('perplexity.py')
  perplexity.update(
    {
      'data_dir': str(data),
      'family': str(tmp_path / 'family'),
      'row_length': 64,
    }
  )
  bits = _run(perplexity, tmp_path / 'perplexity')
  assert bits[0] == row and len(bits) == 4

  family = families.load(str(tmp_path / 'family'))
  decoder = families.decoder(family, 'large', draft_length=2)
  (result,) = decoder.decode([family.tokenizer.encode_prompt('count 1')], 8)
  assert 0 < len(result.tokens) <= 8


def _assert_other_training_is_refused(config, workdir):
  """By main, and by the checkpoints where main knows nothing of the run."""
  before = {path: path.read_bytes() for path in workdir.glob('*.safetensors')}
  other = config.copy_and_resolve_references()
  other.models.target.d_ff = 24
  with pytest.raises(ValueError, match='models.target.d_ff is 16 there and 24'):
    _run(other, workdir)
  other = config.copy_and_resolve_references()
  other.training.learning_rate = 0.5
  said = (workdir / 'config.json').read_text()
  (workdir / 'config.json').unlink()
  with pytest.raises(ValueError, match='learning_rate was 0.01 and is 0.5'):
    _run(other, workdir)
  assert not (workdir / 'config.json').exists()
  (workdir / 'config.json').write_text(said)
  assert before == {path: path.read_bytes() for path in before}


def test_an_unknown_config_field_is_answered_with_the_known(tmp_path):
  done = _main(
    '--config=configs/quickstart.py',
    f'--workdir={tmp_path}',
    '--config.sampling.temprature=0',
  )
  assert done.returncode != 0
  assert "Unknown config field 'sampling.temprature'" in done.stderr
  assert 'sampling.temperature' in done.stderr and 'seed' in done.stderr


def test_bad_values_end_in_a_sentence_and_leave_nothing(tmp_path):
  done = _main(
    '--config=configs/decode.py',
    f'--workdir={tmp_path / "run"}',
    '--config.prompts=hello',
    '--config.sampling.temperature=-1.0',
  )
  assert done.returncode != 0
  said = done.stderr.splitlines()[-1]
  assert said.startswith('ValueError: temperature must be')
  assert said.endswith('got -1.0.')
  assert not list(tmp_path.iterdir())


# Workdirs.


def _toy(monkeypatch, run, **constants):
  """Has a toy take the place of an experiment; returns its config."""
  module = types.SimpleNamespace(run=run, **constants)
  monkeypatch.setitem(sys.modules, 'experiments.toy', module)
  return ml_collections.ConfigDict(
    {'experiment': 'toy', 'sizes': (1, 2), 'inner': {'rate': 0.5}, 'seed': 0}
  )


def _measure(config, workdir):
  """An experiment that goes on where it stopped: a row for each size."""
  if config.seed < 0:
    raise ValueError(f'seed must be >= 0, got {config.seed}.')
  done = results.done(workdir, ('size', 'seed'))
  rows = []
  for size in config.sizes:
    row = done.get((size, config.seed))
    if row is None:
      if size == 13:
        raise KeyboardInterrupt
      row = {'size': size, 'seed': config.seed}
      results.log(workdir, row)
    rows.append(row)
  results.write(workdir, rows)


def _read(workdir, name):
  return json.loads((workdir / name).read_text())


def _lines(workdir):
  return (workdir / 'metrics.jsonl').read_text().splitlines()


def test_a_refused_run_leaves_no_folder(tmp_path, monkeypatch):
  config = _toy(monkeypatch, _measure)
  config.seed = -1
  with pytest.raises(ValueError, match='seed'):
    _run(config, tmp_path / 'a' / 'b')
  assert not list(tmp_path.iterdir())
  config.seed = 0
  assert len(_run(config, tmp_path / 'a' / 'b')) == 2
  assert _read(tmp_path / 'a' / 'b', 'config.json') == json.loads(
    config.to_json()
  )


def test_other_settings_are_refused_before_anything_is_touched(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch, _measure)
  _run(config, tmp_path)
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  assert len(before) == 3
  config.seed = 1
  config.inner.rate = 0.25
  config.inner.more = 'x'
  with pytest.raises(ValueError) as caught:
    _run(config, tmp_path)
  assert str(caught.value) == (
    f'{tmp_path} holds a run with other settings: inner.rate is 0.5 there and '
    '0.25 here; seed is 0 there and 1 here; inner.more is not set there and '
    '"x" here. Use another workdir, or delete this one.'
  )
  assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_of_another_experiment_only_that_is_told(tmp_path, monkeypatch):
  config = _toy(monkeypatch, _measure)
  _run(config, tmp_path)
  with pytest.raises(ValueError) as caught:
    _run(_load('quickstart.py'), tmp_path)
  assert str(caught.value) == (
    f'{tmp_path} holds a run with other settings: experiment is "toy" there '
    'and "quickstart" here. Use another workdir, or delete this one.'
  )


def test_a_spoilt_config_is_named(tmp_path, monkeypatch):
  (tmp_path / 'config.json').write_text('{"seed": ')
  with pytest.raises(ValueError, match=f'Cannot read {tmp_path}/config.json'):
    _run(_toy(monkeypatch, _measure), tmp_path)


def test_the_same_settings_go_on_or_begin_anew(tmp_path, monkeypatch):
  config = _toy(monkeypatch, _measure)
  for _ in range(2):
    assert len(_run(config, tmp_path / 'on')) == len(_lines(tmp_path / 'on'))

  def anew(config, workdir):
    results.start(workdir)
    _measure(config, workdir)

  config = _toy(monkeypatch, anew)
  monkeypatch.setattr(results, 'done', lambda *_: {})
  for _ in range(2):
    _run(config, tmp_path / 'anew')
    assert len(_lines(tmp_path / 'anew')) == 2


def test_named_fields_may_change_and_the_config_is_that_of_the_results(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch, _measure, MAY_CHANGE=('sizes',))
  _run(config, tmp_path)
  config.sizes = (2, 3)
  assert [row['size'] for row in _run(config, tmp_path)] == [2, 3]
  assert _read(tmp_path, 'config.json')['sizes'] == [2, 3]
  assert len(_lines(tmp_path)) == 3  # Of 1, 2 and 3.


def test_a_killed_run_says_what_its_rows_are_of(tmp_path, monkeypatch):
  """Results of the config before are gone; its rows say what they are of."""
  config = _toy(monkeypatch, _measure, MAY_CHANGE=('sizes',))
  _run(config, tmp_path)
  config.sizes = (1, 3, 13)
  with pytest.raises(KeyboardInterrupt):
    _run(config, tmp_path)
  assert _read(tmp_path, 'config.json')['sizes'] == [1, 3, 13]
  assert len(_lines(tmp_path)) == 3
  assert not (tmp_path / 'results.json').exists()


def test_fields_that_may_change_are_fields_of_configs():
  known, named = set(), {}
  for path in (_ROOT / 'configs').rglob('*.py'):
    config = _load(path.relative_to(_ROOT / 'configs'))
    module = importlib.import_module(f'experiments.{config.experiment}')
    named[config.experiment] = set(getattr(module, 'MAY_CHANGE', ()))
    known |= set(config)
  assert len(list(filter(None, named.values()))) == 12
  assert set().union(*named.values()) <= known


def test_prompts_of_the_family_are_counted(tmp_path):
  """As many of each domain as asked for, like those of files."""
  family = families.load()
  for num in (1, 3, 1000):
    config = ml_collections.ConfigDict(
      {'data_dir': '', 'prompts_per_domain': num}
    )
    jobs = evaluate.chosen_prompts(config, family)
    counts = collections.Counter(domain for domain, _ in jobs)
    assert set(counts.values()) == {min(num, 8)} and len(counts) == 8
  config.prompts_per_domain = 0
  with pytest.raises(ValueError, match='prompts_per_domain must be >= 1'):
    evaluate.chosen_prompts(config, family)


def test_prompts_of_another_file_are_not_those_that_were_logged():
  """Even if the file has the same name; other sets do not mind."""
  config = _load('banditspec/drafters.py')
  seen = {}
  for folder in ('a', 'b'):
    config.prompts_file = f'{folder}/mine.jsonl'
    for label in ('mine', 'family'):
      fields = prompt_sets.fields(config, label)
      made = results.fingerprint(fields, bandits.MAY_CHANGE)
      seen.setdefault(label, set()).add(made)
  assert len(seen['mine']) == 2 and len(seen['family']) == 1
