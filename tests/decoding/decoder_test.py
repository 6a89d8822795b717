"""The host's interface: equality with plain decoding, independence, errors."""

import functools

import jax
import numpy as np
import pytest

from specjax import bandits
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.testing import toys

PROMPTS = [[1], [2, 3], [4, 5, 6], list(range(20)), [7] * 9, [8, 9], [10], [11]]


def _decoder(temperature=0.0, draft_length=3, drafter_seed=1, **options):
  draft = toys.transformer(drafter_seed, num_layers=1)
  return decoding.speculative(
    *toys.transformer(),
    *(draft if draft_length else (None, None)),
    draft_length=draft_length or 1,
    sampling=sampling_lib.Sampling(temperature),
    max_length=64,
    **options,
  )


def test_texts_do_not_depend_on_the_default_generator():
  """Of another one, a key's numbers may differ in and out of `vmap`."""
  texts = []
  for name in ('threefry2x32', 'rbg'):
    with jax.default_prng_impl(name):
      results = _decoder(1.0).decode([[1, 2], [3]], 12, seed=5)
      texts.append([result.tokens for result in results])
  assert texts[0] == texts[1]


@functools.cache
def _greedy(draft_length):
  """Results of 30 tokens; 0 is plain decoding."""
  return _decoder(draft_length=draft_length).decode(PROMPTS, 30)


@pytest.mark.parametrize('draft_length', [1, 2, 5])
def test_greedy_speculative_equals_greedy_autoregressive(draft_length):
  plain, speculative = _greedy(0), _greedy(draft_length)
  assert [r.tokens for r in plain] == [r.tokens for r in speculative]
  assert all(r.rounds == 30 and r.draft_calls == 0 for r in plain)


@pytest.mark.parametrize(
  ('num_drafts', 'verifier'),
  [
    (1, 'block'),
    pytest.param(4, None, marks=pytest.mark.slow),
    pytest.param(4, 'batch', marks=pytest.mark.slow),
    pytest.param(4, 'kseq', marks=pytest.mark.slow),
    pytest.param(4, 'multiround', marks=pytest.mark.slow),
    (4, 'otm'),
  ],
)
def test_greedy_decoding_is_the_same_by_every_verifier(num_drafts, verifier):
  """All drafts are one and the same chain, so that none changes a round."""
  decoder = _decoder(num_drafts=num_drafts, verifier=verifier)
  outputs = decoder.decode(PROMPTS, 30)
  assert [r.tokens for r in outputs] == [r.tokens for r in _greedy(0)]
  for result, single in zip(outputs, _greedy(3)):
    np.testing.assert_array_equal(result.accepted, single.accepted)
    assert result.rounds == single.rounds
  assert sum(r.accepted.sum() for r in outputs) > 0


@pytest.mark.parametrize(
  ('topology', 'verifier'),
  [
    (trees.chains(3, 3), 'greedy'),
    (trees.prefix_tree((2, 2, 1)), 'greedy'),
    (trees.prefix_tree((2, 2, 1)), 'otm'),
  ],
)
def test_greedy_trees_equal_greedy_autoregressive(topology, verifier):
  """The drafter samples, so that branches differ; the target is greedy."""
  target, draft = toys.transformer(), toys.transformer(1, num_layers=1)
  arm = base.Arm(
    drafters.DRAFTERS['autoregressive'](draft[0], topology),
    verifiers.resolve(verifier),
  )
  decoder = decoding.Decoder(
    *target,
    [(arm, draft[1])],
    sampling=sampling_lib.Sampling(0.0),
    max_length=64,
  )
  outputs = decoder.decode(PROMPTS, 30)
  assert [r.tokens for r in outputs] == [r.tokens for r in _greedy(0)]
  assert sum(r.accepted.sum() for r in outputs) > 0


@pytest.mark.parametrize(
  ('temperature', 'draft_length', 'options'),
  [
    (0.0, 0, {}),
    (1.0, 0, {}),
    (0.0, 3, {}),
    (1.0, 3, {}),
    pytest.param(
      1.0,
      3,
      {'num_drafts': 3, 'verifier': 'otm'},
      marks=pytest.mark.slow,
    ),
  ],
)
def test_output_does_not_depend_on_the_batch(
  temperature, draft_length, options
):
  decoder = _decoder(temperature, draft_length, **options)
  together = decoder.decode(PROMPTS, 20)
  order = [3, 7, 0, 5, 1, 6, 2, 4]
  permuted = decoder.decode([PROMPTS[i] for i in order], 20, request_ids=order)
  for i, result in zip(order, permuted):
    assert result.tokens == together[i].tokens
  for i, prompt in enumerate(PROMPTS):
    (alone,) = decoder.decode([prompt], 20, request_ids=[i])
    assert alone.tokens == together[i].tokens


def test_request_ids_and_seeds_change_samples():
  decoder = _decoder(1.0)
  outputs = decoder.decode([[1]] * 4, 20)
  assert len({tuple(r.tokens) for r in outputs}) == 4
  again = decoder.decode([[1]] * 4, 20, seed=1)
  assert [r.tokens for r in outputs] != [r.tokens for r in again]


@pytest.mark.parametrize('draft_length', [0, 1, 4])
def test_stop_tokens_cut_the_output_wherever_they_fall(draft_length):
  """Every token of the unstopped output is tried as the stop token."""
  plain = _decoder(draft_length=0).decode(PROMPTS[:1], 16)[0].tokens
  for stop in set(plain):
    stopped = _decoder(
      draft_length=draft_length, stop_tokens=[stop], drafter_seed=0
    ).decode(PROMPTS[:1], 16)[0]
    assert stopped.tokens == plain[: plain.index(stop) + 1]
    assert len(stopped.tokens) <= stopped.rounds + stopped.accepted.sum()


@pytest.mark.parametrize('new', [0, 1, 2, 7, [3, 0, 9]])
def test_max_new_tokens_is_exact_and_does_not_recompile(new):
  decoder = _decoder()
  decoder.decode(PROMPTS[:3], 5)
  compiled = decoding.decode._cache_size()
  outputs = decoder.decode(PROMPTS[:3], new)
  assert decoding.decode._cache_size() == compiled
  assert [len(r.tokens) for r in outputs] == list(np.broadcast_to(new, 3))


def test_counters_add_up():
  for result in _decoder(draft_length=3).decode(PROMPTS, 20):
    # Each round emits what it accepted and one more, except where the limit
    # cut the last one inside its accepted path.
    short = result.rounds + result.accepted.sum() - len(result.tokens)
    assert short in (0, 1)
    assert (np.diff(result.accepted) <= 0).all()
    assert (result.drafted == result.rounds).all()
    assert result.draft_calls == 3 * result.rounds
    assert result.pulls.tolist() == [result.rounds]


def test_stream_says_where_each_token_came_from():
  decoder = _decoder(1.0)
  (whole,) = decoder.decode([[1, 2]], 20)
  rounds = list(decoder.stream([1, 2], 20))
  assert [p.token for each in rounds for p in each] == whole.tokens
  assert len(rounds) == whole.rounds
  for each in rounds[:-1]:
    assert {p.origin for p in each[:-1]} <= {'accepted'}
    assert each[-1].origin == ('bonus' if len(each) == 4 else 'corrected')
  plain = _decoder(draft_length=0).stream([1], 3)
  assert [[p.origin for p in each] for each in plain] == [['sampled']] * 3


def test_two_arms_decode_like_one():
  """Whatever arm the bandit plays, greedy output is the target's."""
  target, draft = toys.transformer(), toys.transformer(1, num_layers=1)
  verifier = verifiers.VERIFIERS['tree_walk']('greedy')
  greedy = sampling_lib.Sampling(0.0)
  arms = [(base.Arm(drafters.DRAFTERS['none'](), verifier), None)] + [
    (
      base.Arm(
        drafters.DRAFTERS['autoregressive'](
          draft[0], trees.chain(length), greedy
        ),
        verifier,
      ),
      draft[1],
    )
    for length in (1, 4)
  ]
  plain = _decoder(draft_length=0).decode(PROMPTS, 20)
  for arm in range(3):
    decoder = decoding.Decoder(
      *target,
      arms,
      bandit=bandits.BANDITS['fixed'](3, arm=arm),
      sampling=greedy,
      max_length=64,
    )
    outputs = decoder.decode(PROMPTS, 20)
    assert [r.tokens for r in outputs] == [r.tokens for r in plain]
    assert all(r.pulls[arm] == r.rounds for r in outputs)


def test_shapes_are_known_without_numbers():
  decoder = _decoder(bandit=bandits.BANDITS['fixed'](1, arm=0))
  shape = lambda leaf: (leaf.shape, leaf.dtype)
  state = decoder.init([[1, 2, 3], [4]], 8)
  known = decoder.trace_init(2).out_info
  assert jax.tree.map(shape, known) == jax.tree.map(shape, state)


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
    _decoder().decode(prompts, new)


def test_bad_models_and_lengths_are_refused():
  target, draft = toys.transformer(), toys.markov()
  with pytest.raises(ValueError, match='vocab_size 4 and 32'):
    decoding.speculative(*target, *draft)
  with pytest.raises(ValueError, match='draft_length must be >= 1, got 0'):
    decoding.speculative(*target, *target, draft_length=0)
  with pytest.raises(ValueError, match='num_drafts must be >= 1, got 0'):
    decoding.speculative(*target, *target, num_drafts=0)
  with pytest.raises(ValueError, match="verifier 'nope'. Known: batch, block"):
    decoding.speculative(*target, *target, verifier='nope')
  with pytest.raises(ValueError, match='max_length must be >= 2, got 1'):
    decoding.speculative(*target, None, max_length=1)
  with pytest.raises(ValueError, match='at least one arm'):
    decoding.Decoder(*target, [])


def test_nan_parameters_are_reported():
  target, params = toys.transformer()
  params = dict(
    params, embedding={'embedding': params['embedding']['embedding'] * np.nan}
  )
  decoder = decoding.speculative(target, params, None, max_length=64)
  with pytest.raises(FloatingPointError, match=r'rows \[0\]'):
    decoder.decode([[1]], 3)
