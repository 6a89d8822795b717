"""Checks that the documentation names existing files and objects."""

import json
import pathlib
import re

import pytest

import specjax
from specjax import drafters
from specjax import evaluation
from specjax import trees
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib
from specjax.models.huggingface import servers

ROOT = pathlib.Path(__file__).parents[1]
CONCEPTS = (ROOT / 'docs' / 'concepts.md').read_text(encoding='utf-8')


def test_the_steps_of_the_page_are_functions_of_a_round():
  steps = re.findall(r'^\*\*\d\. `(\w+)`\*\*', CONCEPTS, re.M)
  assert len(steps) == 8
  for name in steps:
    assert callable(getattr(round_lib, name))
  # The drawing has all of them, in this order.
  assert (
    ' -> '.join(steps) in CONCEPTS and ' -> '.join(steps) in round_lib.__doc__
  )


def test_the_page_names_all_of_the_state():
  table = set(re.findall(r'`(\w+)`', CONCEPTS.split('## The eight steps')[0]))
  fields = set(state_lib.DecodeState.__dataclass_fields__)
  assert fields <= table


PAGES = sorted(
  path.relative_to(ROOT).as_posix()
  for path in [*ROOT.glob('*.md'), *(ROOT / 'docs').rglob('*.md')]
)


@pytest.mark.parametrize('page', PAGES)
def test_pages_link_to_what_is_there(page):
  text = (ROOT / page).read_text(encoding='utf-8')
  text = re.sub(r'^```.*?^```|(?<!\[)`[^`\n]*`', '', text, flags=re.M | re.S)
  for link in re.findall(r'\]\(([^)#]+)\)', text):
    linked_path = (ROOT / page).parent / link
    assert link.startswith('https://') or linked_path.exists(), link


def test_the_front_page_names_all_components():
  text = (ROOT / 'README.md').read_text(encoding='utf-8')
  rows = re.findall(r'^\| \[`(\w+)`\]\(([^)]+)\) \|[^|]*\|(.*)\|$', text, re.M)
  tables = {
    'METRICS': evaluation.METRICS,
    'STOPS': drafters.STOPS,
    'TREES': trees.TREES,
  }
  names = ('MODELS', 'DRAFTERS', 'COUPLINGS', 'VERIFIERS', 'GOALS', 'BANDITS')
  tables |= {name: getattr(specjax, name) for name in (*names, 'REWARDS')}
  assert {name for name, *_ in rows} == set(tables)
  for name, path, listed in rows:
    assert f'{name}: dict' in (ROOT / path).read_text(encoding='utf-8')
    assert set(re.findall(r'`(\w+)`', listed)) == set(tables[name]), name


def test_every_config_of_a_paper_is_on_the_page_of_reproduction():
  text = (ROOT / 'docs' / 'reproduction.md').read_text(encoding='utf-8')
  papers = ('spectr', 'banditspec', 'metasd', 'cascades', 'theory')
  for paper in papers:
    for path in (ROOT / 'configs' / paper).glob('*.py'):
      if "'experiment': 'train" not in path.read_text(encoding='utf-8'):
        assert f'configs/{paper}/{path.name}' in text, path


def test_what_is_reproduced_has_a_kept_result():
  """Rows link kept results of their configs; others are called config only.

  Every kept result of a paper is linked, and some that are no paper's.
  """
  text = (ROOT / 'docs' / 'reproduction.md').read_text(encoding='utf-8')
  rows = [line[2:-2].split(' | ') for line in text.splitlines()]
  rows = [row for row in rows if len(row) == 5 and 'configs/' in row[2]]
  assert rows
  linked = set()
  for _, _, config, results, status in rows:
    paths = re.findall(r'\((results/data/\S+?\.json)\)', results)
    assert bool(paths) != status.startswith('config only'), status
    for path in paths:
      assert (ROOT / 'docs' / path).exists(), path
      name = path.removeprefix('results/data/').removesuffix('.json')
      assert f'{name.split("-")[0]}.py' in config, name
    linked.update(paths)
  kept = (ROOT / 'docs' / 'results' / 'data').glob('*/*.json')
  names = {path.relative_to(ROOT / 'docs').as_posix() for path in kept}
  others = 'results/data/benchmark/', 'results/data/train/'
  assert linked >= {name for name in names if not name.startswith(others)}


def test_the_page_about_serving_has_what_each_server_reads():
  text = (ROOT / 'docs' / 'serving.md').read_text(encoding='utf-8')
  rows = re.findall(r'^\| `(\S+)` \| `(\w+)` \|(.*)\| (.+) \|$', text, re.M)
  readers = {(server, kind) for server, kind, *_ in rows}
  assert readers == {
    (name, kind) for name, kinds in servers.SERVERS.items() for kind in kinds
  }
  for server, kind, options, taps in rows:
    reader = servers.SERVERS[server][kind]
    assert set(re.findall(r'`(\w+)`', options)) == set(reader.options)
    assert reader.has_default_taps == (taps == 'the default')


# Tables whose numbers are those of the result that is linked above them.
_CHOOSING = (ROOT / 'docs' / 'choosing.md').read_text(encoding='utf-8')
_TABLE = re.compile(
  r'\(results/data/(\S+\.json)\)(?:.|\n(?!\n))*\n\n((?:\|.*\n)+)'
)


@pytest.mark.parametrize(('path', 'table'), _TABLE.findall(_CHOOSING))
def test_numbers_are_those_of_the_linked_result(path, table):
  result = json.loads((ROOT / 'docs/results/data' / path).read_text())
  lines = table.splitlines()[2:]
  assert lines
  for line in lines:
    label = re.search(r'`(.+?)`', line)[1]
    rows = [row for row in result['rows'] if row['method'] == label]
    fields = [
      (value, row.get(f'{name}_error'))
      for row in rows
      for name, value in row.items()
      if isinstance(value, float)
    ]
    known = {f'{value:.2f}' for value, _ in fields}
    known |= {f'{value:.2f} ± {error:.2f}' for value, error in fields if error}
    numbers = re.findall(r'\| ([\d.]+(?: ± [\d.]+)?)(?= \|)', line)
    assert numbers and set(numbers) <= known, (path, line)


def test_every_table_of_numbers_has_a_result():
  num_tables = len(re.findall(r'^\|---', _CHOOSING, re.M))
  assert len(_TABLE.findall(_CHOOSING)) == num_tables - 1  # The short answer.
