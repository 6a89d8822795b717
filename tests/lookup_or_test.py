"""Lookups where the match is long enough: trees, state, calls and the loop.

Oracles: the two drafters alone, on the text from its beginning; plain greedy
decoding; the target's distribution.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.decoding import arms as arms_lib
from specjax.testing import toys
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import tiers
from tests import twins
from tests.decoding import drivers_test

LOOKUP_OR = specjax.drafters.LookupOr
LOOKUP = specjax.drafters.PromptLookup(4, max_ngram=4)
ROWS, SIZE = sizes.ROWS, sizes.BUFFER
# Two tokens only, so that matches of all lengths abound.
NUM_TOKENS = 2


def model(topology, temperature=1.0):
  """Returns a drafter that reads its own nodes and catches up in chunks."""
  drafter = specjax.drafters.Autoregressive(
    arms.DRAFT[0], topology, sampling_lib.Sampling(temperature)
  )
  return arms.chunked(drafter, 2)


@pytest.mark.parametrize(
  ('parents', 'length', 'expected', 'nodes'),
  [
    ((), 2, (-1, 0), [0, 1]),
    ((-1, 0), 3, (-1, 0, 1), [0, 1, 2]),
    ((-1, 0, 1), 2, (-1, 0, 1), [0, 1]),
    ((-1, -1, 1), 4, (-1, -1, 1, 2, 3), [1, 2, 3, 4]),
    ((-1, -1, 0, 1), 2, (-1, -1, 0, 1), [0, 2]),
  ],
)
def test_a_chain_shares_the_deepest_path(parents, length, expected, nodes):
  topology, chain = trees.with_chain(trees.Topology(parents), length)
  assert topology.parents == expected and chain.tolist() == nodes


def alone(drafter):
  """Returns a function that drafts with a drafter that has just prefilled."""

  @jax.jit
  def draft(keys, params, context):
    state = drafter.init(params, context, SIZE)
    return drafter.draft(keys, params, state, context)[0]

  return draft


def check_tree(drafter, tree, keys, context, draft_alone):
  """Compares every row's tree with that of the drafter that it should have.

  Returns:
    `[B]` bool, which rows have a lookup.
  """
  lookup = jax.device_get(drafter.lookup.look_up(None, context))
  is_found = lookup.valid[:, 0] & (lookup.match_length >= drafter.min_match)
  other = jax.device_get(draft_alone(keys, arms.DRAFT[1], context))
  num, nodes = other.tokens.shape[1], drafter.chain_nodes
  for row, found in enumerate(is_found):
    valid, tokens = tree.valid[row], tree.tokens[row]
    if found:
      np.testing.assert_array_equal(valid[nodes], lookup.valid[row])
      np.testing.assert_array_equal(tokens[nodes], lookup.tokens[row])
      assert valid.sum() == lookup.valid[row].sum()
      chosen = np.eye(toys.VOCAB)[lookup.tokens[row]]
      np.testing.assert_array_equal(tree.probs[row, nodes], chosen)
      assert not tree.raw_probs[row].any()
    else:
      np.testing.assert_array_equal(tokens[:num], other.tokens[row])
      np.testing.assert_array_equal(valid[:num], other.valid[row])
      assert not valid[num:].any()
      both = other.both_probs(toys.VOCAB)
      for name, probs in (('probs', both.processed), ('raw_probs', both.raw)):
        np.testing.assert_allclose(
          getattr(tree, name)[row, :num], probs[row], atol=1e-4
        )
  return is_found


def check_rounds(drafter, rounds=12, rows=ROWS):
  """Runs rounds that accept any path, cut anywhere, and checks every tree.

  Returns:
    `[rounds, B]` which trees were lookups, and the number of tokens that the
    other drafter read to catch up.
  """
  rng = np.random.default_rng(31)
  params = None, arms.DRAFT[1]
  topology, index = drafter.topology, np.arange(rows)[:, None]
  tokens = rng.integers(NUM_TOKENS, size=(rows, SIZE)).astype(np.int32)
  lengths = np.array([1, 2, 3, 9], np.int32)[:rows]
  every, found, num_read = np.ones(rows, bool), [], 0
  prompts = specjax.Context(tokens.copy(), lengths)
  state = jax.jit(drafter.init, static_argnums=2)(params, prompts, SIZE)
  draft, draft_alone = jax.jit(drafter.draft), alone(drafter.drafter)
  catch_up, commit = jax.jit(drafter.catch_up), jax.jit(drafter.commit)
  for number in range(rounds):
    context = specjax.Context(tokens.copy(), lengths)
    state, num = catch_up(params, state, context, every)
    num_read += int(num.sum())
    keys = jax.random.split(jax.random.key(number), rows)
    tree, proposal = draft(keys, params, state, context)
    tree = jax.device_get(tree)
    found.append(check_tree(drafter, tree, keys, context, draft_alone))
    assert proposal.called.all() != found[-1].all()
    emitted = rng.integers(NUM_TOKENS, size=(rows, topology.depth + 1))
    num_accepted = np.zeros(rows, np.int32)
    path = np.zeros((rows, topology.depth), np.int32)
    for row in range(rows):
      leaf = rng.choice([-1, *np.flatnonzero(tree.valid[row])])
      nodes = np.flatnonzero(topology.mask[leaf + 1, 1:])
      num_accepted[row], path[row, : len(nodes)] = len(nodes), nodes
      emitted[row, : len(nodes)] = tree.tokens[row, nodes]
    outcome = specjax.Outcome(path, num_accepted, emitted.astype(np.int32))
    state = commit(state, proposal, context, outcome, every)
    tokens[index, lengths[:, None] + np.arange(topology.depth + 1)] = emitted
    lengths = (lengths + num_accepted + 1).astype(np.int32)
    if lengths.max() + topology.depth + 1 >= SIZE:
      break
  return np.array(found), num_read


TREES = [trees.chain(2), trees.chain(6), trees.prefix_tree((2, 2))]


@pytest.mark.parametrize('topology', tiers.cases(TREES, TREES[0], TREES[2]))
def test_each_row_drafts_what_one_of_the_two_drafts_alone(topology):
  """Rows of both kinds; the other drafter has read all that was accepted."""
  drafter = LOOKUP_OR(LOOKUP, model(topology), min_match=2)
  found, num_read = check_rounds(drafter)
  assert 0 < found.sum() < found.size
  assert (found.any(1) & ~found.all(1)).any() and num_read > 0


def test_the_other_drafter_keeps_up_after_rounds_in_which_it_was_idle():
  """A single row, so that each lookup is an idle round."""
  drafter = LOOKUP_OR(LOOKUP, model(trees.chain(2)), min_match=2)
  found, num_read = check_rounds(drafter, rows=1)
  assert (found[:-1] & ~found[1:]).any() and num_read > 0


def committing_all(state, proposal, context, outcome, rows):
  """Commits in rounds in which the other drafter was not called."""
  return model(trees.chain(2)).commit(
    state, proposal.inner, context, outcome, rows
  )


def stale(params, state, context, rows):
  """Reads nothing."""
  del params, context
  return state, jnp.zeros_like(rows, int)


@pytest.mark.parametrize(
  'part', [{'catch_up': stale}, {'commit': committing_all}]
)
def test_check_rejects_a_drafter_that_misses_accepted_lookups(part):
  drafter = LOOKUP_OR(LOOKUP, model(trees.chain(2)), min_match=2)
  with pytest.raises(AssertionError, match='not equal|Not equal'):
    check_rounds(twins.twin(drafter, **part), rows=1)


# The loop.


def arm(min_match=2, temperature=1.0, topology=trees.chain(2), other=True):
  """Returns an arm that looks up, or drafts with a model if `other`."""
  if not other:
    drafter = LOOKUP_OR(LOOKUP, min_match=min_match)
    return arms.arm(drafter, (None, None), 'greedy')
  drafter = LOOKUP_OR(LOOKUP, model(topology, temperature), min_match=min_match)
  return arms.arm(
    drafter, (None, arms.DRAFT[1]), 'maximal' if temperature else 'greedy'
  )


REPETITIVE = [[7, 8, 9] * 4, [1, 2, 3, 4], [5] * 9, [2, 3, 2, 3]]


@pytest.mark.parametrize(
  ('per_row', 'other'),
  tiers.cases(
    [(False, True), (True, True), (False, False)], (False, True), (False, False)
  ),
)
def test_loop_copies_no_cache_and_emits_what_greedy_decoding_does(
  per_row, other
):
  greedy = functools.partial(arms.decoder, temperature=0.0)
  several = [arm(m, 0.0, other=other) for m in (1, 3)[: 1 + per_row]]
  decoder = greedy(*several, bandit='round_robin', per_row=per_row)
  assert len(decoder.round_fn.slots) == 1 or not other
  state, loop = drivers_test.compiled_loop(decoder, tuple(REPETITIVE))
  assert not drivers_test.cache_copies(loop, state)
  results = decoder.results(
    REPETITIVE, loop(decoder.round_fn, decoder.params, state)
  )
  plain = greedy(arms.none()).decode(REPETITIVE, sizes.NEW)
  assert arms.tokens(results) == arms.tokens(plain)
  assert sum(result.accepted.sum() for result in results) > 0


def test_rows_do_not_depend_on_their_neighbors():
  decoder = arms.decoder(arm())
  together = decoder.decode(REPETITIVE, sizes.NEW, seed=3)
  for i, prompt in enumerate(REPETITIVE):
    (single,) = decoder.decode([prompt], sizes.NEW, seed=3, request_ids=[i])
    assert single.tokens == together[i].tokens


CALLS = []


def test_the_other_drafter_is_called_only_if_a_row_has_no_match():
  inner = model(trees.chain(2))

  def draft(*args):
    jax.debug.callback(lambda: CALLS.append(1))
    return inner.draft(*args)

  drafter = LOOKUP_OR(LOOKUP, twins.twin(inner, draft=draft), min_match=2)
  params = None, arms.DRAFT[1]
  keys = jax.random.split(jax.random.key(0), 2)
  tokens = np.zeros((2, SIZE), np.int32)
  tokens[0, :9] = [1, 2, 3] * 3
  tokens[1, :9] = np.arange(9)
  call = jax.jit(drafter.draft)
  for rows, is_used, num_calls in (
    ([0, 0], [True, True], 0),
    ([0, 1], [True, True], 1),
    ([1, 1], [True, True], 1),
    ([0, 1], [True, False], 0),  # The row without a match is not used.
    ([0, 1], [False, True], 1),
  ):
    context = specjax.Context(
      tokens[rows], np.int32([9, 9]), rows=np.array(is_used)
    )
    state = jax.jit(drafter.init, static_argnums=2)(params, context, SIZE)
    CALLS.clear()
    jax.block_until_ready(call(keys, params, state, context))
    jax.effects_barrier()
    assert len(CALLS) == num_calls


def test_the_target_scores_as_many_tokens_as_were_drafted():
  with_model, without = arm()[0].drafter, arm(other=False)[0].drafter
  assert arms_lib.call_widths([with_model]) == [0, 1, 2, 4]
  assert arms_lib.call_widths([without]) == [0, 1, 4]
  context = specjax.Context(
    jnp.tile(jnp.arange(SIZE), (2, 1)), jnp.array([5, 9])
  )
  keys = jax.random.split(jax.random.key(0), 2)
  tree, _ = jax.jit(without.draft)(keys, (None, None), (), context)
  every = jnp.ones(2, bool)
  assert arms_lib.num_scored_nodes([every], [without], [tree]) == 0


def peeking(drafter):
  """Returns a drafter whose choice depends on the token that it has drawn."""

  def draft(keys, params, state, context):
    tree, proposal = drafter.draft(keys, params, state, context)
    return tree._replace(valid=tree.valid & (tree.tokens[:, :1] == 1)), proposal

  return twins.twin(drafter, draft=draft)


@pytest.mark.parametrize(
  ('verifier', 'change', 'is_lossless'),
  tiers.cases(
    [
      ('maximal', None, True),
      ('block', None, True),
      ('maximal', peeking, False),
    ],
    ('maximal', None, True),
    ('maximal', peeking, False),
  ),
)
def test_the_loop_has_the_target_distribution(verifier, change, is_lossless):
  """The power is that of `lossless_test`; a choice by what was drawn fails."""
  target, draft = lossless_test.tables('time-varying')
  other = specjax.drafters.Autoregressive(lossless_test.MODEL, trees.chain(2))
  drafter = LOOKUP_OR(specjax.drafters.PromptLookup(3), other, min_match=1)
  if change is not None:
    drafter = change(drafter)
  decoder = specjax.Decoder(
    lossless_test.MODEL,
    target,
    [arms.arm(drafter, (None, draft), verifier)],
  )
  p = lossless_test.p_value(decoder, target, sampling_lib.Sampling())
  assert p > 1e-4 if is_lossless else p < 1e-6


def test_a_tree_has_the_target_distribution_with_lookups():
  target, draft = lossless_test.tables('time-varying')
  other = specjax.drafters.Autoregressive(
    lossless_test.MODEL, trees.prefix_tree((2, 1))
  )
  drafter = LOOKUP_OR(specjax.drafters.PromptLookup(3), other, min_match=1)
  decoder = specjax.Decoder(
    lossless_test.MODEL, target, [arms.arm(drafter, (None, draft), 'otm')]
  )
  p = lossless_test.p_value(decoder, target, sampling_lib.Sampling())
  assert p > 1e-4


def test_thresholds_share_one_state_and_one_program():
  one, other = arm(1), arm(3)
  decoder = arms.decoder(one, other, bandit='round_robin')
  assert len(decoder.round_fn.slots) == 1
  structure = jax.tree.structure(one[0].drafter)
  assert structure == jax.tree.structure(other[0].drafter)


@pytest.mark.parametrize(
  ('change', 'sentence'),
  [
    ({'min_match': 0}, r'min_match must lie in \[1, 4\], got 0'),
    ({'min_match': 5}, r'min_match must lie in \[1, 4\], got 5'),
    ({'lookup': specjax.drafters.NoDrafter()}, 'lookup must .* a NoDrafter'),
    (
      {'lookup': specjax.drafters.PromptLookup(2, 2)},
      'lookup must draft a single chain',
    ),
  ],
)
def test_errors_name_the_argument(change, sentence):
  with pytest.raises(ValueError, match=sentence):
    LOOKUP_OR(**{'lookup': LOOKUP} | change)


def test_the_other_tree_must_be_static():
  dynamic = twins.twin(
    specjax.drafters.NoDrafter(), topology=trees.Bounds(4, 2, 2)
  )
  with pytest.raises(ValueError, match='drafter must draft static trees'):
    LOOKUP_OR(LOOKUP, dynamic)
