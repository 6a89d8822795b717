"""Draws the figures of the pages in docs/results."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from matplotlib import figure as figure_lib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from experiments import claims
from experiments import quickstart
from experiments.common import paper
from experiments.common import plots
from experiments.common import results

_VERDICT_COLORS = {
  claims.HOLDS: plots.GREEN,
  claims.OPEN: plots.GRAY,
  claims.FAILS: plots.VERMILLION,
}
_DOMAINS = 'code', 'translation', 'summarization', 'qa', 'math'


def draw(name: str, contents: Mapping[str, Any]) -> figure_lib.Figure | None:
  """Returns a figure, or None if its results are missing.

  Args:
    name: the name of the figure.
    contents: the contents of results, by name.

  Raises:
    ValueError: there is no such figure.
  """
  if name not in _FIGURES:
    known = ', '.join(sorted(_FIGURES))
    raise ValueError(f'Unknown figure {name!r}. Known: {known}.')
  function, *result_names = _FIGURES[name]
  if not set(result_names) <= set(contents):
    return None
  if not result_names:
    return function(contents)
  tables = [results.frame(contents[name]['rows']) for name in result_names]
  return function(*tables)


def _verdicts(contents: Mapping[str, Any]) -> figure_lib.Figure:
  """Draws how far claims with one threshold are from it."""
  table = claims.judge_all(claims.read(), contents)
  # Other claims are not about a ratio or a difference.
  table = table[np.isinf(table['at_most'].astype(float))]
  # The paper's numbers are shifted by the threshold, as ours are.
  table['paper'] = table['paper'] - table['ours'] + table['margin']
  table['label'] = table['source'] + ': ' + table['name']
  colors = list(table['verdict'].map(_VERDICT_COLORS))
  table = table.rename(columns={'ours_error': 'margin_error'})
  figure, axes = plots.dots(
    table,
    'label',
    'margin',
    'distance from the threshold (ratio, or nats per token)',
    reference=0,
    colors=colors,
  )
  axes.set_xlim(-0.9, 2.4)
  keys = {f'● {name}': color for name, color in _VERDICT_COLORS.items()}
  for row, (text, color) in enumerate({**keys, '◇ paper': 'black'}.items()):
    axes.text(1.4, 0.5 + 1.1 * row, text, color=color, va='center')
  return figure


def _lines(
  rows: pd.DataFrame,
  x: str,
  y: str,
  by: str,
  names: Mapping[str, str],
  *,
  level: float | None = None,
  **options: Any,
) -> figure_lib.Figure:
  """Draws a line per method, and a horizontal line at a level.

  Args:
    rows: the rows.
    x: the column of the horizontal axis.
    y: the column of the vertical axis.
    by: the column of the method.
    names: labels of the methods that are drawn.
    level: the height of a horizontal line.
    **options: arguments of `plots.lines`.
  """
  rows = rows[rows[by].isin(list(names))].dropna(subset=[x, y])
  rows = rows.assign(name=rows[by].map(names))
  order = rows[by].map({name: i for i, name in enumerate(names)})
  figure = plots.lines(
    results.records(rows.iloc[order.argsort(kind='stable')]),
    *(x, y, 'name'),
    error=f'{y}_error',
    **options,
  )
  positions = sorted(rows[x].unique())
  for axes in figure.axes:
    if level is not None:
      axes.axhline(level, color=plots.GRAY, linewidth=1, zorder=1)
    if len(positions) < 5:
      axes.set_xticks(positions)
  return figure


def _drafts(smollm2: pd.DataFrame, mini: pd.DataFrame) -> figure_lib.Figure:
  """Draws tokens per target call over one draft, by the number of drafts."""
  paper_table = paper.read('spectr/table_4', drafter={'6M': '6M'})
  paper_table = paper_table.query('length == 4').set_index('drafts')['number']
  lines = []
  for family, rows, drafter in (
    ('SmolLM2, 135M', smollm2, 'small'),
    ('mini, 8M', mini, 'medium'),
  ):
    rows = rows.query(f'length == 4 and drafter == {drafter!r}')
    one = rows.query('drafts == 1 and verifier == "maximal"').iloc[0]
    rows = rows[rows['drafts'] > 1].assign(family=family)
    scale = one['block_efficiency']
    rows['over_one'] = rows['block_efficiency'] / scale
    rows['over_one_error'] = rows['block_efficiency_error'] / scale
    for verifier in rows['verifier'].unique():
      start = {'verifier': verifier, 'family': family, 'drafts': 1}
      lines.append({**start, 'over_one': 1.0, 'over_one_error': 0.0})
    lines += results.records(rows)
  rows = results.frame(lines)
  has_number = rows['verifier'] == 'kseq'
  rows['paper'] = (
    rows['drafts'].map(paper_table / paper_table[1]).where(has_number)
  )
  rows['paper_field'] = rows['paper_field'].mask(has_number, 'over_one')
  names = {'otm': 'optimal transport', 'kseq': 'k-Seq', 'block': 'block'}
  return _lines(
    *(rows, 'drafts', 'over_one', 'verifier', names),
    panel='family',
    xlabel='drafts of four tokens',
    ylabel='tokens per target call, over one draft',
    paper=True,
  )


def _calls(smollm2: pd.DataFrame, mini: pd.DataFrame) -> figure_lib.Figure:
  """Draws the time of a target call by the number of its tokens."""
  paper_table = paper.read('spectr/table_2').assign(model='target')
  paper_table = paper_table.rename(columns={'number': 'relative'})
  names = 'SmolLM2, CPU', 'mini, CPU', '97M, GPU (paper)'
  tables = zip((smollm2, mini, paper_table), names)
  rows = pd.concat([rows.assign(system=name) for rows, name in tables])
  rows = rows.query('model == "target" and length == 8')
  figure = _lines(
    *(rows, 'batch_size', 'relative', 'system', dict(zip(names, names))),
    level=1.0,
    xlabel='drafts of eight tokens',
    ylabel='time of a call, over one draft of four',
  )
  *_, line = figure.axes[0].get_legend_handles_labels()[0]
  line.lines[0].set(linestyle='--', markerfacecolor='white')
  return figure


def _bandits(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws tokens per target call of bandits over the best single drafter."""
  rows = rows.query('prompts == "spec_bench" and domain == "all"')
  paper_table = paper.read(
    'banditspec/tables_1_3_4',
    method={
      **{'PLD': 'prompt_lookup:16', 'Rest': 'retrieval:4x4'},
      **{'suffix tree': 'suffix:4x8', 'Eagle-2': 'large:4'},
      **{'EXP3Spec': 'exp3_spec', 'UCBSpec': 'ucb_spec'},
    },
  ).query('table == "Table 1, LLaMA3-8B" and prompts == "Spec-Bench"')
  efficiency = paper_table.set_index('method')['block_efficiency']
  names = {
    'hedge(discount=0.8)': 'Hedge, discounted', 'hedge': 'Hedge',
    'oracle': 'oracle: best drafter per prompt', 'ucb_spec': 'UCBSpec',
    'exp3_spec': 'EXP3Spec', 'uniform': 'random drafter',
    'large:4': 'large model (Eagle-2)', 'medium:4': 'medium model',
    'prompt_lookup:16': 'prompt lookup', 'suffix:4x8': 'suffix tree',
    'retrieval:4x4': 'retrieval (Rest)',
  }  # fmt: skip
  rows = rows[rows['method'].isin(list(names))]
  rows = rows.assign(
    label=rows['method'].map(names),
    paper=rows['method'].map(efficiency / efficiency['large:4']),
  )
  return _sorted_dots(
    rows,
    'over_best',
    'tokens per target call, over the best single drafter (◇ paper)',
  )


def _specialists(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws tokens per target call over the best specialist."""
  rows = rows.query('prompts == "in domain" and domain == "all"')
  names = {
    'oracle': 'oracle: best head per prompt',
    'ucb1, BD, from the prompt': 'UCB, also from the prompt',
    'ucb1, BD': 'UCB', 'ucb1, BE': 'UCB with reward BE',
    'hedge, BD': 'Hedge', 'exp3, BD': 'EXP3',
    'sequential_halving, BD': 'sequential halving',
    'uniform': 'random head', 'feature_head(eagle):eagle': 'one general head',
    'feature_head(code):eagle': 'best specialist',
  }  # fmt: skip
  paper_table = paper.read('metasd/table_4')
  means = paper_table.groupby('method')['number'].mean()
  means = means / means[list(_DOMAINS)].max()
  methods = {
    'UCB': 'ucb1, BD', 'EXP3': 'exp3, BD', 'SH': 'sequential_halving, BD',
    'random': 'uniform', 'OFA': 'feature_head(eagle):eagle',
  }  # fmt: skip
  numbers = {method: means[name] for name, method in methods.items()}
  rows = rows[rows['method'].isin(list(names))]
  rows = rows.assign(
    label=rows['method'].map(names), paper=rows['method'].map(numbers)
  )
  return _sorted_dots(
    rows,
    'over_best',
    'tokens per target call, over the best specialist (◇ paper)',
  )


def _sorted_dots(
  rows: pd.DataFrame, value: str, xlabel: str
) -> figure_lib.Figure:
  rows = rows.sort_values(value, ascending=False)
  # Single arms are gray.
  colors = [plots.color(method, -1) for method in rows['method']]
  return plots.dots(rows, 'label', value, xlabel, colors=colors)[0]


def _answers(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws bandits over the best specialist, by the length of the answer."""
  names = {
    'oracle': 'oracle', 'hedge, BD': 'Hedge', 'ucb1, BD': 'UCB',
    'ucb1, BD, from the prompt': 'UCB, also from the prompt',
    'uniform': 'random head',
  }  # fmt: skip
  return _lines(
    *(rows, 'max_new_tokens', 'over_best', 'method', names),
    level=1.0,
    xlabel='tokens of an answer',
    ylabel='tokens per call, over the best specialist',
  )


def _frontier(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws the target's likelihood of texts against time."""
  points = rows[rows['part'].isna()]
  # Lossy decoding is lossless at alpha 0.
  points = points.replace({'method': {'lossless': 'lossy'}})
  target = points[points['method'] == 'target'].iloc[0]['target_nats']
  names = {
    'token_v3': 'token rule', 'bild': 'BiLD', 'lossy': 'lossy',
    'chow': 'Chow', 'opt': 'OPT',
  }  # fmt: skip
  figure = _lines(
    *(points, 'latency', 'target_nats', 'method', names),
    level=target,
    xlabel='time over plain decoding',
    ylabel='log-likelihood, nats per token',
  )
  (axes,) = figure.axes
  place = {'transform': axes.get_yaxis_transform(), 'fontsize': 9}
  axes.text(0.02, target + 0.04, 'target model', **place)
  return figure


def _teacher_forced(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws the loss on reference texts against rejections."""
  points = rows[rows['part'].isna()]
  target = points[points['method'] == 'lossless'].iloc[0]['loss_01']
  # Texts vary more than differences between rules, which are paired.
  points = points.drop(columns='loss_01_error')
  names = {
    'token_v3': 'token rule', 'opt': 'OPT', 'lossy': 'lossy', 'bild': 'BiLD',
    'chow': 'Chow',
  }  # fmt: skip
  # Lines end at the draft and at the target, but the token rule is not lossless
  # at any alpha.
  ends = points[points['method'].isin(['draft', 'lossless'])]
  ends_of_line = [ends[ends['method'] == 'draft'].assign(method='token_v3')]
  ends_of_line += [ends.assign(method=name) for name in list(names)[1:]]
  figure = _lines(
    *(
      pd.concat([points, *ends_of_line]),
      'rejection_rate',
      'loss_01',
      'method',
    ),
    names,
    level=target,
    xlabel='rejection probability',
    ylabel='expected 0-1 loss',
  )
  (axes,) = figure.axes
  place = {'transform': axes.get_yaxis_transform(), 'fontsize': 9}
  axes.text(0.02, target + 0.001, 'target model', **place)
  return figure


def _rejections(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws expected and simulated rejections by the number of drafts."""
  rows = rows[rows['horizon'] == 50]
  longest = rows.groupby('source')['runs'].transform('max')
  rows = rows[rows['runs'].isna() | (rows['runs'] == longest)]
  names = {
    'theory': 'theory', 'simulation': 'simulation', 'decoder': 'decoder',
  }  # fmt: skip
  return _lines(
    *(rows, 'num_drafts', 'rejections', 'source', names),
    xlabel='drafts per token',
    ylabel='rejections in 50 tokens',
    paper=True,
  )


def _bias(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws the bias of three rules against their rejections."""
  names = {'OPT': 'OPT', 'UNO': 'UNO', 'UNO, code': 'UNO, code'}
  return _lines(
    *(rows, 'rejection', 'bias', 'rule', names),
    xlabel='share of rejected draft tokens',
    ylabel='bias (total variation)',
  )


def _temperatures(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws expected acceptance by the draft model's temperature."""
  names = {name: name for name in ('large', 'medium', 'small')}
  return _lines(
    *(rows, 'draft_temperature', 'acceptance', 'drafter', names),
    panel=('target_temperature',),
    xlabel='temperature of the draft model',
    ylabel='expected acceptance of a token',
  )


def _batching(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws what continuous batching gains, by batch size."""
  names = {'none': 'plain decoding', 'goodput': 'speculative (goodput)'}
  return _lines(
    *(rows, 'batch_size', 'over_padded', 'method', names),
    level=1.0,
    xlabel='batch size',
    ylabel='speed-up over padded batches',
  )


def predictions(contents: Mapping[str, Any]) -> pd.DataFrame:
  """Returns predicted and measured block efficiency for all methods.

  Rows of single domains and of tasks are left out.
  """
  rows = [
    {
      'result': name,
      'method': row.get('method'),
      'predicted': row['predicted_efficiency'],
      'measured': row['block_efficiency'],
    }
    for name, content in contents.items()
    for row in content['rows']
    if row.get('predicted_efficiency') is not None
    and 'decoded' in row
    and row.get('domain') == 'all'
  ]
  return results.frame(rows)


def _predictions(contents: Mapping[str, Any]) -> figure_lib.Figure | None:
  """Draws predicted against measured tokens per target call."""
  rows = predictions(contents)
  if rows.empty:
    return None
  measured, predicted = (
    rows[name].astype(float) for name in ('measured', 'predicted')
  )
  figure, axes = plt.subplots(figsize=(6, 4.4), layout='constrained')
  axes.plot(measured, predicted, 'o', color=plots.BLUE, alpha=0.35, ms=4)
  ends = [1, measured.max()]
  axes.plot(ends, ends, color=plots.GRAY, linewidth=1)
  axes.set_xlabel('measured tokens per target call')
  axes.set_ylabel('predicted by the acceptance of the first token')
  axes.grid(alpha=0.3)
  return figure


def _growth(in_loop: pd.DataFrame, training: pd.DataFrame) -> figure_lib.Figure:
  """Draws the acceptance of the first draft token by training tokens.

  The teacher-forced acceptance of a head is that of the last quarter of its
  only epoch, on responses that it had not read yet.
  """
  in_loop = in_loop.assign(
    read=in_loop['training_tokens'] / 1000,
    place='in the loop, temperature '
    + in_loop['sampling.temperature'].map('{:g}'.format),
  )
  windows = training[(training['part'] == 'growth') & (training['epoch'] == 1)]
  read = windows.groupby('model')['tokens'].transform('max')
  windows = windows[windows['tokens'] > 0.75 * read].assign(read=read / 1000)
  forced = windows.groupby('read', as_index=False)['acceptance_1'].mean()
  forced = forced.rename(columns={'acceptance_1': 'first_acceptance'})
  rows = pd.concat([forced.assign(place='teacher-forced'), in_loop])
  places = list(rows['place'].unique())
  figure = _lines(
    *(rows, 'read', 'first_acceptance', 'place', dict(zip(places, places))),
    xlabel='training tokens, thousands',
    ylabel='acceptance of the first draft token',
  )
  figure.axes[0].xaxis.set_major_locator(plt.MaxNLocator(5))
  return figure


def _quickstart(label: str) -> Callable[[pd.DataFrame], figure_lib.Figure]:
  return lambda rows: quickstart.figures(results.records(rows))[label]


# A function, and the results that it needs; without any, it receives all.
_FIGURES: dict[str, tuple[Any, ...]] = {
  'verdicts': (_verdicts,),
  'spectr_drafts': (_drafts, 'spectr/decode-smollm2', 'spectr/decode'),
  'spectr_calls': (_calls, 'spectr/latency-smollm2', 'spectr/latency'),
  'banditspec_drafters': (_bandits, 'banditspec/drafters'),
  'metasd_heads': (_specialists, 'metasd/heads'),
  'metasd_answers': (_answers, 'metasd/answers-smollm2'),
  'cascades_frontier': (*(_frontier, 'cascades/frontier-heads_summarization'),),
  'cascades_teacher_forced': (_teacher_forced, 'cascades/teacher_forced'),
  'cascades_teacher_forced_smollm2': (
    *(_teacher_forced, 'cascades/teacher_forced-smollm2_heads'),
  ),
  'theory_rejections': (_rejections, 'theory/rejections'),
  'theory_bias': (_bias, 'theory/ledger-smollm2'),
  'theory_temperatures': (_temperatures, 'theory/draft_temperature'),
  'theory_predictions': (_predictions,),
  'benchmark_batching': (_batching, 'benchmark/refill-smollm2'),
  'train_growth': (_growth, 'benchmark/growth', 'train/heads/growth'),
  'train_growth-sampled': (
    *(_growth, 'benchmark/growth-sampled', 'train/heads/growth-sampled'),
  ),
  'train_growth-mini': (
    *(_growth, 'benchmark/growth-mini', 'train/heads/growth-mini'),
  ),
  'quickstart_text': (_quickstart('text'), 'quickstart'),
  'quickstart_acceptance': (_quickstart('acceptance'), 'quickstart'),
  'quickstart-smollm2_text': (_quickstart('text'), 'quickstart-smollm2'),
}
