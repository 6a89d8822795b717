"""What goes wrong in a decode is refused early, or flagged and raised."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import components
from specjax import decoding
from specjax import trees
from specjax.drafters import stateless
from specjax.goals import apply as goal_lib
from specjax.testing import toys
from tests import arms
from tests import sizes

TARGET = toys.markov(0, toys.VOCAB)


def decoder(bandit='fixed', num_arms=2, **options):
  """A decoder of two arms that draft nothing."""
  return arms.decoder(
    *[arms.none()] * 2,
    target=TARGET,
    bandit=specjax.BANDITS[bandit](num_arms),
    **options,
  )


# Bandits and arms.


@pytest.mark.parametrize('per_row', [False, True])
@pytest.mark.parametrize(('num_arms', 'bandit'), [(4, 'ucb1'), (1, 'fixed')])
def test_a_bandit_of_another_number_of_arms_is_refused(
  num_arms, bandit, per_row
):
  message = f'the 2 arms of the round, got one of num_arms={num_arms}'
  with pytest.raises(ValueError, match=message):
    decoder(bandit, num_arms, per_row=per_row)


def test_an_arm_that_is_not_there_ends_its_row():
  """No token is made up, and the loop comes to an end."""
  routed, prompts = decoder(per_row=True), [[1], [2], [3], [4], [5]]
  selected = np.array([0, 2, 5, -1, 1], np.int32)
  state = routed.init(prompts, 6, bandit_state=selected)
  state = decoding.decode(routed.round_fn, routed.params, state)
  assert state.lengths.tolist() == [7, 1, 1, 1, 7]
  assert state.counters.pulls.tolist() == [[6, 0], *[[0, 0]] * 3, [0, 6]]
  assert state.flags.arm.tolist() == [False, True, True, True, False]
  message = r'arm must lie in \[0, 1\], but the bandit .* in rows \[1, 2, 3\]'
  with pytest.raises(ValueError, match=message):
    routed.results(prompts, state)


def test_an_arm_that_is_not_there_ends_the_batch():
  whole = decoder()
  for arm in (2, 5, -1):
    with pytest.raises(ValueError, match=r'in rows \[0, 1, 2, 3\]'):
      whole.decode(sizes.PROMPTS, 6, bandit_state=np.int32(arm))
    with pytest.raises(ValueError, match=r'in rows \[0\]'):
      list(whole.stream([1], 6, bandit_state=np.int32(arm)))


def test_a_state_of_another_bandit_is_refused():
  state = specjax.bandits.UCB1(2).init()
  with pytest.raises(ValueError, match='bandit_state must be of the bandit'):
    decoder().decode([[1]], 4, bandit_state=state)
  with pytest.raises(ValueError, match='bandit_state must be of 3 rows'):
    decoder(per_row=True).decode([[1]] * 3, 4, bandit_state=np.zeros(2, int))


@components.component
class Bad(specjax.Reward):
  """A reward of which only that of the first arm is one."""

  def __call__(self, info):
    return jnp.array([0.5, 1.5, -0.1, jnp.nan])[info.arm]


def test_a_reward_outside_of_the_unit_interval_is_reported():
  """In one row alone: the message names it."""
  bad = arms.decoder(
    *[arms.none()] * 4, target=TARGET, per_row=True, reward=Bad()
  )
  for arm in (1, 2, 3):
    selected = np.array([0, arm, 0, 0], np.int32)
    with pytest.raises(ValueError, match=r'lie in \[0, 1\].* in rows \[1\]'):
      bad.decode(sizes.PROMPTS, 2, bandit_state=selected)


# Prompts.


@pytest.mark.parametrize(
  ('prompts', 'options', 'message'),
  [
    ('Hello', {}, "prompts must be a list .* got the text 'Hello': encode it"),
    (['Hello'], {}, r"prompts\[0\] must be .* got the text 'Hello'"),
    ([1, 2], {}, r'prompts\[0\] must be a list of token ids, got 1'),
    ([[1], [1, 2.5]], {}, r'prompts\[1\] must hold integers, got 2.5'),
    ([['a']], {}, r"prompts\[0\] must hold integers, got 'a'"),
    ([[True]], {}, r'prompts\[0\] must hold integers, got True'),
    ([[[1, 2]]], {}, r'prompts\[0\] must be a list of token ids'),
    ([[1, [2]]], {}, r'prompts\[0\] must be a list of token ids'),
    ([[-1]], {}, r'tokens in \[0, 32\), got -1 to -1'),
    (np.zeros((0, 3), int), {}, 'at least one prompt'),
    ([[1]], {'max_new_tokens': 2.0}, 'max_new_tokens must be an integer'),
    ([[1]], {'max_new_tokens': [1, 2]}, 'for each of 1 prompts, got 2'),
    ([[1]], {'request_ids': [1, 2]}, 'request_ids must be one for each of 1'),
    ([[1]], {'request_ids': [-1]}, r'request_ids must lie in \[0, '),
    ([[1]], {'seed': -1}, r'seed must lie in \[0, 4294967295\], got -1'),
    ([[1]], {'seed': 0.5}, 'seed must be an integer, got 0.5'),
  ],
)
def test_what_is_no_request_is_refused(prompts, options, message):
  with pytest.raises(ValueError, match=message):
    decoder().decode(prompts, **{'max_new_tokens': 4} | options)


def test_an_array_of_integers_is_a_list_of_prompts():
  prompts = np.arange(2 * sizes.ROWS).reshape(sizes.ROWS, 2)
  results = [decoder().decode(each, 6) for each in (prompts, prompts.tolist())]
  assert arms.tokens(results[0]) == arms.tokens(results[1])


# NaN and infinity.


@components.component
class Constant(specjax.models.Markov):
  """A model whose parameters are logits, which it gives after every token."""

  def extend(self, table, cache, tokens, **options):
    output = super().extend(table, cache, tokens, **options)
    return output._replace(logits=table[tokens])


def constant(*logits):
  return Constant(3), jnp.array([logits] * 3, jnp.float32)


@pytest.mark.parametrize(
  ('logits', 'temperature'),
  [
    ([0.0, np.nan, 0.0], 0.0),
    ([0.0, np.inf, 0.0], 1.0),
    ([-np.inf] * 3, 1.0),  # All tokens are forbidden.
    ([-np.inf] * 3, 0.0),
    ([3e38, 0.0, 0.0], 0.1),  # Finite, but not after temperature.
  ],
)
def test_logits_of_the_target_that_are_not_finite_are_raised(
  logits, temperature
):
  plain = arms.decoder(
    arms.none(), target=constant(*logits), temperature=temperature
  )
  with pytest.raises(FloatingPointError, match=r'The target .* rows \[0\]'):
    plain.decode([[1]], 3)


def test_a_forbidden_token_is_nothing_wrong():
  plain = arms.decoder(arms.none(), target=constant(0.0, -np.inf, 0.0))
  assert 1 not in plain.decode([[1]], 12)[0].tokens


def test_probabilities_of_a_drafter_that_are_nan_are_raised():
  """Its NaN would reject every draft and leave a residual of NaN."""
  decoder = arms.decoder(
    arms.chain(draft=constant(0.0, np.nan, 0.0)),
    target=constant(0.0, 1.0, 2.0),
  )
  with pytest.raises(FloatingPointError, match=r'A drafter .* rows \[0\]'):
    decoder.decode([[1]], 3)


def test_one_bad_probability_is_raised_though_it_was_not_drawn():
  sound, params = arms.chain(draft=arms.MARKOV_DRAFT)

  def draft(*args):
    tree, proposal = sound.drafter.draft(*args)
    drawn = jax.nn.one_hot(tree.tokens, 3) > 0
    bad = jnp.roll(drawn, 1, axis=-1)
    return tree._replace(probs=jnp.where(bad, jnp.nan, tree.probs)), proposal

  arm = sound._replace(drafter=sound.drafter._replace(draft=draft))
  decoder = arms.decoder((arm, params), target=arms.MARKOV_TARGET)
  with pytest.raises(FloatingPointError, match=r'A drafter .* rows \[0\]'):
    decoder.decode([[1]], 3)


def test_the_coldest_temperature_is_the_greedy_limit():
  cold, greedy = (
    arms.decoder(arms.none(), target=TARGET, temperature=temperature).decode(
      sizes.PROMPTS, sizes.NEW
    )
    for temperature in (1e-6, 0.0)
  )
  assert arms.tokens(cold) == arms.tokens(greedy)


# The target scores what was drafted.

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
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)
    valid = topology.depths[None] <= depths[last]
    return jnp.where(valid, last, 0), valid

  return arms.arm(stateless.stateless(topology, propose), verifier='greedy')[0]


def widths_of(topology, depths, per_row=False, new=12):
  """Returns widths of the target's calls, round by round, and the results."""
  CALLS.clear()
  model, table = TARGET
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
    seen, _ = widths_of(topology, depths, per_row)
    assert set(seen) == {width}


def test_rows_that_are_done_widen_no_call():
  """The first row drafts deeply, and is done before the second one."""
  chain = trees.chain(10)
  _, plain = widths_of(chain, np.zeros(toys.VOCAB, int))
  texts = arms.tokens(plain)
  depths = np.zeros(toys.VOCAB, int)
  depths[[1, *texts[0][:2]]] = 10
  seen, results = widths_of(chain, depths, new=[2, 12])
  assert arms.tokens(results) == [texts[0][:2], texts[1]]
  assert seen[0] == 11 and len(seen) == 12
  expected = [
    11
    if depths[([2] + texts[1])[i]] or i < 2 and depths[([1] + texts[0])[i]]
    else 1
    for i in range(12)
  ]
  assert seen == expected and 1 in seen


@pytest.mark.parametrize(
  ('topology', 'name'),
  [
    (trees.chain(3), 'maximal'),
    pytest.param(trees.chain(3), 'block', marks=pytest.mark.slow),
    pytest.param(trees.chains(2, 3), 'otm', marks=pytest.mark.slow),
  ],
)
def test_a_narrow_call_changes_no_token(topology, name):
  """A drafter of partial trees is scored narrowly; else, in full."""
  narrow, params = arms.model(
    topology, verifier=name, stop=lambda probs: probs.max(-1) < 0.15
  )
  assert narrow.drafter.partial
  wide = narrow._replace(drafter=narrow.drafter._replace(partial=False))
  results = [
    arms.decoder((arm, params)).decode(sizes.PROMPTS, sizes.NEW)
    for arm in (narrow, wide)
  ]
  for one, other in zip(*results, strict=True):
    assert one.tokens == other.tokens and one.rounds == other.rounds
    np.testing.assert_array_equal(one.drafted, other.drafted)
  drafted = np.sum([result.drafted for result in results[0]], axis=0)
  assert drafted[0] > drafted[-1], drafted


@pytest.mark.parametrize(
  'name',
  [
    # Compiling it takes as long as compiling all others.
    pytest.param(name, marks=pytest.mark.slow) if name == 'distinct' else name
    for name in specjax.VERIFIERS
  ],
)
def test_a_tree_of_which_nothing_is_valid_is_the_empty_tree(name):
  """Token for token, so that a row does not depend on who else has drafted."""
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
    draft, below = np.float32(rng.dirichlet(uniform, (2, num)))
    tree = specjax.DraftTree(
      jnp.zeros(num, jnp.int32),
      topology,
      jnp.zeros(num, bool),
      jnp.asarray(draft),
    )
    inputs.append((tree, jnp.concatenate([root[None], below])))

  @jax.jit
  @jax.vmap
  def tokens(key):
    outcomes = [verify(key, *each) for each in inputs]
    return [(each.num_accepted, each.tokens[0]) for each in outcomes]

  nothing, *whole = tokens(jax.random.split(jax.random.key(2), 100))
  for outcome in whole:
    np.testing.assert_array_equal(outcome, nothing)
  assert not np.any(nothing[0]) and len(np.unique(nothing[1])) > 10


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


@pytest.mark.parametrize('vocab_size', [3, 50_000])
def test_a_mixture_is_not_one_hot_and_a_rule_is(vocab_size):
  """Whatever the size of the vocabulary."""
  for goal, greedy, wanted in (
    (MIXES['goal'], True, False),
    (DRAWS['goal'], True, True),
    (DRAWS['goal'], False, False),
    (specjax.GOALS['lossy'](0.3), False, True),
  ):
    assert goal_lib.is_one_hot(goal, vocab_size, greedy) == wanted


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

    drafter = arm.drafter._replace(draft=draft, slot=None)
    return arms.decoder(
      (arm._replace(drafter=drafter), params),
      target=arms.MARKOV_TARGET,
      temperature=0.0,
    )

  for name in ('raw_probs', 'bonus_probs'):
    with pytest.raises(FloatingPointError):
      broken(name).decode([[1]], 4)


def test_a_text_beyond_what_a_model_was_trained_for_is_reported():

  @components.component
  class Short(specjax.models.ModelWrapper):
    max_length = 8

  model, table = arms.MARKOV_TARGET
  short = Short(model)
  for target, draft, name in (
    (short, model, 'target'),
    (model, short, 'drafter of arm 0'),
  ):
    decoder = arms.decoder(
      arms.chain(draft=(draft, table)), target=(target, table)
    )
    with warnings.catch_warnings():
      warnings.simplefilter('error')
      decoder.init([[1], [1, 2]], [7, 6])
    with pytest.warns(UserWarning, match=f'9 tokens.*{name} was trained for 8'):
      state = decoder.init([[1], [1, 2]], [7, 7])
    with pytest.warns(UserWarning, match=f'12 tokens.*{name}'):
      decoder.append(state, [[1], [1]], [1, 9])
    with pytest.warns(UserWarning, match=f'9 tokens.*{name}'):
      list(decoder.decode_many([[1], [2]], [1, 8], batch_size=1, queue_size=1))
