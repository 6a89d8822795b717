"""A conversation on the terminal, with a toy."""

import builtins

import pytest

from experiments import chat
from experiments import main
from specjax import decoding
from specjax.testing import toys
from tests import smoke

_TURNS = 'what is it?', '/new', 'count to two', 'and then?'


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('chat')
  toys.write_family(folder, {'small': 0.1}, tokenizer=toys.chat_tokenizer())
  return folder


def _config(folder, **fields):
  config = smoke.load('chat')
  config.update({'family': str(folder), 'arms': ('small:2',), 'turns': _TURNS})
  # All tests decode with one program.
  config.update({'max_new_tokens': 6, 'max_length': 90, **fields})
  return config


def _rows(config, tmp_path):
  return main.experiment(config).run(config, tmp_path)


def test_turns_are_answered_with_their_speed(folder, tmp_path, capsys):
  rows = _rows(_config(folder), tmp_path)
  output = capsys.readouterr().out
  assert [row['turn'] for row in rows] == [
    'what is it?', 'count to two', 'and then?'
  ]  # fmt: skip
  for row in rows:
    assert f'\n> {row["turn"]}\n' in output and row['answer'] in output
    assert 1 <= row['block_efficiency'] <= row['tokens'] <= 6
    assert row['tokens_per_second'] is None or row['tokens_per_second'] > 0
  assert output.count(' per target call') == 3


def test_rates_begin_after_the_first_call():
  """Which follows the prefill and perhaps compilation."""
  found = chat.rates([(2, 100.0), (3, 101.0), (1, 102.0)])
  assert found == {
    'tokens': 6, 'block_efficiency': 2.0, 'tokens_per_second': 2.0
  }  # fmt: skip
  for calls in ([], [(2, 100.0)]):
    assert chat.rates(calls)['tokens_per_second'] is None


def test_what_is_typed_is_answered(folder, tmp_path, monkeypatch):
  inputs = iter(['what is it?', '', 'and then?'])

  def fake_input(prompt):
    for text in inputs:
      return text
    raise EOFError

  turns = ('what is it?', 'and then?')
  expected_rows = _rows(_config(folder, turns=turns), tmp_path)
  monkeypatch.setattr(builtins, 'input', fake_input)
  rows = _rows(_config(folder, turns=()), tmp_path)
  answers = lambda rows: [(row['turn'], row['answer']) for row in rows]
  assert answers(rows) == answers(expected_rows)


def test_an_interrupted_prefill_has_no_answer(folder, tmp_path, monkeypatch):
  init = decoding.Decoder.init
  interrupts = iter([KeyboardInterrupt])

  def interrupted_once(*args, **options):
    for interrupt in interrupts:
      raise interrupt
    return init(*args, **options)

  monkeypatch.setattr(decoding.Decoder, 'init', interrupted_once)
  first, second = _rows(
    _config(folder, turns=('what is it?', 'and then?')), tmp_path
  )
  assert first['answer'] == '' and first['tokens'] == 0
  assert second['tokens'] > 0


def test_a_turn_that_does_not_fit_ends_nothing(folder, tmp_path, capsys):
  turns = ('what is it?', 'x' * 90, '/new', 'and then?')
  rows = _rows(_config(folder, turns=turns), tmp_path)
  assert [row['turn'] for row in rows] == ['what is it?', 'and then?']
  assert 'exceeds max_length=90. /new begins' in capsys.readouterr().out


def test_a_family_without_a_template_is_refused(tmp_path):
  toys.write_family(tmp_path, {'small': 0.1})
  with pytest.raises(ValueError, match='must have a chat template'):
    _rows(_config(tmp_path), tmp_path)
