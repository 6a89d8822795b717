"""The theory's experiments on models, tiny: what their rows count and mean."""

import json

import jax
import matplotlib.image
import numpy as np
import pytest

from experiments import winrate
from specjax import families
from specjax.testing import toys
from tests import experiments_test

pytestmark = pytest.mark.slow

_PROMPTS = [('one', 'count'), ('one', 'a longer line'), ('two', 'what is it?')]
_WINRATE = {
  'epsilons': (0.0, 1.0),
  'draft_length': 2,
  'responses': 2,
  'max_new_tokens': 6,
}
_DIAGNOSE = {
  'draft_length': 2,
  'requests_per_prompt': 8,
  'rounds': 6,
  'max_new_tokens': 16,
  'max_length': 32,
  'batch_size': 24,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A family with the shipped tokenizer and tiny peaked models."""
  folder = tmp_path_factory.mktemp('family')
  # The drafter is near the target, so that some drafts are accepted.
  toys.write_family(folder, {'small': 0.2})
  _write_prompts(folder / 'prompts.jsonl')
  return folder


def _write_prompts(path):
  lines = [json.dumps({'domain': d, 'prompt': text}) for d, text in _PROMPTS]
  path.write_text('\n'.join(lines))


def _run(name, folder, changes, workdir):
  config = experiments_test._load(f'theory/{name}.py')
  config.update({'family': str(folder), **changes})
  return experiments_test._run(config, workdir)


# Win rates.


@pytest.fixture(scope='module')
def spoken(folder):
  """The family, its prompts' tokens and their judge."""
  family = families.load(str(folder))
  prompts = [family.tokenizer.encode_prompt(text) for _, text in _PROMPTS]
  return family, prompts, winrate.make_judge(family.target, prompts)


def test_a_score_is_the_mean_log_likelihood_of_the_response(spoken):
  """Against whole texts without a cache, in float64 behind the logits."""
  family, prompts, judge = spoken
  responses = [[5], [7, 300, 7], [9, 8, 1000, 11, 12]]
  model, params = family.target.functions, family.target.params
  texts = [prompt + response for prompt, response in zip(prompts, responses)]
  padded = np.array([text + [0] * (20 - len(text)) for text in texts])
  cache = model.init_cache(params, len(texts), 1)
  logits = jax.jit(model.extend)(params, cache, padded).logits
  for text, response, score, row in zip(
    texts, responses, judge(responses), np.asarray(logits, np.float64)
  ):
    given = row[len(text) - len(response) - 1 : len(text) - 1]
    said = given[np.arange(len(response)), response]
    expected = (said - np.log(np.exp(given).sum(-1))).mean()
    np.testing.assert_allclose(score, expected, rtol=1e-4)


def test_a_prompt_is_won_by_more_comparisons():
  """Won, won in spite of the lower mean, lost, and tied."""
  first = [[2, 2, 2], [5, 5, -90], [0, 0, 3], [1, 1, 1]]
  second = [[1, 1, 1], [1, 1, 1], [2, 2, 2], [0, 1, 2]]
  row = winrate.compare(
    *(winrate.Sample(np.array(each, float), 0.5) for each in (first, second))
  )
  assert row['win_rate'] == 0.5 and row['tied'] == 0.25
  assert row['standard_error'] == 0.25  # sqrt(0.5 * 0.5 / 4)
  assert row['comparisons_won'] == (9 + 6 + 3 + 3) / 36
  assert row['score'] == -68 / 12 and row['against_score'] == 15 / 12


def test_a_sample_holds_responses_of_their_own_and_counts_rejections(spoken):
  """Of chains of one, a round rejects its draft where it keeps none."""
  family, prompts, judge = spoken
  decoder = families.decoder(family, 'small', draft_length=1, max_length=32)
  found = winrate.sample(decoder, prompts, judge, 2, 8, seed=3)
  results = decoder.decode(prompts * 2, 8, seed=3)
  texts = [result.tokens for result in results]
  rejected = sum(int(r.rounds - r.accepted.sum()) for r in results)
  assert 0 < rejected < sum(r.rounds for r in results)
  assert found.rejections == rejected / sum(map(len, texts))
  expected = np.stack([judge(texts[:3]), judge(texts[3:])], axis=1)
  np.testing.assert_array_equal(found.scores, expected)
  assert all(one != other for one, other in zip(texts[:3], texts[3:]))


def test_winrate_goes_on_where_it_stopped(folder, tmp_path, monkeypatch):
  asked, build = [], winrate.verifiers.over_acceptance

  def record(*args):
    asked.append(args)
    return build(*args)

  monkeypatch.setattr(winrate.verifiers, 'over_acceptance', record)
  rows = _run('winrate', folder, _WINRATE, tmp_path)
  names = [(row['method'], row['against'], row['epsilon']) for row in rows]
  assert names == [
    ('target', 'small', None),
    ('OPT', 'UNO', 0),
    ('OPT', 'UNO', 1),
  ]
  assert asked[:2] == [(0.0, 'residual'), (0.0, 'target')]
  # Nothing drafted, a lossless test, and one that every draft passes.
  rejections = [(r['rejections'], r['against_rejections']) for r in rows]
  assert rejections[0] == rejections[2] == (0, 0) and min(rejections[1]) > 0
  assert matplotlib.image.imread(tmp_path / 'win_rates.png').std() > 0
  # Killed in the middle of the last row: that one alone is measured again.
  path, asked[:] = tmp_path / 'metrics.jsonl', []
  whole = path.read_text()
  path.write_text(whole[:-20])
  assert _run('winrate', folder, _WINRATE, tmp_path) == rows
  assert path.read_text() == whole
  assert asked == [(1.0, 'residual'), (1.0, 'target')]


def test_winrate_needs_responses(folder, tmp_path):
  with pytest.raises(ValueError, match='responses must be >= 1, got 0'):
    _run('winrate', folder, {'responses': 0}, tmp_path)


# Diagnosis.


@pytest.mark.parametrize(
  'verifier, flagged', [('maximal', False), ('over_acceptance', True)]
)
def test_biased_rounds_are_flagged(folder, tmp_path, capsys, verifier, flagged):
  """50 rejections are due in 264 tests, 0 come: 4 to 8 standard errors less.

  A sound run is flagged with chance 0.003 a row.
  """
  changes = _DIAGNOSE | {'verifier': verifier}
  rows = _run('diagnose', folder, changes, tmp_path)
  assert [row['domain'] for row in rows] == ['all', 'one', 'two']
  assert {row['drafter'] for row in rows} == {'small'}
  for field in ('tested', 'seen', 'predicted'):
    every, *parts = [row[field] for row in rows]
    np.testing.assert_allclose(sum(parts), every, rtol=1e-6)
  for row in rows:
    error = row['standard_error']
    np.testing.assert_allclose(
      row['deviation'], (row['seen'] - row['predicted']) / error
    )
    assert row['flagged'] == flagged == (abs(row['deviation']) > 3)
  warnings = capsys.readouterr().out.count('Warning: small, ')
  assert warnings == 3 * flagged


def test_eval_files_are_diagnosed_whatever_the_batch(folder, tmp_path):
  """Three prompts by two: what fills up the last batch counts nowhere."""
  _write_prompts(tmp_path / 'mine.eval.jsonl')
  changes = _DIAGNOSE | {'data_dir': str(tmp_path), 'requests_per_prompt': 1}
  rows = [
    _run(
      'diagnose', folder, changes | {'batch_size': size}, tmp_path / str(size)
    )
    for size in (2, 3)
  ]
  assert len(rows[0]) == 3
  for one, other in zip(*rows):
    assert (one['tested'], one['seen']) == (other['tested'], other['seen'])
    np.testing.assert_allclose(one['predicted'], other['predicted'], rtol=1e-5)


def test_diagnose_needs_requests(folder, tmp_path):
  with pytest.raises(ValueError, match='requests_per_prompt must be >= 1'):
    _run('diagnose', folder, {'requests_per_prompt': 0}, tmp_path)
