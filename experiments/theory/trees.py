"""The best static trees for budgets of nodes, beside chains and dynamic trees.

How likely the sibling of each rank is kept at each depth is measured on half of
the prompts, with a wide tree. From that follow the best tree of each number of
nodes (as Sequoia, Chen et al. 2024, has it), and how many tokens it will keep;
the other half shows how many it does.
"""

import numpy as np

from experiments.common import compare
from experiments.common import configs
from experiments.common import methods as methods_lib
from experiments.common import paper
from experiments.common import plots
from experiments.common import runner
from specjax import theory
from specjax import trees
from specjax.drafters import siblings

MAY_CHANGE = 'nums_nodes', 'paper'
_DYNAMIC = 'dynamic'
_FIELDS = 'path', 'num_accepted'


def prepare(config):
  """Returns the wide tree, then the dynamic ones, and both sets of prompts."""
  configs.check_counts(config, ('nums_nodes', 'depth'))
  wide = _wide(config)
  if config.depth > wide.depth:
    raise ValueError(
      f'depth must be at most {wide.depth}, that of factors, got '
      f'{config.depth}.'
    )
  prepared = compare.of_entries(
    config,
    {'drafter': f'{config.drafter}:{".".join(map(str, config.factors))}'}
    | {f'dynamic of {n}': _dynamic(config, n) for n in config.nums_nodes},
  )
  prompt_sets = [_half(prepared.prompt_sets[0], which) for which in (0, 1)]
  return prepared._replace(prompt_sets=prompt_sets)


def run(config, workdir):
  """Returns a row for each number of nodes and kind of tree."""
  family, (method, *_), (measured, decoded) = prepare(config)
  wide = _wide(config)
  made = compare.Plan(family, [method], [measured])
  (seen,) = compare.decode(config, workdir, made, fields=_FIELDS)
  chances = acceptance(wide, seen.records)[: config.depth]
  asked = _asked(config, family, chances)
  # Kinds of trees may be one for few nodes.
  methods = {method.arms: method for method, *_ in asked}
  made = compare.Plan(family, list(methods.values()), [decoded])
  found = compare.decode(config, workdir, made)
  of_arms = dict(zip(methods, compare.rows(found)))
  # One chance for all depths is not of trees that narrow: they have their own.
  own = {'predicted_efficiency': None}
  rows = [of_arms[method.arms] | own | columns for method, columns in asked]
  dynamic = {row['num_nodes']: row for row in rows if row['method'] == _DYNAMIC}
  return [row | _over(row, dynamic[row['num_nodes']]) for row in rows]


def _over(row, dynamic):
  """Tokens a round over those of the dynamic tree, on the same prompts."""
  pair = [each[paper.PAIRED]['block_efficiency'] for each in (row, dynamic)]
  over = pair[0].over(pair[1])
  return {'over_dynamic': over.value, 'over_dynamic_error': over.error}


def _half(prompts, which):
  """Every other prompt."""
  return prompts._replace(
    label=('measured', 'decoded')[which],
    jobs=prompts.jobs[which::2],
    settings=prompts.settings | {'half': which},
  )


def acceptance(
  tree: trees.Topology, records: list[runner.Record]
) -> np.ndarray:
  """Returns `[D, W]` how often the sibling of each rank is kept.

  Args:
    tree: whose nodes of a depth have equally many children.
    records: with `path` and `num_accepted` of each round. The last round of a
      text shows less, as the end may have cut it off.
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
  chances = kept / np.maximum(reached, 1)
  # By chance a later one may have been kept more often.
  return np.minimum.accumulate(chances, axis=1)


def _asked(config, family, chances):
  """Methods of each number of nodes, and their columns."""
  asked = []
  for num in config.nums_nodes:
    static = {
      'best': theory.best_tree(chances, num),
      'chain': trees.chain(min(num, config.depth)),
    }
    arms = {
      **{kind: _static(config, tree) for kind, tree in static.items()},
      _DYNAMIC: _dynamic(config, num),
    }
    for kind, arm in arms.items():
      method = methods_lib.parse(config, arm, list(family.drafters), 'dynamic')
      columns = {'num_nodes': num, 'method': kind}
      if kind in static:
        kept = theory.kept_tokens(chances, static[kind])
        columns['predicted'] = 1 + kept
      asked.append((method, columns))
  return asked


def _wide(config):
  """The tree that acceptance is measured with."""
  return trees.prefix_tree(tuple(config.factors))


def _dynamic(config, num_nodes):
  return config.dynamic.format(num_nodes=num_nodes, depth=config.depth)


def _static(config, tree):
  return {'drafter': config.drafter, 'tree': ('of_parents', tree.parents)}


def figures(rows):
  """Draws tokens a round by the number of nodes."""
  drawn = plots.lines(
    rows,
    'num_nodes',
    'block_efficiency',
    'method',
    error='block_efficiency_error',
    xlabel='nodes of a tree',
  )
  return {'trees': drawn}
