"""Continuous batching: each prompt gets what it gets alone, in their order."""

import jax
import numpy as np
import pytest

import specjax
from specjax import buckets
from specjax import components
from specjax.decoding import continuous_batching
from specjax.decoding import prefill
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import tiers
from tests import xla
from tests.decoding import drivers_test

RNG = np.random.default_rng(0)
PROMPTS = [
  RNG.integers(0, toys.VOCAB, RNG.integers(1, 30)).tolist() for _ in range(19)
]
NEWS = RNG.integers(0, 30, len(PROMPTS)).tolist()
SHORT_PROMPTS = [prompt[: sizes.PROMPT_WIDTH] for prompt in PROMPTS]
MARKOV_PROMPTS = [[token % 3 for token in prompt] for prompt in SHORT_PROMPTS]
QUEUE = 7  # Three queues hold all prompts.


def markov(**options):
  """A decoder that compiles quickly, where caches do not matter."""
  chain = arms.chain(draft=arms.MARKOV_DRAFT)
  return arms.decoder(chain, **{'target': arms.MARKOV_TARGET} | options)


def check_alone(decoder, results, prompts=PROMPTS, news=NEWS, seed=3):
  assert len(results) == len(prompts)
  for i, (prompt, new, result) in enumerate(zip(prompts, news, results)):
    (single_result,) = decoder.decode([prompt], new, seed=seed, request_ids=[i])
    assert result.tokens == single_result.tokens
    assert result.rounds == single_result.rounds
    for name in ('accepted', 'drafted', 'tested', 'pulls'):
      np.testing.assert_array_equal(
        getattr(result, name), getattr(single_result, name)
      )


def late(*args, **options):
  return arms.deferred(arms.chain(*args, **options))


OF_ROWS = {'bandit': 'thompson', 'per_row': True}


@pytest.mark.parametrize(
  ('build', 'prompts', 'options'),
  [
    (lambda: [arms.chain()], PROMPTS, {}),
    (
      lambda: [late(draft=arms.MARKOV_DRAFT), arms.lookup()],
      MARKOV_PROMPTS,
      OF_ROWS | {'target': arms.MARKOV_TARGET, 'stop_tokens': [2]},
    ),
    pytest.param(
      lambda: [late(), arms.none()],
      SHORT_PROMPTS,
      OF_ROWS,
      marks=pytest.mark.slow,
    ),
    pytest.param(
      lambda: [arms.chains()], SHORT_PROMPTS, {}, marks=pytest.mark.slow
    ),
    pytest.param(
      lambda: [arms.chain(), arms.chain(2)],
      SHORT_PROMPTS,
      {
        'warm_start': 4,
        'feedback': 'full',
        'bandit': 'ucb1',
        'per_row': True,
      },
      marks=pytest.mark.slow,
    ),
  ],
  ids=['chain', 'bandit for each row', 'deferred', 'otm', 'warm start'],
)
def test_each_prompt_gets_what_it_gets_alone(build, prompts, options):
  """Bit for bit: of mixed lengths, some without an answer, in three queues."""
  decoder = arms.decoder(*build(), **{'stop_tokens': [5]} | options)
  results = decoder.decode_many(
    iter(prompts), NEWS, batch_size=sizes.ROWS, queue_size=QUEUE, seed=3
  )
  check_alone(decoder, list(results), prompts)


@pytest.mark.parametrize(
  ('num', 'queue_size'),
  tiers.cases([(1, QUEUE), (3, QUEUE), (8, sizes.ROWS)], (3, QUEUE)),
)
def test_rows_may_be_more_than_prompts(num, queue_size):
  decoder, prompts = markov(), MARKOV_PROMPTS[:num]
  results = decoder.decode_many(
    prompts, 12, batch_size=sizes.ROWS, queue_size=queue_size, seed=3
  )
  check_alone(decoder, list(results), prompts, [12] * num)


def test_request_ids_are_whose_the_randomness_is():
  decoder, ids = markov(), list(range(10, 10 + len(PROMPTS)))
  results = decoder.decode_many(
    MARKOV_PROMPTS,
    9,
    batch_size=sizes.ROWS,
    queue_size=QUEUE,
    request_ids=ids,
  )
  for i, prompt, result in zip(ids, MARKOV_PROMPTS, results, strict=True):
    (single_result,) = decoder.decode([prompt], 9, request_ids=[i])
    assert result.tokens == single_result.tokens


CALLS = []  # The number of rows in each call of the target.


@components.component
class Watched(specjax.models.ModelWrapper):
  """A model that appends the batch sizes of its calls to `CALLS`."""

  def extend(self, params, cache, tokens, **options):
    num_rows = len(tokens)
    jax.debug.callback(lambda: CALLS.append(num_rows))
    return self.model.extend(params, cache, tokens, **options)


def watched(*args, **options):
  """A decoder whose target appends the batch sizes of its calls to `CALLS`."""
  model, table = arms.MARKOV_TARGET
  target = Watched(model), table
  return arms.decoder(*args, target=target, **options)


def calls_of(decoder, *args, **options):
  """Returns the batch sizes of the target's calls, and the results."""
  CALLS.clear()
  results = list(decoder.decode_many(*args, **options))
  jax.effects_barrier()
  return list(CALLS), results


@pytest.mark.slow
def test_rows_that_are_left_go_on_in_narrower_batches():
  news = [1, 4, 40, 2, 1, 24, 3, 1]
  decoder = watched(
    arms.chain(draft=arms.MARKOV_DRAFT),
    arms.none(),
    bandit='ucb1',
    per_row=True,
  )
  prompts = MARKOV_PROMPTS[: len(news)]
  calls, results = calls_of(decoder, prompts, news, batch_size=8)
  assert calls == sorted(calls, reverse=True) and set(calls) == {8, 2}
  # A narrow batch makes as many calls as its longest row has rounds left.
  assert len(calls) == max(result.rounds for result in results)
  check_alone(decoder, results, prompts, news, seed=0)


def test_narrower_batches_are_divided_as_the_wide_one():
  assert continuous_batching.batch_widths(32, 1) == [32, 8, 2]
  assert continuous_batching.batch_widths(32, 4) == [32, 8]
  assert continuous_batching.batch_widths(12, 3) == [12, 3]
  assert continuous_batching.batch_widths(1, 1) == [1]


def test_widths_of_programs_that_read_prompts():
  assert buckets.bucket_widths(16) == [16]
  assert buckets.bucket_widths(20) == [16, 20]
  assert buckets.bucket_widths(256) == [16, 32, 64, 96, 128, 192, 256]


def test_rows_are_kept_busy():
  """With answers of 1 and of 30 tokens, a batch of each would wait for it."""
  news = [30 if i % 4 == 0 else 1 for i in range(16)]
  calls, results = calls_of(
    watched(arms.none()), [[1]] * 16, news, batch_size=sizes.ROWS
  )
  longest = max(result.rounds for result in results)
  assert sum(result.rounds for result in results) > 2 * longest
  # Each of four batches would take as long as its longest answer.
  padded = sum(
    max(result.rounds for result in results[i : i + 4]) for i in range(0, 16, 4)
  )
  assert len(calls) < 0.75 * padded


def test_a_bandit_of_the_batch_goes_on_from_prompt_to_prompt():
  """Also where the rows that are left go on in a narrower batch."""
  decoder = watched(
    arms.chain(draft=arms.MARKOV_DRAFT),
    arms.none(),
    bandit=specjax.bandits.UCB1(2, beta=1e-6),
  )
  news = [20] * (len(PROMPTS) - 1) + [40]
  calls, results = calls_of(
    decoder, MARKOV_PROMPTS, news, batch_size=sizes.ROWS
  )
  assert set(calls) == {sizes.ROWS, 1}
  assert [len(result.tokens) for result in results] == news
  assert sum(result.pulls for result in results).min() > 0
  # Each prompt for itself would try both.
  assert min(result.pulls.min() for result in results if result.rounds > 3) == 0


def test_results_come_while_others_wait():
  consumed_prompts = []

  def prompts():
    for prompt in MARKOV_PROMPTS:
      consumed_prompts.append(prompt)
      yield prompt

  results = markov().decode_many(
    prompts(), 5, batch_size=sizes.ROWS, queue_size=sizes.ROWS
  )
  next(results)
  assert len(consumed_prompts) < len(PROMPTS)
  assert len(list(results)) == len(PROMPTS) - 1


def test_queues_of_one_shape_share_a_program():
  """No other test has this buffer, so none has compiled the program before."""
  initial_size = continuous_batching.decode_queue._cache_size()

  def num_programs(prompts):
    decoder = markov(max_length=48)
    list(decoder.decode_many(prompts, 5, batch_size=2, queue_size=6))
    return continuous_batching.decode_queue._cache_size() - initial_size

  for num in (3, 9, 19):
    assert num_programs(MARKOV_PROMPTS[:num]) == 1
  assert num_programs([[1] * 33]) == 2  # Wider prompts.


def test_no_cache_of_the_batch_is_copied():
  """Only rows of it: what is read is a state of one row."""
  decoder, num_rows, size = arms.decoder(arms.none()), 3, 4
  setup = prefill.Setup(decoder.round_fn, sizes.BUFFER)
  batch = continuous_batching.idle_batch(
    setup,
    decoder.params,
    np.zeros(num_rows, np.uint32),
    np.uint32(0),
    np.full(8, -1, np.int32),
    np.int32(0),
  )
  ones = np.ones(size, np.int32)
  queue = prefill.PromptBatch(
    np.zeros((size, 32), np.int32), ones, ones, np.zeros(size, np.uint32)
  )
  lowered = continuous_batching.decode_queue.lower(
    setup,
    decoder.params,
    batch,
    queue,
    np.int32(size),
    np.int32(1),
    np.uint32(0),
    None,
  )
  loop = xla.compile_as_usual(lowered)
  assert not drivers_test.cache_copies(loop, batch.state)


@pytest.mark.parametrize(
  ('prompts', 'options', 'words'),
  [
    ([], {}, 'prompts must hold at least one prompt, got none'),
    ([], {'batch_size': 65}, 'prompts must hold at least one prompt, got none'),
    ('abc', {}, 'encode it first'),
    ([[1]], {'batch_size': 0}, 'batch_size must be >= 1, got 0'),
    ([[1]], {'queue_size': 1}, 'queue_size must be >= 4, got 1'),
    ([[1]], {'seed': -1}, 'seed must lie in'),
    ([[1]] * 3 + [[99]], {}, r'prompts\[3\] must hold tokens in \[0, 3\)'),
    ([[1], []], {}, r'prompts\[1\] must not be empty'),
    ([[1] * 60], {}, r'prompts\[0\] has 60 tokens; with max_new_tokens=5'),
  ],
)
def test_bad_arguments_are_refused(prompts, options, words):
  options = {'batch_size': sizes.ROWS} | options
  with pytest.raises(ValueError, match=words):
    markov().decode_many(prompts, 5, **options)


def test_what_is_wrong_in_a_later_queue_names_the_prompt():
  options = {'batch_size': sizes.ROWS, 'queue_size': sizes.ROWS}
  results = markov().decode_many([[1]] * 5 + [[1] * 64], 5, **options)
  with pytest.raises(ValueError, match=r'prompts\[5\] has 64 tokens'):
    list(results)
  with pytest.raises(ValueError, match='max_new_tokens must be one for each'):
    list(markov().decode_many([[1]] * 3, [1, 2], **options))
  for several in ({}, options):
    decode = markov().decode_many if several else markov().decode
    with pytest.raises(ValueError, match='request_ids must be .* got 7'):
      list(decode([[1]], 1, request_ids=7, **several))
  for arguments in ({'max_new_tokens': [1] * 4}, {'request_ids': range(4)}):
    arguments = {'max_new_tokens': 1} | options | arguments
    with pytest.raises(ValueError, match='one for each of 3 prompts, got 4'):
      list(markov().decode_many([[1]] * 3, **arguments))
  assert len(list(markov().decode_many([[1]] * 3, np.array(2), **options))) == 3


def test_a_state_of_a_bandit_of_rows_is_refused():
  decoder = markov(per_row=True)
  with pytest.raises(
    ValueError, match='bandit_state must be None with per_row'
  ):
    decoder.decode_many([[1]], 5, batch_size=2, bandit_state=())


def test_infinite_logits_name_the_prompt():
  model, table = arms.MARKOV_TARGET
  decoder = markov(target=(model, table * np.nan))
  options = {'batch_size': sizes.ROWS, 'queue_size': sizes.ROWS}
  with pytest.raises(FloatingPointError, match=r'in prompts \[0, 1\]'):
    list(decoder.decode_many([[1], [2]], 5, **options))
