"""Keeps the results of runs, and fills in the pages of docs/results.

python -m experiments.report                     fills in every page
python -m experiments.report runs/spectr_decode  adds the results of a run first

The results of runs are kept in `docs/results/data`, with one file per config,
and the papers' claims in `docs/results/claims.csv`. From these files and the
configs' docstrings, this generates the full tables in `docs/results/tables`,
and fills in the pages of `docs/results` and README.md: the text from a comment
of this form to `<!-- end -->` is replaced.

    <!-- results NAME OPTION="VALUE" ... -->  rows of a result, as a table
    <!-- ratios NAME OPTION="VALUE" ... -->   ratios next to the paper's
    <!-- verdicts SOURCE -->                  verdicts on the claims of a paper
    <!-- verdicts -->                         all verdicts
    <!-- headline -->                         the first verdict of each paper
    <!-- predictions -->                      predicted and measured numbers
    <!-- tables FOLDER -->                    links to the full tables

Options are `rows`, a query; `columns`, names separated by commas, each of which
may be followed by `=` and a header; or `down`, `across` and `value`, as for
`config.pivot`. Figures that a page shows are drawn by `experiments.figures`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import functools
import pathlib
import re
import shlex
import sys
from typing import Any

import pandas as pd

from experiments import claims
from experiments import figures
from experiments import main
from experiments.common import configs
from experiments.common import plots
from experiments.common import results
from experiments.common import terminal

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = pathlib.Path('docs', 'results')
_DATA, _FIGURES, _TABLES = 'data', 'figures', 'tables'
_MARKED = re.compile(r'(<!-- ([^\n]+) -->\n).*?(<!-- end -->)', re.DOTALL)
_FIGURE = re.compile(rf'{_FIGURES}/([\w-]+)\.svg\)')
_VERDICT = 'claim', 'threshold', 'paper', 'ours', 'ours / paper', 'verdict'
_NOT_RUN = 'There are no results.'


def keep(workdir: str, root: pathlib.Path = ROOT) -> pathlib.Path:
  """Copies the results of a run to the folder of kept results.

  Raises:
    ValueError: the results have no command, are from a smoke run, or lack a
      part for which there was no time.
  """
  content = results.read(workdir)
  if not content['command']:
    raise ValueError(f'The results in {workdir} lack the command of the run.')
  if main.SMOKE in shlex.split(content['command']):
    raise ValueError(
      f'{workdir} is a smoke run, whose numbers are not measurements: run the '
      f'config without {main.SMOKE}.'
    )
  if not content.get('complete', True):
    raise ValueError(f'{workdir} is not complete: run its command again.')
  path = root / FOLDER / _DATA / f'{result_name(content["command"])}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  results.save_json(str(path), content)
  return path


def write(root: pathlib.Path = ROOT, out: pathlib.Path = ROOT) -> None:
  """Writes the full tables, the pages and their figures.

  Args:
    root: the folder of the project, with the kept results and the pages; or a
      folder with kept results, which has no pages.
    out: the folder that everything is written to.
  """
  data = root / FOLDER / _DATA
  contents = {
    path.relative_to(data).with_suffix('').as_posix(): results.read(path)
    for path in sorted(data.rglob('*.json'))
  }
  for name, content in contents.items():
    _save(out / _table_path(name), '\n'.join(_section(name, content)))
  figure_names: set[str] = set()
  pages = sorted((root / FOLDER).glob('*.md'))
  for path in [root / 'README.md', *pages] if pages else ():
    text = fill(path.read_text('utf-8'), contents)
    _save(out / path.relative_to(root), text)
    figure_names |= set(_FIGURE.findall(text))
  folder = out / FOLDER / _FIGURES
  folder.mkdir(parents=True, exist_ok=True)
  for path in folder.glob('*.svg'):
    path.unlink()
  for name in sorted(figure_names):
    if (figure := figures.draw(name, contents)) is not None:
      plots.save(figure, folder / f'{name}.svg')


def _save(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text, 'utf-8')


def fill(page: str, contents: Mapping[str, Any]) -> str:
  """Returns a page with the current text between its comments.

  Raises:
    ValueError: a comment is unknown, or selects rows or columns that are not
      in the result; or a claim lacks its result, row or column.
  """

  def replace(match: re.Match[str]) -> str:
    kind, *words = shlex.split(match[2])
    if kind not in _KINDS:
      known = ', '.join(sorted(_KINDS))
      raise ValueError(f'Unknown comment {match[2]!r}. Known: {known}.')
    try:
      text = _KINDS[kind](contents, *words)
    except (KeyError, NameError, SyntaxError) as error:
      raise ValueError(
        f'{match[2]!r} does not fit its result: {error}.'
      ) from error
    return f'{match[1]}\n{text}\n\n{match[3]}'

  return _MARKED.sub(replace, page)


def _results(contents: Mapping[str, Any], name: str, *options: str) -> str:
  """Returns rows of a result; without options, as its config shows them."""
  if name not in contents:
    return _NOT_RUN
  if not options:
    return _tables(contents[name])
  return _selection(contents[name]['rows'], *options)


def _ratios(contents: Mapping[str, Any], name: str, *options: str) -> str:
  if name not in contents:
    return _NOT_RUN
  return _selection(contents[name]['claims'], *options)


def _selection(rows: list[results.Row], *words: str) -> str:
  """Returns some rows and columns as Markdown."""
  options = dict(word.split('=', 1) for word in words)
  frame = results.frame(rows)
  if 'rows' in options:
    frame = frame.query(options['rows'])
  columns = [c.strip() for c in options.get('columns', '').split(',') if c]
  headers = dict((*column.split('='), '')[:2] for column in columns)
  if 'value' in options:
    down = options['down'].split(',')
    table = results.pivot(frame, down, options['across'], options['value'])
  else:
    _ = frame[list(headers)]  # Raises for a missing column.
    table = results.cells(frame, list(headers))
  for name, header in headers.items():
    if header:  # Errors stay in the header.
      replace = functools.partial(_replace, name.replace('_', ' '), header)
      table = table.rename(columns=replace)
  return results.markdown(table)


def _replace(name: str, header: str, column: str) -> str:
  first, *error = column.partition(' ± ')
  return ''.join([header, *error]) if first == name else column


def _verdicts(contents: Mapping[str, Any], *source: str) -> str:
  """Returns the verdicts; those of one paper have explanations."""
  rows = claims.judge_all(claims.read(), contents)
  if not source:
    return results.markdown(results.cells(rows, ('source', *_VERDICT)))
  rows = rows[rows['source'].isin(source)]
  lines = [results.markdown(results.cells(rows, _VERDICT)), '']
  for text, names in _explanations(rows).items():
    lines.append(f'- *{"*, *".join(names)}*: {text}')
  return '\n'.join(lines).strip()


def _explanations(rows: pd.DataFrame) -> dict[str, list[str]]:
  """Returns the names of claims that do not hold, by their explanation."""
  open_rows = rows[
    (rows['verdict'] != claims.HOLDS) & (rows['explanation'] > '')
  ]
  groups = open_rows.groupby('explanation', sort=False)['name']
  return {text: list(names) for text, names in groups}


def _headline(contents: Mapping[str, Any]) -> str:
  rows = claims.judge_all(claims.read(), contents).drop_duplicates('source')
  return results.markdown(results.cells(rows, ('source', *_VERDICT)))


def _predictions(contents: Mapping[str, Any]) -> str:
  """Returns the ratios of predicted to measured values, for each result."""
  rows = figures.predictions(contents)
  if rows.empty:
    return _NOT_RUN
  ratios = (rows['predicted'] / rows['measured']).astype(float)
  table = ratios.groupby(rows['result']).agg(['count', 'min', 'mean', 'max'])
  table.columns = ['methods', 'lowest predicted / measured', 'mean', 'highest']
  return results.markdown(results.cells(table.astype(object).reset_index()))


def _links(contents: Mapping[str, Any], folder: str = '') -> str:
  """Returns links to the full tables of a folder, or of no folder."""
  lines = []
  for name, content in contents.items():
    if name.rpartition('/')[0].split('/')[0] == folder:
      path = _table_path(name).relative_to(FOLDER).as_posix()
      lines.append(f'- [{_title(name, content)}]({path})')
  return '\n'.join(lines) or _NOT_RUN


_KINDS = {
  'results': _results,
  'ratios': _ratios,
  'verdicts': _verdicts,
  'headline': _headline,
  'predictions': _predictions,
  'tables': _links,
}


def _table_path(name: str) -> pathlib.Path:
  return FOLDER / _TABLES / f'{name}.md'


def _title(name: str, content: Mapping[str, Any]) -> str:
  """Returns the first line of the config's docstring, with its argument."""
  file, _, argument = _config_path(content['command']).partition(':')
  title = configs.docstring(file).partition('\n')[0].rstrip('.')
  return f'{title} ({argument})' if name.endswith(f'-{argument}') else title


def _section(name: str, content: dict[str, Any]) -> Iterator[str]:
  """Yields the full tables of a config: docstring, command and tables."""
  file = _config_path(content['command']).partition(':')[0]
  yield f'# {_title(name, content)}\n'
  # The command is broken into lines, with a workdir.
  words = f'{content["command"]} --workdir=runs/{name.replace("/", "_")}'
  words = words.replace(' --', ' \\\n    --')
  yield f'```bash\n{words}\n```\n'
  body = configs.docstring(file).partition('\n')[2]
  prose = [p for p in body.split('\n\n') if 'python -m' not in p]
  yield from (
    paragraph.strip('\n') + '\n' for paragraph in prose if paragraph.strip()
  )
  up = '../' * (name.count('/') + 1)
  yield f'Device: {content["device"]}. [All rows]({up}{_DATA}/{name}.json).\n'
  yield _tables(content) + '\n'
  if content['claims']:
    ratios = results.markdown(results.cells(content['claims']))
    yield f'Ratios of the paper, and ours:\n\n{ratios}\n'


def _tables(content: Mapping[str, Any]) -> str:
  config = configs.load(_config_path(content['command']))
  tables = results.tables(content['rows'], config)
  return '\n\n'.join(map(results.markdown, tables))


def _config_path(command: str) -> str:
  """Returns the path of a command's config, with its argument."""
  words = shlex.split(command)
  return next(w[9:] for w in words if w.startswith('--config='))


def result_name(command: str) -> str:
  """Returns the name of results: the config, with its argument if a word."""
  file, _, argument = _config_path(command).partition(':')
  name = file.removeprefix('configs/').removesuffix('.py')
  return f'{name}-{argument}' if argument.isidentifier() else name


def console() -> None:
  """Runs the command line; errors are one sentence."""
  terminal.accept_any_text()
  try:
    for workdir in sys.argv[1:]:
      print(f'Kept {keep(workdir).relative_to(ROOT)}.')
    write()
  except ValueError as error:
    raise SystemExit(f'Error: {error}') from error


if __name__ == '__main__':
  console()
