import json

import pytest

from specjax import json_files


@pytest.mark.parametrize(
  ('value', 'written'),
  [('漢字 🙂', '"漢字 🙂"'), ('a\udce9b', r'"a\udce9b"')],
)
def test_all_that_is_written_is_read_back(tmp_path, value, written):
  """Text as it is, and half a surrogate pair, which no file holds, escaped."""
  assert json_files.dumps(value) == written
  json_files.write(tmp_path, 'x.json', {'x': value})
  assert json_files.read(tmp_path, 'x.json') == {'x': value}


@pytest.mark.parametrize(
  'content', [b'', b'{"a"', b'{"a": 1}{', b'\xff', b'[' * 100_000, b'\0\0']
)
def test_a_damaged_file_is_named(tmp_path, content):
  path = tmp_path / 'x.json'
  path.write_bytes(content)
  with pytest.raises(ValueError, match=f'^Cannot read {path}: '):
    json_files.load(path)


def test_a_folder_and_a_list_are_named(tmp_path):
  with pytest.raises(ValueError, match=f'^Cannot read {tmp_path}: '):
    json_files.load(tmp_path)
  (tmp_path / 'x.json').write_text(json.dumps([1]))
  with pytest.raises(ValueError, match='x.json must contain a JSON object'):
    json_files.read(tmp_path, 'x.json')
