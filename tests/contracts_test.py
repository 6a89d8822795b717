"""What every component keeps, by its name in a table alone.

A component is one file and one line in a table. A contract builds it with what
all of its kind are given here, by the names of parameters, and with the example
that stands with the component (see `registry.component`). Broken twins must
fail.
"""

import dataclasses
import functools
import importlib
import inspect
import itertools
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import evaluation
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import stateless
from specjax.evaluation import scoring
from tests import distributions

TABLES = {
  'bandit': specjax.BANDITS,
  'coupling': specjax.COUPLINGS,
  'drafter': specjax.DRAFTERS,
  'goal': specjax.GOALS,
  'metric': evaluation.METRICS,
  'model': specjax.MODELS,
  'reward': specjax.REWARDS,
  'verifier': specjax.VERIFIERS,
}
# Couplings are functions, and no program depends on a metric.
VALUES = sorted(set(TABLES) - {'coupling', 'metric'})

MARKOV = specjax.MODELS['markov'](3)
TREE = trees.prefix_tree((2, 2))

# What all components of a kind are given, by the names of parameters.
GIVEN = {
  'bandit': {'num_arms': 3},
  'drafter': {
    'model': MARKOV,
    'topology': TREE,
    'draft_length': TREE.depth,
    'sampling': sampling_lib.Sampling(),
    'drafters': [specjax.DRAFTERS['autoregressive'](MARKOV, TREE)] * 2,
  },
  'reward': {'costs': [0.25], 'catch_up_costs': [0.1], 'depths': [4]},
}


def named(function, values):
  """Those of the values that a function has parameters for."""
  names = inspect.signature(function).parameters
  return {name: value for name, value in values.items() if name in names}


def arguments(kind, name, **given):
  """What a component is built with."""
  factory = TABLES[kind][name]
  chosen = named(factory, GIVEN.get(kind, {}) | given)
  chosen |= getattr(factory, 'example', {})
  try:
    inspect.signature(factory).bind(**chosen)
  except TypeError as error:
    raise AssertionError(f'The example of {name}: {error}.') from error
  return chosen


def build(kind, name, **given):
  return TABLES[kind][name](**arguments(kind, name, **given))


def params_of(kind, name):
  """Parameters of what `build` returns."""
  make = TABLES[kind][name].params
  if make is None:
    return table()
  known = arguments(kind, name) | {'model_params': table()}
  return make(**named(make, known))


def table():
  """Parameters of `MARKOV`."""
  return jnp.asarray(
    distributions.random_table(np.random.default_rng(18), 3, 3)
  )


def abstract(tree):
  """Shapes and types of the leaves, and how they hang together."""
  return jax.tree.map(
    lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), tree
  )


def check_keeps(before, after, what):
  """A loop carries a state of one shape and type."""
  assert abstract(after) == abstract(before), f'{what} must keep the state'


# The contracts.


def check_bandit(name):
  """A loop can carry the state; arms are in range; extras are ignored."""
  for num_arms in (1, 3):
    bandit = build('bandit', name, num_arms=num_arms)
    assert bandit.num_arms == num_arms, 'as many arms as asked for'
    state = bandit.init()
    arm = jax.eval_shape(bandit.select, jax.random.key(0), state)
    assert abstract(arm) == ((), jnp.int32), 'an arm is a scalar'
    check_updates(bandit, state, arm)
    check_arms(bandit, state)


def check_updates(bandit, state, arm):
  rewards = jnp.linspace(0, 1, bandit.num_arms)
  for extra in ({}, {'not_a_known_extra': jnp.ones(bandit.num_arms)}):
    update = functools.partial(bandit.update, rewards=rewards, **extra)
    after = jax.eval_shape(update, state, arm, jnp.float32(0.5))
    check_keeps(state, after, 'update')
  after = jax.eval_shape(bandit.update_all, state, rewards)
  check_keeps(state, after, 'update_all')


def check_arms(bandit, state):
  def step(state, key):
    arm = bandit.select(key, state)
    rewards = jax.random.uniform(key, (bandit.num_arms,))
    return bandit.update(state, arm, rewards[arm], rewards=rewards), arm

  keys = jax.random.split(jax.random.key(15), 20)
  _, arms = jax.lax.scan(step, state, keys)
  inside = (0 <= arms) & (arms < bandit.num_arms)
  assert inside.all(), 'arms must be those of the bandit'


def check_coupling(name):
  """Types, jit, vmap; accepted exactly where an active candidate is picked."""
  coupling = TABLES['coupling'][name]
  for num_candidates in (1, 3):
    cases = instances(num_candidates)
    tokens, accepted = jax.jit(jax.vmap(coupling))(*cases)
    assert abstract(tokens) == ((400,), jnp.int32), 'a token is a scalar'
    assert abstract(accepted) == ((400,), jnp.bool_), 'accepted is a scalar'
    _, candidates, active, _, target = cases
    picked = (active & (candidates == tokens[:, None])).any(1)
    assert (accepted == picked).all(), 'accepted must be what was picked'
    mass = np.take_along_axis(target, tokens[:, None], 1)
    assert (mass > 0).all(), 'tokens must be possible'
    single = jax.jit(coupling)
    for i in range(5):
      token, kept = single(*(each[i] for each in cases))
      assert (token, kept) == (tokens[i], accepted[i])
      assert token.shape == kept.shape == ()


def instances(num_candidates, size=400, vocab_size=5):
  """Random arguments of a coupling, one case a row."""
  rng = np.random.default_rng(6)
  draft, target = rng.dirichlet(np.full(vocab_size, 0.5), size=(2, size))
  # Some tokens are impossible.
  target[::2] *= target[::2] > target[::2].min(axis=1, keepdims=True)
  target /= target.sum(axis=1, keepdims=True)
  candidates = rng.integers(vocab_size, size=(size, num_candidates))
  return (
    jax.random.split(jax.random.key(7), size),
    jnp.asarray(candidates, jnp.int32),
    jnp.asarray(rng.random((size, num_candidates)) < 0.6),
    jnp.asarray(draft, jnp.float32),
    jnp.asarray(target, jnp.float32),
  )


ROWS, NUM_COMMITTED = 3, 2


def check_drafter(name):
  """Shapes and types of the tree, and a state that a loop can carry."""
  drafter, params = build('drafter', name), params_of('drafter', name)
  turn = jax.jit(functools.partial(turn_of, drafter))
  keys = jax.random.split(jax.random.key(0), ROWS)
  tree, before, committed, reads, estimated = turn(keys, params, contexts())
  check_tree(drafter, tree)
  check_keeps(before, committed, 'commit')
  for state, num_tokens in reads:
    check_read(before, state, num_tokens, 'catch_up')
  # Nobody asks a drafter for it that can be behind its own rounds.
  needed = drafter.catch_up is None or not drafter.catch_up.every_round
  assert not needed or estimated is not None, 'an estimate is asked for'
  if estimated is not None:
    state, num_tokens, acceptance = estimated
    check_read(before, state, num_tokens, 'estimate')
    check_acceptance(acceptance)
  assert drafter.num_calls >= 0
  hash(drafter.slot)
  # A row's draft is a matter of its text and key alone: not of its neighbours,
  # nor of the junk behind its text.
  turned = contexts(junk=1, order=slice(None, None, -1))
  other, *_ = turn(keys[::-1], params, turned)
  for one, two in zip(jax.tree.leaves(tree), jax.tree.leaves(other)):
    np.testing.assert_allclose(
      one,
      two[::-1],
      atol=1e-6,
      err_msg='a row must not depend on others or on junk',
    )


def turn_of(drafter, keys, params, context):
  """A tree; the state before and behind it, and what can be read instead."""
  state = drafter.init(params, context, 16)
  depth, every = drafter.topology.depth, jnp.ones(ROWS, bool)
  tree, proposal = drafter.draft(keys, params, state, context)
  outcome = specjax.Outcome(
    path=jnp.zeros((ROWS, depth), jnp.int32),
    num_accepted=jnp.zeros(ROWS, jnp.int32),
    tokens=jnp.zeros((ROWS, depth + 1), jnp.int32),
  )
  committed = drafter.commit(state, proposal, context, outcome, every)
  # Others have committed nothing, and then two tokens.
  longer = context._replace(lengths=context.lengths + NUM_COMMITTED)
  reads, estimated = [], None
  if drafter.catch_up is not None:
    read = functools.partial(drafter.catch_up.read, params, state)
    reads = [read(each, every) for each in (context, longer)]
  if drafter.estimate is not None:
    shape = ROWS, NUM_COMMITTED, 3
    probs = jax.nn.softmax(jax.random.normal(jax.random.key(1), shape))
    target = base.TargetProbs(context.lengths, base.Probs(probs, probs))
    estimated = drafter.estimate(params, state, longer, every, target)
  return tree, state, committed, reads, estimated


def contexts(junk=0, order=slice(None)):
  """Rows of 1, 2 and 3 tokens."""
  tokens = np.random.default_rng(19).integers(3, size=(ROWS, 16))
  lengths = np.arange(ROWS) + 1
  behind = np.arange(16) >= lengths[:, None]
  tokens = np.where(behind, (tokens + junk) % 3, tokens)
  return specjax.Context(
    jnp.asarray(tokens[order], jnp.int32), jnp.asarray(lengths[order])
  )


def check_tree(drafter, tree):
  """Shapes, types, and distributions where something was proposed."""
  topology = drafter.topology
  shape = ROWS, topology.num_nodes
  assert tree.topology == topology
  assert abstract(tree.tokens) == (shape, jnp.int32), 'tokens of each node'
  assert abstract(tree.valid) == (shape, jnp.bool_), 'valid of each node'
  assert ((0 <= tree.tokens) & (tree.tokens < 3)).all(), 'of the vocabulary'
  if tree.probs is None:
    assert tree.bonus_probs is None
    return
  assert drafter.vocab_size == 3
  for probs in tree.both_probs:
    check_probs(probs, tree.valid)
  drawn = jnp.pad(tree.valid, ((0, 0), (1, 0)), constant_values=True)
  for probs in tree.bonus_probs or ():
    check_probs(probs, drawn[:, topology.leaf_entries])


def check_probs(probs, valid):
  wanted = (*valid.shape, 3), jnp.float32
  assert abstract(probs) == wanted, 'a distribution of each'
  sums = np.where(valid, probs.sum(-1), 1)
  np.testing.assert_allclose(
    sums, 1, atol=1e-6, err_msg='distributions must have mass 1'
  )


def check_read(before, state, num_tokens, what):
  """The state behind what others committed, and how much of it was read."""
  check_keeps(before, state, what)
  assert abstract(num_tokens) == ((ROWS,), jnp.int32), 'a number of each row'


def check_acceptance(acceptance):
  """How likely drafts would have been accepted where others committed."""
  for chances in base.Probs(*acceptance):
    assert abstract(chances) == ((ROWS, NUM_COMMITTED), jnp.float32)
    inside = (0 <= chances) & (chances <= 1 + 1e-6)
    assert inside.all(), 'an acceptance is a probability'


def check_goal(name):
  """A distribution for any two, also of an example that JAX traces."""
  chosen = arguments('goal', name)
  target, draft = pairs()

  def made(**traced):
    goal = TABLES['goal'][name](**chosen | traced)
    return jax.vmap(goal)(target, draft)

  goals = jax.jit(made)()
  assert abstract(goals) == ((100, 6), jnp.float32), 'a goal is a distribution'
  assert (goals >= 0).all(), 'mass must be >= 0'
  np.testing.assert_allclose(
    goals.sum(1), 1, atol=1e-5, err_msg='goals must have mass 1'
  )
  numbers = {key: x for key, x in chosen.items() if isinstance(x, float)}
  with jax.checking_leaks():
    trace = jax.jit(made)
    for _ in range(2):
      np.testing.assert_allclose(trace(**numbers), goals, atol=1e-6)


def pairs():
  """`[100, V]` probabilities of target and draft."""
  made = np.random.default_rng(16).dirichlet(np.full(6, 0.4), size=(2, 100))
  return made.astype(np.float32)


def check_metric(name):
  """Percents: 100 for texts that are equal, less where one is not."""
  metric = build('metric', name)
  texts = ['He paid 3 for all of the chairs.', 'She sold 12 of them at noon.']
  for predictions, low, high in (
    (texts, 100, 100),
    ([texts[0], 'no'], 0, 99),
  ):
    scores = metric(predictions, texts)
    assert isinstance(scores.total, float)
    assert (scores.each.shape, scores.each.dtype) == ((2,), np.float64)
    for score in (scores.total, scores.each.mean()):
      assert low - 1e-6 <= score <= high + 1e-6, 'scores are percents'


# Two texts of which 3 and 5 tokens are the prompts.
LENGTHS = jnp.array([3, 5])
# The texts go on with the second chain; the first one is junk.
CHAINS = trees.chains(2, 2)


def check_model(name):
  """What follows a token is said alike, however the text was read."""
  model, params = build('model', name), params_of('model', name)
  tokens = texts(model)
  read = jax.jit(functools.partial(ways_to_read, model))(params, tokens)
  logits = read['at once']
  assert abstract(logits) == ((2, 4, model.vocab_size), jnp.float32), 'logits'
  for way, parts in (
    ('one by one', logits),
    ('behind pending tokens', logits),
    ('as a tree', logits[:, :3]),
    ('behind a path', np.stack([logits[0, 3], logits[1, 1]])[:, None]),
    ('rolled back', logits),
  ):
    np.testing.assert_allclose(read[way], parts, atol=1e-5, err_msg=way)


def texts(model):
  """`[2, 12]`; prompts of an encoder-decoder end with its mark."""
  made = np.random.default_rng(3).integers(model.vocab_size, size=(2, 12))
  if model.start_id is not None:
    other = (model.start_id + 1) % model.vocab_size
    made = np.where(made == model.start_id, other, made)
    made[[0, 1], LENGTHS - 1] = model.start_id
  return jnp.asarray(made, jnp.int32)


def behind(tokens, lengths, num):
  places = lengths[:, None] + np.arange(num)[None]
  return jnp.take_along_axis(tokens, places, axis=1)


def ways_to_read(model, params, tokens):
  """Logits of the four tokens behind the prompts, or of some of them."""
  true = behind(tokens, LENGTHS, 4)
  empty = model.init_cache(params, 2, 16)
  cache, features = model.prefill(params, empty, tokens, LENGTHS)
  check_features(model, features, tokens.shape)
  once = model.extend(params, cache, true)
  check_features(model, once.features, true.shape)
  first = model.extend(params, cache, true[:, :2])
  then = model.extend(params, cache, true[:, 2:], pending=first.pending)
  tree = read_tree(model, params, cache, true)
  # Entries of the second chain: three for one row, one for the other.
  path, num = np.array([[0, 2, 4]] * 2), np.array([3, 1], np.int32)
  longer = model.commit(cache, tree.pending, path, num)
  check_keeps(cache, longer, 'commit')
  back = model.rollback(longer, LENGTHS)
  check_keeps(cache, back, 'rollback')
  last = behind(tokens, LENGTHS + num, 1)
  joined = jnp.concatenate([first.logits, then.logits], axis=1)
  return {
    'at once': once.logits,
    'one by one': one_by_one(model, params, cache, true),
    'behind pending tokens': joined,
    'as a tree': tree.logits[:, path[0]],
    'behind a path': model.extend(params, longer, last).logits,
    'rolled back': model.extend(params, back, true).logits,
  }


def check_features(model, features, shape):
  """Of every token, as many numbers as the model names."""
  wanted = [(*shape, size) for size in model.feature_sizes]
  assert list(map(jnp.shape, features)) == wanted, 'features have their sizes'


def read_tree(model, params, cache, true):
  """Reads the root and two chains, of which the second one is the text."""
  junk = (true[:, 1:3] + 1) % model.vocab_size
  nodes = jnp.stack([junk, true[:, 1:3]], axis=2).reshape(2, 4)
  return model.extend(
    params,
    cache,
    jnp.concatenate([true[:, :1], nodes], axis=1),
    positions=LENGTHS[:, None] + CHAINS.offsets[None],
    mask=CHAINS.mask,
  )


def one_by_one(model, params, cache, true):
  logits = []
  for at in range(true.shape[1]):
    extension = model.extend(params, cache, true[:, at : at + 1])
    path, num = np.zeros((2, 1), np.int32), np.ones(2, np.int32)
    cache = model.commit(cache, extension.pending, path, num)
    logits.append(extension.logits)
  return jnp.concatenate(logits, axis=1)


def check_reward(name):
  """In the unit interval, for arms of any depth among others."""
  depths = ((0, 0), (0, 4), (2, 4), (4, 4))
  # Tokens are counted, or their number is an estimate.
  for (depth, deepest), number in itertools.product(depths, (int, float)):
    reward = build('reward', name, depths=[depth])
    rewards = reward(info(depth, deepest, number))
    assert rewards.shape == (depth + 2,), 'a reward of each row'
    assert jnp.issubdtype(rewards.dtype, jnp.floating)
    inside = (0 <= rewards) & (rewards <= 1)
    assert inside.all(), 'rewards must lie in [0, 1]'


def info(depth, deepest, number=float):
  """Rows that emitted 0 (done), 1, ... `depth + 1` tokens."""
  emitted = jnp.arange(depth + 2, dtype=jnp.int32)
  return specjax.RoundInfo(
    arm=jnp.zeros_like(emitted),
    live=emitted > 0,
    tokens=jnp.zeros((depth + 2, deepest + 1), jnp.int32),
    num_emitted=emitted.astype(number),
    num_accepted=jnp.maximum(emitted - 1, 0),
    depth=jnp.full_like(emitted, depth),
    tree_depth=jnp.full_like(emitted, depth),
    acceptance=jnp.linspace(0, 1, depth + 2),
    raw_acceptance=jnp.linspace(1, 0, depth + 2),
    fidelity=jnp.linspace(1, 0, depth + 2),
    num_catch_up_tokens=emitted,
  )


def check_verifier(name):
  """Any chain is verified, and what it names; all else may be refused."""
  named_ones = TABLES['verifier'][name].topologies
  taken = [trees.chain(0), trees.chain(2), *(named_ones or [])]
  tried = [*taken, trees.chains(2, 2), trees.prefix_tree((2, 2))]
  for topology in dict.fromkeys(tried):
    tree, target_probs = drafted(topology)
    keys = jax.random.split(jax.random.key(0), NUM_TREES)
    verify = jax.jit(jax.vmap(build('verifier', name)))
    try:
      outcome = verify(keys, tree, target_probs)
    except ValueError as error:
      assert topology not in taken, f'{topology} must be taken'
      end = f'got a tree with parents {topology.parents}.'
      assert str(error).endswith(end), f'a refusal is a sentence, "... {end}"'
      continue
    known = named_ones is None or topology in taken
    assert known, f'{topology} must be refused, or be one of its topologies'
    check_outcome(tree, jax.device_get(outcome))


NUM_TREES, NUM_TOKENS = 64, 5


def drafted(topology):
  """Trees of which a tenth of the nodes is not valid, and target_probs."""
  num, rng = topology.num_nodes, np.random.default_rng(4)
  shape = NUM_TREES, num + 1
  draft, target = rng.dirichlet(np.ones(NUM_TOKENS), size=(2, *shape))
  parents = np.array(topology.parents, np.int32) + 1
  tree = specjax.DraftTree(
    tokens=jnp.asarray(rng.integers(NUM_TOKENS, size=(NUM_TREES, num))),
    topology=topology,
    valid=jnp.asarray(rng.random((NUM_TREES, num)) < 0.9),
    probs=jnp.asarray(draft[:, parents], jnp.float32),
  )
  return tree, jnp.asarray(target, jnp.float32)


def check_outcome(tree, outcome):
  """Shapes and types; the path spells what was kept, down from the root."""
  topology = tree.topology
  shapes = (topology.depth,), (), (topology.depth + 1,)
  for leaf, shape in zip(outcome, shapes, strict=True):
    wanted = (NUM_TREES, *shape), jnp.int32
    assert abstract(leaf) == wanted, 'outcomes are as deep as the tree'
  tokens, valid = np.asarray(tree.tokens), np.asarray(tree.valid)
  for row, (path, num, emitted) in enumerate(zip(*outcome)):
    assert 0 <= num <= topology.depth
    assert ((0 <= emitted) & (emitted < NUM_TOKENS))[: num + 1].all()
    for level, node in enumerate(path[:num]):
      line = np.flatnonzero(topology.mask[node + 1])[1:] - 1
      assert valid[row, line].all(), 'kept nodes must be valid'
      spelled = tokens[row, line].tolist() == emitted[: level + 1].tolist()
      assert spelled, 'a path must spell what is emitted'


def check_value(kind, name):
  """Equal arguments, however they are written, give one object."""
  factory, chosen = TABLES[kind][name], arguments(kind, name)
  decorated = hasattr(factory, 'example')
  assert decorated, 'factories are decorated with registry.component'
  component = factory(**chosen)
  bound = inspect.signature(factory).bind(**chosen)
  bound.apply_defaults()
  assert factory(*bound.args, **bound.kwargs) is component, 'one object'
  for key, value in bound.arguments.items():
    for spelled in spellings(value):
      again = factory(**chosen | {key: spelled})
      assert again is component, 'equal arguments give one object'
      assert hash(again) == hash(component)
    another = first_built(factory, chosen, key, value)
    assert another != component, f'{key} makes another component'
    if isinstance(value, float):
      check_traced(factory, chosen, key, value)


def spellings(value):
  """One value, written in several ways."""
  if isinstance(value, float):
    return [value, np.float64(value)]
  if not isinstance(value, list):
    return []
  numbers = isinstance(value[0], int | float)
  return [[*value], tuple(value), *([np.array(value)] if numbers else [])]


def first_built(factory, chosen, key, value):
  """A component that differs in one argument; None if none can be built."""
  for change in changes(value):
    try:
      return factory(**chosen | {key: change})
    except ValueError:  # Out of range.
      continue
  return None


def changes(value):
  """Values like this one, of which some may be out of range."""
  if isinstance(value, bool):
    yield not value
  elif isinstance(value, int):
    yield from (value + 1, value - 1)
  elif isinstance(value, float):
    yield from (value + 0.01, value - 0.01)
  elif isinstance(value, trees.Topology):
    yield trees.chain(3)
  elif dataclasses.is_dataclass(value):
    for field in dataclasses.fields(value):
      for change in changes(getattr(value, field.name)):
        yield dataclasses.replace(value, **{field.name: change})
  elif isinstance(value, base.LanguageModel):
    yield specjax.MODELS['markov'](4)
  elif isinstance(value, list):
    yield [*value, *value]
    yield from ([*value[1:], change] for change in changes(value[0]))


def check_traced(factory, chosen, key, value):
  """Nothing is kept of a value that JAX traces, if it can be one at all."""

  def trace(number):
    once, again = (factory(**chosen | {key: number}) for _ in range(2))
    assert once is not again, 'what is traced is not remembered'
    return number

  must_be_known = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
  )
  with jax.checking_leaks():
    traced = jax.jit(trace)
    try:
      traced(value)
      traced(value)
    except must_be_known:
      pass


CONTRACTS = {
  'bandit': check_bandit,
  'coupling': check_coupling,
  'drafter': check_drafter,
  'goal': check_goal,
  'metric': check_metric,
  'model': check_model,
  'reward': check_reward,
  'verifier': check_verifier,
}


def check(kind, name):
  """All that a row of a table has to keep."""
  entry = registry.lookup(TABLES[kind], kind, name)
  assert entry is TABLES[kind][name]
  assert callable(entry) and inspect.getdoc(entry), 'entries are documented'
  CONTRACTS[kind](name)
  if kind in VALUES:
    check_value(kind, name)


@pytest.mark.parametrize(
  ('kind', 'name'),
  [(kind, name) for kind, table in TABLES.items() for name in table],
)
def test_contract(kind, name):
  check(kind, name)


@pytest.mark.parametrize('kind', TABLES)
def test_unknown_name_raises_with_all_known_names(kind):
  table = TABLES[kind]
  with pytest.raises(ValueError) as error:
    registry.lookup(table, kind, 'nope')
  message = str(error.value)
  assert message.startswith(f"Unknown {kind} 'nope'. Known: ")
  assert message.split('Known: ')[1].rstrip('.').split(', ') == sorted(table)


# The room of each table, of which its components are names, too.
ROOMS = {
  'bandit': specjax.bandits,
  'coupling': specjax.couplings,
  'drafter': specjax.drafters,
  'goal': specjax.goals,
  'metric': evaluation,
  'model': specjax.models,
  'reward': specjax.rewards,
  'verifier': specjax.verifiers,
}
PACKAGES = [
  'specjax',
  *(
    module.name
    for module in pkgutil.iter_modules(specjax.__path__, 'specjax.')
    if module.ispkg
  ),
]


@pytest.mark.parametrize('kind', TABLES)
def test_a_component_is_a_name_of_its_room(kind):
  """Even where a module has the same name, whatever is imported first."""
  room = ROOMS[kind]
  for module in pkgutil.iter_modules(getattr(room, '__path__', [])):
    importlib.import_module(f'{room.__name__}.{module.name}')
  for name, component in TABLES[kind].items():
    assert getattr(room, name) is component
    # A room that is one module has no list of names.
    assert name in getattr(room, '__all__', TABLES[kind])


@pytest.mark.parametrize('name', PACKAGES)
def test_a_package_has_the_names_that_it_lists(name):
  package = importlib.import_module(name)
  assert len(set(package.__all__)) == len(package.__all__)
  assert all(hasattr(package, each) for each in package.__all__)


# One file and one line: new components, as somebody else would write them.


@registry.component
def patient(num_arms):
  """The bandit that changes arms where a round has earned nothing."""

  def update(state, arm, reward, **extra):
    return jnp.where(reward > 0, arm, (arm + 1) % num_arms)

  return base.Bandit(
    num_arms,
    init=lambda: jnp.int32(0),
    select=lambda key, state: state,
    update=update,
    update_all=lambda state, rewards: jnp.argmax(rewards).astype(jnp.int32),
  )


def naive(key, candidates, active, draft, target):
  """The coupling that draws from the target, whatever the candidates are."""
  num = sampling_lib.num_uniforms(target.size)
  token = sampling_lib.draw(jax.random.uniform(key, (num,)), target)
  return token, (active & (candidates == token)).any()


@registry.component(example={'step': 1}, params=lambda step: jnp.int32(step))
def counting(draft_length, step):
  """The drafter that counts on from the last token; params are another step."""

  def propose(params, context):
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)
    steps = (step + params) * (np.arange(draft_length)[None] + 1)
    tokens = (last + steps) % 3
    return tokens, jnp.ones_like(tokens, bool)

  return stateless.stateless(trees.chain(draft_length), propose)


@registry.component(example={'share': 0.25})
def blend(share):
  """The goal that is a mixture of both distributions."""
  return lambda target, draft, raw=None: (1 - share) * target + share * draft


def equal():
  """The metric of texts that are equal to the letter."""
  return scoring.mean(lambda prediction, reference: prediction == reference)


@registry.component(
  example={'vocab_size': 4},
  params=lambda vocab_size: jax.random.normal(
    jax.random.key(0), (9, vocab_size)
  ),
)
def unigram(vocab_size):
  """The model that looks at a token's place alone; params are its logits."""
  markov = specjax.MODELS['markov'](vocab_size)

  def table(params):
    rows = jax.nn.softmax(params)[:, None]
    return jnp.broadcast_to(rows, (len(params), vocab_size, vocab_size))

  return markov._replace(
    init_cache=lambda params, *args: markov.init_cache(table(params), *args),
    extend=lambda params, *args, **options: markov.extend(
      table(params), *args, **options
    ),
  )


@registry.component(example={'power': 2.0})
def steep(power, depths):
  """The reward of emitted tokens, of which many are worth more."""
  most = max(depths) + 1
  return lambda info: (info.num_emitted / most) ** power


@registry.component
def careful():
  """The verifier that keeps the first draft token at most."""
  walk = specjax.VERIFIERS['tree_walk']()
  chain = trees.chain(1)

  def verify(key, tree, target_probs):
    topology = tree.topology
    if topology != trees.chain(topology.num_nodes):
      raise ValueError(
        f'A chain is needed, got a tree with parents {topology.parents}.'
      )
    if not topology.depth:
      return walk(key, tree, target_probs)
    first = jax.tree.map(lambda leaf: leaf[:1], tree)._replace(topology=chain)
    made = walk(key, first, target_probs[:2])
    longer = lambda leaf: jnp.pad(leaf, (0, topology.depth - 1))
    return base.Outcome(
      longer(made.path), made.num_accepted, longer(made.tokens)
    )

  return verify


NEW = {
  'bandit': patient,
  'coupling': naive,
  'drafter': counting,
  'goal': blend,
  'metric': equal,
  'model': unigram,
  'reward': steep,
  'verifier': careful,
}


@pytest.mark.parametrize('kind', TABLES)
def test_a_line_in_a_table_is_enough(kind, monkeypatch):
  monkeypatch.setitem(TABLES[kind], 'new', NEW[kind])
  check(kind, 'new')


def test_an_example_that_lacks_an_argument_is_named(monkeypatch):
  @registry.component
  def lacking(draft_length, width):
    """Never built."""

  monkeypatch.setitem(TABLES['drafter'], 'new', lacking)
  words = "example of new: missing a required argument: 'width'"
  with pytest.raises(AssertionError, match=words):
    check('drafter', 'new')


def twin(kind, change):
  """What `NEW` has, but that a change is made to what was built."""
  factory = NEW[kind]
  if kind == 'coupling':
    return functools.wraps(factory)(change(factory))

  @functools.wraps(factory)
  def build(*args, **kwargs):
    return change(factory(*args, **kwargs))

  if kind == 'metric':
    return build
  return registry.component(
    build, example=factory.example, params=factory.params
  )


def picking(pick):
  """Breaks what a coupling returns."""
  return lambda coupling: (
    lambda key, candidates, active, draft, target: pick(
      *coupling(key, candidates, active, draft, target), target
    )
  )


def drafting(change):
  """Breaks the trees of a drafter, which may look at the context."""

  def broken(drafter):
    def draft(keys, params, state, context):
      tree, proposal = drafter.draft(keys, params, state, context)
      return change(tree, context), proposal

    return drafter._replace(draft=draft)

  return broken


def looking_at_junk(tree, context):
  junk = jnp.take_along_axis(context.tokens, context.lengths[:, None], axis=1)
  return tree._replace(tokens=tree.tokens * 0 + junk)


def of_mass(mass):
  """A drafter that reports distributions of a mass."""

  def change(tree, context):
    del context
    probs = mass * jax.nn.one_hot(tree.tokens, 3)
    return tree._replace(probs=probs)

  return lambda drafter: drafting(change)(drafter)._replace(vocab_size=3)


def doubled(estimate):
  """Breaks how likely a drafter says that its drafts are accepted."""

  def estimating(*args):
    state, num_tokens, acceptance = estimate(*args)
    return state, num_tokens, jax.tree.map(lambda each: 2 * each, acceptance)

  return estimating


def reading(change):
  """Breaks the arguments with which a model is asked to read."""
  return lambda model: model._replace(
    extend=lambda *args, **options: model.extend(*args, **change(options))
  )


def verifying(change):
  """Breaks the outcomes of a verifier."""
  return lambda verifier: lambda *args: change(verifier(*args))


def refusing(words, taken=lambda topology: not topology.num_nodes):
  """A verifier that takes some trees alone: by default, the empty one."""

  def broken(verifier):
    def verify(key, tree, target_probs):
      if not taken(tree.topology):
        raise ValueError(words)
      return verifier(key, tree, target_probs)

    return verify

  return broken


def all_valid(verifier):
  return lambda key, tree, target_probs: verifier(
    key, tree._replace(valid=jnp.ones_like(tree.valid)), target_probs
  )


# Of each kind what is broken, by what the contract says of it.
BROKEN = {
  ('bandit', 'arms must be those'): lambda bandit: bandit._replace(
    select=lambda key, state: jnp.int32(bandit.num_arms)
  ),
  ('bandit', 'an arm is a scalar'): lambda bandit: bandit._replace(
    select=lambda key, state: jnp.float32(0)
  ),
  ('bandit', 'as many arms'): lambda bandit: bandit._replace(num_arms=2),
  ('bandit', 'update must keep'): lambda bandit: bandit._replace(
    update=lambda state, arm, reward, **extra: jnp.append(state, arm)
  ),
  ('bandit', 'update_all must keep'): lambda bandit: bandit._replace(
    update_all=lambda state, rewards: rewards.max()
  ),
  ('coupling', 'accepted must be'): picking(
    lambda token, accepted, target: (token, True | accepted)
  ),
  ('coupling', 'accepted must be what'): picking(
    lambda token, accepted, target: (token, False & accepted)
  ),
  ('coupling', 'tokens must be possible'): lambda coupling: (
    lambda key, candidates, active, draft, target: coupling(
      key, candidates, active, draft, jnp.float32(target == target.min())
    )
  ),
  ('coupling', 'a token is a scalar'): picking(
    lambda token, accepted, target: (token[None], accepted)
  ),
  ('drafter', 'tokens of each node'): drafting(
    lambda tree, context: tree._replace(tokens=tree.tokens[:, 1:])
  ),
  ('drafter', 'valid of each node'): drafting(
    lambda tree, context: tree._replace(valid=tree.tokens)
  ),
  ('drafter', 'of the vocabulary'): drafting(
    lambda tree, context: tree._replace(tokens=tree.tokens + 1)
  ),
  ('drafter', 'distributions must have mass 1'): of_mass(0.5),
  ('drafter', 'a row must not depend'): drafting(
    lambda tree, context: tree._replace(tokens=jnp.roll(tree.tokens, 1, 0))
  ),
  ('drafter', 'depend on others or on junk'): drafting(looking_at_junk),
  ('drafter', 'commit must keep'): lambda drafter: drafter._replace(
    commit=lambda state, proposal, *args: (proposal, 1)
  ),
  ('drafter', 'an estimate is asked for'): lambda drafter: drafter._replace(
    estimate=None
  ),
  ('drafter', 'an acceptance is a probability'): lambda drafter: (
    drafter._replace(estimate=doubled(drafter.estimate))
  ),
  ('drafter', 'estimate must keep'): lambda drafter: drafter._replace(
    estimate=lambda *args: (args, *drafter.estimate(*args)[1:])
  ),
  ('goal', 'goals must have mass 1'): lambda goal: lambda *two: 2 * goal(*two),
  ('goal', 'mass must be >= 0'): lambda goal: (
    lambda target, draft: 2 * target - draft
  ),
  ('goal', 'a goal is a distribution'): lambda goal: (
    lambda *two: goal(*two).sum()
  ),
  ('metric', 'scores are percents'): lambda metric: metric._replace(
    total=lambda sums: sums[0] / sums[1]
  ),
  ('model', 'logits'): lambda model: model._replace(vocab_size=3),
  ('model', 'one by one'): lambda model: model._replace(
    commit=lambda cache, *args: cache
  ),
  ('model', 'behind pending tokens'): reading(
    lambda options: options | {'pending': None}
  ),
  ('model', 'as a tree'): reading(
    lambda options: options | {'positions': None}
  ),
  ('model', 'behind a path'): lambda model: model._replace(
    commit=lambda cache, pending, path, num: model.commit(
      cache, pending, path, jnp.full_like(num, path.shape[1])
    )
  ),
  ('model', 'rolled back'): lambda model: model._replace(
    rollback=lambda cache, lengths: cache
  ),
  ('model', 'commit must keep'): lambda model: model._replace(
    commit=lambda *args: model.commit(*args).replace(lengths=args[1])
  ),
  ('model', 'features have their sizes'): lambda model: model._replace(
    feature_sizes=(3,)
  ),
  ('reward', 'rewards must lie'): lambda reward: (
    lambda info: 1.01 * reward(info)
  ),
  ('reward', r'rewards must lie in \[0, 1\]'): lambda reward: (
    lambda info: reward(info) / info.tree_depth.astype(jnp.float32)
  ),
  ('reward', 'a reward of each row'): lambda reward: (
    lambda info: reward(info).max()
  ),
  ('verifier', 'as deep as the tree'): verifying(
    lambda outcome: outcome._replace(tokens=outcome.path)
  ),
  ('verifier', 'kept nodes must be valid'): all_valid,
  ('verifier', 'a path must spell'): verifying(
    lambda outcome: outcome._replace(tokens=(outcome.tokens + 1) % NUM_TOKENS)
  ),
  ('verifier', 'must be taken'): refusing('It needs the empty tree.'),
  ('verifier', 'a refusal is a sentence'): refusing(
    'bad tree', lambda topology: len(topology.leaves) < 2
  ),
}


@pytest.mark.parametrize(('kind', 'words'), BROKEN)
def test_check_rejects_what_is_broken(kind, words, monkeypatch):
  monkeypatch.setitem(TABLES[kind], 'new', twin(kind, BROKEN[kind, words]))
  with pytest.raises(AssertionError, match=words):
    check(kind, 'new')


@pytest.mark.parametrize(
  ('verifier', 'topologies', 'words'),
  [
    (careful, [trees.chains(2, 2)], 'must be taken'),
    (specjax.VERIFIERS['tree_walk'], [], 'must be refused, or be one of'),
    (specjax.VERIFIERS['tree_walk'], [trees.chains(2, 2)], 'must be refused'),
  ],
)
def test_check_rejects_a_verifier_that_says_what_is_not_so(
  verifier, topologies, words, monkeypatch
):
  @functools.wraps(verifier)
  def build():
    return verifier()

  build = registry.component(build, topologies=topologies)
  monkeypatch.setitem(TABLES['verifier'], 'new', build)
  with pytest.raises(AssertionError, match=words):
    check('verifier', 'new')


def anew(power=2.0, depths=(4,)):
  """The reward `steep`, another object with each call."""
  reward = steep(power, depths)
  return lambda info: reward(info)


def remembering(key_of):
  """A factory that compares calls by what is not all of their contents.

  What has no key is not remembered.
  """
  built = {}

  @functools.wraps(anew)
  def build(power=2.0, depths=(4,)):
    key, reward = key_of(power, depths), anew(power, depths)
    return reward if key is None else built.setdefault(key, reward)

  build.example = {'depths': [4]}
  return build


def unless_traced(key):
  return lambda power, depths: (
    None if isinstance(power, jax.core.Tracer) else key(power, depths)
  )


FACTORIES = {
  'factories are decorated': anew,
  'one object': remembering(lambda power, depths: None),
  'power makes another': remembering(lambda power, depths: tuple(depths)),
  'depths makes another': remembering(unless_traced(lambda power, _: power)),
  'equal arguments give': remembering(
    unless_traced(lambda power, depths: (power, str(depths)))
  ),
  'what is traced': remembering(lambda power, depths: (str(power), *depths)),
}


@pytest.mark.parametrize('words', FACTORIES)
def test_check_rejects_factories_of_what_is_no_value(words, monkeypatch):
  monkeypatch.setitem(TABLES['reward'], 'new', FACTORIES[words])
  with pytest.raises(AssertionError, match=words):
    check_value('reward', 'new')


# What a component is equal to.


@registry.component
def holder(value, **options):
  """A component that is nothing but its arguments."""
  return lambda: (value, options)


@pytest.mark.parametrize(
  'equals',
  [
    ([0.5, 1.0], (0.5, 1.0), np.array([0.5, 1.0])),
    ([1, 2], (1, 2), np.array([1, 2])),
    ([[1, 2], [3, 4]], ((1, 2), (3, 4)), [(1, 2), np.array([3, 4])]),
    ({'a': 1, 'b': [2]}, {'b': (2,), 'a': 1}),
    (functools.partial(len, [1]), functools.partial(len, (1,))),
    (0.25, np.float64(0.25)),
  ],
  ids=str,
)
def test_equal_values_make_one_component(equals):
  first = holder(equals[0], a=1, b=2)
  assert all(holder(b=2, value=each, a=1) is first for each in equals)


def test_other_values_make_other_components():
  """Also where Python finds them equal, as JAX does not."""
  others = [
    *(1, 1.0, True, np.float32(1), np.int32(1), '1', None),
    *([1], [1.0], [True], [[1]], [1, 1], [], np.zeros((0, 3)), np.ones((1, 1))),
    *(
      np.array([1], np.int8),
      np.array([1.0], np.float32),
      {'a': 1},
      {'a': 1.0},
    ),
    *(base.Probs(1, 1), specjax.Context(1, 1)),
  ]
  made = [holder(each) for each in others]
  assert len(set(made)) == len(others)
  assert [holder(each) for each in others] == made


def closing_over(number):
  """Functions that hold a number, each in another way."""
  whole = {'number': [number]}

  def later():
    return later, whole

  return [
    lambda: number,
    lambda number=number: number,
    lambda *, number=number: number,
    functools.partial(lambda number: number, number),
    jax.jit(lambda: number),
    lambda: whole,
    later,
    {'nested': [specjax.GOALS['chow'](number)]},
  ]


def test_functions_that_close_over_traced_values_are_not_remembered():
  def trace(number):
    for function in closing_over(number):
      assert holder(function) is not holder(function)
    return number

  for function in closing_over(0.5):
    assert holder(function) is holder(function)
  with jax.checking_leaks():
    traced = jax.jit(trace)
    traced(0.5)
    traced(0.25)


def test_a_function_of_names_without_values_is_remembered():
  def early():
    return late

  assert holder(early) is holder(early)
  late = None


def test_a_mixture_of_traced_goals_leaves_nothing_behind():
  goals = specjax.GOALS
  target, draft = pairs()

  @jax.jit
  def mixed(alpha):
    goal = goals['mixture'](goals['chow'](alpha), goals['target']())
    return jax.vmap(goal)(target, draft)

  with jax.checking_leaks():
    first, again, other = mixed(0.25), mixed(0.25), mixed(0.75)
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()


@pytest.mark.parametrize('name', specjax.BANDITS)
def test_a_bandit_first_built_while_jax_traces_is_of_use_later(name):
  """Arrays that it holds are not values of that trace."""

  @jax.jit
  def trace(number):
    specjax.BANDITS[name](7)
    return number

  with jax.checking_leaks():
    trace(1.0)
  bandit = specjax.BANDITS[name](7)
  assert bandit is specjax.BANDITS[name](7)
  assert 0 <= bandit.select(jax.random.key(0), bandit.init()) < 7


# Of single components.


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


def test_emitted_counts_tokens_beyond_the_first():
  np.testing.assert_allclose(
    specjax.REWARDS['emitted']()(info(2, 4)), [0, 0, 0.25, 0.5]
  )


@pytest.mark.parametrize(
  'name',
  [
    *('bild', 'chow', 'chow_log', 'diff', 'diff_log', 'lossy', 'mixture'),
    *('opt', 'opt_log', 'target'),
  ],
)
def test_with_equal_models_there_is_only_one_goal(name):
  """With nothing to choose between; the token rules sharpen the target."""
  target, _ = pairs()
  goals = jax.vmap(build('goal', name))(target, target)
  np.testing.assert_allclose(goals, target, atol=1e-5)


@pytest.mark.parametrize(
  ('name', 'topology', 'words'),
  [
    ('block', trees.chains(2, 2), 'needs a chain, got a tree with parents'),
    ('block', trees.prefix_tree((2, 2)), 'needs a chain, got a tree'),
    ('batch', trees.prefix_tree((2, 2)), 'needs chains from the root, got'),
  ],
)
def test_a_verifier_says_which_trees_it_needs(name, topology, words):
  tree, target_probs = drafted(topology)
  verify = jax.vmap(specjax.VERIFIERS[name]())
  keys = jax.random.split(jax.random.key(0), NUM_TREES)
  with pytest.raises(ValueError, match=words):
    jax.eval_shape(verify, keys, tree, target_probs)
