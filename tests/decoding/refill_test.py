"""Refilled batches: each prompt gets what it gets alone, in their order."""

import re

import jax
import numpy as np
import pytest

import specjax
from specjax import padding
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import reading
from specjax.decoding import refill
from specjax.testing import toys
from tests import xla

RNG = np.random.default_rng(0)
PROMPTS = [
  RNG.integers(0, toys.VOCAB, RNG.integers(1, 30)).tolist() for _ in range(19)
]
NEWS = RNG.integers(0, 30, len(PROMPTS)).tolist()
MAX_LENGTH = 64
TARGET, PARAMS = toys.transformer()
DRAFT, DRAFT_PARAMS = toys.transformer(1, num_layers=1)


def model_arm(sampling, topology, verifier):
  drafter = specjax.DRAFTERS['autoregressive'](DRAFT, topology, sampling)
  return specjax.Arm(drafter, verifiers.resolve(verifier)), DRAFT_PARAMS


def late(arm, params):
  drafter = specjax.DRAFTERS['deferred'](arm.drafter)
  return arm._replace(drafter=drafter), params


def lookup_arm():
  drafter = specjax.DRAFTERS['prompt_lookup'](3)
  return specjax.Arm(drafter, verifiers.resolve('maximal')), None


def build(arms=('chain',), temperature=1.0, **options):
  sampling = sampling_lib.Sampling(temperature)
  made = {
    'none': lambda: (
      specjax.Arm(specjax.DRAFTERS['none'](), verifiers.resolve('maximal')),
      None,
    ),
    'chain': lambda: model_arm(sampling, trees.chain(3), 'maximal'),
    'late': lambda: late(*model_arm(sampling, trees.chain(2), 'maximal')),
    'greedy': lambda: model_arm(sampling, trees.chain(3), 'greedy'),
    'otm': lambda: model_arm(sampling, trees.chains(2, 3), 'otm'),
    'block': lambda: model_arm(sampling, trees.chains(2, 3), 'block'),
    'lookup': lookup_arm,
  }
  return specjax.Decoder(
    TARGET,
    PARAMS,
    [made[name]() for name in arms],
    sampling=sampling,
    max_length=MAX_LENGTH,
    stop_tokens=[5],
    **options,
  )


def check_alone(decoder, found, prompts=PROMPTS, news=NEWS, seed=3):
  assert len(found) == len(prompts)
  for i, (prompt, new, result) in enumerate(zip(prompts, news, found)):
    (alone,) = decoder.decode([prompt], new, seed=seed, request_ids=[i])
    assert result.tokens == alone.tokens
    assert result.rounds == alone.rounds
    for name in ('accepted', 'drafted', 'pulls'):
      np.testing.assert_array_equal(getattr(result, name), getattr(alone, name))


def of_rows(name):
  return {'bandit': specjax.BANDITS[name](2), 'per_row': True}


@pytest.mark.parametrize(
  'options',
  [
    {},
    {'arms': ['none']},
    {'arms': ['greedy'], 'temperature': 0.0},
    pytest.param({'arms': ['otm']}, marks=pytest.mark.slow),
    pytest.param({'arms': ['block']}, marks=pytest.mark.slow),
    {'arms': ['lookup']},
    {'arms': ['late']},
    {'arms': ['chain', 'lookup'], **of_rows('thompson')},
    pytest.param(
      {'arms': ['late', 'none'], **of_rows('thompson')}, marks=pytest.mark.slow
    ),
    pytest.param(
      {
        'arms': ['chain', 'chain'],
        'warm_start': 4,
        'catch_up': 'always',
        **of_rows('ucb1'),
      },
      marks=pytest.mark.slow,
    ),
  ],
  ids=[
    *('chain', 'plain', 'greedy', 'otm', 'block', 'look-up', 'deferred'),
    *('bandit of rows', 'deferred, bandit of rows', 'warm start'),
  ],
)
def test_each_prompt_gets_what_it_gets_alone(options):
  """Bit for bit: of mixed lengths, some without an answer, in three queues."""
  decoder = build(**options)
  found = decoder.decode_many(
    iter(PROMPTS), NEWS, batch_size=4, queue_size=7, seed=3
  )
  check_alone(decoder, list(found))


@pytest.mark.parametrize(
  ('num', 'batch_size', 'queue_size'), [(1, 4, 4), (3, 4, 64), (8, 4, 4)]
)
def test_rows_may_be_more_than_prompts(num, batch_size, queue_size):
  decoder = build()
  found = decoder.decode_many(
    PROMPTS[:num], 12, batch_size=batch_size, queue_size=queue_size, seed=3
  )
  check_alone(decoder, list(found), PROMPTS[:num], [12] * num)


def test_request_ids_are_whose_the_randomness_is():
  decoder = build()
  ids = list(range(10, 10 + len(PROMPTS)))
  many = decoder.decode_many(PROMPTS, 9, batch_size=4, request_ids=ids)
  for i, result in zip(ids, many):
    (alone,) = decoder.decode([PROMPTS[i - 10]], 9, request_ids=[i])
    assert result.tokens == alone.tokens


def watched(decoder, *args, **options):
  """Sizes and rounds of the batches that were played, and what came out."""
  seen = []

  def watch(play):
    def watching(*args):
      batch, finished = play(*args)
      seen.append((len(batch.places), int(batch.state.num_rounds)))
      return batch, finished

    return watching

  with pytest.MonkeyPatch.context() as patch:
    for name in ('play', 'finish'):
      patch.setattr(refill, name, watch(getattr(refill, name)))
    results = list(decoder.decode_many(*args, **options))
  return seen, results


@pytest.mark.parametrize('per_row', [False, True])
def test_rows_that_are_left_go_on_in_narrower_batches(per_row):
  news = [1, 4, 40, 2, 1, 24, 3, 1]
  bandit = specjax.BANDITS['ucb1'](2)
  decoder = build(['chain', 'lookup'], bandit=bandit, per_row=per_row)
  prompts = PROMPTS[: len(news)]
  seen, results = watched(decoder, prompts, news, batch_size=8)
  (wide, before), (narrow, after) = seen
  assert (wide, narrow) == (8, 2) and before < after
  if per_row:
    check_alone(decoder, results, prompts, news, seed=0)


def test_narrower_batches_are_divided_as_the_wide_one():
  assert refill.widths(32, 1) == [32, 8, 2]
  assert refill.widths(32, 4) == [32, 8]
  assert refill.widths(12, 3) == [12, 3]
  assert refill.widths(1, 1) == [1]


def test_widths_of_programs_that_read_prompts():
  assert padding.widths(16) == [16]
  assert padding.widths(20) == [16, 20]
  assert padding.widths(256) == [16, 32, 64, 96, 128, 192, 256]


def test_rows_are_kept_busy():
  """With answers of 1 and of 30 tokens, a batch of each would wait for it."""
  news = [30 if i % 4 == 0 else 1 for i in range(16)]
  seen, results = watched(build(['none']), [[1]] * 16, news, batch_size=4)
  longest = max(result.rounds for result in results)
  assert sum(result.rounds for result in results) > 2 * longest
  # Each of four batches would take as long as its longest answer.
  padded = sum(
    max(result.rounds for result in results[i : i + 4]) for i in range(0, 16, 4)
  )
  assert seen[-1][1] < 0.75 * padded


def test_a_bandit_of_the_batch_goes_on_from_prompt_to_prompt():
  bandit = specjax.BANDITS['ucb1'](2, beta=1e-6)
  decoder = build(['chain', 'lookup'], bandit=bandit)
  results = list(decoder.decode_many(PROMPTS, 20, batch_size=2))
  assert sum(result.pulls for result in results).min() > 0
  # Each prompt for itself would try both.
  assert min(result.pulls.min() for result in results if result.rounds > 3) == 0


def test_results_come_while_others_wait():
  asked = []

  def prompts():
    for prompt in PROMPTS:
      asked.append(prompt)
      yield prompt

  results = build().decode_many(prompts(), 5, batch_size=2, queue_size=3)
  next(results)
  assert len(asked) < len(PROMPTS)
  assert len(list(results)) == len(PROMPTS) - 1


def test_queues_of_one_shape_share_a_program():
  jax.clear_caches()
  for num in (3, 9, 19):
    list(build().decode_many(PROMPTS[:num], 5, batch_size=2, queue_size=6))
  assert refill.play._cache_size() == 1
  list(build().decode_many([[1] * 33], 5, batch_size=2, queue_size=6))
  assert refill.play._cache_size() == 2  # Wider prompts.


def test_no_cache_of_the_batch_is_copied():
  """Only rows of it: what is read is a state of one row."""
  decoder, num_rows, size = build(), 3, 4
  setup, params = decoder._setup, decoder.params
  nothing = np.zeros(num_rows, np.uint32)
  bandit_state = decoder._bandit_state(None, num_rows)
  batch = refill.begin(
    *(setup, params, nothing, np.uint32(0), decoder._stop_tokens, bandit_state)
  )
  each = np.ones(size, np.int32)
  queue = reading.Prompts(
    np.zeros((size, 32), np.int32), each, each, np.zeros(size, np.uint32)
  )
  lowered = refill.play.lower(
    *(
      setup,
      params,
      batch,
      queue,
      np.int32(size),
      np.int32(1),
      np.uint32(0),
      None,
    )
  )
  text = xla.compile_as_usual(lowered).as_text()
  for cache in jax.tree.leaves((batch.state.target, batch.state.drafters)):
    if cache.ndim == 4:
      shape = ','.join(map(str, cache.shape))
      assert re.search(rf'f32\[{shape}\]', text)
      assert not re.search(rf'= f32\[{shape}\]\S* copy\(', text)


@pytest.mark.parametrize(
  ('prompts', 'options', 'words'),
  [
    ([], {}, 'prompts must hold at least one prompt, got none'),
    ('abc', {}, 'encode it first'),
    ([[1]], {'batch_size': 0}, 'batch_size must be >= 1, got 0'),
    ([[1]], {'queue_size': 1}, 'queue_size must be >= 2, got 1'),
    ([[1]], {'seed': -1}, 'seed must lie in'),
    ([[1]] * 3 + [[99]], {}, r'prompts\[3\] must hold tokens in \[0, 32\)'),
    ([[1], []], {}, r'prompts\[1\] must not be empty'),
    ([[1] * 60], {}, r'prompts\[0\] has 60 tokens; with max_new_tokens=5'),
  ],
)
def test_bad_arguments_are_refused(prompts, options, words):
  options = {'batch_size': 2} | options
  with pytest.raises(ValueError, match=words):
    build().decode_many(prompts, 5, **options)


def test_what_is_wrong_in_a_later_queue_names_the_prompt():
  results = build().decode_many(
    [[1]] * 5 + [[1] * 64], 5, batch_size=2, queue_size=2
  )
  with pytest.raises(ValueError, match=r'prompts\[5\] has 64 tokens'):
    list(results)
  with pytest.raises(ValueError, match='max_new_tokens must be one for each'):
    list(build().decode_many([[1]] * 3, [1, 2], batch_size=2))


def test_a_state_of_a_bandit_of_rows_is_refused():
  decoder = build(['chain', 'lookup'], **of_rows('ucb1'))
  with pytest.raises(
    ValueError, match='bandit_state must be None with per_row'
  ):
    decoder.decode_many([[1]], 5, batch_size=2, bandit_state=())


def test_infinite_logits_name_the_prompt():
  broken = jax.tree.map(lambda leaf: leaf * np.nan, PARAMS)
  decoder = specjax.speculative(TARGET, broken, None, max_length=MAX_LENGTH)
  with pytest.raises(FloatingPointError, match=r'in prompts \[0, 1\]'):
    list(decoder.decode_many([[1], [2]], 5, batch_size=2))
