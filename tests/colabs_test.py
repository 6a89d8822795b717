"""Notebooks begin alike, store their outputs, and their code runs."""

import base64
import contextlib
import functools
import io
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
_MAX_IMAGE, _MAX_FOLDER = 60_000, 2_000_000  # bytes
_MAX_TEXT = 1500  # letters that a cell prints

_for_all_notebooks = pytest.mark.parametrize(
  'path', _NOTEBOOKS, ids=lambda path: path.name
)


def _cells(path, kind=''):
  """The cells of a notebook, and their texts."""
  cells = json.loads(path.read_text(encoding='utf-8'))['cells']
  chosen = [cell for cell in cells if kind in cell['cell_type']]
  return chosen, [''.join(cell['source']) for cell in chosen]


def _stored_outputs(cell):
  """Returns the text that a cell has printed, and its pictures as PNG."""
  text, images = '', []
  for output in cell['outputs']:
    if output['output_type'] == 'stream':
      assert output['name'] == 'stdout', 'A warning is stored.'
      text += ''.join(output['text'])
    else:
      assert output['output_type'] == 'display_data', output
      images.append(base64.b64decode(''.join(output['data']['image/png'])))
  return text, images


@_for_all_notebooks
def test_stored_outputs_are_complete_and_small(path):
  cells, texts = _cells(path, 'code')
  counts = [cell['execution_count'] for cell in cells]
  assert counts == list(range(1, len(cells) + 1)), 'Run all cells in order.'
  for cell, source in zip(cells, texts):
    text, images = _stored_outputs(cell)
    assert len(text) <= _MAX_TEXT and not re.search('/(home|root|tmp)/', text)
    assert all(len(image) <= _MAX_IMAGE for image in images)
    if re.search(r'^(print|plt\.show)\(', source, re.MULTILINE):
      assert text or images, source


def test_folder_of_notebooks_is_small():
  assert sum(path.stat().st_size for path in _NOTEBOOKS) < _MAX_FOLDER


@_for_all_notebooks
def test_notebook_uses_the_library_only(path):
  for text in _cells(path, 'code')[1]:
    assert not re.search(r'\bexperiments\b', text), text


@_for_all_notebooks
def test_notebook_begins_and_ends_as_all_do(path):
  _, texts = _cells(path)
  title, badge, promise, time = texts[0].split('\n\n')
  assert title.startswith(f'# {int(path.name[:2])}. ')
  assert badge == f'{_BADGE}{path.name})'
  assert promise.count('. ') == 0
  assert re.match(r'About \d+ minutes? on a CPU\.', time)
  assert texts[1] == _cells(_NOTEBOOKS[0])[1][1]  # What it installs.
  assert '## Next steps\n' in texts[-1]


@_for_all_notebooks
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
  return lambda name, **options: load(str(place.get(name, folder)), **options)


@pytest.mark.slow
@_for_all_notebooks
def test_notebook_runs(path, load, monkeypatch):
  """Runs on toy models, whose programs are small and shared by notebooks.

  Each cell prints and draws if and only if the stored one did.
  """
  num_drawn = 0

  def draw():
    """Draws and closes all figures, as a notebook does; Agg shows none."""
    nonlocal num_drawn
    for number in plt.get_fignums():
      plt.figure(number).canvas.draw()
      num_drawn += 1
    plt.close('all')

  plt.close('all')  # Other tests may have left figures open.
  monkeypatch.setattr(plt, 'show', draw)
  monkeypatch.setattr(families, 'load', load)
  namespace = {'__name__': '__main__'}
  # JAX converts and broadcasts in a notebook as it does by default.
  with (
    jax.numpy_rank_promotion('allow'),
    jax.numpy_dtype_promotion('standard'),
    plt.rc_context(),
  ):
    for cell, source in zip(*_cells(path, 'code')):
      num_drawn = 0
      with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, path.name, 'exec'), namespace)
      text, images = _stored_outputs(cell)
      assert bool(printed.getvalue()) == bool(text), source
      assert num_drawn == len(images), source
