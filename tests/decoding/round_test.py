"""The steps of a round: what is scored and verified, and what is refused."""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import bandits
from specjax import base
from specjax import components
from specjax import decoding
from specjax import drafters
from specjax import metrics
from specjax import trees
from specjax import verifiers
from specjax.goals import apply as goal_lib
from specjax.testing import toys
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import tiers
from tests import twins
from tests.decoding import arms_test
from tests.decoding import results_test
from tests.decoding import state_test

# Trees that end early.


CALLS = []  # The width of each call of the target.


@components.component
class Watched(specjax.models.ModelWrapper):
  """A model that appends the widths of its calls to `CALLS`."""

  def extend(self, params, cache, tokens, **options):
    width = tokens.shape[1]
    jax.debug.callback(lambda: CALLS.append(width))
    return self.model.extend(params, cache, tokens, **options)


@functools.cache
def drafting(topology):
  """An arm that drafts as many levels as its parameters have per last token."""

  def propose(depths, context):
    last_tokens = context.lengths[:, None] - 1
    last_tokens = jnp.take_along_axis(context.tokens, last_tokens, axis=1)
    valid = topology.depths[None] <= depths[last_tokens]
    return jnp.where(valid, last_tokens, 0), valid

  return arms.arm(arms.Proposing(topology, propose), verifier='greedy')[0]


def widths_of(topology, depths, per_row=False, new=12):
  """Returns widths of the target's calls, round by round, and the results."""
  CALLS.clear()
  model, table = results_test.TARGET
  decoder = arms.decoder(
    (drafting(topology), np.asarray(depths)),
    target=(Watched(model), table),
    per_row=per_row,
    temperature=0.0,
  )
  results = decoder.decode([[1], [2]], new)
  jax.effects_barrier()
  return list(CALLS), results


@pytest.mark.parametrize(
  ('topology', 'per_row', 'width_of_depth'),
  [
    (trees.chain(10), False, {0: 1, 1: 2, 3: 5, 9: 11}),
    (trees.chain(10), True, {0: 1, 1: 2, 3: 5, 9: 11}),
    (trees.chains(3, 4), False, {0: 1, 1: 4, 2: 13}),
  ],
)
def test_a_call_is_as_wide_as_the_deepest_draft(
  topology, per_row, width_of_depth
):
  for depth, width in width_of_depth.items():
    depths = np.full(toys.VOCAB, depth)
    call_widths, _ = widths_of(topology, depths, per_row)
    assert set(call_widths) == {width}


def test_rows_that_are_done_widen_no_call():
  """The first row drafts deeply and finishes before the second row."""
  chain = trees.chain(10)
  _, plain = widths_of(chain, np.zeros(toys.VOCAB, int))
  texts = arms.tokens(plain)
  depths = np.zeros(toys.VOCAB, int)
  depths[[1, *texts[0][:2]]] = 10
  call_widths, results = widths_of(chain, depths, new=[2, 12])
  assert arms.tokens(results) == [texts[0][:2], texts[1]]
  assert call_widths[0] == 11 and len(call_widths) == 12
  expected = [
    11
    if depths[([2] + texts[1])[i]] or i < 2 and depths[([1] + texts[0])[i]]
    else 1
    for i in range(12)
  ]
  assert call_widths == expected and 1 in call_widths


@pytest.mark.parametrize(
  ('topology', 'name'),
  [
    (trees.chain(3), 'maximal'),
    pytest.param(trees.chain(3), 'block', marks=pytest.mark.slow),
    pytest.param(trees.chains(2, 3), 'otm', marks=pytest.mark.slow),
  ],
)
def test_a_narrow_call_changes_no_token(topology, name):
  """A drafter that may stop early is scored in narrow calls, others in full."""
  narrow, params = arms.model(
    topology, verifier=name, stop=drafters.Unsure(0.85)
  )
  assert narrow.drafter.may_stop_early
  wide = narrow._replace(
    drafter=twins.twin(narrow.drafter, may_stop_early=False)
  )
  results = [
    arms.decoder((arm, params)).decode(sizes.PROMPTS, sizes.NEW)
    for arm in (narrow, wide)
  ]
  for narrow_result, full_result in zip(*results, strict=True):
    assert (
      narrow_result.tokens == full_result.tokens
      and narrow_result.rounds == full_result.rounds
    )
    np.testing.assert_array_equal(narrow_result.drafted, full_result.drafted)
  num_drafted = np.sum([result.drafted for result in results[0]], axis=0)
  assert num_drafted[0] > num_drafted[-1], num_drafted


def test_tokens_are_tested_below_accepted_ones():
  """Recounts them from all rounds, with drafts that end early."""
  arm = arms.model(
    trees.chain(3), verifier='maximal', stop=drafters.Unsure(0.85)
  )
  decoder = arms.decoder(arm)
  start = decoder.init(sizes.PROMPTS, sizes.NEW)
  state, infos = decoding.trace(decoder.round_fn, decoder.params, start, 24)
  counters = jax.device_get(state.counters)
  expected = np.zeros_like(counters.tested)
  fields = infos.live, infos.depth, infos.num_accepted, infos.num_emitted
  for live, depth, num_accepted, num_emitted in zip(*map(np.asarray, fields)):
    for row in np.flatnonzero(live):
      num_tested = min(num_accepted[row] + 1, num_emitted[row])
      expected[row, : min(depth[row], num_tested)] += 1
  np.testing.assert_array_equal(counters.tested, expected)
  # Some rounds accepted a token and drafted none after it.
  most = np.minimum(counters.drafted[:, 1:], counters.accepted[:, :-1])
  assert (counters.tested[:, 1:] <= most).all()
  assert (counters.tested[:, 1:] < most).any()


def test_what_would_have_followed_the_end_of_a_row_is_not_tested():
  """A draft model that is the target is never rejected."""
  decoder = arms.decoder(arms.model(trees.chain(4), arms.TARGET))
  results = decoder.decode(sizes.PROMPTS, [7, 8, 9, 11])
  assert any(result.drafted[3] > result.accepted[3] for result in results)
  rates, _ = metrics.acceptance_by_position(results)
  np.testing.assert_array_equal(rates, 1)


@pytest.mark.parametrize(
  'name', tiers.cases(specjax.VERIFIERS, 'block', 'ensemble')
)
def test_a_tree_of_which_nothing_is_valid_is_the_empty_tree(name):
  """Compares tokens, so that a row does not depend on drafts in other rows."""
  verify, rng = specjax.VERIFIERS[name](), np.random.default_rng(1)
  uniform = np.ones(toys.VOCAB)
  root = jnp.asarray(rng.dirichlet(uniform), jnp.float32)
  empty = specjax.DraftTree(
    jnp.zeros(0, jnp.int32),
    trees.chain(0),
    jnp.zeros(0, bool),
    jnp.zeros((0, toys.VOCAB)),
  )
  inputs = [(empty, root[None])]
  for topology in (trees.chain(3), trees.chains(2, 2)):
    num = topology.num_nodes
    draft, node_targets = np.float32(rng.dirichlet(uniform, (2, num)))
    tree = specjax.DraftTree(
      jnp.zeros(num, jnp.int32),
      topology,
      jnp.zeros(num, bool),
      jnp.asarray(draft),
    )
    inputs.append((tree, jnp.concatenate([root[None], node_targets])))

  @jax.jit
  @jax.vmap
  def tokens(key):
    outcomes = [verify(key, *arguments) for arguments in inputs]
    return [(outcome.num_accepted, outcome.tokens[0]) for outcome in outcomes]

  empty_outcome, *tree_outcomes = tokens(
    jax.random.split(jax.random.key(2), 100)
  )
  for outcome in tree_outcomes:
    np.testing.assert_array_equal(outcome, empty_outcome)
  assert not np.any(empty_outcome[0]) and len(np.unique(empty_outcome[1])) > 10


# Verifiers that are exact only for some drafts, or at some temperatures.


DRAWS = {'goal': specjax.GOALS['chow'](0.5)}


MIXES = {
  'goal': specjax.GOALS['mixture'](
    specjax.GOALS['chow'](0.2), specjax.GOALS['chow'](0.8)
  )
}


CHAIN, FORK = trees.chain(2), trees.prefix_tree((2, 2))


@pytest.mark.parametrize(
  ('target_temperature', 'topology', 'options', 'words'),
  [
    # The tokens of the target are drawn.
    (1.0, CHAIN, {'verifier': 'greedy'}, 'exact only at temperature 0'),
    (0.5, FORK, {'verifier': 'greedy'}, 'exact only at temperature 0'),
    (1.0, FORK, {'verifier': 'otm', 'distinct': True}, "such as 'ensemble'"),
    (1.0, FORK, {'verifier': 'distinct'}, 'all different'),
    # Only a goal is drawn from: by a draft that is drawn, or by a mixture.
    (
      0.0,
      CHAIN,
      {'verifier': 'greedy', **DRAWS},
      'exact only at temperature 0',
    ),
    (
      0.0,
      CHAIN,
      {'verifier': 'greedy', 'temperature': 0.0, **MIXES},
      'exact only at temperature 0',
    ),
    (
      0.0,
      FORK,
      {'verifier': 'otm', 'distinct': True, **DRAWS},
      "such as 'ensemble'",
    ),
    (0.0, FORK, {'verifier': 'distinct', **DRAWS}, 'all different'),
  ],
)
def test_a_verifier_that_is_not_exact_for_an_arm_is_refused(
  target_temperature, topology, options, words
):
  model, params = arms.MARKOV_DRAFT
  arm = arms.model(topology, (model, params), **options)
  with pytest.raises(ValueError, match=rf'{words}.* \(arm 0\)'):
    arms.decoder(arm, temperature=target_temperature, target=arms.MARKOV_TARGET)


@pytest.mark.parametrize(
  ('target_temperature', 'topology', 'options'),
  [
    (0.0, CHAIN, {'verifier': 'greedy'}),
    (0.0, FORK, {'verifier': 'otm', 'distinct': True}),
    (0.0, CHAIN, {'verifier': 'greedy', 'temperature': 0.0, **DRAWS}),
    (0.0, FORK, {'verifier': 'otm', 'temperature': 0.0, 'distinct': True}),
    # Chosen tokens that are all different.
    (1.0, FORK, {'verifier': 'distinct', 'temperature': 0.0, 'distinct': True}),
    # Lossy on purpose.
    (1.0, CHAIN, {'verifier': 'lossy'}),
  ],
)
def test_a_verifier_is_taken_where_nothing_that_it_lacks_is_drawn(
  target_temperature, topology, options
):
  arms.decoder(
    arms.model(topology, arms.MARKOV_DRAFT, **options),
    temperature=target_temperature,
    target=arms.MARKOV_TARGET,
  )


DIFFERENT = {specjax.Siblings.WITHOUT_REPLACEMENT, specjax.Siblings.CHOSEN}


@pytest.mark.parametrize('siblings', specjax.Siblings)
@pytest.mark.parametrize('name', sorted({*verifiers.factories()} - {'greedy'}))
def test_a_verifier_accepts_the_siblings_that_it_is_exact_for(name, siblings):
  """Other siblings are refused in trees, but a chain has none."""
  accepted = {
    'distinct': DIFFERENT,
    'ensemble': set(specjax.Siblings),
    'kseq_distinct': DIFFERENT,
    'otm_distinct': DIFFERENT,
    'traversal': set(specjax.Siblings),
  }.get(name, {specjax.Siblings.IID, specjax.Siblings.CHOSEN})
  assert verifiers.resolve(name).accepts(siblings) == (siblings in accepted)

  def build(topology):
    arm, params = arms.model(topology, arms.MARKOV_DRAFT, verifier=name)
    drafter = twins.twin(arm.drafter, siblings=siblings)
    arms.decoder(
      (arm._replace(drafter=drafter), params), target=arms.MARKOV_TARGET
    )

  build(CHAIN)
  if siblings in accepted:
    build(FORK)
  else:
    with pytest.raises(ValueError, match="such as 'ensemble'|all different"):
      build(FORK)


@pytest.mark.parametrize('vocab_size', [3, 50_000])
def test_a_mixture_is_not_one_hot_and_a_rule_is(vocab_size):
  """Checks small and large vocabularies."""
  for goal, greedy, expected in (
    (MIXES['goal'], True, False),
    (DRAWS['goal'], True, True),
    (DRAWS['goal'], False, False),
    (specjax.GOALS['lossy'](0.3), False, True),
    # They keep a draft so seldom that few examples show it.
    (specjax.GOALS['diff'](-0.5), False, False),
    (specjax.GOALS['chow'](0.001), False, False),
  ):
    assert goal_lib.is_one_hot(goal, vocab_size, greedy) == expected


@pytest.mark.parametrize('per_row', [False, True])
@pytest.mark.parametrize(('num_arms', 'bandit'), [(4, 'ucb1'), (1, 'fixed')])
def test_a_bandit_of_another_number_of_arms_is_refused(
  num_arms, bandit, per_row
):
  message = f'the 2 arms of the round, got one with num_arms={num_arms}'
  with pytest.raises(ValueError, match=message):
    results_test.decoder(bandit, num_arms, per_row=per_row)


@pytest.mark.parametrize(
  'bandit',
  [
    bandits.Goodput(2, (1.0, 1.0), (0, 3)),
    bandits.LengthEMA(2, (0, 3)),
    bandits.LengthHeuristic(2, (0, 3)),
  ],
)
def test_a_bandit_for_trees_of_other_depths_is_refused(bandit):
  message = r"the depths of the arms' trees, \(0, 2\), got \(0, 3\)"
  with pytest.raises(ValueError, match=message):
    arms.decoder(arms.none(), arms.chain(2), bandit=bandit)
  arms.decoder(arms.none(), arms.chain(3), bandit=bandit)


def test_a_bandit_is_not_given_by_name():
  message = "bandit must be a Bandit, such as those of BANDITS, got 'ucb1'"
  with pytest.raises(ValueError, match=message):
    specjax.Decoder(
      results_test.TARGET, None, [(arms.none()[0], None)], bandit='ucb1'
    )


def test_the_coldest_temperature_is_the_greedy_limit():
  cold, greedy = (
    arms.decoder(
      arms.none(), target=results_test.TARGET, temperature=temperature
    ).decode(sizes.PROMPTS, sizes.NEW)
    for temperature in (1e-6, 0.0)
  )
  assert arms.tokens(cold) == arms.tokens(greedy)


def test_raw_probabilities_that_are_nan_are_raised():
  """A rule compares them, and a NaN would not defer."""
  model, table = arms.MARKOV_DRAFT
  arm, params = arms.model(
    FORK, (model, table), 0.0, distinct=True, bonus_probs=True, **DRAWS
  )

  def broken(name):
    def draft(*args):
      tree, proposal = arm.drafter.draft(*args)
      spoilt = jax.tree.map(lambda x: x * jnp.nan, getattr(tree, name))
      return tree._replace(**{name: spoilt}), proposal

    drafter = twins.twin(arm.drafter, draft=draft, slot=None)
    return arms.decoder(
      (arm._replace(drafter=drafter), params),
      target=arms.MARKOV_TARGET,
      temperature=0.0,
    )

  for name in ('raw_probs', 'bonus_probs'):
    with pytest.raises(FloatingPointError):
      broken(name).decode([[1]], 4)


# Dynamic trees.


BOUNDS = trees.Bounds(num_nodes=6, depth=3, width=2)


@components.component
class RandomTrees(base.Drafter):
  """Drafts random trees and samples their nodes from a Markov table.

  A tree has a random number of nodes, two per level; each is a child of one of
  the two nodes on the previous level.

  Attributes:
    parents_of: Corrupts the parents, given the second of two parameters.
  """

  parents_of: Callable | None = components.static(default=None)

  topology = BOUNDS
  vocab_size = state_test.VOCAB
  may_stop_early = True

  @staticmethod
  def from_row(key, table, token):
    key, size_key, parent_key = jax.random.split(key, 3)
    exists = np.arange(6) < jax.random.randint(size_key, (), 1, 7)
    parent_slots = jax.random.randint(parent_key, (6,), 0, 2)
    parents = jnp.where(
      np.arange(6) < 2, -1, 2 * (np.arange(6) // 2 - 1) + parent_slots
    )
    tokens, probs = [], []
    for node, node_key in enumerate(jax.random.split(key, 6)):
      parent_tokens = jnp.append(jnp.stack([*tokens, token]), token)
      node_probs = table[
        parent_tokens[jnp.where(parents[node] < 0, node, parents[node])]
      ]
      probs.append(node_probs)
      uniforms = jax.random.uniform(node_key, (1,))
      tokens.append(specjax.sampling.draw(uniforms, node_probs))
    return jnp.stack(tokens), parents, exists, jnp.stack(probs)

  def draft(self, keys, params, state, context):
    last_tokens = context.lengths[:, None] - 1
    last_tokens = jnp.take_along_axis(context.tokens, last_tokens, axis=1)[:, 0]
    rows = jax.vmap(self.from_row, in_axes=(0, None, 0))
    table, spoiled = params if self.parents_of else (params, None)
    tokens, parents, exists, probs = rows(keys, table, last_tokens)
    if self.parents_of is not None:
      parents = self.parents_of(parents, spoiled)
    topology = trees.dynamic(parents, exists, BOUNDS)
    return base.DraftTree(tokens, topology, exists, probs), ()


def test_features_of_trees_that_end_early_are_finite():
  """Past a row's length is junk, which a head may multiply with 0."""
  target, draft = lossless_test.tables('stationary')
  decoder = arms.decoder(
    arms.arm(twins.twin(RandomTrees(), taps=(-1,)), draft),
    target=(state_test.MarkovWithFeatures(state_test.VOCAB), target),
  )
  state = decoder.init(sizes.MARKOV_PROMPTS, 20)
  for _ in range(4):
    state, _ = decoding.trace(decoder.round_fn, decoder.params, state, 1)
    assert jnp.isfinite(state.features[0]).all()


@pytest.mark.slow
def test_trees_of_every_round_have_the_target_distribution():
  target, draft = lossless_test.tables('stationary')
  names = 'otm', arms.BROKEN
  decoder = arms.decoder(
    *[arms.arm(RandomTrees(), draft, name) for name in names],
    target=(lossless_test.MODEL, target),
  )
  p, broken = lossless_test.p_values(decoder, target, 2)
  assert p > 1e-4 and broken < 1e-6


@pytest.mark.parametrize('per_row', tiers.cases([True, False], True))
def test_trees_of_every_round_among_arms_have_the_target_distribution(per_row):
  target, draft = lossless_test.tables('stationary')
  decoder = arms.decoder(
    arms.arm(RandomTrees(), draft, 'kseq'),
    arms.chain(draft=(lossless_test.MODEL, draft)),
    target=(lossless_test.MODEL, target),
    bandit='uniform',
    per_row=per_row,
  )
  assert lossless_test.p_value(decoder, target) > 1e-4


def as_dynamic(drafter):
  """Returns a drafter that describes the same trees as dynamic topologies."""
  topology = drafter.topology
  bounds = trees.Bounds(topology.num_nodes, topology.depth, topology.width)

  def draft(keys, params, state, context):
    tree, proposal = drafter.draft(keys, params, state, context)
    parents = jnp.broadcast_to(
      jnp.array(topology.parents, jnp.int32), tree.tokens.shape
    )
    exists = jnp.ones(tree.tokens.shape, bool)
    dynamic_topology = trees.dynamic(parents, exists, bounds)
    return tree._replace(topology=dynamic_topology), proposal

  return twins.twin(drafter, topology=bounds, draft=draft)


@pytest.mark.slow
def test_dynamic_trees_decode_as_static_ones():
  """Masks and positions of a transformer's call, and the walk."""
  static, params = arms.model(trees.prefix_tree((2, 2)), draft=arms.TARGET)
  dynamic = static._replace(drafter=as_dynamic(static.drafter))
  results = [
    arms.decoder((arm, params)).decode(sizes.PROMPTS, sizes.NEW)
    for arm in (static, dynamic)
  ]
  for first_result, second_result in zip(*results, strict=True):
    assert first_result.tokens == second_result.tokens
    assert first_result.accepted.tolist() == second_result.accepted.tolist()
    assert first_result.accepted.sum() > 0


SPOILS = (
  lambda parents: parents.at[:, 0].set(1),  # Below a later one.
  lambda parents: parents.at[:, 2].set(-1),  # Too many at the root.
  lambda parents: jnp.maximum(parents - 2, -1),  # Levels are mixed.
)


def test_trees_that_contradict_their_bounds_are_raised():
  target, draft = lossless_test.tables('stationary')

  def spoil(parents, index):
    return jax.lax.switch(index, SPOILS, parents)

  drafter = RandomTrees(spoil)
  for index in range(len(SPOILS)):
    decoder = arms.decoder(
      arms.arm(drafter, (draft, np.int32(index))),
      target=(lossless_test.MODEL, target),
    )
    with pytest.raises(ValueError, match='contradicts its bounds in rows'):
      decoder.decode([[1, 2]] * 8, 12)


def test_dynamic_trees_are_described_as_static_ones():
  names = 'depths', 'offsets', 'mask', 'children', 'level_table'

  def described(bounds, parents):
    dynamic = trees.dynamic(parents, jnp.ones(parents.shape, bool), bounds)
    return {name: getattr(dynamic, name) for name in (*names, 'is_valid')}

  for topology in (
    trees.chains(2, 3),
    trees.prefix_tree((2, 2)),
    trees.chain(4),
  ):
    bounds = trees.Bounds(topology.num_nodes, topology.depth, topology.width)
    parents = jnp.array([topology.parents] * 2, jnp.int32)
    descriptions = jax.jit(functools.partial(described, bounds))(parents)
    for name in names:
      for row in np.asarray(descriptions[name]):
        np.testing.assert_array_equal(row, getattr(topology, name), name)
    assert descriptions['is_valid'].all()


# Groups and arguments.


def test_arguments_that_do_not_fit_are_refused():
  no_drafter, _ = arms.none()
  chain, _ = arms.chain(1, arms.MARKOV_DRAFT)
  make = functools.partial(
    specjax.make_round, arms_test.MARKOV[0], bandit=specjax.bandits.Fixed(2)
  )
  with pytest.raises(ValueError, match=r'vocab_size 3 and 4 \(arm 1\)'):
    make([no_drafter, chain])
  with pytest.raises(ValueError, match="feedback must be one of .* 'none'"):
    make([no_drafter] * 2, feedback='none')
  with pytest.raises(ValueError, match='at least one arm'):
    make([])
  for slots in ([0], [0, 2], [1, 1], [-1, 0]):
    with pytest.raises(ValueError, match='slots must name a state'):
      make([no_drafter] * 2, slots=slots)
  with pytest.raises(ValueError, match='drafters of one StateSlot'):
    make([no_drafter] * 2, slots=[0, 0])


def test_probabilities_stay_inside_the_group_that_is_played():
  """Padded, they would be written in every round: of plain decoding, too."""
  several = arms_test.three(bandit='uniform')
  start = several.init(sizes.PROMPTS, 24)
  program = jax.make_jaxpr(several.round_fn)(several.params, start)
  (choice,) = (
    equation
    for equation in program.eqns
    if equation.primitive.name == 'cond'
    and len(equation.params['branches']) == 3
  )
  for leaf in choice.outvars:
    assert toys.VOCAB not in leaf.aval.shape
