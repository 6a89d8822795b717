"""Every notebook is committed without outputs, and its code runs."""

import contextlib
import json
import pathlib
from unittest import mock

import jax
import matplotlib
from matplotlib import pyplot as plt
import pytest

import specjax

pytestmark = pytest.mark.slow

matplotlib.use('Agg')
_FOLDER = pathlib.Path(__file__).parents[1] / 'colabs'


@pytest.fixture(autouse=True)
def _tables_as_before():
  """A notebook may add components."""
  tables = (
    *(specjax.BANDITS, specjax.COUPLINGS, specjax.DRAFTERS, specjax.GOALS),
    *(specjax.MODELS, specjax.REWARDS, specjax.VERIFIERS),
  )
  with contextlib.ExitStack() as stack:
    for table in tables:
      stack.enter_context(mock.patch.dict(table))
    yield


@pytest.mark.parametrize(
  'path', sorted(_FOLDER.glob('*.ipynb')), ids=lambda path: path.name
)
def test_notebook_runs_and_has_no_outputs(path, monkeypatch):
  cells = json.loads(path.read_text(encoding='utf-8'))['cells']
  code = [cell for cell in cells if cell['cell_type'] == 'code']
  for cell in code:
    assert not cell['outputs'] and cell['execution_count'] is None
  monkeypatch.setattr(plt, 'show', _draw)
  namespace = {'__name__': '__main__'}
  # JAX converts and broadcasts in a notebook as it does by default.
  with (
    jax.numpy_rank_promotion('allow'),
    jax.numpy_dtype_promotion('standard'),
  ):
    for cell in code:
      exec(compile(''.join(cell['source']), path.name, 'exec'), namespace)


def _draw():
  """Draws and closes all figures, as a notebook does; Agg's own shows none."""
  for number in plt.get_fignums():
    plt.figure(number).canvas.draw()
  plt.close('all')
