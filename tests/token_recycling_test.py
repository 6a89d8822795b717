"""Token recycling: its table and trees, and the loop that fills the table.

Oracles: a dictionary of lists; a Markov target, whose likeliest tokens after
each token are always the same.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import token_recycling
from specjax.testing import toys
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import tiers
from tests import twins
from tests.decoding import drivers_test

VOCAB, NUM_SUCCESSORS = 12, 3
TREE = trees.Topology((-1, -1, -1, 0, 0, 1, 3, 6, 6))


def make(topology=TREE, vocab_size=VOCAB, num_successors=NUM_SUCCESSORS):
  return specjax.drafters.TokenRecycling(
    topology, vocab_size, num_successors=num_successors
  )


# The dictionary.


def walk(table, last, topology):
  """Returns the tree of a dictionary from tokens to lists; None for no node."""
  tokens, num_children = {-1: last}, dict.fromkeys(range(-1, 99), 0)
  for node, parent in enumerate(topology.parents):
    successors = table.get(tokens[parent], [])
    rank, num_children[parent] = num_children[parent], num_children[parent] + 1
    tokens[node] = successors[rank] if rank < len(successors) else None
  return [tokens[node] for node in range(topology.num_nodes)]


def random_scored(rng, rows, num_likeliest):
  """Returns what a call might score, with tokens that repeat."""
  shape = rows, TREE.num_nodes + 1
  order = rng.random((*shape, VOCAB)).argsort(axis=-1)
  return base.Scored(
    tokens=rng.integers(VOCAB, size=shape).astype(np.int32),
    valid=rng.random(shape) < 0.7,
    likeliest=order[..., :num_likeliest].astype(np.int32),
  )


def fill(tables, scored, live):
  """Replaces the successors of each token that is scored, in order."""
  for table, is_live, *row in zip(tables, live, *scored):
    for token, valid, likeliest in zip(*(field.tolist() for field in row)):
      if valid and is_live:
        table[token] = likeliest[:NUM_SUCCESSORS]


def drafted(tree):
  """Returns each row's tokens, None where there is no node."""
  return [
    [token if valid else None for token, valid in zip(*row)]
    for row in zip(np.asarray(tree.tokens).tolist(), tree.valid)
  ]


def check_rounds(drafter, num_rounds=12, rows=3):
  """Compares trees and estimates with those of dictionaries."""
  rng = np.random.default_rng(5)
  start = rng.permuted(
    np.tile(np.arange(VOCAB, dtype=np.int32), (VOCAB, 1)), axis=1
  )[:, :NUM_SUCCESSORS]
  start[::2, -1] = start[1::4] = -1
  tables = [
    {i: [t for t in row if t >= 0] for i, row in enumerate(start.tolist())}
    for _ in range(rows)
  ]
  lengths = np.array([1, 4, 7], np.int32)
  texts = rng.integers(VOCAB, size=(rows, 9)).astype(np.int32)
  context = specjax.Context(texts, lengths)
  state = drafter.init(start, context, 9)
  draft, observe = jax.jit(drafter.draft), jax.jit(drafter.observe)
  num_nodes = 0
  for _ in range(num_rounds):
    tree, _ = draft(None, start, state, context)
    last = texts[np.arange(rows), lengths - 1].tolist()
    expected = [walk(*pair, TREE) for pair in zip(tables, last)]
    assert drafted(tree) == expected
    num_nodes += np.asarray(tree.valid).sum()
    check_estimate(drafter, state, context, tables)
    # Other drafters may read more of the likeliest tokens.
    scored = random_scored(rng, rows, NUM_SUCCESSORS + 2)
    live = np.arange(rows) != rng.integers(rows)
    state = observe(state, scored, live)
    fill(tables, scored, live)
    texts = rng.integers(VOCAB, size=(rows, 9)).astype(np.int32)
    context = context._replace(tokens=texts)
  assert 0 < num_nodes < num_rounds * rows * TREE.num_nodes


def check_estimate(drafter, state, context, tables):
  """The estimate is the target's mass on the first level of each tree."""
  rng = np.random.default_rng(6)
  probs = base.Probs(*rng.random((2, len(tables), 4, VOCAB), np.float32))
  start = np.maximum(context.lengths - 3, 1)
  every = np.ones(len(tables), bool)
  new_state, num_read, acceptance = jax.jit(drafter.estimate)(
    None, state, context, every, base.TargetProbs(start, probs)
  )
  assert not np.any(num_read)
  np.testing.assert_array_equal(new_state, state)
  for row, table in enumerate(tables):
    for step in range(int(context.lengths[row] - start[row])):
      before = int(context.tokens[row, start[row] + step - 1])
      first = table.get(before, [])
      for masses, all_probs in zip(acceptance, probs, strict=True):
        expected = all_probs[row, step, first].sum()
        np.testing.assert_allclose(masses[row, step], expected, atol=1e-6)


def test_trees_and_estimates_are_those_of_a_dictionary():
  check_rounds(make())


def keeping_the_first(state, scored, rows):
  """Counts the first of several nodes with one token, not the last."""
  reverse = jax.tree.map(lambda leaf: leaf[:, ::-1], scored)
  return make().observe(state, reverse, rows)


def reading_all(state, scored, rows):
  """Reads successors after tokens that were not drafted."""
  scored = scored._replace(valid=jnp.ones_like(scored.valid))
  return make().observe(state, scored, rows)


def reading_finished_rows(state, scored, rows):
  return make().observe(state, scored, jnp.ones_like(rows))


@pytest.mark.parametrize(
  'observe', [keeping_the_first, reading_all, reading_finished_rows]
)
def test_check_rejects_a_table_of_other_successors(observe):
  with pytest.raises(AssertionError):
    check_rounds(twins.twin(make(), observe=observe))


# The loop. A Markov target shows which successors a table may have.

MODEL, PARAMS = toys.markov(0, toys.VOCAB)
LIKELIEST = np.argsort(-np.asarray(PARAMS), axis=-1, kind='stable')
PROMPTS = sizes.PROMPTS


def recycling(topology=trees.prefix_tree((3, 2, 1)), params=None):
  return arms.arm(make(topology, toys.VOCAB), params)


def lookup_or():
  """A lookup that is rarely used, so that the table is."""
  drafter = specjax.drafters.LookupOr(
    specjax.drafters.PromptLookup(3), recycling()[0].drafter, min_match=3
  )
  return arms.arm(drafter, (None, None))


def ensemble():
  members = recycling()[0].drafter, specjax.drafters.PromptLookup(2)
  return arms.arm(specjax.drafters.Ensemble(members), (None, None), 'ensemble')


ARMS = {
  'alone': recycling,
  'lookup_or': lookup_or,
  'deferred': lambda: arms.deferred(lookup_or()),
  'ensemble': ensemble,
}


def decoder(*some_arms, **options):
  return arms.decoder(*some_arms, target=(MODEL, PARAMS), **options)


def tables_of(state):
  """Returns the tables `[B, V, k]` in the drafters' states."""
  return [
    np.asarray(leaf)
    for leaf in jax.tree.leaves(state.drafters)
    if leaf.shape[1:] == (toys.VOCAB, NUM_SUCCESSORS)
  ]


def check_table(table, state):
  """A row knows the target's likeliest tokens after all that it emitted."""
  is_known = table[..., 0] >= 0
  expected = np.broadcast_to(LIKELIEST[:, :NUM_SUCCESSORS], table.shape)
  np.testing.assert_array_equal(table[is_known], expected[is_known])
  assert (table[~is_known] == -1).all()
  num_rejected = 0
  for row, prompt in enumerate(PROMPTS):
    emitted = state.tokens[row, len(prompt) - 1 : state.lengths[row] - 1]
    known = {*np.flatnonzero(is_known[row]).tolist()}
    assert {*emitted.tolist()} <= known
    num_rejected += len(known - {*emitted.tolist()})
  return num_rejected


@pytest.mark.parametrize('name', tiers.cases(ARMS, 'alone', 'lookup_or'))
def test_the_loop_recycles_what_the_target_has_scored(name):
  """Also after drafts that were rejected."""
  one = decoder(ARMS[name]())
  state = specjax.decode(one.round_fn, one.params, one.init(PROMPTS, sizes.NEW))
  (table,) = tables_of(state)
  assert check_table(table, state) > 0
  assert state.counters.accepted.sum() > 0


def test_the_drafts_of_other_arms_are_recycled():
  """And a drafter is no worse for having been idle."""
  one = decoder(
    recycling(), recycling(trees.chain(2)), arms.lookup(2), bandit='fixed'
  )
  assert len(one.round_fn.slots) == 2
  start = one.init(PROMPTS, sizes.NEW, bandit_state=np.int32(2))
  state = specjax.decode(one.round_fn, one.params, start)
  (table,) = tables_of(state)
  check_table(table, state)


@pytest.mark.parametrize(
  ('feedback', 'per_row'),
  tiers.cases([('bandit', True), ('full', False)], ('full', False)),
)
def test_loop_copies_no_table_and_emits_what_greedy_decoding_does(
  feedback, per_row
):
  greedy = functools.partial(decoder, temperature=0.0)
  plain = greedy(arms.none()).decode(PROMPTS, sizes.NEW)
  one = greedy(
    recycling(),
    arms.none(),
    bandit='round_robin',
    feedback=feedback,
    per_row=per_row,
  )
  state, loop = drivers_test.compiled_loop(one)
  assert not drivers_test.copies_of(loop, tables_of(state))
  results = one.results(PROMPTS, loop(one.round_fn, one.params, state))
  assert arms.tokens(results) == arms.tokens(plain)
  assert sum(result.accepted.sum() for result in results) > 0


def check_rows_are_independent(one):
  """In a batch, alone, and in a row that another prompt had before."""
  together = arms.tokens(one.decode(PROMPTS, sizes.NEW, seed=3))
  queued = one.decode_many(PROMPTS, sizes.NEW, batch_size=2, seed=3)
  assert arms.tokens(queued) == together
  for i, prompt in enumerate(PROMPTS):
    (single,) = one.decode([prompt], sizes.NEW, seed=3, request_ids=[i])
    assert single.tokens == together[i]


def test_rows_depend_on_no_neighbor_and_on_no_prompt_before():
  check_rows_are_independent(decoder(recycling()))


def test_a_table_in_the_parameters_is_the_first_one():
  """The target's own table: at temperature 0, every draft is accepted."""
  table = jnp.asarray(LIKELIEST[:, :NUM_SUCCESSORS], jnp.int32)
  one = decoder(recycling(params=table), temperature=0.0)
  for result in one.decode(PROMPTS, 20):
    assert result.rounds == 5  # Of three drafted tokens and a bonus token.


def passing_for_samples(drafter):
  """Returns a drafter that claims to have drawn its tokens."""

  def draft(*args):
    tree, proposal = drafter.draft(*args)
    probs = jnp.full((*tree.tokens.shape, 3), 1 / 3, jnp.float32)
    return tree._replace(probs=probs), proposal

  return twins.twin(drafter, draft=draft)


@pytest.mark.parametrize('is_lossless', [True, False])
def test_the_loop_has_the_target_distribution(is_lossless):
  """The power is that of `lossless_test`."""
  target, _ = lossless_test.tables('time-varying')
  drafter = make(trees.prefix_tree((2, 1)), lossless_test.VOCAB_SIZE, 2)
  if not is_lossless:
    drafter = passing_for_samples(drafter)
  table = jnp.array([[1, 2], [0, -1], [2, 0]])
  one = arms.decoder(
    arms.arm(drafter, table), target=(lossless_test.MODEL, target)
  )
  p = lossless_test.p_value(one, target, sampling_lib.Sampling())
  assert p > 1e-4 if is_lossless else p < 1e-6


@pytest.mark.parametrize(
  ('change', 'sentence'),
  [
    ({'topology': trees.chain(0)}, 'nodes of topology must be >= 1, got 0'),
    ({'num_successors': 2}, r'num_successors must lie in \[3, 12\], got 2'),
    ({'num_successors': 13}, r'num_successors must lie in \[3, 12\], got 13'),
  ],
)
def test_errors_name_the_argument(change, sentence):
  with pytest.raises(ValueError, match=sentence):
    make(**change)


def test_a_table_of_another_shape_raises():
  context = specjax.Context(np.zeros((1, 1), np.int32), np.ones(1, np.int32))
  with pytest.raises(ValueError, match=r'shape \(12, 3\), got .* \(2, 3\)'):
    make().init(np.zeros((2, 3), np.int32), context, 1)


def test_a_drafter_for_another_vocabulary_raises():
  drafter = make(trees.chain(1), VOCAB)
  with pytest.raises(ValueError, match='share a vocabulary, got .* 12 and 32'):
    decoder(arms.arm(drafter))


def test_the_tree_of_the_paper():
  tree = trees.TREES['token_recycling']()
  assert [len(level) for level in tree.levels] == [8, 21, 25, 15, 8, 3]
  assert token_recycling.TokenRecycling(tree, 8).ranks.max() == 7
