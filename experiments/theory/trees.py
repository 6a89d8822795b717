"""Compares optimal static trees with chains and dynamic trees of equal size.

The acceptance rates of siblings, by rank and depth, are measured with a wide
tree on half of the prompts. They determine the optimal tree for each number of
nodes (as in Sequoia, Chen et al. 2024) and its expected number of tokens, which
is compared with measurements on the other half.
"""

from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import configs
from experiments.common import methods as methods_lib
from experiments.common import paper
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import runner
from specjax import families
from specjax import theory
from specjax import trees
from specjax.drafters import siblings

MAY_CHANGE = 'nums_nodes', 'paper'
_DYNAMIC = 'dynamic'
_FIELDS = 'path', 'num_accepted'


def prepare(config):
  """Returns the wide tree, the dynamic trees, and both halves of prompts."""
  configs.check_counts(config, ('nums_nodes', 'depth'))
  wide = _wide(config)
  if config.depth > wide.depth:
    raise ValueError(
      f'depth must be at most {wide.depth}, the length of factors, got '
      f'{config.depth}.'
    )
  setup = compare.prepare_entries(
    config,
    {'drafter': f'{config.drafter}:{".".join(map(str, config.factors))}'}
    | {f'dynamic of {n}': _dynamic(config, n) for n in config.nums_nodes},
  )
  prompt_sets = [_half(setup.prompt_sets[0], which) for which in (0, 1)]
  return setup._replace(prompt_sets=prompt_sets)


def run(config, workdir):
  """Returns a row per number of nodes and kind of tree."""
  family, (method, *_), (measured, decoded) = prepare(config)
  wide = _wide(config)
  setup = compare.Setup(family, [method], [measured])
  (wide_result,) = compare.decode(config, workdir, setup, fields=_FIELDS)
  probabilities = acceptance(wide, wide_result.records)[: config.depth]
  tree_methods = _tree_methods(config, family, probabilities)
  # With few nodes, kinds of trees may coincide.
  methods = {method.arms: method for method, _ in tree_methods}
  setup = compare.Setup(family, list(methods.values()), [decoded])
  by_arms = dict(
    zip(methods, compare.rows(compare.decode(config, workdir, setup)))
  )
  # Their widths vary with depth, so that one acceptance rate is no prediction.
  unpredicted = {'predicted_efficiency': None}
  rows = [
    by_arms[method.arms] | unpredicted | columns
    for method, columns in tree_methods
  ]
  dynamic = {row['num_nodes']: row for row in rows if row['method'] == _DYNAMIC}
  return [row | _over(row, dynamic[row['num_nodes']]) for row in rows]


def _over(row: dict[str, Any], dynamic: dict[str, Any]) -> dict[str, float]:
  """Returns tokens per round over those of the dynamic tree."""
  above, below = (
    tree_row[paper.PAIRED]['block_efficiency'] for tree_row in (row, dynamic)
  )
  ratio = above.over(below)
  return {'over_dynamic': ratio.value, 'over_dynamic_error': ratio.error}


def _half(prompts: prompts_lib.PromptSet, which: int) -> prompts_lib.PromptSet:
  """Returns every other prompt."""
  return prompts._replace(
    label=('measured', 'decoded')[which],
    jobs=prompts.jobs[which::2],
    settings=prompts.settings | {'half': which},
  )


def acceptance(
  tree: trees.Topology, records: list[runner.Record]
) -> np.ndarray:
  """Returns `[D, W]` acceptance rates of siblings, by depth and rank.

  Args:
    tree: a tree whose nodes at the same depth have equally many children.
    records: the records, with `path` and `num_accepted` of each round. The last
      round of a text is ignored, as it may be cut short.
  """
  ranks = siblings.ranks(tree.parents)
  kept = np.zeros((tree.depth, ranks.max() + 1))
  reached = np.zeros((tree.depth, 1))
  for record in records:
    rounds = zip(record['path'], record['num_accepted'])
    for path, num in list(rounds)[:-1]:
      reached[: int(num) + 1] += 1
      for level in range(int(num)):
        kept[level, ranks[int(path[level])]] += 1
  probabilities = kept / np.maximum(reached, 1)
  # Noise may have made a later sibling's rate higher.
  return np.minimum.accumulate(probabilities, axis=1)


def _tree_methods(
  config: Any, family: families.Family, probabilities: np.ndarray
) -> list[tuple[methods_lib.Method, dict[str, Any]]]:
  """Returns the methods for each number of nodes, and their columns."""
  methods = []
  for num in config.nums_nodes:
    static = {
      'best': theory.best_tree(probabilities, num),
      'chain': trees.chain(min(num, config.depth)),
    }
    arms = {
      **{kind: _static(config, tree) for kind, tree in static.items()},
      _DYNAMIC: _dynamic(config, num),
    }
    for kind, arm in arms.items():
      method = methods_lib.parse(config, arm, list(family.drafters), 'dynamic')
      columns: dict[str, Any] = {'num_nodes': num, 'method': kind}
      if kind in static:
        kept = theory.kept_tokens(probabilities, static[kind])
        columns['predicted'] = 1 + kept
      methods.append((method, columns))
  return methods


def _wide(config: Any) -> trees.Topology:
  """Returns the tree that acceptance is measured with."""
  return trees.prefix_tree(tuple(config.factors))


def _dynamic(config: Any, num_nodes: int) -> str:
  return config.dynamic.format(num_nodes=num_nodes, depth=config.depth)


def _static(config: Any, tree: trees.Topology) -> str:
  return f'{config.drafter}:of_parents({tree.parents})'


def figures(rows):
  """Draws tokens per round by the number of nodes."""
  drawn = plots.lines(
    rows,
    'num_nodes',
    'block_efficiency',
    'method',
    error='block_efficiency_error',
    xlabel='nodes per tree',
  )
  return {'trees': drawn}
