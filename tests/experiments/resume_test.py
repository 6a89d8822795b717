"""A run that is killed at any moment ends as one that was not.

Each paper's main config, on toys: killed after the first, in the middle and
before the last line of its log, and started again with the same command.
"""

import json

import pytest

from experiments import main
from experiments.common import log
from experiments.common import results
from tests import small

pytestmark = pytest.mark.slow

_MAIN = {
  'spectr/decode': None,
  'banditspec/drafters': None,
  'metasd/drafters': None,
  'cascades/decoder_only': None,
  'theory/rejections': None,
}
# Columns of clocks, which no two runs have alike.
_CLOCKS = ('seconds', 'latency', 'speed', 'per_second')


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  return small.toy_folder(tmp_path_factory.mktemp('toys'))


def _config(name, folder):
  return small.shrunk(name, folder, _MAIN[name])


def _result(workdir):
  """What a run has left, without clocks."""
  content = results.read(workdir)
  for rows in (content['rows'], content['claims']):
    for row in rows:
      for column in list(row):
        if any(word in column for word in _CLOCKS):
          del row[column]
  return content


@pytest.mark.parametrize('name', _MAIN)
def test_a_killed_run_goes_on(name, folder, tmp_path, monkeypatch):
  config = _config(name, folder)
  main.run(config, tmp_path / 'whole')
  lines = (tmp_path / 'whole' / log.FILE).read_text().splitlines()
  moments = sorted({1, len(lines) // 2, len(lines) - 1})
  assert len(moments) == 3
  append, done = log._append, []

  def kill(workdir, row):
    append(workdir, row)
    done.append(row['unit'])
    if len(done) in moments:
      raise KeyboardInterrupt

  monkeypatch.setattr(log, '_append', kill)
  for _ in moments:
    with pytest.raises(KeyboardInterrupt):
      main.run(_config(name, folder), tmp_path / 'killed')
    assert not (tmp_path / 'killed' / results.FILE).exists()
  main.run(_config(name, folder), tmp_path / 'killed')
  assert done == [json.loads(line)['unit'] for line in lines]
  assert _result(tmp_path / 'killed') == _result(tmp_path / 'whole')
