"""Notebooks are committed without outputs, begin alike, and their code runs."""

import contextlib
import functools
import json
import pathlib
import re
from unittest import mock

import jax
import matplotlib
from matplotlib import pyplot as plt
import pytest

import specjax
from specjax import families
from specjax.data import examples as examples_lib
from specjax.testing import toys

matplotlib.use('Agg')
_ROOT = pathlib.Path(__file__).parents[1]
_NOTEBOOKS = sorted((_ROOT / 'colabs').glob('*.ipynb'))
_HOST = 'https://github.com/specjax/specjax/blob/main/'
_BADGE = (
  '[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]'
  '(https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/'
)
_FAMILIES = _ROOT / 'specjax' / 'families'
_SPECIALISTS = _FAMILIES / 'mini' / 'specialists'
_HEADS = 'eagle', 'eagle3', 'medusa'
# Results are written by runs.
_WRITTEN = 'docs/results/'


def _each(test):
  return pytest.mark.parametrize(
    'path', _NOTEBOOKS, ids=lambda path: path.name
  )(test)


def _cells(path, kind=''):
  """The cells of a notebook, and their texts."""
  cells = json.loads(path.read_text(encoding='utf-8'))['cells']
  chosen = [cell for cell in cells if kind in cell['cell_type']]
  return chosen, [''.join(cell['source']) for cell in chosen]


@_each
def test_notebook_has_no_outputs(path):
  for cell in _cells(path, 'code')[0]:
    assert not cell['outputs'] and cell['execution_count'] is None


@_each
def test_notebook_begins_and_ends_as_all_do(path):
  _, texts = _cells(path)
  title, badge, promise, time = texts[0].split('\n\n')
  assert title.startswith(f'# {int(path.name[:2])}. ')
  assert badge == f'{_BADGE}{path.name})'
  assert promise.count('. ') == 0
  assert re.match(r'About \d+ minutes? on a CPU\.', time)
  assert texts[1] == _cells(_NOTEBOOKS[0])[1][1]  # What it installs.
  assert '## Next steps\n' in texts[-1]


@_each
def test_links_of_notebook_lead_somewhere(path):
  for text in _cells(path, 'markdown')[1]:
    for link in re.findall(rf'\({_HOST}([^)#]+)', text):
      assert link.startswith(_WRITTEN) or (_ROOT / link).exists(), link


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


@pytest.fixture(scope='module', name='load')
def _load(tmp_path_factory):
  """Returns what loads toys that have the names of the mini family's models."""
  folder = tmp_path_factory.mktemp('mini')
  domains = [path.stem for path in _SPECIALISTS.glob('*.safetensors')]
  models = 'large', 'medium', 'small', *domains
  toys.write_family(folder, dict.fromkeys(models, 0.2))
  toys.write_heads(folder, {name: name for name in _HEADS})
  # Toys never end an answer, so that it takes all the room behind a prompt.
  examples = [
    example._replace(prompt=example.prompt[:100])
    for example in examples_lib.read(_FAMILIES / 'prompts.jsonl')
  ]
  examples_lib.write(folder / 'prompts.jsonl', examples)
  place = {'mini/heads': folder / 'heads'}
  load = functools.cache(families.load)
  return lambda name: load(str(place.get(name, folder)))


@pytest.mark.slow
@_each
def test_notebook_runs(path, load, monkeypatch):
  """On toy models, of which programs are small, and the same in all."""
  monkeypatch.setattr(plt, 'show', _draw)
  monkeypatch.setattr(families, 'load', load)
  namespace = {'__name__': '__main__'}
  # JAX converts and broadcasts in a notebook as it does by default.
  with (
    jax.numpy_rank_promotion('allow'),
    jax.numpy_dtype_promotion('standard'),
  ):
    for text in _cells(path, 'code')[1]:
      exec(compile(text, path.name, 'exec'), namespace)


def _draw():
  """Draws and closes all figures, as a notebook does; Agg's own shows none."""
  for number in plt.get_fignums():
    plt.figure(number).canvas.draw()
  plt.close('all')
