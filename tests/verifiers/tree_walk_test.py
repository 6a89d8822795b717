"""The tree walk: its exact law on tiny Markov models, and greedy walks."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import trees
from specjax.verifiers import tree_walk
from tests import laws

ROOT = 0  # the last committed token


def half(target, draft):
  """A goal that is neither model's law."""
  return 0.5 * target + 0.5 * draft


def draft_tree(tokens, topology, valid, table, leaves=False):
  """One row's tree as a drafter with this `[V, V]` table would report it."""
  parents = np.array([*topology.parents], int)
  return base.DraftTree(
    tokens,
    topology,
    valid,
    table[jnp.where(parents < 0, ROOT, tokens[parents])],
    table[tokens[topology.leaves]] if leaves else None,
  )


def tables(vocab_size):
  """Draft and target, `[V, V]` each, rather different."""
  rng = np.random.default_rng(vocab_size)
  draft = laws.random_table(rng, vocab_size, vocab_size)
  return draft, laws.random_table(rng, vocab_size, vocab_size)


def level_cells(topology, draft, goal_table, chosen):
  """`[C, D + 1, 2]` uniforms and `[C]` volumes for an exact integral.

  Levels use independent uniforms; at each of them the outcome is constant on
  the cells cut out by the laws that can meet there.
  """
  vocab_size = len(draft)
  grids = []
  for depth in range(topology.depth + 1):
    contexts = [ROOT] if depth == 0 else range(vocab_size)
    pairs = [(goal_table[x], goal_table[x]) for x in contexts]
    if depth < topology.depth:
      drafts = lambda x: np.eye(vocab_size) if chosen else draft[x][None]
      pairs = [(law, goal_table[x]) for x in contexts for law in drafts(x)]
    grids.append(laws.uniform_cells(pairs))
  index = np.indices([len(areas) for _, areas in grids])
  index = index.reshape(len(grids), -1)
  points = [points[at] for (points, _), at in zip(grids, index)]
  areas = [areas[at] for (_, areas), at in zip(grids, index)]
  return np.stack(points, 1), np.prod(areas, axis=0)


def complete(tokens, num_accepted, weights, table):
  """`[V**T]` law of `[n, T]` blocks whose unused end the table continues.

  An emitted block's length depends on its tokens, so blocks of one length do
  not have the target's law: what has it is the block and what follows.
  """
  vocab_size, length = len(table), tokens.shape[1]
  law = np.zeros(vocab_size**length)
  for num in range(1, length + 1):
    rows = num_accepted + 1 == num
    cells = np.ravel_multi_index(tokens[rows, :num].T, (vocab_size,) * num)
    mass = np.bincount(cells, weights[rows], vocab_size**num)
    for _ in range(num, length):
      mass = (mass.reshape(-1, vocab_size, 1) * table).ravel()
    law += mass
  return law


def exact_law(topology, vocab_size, valid=None, chosen=None, **parts):
  """Law of the completed block, over all drafts and all uniforms.

  Args:
    topology: of the tree.
    vocab_size: `V`.
    valid: `[N]` bool; all nodes by default.
    chosen: tokens of a deterministic draft, or None for a sampled one.
    **parts: coupling and goal of the tree walk.

  Returns:
    The law, the goal's own law, and the outcomes `(tree tokens, Outcome)`.
  """
  draft, target = tables(vocab_size)
  goal_table = parts.get('goal', lambda target, draft: target)(target, draft)
  goal_table = goal_table.astype(np.float64)
  valid = np.ones(topology.num_nodes, bool) if valid is None else valid
  points, volumes = level_cells(topology, draft, goal_table, chosen)
  drafts = np.array(
    [chosen]
    if chosen
    else list(itertools.product(range(vocab_size), repeat=topology.num_nodes))
  )
  weights = np.ones(len(drafts))
  for node, parent in enumerate(topology.parents):
    before = ROOT if parent < 0 else drafts[:, parent]
    weights *= 1.0 if chosen else draft[before, drafts[:, node]]
  verify = tree_walk.tree_walk(**parts)

  def run(uniforms, tokens):
    tree = draft_tree(
      tokens, topology, jnp.asarray(valid), jnp.asarray(draft), 'goal' in parts
    )
    tree = tree._replace(probs=None) if chosen else tree
    entries = jnp.append(ROOT, tokens)
    return verify(uniforms, tree, jnp.asarray(target)[entries])

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.random, 'split', lambda key, num: key)
    patch.setattr(jax.random, 'uniform', lambda key, shape: key)
    run = jax.jit(jax.vmap(jax.vmap(run, (0, None)), (None, 0)))
    outcome = jax.device_get(run(points, jnp.asarray(drafts, jnp.int32)))
  law = complete(
    outcome.tokens.reshape(-1, topology.depth + 1),
    outcome.num_accepted.ravel(),
    np.outer(weights, volumes).ravel(),
    goal_table,
  )
  want = laws.sequence_law(goal_table, ROOT, topology.depth + 1)
  return law, want, (drafts, outcome)


CASES = {
  'empty': (trees.chain(0), 3, {}),
  'chain': (trees.chain(2), 3, {}),
  'chain, end invalid': (trees.chain(2), 3, {'valid': [True, False]}),
  'chain, all invalid': (trees.chain(2), 3, {'valid': [False, False]}),
  'chain, deterministic': (trees.chain(2), 3, {'chosen': (1, 2)}),
  'siblings': (trees.chains(3, 1), 3, {}),
  'siblings, one invalid': (
    trees.chains(3, 1),
    3,
    {'valid': [False, True, True]},
  ),
  'siblings, deterministic': (trees.chains(2, 1), 3, {'chosen': (2, 1)}),
  'siblings, deterministic, first invalid': (
    trees.chains(2, 1),
    3,
    {'chosen': (2, 1), 'valid': [False, True]},
  ),
  'chains': (trees.chains(2, 2), 2, {}),
  'prefix tree': (trees.prefix_tree((2, 2)), 2, {}),
  'prefix tree, some invalid': (
    trees.prefix_tree((2, 2)),
    2,
    {'valid': [True, True, False, True, True, False]},
  ),
  'ragged': (trees.Topology((-1, -1, 1)), 3, {}),
  'chain, other goal': (trees.chain(2), 3, {'goal': half}),
  'prefix tree, other goal': (trees.prefix_tree((2, 2)), 2, {'goal': half}),
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_completed_block_has_exactly_the_goal_law(case):
  """By enumeration of drafts and uniforms; the bonus token is included."""
  topology, vocab_size, options = case
  law, want, (drafts, outcome) = exact_law(topology, vocab_size, **options)
  np.testing.assert_allclose(law, want, atol=1e-6)
  # What was accepted is on the path, and was proposed.
  valid = np.append(options.get('valid', [True] * topology.num_nodes), False)
  depths = np.append(topology.depths, 0)
  tokens = np.pad(drafts, ((0, 0), (0, 1)))[:, None]
  for depth in range(topology.depth):
    kept = depth < outcome.num_accepted
    node = outcome.path[..., depth]
    assert valid[node[kept]].all()
    assert (depths[node[kept]] == depth + 1).all()
    at = np.take_along_axis(tokens, node[..., None], axis=2)[..., 0]
    assert (at == outcome.tokens[..., depth])[kept].all()


@pytest.mark.parametrize('name', ['chain', 'siblings', 'prefix tree'])
def test_check_rejects_a_coupling_without_residual(name):
  topology, vocab_size, _ = CASES[name]
  law, want, _ = exact_law(topology, vocab_size, coupling=laws.resampling)
  assert np.abs(law - want).max() > 1e-3


@pytest.mark.parametrize(
  'topology',
  [trees.chains(3, 2), trees.prefix_tree((2, 2))],
  ids=['chains', 'prefix tree'],
)
def test_completed_block_has_the_target_law_with_true_keys(topology):
  """40000 blocks over 4 tokens, one key a row.

  A chi-square divergence of 0.003 of the first three tokens from their law
  fails with chance 0.95; without the residual it is far larger.
  """
  size, vocab_size = 40000, 4
  draft, target = tables(vocab_size)
  rng = np.random.default_rng(10)
  sample = lambda rows: np.argmax(
    np.cumsum(rows, 1) > rng.random((size, 1)) * rows.sum(1, keepdims=True),
    axis=1,
  )
  drafts = np.zeros((size, topology.num_nodes), np.int32)
  for node, parent in enumerate(topology.parents):
    before = np.full(size, ROOT) if parent < 0 else drafts[:, parent]
    drafts[:, node] = sample(draft[before])

  def p_value(coupling):
    def run(key, tokens):
      valid = jnp.ones(topology.num_nodes, bool)
      tree = draft_tree(tokens, topology, valid, jnp.asarray(draft))
      entries = jnp.append(ROOT, tokens)
      return tree_walk.tree_walk(coupling)(
        key, tree, jnp.asarray(target)[entries]
      )

    keys = jax.random.split(jax.random.key(11), size)
    outcome = jax.device_get(jax.jit(jax.vmap(run))(keys, drafts))
    tokens = outcome.tokens.copy()
    for depth in range(1, 3):
      rest = sample(target[tokens[:, depth - 1]])
      emitted = depth <= outcome.num_accepted
      tokens[:, depth] = np.where(emitted, tokens[:, depth], rest)
    law = laws.sequence_law(target, ROOT, 3)
    return laws.chi_square(tokens[:, :3], law)

  assert p_value('maximal') > 1e-4
  assert p_value(laws.resampling) < 1e-6


@pytest.mark.parametrize(
  ('topology', 'drafts', 'best', 'path', 'tokens'),
  [
    # `best` is the target's choice after the root and after each node.
    (trees.chain(0), [], [6], [], [6]),
    (trees.chain(3), [4, 2, 7], [4, 2, 7, 1], [0, 1, 2], [4, 2, 7, 1]),
    (trees.chain(3), [4, 2, 7], [4, 2, 5, 1], [0, 1], [4, 2, 5]),
    (trees.chain(3), [4, 2, 7], [3, 2, 7, 1], [], [3]),
    # The second chain agrees, then neither does.
    (trees.chains(2, 2), [1, 2, 3, 4], [2, 3, 4, 0, 7], [1, 3], [2, 4, 7]),
    (trees.chains(2, 2), [1, 2, 3, 4], [2, 3, 3, 0, 7], [1], [2, 3]),
    # Both chains agree at first, so either may go on.
    (trees.chains(2, 2), [1, 1, 3, 4], [1, 4, 4, 0, 7], [0, 3], [1, 4, 7]),
    (
      trees.prefix_tree((2, 2)),
      [1, 2, 3, 4, 5, 6],
      [2, 0, 6, 0, 0, 0, 7],
      [1, 5],
      [2, 6, 7],
    ),
    # A leaf above the last level ends the walk with its bonus token.
    (trees.Topology((-1, -1, 1)), [1, 2, 3], [1, 5, 3, 7], [0], [1, 5]),
  ],
)
def test_greedy_walk_is_as_worked_out_by_hand(
  topology, drafts, best, path, tokens
):
  drafts = jnp.array(drafts, jnp.int32)
  tree = base.DraftTree(drafts, topology, drafts >= 0, None)
  verify = jax.jit(tree_walk.tree_walk('greedy'))
  outcome = verify(jax.random.key(0), tree, jnp.eye(8)[jnp.array(best)])
  assert outcome.num_accepted == len(path)
  assert outcome.path.shape == (topology.depth,)
  assert outcome.path[: len(path)].tolist() == path
  assert outcome.tokens.shape == (topology.depth + 1,)
  assert outcome.tokens[: len(tokens)].tolist() == tokens
  assert {leaf.dtype for leaf in outcome} == {jnp.dtype('int32')}


@pytest.mark.parametrize('part', ['coupling', 'goal'])
def test_unknown_part_raises_with_the_known_names(part):
  build = functools.partial(tree_walk.tree_walk, **{part: 'nope'})
  with pytest.raises(ValueError, match=rf"Unknown {part} 'nope'\. Known: "):
    build()
