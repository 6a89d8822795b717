import json

import pytest

from specjax.data import examples

_ODD = 'é 漢字 🙂 "quoted" \\ \t\n\r\u0000\u0085\u2028\u2029\ufeff'


def _file(folder, name, text):
  path = folder / name
  path.write_text(text, encoding='utf-8', newline='')
  return path


def test_read_fills_in_defaults_and_ignores_other_keys(tmp_path):
  path = _file(
    tmp_path,
    'code.v2.train.jsonl',
    '{"prompt": "a", "id": 7, "meta": {"prompt": 3}}\n'
    '{"response": "r", "prompt": "b", "domain": "math"}',
  )
  assert examples.read(path) == [
    examples.Example('code', 'a', ''),
    examples.Example('math', 'b', 'r'),
  ]


@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_read_skips_blank_lines(tmp_path, end):
  lines = ['', '{"prompt": "a"}', ' \t', '{"prompt": "b"}', '', '']
  path = _file(tmp_path, 'x.jsonl', end.join(lines))
  assert [example.prompt for example in examples.read(path)] == ['a', 'b']


@pytest.mark.parametrize(
  'line, reason',
  [
    ('{"prompt": "a"', 'not JSON'),
    ('{"prompt": "a"} {"prompt": "b"}', 'not JSON'),
    ('["prompt"]', 'object'),
    ('"prompt"', 'object'),
    ('null', 'object'),
    ('{"response": "r"}', "'prompt'"),
    ('{"prompt": 3}', "'prompt' must be a string, got int"),
    ('{"prompt": null}', "'prompt' must be a string, got NoneType"),
    ('{"prompt": "a", "response": ["r"]}', "'response' must be a string"),
    ('{"prompt": "a", "domain": 1.5}', "'domain' must be a string, got float"),
    ('{"prompt": "a \\ud83d b"}', "half a surrogate pair ('\\ud83d') at char"),
    ('{"prompt": ' + '[' * 100_000, 'not JSON: maximum recursion depth'),
    ('{"prompt": "a\0b"}', 'not JSON: Invalid control character'),
    ('\ufeff{"prompt": "a"}', 'not JSON'),
    ('\u2028', 'not JSON'),
  ],
)
def test_a_bad_line_is_named_with_its_file(tmp_path, line, reason):
  """Blank lines count too, so that the number is the one an editor shows."""
  path = _file(tmp_path, 'bad.jsonl', '{"prompt": "fine"}\n\n' + line + '\n')
  with pytest.raises(ValueError) as caught:
    examples.read(path)
  assert f'{path}, line 3: ' in str(caught.value)
  assert reason in str(caught.value)


def test_bad_lines_are_skipped_where_somebody_takes_their_errors(tmp_path):
  path = _file(tmp_path, 'x.jsonl', '{"prompt": "a"}\n{\n\n{"prompt": "b"}\n3')
  errors = []
  by_line = examples.read_by_line(path, errors.append)
  assert [(n, example.prompt) for n, example in by_line.items()] == [
    (1, 'a'),
    (4, 'b'),
  ]
  assert [str(error).split(':')[0] for error in errors] == [
    f'{path}, line 2', f'{path}, line 5'
  ]  # fmt: skip


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
  path = _file(tmp_path, 'x.jsonl', '\ufeff{"prompt": "a"}\r\n')
  assert examples.read(path) == [examples.Example('x', 'a')]


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
  for path, reason in (
    (tmp_path, 'Is a dir'),
    (tmp_path / 'x', 'No such file'),
  ):
    with pytest.raises(ValueError, match=f'^Cannot read {path}: {reason}'):
      examples.read(path)
  # But paths may begin with the home folder.
  monkeypatch.setenv('HOME', str(tmp_path))
  _file(tmp_path, 'x.train.jsonl', '{"prompt": "a"}')
  assert examples.read('~/x.train.jsonl') == examples.read_split('~', 'train')


def test_bytes_that_are_no_utf8_are_named_with_their_file(tmp_path):
  path = tmp_path / 'latin.jsonl'
  path.write_bytes(b'{"prompt": "fine"}\n{"prompt": "\xe9"}\n')
  with pytest.raises(ValueError, match='latin.jsonl, line 2'):
    examples.read(path)


def test_read_split_reads_its_files_in_the_order_of_their_names(tmp_path):
  for name in ('b.train', 'a.train', 'c.eval', 'a.train.old', 'B.train'):
    _file(tmp_path, f'{name}.jsonl', '{"prompt": "1"}\n{"prompt": "2"}\n')
  _file(tmp_path, 'd.train.txt', 'no JSON')
  got = [(e.domain, e.prompt) for e in examples.read_split(tmp_path, 'train')]
  assert got == [(name, n) for name in ('B', 'a', 'b') for n in ('1', '2')]
  first, _ = examples.read_split(str(tmp_path), 'eval')
  assert first.domain == 'c'


@pytest.mark.parametrize('folder', ['', 'missing'])
def test_read_split_without_files_names_folder_and_suffix(tmp_path, folder):
  _file(tmp_path, 'a.train.jsonl', '{"prompt": "1"}\n')
  with pytest.raises(ValueError, match='data_dir') as caught:
    examples.read_split(tmp_path / folder, 'eval')
  assert '*.eval.jsonl' in str(caught.value)
  assert str(tmp_path / folder) in str(caught.value)


def test_what_was_written_is_read_back(tmp_path):
  """Characters that some readers take for line ends stay inside a string."""
  written = [
    examples.Example('one', _ODD, _ODD[::-1]),
    examples.Example(_ODD, 'prompt'),
    examples.Example('', '', ''),
  ]
  path = tmp_path / 'x.jsonl'
  examples.write(path, iter(written))
  assert examples.read(path) == written
  raw = path.read_bytes()
  assert raw.count(b'\n') == len(written) and raw.endswith(b'\n')
  assert json.loads(raw.split(b'\n')[0])['prompt'] == _ODD
  assert '漢字'.encode() in raw  # Text stays readable, not escaped.


def test_several_domains_are_chosen_in_file_order():
  mixed = [
    examples.Example(domain, str(i))
    for i, domain in enumerate(['qa', 'math', 'qa_hard', 'code', 'qa'])
  ]
  selected = examples.select_domain(mixed, ('code', 'qa'))
  assert [example.prompt for example in selected] == ['0', '2', '3', '4']
  assert examples.select_domain(mixed, ('all',)) == mixed
  with pytest.raises(ValueError, match="domain 'medicine'. Known: code, math"):
    examples.select_domain(mixed, ('qa', 'medicine'))
