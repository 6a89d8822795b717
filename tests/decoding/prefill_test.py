"""Prompts in: what is refused, and appended text equals one prompt."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import components
from specjax import decoding
from specjax import drafters
from specjax import rewards
from specjax import trees
from specjax.decoding import round as round_steps
from specjax.models import heads
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import tiers
from tests import twins
from tests.decoding import feedback_test
from tests.decoding import results_test

# Validation.


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
    results_test.decoder().decode(prompts, **{'max_new_tokens': 4} | options)


def test_an_array_of_integers_is_a_list_of_prompts():
  prompts = np.arange(2 * sizes.ROWS).reshape(sizes.ROWS, 2)
  results = [
    results_test.decoder().decode(batch, 6)
    for batch in (prompts, prompts.tolist())
  ]
  assert arms.tokens(results[0]) == arms.tokens(results[1])


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


# Append.


TURNS = [[3, 1, 2, 3], [9] * 25, [1], [7, 8]]


def run(decoder, state):
  return decoding.decode(decoder.round_fn, decoder.params, state)


def texts_of(state):
  return [
    np.asarray(state.tokens)[i, :length].tolist()
    for i, length in enumerate(np.asarray(state.lengths))
  ]


def chain_decoder(**options):
  return arms.decoder(
    arms.chain(temperature=0.0), **{'temperature': 0.0} | options
  )


def check_equals_one_prompt(decoder, state, turns, new):
  """Appends a turn to finished rows and returns the final state."""
  prompts = [text + turn for text, turn in zip(texts_of(state), turns)]
  next_state = run(decoder, decoder.append(state, turns, new))
  results = decoder.decode(prompts, new)
  expected = [
    prompt + result.tokens for prompt, result in zip(prompts, results)
  ]
  assert texts_of(next_state) == expected
  return next_state


@pytest.mark.parametrize(
  ('build', 'options'),
  [
    pytest.param([arms.chain], {}, marks=pytest.mark.slow),
    (
      [
        arms.chain,
        lambda **options: arms.chain(2, arms.OTHER, **options),
        lambda **_: arms.lookup(verifier='greedy'),
      ],
      {'bandit': 'ucb1'},
    ),
    pytest.param(
      [lambda **_: arms.arm(drafters.Suffix(toys.VOCAB), verifier='greedy')],
      {},
      marks=pytest.mark.slow,
    ),
    pytest.param(
      [arms.chain, lambda **options: arms.chain(2, **options)],
      {'bandit': 'hedge', 'feedback': 'full'},
      marks=pytest.mark.slow,
    ),
  ],
  ids=['chain', 'several arms', 'suffix', 'full information'],
)
def test_a_second_turn_equals_one_prompt(build, options):
  decoder = arms.decoder(
    *[arm(temperature=0.0) for arm in build], temperature=0.0, **options
  )
  state = run(decoder, decoder.init(sizes.PROMPTS, [4, 9, 6, 5]))
  check_equals_one_prompt(decoder, state, TURNS, [12, 5, 8, 1])


def ensemble(*arms_inside):
  """An arm that drafts by all of some arms."""
  inside, params = zip(*arms_inside)
  drafter = drafters.Ensemble([arm.drafter for arm in inside])
  return arms.arm(drafter, params, 'greedy')


def windowed(inner):
  arm, params = inner
  return arm._replace(drafter=drafters.Windowed(arm.drafter)), params


def perfect_chain():
  """An arm whose drafts are all accepted if its KV cache is right."""
  return arms.chain(draft=arms.TARGET, temperature=0.0)


def early_exit():
  """An arm that drafts with the first layer of the target."""
  target, params = arms.TARGET
  drafter = drafters.EarlyExit(
    target, trees.chain(3), arms.GREEDY, num_layers=1
  )
  return arms.arm(drafter, params, 'greedy')


def head(kind, build):
  """An arm of a head that begins with the target's parameters.

  Args:
    kind: of the head.
    build: returns a drafter of it.
  """
  target, params = arms.TARGET
  config = heads.configure(kind, target.config)
  drafter = build(heads.head(config))
  start = heads.begin(jax.random.key(1), config, target.config, params)
  return arms.arm(drafter, start, 'greedy')


def eagle(topology, kind='eagle'):
  return head(
    kind,
    lambda model: drafters.FeatureHeadDrafter(model, topology, arms.GREEDY),
  )


def parallel():
  model, params = arms.TARGET
  drafter = drafters.Parallel(
    model, trees.chain(3), arms.GREEDY, mask_token=toys.VOCAB - 1
  )
  return arms.arm(drafter, params, 'greedy')


def dynamic_tree():
  return head('eagle', lambda model: drafters.DynamicTree(model, 6, 3, beam=2))


def medusa():
  return head('medusa', lambda model: drafters.Medusa(model, TREE, arms.GREEDY))


TREE = trees.Topology((-1, -1, 0, 0, 1, 2))
DRAFTERS = {
  'chain': perfect_chain,
  'tree': lambda: arms.model(TREE, arms.TARGET, 0.0, 'greedy'),
  'parallel': parallel,
  'deferred': lambda: arms.deferred(perfect_chain()),
  'windowed': lambda: windowed(perfect_chain()),
  'ensemble': lambda: ensemble(perfect_chain(), arms.lookup(1, 'greedy')),
  'early exit': early_exit,
  'look-up': lambda: arms.lookup(verifier='greedy'),
  'suffix': lambda: arms.arm(drafters.Suffix(toys.VOCAB), verifier='greedy'),
  'eagle chain': lambda: eagle(trees.chain(3)),
  'eagle tree': lambda: eagle(TREE),
  'eagle3 tree': lambda: eagle(TREE, 'eagle3'),
  'dynamic tree': dynamic_tree,
  'deferred eagle tree': lambda: arms.deferred(eagle(TREE)),
  'windowed dynamic tree': lambda: windowed(dynamic_tree()),
  'medusa': medusa,
  'block head': lambda: head(
    'dflash',
    lambda model: drafters.BlockHeadDrafter(model, TREE, arms.GREEDY),
  ),
}


@functools.partial(jax.jit, static_argnames='num_rounds')
def rounds_of(round_fn, params, state, num_rounds):
  """Returns what each round drafts and accepts, and the draft's probabilities.

  Everything is `[rounds, B, ...]`; -1 stands where no token is drafted.
  """

  def step(state, _):
    selected, choice = round_steps.select(round_fn, state)
    current, _ = round_steps.catch_up(round_fn, params, selected, choice)
    tree = round_steps.draft(round_fn, params, current, choice, [0])[0].tree
    state, info = round_fn(params, state)
    exists = tree.valid & info.live[:, None]
    parents = jnp.array(tree.topology.parents)
    probs = 0.0
    if tree.raw_probs is not None:
      probs = jnp.where(exists[..., None], tree.raw_probs, 0)
    numbers = (
      jnp.where(exists, tree.tokens, -1),
      jnp.where(exists, parents, -1),
      info.num_emitted,
      info.num_accepted,
    )
    return state, (numbers, probs)

  return jax.lax.scan(step, state, length=num_rounds)[1]


def mismatches(decoder):
  """Returns the lengths of first turns after which rounds differ.

  A turn may end inside a draft. The next turn is compared with a decode whose
  prompt is the same text.
  """
  differing, num_accepted = [], 0
  for length in (1, 2, 3, 4):
    first_state = run(decoder, decoder.init(sizes.PROMPTS, length))
    prompts = [text + turn for text, turn in zip(texts_of(first_state), TURNS)]
    (appended_rounds, appended_probs), (prompt_rounds, prompt_probs) = (
      rounds_of(decoder.round_fn, decoder.params, state, 16)
      for state in (
        decoder.append(first_state, TURNS, 16),
        decoder.init(prompts, 16),
      )
    )
    num_accepted += prompt_rounds[-1].sum()
    if any(
      (second_leaf != prompt_leaf).any()
      for second_leaf, prompt_leaf in zip(appended_rounds, prompt_rounds)
    ):
      differing.append(length)
    elif not np.allclose(appended_probs, prompt_probs, rtol=0, atol=1e-3):
      differing.append(length)
  assert num_accepted > 0
  return differing


@pytest.mark.parametrize('name', tiers.cases(DRAFTERS, 'dynamic tree'))
def test_drafters_have_read_what_was_appended_and_nothing_else(name):
  """Rounds are those after one prompt, wherever the first turn ends."""
  assert not mismatches(arms.decoder(DRAFTERS[name](), temperature=0.0))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['chain', 'eagle tree', 'dynamic tree'])
def test_drafters_that_have_not_read_what_was_appended_are_found(name):
  arm, params = DRAFTERS[name]()
  idle = twins.twin(arm.drafter, can_catch_up=False)
  assert mismatches(
    arms.decoder((arm._replace(drafter=idle), params), temperature=0.0)
  )


@pytest.mark.slow
def test_drafters_that_keep_tokens_that_were_cut_are_found():
  arm, params = DRAFTERS['chain']()
  commit = arm.drafter.commit

  def commit_all(state, proposal, context, outcome, rows):
    everything = jnp.full_like(outcome.num_accepted, trees.chain(3).depth)
    outcome = outcome._replace(num_accepted=everything)
    return commit(state, proposal, context, outcome, rows)

  careless = twins.twin(arm.drafter, commit=commit_all)
  assert mismatches(
    arms.decoder((arm._replace(drafter=careless), params), temperature=0.0)
  )


def test_sampled_rows_go_on_with_their_own_keys():
  """The randomness of a row comes from its key and its length."""
  decoder = arms.decoder(arms.chain())
  states = [
    run(decoder, decoder.init(sizes.PROMPTS, 4, seed=3)) for _ in range(2)
  ]
  keys = [jax.random.key_data(state.keys) for state in states]
  assert (keys[0] == keys[1]).all()
  first_texts, second_texts = (
    texts_of(run(decoder, decoder.append(state, TURNS, 12))) for state in states
  )
  assert first_texts == second_texts


@pytest.mark.slow
def test_a_buffer_can_be_filled_to_the_end():
  decoder = chain_decoder()
  state = run(decoder, decoder.init(sizes.PROMPTS, [4, 9, 6, 5]))
  room = [sizes.BUFFER - len(text) for text in texts_of(state)]
  turns = [[2, 3] * 40, [5], [4] * 60, [6, 7]]
  turns = [turn[: capacity - 2] for turn, capacity in zip(turns, room)]
  final_state = check_equals_one_prompt(decoder, state, turns, 2)
  assert sorted(final_state.lengths.tolist())[-2:] == [sizes.BUFFER] * 2


def test_turns_that_do_not_fit_are_refused():
  decoder = chain_decoder()
  state = run(decoder, decoder.init(sizes.PROMPTS, 2))
  for texts, num, reason in (
    ([[1]], 2, 'texts must be one for each of 4 rows, got 1'),
    ([[1], [], [2], [3]], 2, r'texts\[1\] must not be empty'),
    ([[1], [99], [2], [3]], 2, r'texts\[1\] must hold tokens in \[0, 32\)'),
    (
      [[1], [2], [3] * 60, [4]],
      2,
      r'texts\[2\] has 60 tokens; after a row of 14',
    ),
    ([[1], [2], [3], [4]], -1, 'max_new_tokens'),
  ):
    with pytest.raises(ValueError, match=reason):
      decoder.append(state, texts, num)


# Warm start.


PROMPTS = sizes.PROMPTS  # Of 1, 3, 12 and 2 tokens.


def learner(bandit, **options):
  """Arms of two models, a deterministic one, and plain decoding."""
  return arms.decoder(
    *feedback_test.varied_lengths(),
    **{'bandit': bandit, 'reward': rewards.BlockDivergence()} | options,
  )


def acceptances(num_tokens):
  """`[rows, arms]` means over the last tokens that some token precedes."""
  width = max(map(len, PROMPTS))
  text = np.array([p + [0] * (width - len(p)) for p in PROMPTS], np.int32)
  by_slot = feedback_test.acceptance_of_text(jnp.asarray(text))
  return [
    [
      by_slot[slot][row, max(size - 1 - num_tokens, 0) : size - 1].mean()
      for slot in (0, 0, 1, 2, 3)
    ]
    for row, size in enumerate(map(len, PROMPTS))
    if size > 1
  ]


@pytest.mark.slow
@pytest.mark.parametrize(
  ('num_tokens', 'feedback'), [(4, 'bandit'), (40, 'full')]
)
def test_output_does_not_depend_on_what_was_learnt(num_tokens, feedback):
  """A bandit that ignores its lesson emits the same text after it."""
  options = {'feedback': feedback, 'per_row': True}
  cold_results, warm_results = (
    learner(arms.Cycling(5), warm_start=num, **options).decode(
      PROMPTS, sizes.NEW
    )
    for num in (0, num_tokens)
  )
  assert arms.tokens(warm_results) == arms.tokens(cold_results)
  for warm_result, cold_result in zip(warm_results, cold_results):
    assert warm_result.rounds == cold_result.rounds


@pytest.mark.parametrize(
  ('per_row', 'num_tokens'), tiers.cases([(True, 2), (False, 40)], (True, 2))
)
def test_each_arm_counts_as_played_once(per_row, num_tokens):
  """A bandit state from earlier prompts is carried over."""
  decoder = learner('ucb1', warm_start=num_tokens, per_row=per_row)
  bandit = decoder.init(PROMPTS, 8).bandit
  expected = np.array(acceptances(num_tokens))
  if per_row:  # A prompt of one token yields no estimate.
    assert (bandit.pulls[0] == 0).all() and (bandit.rewards[0] == 0).all()
    assert (bandit.pulls[1:] == 1).all()
    np.testing.assert_allclose(bandit.rewards[1:], expected, atol=2e-5)
  else:
    assert (bandit.pulls == 1).all()
    np.testing.assert_allclose(bandit.rewards, expected.mean(0), atol=2e-5)
  second = decoder.init(PROMPTS, 8, bandit_state=bandit).bandit
  np.testing.assert_array_equal(second.pulls, 2 * bandit.pulls)


def test_hedge_learns_once_from_all_arms():
  decoder = learner(
    feedback_test.Recorder(5), warm_start=3, per_row=True, feedback='full'
  )
  bandit_state = decoder.init(PROMPTS, 8).bandit
  assert (bandit_state[0] == -1).all()
  np.testing.assert_allclose(bandit_state[1:], acceptances(3), atol=2e-5)


def test_trees_may_be_deeper_than_the_text_is_long():
  """Past the text, a deep arm is judged by how the text was accepted."""
  shallow, deep = (
    arms.chain(length=length, draft=arms.TARGET) for length in (2, 5)
  )
  decoder = arms.decoder(shallow, deep, bandit='ucb1', warm_start=2)
  bandit = decoder.init([[1, 2, 3, 4]], 8).bandit
  later = 0.75 ** np.arange(1, 4)  # Two of two tokens: (2 + 1) / (2 + 2).
  expected = np.array([2, 2 + later.sum()]) / 5
  np.testing.assert_allclose(bandit.rewards, expected, atol=1e-5)


def test_a_lesson_is_of_the_rounds_that_begin_anywhere_in_the_text():
  """A round counts if the text holds all its levels, as the first one does."""
  decoder = learner('ucb1', reward=rewards.Emitted(), warm_start=6)
  prompt = max(PROMPTS, key=len)
  bandit = decoder.init([prompt], 8).bandit
  by_slot = feedback_test.acceptance_of_text(jnp.asarray([prompt]))
  for reward, depth, slot in zip(
    bandit.rewards, (3, 1, 2, 2, 0), (0, 0, 1, 2, 3), strict=True
  ):
    shown = by_slot[slot][0, len(prompt) - 7 : len(prompt) - 1]
    emitted = [
      np.cumprod(shown[start : start + depth]).sum()
      for start in range(min(6, 6 - depth + 1))
    ]
    assert reward == pytest.approx(np.mean(emitted) / 3, abs=2e-5)


def test_a_contextual_bandit_reads_the_text_that_it_learns_from():
  decoder = learner(specjax.bandits.LinUCB(5, max_match=4), warm_start=4)
  features = decoder.init([[1, 2, 3] * 4], 8).bandit.features
  assert features[0] == 0 and features[4] == 1, 'a match of four tokens'


def test_a_warm_start_may_be_longer_than_any_row():
  rewards_of = lambda num: learner('ucb1', warm_start=num).init(PROMPTS, 8)
  most = max(map(len, PROMPTS))
  long, longer = (rewards_of(num).bandit.rewards for num in (most, 10_000))
  np.testing.assert_allclose(longer, long, atol=1e-6)


def test_bad_requests_are_refused():
  with pytest.raises(ValueError, match='warm_start must be >= 0, got -1'):
    learner('ucb1', warm_start=-1)
  with pytest.raises(ValueError, match='warm_start=3 needs a bandit'):
    learner(None, warm_start=3)
  for bandit in (
    'uniform',
    specjax.bandits.LengthHeuristic(5, (3, 1, 2, 2, 0)),
  ):
    with pytest.raises(ValueError, match='bandit that does not learn from rew'):
      learner(bandit, warm_start=3)
  with pytest.raises(ValueError, match='warm_start=3 needs a reward'):
    learner('ucb1', reward=None, warm_start=3)
  model, params = arms.DRAFT
  member = drafters.Autoregressive(model, trees.chain(1))
  drafter = drafters.Ensemble([member, member])
  arm = arms.arm(drafter, (params, params), 'ensemble')
  message = 'warm_start must be 0 with drafters that cannot estimate .* got 3'
  with pytest.raises(ValueError, match=message):
    arms.decoder(arm, bandit='ucb1', warm_start=3)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'warm_start': 3}, 'warm_start must be 0 with lossy verifiers'),
    ({'feedback': 'full'}, "feedback 'full' needs lossless verifiers"),
  ],
)
@pytest.mark.parametrize('verifier', ['lossy', 'cactus', 'over_acceptance'])
def test_estimates_with_a_lossy_verifier_are_refused(
  verifier, options, message
):
  model, params = arms.DRAFT
  drafter = drafters.Autoregressive(model, trees.chain(2))
  with pytest.raises(ValueError, match=message):
    arms.decoder(arms.arm(drafter, params, verifier), bandit='ucb1', **options)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'warm_start': 3}, 'warm_start must be 0 with stop rules'),
    (
      {'feedback': 'full'},
      "feedback 'full' needs drafters without a stop rule",
    ),
  ],
)
def test_estimates_with_a_stop_rule_are_refused(options, message):
  """Also inside of a wrapper."""
  model, params = arms.DRAFT
  drafter = drafters.Autoregressive(
    model, trees.chain(2), stop=drafters.Unsure(0.5)
  )
  for candidate in (drafter, drafters.Windowed(drafter)):
    arm = arms.arm(candidate, params, 'maximal')
    with pytest.raises(ValueError, match=message):
      arms.decoder(arm, bandit='ucb1', **options)
