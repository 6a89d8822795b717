"""Writes the documents of results from files of results: never by hand.

python -m experiments.report                     every document anew
python -m experiments.report runs/spectr_decode  with the results of a run

Results of runs are kept in `docs/results/data`, a file for each config. Of
these, and of the configs' docstrings, a document is made for each folder of
`configs/`, with a table and pictures for each config; those of no folder make
`library.md`. The first page has the verdicts on the papers' claims. In
README.md, what stands between `<!-- results NAME -->` and `<!-- end -->` is the
table of one of the results, and behind `<!-- headline -->` stands a verdict for
each paper.
"""

import pathlib
import re
import shlex
import sys
from typing import Any

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
  'spectr': 'SpecTr: several drafts a round',
  'banditspec': 'BanditSpec: which drafter, which length',
  'metasd': 'MetaSD: specialised drafters',
  'cascades': 'Speculative cascades: quality for speed',
  'theory': 'Theory: what is possible',
  'benchmark': 'Benchmark: what a round takes, and the same weights elsewhere',
  'train': 'The families: their data and training',
  _LIBRARY: 'The library: a first look',
}
# What is shown of a verdict.
_VERDICT = (
  *('paper', 'claim', 'asked', 'printed', 'measured', 'over_printed'),
  'verdict',
)
_FIRST_PAGE = """\
# Results

What the papers claim, asked of SmolLM2-135M and what drafts for it. A verdict
follows from the numbers: a claim holds where all of its rows are inside of the
bounds by two standard errors, does not hold where one is outside of them by as
much, and is undecided otherwise; a number without an error is inside or
outside. `measured` is the row that is worst, which is hard on claims of many
rows. Where a paper prints no bound, the one that is asked is ours. `printed` is
the paper's own number, where it has one, or what follows from its table.
"""
_PREDICTED = """
## Theory meets practice

Tokens a round as they follow from one number of a run, how often the first
draft of a round was kept, as if that were the chance of every draft, whatever
its text and depth: of all methods of a result, beside what was measured. That
is more where texts differ from each other, and less where deep drafts are kept
less often. Which lengths and numbers of drafts theory chooses is in
[theory.md](theory.md).
"""
_MARKED = re.compile(r'(<!-- results (\S+) -->\n).*?(<!-- end -->)', re.DOTALL)
_HEADLINE = re.compile(r'(<!-- headline -->\n).*?(<!-- end -->)', re.DOTALL)
_INTRODUCTION = """\
The numbers below are of runs of the commands above them, and `DATA` is a folder
of text as [docs/experiments.md](../experiments.md) describes it. Errors are
standard errors, and bars in pictures are two of them. *Paper* is the paper's
own number, of its models and machines, and *claims* are its ratios beside ours.
This page is made by `python -m experiments.report` from `docs/results/data`.
"""


def keep(workdir: str, root: pathlib.Path = ROOT) -> pathlib.Path:
  """Copies the results of a run to where documents are made of them."""
  content = results.read(workdir)
  if not content['command']:
    raise ValueError(f'{workdir} does not say which command it is of.')
  if main.SMOKE in shlex.split(content['command']):
    raise ValueError(
      f'{workdir} is a smoke run, whose numbers are no measurements: run the '
      f'config without {main.SMOKE}.'
    )
  path = root / FOLDER / _DATA / f'{name_of(content["command"])}.json'
  path.parent.mkdir(parents=True, exist_ok=True)
  results.save_json(str(path), content)
  return path


def write(root: pathlib.Path = ROOT, out: pathlib.Path = ROOT) -> None:
  """Writes all documents, their pictures, and the tables in README.md.

  The results are those of the project at `root`, and the documents go to `out`.
  A folder that is no project has no README.md to fill.
  """
  data = root / FOLDER / _DATA
  found = {
    path.relative_to(data).with_suffix('').as_posix(): results.read(path)
    for path in sorted(data.rglob('*.json'))
  }
  figures = out / FOLDER / _FIGURES
  figures.mkdir(parents=True, exist_ok=True)
  parts: dict[str, list[str]] = {}
  for name, content in found.items():
    folder = name.split('/')[0] if '/' in name else _LIBRARY
    head = [f'# {_TITLES.get(folder, folder)}\n', _INTRODUCTION]
    parts.setdefault(folder, head).extend(_section(name, content, figures))
  parts['README'] = _first_page(found, parts, figures)
  for folder, lines in parts.items():
    path = out / FOLDER / f'{folder}.md'
    path.write_text('\n'.join(lines), 'utf-8')
  readme = root / 'README.md'
  if readme.exists():
    filled = _filled(readme.read_text('utf-8'), found)
    (out / 'README.md').write_text(filled, 'utf-8')


def _first_page(found, parts, figures):
  """The lines of the first page: verdicts, and a link to each document."""
  yield _FIRST_PAGE
  rows = verdicts.judged(claims.CLAIMS, found)
  for row in rows:
    folder = row['result'].partition('/')[0]
    row['table'] = f'[{row.pop("result")}]({folder}.md)'
  if rows:
    yield f'{markdown(results.cells(rows, (*_VERDICT, "table")))}\n'
  yield from (
    f'- *{row["claim"]}*: {row["why"]}'
    for row in rows
    if row['why'] and row['verdict'] != verdicts.HOLDS
  )
  predicted = predictions(found)
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


def predictions(found: dict[str, Any]) -> list[results.Row]:
  """Returns block efficiency as predicted and as measured, of all methods.

  Of all domains together, where rows are of several.
  """
  return [
    {
      'result': name,
      'predicted': row['predicted_efficiency'],
      'measured': row['block_efficiency'],
    }
    for name, content in found.items()
    for row in content['rows']
    if row.get('predicted_efficiency') is not None
    and 'decoded' in row
    and row['domain'] == 'all'
  ]


def _by_result(rows):
  """How far predictions of each result are from what was measured."""
  table = []
  for name in dict.fromkeys(row['result'] for row in rows):
    own = [r['predicted'] / r['measured'] for r in rows if r['result'] == name]
    table.append(
      {
        'result': name,
        'methods': len(own),
        'least predicted over measured': min(own),
        'mean': sum(own) / len(own),
        'most': max(own),
      }
    )
  return table


def _predicted_over_measured(rows):
  """A point for each method, beside the line where both are the same."""
  figure, (axes,) = plots.panels(
    ['tokens a round'], 'measured', 'predicted', figsize=(6.5, 4.5)
  )
  names = list(dict.fromkeys(row['result'] for row in rows))
  for name in names:
    own = [row for row in rows if row['result'] == name]
    style = plots.style_of(names, name) | {'linestyle': '', 'markersize': 4}
    measured, predicted = (
      [row[of] for row in own] for of in ('measured', 'predicted')
    )
    axes.plot(measured, predicted, **style)
  most = max(row['measured'] for row in rows)
  axes.plot([1, most], [1, most], color='0.5', linewidth=0.8, zorder=0)
  plots.legend(figure, [axes])
  return figure


def _section(name, content, figures):
  """The lines of a config: what it is, its command, table and pictures."""
  path = _config_path(content['command'])
  config = configs.load(path)
  file, _, argument = path.partition(':')
  first, _, rest = configs.docstring(file).partition('\n')
  title = first.rstrip('.')
  of = f' ({argument})' if name.endswith(f'-{argument}') else ''
  yield f'## {title}{of}\n'
  # The command on several lines, with a workdir.
  words = f'{content["command"]} --workdir=runs/{name.replace("/", "_")}'
  words = words.replace(' --', ' \\\n    --')
  yield f'```bash\n{words}\n```\n'
  prose = [each for each in rest.split('\n\n') if 'python -m' not in each]
  yield from (each.strip('\n') + '\n' for each in prose if each.strip())
  yield f'Device: {content["device"]}. [All rows]({_DATA}/{name}.json).\n'
  yield _tables(config, content) + '\n'
  if content['claims']:
    yield f'Claims:\n\n{markdown(results.cells(content["claims"]))}\n'
  for label, figure in main.figures(config, content['rows']).items():
    file = f'{name.replace("/", "_")}_{label}.svg'
    plots.save(figure, figures / file)
    yield f'![{label.replace("_", " ")}]({_FIGURES}/{file})\n'


def markdown(lines: list[list[str]]) -> str:
  """Returns cells, the first line their head, as a Markdown table."""
  head, *rest = lines
  if not rest:
    return ' '.join(head)
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', '\\|') for cell in line) + ' |'
    for line in [head, ['---'] * len(head), *rest]
  )


def _tables(config, content):
  return '\n\n'.join(map(markdown, results.shown(content['rows'], config)))


def _filled(readme, tables):
  """README.md with the tables of its marks."""

  def table(match):
    content = tables[match[2]]
    made = _tables(configs.load(_config_path(content['command'])), content)
    return f'{match[1]}\n{made}\n\n{match[3]}'

  rows = verdicts.judged(claims.CLAIMS, tables)
  first = {row['paper']: row for row in reversed(rows)}
  chosen = [row for row in rows if row is first[row['paper']]]
  headline = markdown(results.cells(chosen, _VERDICT)) if chosen else ''
  filled = _HEADLINE.sub(rf'\1\n{headline}\n\n\2', readme)
  return _MARKED.sub(table, filled)


def _config_path(command):
  """The config that a command is of, with its argument."""
  words = shlex.split(command)
  return next(w[9:] for w in words if w.startswith('--config='))


def name_of(command: str) -> str:
  """Returns what results are called: the config, with an argument of a word."""
  file, _, argument = _config_path(command).partition(':')
  name = file.removeprefix('configs/').removesuffix('.py')
  return f'{name}-{argument}' if argument.isidentifier() else name


def console() -> None:
  """Runs what the command line says; what is wrong is one sentence."""
  terminal.accept_any_text()
  try:
    for each in sys.argv[1:]:
      print(f'Kept {keep(each).relative_to(ROOT)}.')
    write()
  except ValueError as error:
    raise SystemExit(f'Error: {error}') from error


if __name__ == '__main__':
  console()
