"""Lookahead decoding: its window, its pool and its trees, also in the loop.

Oracle: lists and a dictionary, as in the authors' code.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import sampling as sampling_lib
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import tiers
from tests import token_recycling_test
from tests import twins
from tests.decoding import drivers_test

VOCAB = 6
WINDOW, NGRAM, CANDIDATES = 3, 4, 2
PROMPTS = sizes.PROMPTS


def make(window=WINDOW, ngram=NGRAM, candidates=CANDIDATES):
  return specjax.drafters.Lookahead(
    window=window, ngram=ngram, candidates=candidates
  )


# The oracle.


class Oracle:
  """The window and the pool of one row."""

  def __init__(self, drafter, prompt):
    self.drafter = drafter
    self.levels = [
      [prompt[(level + column - 1) % len(prompt)] for column in range(width)]
      for width in [drafter.window]
      for level in range(drafter.ngram - 1)
    ]
    self.pool = {}  # From a token to what followed it, the newest last.

  def paths(self, last):
    """Returns the valid nodes of the tree, each by its tokens from the root."""
    paths = set()

    def add(above, tokens):
      """Adds a chain, up to a token that its parent already has as a child."""
      for num in range(1, len(tokens) + 1):
        path = (*above, *tokens[:num])
        if path in paths:
          return num - 1
        paths.add(path)
      return len(tokens)

    newest = self.pool.get(last, [])[::-1]
    for ngram in newest[: self.drafter.candidates]:
      add((), ngram)
    first, *others = self.levels
    num_added = add((), tuple(first[1:]))
    for column in range(num_added + 1):
      add(tuple(first[1 : column + 1]), tuple(row[column] for row in others))
    return paths

  def observe(self, last, predict):
    """Moves on, given `predict` from tokens after the text to the next one."""
    first = [last, *self.levels[0][1:]]
    predicted = []
    for column in range(self.drafter.window):
      below = [level[column] for level in self.levels[1:]]
      predicted.append(predict(first[1 : column + 1] + below))
    for column, token in enumerate(predicted):
      ngram = (*(level[column] for level in self.levels[1:]), token)
      known = self.pool.setdefault(first[column], [])
      known[:] = [other for other in known if other[0] != ngram[0]] + [ngram]
    self.levels = [*self.levels[1:], predicted]


def paths_of(tree, row):
  """Returns the valid nodes of a tree, each by its tokens from the root."""
  paths = {-1: ()}
  for node, parent in enumerate(tree.topology.parents):
    if tree.valid[row, node]:
      paths[node] = (*paths[parent], int(tree.tokens[row, node]))
  del paths[-1]
  assert len({*paths.values()}) == len(paths)
  return {*paths.values()}


def call(tree, texts, table):
  """Returns what a target scores that is a table of the last three tokens."""
  nodes = tree.topology.mask[:, 1:]
  tokens = np.asarray(tree.tokens)
  likeliest = [
    [predict(table, [*text, *row[path]]) for path in nodes]
    for text, row in zip(texts, tokens)
  ]
  roots = np.array([[text[-1]] for text in texts], np.int32)
  # Other drafters may read more of the likeliest tokens, and draft more nodes.
  return base.Scored(
    np.pad(np.append(roots, tokens, axis=1), ((0, 0), (0, 2))),
    np.pad(np.insert(tree.valid, 0, True, axis=1), ((0, 0), (0, 2))),
    np.pad(np.array(likeliest, np.int32)[..., None], ((0, 0), (0, 2), (0, 1))),
  )


def predict(table, tokens):
  return int(table[tuple([0, 0, *tokens][-3:])])


def check_rounds(drafter, num_rounds=24):
  """Compares trees and estimates with those of the oracle.

  In some rounds, a row is finished, or another arm has drafted.
  """
  rng = np.random.default_rng(7)
  table = rng.integers(VOCAB, size=(VOCAB,) * 3)
  texts = [[2], [1, 5, 3, 0], rng.integers(VOCAB, size=9).tolist()]
  oracles = [Oracle(drafter, text) for text in texts]
  draft, observe = jax.jit(drafter.draft), jax.jit(drafter.observe)
  size = max(map(len, texts)) + 2 * num_rounds
  state = drafter.init(None, context_of(texts, size), size)
  num_candidates = 0
  for step in range(num_rounds):
    context = context_of(texts, size)
    tree, _ = draft(None, None, state, context)
    lasts = [text[-1] for text in texts]
    for row, oracle in enumerate(oracles):
      assert paths_of(tree, row) == oracle.paths(lasts[row])
      num_candidates += len(oracle.pool.get(lasts[row], []))
    check_estimate(drafter, state, context, oracles)
    scored = call(tree, texts, table)
    is_live = np.arange(len(texts)) != step % 5
    is_selected = np.arange(len(texts)) != step % 7 - 1
    others = rng.integers(VOCAB, size=scored.tokens[:, 1:].shape)
    scored.tokens[~is_selected, 1:] = others[~is_selected]
    state = observe(state, scored, is_live)
    for row, (oracle, text) in enumerate(zip(oracles, texts)):
      after = lambda tokens, text=text: predict(table, [*text, *tokens])
      if is_live[row] and is_selected[row]:
        oracle.observe(lasts[row], after)
      if is_live[row]:  # A round emits one token or two.
        for _ in range(1 + step % 2):
          text.append(after([]))
  assert num_candidates > num_rounds


def context_of(texts, size):
  """Returns the texts, with undefined tokens after them."""
  tokens = np.full((len(texts), size), VOCAB - 1, np.int32)
  for row, text in zip(tokens, texts):
    row[: len(text)] = text
  return specjax.Context(tokens, np.array([*map(len, texts)], np.int32))


def check_estimate(drafter, state, context, oracles):
  """The estimate is the target's mass on what is drafted at each position."""
  probs = base.Probs(
    *np.random.default_rng(6).random((2, len(oracles), 3, VOCAB), np.float32)
  )
  start = np.maximum(context.lengths - 2, 1)
  every = np.ones(len(oracles), bool)
  same_state, num_read, acceptance = _estimate(
    drafter, None, state, context, every, base.TargetProbs(start, probs)
  )
  assert not np.any(num_read)
  jax.tree.map(np.testing.assert_array_equal, same_state, state)
  for row, oracle in enumerate(oracles):
    for step in range(int(context.lengths[row] - start[row])):
      before = int(context.tokens[row, start[row] + step - 1])
      newest = oracle.pool.get(before, [])[::-1][: drafter.candidates]
      first = [tokens[0] for tokens in newest]
      if not step:  # The window is that of the first position.
        first = list({path[0] for path in oracle.paths(before)})
      for masses, all_probs in zip(acceptance, probs, strict=True):
        expected = all_probs[row, step, first].sum()
        np.testing.assert_allclose(masses[row, step], expected, atol=1e-6)


@jax.jit
def _estimate(drafter, *arguments):
  return drafter.estimate(*arguments)


@pytest.mark.parametrize(
  ('window', 'ngram', 'candidates'),
  tiers.cases([(3, 4, 2), (1, 2, 1), (4, 2, 3), (1, 3, 7)], (3, 4, 2)),
)
def test_trees_and_estimates_are_those_of_lists_and_a_dictionary(
  window, ngram, candidates
):
  check_rounds(make(window, ngram, candidates))


def reading_finished_rows(state, scored, rows):
  return make().observe(state, scored, jnp.ones_like(rows))


def reading_what_other_arms_drafted(state, scored, rows):
  """Takes all drafted nodes for its own."""
  own, valid = jax.vmap(make()._draft_row)(state, scored.tokens[:, 0])
  nodes = slice(1, own.shape[1] + 1)
  return make().observe(
    state,
    scored._replace(
      tokens=jnp.asarray(scored.tokens).at[:, nodes].set(own),
      valid=jnp.asarray(scored.valid).at[:, nodes].set(valid),
    ),
    rows,
  )


def reading_one_entry_late(state, scored, rows):
  late = jnp.roll(scored.likeliest, 1, axis=1)
  return make().observe(state, scored._replace(likeliest=late), rows)


@pytest.mark.parametrize(
  'observe',
  [
    reading_finished_rows,
    reading_what_other_arms_drafted,
    reading_one_entry_late,
  ],
)
def test_check_rejects_other_windows(observe):
  with pytest.raises(AssertionError):
    check_rounds(twins.twin(make(), observe=observe))


def test_a_full_pool_replaces_the_oldest_ngrams():
  drafter, max_length = make(2, 2, 1), 2
  context = context_of([[1]], 2)
  state = drafter.init(None, context, max_length)
  ngrams = []
  for token in (2, 3, 4):
    tree, _ = drafter.draft(None, None, state, context)
    scored = call(tree, [[1]], np.full((VOCAB,) * 3, token))
    ngrams += [[1, token], [int(state.guesses[0, 0, 1]), token]]
    state = drafter.observe(state, scored, np.ones(1, bool))
  kept = {*map(tuple, np.asarray(state.ngrams[0]).tolist())}
  assert kept == {*map(tuple, ngrams[-4:])}
  tree, _ = drafter.draft(None, None, state, context)
  assert tree.tokens[0, 0] == 4 and tree.valid[0, 0]


# The loop.


def lookahead(**sizes_of_tree):
  return arms.arm(make(**sizes_of_tree))


def lookup_or():
  """A lookup that is rarely used, so that the window is."""
  lookup = specjax.drafters.PromptLookup(3)
  drafter = specjax.drafters.LookupOr(lookup, make(), min_match=3)
  return arms.arm(drafter, (None, None))


def ensemble():
  """The window's nodes have other numbers here."""
  members = specjax.drafters.PromptLookup(2), make()
  return arms.arm(specjax.drafters.Ensemble(members), (None, None), 'ensemble')


def test_what_may_be_left_out_of_a_call():
  """Not what follows invalid nodes, where the window reads predictions."""
  lookup = specjax.drafters.PromptLookup(3)
  recycling = token_recycling_test.make()
  for member, expected in ((make(), False), (recycling, True)):
    around = specjax.drafters.LookupOr(lookup, member)
    members = specjax.drafters.Ensemble((lookup, member))
    deferred = specjax.drafters.Deferred(around)
    assert around.may_stop_early == members.may_stop_early == expected
    assert deferred.may_stop_early == expected
    assert deferred.tree_sizes == around.tree_sizes


ARMS = {
  'alone': lookahead,
  'deferred': lambda: arms.deferred(lookup_or()),
  'ensemble': ensemble,
  'lookup_or': lookup_or,
}


def pool_of(state):
  """Returns the window and the pool in the drafters' states."""
  (pool,) = [
    pool
    for pool in jax.tree.leaves(
      state.drafters, is_leaf=lambda leaf: hasattr(leaf, 'ngrams')
    )
    if hasattr(pool, 'ngrams')
  ]
  return pool


@jax.jit
def _predict(tokens, length):
  model, params = arms.TARGET
  logits = model.extend(params, None, tokens[None]).logits
  return jnp.argmax(logits[0, length - 1])


def target_prediction(tokens):
  """Returns the target's likeliest next token, by a call on the whole text."""
  padded = np.zeros(sizes.BUFFER, np.int32)
  padded[: len(tokens)] = tokens
  return int(_predict(padded, len(tokens)))


@pytest.mark.parametrize('temperature', tiers.cases([0.0, 1.0], 1.0))
def test_the_window_in_the_loop_is_that_of_the_target(temperature):
  """The target scores all columns, also where a guess is not valid."""
  one = arms.decoder(lookahead(), temperature=temperature)
  state, infos = specjax.trace(
    one.round_fn, one.params, one.init(PROMPTS, sizes.NEW), 10
  )
  pool, num_accepted = pool_of(state), 0
  for row, prompt in enumerate(PROMPTS):
    oracle, text = Oracle(make(), prompt), [*prompt]
    rounds = infos.live[:, row], infos.num_emitted[:, row], infos.tokens[:, row]
    for is_live, num_emitted, tokens in zip(*map(np.asarray, rounds)):
      if is_live:
        after = lambda tokens, text=text: target_prediction([*text, *tokens])
        oracle.observe(text[-1], after)
        text += tokens[:num_emitted].tolist()
        num_accepted += num_emitted - 1
    np.testing.assert_array_equal(pool.guesses[row], oracle.levels)
    tree, _ = make().draft(
      None, None, pool, specjax.Context(state.tokens, state.lengths)
    )
    assert paths_of(tree, row) == oracle.paths(text[-1])
  assert num_accepted > 0


@pytest.mark.parametrize('name', tiers.cases(ARMS, 'alone', 'ensemble'))
def test_greedy_text_is_that_of_plain_decoding(name):
  one = arms.decoder(ARMS[name](), temperature=0.0)
  state = specjax.decode(one.round_fn, one.params, one.init(PROMPTS, sizes.NEW))
  results = one.results(PROMPTS, state)
  assert arms.tokens(results) == arms.greedy_tokens()
  assert sum(result.accepted.sum() for result in results) > 0
  # The window has moved on.
  assert (np.asarray(pool_of(state).num_ngrams) > 0).all()


@pytest.mark.parametrize(
  ('feedback', 'per_row'),
  tiers.cases([('bandit', True), ('full', False)], ('full', False)),
)
def test_loop_copies_no_pool_and_emits_what_greedy_decoding_does(
  feedback, per_row
):
  """The window stands still while other arms are selected."""
  one = arms.decoder(
    lookahead(),
    arms.lookup(),
    bandit='round_robin',
    temperature=0.0,
    feedback=feedback,
    per_row=per_row,
  )
  state, loop = drivers_test.compiled_loop(one)
  assert not drivers_test.copies_of(loop, [pool_of(state).ngrams])
  state = loop(one.round_fn, one.params, state)
  results = one.results(PROMPTS, state)
  assert arms.tokens(results) == arms.greedy_tokens()
  num_rounds = np.asarray(state.counters.pulls[:, 0])
  np.testing.assert_array_equal(pool_of(state).num_ngrams, WINDOW * num_rounds)


def test_rows_depend_on_no_neighbor_and_on_no_prompt_before():
  token_recycling_test.check_rows_are_independent(arms.decoder(lookahead()))


@pytest.mark.parametrize('is_lossless', [True, False])
def test_the_loop_has_the_target_distribution(is_lossless):
  """The power is that of `lossless_test`."""
  target, _ = lossless_test.tables('time-varying')
  drafter = make(2, 3, 2)
  if not is_lossless:
    drafter = token_recycling_test.passing_for_samples(drafter)
  one = arms.decoder(arms.arm(drafter), target=(lossless_test.MODEL, target))
  p = lossless_test.p_value(one, target, sampling_lib.Sampling())
  assert p > 1e-4 if is_lossless else p < 1e-6


@pytest.mark.parametrize(
  ('change', 'sentence'),
  [
    ({'window': 0}, 'window must be >= 1, got 0'),
    ({'ngram': 1}, 'ngram must be >= 2, got 1'),
    ({'candidates': 0}, 'candidates must be >= 1, got 0'),
  ],
)
def test_errors_name_the_argument(change, sentence):
  with pytest.raises(ValueError, match=sentence):
    make(**change)


def test_the_tree_has_as_many_nodes_as_in_the_paper():
  """Each of `window + candidates` chains has `ngram - 1` tokens.

  The root is one of them.
  """
  topology = make(5, 4, 2).topology
  assert topology.num_nodes + 1 == (5 + 2) * 3
  assert topology.depth == 4 + 2
