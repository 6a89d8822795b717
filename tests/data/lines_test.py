import pytest

from specjax.data import lines

_ROWS = b'{"n": 1}\n{"n": 2}\n{"n": 3}\n'


def _file(folder, content):
  path = folder / 'rows.jsonl'
  path.write_bytes(content)
  return path


@pytest.mark.parametrize(
  ('content', 'expected'),
  [
    (b'', b''),
    (_ROWS[:-1], _ROWS[:18]),
    (_ROWS + b'\0\0\0', _ROWS),
    (_ROWS + b'{"n": 9}\nno JSON\n', _ROWS),
    ('{"n": "\u2028\u0085"}\n'.encode() + _ROWS, None),
  ],
)
def test_a_torn_end_and_unwanted_lines_are_cut_off(tmp_path, content, expected):
  path = _file(tmp_path, content)
  rows = lines.keep_while(path, lambda row: row['n'] != 9)
  expected = content if expected is None else expected
  assert path.read_bytes() == expected
  assert len(rows) == expected.count(b'\n')
  assert not lines.keep_while(tmp_path / 'nothing.jsonl')


@pytest.mark.parametrize(
  ('content', 'which'),
  [
    (_ROWS[:9] + bytes(8) + b'\n' + _ROWS[18:], '2'),
    (_ROWS[:5] + _ROWS, '1'),
    (b'\n' + _ROWS + b'[1]\n"n"\n', '1, 5, 6'),
    (_ROWS + b'{"n": "\xe9"}\n', '4'),
    (_ROWS + b'[' * 100_000 + b'\n', '4'),
  ],
)
def test_damaged_lines_are_named_and_nothing_is_cut(tmp_path, content, which):
  path = _file(tmp_path, content)
  with pytest.raises(ValueError) as caught:
    lines.keep_while(path)
  assert f'{path} is damaged' in str(caught.value)
  assert f' in line {which}. Delete' in str(caught.value)
  assert path.read_bytes() == content


def test_what_cannot_be_read_is_named(tmp_path):
  with pytest.raises(ValueError, match=f'Cannot read {tmp_path}: Is a direct'):
    lines.keep_while(tmp_path)
