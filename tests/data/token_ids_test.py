import numpy as np
import pytest

from specjax.data import token_ids

_PROMPTS = [
  token_ids.Prompt('code', [1, 2, 3]),
  token_ids.Prompt('never answered', [4]),
  token_ids.Prompt('Übersetzung', [49151]),
]
_RESPONSES = [
  token_ids.Response(2, 0.0, [5, 0]),
  token_ids.Response(0, 0.5, []),
  token_ids.Response(2, 1.0, [7] * 1000),
]


@pytest.mark.parametrize(
  ('token', 'dtype'), [(9, np.uint16), (70_000, np.uint32)]
)
def test_what_is_read_was_written(token, dtype, tmp_path):
  path = tmp_path / 'ids.npz'
  responses = [*_RESPONSES, token_ids.Response(0, 1.0, [token])]
  token_ids.write(path, _PROMPTS, responses)
  prompts, stored = token_ids.read(path)
  assert prompts == [_PROMPTS[0], _PROMPTS[2]]
  assert stored == [
    response._replace(prompt=response.prompt // 2) for response in responses
  ]
  with np.load(path) as arrays:
    assert arrays['response_tokens'].dtype == dtype
  assert path.stat().st_size < 3000
  assert list(tmp_path.iterdir()) == [path]


def test_nothing_at_all_is_a_file(tmp_path):
  path = tmp_path / 'ids.npz'
  token_ids.write(path, _PROMPTS, [])
  assert token_ids.read(path) == ([], [])


def test_other_files_are_refused_by_name(tmp_path):
  path = tmp_path / 'ids.npz'
  with pytest.raises(ValueError, match='Cannot read .*ids.npz: No such file'):
    token_ids.read(path)
  np.savez(path, tokens=np.arange(3))
  with pytest.raises(ValueError, match='ids.npz holds no responses: .*domains'):
    token_ids.read(path)
  path.write_text('text')
  with pytest.raises(ValueError, match='ids.npz holds no responses'):
    token_ids.read(path)
  path.write_bytes(b'')
  with pytest.raises(ValueError, match='ids.npz holds no responses'):
    token_ids.read(path)
  prompts = [token_ids.Prompt('a', [-1, 2])]
  with pytest.raises(ValueError, match='Token ids must be >= 0, got -1'):
    token_ids.write(path, prompts, [token_ids.Response(0, 0.0, [3])])
  with pytest.raises(ValueError, match='Cannot write .*nowhere'):
    token_ids.write(tmp_path / 'nowhere' / 'ids.npz', _PROMPTS, _RESPONSES)


def test_what_keeps_a_file_from_being_written_is_said(tmp_path, monkeypatch):
  """Also where the system gives no reason of its own."""

  def fail(*args, **options):
    raise OSError('the disk said no')

  monkeypatch.setattr(np, 'savez_compressed', fail)
  with pytest.raises(ValueError, match='Cannot write .*: the disk said no'):
    token_ids.write(tmp_path / 'ids.npz', _PROMPTS, [])
