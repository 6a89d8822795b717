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
  function, *needed = _FIGURES[name]
  if not set(needed) <= set(contents):
    return None
  if not needed:
    return function(contents)
  return function(*(results.frame(contents[each]['rows']) for each in needed))


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
  axes.set_xlim(-0.7, 1.35)
  keys = {f'● {name}': color for name, color in _VERDICT_COLORS.items()}
  for row, (text, color) in enumerate({**keys, '◇ paper': 'black'}.items()):
    axes.text(0.8, 0.5 + 1.1 * row, text, color=color, va='center')
  return figure


def _drafts(smollm2: pd.DataFrame, mini: pd.DataFrame) -> figure_lib.Figure:
  """Draws tokens per target call over one draft, by the number of drafts."""
  printed = paper.read('spectr/table_4', drafter={'6M': '6M'})
  printed = printed[printed['length'] == 4].assign(name='kseq')
  printed['over_one'] = printed['number'] / printed['number'].iloc[0]
  figure, axes = plt.subplots(
    1, 2, figsize=(9.5, 3.8), sharey=True, layout='constrained'
  )
  families = ('SmolLM2, 135M', smollm2, 'small'), ('mini, 8M', mini, 'medium')
  for panel, (title, rows, drafter) in zip(axes, families):
    rows = rows.query(f'length == 4 and drafter == {drafter!r}')
    lines = [_over_one(rows, name) for name in ('otm', 'kseq', 'block')]
    lines = pd.concat([line for line in lines if len(line) > 1])
    names = {'otm': 'optimal transport', 'kseq': 'k-Seq', 'block': 'block'}
    plots.curves(panel, lines, 'drafts', 'over_one', 'name', names)
    theirs = {'kseq': 'k-Seq, paper'}
    plots.curves(
      panel, printed, 'drafts', 'over_one', 'name', theirs, paper=True
    )
    panel.set(title=title, xlabel='drafts of four tokens', xlim=(0.8, 12.5))
    panel.set_xticks([1, 2, 4, 8])
    panel.grid(alpha=0.3)
    plots.label_ends(panel)
  axes[0].set_ylabel('tokens per target call, over one draft')
  return figure


def _over_one(rows: pd.DataFrame, verifier: str) -> pd.DataFrame:
  """Returns a verifier's numbers over those of one draft."""
  one = rows.query('drafts == 1 and verifier == "maximal"').iloc[0]
  line = rows[(rows['verifier'] == verifier) & (rows['drafts'] > 1)]
  line = pd.concat([one.to_frame().T, line]).assign(name=verifier)
  for column in ('', '_error'):
    values = line[f'block_efficiency{column}'] / one['block_efficiency']
    line[f'over_one{column}'] = values.where(line['drafts'] > 1, not column)
  return line


def _calls(smollm2: pd.DataFrame, mini: pd.DataFrame) -> figure_lib.Figure:
  """Draws the time of a target call by the number of its tokens."""
  figure, axes = plt.subplots(figsize=(6, 3.8), layout='constrained')
  names = {'mini': 'mini, CPU', 'smollm2': 'SmolLM2, CPU'}
  families = [
    rows[rows['model'] == 'target'].assign(name=name)
    for name, rows in (('mini', mini), ('smollm2', smollm2))
  ]
  rows = pd.concat(families)
  rows = rows[rows['length'] == 8]
  plots.curves(axes, rows, 'batch_size', 'relative', 'name', names)
  printed = paper.read('spectr/table_2').assign(name='target')
  printed = printed[printed['length'] == 8]
  theirs = {'target': '97M, GPU (paper)'}
  plots.curves(
    axes, printed, 'batch_size', 'number', 'name', theirs, paper=True
  )
  axes.set(xlabel='drafts of eight tokens', xlim=(0.8, 11), ylim=(0.8, None))
  axes.set_xticks([1, 2, 4, 8])
  axes.set_ylabel('time of a call, over one draft of four tokens')
  axes.grid(alpha=0.3)
  plots.label_ends(axes)
  return figure


def _bandits(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws tokens per target call of bandits over the best single drafter."""
  rows = rows.query('prompts == "spec_bench" and domain == "all"')
  printed = paper.read(
    'banditspec/tables_1_3_4',
    method={
      **{'PLD': 'prompt_lookup:16', 'Rest': 'retrieval:4x4'},
      **{'suffix tree': 'suffix:4x8', 'Eagle-2': 'large:4'},
      **{'EXP3Spec': 'exp3_spec', 'UCBSpec': 'ucb_spec'},
    },
  ).query('table == "Table 1, LLaMA3-8B" and prompts == "Spec-Bench"')
  theirs = printed.set_index('method')['block_efficiency']
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
    paper=rows['method'].map(theirs / theirs['large:4']),
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
  printed = paper.read('metasd/table_4')
  means = printed.groupby('method')['number'].mean()
  means = means / means[list(_DOMAINS)].max()
  theirs = {
    'UCB': 'ucb1, BD', 'EXP3': 'exp3, BD', 'SH': 'sequential_halving, BD',
    'random': 'uniform', 'OFA': 'feature_head(eagle):eagle',
  }  # fmt: skip
  printed = {ours: means[name] for name, ours in theirs.items()}
  rows = rows[rows['method'].isin(list(names))]
  rows = rows.assign(
    label=rows['method'].map(names), paper=rows['method'].map(printed)
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
  figure, axes = plt.subplots(figsize=(7, 3.8), layout='constrained')
  names = {
    'oracle': 'oracle',
    'hedge, BD': 'Hedge',
    'ucb1, BD': 'UCB',
    'ucb1, BD, from the prompt': 'UCB, also from the prompt',
    'uniform': 'random head',
  }
  plots.curves(axes, rows, 'max_new_tokens', 'over_best', 'method', names)
  axes.axhline(1, color=plots.GRAY, linewidth=1)
  axes.set_xlabel('tokens of an answer')
  axes.set_xlim(10, 215)
  axes.set_xticks(sorted(rows['max_new_tokens'].unique()))
  axes.set_ylabel('tokens per call,\nover the best specialist')
  axes.grid(alpha=0.3)
  plots.label_ends(axes)
  return figure


def _frontier(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws the target's likelihood of texts against time."""
  points = rows[rows['part'].isna()]
  figure, axes = plt.subplots(figsize=(7, 4.4), layout='constrained')
  names = {
    **{'token_v3': 'token rule', 'bild': 'BiLD', 'lossy': 'lossy'},
    **{'chow': 'Chow', 'opt': 'OPT'},
  }
  target = points[points['method'] == 'target'].iloc[0]
  lossless = points[points['method'] == 'lossless'].assign(method='lossy')
  points = pd.concat([points, lossless])
  plots.curves(axes, points, 'latency', 'target_nats', 'method', names)
  level = target['target_nats']
  axes.axhline(level, color=plots.GRAY, linewidth=1)
  axes.text(0.36, level + 0.04, 'target model', fontsize=9)
  axes.set(xlabel='time over plain decoding', xlim=(0.35, 1.72))
  axes.set_ylabel("target's log-likelihood, nats per token")
  axes.grid(alpha=0.3)
  plots.label_ends(axes, at=1.52)
  return figure


def _rejections(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws expected and simulated rejections by the number of drafts."""
  rows = rows[rows['horizon'] == 50]
  longest = rows.groupby('source')['runs'].transform('max')
  rows = rows[rows['runs'].isna() | (rows['runs'] == longest)]
  figure, axes = plt.subplots(figsize=(6.5, 3.8), layout='constrained')
  names = {
    'theory': 'theory',
    'simulation': '100,000 simulations',
    'decoder': '5,000 decodes',
  }
  plots.curves(axes, rows, 'num_drafts', 'rejections', 'source', names)
  axes.plot(1, 16.41, 'D', color='black', markersize=9, fillstyle='none')
  axes.annotate('paper: 16.41', (1, 16.41), (10, 0), textcoords='offset points')
  axes.set(xlabel='drafts per token', xlim=(0.7, 10.5))
  axes.set_ylabel('rejections in 50 tokens')
  axes.grid(alpha=0.3)
  plots.label_ends(axes)
  return figure


def _bias(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws the bias of three rules against their rejections."""
  figure, axes = plt.subplots(figsize=(6.5, 3.8), layout='constrained')
  names = {'OPT': 'OPT', 'UNO': 'UNO', 'UNO, code': "UNO of the paper's code"}
  plots.curves(axes, rows, 'rejection', 'bias', 'rule', names)
  axes.set(xlabel='rejected draft tokens (share)', xlim=(-0.02, 0.47))
  axes.set_ylabel('bias (total variation)')
  axes.grid(alpha=0.3)
  plots.label_ends(axes)
  return figure


def _refill(rows: pd.DataFrame) -> figure_lib.Figure:
  """Draws what continuous batching gains, by batch size."""
  figure, axes = plt.subplots(figsize=(6.5, 3.4), layout='constrained')
  names = {'none': 'plain decoding', 'goodput': 'speculative (goodput)'}
  plots.curves(axes, rows, 'batch_size', 'over_padded', 'method', names)
  axes.axhline(1, color=plots.GRAY, linewidth=1)
  axes.set(xlabel='batch size', xscale='log', xlim=(0.85, 110))
  axes.set_xticks([1, 8, 32], ['1', '8', '32'])
  axes.set_ylabel('speed-up over padded batches')
  axes.grid(alpha=0.3)
  plots.label_ends(axes)
  return figure


def predictions(contents: Mapping[str, Any]) -> pd.DataFrame:
  """Returns predicted and measured block efficiency for all methods.

  Rows of single domains are left out.
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
    and row['domain'] == 'all'
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
  'theory_rejections': (_rejections, 'theory/rejections'),
  'theory_bias': (_bias, 'theory/ledger-smollm2'),
  'theory_predictions': (_predictions,),
  'benchmark_batching': (_refill, 'benchmark/refill-smollm2'),
  'quickstart_text': (_quickstart('text'), 'quickstart'),
  'quickstart_acceptance': (_quickstart('acceptance'), 'quickstart'),
}
