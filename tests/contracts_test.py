"""What every entry of every table keeps."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import trees

TABLES = {
  'bandit': specjax.BANDITS,
  'coupling': specjax.COUPLINGS,
  'drafter': specjax.DRAFTERS,
  'goal': specjax.GOALS,
  'model': specjax.MODELS,
  'reward': specjax.REWARDS,
  'verifier': specjax.VERIFIERS,
}


@pytest.mark.parametrize('kind', TABLES)
def test_unknown_name_raises_with_all_known_names(kind):
  table = TABLES[kind]
  with pytest.raises(ValueError) as error:
    base.lookup(table, kind, 'nope')
  message = str(error.value)
  assert message.startswith(f"Unknown {kind} 'nope'. Known: ")
  assert message.split('Known: ')[1].rstrip('.').split(', ') == sorted(table)


@pytest.mark.parametrize('kind', TABLES)
def test_known_names_give_documented_functions(kind):
  for name, entry in TABLES[kind].items():
    assert base.lookup(TABLES[kind], kind, name) is entry
    assert callable(entry) and inspect.getdoc(entry)


def abstract(tree):
  """Shapes and types of the leaves, and how they hang together."""
  return jax.tree.map(
    lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), tree
  )


@pytest.mark.parametrize('num_arms', [1, 3])
@pytest.mark.parametrize('name', specjax.BANDITS)
def test_bandit_contract(name, num_arms):
  """A loop can carry the state; arms are in range; extras are ignored."""
  bandit = specjax.BANDITS[name](num_arms)
  state = bandit.init()
  arm = jax.eval_shape(bandit.select, jax.random.key(0), state)
  assert (arm.shape, arm.dtype) == ((), jnp.int32)
  reward = jnp.float32(0.5)
  rewards = jnp.linspace(0, 1, num_arms)
  for extra in ({}, {'not_a_known_extra': jnp.ones(num_arms)}):
    update = lambda state, arm, extra=extra: bandit.update(
      state, arm, reward, rewards=rewards, **extra
    )
    assert abstract(jax.eval_shape(update, state, arm)) == abstract(state)

  def step(state, key):
    arm = bandit.select(key, state)
    rewards = jax.random.uniform(key, (num_arms,))
    return bandit.update(state, arm, rewards[arm], rewards=rewards), arm

  keys = jax.random.split(jax.random.key(15), 20)
  _, arms = jax.lax.scan(step, state, keys)
  assert ((0 <= arms) & (arms < num_arms)).all()


@pytest.mark.parametrize(
  ('options', 'name'),
  [({'num_arms': 0}, 'num_arms'), ({'num_arms': 2, 'arm': 2}, 'arm')],
)
def test_fixed_bandit_out_of_range_raises(options, name):
  with pytest.raises(ValueError, match=name):
    specjax.BANDITS['fixed'](**options)


def test_fixed_bandit_plays_its_arm():
  bandit = specjax.BANDITS['fixed'](3, arm=2)
  assert bandit.select(jax.random.key(0), bandit.init()) == 2


def feedback(depth, deepest):
  """Rows that emitted 0 (done), 1, ... `depth + 1` tokens."""
  emitted = jnp.arange(depth + 2, dtype=jnp.int32)
  return specjax.Feedback(
    arm=jnp.zeros_like(emitted),
    emitted=emitted.astype(jnp.float32),
    overlap=jnp.linspace(0, 1, depth + 2),
    agreement=jnp.linspace(1, 0, depth + 2),
    fidelity=jnp.linspace(1, 0, depth + 2),
    depth=jnp.full_like(emitted, depth),
    max_depth=deepest,
    caught_up=emitted,
  )


# What a reward must be told of the arms.
OPTIONS = {'throughput': {'costs': [0.25], 'catch_up_costs': [0.1]}}


@pytest.mark.parametrize(('depth', 'deepest'), [(0, 0), (0, 4), (2, 4), (4, 4)])
@pytest.mark.parametrize('name', specjax.REWARDS)
def test_reward_lies_in_the_unit_interval(name, depth, deepest):
  options = OPTIONS.get(name, {})
  options = options and options | {'depths': [depth]}
  rewards = specjax.REWARDS[name](**options)(feedback(depth, deepest))
  assert rewards.shape == (depth + 2,)
  assert jnp.issubdtype(rewards.dtype, jnp.floating)
  assert ((0 <= rewards) & (rewards <= 1)).all()


def test_emitted_counts_tokens_beyond_the_first():
  np.testing.assert_allclose(
    specjax.REWARDS['emitted']()(feedback(2, 4)), [0, 0, 0.25, 0.5]
  )


# What a goal must be told; the token rules sharpen the target.
GOAL_OPTIONS = {
  'mixture': {
    'first': specjax.GOALS['target'](),
    'second': specjax.GOALS['chow'](0.5),
  },
  'target': {},
}


@pytest.mark.parametrize('name', specjax.GOALS)
def test_goal_is_a_distribution(name):
  goal = specjax.GOALS[name](**GOAL_OPTIONS.get(name, {'alpha': 0.25}))
  laws = np.random.default_rng(16).dirichlet(np.full(6, 0.4), size=(2, 100))
  target, draft = laws.astype(np.float32)
  goals = jax.jit(jax.vmap(goal))(target, draft)
  assert (goals.shape, goals.dtype) == ((100, 6), jnp.float32)
  assert (goals >= 0).all()
  np.testing.assert_allclose(goals.sum(1), 1, atol=1e-5)
  if name.startswith('token'):
    return
  # With nothing to choose between the models, there is only one goal.
  np.testing.assert_allclose(jax.vmap(goal)(target, target), target, atol=1e-5)


# What a verifier takes beside the empty tree and chains.
TREES = {
  'batch': [trees.chains(2, 2)],
  'block': [],
  'ensemble': [trees.chains(2, 2), trees.prefix_tree((2, 2))],
  'lossy': [trees.chains(2, 2), trees.prefix_tree((2, 2))],
  'over_acceptance': [trees.chains(2, 2), trees.prefix_tree((2, 2))],
  'tree_walk': [trees.chains(2, 2), trees.prefix_tree((2, 2))],
}


@pytest.mark.parametrize(
  'topology',
  [
    trees.chain(0),
    trees.chain(2),
    trees.chains(2, 2),
    trees.prefix_tree((2, 2)),
  ],
  ids=['empty', 'chain', 'chains', 'prefix tree'],
)
@pytest.mark.parametrize('name', specjax.VERIFIERS)
def test_verifier_outcome_has_the_shapes_of_the_tree(name, topology):
  """Trees that it cannot verify are refused with a sentence."""
  num, vocab_size = topology.num_nodes, 5
  tree = specjax.DraftTree(
    tokens=jnp.zeros(num, jnp.int32),
    topology=topology,
    valid=jnp.ones(num, bool),
    probs=jnp.full((num, vocab_size), 0.2),
  )
  target_probs = jnp.full((num + 1, vocab_size), 0.2)
  verify = lambda: jax.eval_shape(
    specjax.VERIFIERS[name](), jax.random.key(0), tree, target_probs
  )
  if topology not in [trees.chain(0), trees.chain(2), *TREES[name]]:
    with pytest.raises(ValueError, match='needs (a chain|chains)'):
      verify()
    return
  outcome = verify()
  assert outcome.path.shape == (topology.depth,)
  assert outcome.num_accepted.shape == ()
  assert outcome.tokens.shape == (topology.depth + 1,)
  assert all(leaf.dtype == jnp.int32 for leaf in outcome)
