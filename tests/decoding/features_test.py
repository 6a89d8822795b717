"""A drafter that reads the target's features, and trees of every row's own."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import components
from specjax import decoding
from specjax import trees
from specjax.testing import toys
from tests import arms
from tests import lossless_test
from tests import sizes
from tests.decoding import drivers_test

VOCAB = lossless_test.VOCAB_SIZE


# A linear head on sums of features.


class Sums(NamedTuple):
  total: jax.Array  # [B, F] of features that were read
  lengths: jax.Array  # [B] how many


def read(state, context, rows):
  """Adds the features that the state lacks; the last token has none yet."""
  (features,) = context.features
  at = np.arange(features.shape[1])[None]
  end = jnp.where(rows, context.lengths - 1, 0)[:, None]
  new = (at >= state.lengths[:, None]) & (at < end)
  total = state.total + jnp.where(new[..., None], features, 0.0).sum(1)
  return Sums(total, state.lengths + new.sum(1)), new.sum(1)


def linear_head(vocab_size, length=2, sampling=specjax.Sampling(), taps=(-1,)):
  """Drafts each token of a chain from `params[depth]`, `[F, V]`."""
  topology = trees.chain(length)

  def draft(keys, params, state, context):
    count = jnp.maximum(state.lengths, 1).astype(jnp.float32)
    mean = state.total / count[:, None]
    logits = jnp.einsum('bf,lfv->blv', mean, params)
    probs = specjax.sampling.probabilities(logits, sampling)
    size = length, specjax.sampling.num_uniforms(vocab_size)
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, size))(keys)
    tokens = specjax.sampling.tokens(uniforms, logits, probs, sampling)
    valid = jnp.ones(tokens.shape, bool)
    return base.DraftTree(tokens, topology, valid, probs), ()

  def init(params, context, max_length):
    zeros = jnp.zeros((len(context.lengths), params.shape[1]))
    return Sums(zeros, jnp.zeros_like(context.lengths))

  return base.Drafter(
    topology=topology,
    init=init,
    draft=draft,
    commit=lambda state, proposal, context, outcome, rows: state,
    catch_up=base.CatchUp(
      lambda params, state, context, rows: read(state, context, rows),
      every_round=True,
    ),
    taps=taps,
    vocab_size=vocab_size,
  )


def head_params(seed=0, size=16, vocab_size=toys.VOCAB, length=2):
  return 2 * jax.random.normal(jax.random.key(seed), (length, size, vocab_size))


def greedy_head(tap=-1):
  """An arm whose head reads the output of one layer, at temperature 0."""
  head = linear_head(toys.VOCAB, sampling=specjax.Sampling(0.0), taps=(tap,))
  return arms.arm(head, head_params(), 'greedy')


@jax.jit
def whole_text_features(tokens):
  """`[B, S, F]` of each layer, by one call over the whole text."""
  model, params = arms.TARGET
  return model.extend(params, None, tokens).features


def check_features(state):
  """All but the last token of every row; past the end there is junk."""
  whole = whole_text_features(state.tokens)
  for tap, buffer in state.features.items():
    for row, length in enumerate(np.asarray(state.lengths) - 1):
      np.testing.assert_allclose(
        buffer[row, :length], whole[tap][row, :length], atol=2e-4
      )


def check_reads_every_round(state, results):
  """The head has read all but the tokens of its last rounds, of 3 at most."""
  (sums,) = state.drafters
  assert (sums.lengths >= state.lengths - 4).all()
  assert all(result.num_catch_up_tokens > 20 for result in results)


def test_a_head_on_features_copies_no_buffer_and_decodes_as_the_target_does():
  decoder = arms.decoder(greedy_head(), temperature=0.0)
  start, loop = drivers_test.compiled_loop(decoder)
  assert list(start.features) == [2]
  assert not drivers_test.copies_of(loop, start.features.values())
  state = loop(decoder.params, start)
  results = decoder.results(sizes.PROMPTS, state)
  assert arms.tokens(results) == arms.greedy_tokens()
  check_features(state)
  check_reads_every_round(state, results)


@pytest.mark.parametrize(
  'per_row', [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_heads_catch_up_from_the_buffers(per_row):
  """Of all layers, interleaved with another model and with plain decoding."""
  taps = (-1, 0, 1)
  decoder = arms.decoder(
    *map(greedy_head, taps),
    arms.chain(temperature=0.0),
    arms.none(),
    bandit='round_robin',
    per_row=per_row,
    temperature=0.0,
  )
  state = decoding.decode(
    decoder.round_fn, decoder.params, decoder.init(sizes.PROMPTS, sizes.NEW)
  )
  results = decoder.results(sizes.PROMPTS, state)
  assert arms.tokens(results) == arms.greedy_tokens()
  assert set(state.features) == {0, 1, 2}
  check_features(state)
  assert all(result.num_catch_up_tokens > 0 for result in results)
  whole = whole_text_features(state.tokens)
  for tap, sums in zip(taps, state.drafters):
    features = np.asarray(whole[tap])
    for row, num in enumerate(np.asarray(sums.lengths)):
      assert 0 < num < state.lengths[row]
      np.testing.assert_allclose(
        sums.total[row], features[row, :num].sum(0), atol=2e-3
      )


@components.component
class MarkovWithFeatures(specjax.models.Markov):
  """A Markov model whose features are the tokens, one-hot."""

  feature_sizes = (VOCAB,)

  def extend(self, params, cache, tokens, **options):
    features = (jax.nn.one_hot(tokens, VOCAB),)
    return (
      super()
      .extend(params, cache, tokens, **options)
      ._replace(features=features)
    )

  def prefill(self, params, cache, tokens, lengths):
    cache, _ = super().prefill(params, cache, tokens, lengths)
    return cache, (jax.nn.one_hot(tokens, VOCAB),)


def test_a_head_on_features_has_the_target_distribution():
  """The broken verifier is found, so the check has teeth."""
  target, _ = lossless_test.tables('stationary')
  params = head_params(size=VOCAB, vocab_size=VOCAB)
  head = linear_head(VOCAB)
  decoder = arms.decoder(
    *[arms.arm(head, params, name) for name in ('maximal', arms.BROKEN)],
    target=(MarkovWithFeatures(VOCAB), target),
  )
  p, broken = lossless_test.p_values(decoder, target, 2)
  assert p > 1e-4 and broken < 1e-6


@pytest.mark.slow
def test_a_head_reads_features_with_full_information():
  """Drafters then read after each round."""

  def estimate(params, state, context, rows, target):
    del params
    nothing = jnp.zeros(target.probs.raw.shape[:2])
    return *read(state, context, rows), base.Probs(nothing, nothing)

  arm, params = greedy_head()
  arm = arm._replace(drafter=arm.drafter._replace(estimate=estimate))
  decoder = arms.decoder(
    (arm, params), temperature=0.0, bandit='ucb1', catch_up='always'
  )
  state = decoding.decode(
    decoder.round_fn, decoder.params, decoder.init(sizes.PROMPTS, sizes.NEW)
  )
  results = decoder.results(sizes.PROMPTS, state)
  assert arms.tokens(results) == arms.greedy_tokens()
  check_reads_every_round(state, results)


def test_nothing_is_stored_if_nobody_asks():
  plain = arms.decoder(arms.none(), temperature=0.0)
  assert plain.init(sizes.PROMPTS, sizes.NEW).features == {}


@pytest.mark.parametrize(
  ('target', 'taps', 'message'),
  [
    (lossless_test.MODEL, (-1,), r'taps \(-1,\) ask for features .* has none'),
    (arms.TARGET[0], (3,), r'taps must lie in \[-3, 2\], .* got 3'),
    (arms.TARGET[0], (-4,), r'taps must lie in \[-3, 2\], .* got -4'),
  ],
)
def test_features_that_are_not_there_are_refused(target, taps, message):
  arm, _ = arms.arm(linear_head(target.vocab_size, taps=taps))
  with pytest.raises(ValueError, match=message):
    decoding.make_round(target, [arm], specjax.bandits.Fixed(1))


# Trees of their own for every row and round.

BOUNDS = trees.Bounds(num_nodes=6, depth=3, width=2)


def growing(parents_of=None):
  """A drafter of random trees, of nodes that a Markov table draws.

  A random number of nodes, two per level, each below one of the two above.

  Args:
    parents_of: spoils the parents, by the second of two parameters.
  """

  def from_row(key, table, token):
    key, size_key, parent_key = jax.random.split(key, 3)
    exists = np.arange(6) < jax.random.randint(size_key, (), 1, 7)
    above = jax.random.randint(parent_key, (6,), 0, 2)
    parents = jnp.where(
      np.arange(6) < 2, -1, 2 * (np.arange(6) // 2 - 1) + above
    )
    tokens, probs = [], []
    for node, each in enumerate(jax.random.split(key, 6)):
      before = jnp.append(jnp.stack([*tokens, token]), token)
      own = table[before[jnp.where(parents[node] < 0, node, parents[node])]]
      probs.append(own)
      uniforms = jax.random.uniform(each, (1,))
      tokens.append(specjax.sampling.draw(uniforms, own))
    return jnp.stack(tokens), parents, exists, jnp.stack(probs)

  def draft(keys, params, state, context):
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)[:, 0]
    rows = jax.vmap(from_row, in_axes=(0, None, 0))
    table, spoiled = params if parents_of else (params, None)
    tokens, parents, exists, probs = rows(keys, table, last)
    if parents_of is not None:
      parents = parents_of(parents, spoiled)
    topology = trees.dynamic(parents, exists, BOUNDS)
    return base.DraftTree(tokens, topology, exists, probs), ()

  return base.Drafter(
    topology=BOUNDS,
    init=lambda params, context, max_length: (),
    draft=draft,
    commit=lambda state, proposal, context, outcome, rows: state,
    vocab_size=VOCAB,
    partial=True,
  )


def test_features_of_trees_that_end_early_are_finite():
  """Past a row's length is junk, which a head may multiply with 0."""
  target, draft = lossless_test.tables('stationary')
  decoder = arms.decoder(
    arms.arm(growing()._replace(taps=(-1,)), draft),
    target=(MarkovWithFeatures(VOCAB), target),
  )
  state = decoder.init(sizes.MARKOV_PROMPTS, 20)
  for _ in range(4):
    state, _ = decoding.trace(decoder.round_fn, decoder.params, state, 1)
    assert jnp.isfinite(state.features[0]).all()


@pytest.mark.slow
def test_trees_of_every_round_have_the_target_distribution():
  target, draft = lossless_test.tables('stationary')
  names = 'otm', arms.BROKEN
  decoder = arms.decoder(
    *[arms.arm(growing(), draft, name) for name in names],
    target=(lossless_test.MODEL, target),
  )
  p, broken = lossless_test.p_values(decoder, target, 2)
  assert p > 1e-4 and broken < 1e-6


@pytest.mark.parametrize(
  'per_row', [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_trees_of_every_round_among_arms_have_the_target_distribution(per_row):
  target, draft = lossless_test.tables('stationary')
  decoder = arms.decoder(
    arms.arm(growing(), draft, 'kseq'),
    arms.chain(draft=(lossless_test.MODEL, draft)),
    target=(lossless_test.MODEL, target),
    bandit='uniform',
    per_row=per_row,
  )
  assert lossless_test.p_value(decoder, target) > 1e-4


def as_dynamic(drafter):
  """The same trees, given as those of every row and round."""
  topology = drafter.topology
  bounds = trees.Bounds(topology.num_nodes, topology.depth, topology.width)

  def draft(keys, params, state, context):
    tree, proposal = drafter.draft(keys, params, state, context)
    parents = jnp.broadcast_to(
      jnp.array(topology.parents, jnp.int32), tree.tokens.shape
    )
    exists = jnp.ones(tree.tokens.shape, bool)
    made = trees.dynamic(parents, exists, bounds)
    return tree._replace(topology=made), proposal

  return drafter._replace(topology=bounds, draft=draft)


@pytest.mark.slow
def test_dynamic_trees_decode_as_static_ones():
  """Masks and positions of a transformer's call, and the walk."""
  static, params = arms.model(trees.prefix_tree((2, 2)), draft=arms.TARGET)
  dynamic = static._replace(drafter=as_dynamic(static.drafter))
  results = [
    arms.decoder((arm, params)).decode(sizes.PROMPTS, sizes.NEW)
    for arm in (static, dynamic)
  ]
  for one, other in zip(*results, strict=True):
    assert one.tokens == other.tokens
    assert one.accepted.tolist() == other.accepted.tolist()
    assert one.accepted.sum() > 0


SPOILS = (
  lambda parents: parents.at[:, 0].set(1),  # Below a later one.
  lambda parents: parents.at[:, 2].set(-1),  # Too many at the root.
  lambda parents: jnp.maximum(parents - 2, -1),  # Levels are mixed.
)


def test_trees_that_contradict_their_bounds_are_raised():
  target, draft = lossless_test.tables('stationary')

  def spoil(parents, index):
    return jax.lax.switch(index, SPOILS, parents)

  drafter = growing(spoil)
  for index in range(len(SPOILS)):
    decoder = arms.decoder(
      arms.arm(drafter, (draft, np.int32(index))),
      target=(lossless_test.MODEL, target),
    )
    with pytest.raises(ValueError, match='contradicts its bounds in rows'):
      decoder.decode([[1, 2]] * 8, 12)


def test_dynamic_trees_are_described_as_static_ones():
  names = 'depths', 'offsets', 'mask', 'children', 'level_table'

  def described(bounds, parents):
    made = trees.dynamic(parents, jnp.ones(parents.shape, bool), bounds)
    return {name: getattr(made, name) for name in (*names, 'is_valid')}

  for topology in (
    trees.chains(2, 3),
    trees.prefix_tree((2, 2)),
    trees.chain(4),
  ):
    bounds = trees.Bounds(topology.num_nodes, topology.depth, topology.width)
    parents = jnp.array([topology.parents] * 2, jnp.int32)
    made = jax.jit(functools.partial(described, bounds))(parents)
    for name in names:
      for row in np.asarray(made[name]):
        np.testing.assert_array_equal(row, getattr(topology, name), name)
    assert made['is_valid'].all()
