"""Generates the documents in docs/results, which are never edited by hand.

python -m experiments.report                     regenerates every document
python -m experiments.report runs/spectr_decode  adds the results of a run first

The results of runs are kept in `docs/results/data`, with one file per config.
From these files and the configs' docstrings, this generates one document per
folder of `configs/`, with a table and figures for each config; configs outside
of folders are in `library.md`. The first page has the verdicts on the papers'
claims. In README.md, the text between `<!-- results NAME -->` and
`<!-- end -->` is replaced by the table of one result, and the text after
`<!-- headline -->` by one verdict per paper.
"""

from collections.abc import Iterator
import pathlib
import re
import shlex
import sys
from typing import Any

from matplotlib import figure as figure_lib

from experiments import claims
from experiments import main
from experiments import verdicts
from experiments.common import configs
from experiments.common import plots
from experiments.common import results
from experiments.common import terminal

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = pathlib.Path('docs', 'results')
_DATA = 'data'
_FIGURES = 'figures'
_LIBRARY = 'library'
_TITLES = {
  'spectr': 'SpecTr: several drafts per round',
  'banditspec': 'BanditSpec: selecting drafters and draft lengths',
  'metasd': 'MetaSD: specialized drafters',
  'cascades': 'Speculative cascades: quality against cost',
  'theory': 'Theory: limits of speculative decoding',
  'benchmark': 'Benchmark: costs of a round, and other implementations',
  'train': 'The model families: data and training',
  _LIBRARY: 'The library: quickstart and accelerators',
}
# Columns of the table of verdicts.
_VERDICT = (
  *('source', 'claim', 'threshold', 'paper', 'measured', 'ours / paper'),
  'verdict',
)
_FIRST_PAGE = """\
# Results

We tested the papers' claims on SmolLM2-135M with drafters trained for it.
Verdicts follow from the numbers. A claim holds if all of its rows are inside
the threshold by two standard errors or more, does not hold if one row is
outside by as much, and is undecided otherwise; a number without an error is
either inside or outside. `measured` is the worst row, so that claims about many
rows are tested more severely. Where a paper states no threshold, the threshold
is ours. `paper` is the number in the paper, or a ratio of numbers in its table.
"""
_PREDICTED = """
## Theory meets practice

Predicted and measured tokens per target call (block efficiency), for all
methods of each result. The prediction uses a single number of a run, the
acceptance rate of the first draft token, as if every draft token were accepted
with this probability, whatever its text and depth. Measured values are higher
where texts differ from each other, and lower where deep draft tokens are
accepted less often. [theory.md](theory.md) compares the draft lengths and
numbers of drafts that theory selects with the fastest ones.
"""
_MARKED = re.compile(r'(<!-- results (\S+) -->\n).*?(<!-- end -->)', re.DOTALL)
_HEADLINE = re.compile(r'(<!-- headline -->\n).*?(<!-- end -->)', re.DOTALL)
_INTRODUCTION = """\
Each section has the command that produced its numbers; `DATA` is a folder of
text as described in [docs/experiments.md](../experiments.md). Errors are
standard errors, and error bars in figures are two standard errors. *Paper* is
the number in the paper, for its models and hardware; *claims* compare the
paper's ratios with ours. This page is generated from `docs/results/data` by
`python -m experiments.report`.
"""


def keep(workdir: str, root: pathlib.Path = ROOT) -> pathlib.Path:
  """Copies the results of a run to the folder of kept results.

  Raises:
    ValueError: the results have no command, or are from a smoke run.
  """
  content = results.read(workdir)
  if not content['command']:
    raise ValueError(f'The results in {workdir} lack the command of the run.')
  if main.SMOKE in shlex.split(content['command']):
    raise ValueError(
      f'{workdir} is a smoke run, whose numbers are not measurements: run the '
      f'config without {main.SMOKE}.'
    )
  path = root / FOLDER / _DATA / f'{result_name(content["command"])}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  results.save_json(str(path), content)
  return path


def write(root: pathlib.Path = ROOT, out: pathlib.Path = ROOT) -> None:
  """Writes all documents, their figures, and the tables in README.md.

  Args:
    root: the folder of the project, or another one with kept results; README.md
      is filled in if it is there.
    out: the folder that the documents are written to.
  """
  data = root / FOLDER / _DATA
  contents = {
    path.relative_to(data).with_suffix('').as_posix(): results.read(path)
    for path in sorted(data.rglob('*.json'))
  }
  figures = out / FOLDER / _FIGURES
  figures.mkdir(parents=True, exist_ok=True)
  parts: dict[str, list[str]] = {}
  for name, content in contents.items():
    folder = name.split('/')[0] if '/' in name else _LIBRARY
    header = [f'# {_TITLES.get(folder, folder)}\n', _INTRODUCTION]
    parts.setdefault(folder, header).extend(_section(name, content, figures))
  parts['README'] = _first_page(contents, parts, figures)
  for folder, lines in parts.items():
    path = out / FOLDER / f'{folder}.md'
    path.write_text('\n'.join(lines), 'utf-8')
  readme = root / 'README.md'
  if readme.exists():
    text = _fill(readme.read_text('utf-8'), contents)
    (out / 'README.md').write_text(text, 'utf-8')


def _first_page(
  contents: dict[str, Any], parts: dict[str, Any], figures: pathlib.Path
) -> Iterator[str]:
  """Yields the first page: verdicts, and a link to each document."""
  yield _FIRST_PAGE
  rows = verdicts.judge_all(claims.CLAIMS, contents)
  for row in rows:
    folder = row['result'].partition('/')[0]
    row['table'] = f'[{row.pop("result")}]({folder}.md)'
  if rows:
    yield f'{markdown(results.cells(rows, (*_VERDICT, "table")))}\n'
  yield from (
    f'- *{row["claim"]}*: {row["explanation"]}'
    for row in rows
    if row['explanation'] and row['verdict'] != verdicts.HOLDS
  )
  predicted = predictions(contents)
  if predicted:
    file = 'predicted_efficiency.svg'
    plots.save(_predicted_over_measured(predicted), figures / file)
    yield _PREDICTED
    yield f'{markdown(results.cells(_by_result(predicted)))}\n'
    yield f'![predicted over measured]({_FIGURES}/{file})'
  yield '\n## Documents\n'
  for folder in sorted(parts):
    if folder in _TITLES:
      yield f'- [{_TITLES[folder]}]({folder}.md)'
  yield ''


def predictions(contents: dict[str, Any]) -> list[results.Row]:
  """Returns predicted and measured block efficiency for all methods.

  Rows of single domains are left out.
  """
  return [
    {
      'result': name,
      'predicted': row['predicted_efficiency'],
      'measured': row['block_efficiency'],
    }
    for name, content in contents.items()
    for row in content['rows']
    if row.get('predicted_efficiency') is not None
    and 'decoded' in row
    and row['domain'] == 'all'
  ]


def _by_result(rows: list[results.Row]) -> list[results.Row]:
  """Returns the ratios of predicted to measured values, for each result."""
  table = []
  for name in dict.fromkeys(row['result'] for row in rows):
    ratios = [
      row['predicted'] / row['measured']
      for row in rows
      if row['result'] == name
    ]
    table.append(
      {
        'result': name,
        'methods': len(ratios),
        'lowest predicted / measured': min(ratios),
        'mean': sum(ratios) / len(ratios),
        'highest': max(ratios),
      }
    )
  return table


def _predicted_over_measured(rows: list[results.Row]) -> figure_lib.Figure:
  """Draws a point per method, and the line where both values are equal."""
  figure, (axes,) = plots.panels(
    ['tokens per target call'], 'measured', 'predicted', figsize=(6.5, 4.5)
  )
  names = list(dict.fromkeys(row['result'] for row in rows))
  for name in names:
    of_result = [row for row in rows if row['result'] == name]
    style = plots.line_style(names, name) | {'linestyle': '', 'markersize': 4}
    measured, predicted = (
      [row[column] for row in of_result] for column in ('measured', 'predicted')
    )
    axes.plot(measured, predicted, **style)
  highest = max(row['measured'] for row in rows)
  axes.plot([1, highest], [1, highest], color='0.5', linewidth=0.8, zorder=0)
  plots.legend(figure, [axes])
  return figure


def _section(
  name: str, content: dict[str, Any], figures: pathlib.Path
) -> Iterator[str]:
  """Yields the section of a config: docstring, command, tables and figures."""
  path = _config_path(content['command'])
  config = configs.load(path)
  file, _, argument = path.partition(':')
  first_line, _, body = configs.docstring(file).partition('\n')
  title = first_line.rstrip('.')
  variant = f' ({argument})' if name.endswith(f'-{argument}') else ''
  yield f'## {title}{variant}\n'
  # The command is broken into lines, with a workdir.
  words = f'{content["command"]} --workdir=runs/{name.replace("/", "_")}'
  words = words.replace(' --', ' \\\n    --')
  yield f'```bash\n{words}\n```\n'
  prose = [p for p in body.split('\n\n') if 'python -m' not in p]
  yield from (
    paragraph.strip('\n') + '\n' for paragraph in prose if paragraph.strip()
  )
  yield f'Device: {content["device"]}. [All rows]({_DATA}/{name}.json).\n'
  yield _tables(config, content) + '\n'
  if content['claims']:
    yield f'Claims:\n\n{markdown(results.cells(content["claims"]))}\n'
  for label, figure in main.figures(config, content['rows']).items():
    file = f'{name.replace("/", "_")}_{label}.svg'
    plots.save(figure, figures / file)
    yield f'![{label.replace("_", " ")}]({_FIGURES}/{file})\n'


def markdown(lines: list[list[str]]) -> str:
  """Formats cells as a Markdown table; the first line has the headers."""
  headers, *body = lines
  if not body:
    return ' '.join(headers)
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', '\\|') for cell in line) + ' |'
    for line in [headers, ['---'] * len(headers), *body]
  )


def _tables(config: Any, content: dict[str, Any]) -> str:
  return '\n\n'.join(map(markdown, results.tables(content['rows'], config)))


def _fill(readme: str, contents: dict[str, Any]) -> str:
  """Returns README.md with the current tables between its markers."""

  def replace(match: re.Match[str]) -> str:
    content = contents[match[2]]
    table = _tables(configs.load(_config_path(content['command'])), content)
    return f'{match[1]}\n{table}\n\n{match[3]}'

  rows = verdicts.judge_all(claims.CLAIMS, contents)
  first = {row['source']: row for row in reversed(rows)}
  selected = [row for row in rows if row is first[row['source']]]
  headline = markdown(results.cells(selected, _VERDICT)) if selected else ''
  with_headline = _HEADLINE.sub(rf'\1\n{headline}\n\n\2', readme)
  return _MARKED.sub(replace, with_headline)


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
