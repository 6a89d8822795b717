"""Plots of what bandits do."""

from collections.abc import Sequence

import matplotlib
import matplotlib.pyplot as plt
import numpy as np


def plot_regret(rows: list[dict], path: str) -> None:
  """Draws regret against emitted tokens, a panel for each environment.

  Bars are two standard errors; a bound has the colour of its bandit.

  Args:
    rows: with `environment`, `bandit`, `tokens`, `regret`, `standard_error`
      and `bound`, which may be None.
    path: of the picture.
  """
  environments = list(dict.fromkeys(row['environment'] for row in rows))
  bandits = list(dict.fromkeys(row['bandit'] for row in rows))
  figure, panels = _panels(environments, 'tokens')
  for axes, environment in zip(panels, environments):
    for bandit in bandits:
      style = _style(bandits, bandit)
      own = [
        row
        for row in rows
        if (row['environment'], row['bandit']) == (environment, bandit)
      ]
      axes.errorbar(
        [row['tokens'] for row in own],
        [row['regret'] for row in own],
        [2 * row['standard_error'] for row in own],
        marker='o',
        markersize=3,
        **style,
      )
      bounds = [
        (row['tokens'], row['bound']) for row in own if row['bound'] is not None
      ]
      if bounds:
        style['label'] = f'bound of {bandit}'
        axes.plot(*zip(*bounds), **style | {'linestyle': ':'})
    axes.set_xscale('log')
    # Whoever follows the arms beats the best single one: regret below 0.
    axes.set_yscale('symlog', linthresh=10)
  panels[0].set_ylabel('regret in rounds')
  _save(figure, panels, path)


def plot_best_arm(ratios: dict[str, dict[str, np.ndarray]], path: str) -> None:
  """Draws how often the best arm is played, a panel for each environment.

  Args:
    ratios: share of runs `[T]` by environment and bandit.
    path: of the picture.
  """
  figure, panels = _panels(ratios, 'round')
  for axes, of_bandits in zip(panels, ratios.values()):
    for bandit, ratio in of_bandits.items():
      axes.plot(_smooth(ratio), **_style(list(of_bandits), bandit))
    axes.set_ylim(-0.02, 1.02)
  panels[0].set_ylabel('share of runs that play the best arm')
  _save(figure, panels, path)


def plot_pulls(arms: dict[str, np.ndarray], num_arms: int, path: str) -> None:
  """Draws the share of runs that play each arm, a panel for each bandit.

  Args:
    arms: `[R, T]` arms by the title of their panel.
    num_arms: `A`.
    path: of the picture.
  """
  figure, panels = _panels(arms, 'round')
  for axes, played in zip(panels, arms.values()):
    played = np.asarray(played)
    shares = [_smooth((played == arm).mean(0)) for arm in range(num_arms)]
    labels = [f'arm {arm}' for arm in range(num_arms)]
    axes.stackplot(np.arange(played.shape[1]), shares, labels=labels)
    axes.set_ylim(0, 1)
  panels[0].set_ylabel('share of pulls')
  _save(figure, panels, path)


def plot_boxes(
  values: dict[str, dict[str, np.ndarray]], ylabel: str, path: str
) -> None:
  """Draws boxes with whiskers from the 5th to the 95th percentile.

  Args:
    values: those of each box, by the title of its panel and its own name.
    ylabel: what they are.
    path: of the picture.
  """
  figure, panels = _panels(values, '')
  for axes, boxes in zip(panels, values.values()):
    axes.boxplot(
      list(boxes.values()), whis=(5, 95), showfliers=False, showmeans=True
    )
    numbers = range(1, len(boxes) + 1)
    axes.set_xticks(numbers, boxes, rotation=45, ha='right', fontsize=8)
  panels[0].set_ylabel(ylabel)
  _save(figure, panels, path)


def plot_bands(
  bands: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]],
  ylabel: str,
  path: str,
) -> None:
  """Draws means by round, from 1, with bands around them.

  Args:
    bands: `[T]` means and half widths by the title of a panel and a name.
    ylabel: what they are.
    path: of the picture.
  """
  figure, panels = _panels(bands, 'round')
  for axes, curves in zip(panels, bands.values()):
    for name, (mean, width) in curves.items():
      style = _style(list(curves), name)
      index = np.arange(1, len(mean) + 1)
      axes.plot(index, mean, **style)
      low, high = mean - width, mean + width
      axes.fill_between(index, low, high, color=style['color'], alpha=0.1, lw=0)
  panels[0].set_ylabel(ylabel)
  _save(figure, panels, path)


def plot_frontier(
  rows: list[dict],
  cost: str,
  metric: str,
  path: str,
  *,
  quality: str = 'quality',
  panels_by: Sequence[str] = ('temperature', 'draft_length'),
  floor: float | None = None,
  choice: dict | None = None,
) -> None:
  """Draws quality against a cost, a line for each method and its alphas.

  Bars are standard errors, and the dotted line is the target's quality.

  Args:
    rows: with `label`, the quality, its error as in `quality_error`, the cost,
      which may be None, and `panels_by`.
    cost: a field of the rows.
    metric: what the quality is.
    path: of the picture.
    quality: the field of the rows that gives it.
    panels_by: fields that rows of one panel share.
    floor: a quality that is drawn as a dashed line.
    choice: the one of the rows that a star marks.
  """
  title = lambda row: ', '.join(
    f'{name.replace("_", " ")} {row[name]}' for name in panels_by
  )
  labels = list(dict.fromkeys(row['label'] for row in rows))
  titles = list(dict.fromkeys(map(title, rows)))
  figure, panels = _panels(titles, cost.replace('_', ' '))
  for axes, panel in zip(panels, titles):
    for label in labels:
      own = [
        row for row in rows if (title(row), row['label']) == (panel, label)
      ]
      if label == 'target' and own:
        axes.axhline(own[0][quality], color='0.5', linestyle=':')
      own = [row for row in own if row[cost] is not None]
      own = sorted(own, key=lambda row: row[cost])
      axes.errorbar(
        [row[cost] for row in own],
        [row[quality] for row in own],
        [row[f'{quality}_error'] for row in own],
        marker='o',
        markersize=3,
        elinewidth=0.5,
        **_style(labels, label),
      )
    if floor is not None:
      axes.axhline(floor, color='0.5', linestyle='--', label='floor')
    if choice is not None and title(choice) == panel:
      at = choice[cost], choice[quality]
      style = {'color': 'black', 'linestyle': '', 'label': 'choice'}
      axes.plot(*at, marker='*', markersize=12, fillstyle='none', **style)
  panels[0].set_ylabel(metric)
  _save(figure, panels, path)


def _panels(titles, xlabel):
  matplotlib.use('Agg')
  figure, panels = plt.subplots(
    1,
    len(titles),
    figsize=(3.6 * len(titles) + 1.6, 3.6),
    squeeze=False,
    layout='constrained',
  )
  for axes, title in zip(panels[0], titles):
    axes.set_title(title)
    axes.set_xlabel(xlabel)
    axes.grid(alpha=0.3)
  return figure, panels[0]


def _style(names, name):
  index = names.index(name)
  style = '-' if index < 10 else '--'  # There are ten colours.
  return {'color': f'C{index % 10}', 'linestyle': style, 'label': name}


def _smooth(values):
  """Means over a hundredth of the rounds around each."""
  width = max(len(values) // 100, 1)
  window = np.ones(width)
  weights = np.convolve(np.ones(len(values)), window, 'same')
  return np.convolve(values, window, 'same') / weights


def _save(figure, panels, path):
  labelled = {}
  for axes in panels:
    labelled |= dict(zip(*axes.get_legend_handles_labels()[::-1]))
  if labelled:
    figure.legend(
      labelled.values(), labelled, loc='outside right center', fontsize=8
    )
  figure.savefig(path, dpi=120)
  plt.close(figure)
