"""Experiments, from the command line down to what they leave on disk."""

import json
import pathlib
import runpy
import subprocess
import sys

import matplotlib.image
import pytest

from specjax import families
from specjax.models import adapters
from specjax.models import config as config_lib
from tests import toys

_ROOT = pathlib.Path(__file__).parents[1]


def _load(name):
  return runpy.run_path(_ROOT / 'configs' / name)['get_config']()


def _run(config, workdir):
  """Runs an experiment in this process, as main does; returns its rows."""
  module = __import__(f'experiments.{config.experiment}', fromlist=['run'])
  workdir.mkdir(exist_ok=True)
  module.run(config, str(workdir))
  path = workdir / 'results.json'
  return json.loads(path.read_text()) if path.exists() else None


def _main(*flags):
  return subprocess.run(
    [sys.executable, '-m', 'experiments.main', *flags],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )


def test_every_config_names_an_experiment():
  for path in (_ROOT / 'configs').rglob('*.py'):
    experiment = _load(path.relative_to(_ROOT / 'configs')).experiment
    assert (_ROOT / 'experiments' / f'{experiment}.py').is_file()


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
  assert all(row['ratio'] > 0 and row['device'] for row in rows)
  # Same weights, same greedy outputs in an independent implementation.
  assert [row['same_outputs'] for row in rows[-2:]] == [2, 2]


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
  _run(tokenizer, tmp_path / 'family')

  shared = {
    'data_dir': str(data),
    'tokenizer': str(tmp_path / 'family' / 'tokenizer.json'),
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
  (tmp_path / 'drafters').mkdir()
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


def test_an_unknown_config_field_is_answered_with_the_known(tmp_path):
  done = _main(
    '--config=configs/quickstart.py',
    f'--workdir={tmp_path}',
    '--config.sampling.temprature=0',
  )
  assert done.returncode != 0
  assert "Unknown config field 'sampling.temprature'" in done.stderr
  assert 'sampling.temperature' in done.stderr and 'seed' in done.stderr


def test_bad_values_end_in_a_sentence(tmp_path):
  done = _main(
    '--config=configs/decode.py',
    f'--workdir={tmp_path}',
    '--config.prompts=hello',
    '--config.sampling.temperature=-1.0',
  )
  assert done.returncode != 0
  assert done.stderr.strip().endswith(
    'temperature must be >= 0 and finite, got -1.0.'
  )
  resolved = json.loads((tmp_path / 'config.json').read_text())
  assert resolved['prompts'] == 'hello'


def test_drafters_of_the_97m_config_are_halves_and_doubles():
  models = _load('spectr/lm1b_97m.py').models.to_dict()
  base = models['6m']
  for name, factor in (('2m', 1 / 2), ('20m', 2)):
    for field in ('num_layers', 'd_model', 'd_ff', 'num_heads'):
      assert models[name][field] == factor * base[field], (name, field)
  sizes = {
    name: adapters.num_params(
      config_lib.from_dict({'vocab_size': 16384, **fields})
    )
    for name, fields in models.items()
  }
  wanted = {'target': 97.5e6, '20m': 20.5e6, '6m': 5.7e6, '2m': 2.3e6}
  assert sizes == pytest.approx(wanted, rel=0.01)
