"""What goes wrong in a decode is refused early, or flagged and raised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import decoding
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.drafters import stateless
from specjax.testing import toys

NONE = specjax.Arm(specjax.DRAFTERS['none'](), verifiers.resolve('maximal'))


def decoder(arms=2, bandit='fixed', num_arms=2, **options):
  """Of arms that draft nothing, if none are given."""
  target = toys.markov(0, toys.VOCAB)
  arms = [(NONE, None)] * arms if isinstance(arms, int) else arms
  if isinstance(bandit, str):
    bandit = specjax.BANDITS[bandit](num_arms)
  return specjax.Decoder(*target, arms, bandit=bandit, max_length=32, **options)


# Bandits and arms.


@pytest.mark.parametrize('per_row', [False, True])
@pytest.mark.parametrize(('num_arms', 'bandit'), [(4, 'ucb1'), (1, 'fixed')])
def test_a_bandit_of_another_number_of_arms_is_refused(
  num_arms, bandit, per_row
):
  message = f'the 2 arms of the round, got one of num_arms={num_arms}'
  with pytest.raises(ValueError, match=message):
    decoder(bandit=bandit, num_arms=num_arms, per_row=per_row)


@pytest.mark.parametrize('arm', [2, 5, -1])
def test_an_arm_that_is_not_there_is_raised(arm):
  """It ends the row: no token is made up, and the loop comes to an end."""
  routed = decoder(per_row=True)
  arms = np.array([0, arm, 1], np.int32)
  state = routed.init([[1], [2], [3]], 6, bandit_state=arms)
  state = decoding.decode(routed.round_fn, routed.params, state)
  assert state.lengths.tolist() == [1 + 6, 1 + 0, 1 + 6]
  assert state.counters.pulls.tolist() == [[6, 0], [0, 0], [0, 6]]
  assert state.flags.arm.tolist() == [False, True, False]
  message = r'arm must lie in \[0, 1\], but the bandit .* in rows \[1\]'
  with pytest.raises(ValueError, match=message):
    routed.results([[1], [2], [3]], state)
  whole = decoder()
  with pytest.raises(ValueError, match=r'in rows \[0, 1\]'):
    whole.decode([[1], [2]], 6, bandit_state=np.int32(arm))
  with pytest.raises(ValueError, match=r'in rows \[0\]'):
    list(whole.stream([1], 6, bandit_state=np.int32(arm)))


def test_a_state_of_another_bandit_is_refused():
  state = specjax.BANDITS['ucb1'](2).init()
  with pytest.raises(ValueError, match='bandit_state must be of the bandit'):
    decoder().decode([[1]], 4, bandit_state=state)
  with pytest.raises(ValueError, match='bandit_state must be of 3 rows'):
    decoder(per_row=True).decode([[1]] * 3, 4, bandit_state=np.zeros(2, int))


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
  prompts = np.array([[1, 2, 3], [4, 5, 6]])
  made = [decoder().decode(each, 6) for each in (prompts, prompts.tolist())]
  assert made[0][1].tokens == made[1][1].tokens


# NaN and infinity.


def constant(logits):
  """A model that gives the same logits after every token."""
  model = specjax.MODELS['markov'](len(logits))
  rows = jnp.tile(jnp.asarray(logits, jnp.float32), (len(logits), 1))

  def extend(params, cache, tokens, **options):
    extension = model.extend(rows, cache, tokens, **options)
    return extension._replace(logits=rows[tokens])

  return model._replace(extend=extend), rows


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
  plain = decoding.speculative(
    *constant(logits),
    None,
    sampling=sampling_lib.Sampling(temperature),
    max_length=16,
  )
  with pytest.raises(FloatingPointError, match=r'The target .* rows \[0\]'):
    plain.decode([[1]], 3)


def test_a_forbidden_token_is_nothing_wrong():
  plain = decoding.speculative(
    *constant([0.0, -np.inf, 0.0]), None, max_length=16
  )
  assert 1 not in plain.decode([[1]], 12)[0].tokens


def test_probabilities_of_a_drafter_that_are_nan_are_raised():
  """Its NaN would reject every draft and leave a residual of NaN."""
  target = constant([0.0, 1.0, 2.0])
  decoder = decoding.speculative(
    *target, *constant([0.0, np.nan, 0.0]), draft_length=2, max_length=16
  )
  with pytest.raises(FloatingPointError, match=r'A drafter .* rows \[0\]'):
    decoder.decode([[1]], 3)


def test_one_bad_probability_is_raised_though_it_was_not_drawn():
  target = toys.markov(0)
  drafter = specjax.DRAFTERS['autoregressive'](target[0], trees.chain(2))

  def draft(*args):
    tree, proposal = drafter.draft(*args)
    drawn = jax.nn.one_hot(tree.tokens, target[0].vocab_size) > 0
    bad = jnp.roll(drawn, 1, axis=-1)
    return tree._replace(probs=jnp.where(bad, jnp.nan, tree.probs)), proposal

  arm = specjax.Arm(drafter._replace(draft=draft), verifiers.resolve('maximal'))
  decoder = specjax.Decoder(*target, [(arm, target[1])], max_length=16)
  with pytest.raises(FloatingPointError, match=r'A drafter .* rows \[0\]'):
    decoder.decode([[1]], 3)


def test_the_coldest_temperature_is_the_greedy_limit():
  target = toys.markov(0, toys.VOCAB)
  cold, greedy = (
    decoding.speculative(
      *target, None, sampling=sampling_lib.Sampling(temperature), max_length=32
    ).decode([[1], [2]], 20)
    for temperature in (1e-6, 0.0)
  )
  assert [r.tokens for r in cold] == [r.tokens for r in greedy]


# The target scores what was drafted.


def widths_of(arm, params, prompts, per_row=False, arms=1, new=12):
  """Widths of the target's calls, round by round, and the results."""
  model, table = toys.markov(0, toys.VOCAB)
  seen = []

  def extend(params, cache, tokens, **options):
    width = tokens.shape[1]
    jax.debug.callback(lambda: seen.append(width))
    return model.extend(params, cache, tokens, **options)

  decoder = specjax.Decoder(
    model._replace(extend=extend),
    table,
    [(arm, params)] * arms,
    per_row=per_row,
    sampling=sampling_lib.Sampling(0.0),
    max_length=32,
  )
  results = decoder.decode(prompts, new)
  jax.effects_barrier()
  return seen, results


def drafting(depths, topology):
  """An arm that drafts as many levels as `depths` has for the last token."""

  def propose(params, context):
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)
    valid = topology.depths[None] <= jnp.asarray(depths)[last]
    return jnp.where(valid, last, 0), valid

  drafter = stateless.stateless(topology, propose)
  return specjax.Arm(drafter, verifiers.resolve('greedy'))


@pytest.mark.parametrize('per_row', [False, True])
@pytest.mark.parametrize(
  ('depth', 'topology', 'width'),
  [
    (0, trees.chain(10), 1),
    (1, trees.chain(10), 2),
    (3, trees.chain(10), 5),
    (9, trees.chain(10), 11),
    (0, trees.chains(3, 4), 1),
    (1, trees.chains(3, 4), 4),
    (2, trees.chains(3, 4), 13),
  ],
)
def test_a_call_is_as_wide_as_the_deepest_draft(
  depth, topology, width, per_row
):
  depths = np.full(toys.VOCAB, depth)
  seen, _ = widths_of(drafting(depths, topology), None, [[1], [2]], per_row)
  assert set(seen) == {width}


def test_rows_that_are_done_widen_no_call():
  """The first row drafts deeply, and is done before the second one."""
  model, table = toys.markov(0, toys.VOCAB)
  plain = decoding.speculative(
    model, table, None, sampling=sampling_lib.Sampling(0.0), max_length=32
  )
  texts = [result.tokens for result in plain.decode([[1], [2]], 12)]
  depths = np.zeros(toys.VOCAB, int)
  depths[[1, *texts[0][:2]]] = 10
  arm = drafting(depths, trees.chain(10))
  seen, results = widths_of(arm, None, [[1], [2]], new=[2, 12])
  assert [r.tokens for r in results] == [texts[0][:2], texts[1]]
  assert seen[0] == 11 and len(seen) == 12
  expected = [
    11
    if depths[([2] + texts[1])[i]] or i < 2 and depths[([1] + texts[0])[i]]
    else 1
    for i in range(12)
  ]
  assert seen == expected and 1 in seen


@pytest.mark.parametrize(
  ('name', 'temperature'),
  [
    ('maximal', 1.0),
    pytest.param('block', 1.0, marks=pytest.mark.slow),
    pytest.param('otm', 1.0, marks=pytest.mark.slow),
    pytest.param('maximal', 0.0, marks=pytest.mark.slow),
    pytest.param('block', 0.0, marks=pytest.mark.slow),
    pytest.param('otm', 0.0, marks=pytest.mark.slow),
  ],
)
def test_a_narrow_call_changes_no_token(name, temperature):
  """A drafter of partial trees is scored narrowly; else, in full."""
  verifier = 'greedy' if not temperature and name != 'block' else name
  sampling = sampling_lib.Sampling(temperature)
  stop = lambda probs: probs.max(-1) < 0.15
  target, draft = toys.transformer(), toys.transformer(1, num_layers=1)
  topology = trees.chains(2, 5) if name == 'otm' else trees.chain(5)
  drafter = specjax.DRAFTERS['autoregressive'](
    draft[0], topology, sampling, stop=stop
  )
  assert drafter.partial
  made = []
  for each in (drafter, drafter._replace(partial=False)):
    arm = specjax.Arm(each, verifiers.resolve(verifier))
    made.append(
      specjax.Decoder(
        *target, [(arm, draft[1])], sampling=sampling, max_length=48
      ).decode([[1], [2, 3], [4] * 9], 24)
    )
  for narrow, wide in zip(*made):
    assert narrow.tokens == wide.tokens and narrow.rounds == wide.rounds
    np.testing.assert_array_equal(narrow.drafted, wide.drafted)
  drafted = np.sum([result.drafted for result in made[0]], axis=0)
  assert drafted[0] > drafted[-1], drafted


@pytest.mark.parametrize('topology', [trees.chain(3), trees.chains(2, 2)])
@pytest.mark.parametrize('name', specjax.VERIFIERS)
def test_a_tree_of_which_nothing_is_valid_is_the_empty_tree(name, topology):
  """Token for token, so that a row does not depend on who else has drafted."""
  size = topology.num_nodes, toys.VOCAB
  rng = np.random.default_rng(1)
  probs, target = rng.dirichlet(np.ones(toys.VOCAB), (2, size[0] + 1))
  tree = specjax.DraftTree(
    jnp.zeros(size[0], jnp.int32),
    topology,
    jnp.zeros(size[0], bool),
    jnp.asarray(probs[1:], jnp.float32),
  )
  empty = specjax.DraftTree(
    tree.tokens[:0], trees.chain(0), tree.valid[:0], tree.probs[:0]
  )
  target = jnp.asarray(target, jnp.float32)
  verify = specjax.VERIFIERS[name]()

  def tokens(key):
    outcomes = verify(key, tree, target), verify(key, empty, target[:1])
    return [(each.num_accepted, each.tokens[0]) for each in outcomes]

  keys = jax.random.split(jax.random.key(2), 200)
  whole, nothing = jax.jit(jax.vmap(tokens))(keys)
  np.testing.assert_array_equal(whole, nothing)
  assert not np.any(whole[0]) and len(np.unique(whole[1])) > 10
