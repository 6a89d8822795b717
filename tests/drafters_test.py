"""Drafters: what they report is what they drew from, whatever their cache did.

The oracle of the cache tests is the model itself, without a cache, on the whole
text.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.compilation import hlo
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.testing import distributions
from tests import arms
from tests import sizes
from tests import tiers
from tests import twins

CONFIG = config_lib.TransformerConfig(
  vocab_size=11,
  num_layers=2,
  d_model=16,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  d_ff=24,
)
TRANSFORMER = specjax.models.Transformer(CONFIG)
MARKOV = specjax.models.Markov(3)
RAGGED = trees.Topology((-1, -1, 1))


@pytest.fixture(scope='module')
def params():
  """Large random weights: each token of the context sways what follows."""
  params = flax_modules.init_params(jax.random.key(17), CONFIG)
  return jax.tree.map(lambda leaf: 20 * leaf if leaf.ndim > 1 else leaf, params)


def table():
  return distributions.random_table(np.random.default_rng(18), 3, 3)


@pytest.mark.parametrize(
  ('options', 'name'),
  [
    ({'topology': trees.chain(0)}, 'topology'),
  ],
)
def test_autoregressive_argument_out_of_range_raises(options, name):
  with pytest.raises(ValueError, match=name):
    specjax.drafters.Autoregressive(MARKOV, **options)


@pytest.mark.parametrize('bonus_probs', [False, True])
def test_cost_of_an_autoregressive_draft_is_its_model_calls(bonus_probs):
  drafter = specjax.drafters.Autoregressive(
    MARKOV, trees.chains(2, 3), bonus_probs=bonus_probs
  )
  assert drafter.num_calls == 3 + bonus_probs


UNSURE = specjax.drafters.Unsure(0.4)


# Numbers of tokens that a model has read, by call.
CALLS = []


@components.component
class Counted(specjax.models.Markov):
  """A model whose calls are logged."""

  def extend(self, params, cache, tokens, *args, **options):
    num = tokens.shape[1]
    jax.debug.callback(lambda: CALLS.append(num))
    return super().extend(params, cache, tokens, *args, **options)


@pytest.mark.parametrize(
  ('last', 'rows', 'num_drafted', 'calls'),
  [
    ((0, 1, 2), None, (2, 1, 0), 3),
    ((2, 1), None, (0, 1), 2),
    ((2, 2), None, (0, 0), 1),
    # The first row would draft two tokens, and is not used.
    ((0, 1, 2), (False, True, True), (1, 1, 0), 2),
    ((0, 1, 2), (False, False, True), (0, 0, 0), 1),
  ],
)
def test_no_model_is_called_once_all_rows_have_stopped(
  last, rows, num_drafted, calls
):
  """Uses a model that is certain of the next token after 0 and 1."""
  drafter = specjax.drafters.Autoregressive(
    Counted(3), trees.chain(4), stop=UNSURE
  )
  params = np.float32([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.4, 0.3, 0.3]])
  context = specjax.Context(
    jnp.asarray(np.tile(np.int32(last)[:, None], 16)),
    jnp.asarray(np.full(len(last), 5, np.int32)),
    rows=None if rows is None else jnp.asarray(rows),
  )

  @jax.jit
  def draft(context):
    state = drafter.init(params, context, 16)
    keys = jax.random.split(jax.random.key(0), len(last))
    return drafter.draft(keys, params, state, context)[0]

  CALLS.clear()
  tree = draft(context)
  jax.effects_barrier()
  assert len(CALLS) == calls
  expected = np.arange(4) < np.array(num_drafted)[:, None]
  np.testing.assert_array_equal(tree.valid, expected)


@pytest.mark.parametrize(
  ('rows', 'num_read'),
  [(None, 2), ((True, False), 2), ((False, True), 1)],
)
def test_no_more_is_read_than_rows_need_whose_drafts_are_used(rows, num_read):
  """The first row is missing two tokens, the second one."""
  drafter = specjax.drafters.Autoregressive(
    Counted(3), trees.chain(1), stop=UNSURE
  )
  params = np.eye(3, dtype=np.float32)
  prompts = specjax.Context(np.ones((2, 16), np.int32), np.int32([7, 7]))
  state = jax.jit(drafter.init, static_argnums=2)(params, prompts, 16)
  state = drafter.rollback(state, jnp.int32([4, 5]))
  context = prompts._replace(
    lengths=jnp.int32([6, 6]),
    rows=None if rows is None else jnp.asarray(rows),
  )
  keys = jax.random.split(jax.random.key(0), 2)
  jax.effects_barrier()
  CALLS.clear()
  jax.block_until_ready(jax.jit(drafter.draft)(keys, params, state, context))
  jax.effects_barrier()
  assert CALLS[0] == num_read


@pytest.mark.parametrize(
  'topology',
  [trees.chain(3), trees.prefix_tree((2, 1)), RAGGED],
  ids=['chain', 'prefix tree', 'ragged'],
)
def test_autoregressive_tokens_have_the_reported_probs(topology):
  """Jointly for all nodes of 30000 trees: siblings are i.i.d. too.

  With up to 81 trees, a chi-square divergence of 0.004 from the product of the
  reported probabilities fails with probability 0.99.
  """
  rows, model_table = 30000, table()
  drafter = specjax.drafters.Autoregressive(MARKOV, topology, bonus_probs=True)
  # Prompts of one and more tokens.
  tokens = np.random.default_rng(19).integers(3, size=(rows, 16))
  lengths = np.arange(rows, dtype=np.int32) % 5 + 1

  @jax.jit
  def draft(params, context):
    state = drafter.init(params, context, 16)
    keys = jax.random.split(jax.random.key(20), rows)
    return drafter.draft(keys, params, state, context)[0]

  context = specjax.Context(tokens.astype(np.int32), lengths)
  tree = jax.device_get(draft(model_table, context))
  last = np.take_along_axis(tokens, lengths[:, None] - 1, 1)
  entries = np.concatenate([last, tree.tokens], axis=1)
  parents = entries[:, np.array(topology.parents) + 1]
  np.testing.assert_allclose(tree.probs, model_table[parents], atol=1e-6)
  leaves = tree.tokens[:, topology.leaves]
  for probs in tree.bonus_probs:
    np.testing.assert_allclose(probs, model_table[leaves], atol=1e-6)
  # What a row drafts depends on its last token; index the trees with it.
  roots = np.bincount(last[:, 0], minlength=3) / rows
  grid = np.indices([3] * (topology.num_nodes + 1)).reshape(
    topology.num_nodes + 1, -1
  )
  chances = roots[grid[0]]
  for node, parent in enumerate(topology.parents):
    chances = chances * model_table[grid[parent + 1], grid[node + 1]]
  assert distributions.chi_square(entries, chances) > 1e-4


@jax.jit
def probs_without_cache(params, tokens):
  """`[B, T, V]` the transformer's, after each token of whole texts."""
  logits = TRANSFORMER.extend(params, None, tokens).logits
  return sampling_lib.probabilities(logits, sampling_lib.Sampling())


def check_tree(params, tree, context):
  """Compares every distribution that a tree reports with the oracle's.

  Nothing is compared below nodes that are not valid.
  """
  topology = tree.topology
  rows = np.arange(len(context.lengths))
  lengths = np.asarray(context.lengths)
  for node in range(-1, topology.num_nodes):
    line, ancestor = [], node
    while ancestor >= 0:
      line.insert(0, ancestor)
      ancestor = topology.parents[ancestor]
    tokens = np.array(context.tokens)
    for depth, ancestor in enumerate(line):
      tokens[rows, lengths + depth] = tree.tokens[:, ancestor]
    probs = np.asarray(probs_without_cache(params, tokens))
    probs = probs[rows, lengths + len(line) - 1]
    reported = [
      tree.probs[:, child]
      for child in np.flatnonzero(np.array(topology.parents) == node)
    ]
    if node + 1 in topology.leaf_entries and tree.bonus_probs is not None:
      leaf = topology.leaf_entries.tolist().index(node + 1)
      reported.append(tree.bonus_probs.processed[:, leaf])
    is_valid = tree.valid[:, line].all(axis=1)
    for actual in reported:
      np.testing.assert_allclose(actual[is_valid], probs[is_valid], atol=1e-4)


def check_rounds(drafter, params, rounds=10):
  """Runs rounds with any outcome at all, and checks every tree.

  In some rounds the drafter is not selected, and up to 5 tokens come from
  elsewhere. In others some rows do not move, like rows that are done.
  """
  rng = np.random.default_rng(21)
  topology, rows, size = drafter.topology, 4, 64
  draft, commit, catch_up = map(
    jax.jit, (drafter.draft, drafter.commit, drafter.catch_up)
  )
  tokens = rng.integers(CONFIG.vocab_size, size=(rows, size)).astype(np.int32)
  lengths = np.array([1, 2, 3, 9], np.int32)
  init = jax.jit(drafter.init, static_argnums=2)
  prompts = specjax.Context(jnp.asarray(tokens), jnp.asarray(lengths))
  state = init(params, prompts, size)
  for step in range(rounds):
    context = specjax.Context(jnp.asarray(tokens), jnp.asarray(lengths))
    if step % 5 in (2, 3):
      lengths = lengths + rng.integers(1, 6, size=rows).astype(np.int32)
      state, _ = catch_up(params, state, context, jnp.zeros(rows, bool))
      continue
    state, _ = catch_up(params, state, context, jnp.ones(rows, bool))
    keys = jax.random.split(jax.random.key(step), rows)
    tree, proposal = draft(keys, params, state, context)
    tree = jax.device_get(tree)
    check_tree(params, tree, context)
    # Any path from the root, cut anywhere; the first rounds keep all and none.
    leaf = rng.choice(topology.leaf_entries, size=rows) - 1
    paths = np.zeros((rows, topology.depth), np.int32)
    for row, ancestor in enumerate(leaf):
      while ancestor >= 0:
        paths[row, topology.depths[ancestor] - 1] = ancestor
        ancestor = topology.parents[ancestor]
    most = topology.offsets[leaf + 1]
    if topology.depth:
      reached = np.take_along_axis(tree.valid, paths, axis=1)
      most = np.minimum(most, np.cumprod(reached, axis=1).sum(axis=1))
    num = rng.integers(most + 1) if step > 1 else (step == 0) * most
    moving = np.arange(rows) != (step % rows if step > 5 else -1)
    for row in np.flatnonzero(moving):
      kept = paths[row, : num[row]]
      tokens[row, lengths[row] + np.arange(num[row])] = tree.tokens[row][kept]
    outcome = specjax.Outcome(
      path=jnp.asarray(paths),
      num_accepted=jnp.asarray(num, jnp.int32),
      tokens=jnp.zeros((rows, topology.depth + 1), jnp.int32),
    )
    state = commit(state, proposal, context, outcome, jnp.asarray(moving))
    lengths = lengths + (moving * (num + 1)).astype(np.int32)
  assert (lengths < size - topology.depth).all()


# By rule: it, and whether it stops at probabilities `[V]` after a path of
# tokens with these probabilities.
_STOPS = {
  'length': (
    specjax.drafters.Length(2),
    lambda probs, path: len(path) >= 2,
  ),
  'margin': (
    specjax.drafters.Margin(0.3),
    lambda probs, path: np.diff(np.sort(probs))[-1] < 0.3,
  ),
  'path_probability': (
    specjax.drafters.PathProbability(0.2),
    lambda probs, path: np.prod(path) < 0.2,
  ),
  'unsure': (UNSURE, lambda probs, path: probs.max() < 0.6),
  'unsure_log': (
    specjax.drafters.UnsureLog(0.9),
    lambda probs, path: -probs @ np.log(probs) > 0.9,
  ),
}


def check_stops(stop, expected):
  """Compares where a rule ends the drafts of random trees.

  Args:
    stop: the rule.
    expected: whether to stop, given probabilities and path as in `_STOPS`.
  """
  vocab_size, rows = 4, 64
  topology = trees.prefix_tree((2, 2, 1))
  drafter = specjax.drafters.Autoregressive(
    specjax.models.Markov(vocab_size),
    topology,
    specjax.Sampling(0.5),
    stop=stop,
  )
  rng = np.random.default_rng(19)
  table = np.float32(rng.dirichlet(np.full(vocab_size, 0.5), vocab_size))
  last = rng.integers(vocab_size, size=rows)
  context = specjax.Context(
    jnp.asarray(np.tile(np.int32(last)[:, None], 8)),
    jnp.full(rows, 3, jnp.int32),
  )
  state = drafter.init(table, context, 8)
  keys = jax.random.split(jax.random.key(0), rows)
  tree = jax.jit(drafter.draft)(keys, table, state, context)[0]
  num_stopped = 0
  for row, tokens, valid in zip(
    last, *jax.device_get((tree.tokens, tree.valid))
  ):
    # By node: whether it is drafted, its token and the path's probabilities.
    nodes = {-1: (True, row, ())}
    for node, parent in enumerate(topology.parents):
      is_drafted, token, path = nodes[parent]
      probs = table[token]
      stops = is_drafted and bool(expected(probs, path))
      num_stopped += stops
      is_drafted &= not stops
      nodes[node] = is_drafted, tokens[node], (*path, probs[tokens[node]])
      assert valid[node] == is_drafted, (node, path)
  assert 0 < num_stopped


@pytest.mark.parametrize('name', specjax.drafters.STOPS)
def test_a_draft_stops_where_its_rule_says(name):
  """Rules depend on probabilities before the temperature, and on the path."""
  stop, expected = _STOPS[name]
  assert isinstance(stop, specjax.drafters.STOPS[name])
  check_stops(stop, expected)


def after_temperature(position):
  """Returns a position with probabilities at temperature 0.5."""
  squared = position.raw_probs**2
  return position._replace(raw_probs=squared / squared.sum(-1, keepdims=True))


# By rule, with the fields that it has in `_STOPS`: a broken copy of it.
_BROKEN_STOPS = {
  'length': lambda rule, position: jnp.full_like(
    position.path_probs, position.depth > rule.length, bool
  ),
  'margin': lambda rule, position: (
    position.raw_probs.max(-1) - position.raw_probs.min(-1) < rule.alpha
  ),
  'path_probability': lambda rule, position: (
    jnp.sqrt(position.path_probs) < rule.alpha
  ),
  'unsure': lambda rule, position: UNSURE(after_temperature(position)),
  # Entropy in bits.
  'unsure_log': lambda rule, position: (
    jax.scipy.special.entr(position.raw_probs).sum(-1) / np.log(2) > rule.alpha
  ),
}


@pytest.mark.parametrize('name', specjax.drafters.STOPS)
def test_check_rejects_a_rule_that_stops_elsewhere(name):
  stop, expected = _STOPS[name]
  broken = twins.subclass(type(stop), __call__=_BROKEN_STOPS[name])
  with pytest.raises(AssertionError):
    check_stops(broken(**dataclasses.asdict(stop)), expected)


@pytest.mark.parametrize(
  ('alpha', 'stops'),
  [
    (0.9**2, lambda entropy: np.sqrt(entropy) > 0.9),
    ((1 - 0.6) ** 2 / 0.2, lambda entropy: 1 - np.sqrt(0.2 * entropy) < 0.6),
  ],
  ids=['svip', 'adaedl'],
)
def test_rules_of_the_entropy_differ_in_the_unit_of_the_threshold(alpha, stops):
  """Writes out SVIP with h = 0.9, and AdaEDL with gamma = 0.2, lambda = 0.6."""
  rule = specjax.drafters.UnsureLog(alpha)
  check_stops(rule, lambda probs, path: stops(-probs @ np.log(probs)))


def test_drafts_of_all_lengths_share_a_program():
  num_compiled = []

  @jax.jit
  def draft(drafter, table, context):
    num_compiled.append(1)
    keys = jax.random.split(jax.random.key(0), 1)
    return drafter.draft(keys, table, drafter.init(table, context, 8), context)

  context = specjax.Context(jnp.zeros((1, 8), jnp.int32), jnp.full(1, 3))
  for length in range(5):
    drafter = specjax.drafters.Autoregressive(
      MARKOV, trees.chain(4), stop=specjax.drafters.Length(length)
    )
    tree, _ = draft(drafter, table(), context)
    assert tree.valid.sum() == length
  assert len(num_compiled) == 1


def autoregressive(topology, chunk=None, **options):
  drafter = specjax.drafters.Autoregressive(TRANSFORMER, topology, **options)
  return drafter if chunk is None else arms.chunked(drafter, chunk)


_CACHED = {
  'chain 3': (trees.chain(3), {'chunk': 1, 'bonus_probs': True}),
  'prefix tree': (trees.prefix_tree((2, 2)), {'chunk': 3}),
  'ragged': (RAGGED, {'chunk': 16, 'bonus_probs': True}),
  'empty': (trees.chain(0), {'bonus_probs': True}),
  'chain that stops': (trees.chain(3), {'stop': UNSURE}),
  'tree that stops': (
    trees.prefix_tree((2, 2)),
    {'stop': UNSURE, 'bonus_probs': True},
  ),
}


@pytest.mark.parametrize(
  'name', tiers.cases(_CACHED, 'ragged', 'tree that stops')
)
def test_probs_do_not_depend_on_what_the_cache_went_through(params, name):
  topology, options = _CACHED[name]
  check_rounds(autoregressive(topology, **options), params)


def windowed(topology, **options):
  return specjax.drafters.Windowed(autoregressive(topology), **options)


@pytest.mark.slow
def test_a_window_that_is_never_left_changes_nothing(params):
  check_rounds(windowed(trees.prefix_tree((2, 2)), sinks=2, window=64), params)


@pytest.mark.slow
@pytest.mark.parametrize(('sinks', 'window'), [(0, 1), (2, 5)])
def test_a_drafter_far_behind_reads_sinks_and_a_window(params, sinks, window):
  """It drafts as if there were no text between them, twice and later."""
  drafter = windowed(trees.chain(2), sinks=sinks, window=window)
  shape = 2, 64
  tokens = np.random.default_rng(22).integers(CONFIG.vocab_size, size=shape)
  tokens = tokens.astype(np.int32)
  prompts = specjax.Context(jnp.asarray(tokens), np.array([6, 9], np.int32))
  state = jax.jit(lambda *args: drafter.init(*args, 64))(params, prompts)
  read, draft = jax.jit(drafter.catch_up), jax.jit(drafter.draft)
  skipped = np.zeros(2, int)
  # The second row of the first step is behind by few tokens.
  for lengths, most in (((30, 9), window), ((50, 40), window), ((51, 42), 2)):
    lengths = np.array(lengths, np.int32)
    context = specjax.Context(jnp.asarray(tokens), lengths)
    state, num = read(params, state, context, np.ones(2, bool))
    assert np.max(num) <= most
    has_skipped = np.asarray(state.skipped) > skipped
    skipped = np.where(has_skipped, lengths - 1 - window - sinks, skipped)
    np.testing.assert_array_equal(state.skipped, skipped)
    seen = np.zeros_like(tokens)
    for row, (skip, length) in enumerate(zip(skipped, lengths)):
      text = [*tokens[row, :sinks], *tokens[row, sinks + skip : length]]
      seen[row, : len(text)] = text
    keys = jax.random.split(jax.random.key(0), 2)
    tree, _ = jax.device_get(draft(keys, params, state, context))
    check_tree(params, tree, specjax.Context(seen, lengths - skipped))
  assert (skipped > 0).all()


def test_a_window_reads_all_positions_that_are_compared(params):
  """Six positions are compared with a window of four tokens, and of seven."""
  tokens = np.random.default_rng(3).integers(CONFIG.vocab_size, size=(1, 64))
  tokens, start = jnp.asarray(tokens, jnp.int32), jnp.array([24])
  prompts = specjax.Context(tokens, jnp.array([3]))
  context = specjax.Context(tokens, jnp.array([30]))
  probs = jax.nn.softmax(
    jax.random.normal(jax.random.key(4), (1, 6, CONFIG.vocab_size))
  )
  target = base.TargetProbs(start, base.Probs(probs, probs))
  estimates, states = [], []
  for window in (4, 7):
    drafter = windowed(trees.chain(2), sinks=1, window=window)
    state = jax.jit(lambda *args, d=drafter: d.init(*args, 64))(params, prompts)
    state, _, acceptance = jax.jit(drafter.estimate)(
      params, state, context, jnp.ones(1, bool), target
    )
    states.append(int(state.skipped[0]))
    estimates.append(np.asarray(acceptance.processed))
  assert states == [21, 21] and (estimates[0] > 0).all()
  np.testing.assert_allclose(*estimates, atol=1e-6)


def deferred(drafter):
  return specjax.drafters.Deferred(drafter)


def test_what_is_read_late_is_drafted_as_what_was_read_at_once(params):
  check_rounds(deferred(autoregressive(trees.prefix_tree((2, 2)))), params)


def test_a_row_is_read_once_it_plays_and_counted_as_if_its_prompt_were():
  """Checks that a row is prefilled only when it is first selected.

  The prompt is not counted as text that other drafters committed.
  """
  rows, size, prefill_lengths = 3, 40, []

  @components.component
  class Recorded(specjax.models.Markov):
    def prefill(self, params, cache, tokens, lengths):
      jax.debug.callback(
        lambda values: prefill_lengths.append(values.tolist()), lengths
      )
      return super().prefill(params, cache, tokens, lengths)

  eager = specjax.drafters.Autoregressive(Recorded(3), trees.chain(2))
  lazy, model_table = deferred(eager), table()
  tokens = jnp.zeros((rows, size), jnp.int32)
  prompts, context = (
    specjax.Context(tokens, jnp.array(lengths))
    for lengths in ([1, 9, 20], [4, 12, 33])
  )
  states = [
    drafter.init(model_table, prompts, size) for drafter in (eager, lazy)
  ]
  jax.effects_barrier()
  # Only `eager` has called its model.
  assert prefill_lengths == [[0, 7, 18]]
  prefill_lengths.clear()
  for plays in ([False, True, False], [False, True, True]):
    (states[0], expected), (states[1], num) = (
      drafter.catch_up(model_table, state, context, jnp.array(plays))
      for drafter, state in zip((eager, lazy), states)
    )
    np.testing.assert_array_equal(num, expected)
    np.testing.assert_array_equal(
      states[1].inner.lengths, np.where(plays, context.lengths - 2, 0)
    )
  jax.effects_barrier()
  assert prefill_lengths == [[10], [31]]


def test_who_has_nothing_to_read_late_skips_the_loop(params):
  """Counts loops, as XLA hoists loop-invariant work out of a loop."""
  loops = []
  eager = autoregressive(trees.chain(2))
  context = specjax.Context(jnp.zeros((3, 64), jnp.int32), jnp.full(3, 9))
  for drafter in (eager, deferred(eager)):
    init = lambda *args, drafter=drafter: drafter.init(*args, 64)
    state = jax.eval_shape(init, params, context)
    catch_up = jax.jit(drafter.catch_up)
    lowered = catch_up.lower(params, state, context, np.ones(3, bool))
    module = hlo.parse(lowered.compile().as_text())
    entry = module.computations[module.entry]
    loops.append(
      sum(instruction.op == 'while' for instruction in entry.values())
    )
  assert loops == [1, 1]


def test_what_reads_no_prompts_cannot_read_them_late():
  with pytest.raises(
    ValueError, match='drafter must be one that reads prompts'
  ):
    deferred(specjax.drafters.PromptLookup(2))


@pytest.mark.parametrize('options', [{'sinks': -1}, {'window': 0}])
def test_windows_out_of_range_are_refused(options):
  with pytest.raises(ValueError, match=f'{next(iter(options))} must be >='):
    windowed(trees.chain(2), **options)


def test_check_rejects_a_drafter_that_does_not_catch_up(params):
  drafter = twins.twin(
    autoregressive(trees.chain(2)),
    catch_up=lambda params, state, context, rows: (
      state,
      jnp.zeros_like(rows, int),
    ),
  )
  with pytest.raises(AssertionError, match='Not equal to tolerance'):
    check_rounds(drafter, params)


def fully_accepted(results, rounds):
  for result in results:
    assert result.rounds == rounds
    np.testing.assert_array_equal(result.accepted, result.drafted)


@pytest.mark.parametrize('temperature', tiers.cases([0.0, 1.0], 1.0))
def test_draft_by_the_target_itself_is_accepted_in_full(temperature):
  """At every position of every round, from prompts of one token on."""
  decoder = arms.decoder(
    arms.chain(3, arms.TARGET, temperature), temperature=temperature
  )
  fully_accepted(decoder.decode(sizes.PROMPTS, 48), rounds=12)


@pytest.mark.parametrize('chunk', tiers.cases([1, 16], 1))
def test_arms_that_take_turns_stay_accepted_in_full(chunk):
  """Depths 3 and 1: the first lags by 2, the second by 4 tokens in turn."""
  decoder = arms.decoder(
    *(arms.chain(length, arms.TARGET, chunk=chunk) for length in (3, 1)),
    bandit='round_robin',
  )
  results = decoder.decode(sizes.PROMPTS, 48)
  fully_accepted(results, rounds=16)
  assert all(result.pulls.tolist() == [8, 8] for result in results)
