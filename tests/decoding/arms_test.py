"""The loop with several arms: which ones run, share a state and catch up."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import trees
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import tiers
from tests import twins
from tests.decoding import drivers_test

# Markov models of the transformers' vocabulary.
CHAINS = tuple(toys.markov(seed, toys.VOCAB) for seed in range(3))


MARKOV = toys.markov()


def three(draft=arms.DRAFT, other=arms.OTHER, **options):
  """Two models, and plain decoding."""
  return arms.decoder(
    arms.chain(draft=draft),
    arms.model(trees.prefix_tree((2, 1)), other, verifier='maximal'),
    arms.none(),
    **options,
  )


@pytest.mark.parametrize(
  ('rule', 'per_row', 'feedback'),
  [
    (arms.Adversary, True, 'bandit'),
    pytest.param(arms.Cycling, False, 'full', marks=pytest.mark.slow),
  ],
)
def test_loop_copies_no_cache_and_emits_what_greedy_decoding_does(
  rule, per_row, feedback
):
  """Two models, a deterministic drafter, and none.

  With bandit feedback, one model defers its prefill until it is first selected,
  and the bandit wants the arms to fail; else, another arm shares the cache of
  the first.
  """
  tree = arms.model(trees.prefix_tree((2, 1)), arms.OTHER)
  several = [
    arms.chain(temperature=0.0),
    arms.lookup(2, 'greedy'),
    arms.none(),
    *(
      [arms.deferred(tree)]
      if feedback == 'bandit'
      else [tree, arms.chain(1, temperature=0.0)]
    ),
  ]
  decoder = arms.decoder(
    *several,
    bandit=rule(len(several)),
    temperature=0.0,
    per_row=per_row,
    feedback=feedback,
  )
  state, loop = drivers_test.compiled_loop(decoder)
  assert len(state.drafters) == 4
  assert not drivers_test.cache_copies(loop, state)
  results = decoder.results(
    sizes.PROMPTS, loop(decoder.round_fn, decoder.params, state)
  )
  assert arms.tokens(results) == arms.greedy_tokens()
  pulls = np.array([result.pulls for result in results])
  assert ((pulls > 0).sum(axis=1) > 1).all()
  assert (pulls.sum(axis=0) > 0).all()
  assert sum(result.accepted.sum() for result in results) > 0
  assert all(result.num_catch_up_tokens > 0 for result in results)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('models', 'options'),
  [
    ({}, {'bandit': 'uniform'}),
    (
      dict(zip(('target', 'draft', 'other'), CHAINS)),
      {'bandit': 'thompson', 'feedback': 'full'},
    ),
  ],
  ids=['uniform', 'thompson'],
)
def test_a_row_with_its_own_bandit_ignores_its_neighbours(models, options):
  """Compares tokens and pulls at temperature 1 for bandits that sample arms.

  `continuous_batching_test` compares them with a batch of one.
  """
  rows = three(**models, per_row=True, **options)
  batch_results = rows.decode(sizes.PROMPTS, 20)
  order = [2, 0, 3, 1]
  permuted = rows.decode(
    [sizes.PROMPTS[i] for i in order], 20, request_ids=order
  )
  pairs = list(zip(permuted, order))
  # Only this row is live from the start; then it is a batch of one.
  pairs += [
    (rows.decode(sizes.PROMPTS, [20 * (i == row) for row in range(4)])[i], i)
    for i in range(sizes.ROWS)
  ]
  if models:
    pairs += [
      (rows.decode([prompt], 20, request_ids=[i])[0], i)
      for i, prompt in enumerate(sizes.PROMPTS)
    ]
  for result, i in pairs:
    assert result.tokens == batch_results[i].tokens
    assert result.pulls.tolist() == batch_results[i].pulls.tolist()
    assert result.num_catch_up_tokens == batch_results[i].num_catch_up_tokens
  # Rows differ in the arms that they pull.
  assert len({tuple(result.pulls) for result in batch_results}) > 1


@pytest.mark.slow
def test_rows_that_choose_alike_decode_as_one_batch():
  target, draft, other = CHAINS
  batch, rows = (
    three(
      draft, other, target=target, bandit='round_robin', per_row=per_row
    ).decode(sizes.PROMPTS, 20)
    for per_row in (False, True)
  )
  assert arms.tokens(batch) == arms.tokens(rows)
  for batch_result, row_result in zip(batch, rows):
    assert batch_result.pulls.tolist() == row_result.pulls.tolist()
    assert batch_result.num_catch_up_tokens == row_result.num_catch_up_tokens


def watched(arm, called):
  """The arm; `called` is called when it drafts."""
  inner, params = arm

  def draft(*args):
    jax.debug.callback(called)
    return inner.drafter.draft(*args)

  drafter = twins.twin(inner.drafter, draft=draft)
  return inner._replace(drafter=drafter), params


@pytest.mark.parametrize('per_row', tiers.cases([False, True], True))
def test_only_arms_that_a_live_row_chose_are_run(per_row):
  counts = np.zeros(3, int)

  def count(i):
    counts[i] += 1

  several = arms.decoder(
    *[
      watched(arms.chain(length, MARKOV), functools.partial(count, i))
      for i, length in enumerate((2, 1, 1))
    ],
    bandit='uniform',
    target=MARKOV,
    per_row=per_row,
  )
  start = several.init([[1], [2, 3], [1, 2]], [2, 24, 6])
  selected, idle = np.zeros(3, int), 0
  for _, info in specjax.stream(several.round_fn, several.params, start):
    live = set(np.asarray(info.arm)[np.asarray(info.live)].tolist())
    selected[list(live)] += 1
    idle += len(set(np.asarray(info.arm).tolist()) - live)
  jax.effects_barrier()
  assert counts.tolist() == selected.tolist()
  assert (selected > 0).all() and (selected < selected.sum()).all()
  # Some row that was done would have run an arm that no other row selected.
  assert (idle > 0) == per_row


@pytest.mark.parametrize(
  ('shared', 'feedback', 'num_catch_up_tokens'),
  [
    # The chains catch up on one token from each round of plain decoding.
    (True, 'bandit', 3 * 1),
    # After its own round, a drafter reads one more token: the shorter chain
    # reads 5, the other two arms 2 + 1, the longer chain 2.
    pytest.param(False, 'full', 3 * (5 + 3 + 2), marks=pytest.mark.slow),
  ],
)
def test_arms_of_one_model_take_turns_with_plain_decoding(
  shared, feedback, num_catch_up_tokens
):
  """The target drafts for itself, so rounds emit 4, 1 and 2 tokens in turn.

  All drafts are accepted unless a KV cache is wrong. The numbers of catch-up
  tokens were counted by hand.
  """
  model, params = arms.TARGET
  copy = params if shared else jax.tree.map(jnp.copy, params)
  decoder = arms.decoder(
    arms.chain(draft=arms.TARGET),
    arms.none(),
    arms.chain(1, (model, copy)),
    bandit=arms.Cycling(3),
    per_row=True,
    feedback=feedback,
  )
  start = decoder.init(sizes.PROMPTS, 21)
  assert len(start.drafters) == 3 - shared
  state, infos = specjax.trace(decoder.round_fn, decoder.params, start, 9)
  results = decoder.results(sizes.PROMPTS, state)
  for prompt, result in zip(sizes.PROMPTS, results):
    # A prompt of one token leaves nothing for an idle drafter to catch up on.
    short = len(prompt) == 1 and not shared
    assert len(result.tokens) == 21 and result.rounds == 9
    np.testing.assert_array_equal(result.accepted, result.drafted)
    assert result.pulls.tolist() == [3, 3, 3]
    assert result.num_catch_up_tokens == num_catch_up_tokens - short
  if feedback == 'full':  # Each arm emits 1 to 4 tokens.
    expected = np.broadcast_to([1, 0, 1 / 3], infos.rewards.shape)
    # If fewer than 3 tokens were emitted, the longer chain's are estimated.
    longer = np.asarray(infos.num_emitted)[..., None] >= 3
    is_exact = longer | (np.arange(3) > 0)
    is_exact &= infos.live[..., None]
    np.testing.assert_allclose(
      infos.rewards[is_exact], expected[is_exact], atol=1e-4
    )
    estimates = infos.rewards[~is_exact & infos.live[..., None]]
    assert ((estimates > 0.6) & (estimates < 1)).all()


def test_a_deferred_drafter_reads_no_more_than_the_longest_row():
  """The buffer has room for the much deeper tree of another arm."""
  decoder = arms.decoder(
    arms.deferred(arms.chain(2)), arms.lookup(40), bandit='round_robin'
  )
  results = decoder.decode(sizes.PROMPTS, 3)
  assert all(len(result.tokens) == 3 for result in results)
