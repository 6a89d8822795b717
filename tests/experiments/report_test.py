"""The pages of results are filled in by `experiments.report`."""

import json
import pathlib
import re
import shlex
import shutil

import ml_collections
import pytest

from experiments import main
from experiments import report
from experiments.common import configs
from experiments.common import results

_ROOT = pathlib.Path(__file__).parents[2]
_RESULTS = _ROOT / 'docs' / 'results'


def _files(folder):
  """Returns the text of pages, tables and figures, by path."""
  return {
    path.relative_to(folder).as_posix(): path.read_text(encoding='utf-8')
    for path in sorted((folder / 'docs' / 'results').rglob('*.*'))
    if path.suffix in ('.md', '.svg')
  } | {'README.md': (folder / 'README.md').read_text(encoding='utf-8')}


def _drawing_library(text):
  """Returns the library that drew a picture; None for other files."""
  match = re.search('Matplotlib v[^,]+', text)
  return match and match[0]


def _visible_text(svg):
  """Returns the text in a picture, which does not depend on the release."""
  return re.findall('<text[^>]*>([^<]*)</text>', svg)


def test_all_documents_are_those_that_are_made_of_the_results(tmp_path):
  report.write(out=tmp_path)
  new_files, committed_files = _files(tmp_path), _files(_ROOT)
  assert list(new_files) == list(committed_files)
  for name in new_files:
    normalize = (
      _visible_text
      if _drawing_library(new_files[name])
      != _drawing_library(committed_files[name])
      else str
    )
    assert normalize(new_files[name]) == normalize(committed_files[name]), (
      f'{name}: run python -m experiments.report'
    )


def test_results_are_of_configs_that_are_there_and_have_what_they_ask_for():
  for path in (_RESULTS / 'data').rglob('*.json'):
    content = results.read(path)
    words = shlex.split(content['command'])
    name = path.relative_to(_RESULTS / 'data').with_suffix('').as_posix()
    assert words[3].startswith('--config=configs/')
    assert report.result_name(content['command']) == name
    config = configs.load(words[3].removeprefix('--config='))
    assert config.experiment == content['experiment']
    fields = configs.flat(config)
    for word in words[4:]:
      field = word.removeprefix('--config.').split('=')[0]
      assert field in fields, (name, field)
    columns = {column for row in content['rows'] for column in row}
    assert set(config.get('columns', ())) <= columns, name


def _project(tmp_path):
  """Returns a project with one page and a README with comments."""
  (tmp_path / 'docs' / 'results').mkdir(parents=True)
  (tmp_path / 'docs' / 'results' / 'library.md').write_text(
    'A page.\n<!-- results quickstart rows="method != \'none\'" '
    'columns="method, block_efficiency=tokens per call" -->\n<!-- end -->\n'
    '![text](figures/quickstart_text.svg)\n'
    '<!-- tables -->\n<!-- end -->\n<!-- results a/b -->\n<!-- end -->\n'
  )
  (tmp_path / 'README.md').write_text(
    'a\n<!-- results quickstart -->\nold\n<!-- end -->\nb\n'
  )
  return tmp_path


def _run(tmp_path, command):
  """What a run of the quickstart leaves, of two methods."""
  rows = [
    {'method': 'none', 'block_efficiency': 1.0, 'acceptance': []},
    {'method': 'medium:4', 'block_efficiency': 2.5, 'acceptance': [0.5]},
  ]
  for row in rows:
    row['acceptance_error'] = [0.1] * len(row['acceptance'])
  rows[1] |= {'shown': [['def', 'accepted'], [' f', 'bonus']]}
  rows[1] |= {'shown_prompt': 'Write f.', 'shown_target_calls': 1}
  config = ml_collections.ConfigDict({'experiment': 'quickstart'})
  workdir = main.workdirs.Workdir(tmp_path / 'run', config)
  results.write(workdir, 'quickstart', command, rows)
  return str(workdir)


def test_results_are_kept_and_shown(tmp_path):
  root = _project(tmp_path)
  command = 'python -m experiments.main --config=configs/quickstart.py'
  path = report.keep(_run(tmp_path, command), root)
  assert path == root / 'docs' / 'results' / 'data' / 'quickstart.json'
  report.write(root, root)
  folder = root / 'docs' / 'results'
  page = (folder / 'library.md').read_text()
  assert '| method | tokens per call |\n' in page and '| none |' not in page
  assert '| medium:4 | 2.500 |' in page and '](tables/quickstart.md)' in page
  assert page.count('There are no results.') == 1
  assert [path.name for path in (folder / 'figures').iterdir()] == [
    'quickstart_text.svg'
  ]
  table = (folder / 'tables' / 'quickstart.md').read_text()
  assert '| none | 1.000 |' in table and '--workdir=runs/quickstart' in table
  readme = (root / 'README.md').read_text()
  assert '| medium:4 | 2.500 |' in readme and 'old' not in readme
  assert readme.startswith('a\n') and readme.endswith('b\n')
  files = _files(root)
  report.write(root, root)
  assert _files(root) == files


@pytest.mark.parametrize(
  ('comment', 'sentence'),
  [
    ('nothing', "Unknown comment 'nothing'. Known: headline, "),
    ('results a rows="b == 1"', "'b'|b == 1"),
    ('results a columns="x, y"', 'y'),
    ('results a down=x across=y value=x', 'y'),
  ],
)
def test_a_comment_that_does_not_fit_is_an_error(comment, sentence):
  contents = {'a': {'rows': [{'x': 1}], 'claims': []}}
  page = f'<!-- {comment} -->\n<!-- end -->'
  with pytest.raises(ValueError, match=sentence) as error:
    report.fill(page, contents)
  assert comment in str(error.value).replace("\\'", "'")


@pytest.mark.parametrize('comment', ['verdicts', 'verdicts MetaSD', 'headline'])
def test_a_claim_without_a_kept_result_fails_the_page(comment):
  page = f'<!-- {comment} -->\n<!-- end -->'
  with pytest.raises(ValueError, match='^The claim .* no result is kept'):
    report.fill(page, {'a': {'rows': [{'x': 1}], 'claims': []}})


def test_what_cannot_be_kept_is_refused(tmp_path):
  root = _project(tmp_path)
  with pytest.raises(ValueError, match='There are no results in'):
    report.keep(str(tmp_path / 'nothing'), root)
  workdir = _run(tmp_path, '')
  with pytest.raises(ValueError, match='lack the command of the run'):
    report.keep(workdir, root)
  path = tmp_path / 'run' / results.FILE
  whole = json.loads(path.read_text())
  command = 'python -m experiments.main --config=configs/quickstart.py'
  part = whole | {'command': command, 'complete': False}
  path.write_text(json.dumps(part))
  with pytest.raises(ValueError, match='run is not complete: run its command'):
    report.keep(workdir, root)
  smoke = {'command': 'python -m experiments.main --config=a.py --smoke'}
  path.write_text(json.dumps(whole | smoke))
  with pytest.raises(ValueError, match='smoke run, whose numbers are not'):
    report.keep(workdir, root)
  path.write_text(json.dumps([{'method': 'none'}]))
  with pytest.raises(ValueError, match='format 1, but only format 2 is supp'):
    report.keep(workdir, root)
  shutil.rmtree(tmp_path / 'run')


def test_a_command_says_where_data_is_but_not_the_folder_of_the_run():
  command = main.command_line(
    [
      'main.py',
      '--config=configs/evaluate.py',
      '--config.data_dir=/a/b',
      "--config.methods=('none',)",
      '--config.prompts.eval.source=/a/b/c.jsonl',
      '--workdir=/x',
    ]
  )
  data_command = main.command_line(
    ['main.py', '--config=a.py:data/b,runs/datastore', '--config.data_dir=data']
  )
  assert data_command.endswith(
    '--config=a.py:DATA/b,runs/datastore --config.data_dir=DATA'
  )
  assert command == (
    'python -m experiments.main --config=configs/evaluate.py '
    "--config.data_dir=DATA '--config.methods=('\"'\"'none'\"'\"',)' "
    '--config.prompts.eval.source=DATA/c.jsonl'
  )
