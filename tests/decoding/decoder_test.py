"""The host interface: equality with plain decoding, independence, programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import decoding
from specjax import drafters
from specjax import rewards
from specjax import trees
from specjax import verifiers
from specjax.decoding import decoder as decoder_lib
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import tiers
from tests.decoding import results_test


@functools.cache
def greedy_chain():
  """A decoder of one chain, its final state and results, at temperature 0."""
  decoder = arms.decoder(arms.chain(temperature=0.0), temperature=0.0)
  state = decoding.decode(
    decoder.round_fn, decoder.params, decoder.init(sizes.PROMPTS, sizes.NEW)
  )
  return decoder, state, decoder.results(sizes.PROMPTS, state)


@functools.cache
def sampled_chain():
  """A decoder of one chain at temperature 1, and its results."""
  decoder = arms.decoder(arms.chain())
  return decoder, decoder.decode(sizes.PROMPTS, sizes.NEW)


def test_texts_do_not_depend_on_the_default_generator():
  """Of another one, a key's numbers may differ in and out of `vmap`."""
  texts = []
  for name in ('threefry2x32', 'rbg'):
    with jax.default_prng_impl(name):
      decoder = arms.decoder(
        arms.chain(draft=arms.MARKOV_DRAFT), target=arms.MARKOV_TARGET
      )
      results = decoder.decode(sizes.MARKOV_PROMPTS, sizes.NEW, seed=5)
      texts.append(arms.tokens(results))
  assert texts[0] == texts[1]


def test_greedy_speculative_equals_greedy_autoregressive():
  """Checks that a round emits its accepted tokens and one more."""
  _, _, results = greedy_chain()
  assert arms.tokens(results) == arms.greedy_tokens()
  assert sum(result.accepted.sum() for result in results) > 0
  for result in results:
    # The limit may have cut the last round inside its accepted path.
    num_cut_tokens = result.rounds + result.accepted.sum() - len(result.tokens)
    assert num_cut_tokens in (0, 1)
    assert (np.diff(result.accepted) <= 0).all()
    assert (result.drafted == result.rounds).all()
    assert result.draft_calls == 3 * result.rounds
    assert result.pulls.tolist() == [result.rounds]


def test_plain_decoding_drafts_nothing():
  plain = arms.decoder(arms.none(), temperature=0.0)
  for result in plain.decode(sizes.PROMPTS, sizes.NEW):
    assert result.rounds == sizes.NEW and result.draft_calls == 0


@pytest.mark.parametrize(
  ('topology', 'verifier'),
  [
    (trees.prefix_tree((2, 2, 1)), 'otm'),
    pytest.param(trees.chains(3, 3), 'greedy', marks=pytest.mark.slow),
  ],
)
def test_greedy_trees_equal_greedy_autoregressive(topology, verifier):
  """The drafter samples, so that branches differ; the target is greedy."""
  decoder = arms.decoder(
    arms.model(topology, verifier=verifier), temperature=0.0
  )
  results = decoder.decode(sizes.PROMPTS, sizes.NEW)
  assert arms.tokens(results) == arms.greedy_tokens()
  assert sum(result.accepted.sum() for result in results) > 0


@pytest.mark.parametrize(
  'name',
  tiers.cases(
    ['batch', 'block', 'greedy', 'kseq', 'maximal', 'multiround', 'otm'],
    *('batch', 'block', 'otm'),
  ),
)
def test_verifiers_of_one_hot_distributions_take_the_greedy_path(name):
  """Drafts four equal chains whose first tokens agree with the target."""
  num_drafts, length, vocab_size = (1 if name == 'maximal' else 4), 3, 5
  topology = trees.chains(num_drafts, length)
  one_hot = np.eye(vocab_size, dtype=np.float32)
  draft = np.array([1, 2, 3])
  verify = verifiers.resolve(name)

  @jax.jit
  def walk(keys, target):
    tree = specjax.DraftTree(
      jnp.asarray(np.repeat(draft, num_drafts), jnp.int32),
      topology,
      jnp.ones(topology.num_nodes, bool),
      jnp.asarray(one_hot[np.repeat(draft, num_drafts)]),
    )
    return jax.vmap(lambda key, probs: verify(key, tree, probs))(keys, target)

  # The index of the first token that the target rejects; 3 if there is none.
  wrong = np.repeat(np.arange(4), 8)
  greedy = np.tile(np.array([1, 2, 3, 4]), (len(wrong), 1))
  greedy[wrong < 3, wrong[wrong < 3]] = 0
  # The depths of the root and the nodes.
  depths = np.append(0, topology.depths)
  keys = jax.random.split(jax.random.key(0), len(wrong))
  outcome = walk(keys, one_hot[greedy[:, depths]])
  np.testing.assert_array_equal(outcome.num_accepted, wrong)
  for row, num in enumerate(wrong):
    emitted = np.asarray(outcome.tokens)[row, : num + 1]
    np.testing.assert_array_equal(emitted, greedy[row, : num + 1])


@pytest.mark.parametrize(
  'build', tiers.cases([arms.chain, arms.chains], arms.chain)
)
def test_output_does_not_depend_on_the_batch(build):
  """Compares outputs at temperature 1 with permuted rows and single rows."""
  decoder = arms.decoder(build())
  batch_results = decoder.decode(sizes.PROMPTS, sizes.NEW)
  order = [3, 0, 1, 2]
  permuted = decoder.decode(
    [sizes.PROMPTS[i] for i in order], sizes.NEW, request_ids=order
  )
  for i, result in zip(order, permuted, strict=True):
    assert result.tokens == batch_results[i].tokens
  for i, prompt in enumerate(sizes.PROMPTS):
    (single_result,) = decoder.decode([prompt], sizes.NEW, request_ids=[i])
    assert single_result.tokens == batch_results[i].tokens
  assert sum(result.accepted.sum() for result in batch_results) > 0


def test_request_ids_and_seeds_change_samples():
  decoder, _ = sampled_chain()
  outputs = decoder.decode([[1]] * sizes.ROWS, 20)
  assert len({tuple(result.tokens) for result in outputs}) == sizes.ROWS
  reseeded_outputs = decoder.decode([[1]] * sizes.ROWS, 20, seed=1)
  assert arms.tokens(outputs) != arms.tokens(reseeded_outputs)


@pytest.mark.parametrize('arm', [arms.none(), arms.chain(temperature=0.0)])
def test_stop_tokens_cut_the_output_wherever_they_fall(arm):
  """Every token of the unstopped outputs is tried as the stop token."""
  plain, num_cut = arms.greedy_tokens(), 0
  for stop in {token for tokens in plain for token in tokens}:
    decoder = arms.decoder(arm, temperature=0.0, stop_tokens=[stop])
    results = decoder.decode(sizes.PROMPTS, sizes.NEW)
    for tokens, stopped in zip(plain, results, strict=True):
      end = tokens.index(stop) + 1 if stop in tokens else len(tokens)
      assert stopped.tokens == tokens[:end]
      emitted = stopped.rounds + stopped.accepted.sum()
      assert len(stopped.tokens) <= emitted
      num_cut += stop in tokens and len(stopped.tokens) < emitted
  # Some stop tokens were accepted drafts.
  assert (num_cut > 0) == (arm != arms.none())


def test_max_new_tokens_is_exact_and_does_not_recompile():
  decoder, _, _ = greedy_chain()
  compiled = decoding.decode._cache_size()
  for new in (0, 1, 2, 7, [3, 0, 9, 5]):
    outputs = decoder.decode(sizes.PROMPTS, new)
    lengths = [len(result.tokens) for result in outputs]
    assert lengths == np.broadcast_to(new, sizes.ROWS).tolist()
  assert decoding.decode._cache_size() == compiled


def test_stream_says_where_each_token_came_from():
  decoder = arms.decoder(
    arms.chain(draft=arms.MARKOV_DRAFT),
    arms.none(),
    target=arms.MARKOV_TARGET,
  )
  (result,) = decoder.decode([[1, 2]], 20)
  rounds = list(decoder.stream([1, 2], 20))
  assert [piece.token for pieces in rounds for piece in pieces] == result.tokens
  assert len(rounds) == result.rounds
  for pieces in rounds[:-1]:
    assert {piece.origin for piece in pieces[:-1]} <= {'accepted'}
    last_origin = 'bonus' if len(pieces) == 4 else 'corrected'
    assert pieces[-1].origin == last_origin
  assert {len(pieces) for pieces in rounds} >= {1, 4}
  plain = decoder.stream([1], 3, bandit_state=np.int32(1))
  origins = [[piece.origin for piece in pieces] for pieces in plain]
  assert origins == [['sampled']] * 3


def test_stream_refuses_a_bad_request_before_its_first_round():
  decoder = arms.decoder(arms.none())
  with pytest.raises(ValueError, match=r'prompts\[0\] must not be empty'):
    decoder.stream([], 4)
  with pytest.raises(ValueError, match='max_rate needs a decoder with reward='):
    decoder.stream([1], 4, max_rate=10)


def test_shapes_are_known_without_numbers():
  decoder, _, _ = greedy_chain()
  shape = lambda leaf: (leaf.shape, leaf.dtype)
  state = decoder.init(sizes.PROMPTS, 8)
  traced_state = decoder.trace_init(sizes.ROWS).out_info
  assert jax.tree.map(shape, traced_state) == jax.tree.map(shape, state)


@pytest.mark.parametrize(
  'prompts, new, words',
  [
    ([], 4, 'at least one prompt'),
    ([[1], []], 4, r'prompts\[1\] must not be empty'),
    ([[1] * 60], 5, 'exceeds max_length=64'),
    ([[1]], -1, 'max_new_tokens must be >= 0, got -1'),
    ([[toys.VOCAB]], 4, r'tokens in \[0, 32\)'),
  ],
)
def test_bad_prompts_are_refused(prompts, new, words):
  with pytest.raises(ValueError, match=words):
    arms.decoder(arms.none()).decode(prompts, new)


def test_bad_models_and_lengths_are_refused():
  target, draft = arms.TARGET, toys.markov()
  with pytest.raises(ValueError, match='vocab_size 4 and 32'):
    decoding.speculative(*target, *draft)
  with pytest.raises(ValueError, match='draft_length must be >= 1, got 0'):
    decoding.speculative(*target, *target, draft_length=0)
  with pytest.raises(ValueError, match='num_drafts must be >= 1, got 0'):
    decoding.speculative(*target, *target, num_drafts=0)
  with pytest.raises(ValueError, match="verifier 'nope'. Known: batch, block"):
    decoding.speculative(*target, *target, verifier='nope')
  with pytest.raises(ValueError, match="must be a Topology, .* got 'eagle'"):
    decoding.speculative(*target, *target, tree='eagle')
  with pytest.raises(ValueError, match='sampling must be a Sampling, got 0.0'):
    decoding.speculative(*target, *target, sampling=0.0)
  with pytest.raises(ValueError, match='max_length must be >= 2, got 1'):
    decoding.speculative(*target, None, max_length=1)
  with pytest.raises(ValueError, match='max_length must be an integer, got 16'):
    decoding.speculative(*target, None, max_length=16.5)
  with pytest.raises(ValueError, match='got the drafter PromptLookup: pass it'):
    decoding.speculative(*target, drafters.PromptLookup())
  with pytest.raises(ValueError, match='at least one arm'):
    decoding.Decoder(*target, [])
  arm, params = arms.chain()
  with pytest.raises(ValueError, match=r'pairs of an Arm .* got Arm \(arm 0\)'):
    decoding.Decoder(*target, [arm])
  arm = arm._replace(drafter=target[0])
  with pytest.raises(ValueError, match='drafter must be a Drafter, .* got T'):
    decoding.Decoder(*target, [(arm, params)])
  with pytest.raises(ValueError, match='goal needs a draft, .* draft=None'):
    decoding.speculative(*target, None, goal=specjax.goals.Chow(0.9))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'reward': rewards.Emitted}, 'reward must be a Reward, .* got <class'),
    (
      {'reward': rewards.Throughput((1.0, 2.0), (3, 0))},
      r'reward must have the depths of .*, \(3, 2\), got \(3, 0\)',
    ),
    ({'bandit': specjax.bandits.Hedge(2)}, "Hedge needs feedback 'full', .*"),
    (
      {'feedback': 'full', 'reward': None},
      "feedback 'full' needs a reward, .* got None",
    ),
  ],
)
def test_what_a_bandit_cannot_learn_from_is_refused(options, message):
  several = arms.chain(3), arms.chain(2)
  with pytest.raises(ValueError, match=message):
    arms.decoder(*several, **{'bandit': specjax.bandits.UCB1(2)} | options)


def test_the_target_as_a_goal_costs_no_bonus_probabilities():
  lossless, plain = (
    decoding.speculative(*arms.TARGET, *arms.DRAFT, goal=goal)
    for goal in (specjax.goals.Target(), None)
  )
  assert lossless.round_fn == plain.round_fn


def test_several_drafts_differ_at_temperature_0():
  options = {'draft_length': 2, 'sampling': arms.GREEDY}
  one, several = (
    decoding.speculative(
      *arms.TARGET, *arms.DRAFT, num_drafts=num, max_length=64, **options
    ).decode(sizes.PROMPTS, sizes.NEW)
    for num in (1, 4)
  )
  assert arms.tokens(several) == arms.tokens(one)
  rounds = [sum(result.rounds for result in batch) for batch in (one, several)]
  assert rounds[1] < rounds[0], 'siblings add no token that is accepted'


def test_nan_parameters_are_reported():
  model, params = arms.TARGET
  table = params['embedding']['embedding'] * np.nan
  broken = dict(params, embedding={'embedding': table})
  decoder = arms.decoder(arms.none(), temperature=0.0, target=(model, broken))
  with pytest.raises(FloatingPointError, match=r'rows \[0, 1, 2, 3\]'):
    decoder.decode(sizes.PROMPTS, 3)


def test_a_state_of_another_bandit_is_refused():
  state = specjax.bandits.UCB1(2).init()
  with pytest.raises(ValueError, match='bandit_state must be of the bandit'):
    results_test.decoder().decode([[1]], 4, bandit_state=state)
  routes = np.zeros(2)
  with pytest.raises(ValueError, match=r"\(\(2,\), 'i'\), got \(\(2,\), 'f'\)"):
    results_test.decoder(per_row=True).decode([[1]] * 2, 4, bandit_state=routes)
  with pytest.raises(ValueError, match='bandit_state must be of 3 rows'):
    results_test.decoder(per_row=True).decode(
      [[1]] * 3, 4, bandit_state=np.zeros(2, int)
    )


# Equal decoders share programs; data makes no new one.


PROMPTS = sizes.PROMPTS[:2] * 2


PARAMS = toys.markov(0, toys.VOCAB)[1]


def build(length, temperature=0.7, stop=5, arm=0):
  """Returns a decoder of two arms; all of its parts are built anew.

  Each test has a draft length that no other test uses, so that none of its
  programs was compiled before.
  """
  target, params = specjax.models.Markov(toys.VOCAB), PARAMS
  return arms.decoder(
    arms.model(trees.chain(length), (target, params[::-1]), temperature),
    arms.none(),
    target=(target, params),
    bandit=specjax.bandits.Fixed(2, arm=arm),
    reward=specjax.rewards.Tradeoff(0.3),
    temperature=temperature,
    stop_tokens=[stop] if isinstance(stop, int) else stop,
  )


class Compiled:
  """Counts the loops and the prefill programs that are compiled from now on."""

  def __init__(self):
    self._before = self._sizes()

  def _sizes(self):
    return np.array(
      [decoding.decode._cache_size(), decoder_lib._prefill._cache_size()]
    )

  def numbers(self):
    return (self._sizes() - self._before).tolist()


def test_equal_decoders_share_one_program():
  """Three stop tokens, four lengths, two arms of `fixed`, two temperatures."""
  compiled = Compiled()
  for i in range(6):
    stop, temperature = (5, 6, [7, 8])[i % 3], (0.7, 2)[i // 3]
    decoder = build(2, temperature, stop=stop, arm=i % 2)
    for new in (1, 2, 7, 30):
      results = decoder.decode(PROMPTS, new)
      assert max(len(result.tokens) for result in results) <= new
      assert all(result.pulls[i % 2] == result.rounds for result in results)
  assert compiled.numbers() == [1, 1]


def test_longer_prompts_read_by_another_program_are_decoded_by_the_same():
  compiled = Compiled()
  for length in (3, 16, 17, 30):
    build(4).decode([[1] * length] * sizes.ROWS, 4)
  assert compiled.numbers() == [1, 2]


@pytest.mark.slow
def test_what_is_no_data_makes_another_program():
  """The check above has teeth."""
  compiled = Compiled()
  # Each of the first two temperatures skips a step, as in `sampling.Sampling`.
  for temperature in (0.0, 1.0, 0.7):
    build(5, temperature).decode(PROMPTS, 4)
  # More stop tokens than there is room for.
  build(5, stop=range(9)).decode(PROMPTS, 4)
  assert compiled.numbers() == [4, 4]


def test_rounds_are_values():
  round_fn = build(3).round_fn
  equal_round_fn = build(3, stop=9).round_fn
  assert equal_round_fn == round_fn and hash(equal_round_fn) == hash(round_fn)
  assert build(3, temperature=0.8).round_fn != round_fn


def test_a_sweep_over_the_number_of_a_rule_compiles_one_program():
  compiled = Compiled()
  texts = []
  for alpha in (0, *np.linspace(0.1, 0.9, 7).tolist()):
    decoder = arms.decoder(
      arms.model(
        trees.chain(6), temperature=0.75, goal=specjax.goals.TokenV3(alpha)
      ),
      temperature=0.75,
    )
    results = decoder.decode(sizes.PROMPTS, sizes.NEW)
    texts.append([result.tokens for result in results])
  assert compiled.numbers() == [1, 1]
  assert texts[0] != texts[-1]


@pytest.mark.parametrize(
  'tokens', [[2.5], 1, np.array(1), [-1], [toys.VOCAB], [[1]]]
)
def test_stop_tokens_outside_the_vocabulary_are_refused(tokens):
  with pytest.raises(ValueError, match='stop_tokens must .*, got'):
    arms.decoder(arms.none(), stop_tokens=tokens)


def test_every_one_of_many_stop_tokens_stops():
  """`decoder_test` tries one stop token at a time, in the smaller array."""
  plain = arms.greedy_tokens()
  for stop in set(plain[0]):
    other_tokens = [
      token for token in range(toys.VOCAB) if token not in plain[0]
    ]
    decoder = arms.decoder(
      arms.none(), temperature=0.0, stop_tokens=[*other_tokens[:11], stop]
    )
    result = decoder.decode(sizes.PROMPTS, sizes.NEW)[0]
    assert result.tokens == plain[0][: plain[0].index(stop) + 1]


@pytest.mark.parametrize('per_row', [False, True])
def test_a_bandit_begins_by_data(per_row):
  """Starts from a new bandit state and from a state that the caller passes."""
  decoder = arms.decoder(
    *[arms.none()] * 3,
    target=arms.MARKOV_TARGET,
    bandit='round_robin',
    per_row=per_row,
  )
  begin = np.int32([1, 2]) if per_row else np.int32(1)
  fresh_results = decoder.decode([[1], [2]], 4)
  resumed_results = decoder.decode([[1], [2]], 4, bandit_state=begin)
  assert [result.pulls.tolist() for result in fresh_results] == [[2, 1, 1]] * 2
  expected = [[1, 2, 1], [1, 1, 2]] if per_row else [[1, 2, 1]] * 2
  assert [result.pulls.tolist() for result in resumed_results] == expected
