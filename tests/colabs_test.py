"""Every notebook is committed without outputs, and its code runs."""

import json
import pathlib

import matplotlib
import pytest

matplotlib.use('Agg')
_FOLDER = pathlib.Path(__file__).parents[1] / 'colabs'


@pytest.mark.parametrize(
  'path', sorted(_FOLDER.glob('*.ipynb')), ids=lambda path: path.name
)
def test_notebook_runs_and_has_no_outputs(path):
  cells = json.loads(path.read_text(encoding='utf-8'))['cells']
  namespace = {'__name__': '__main__'}
  for cell in cells:
    if cell['cell_type'] == 'code':
      assert not cell['outputs'] and cell['execution_count'] is None
      exec(compile(''.join(cell['source']), path.name, 'exec'), namespace)
