"""A drafter that reads the target's features, and trees of every row's own."""

import functools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import decoding
from specjax import trees
from specjax import verifiers
from specjax.testing import toys
from tests import lossless_test
from tests import parts
from tests import xla

TRANSFORMER = toys.transformer(0)
VOCAB = lossless_test.VOCAB_SIZE
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6], [5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]]


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


def arm(drafter, verifier='maximal'):
  if not isinstance(verifier, str):
    verifier = specjax.VERIFIERS['tree_walk'](verifier)
  return specjax.Arm(drafter, verifiers.resolve(verifier))


def head_params(seed=0, size=16, vocab_size=toys.VOCAB, length=2):
  return 2 * jax.random.normal(jax.random.key(seed), (length, size, vocab_size))


def decode(arms, temperature=0.0, bandit=None, **options):
  """The tokens of `PROMPTS`, and the decoder's final state."""
  decoder = specjax.Decoder(
    *TRANSFORMER,
    arms,
    bandit=bandit,
    sampling=specjax.Sampling(temperature),
    max_length=64,
    **options,
  )
  state = decoding.decode(
    decoder.round_fn, decoder.params, decoder.init(PROMPTS, 24)
  )
  results = decoder.results(PROMPTS, state)
  return [result.tokens for result in results], state, results


@functools.cache
def plain():
  return decode([(arm(specjax.DRAFTERS['none']()), None)])[0]


def features_of(state, tap):
  """`[B, S, F]` by one call over the whole text."""
  model, params = TRANSFORMER
  return jax.jit(model.extend)(params, None, state.tokens).features[tap]


def check_features(state, tap):
  """All but the last token of every row; behind the end there is junk."""
  want = features_of(state, tap)
  for row, length in enumerate(np.asarray(state.lengths) - 1):
    np.testing.assert_allclose(
      state.features[tap][row, :length], want[row, :length], atol=2e-4
    )


def test_no_buffer_of_features_is_copied_in_the_loop():
  head = arm(linear_head(toys.VOCAB, sampling=specjax.Sampling(0.0)), 'greedy')
  decoder = specjax.Decoder(
    *TRANSFORMER,
    [(head, head_params())],
    sampling=specjax.Sampling(0.0),
    max_length=64,
  )
  state = decoder.init(PROMPTS, 24)
  lowered = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  (buffer,) = state.features.values()
  shape = ','.join(map(str, buffer.shape))
  text = xla.compile_as_usual(lowered).as_text()
  assert f'f32[{shape}]' in text
  assert not re.findall(rf'= f32\[{shape}\]\S* copy\(', text)


@pytest.mark.parametrize('tap', [0, 1, -1])
def test_a_head_on_features_decodes_as_the_target_does(tap):
  drafter = linear_head(toys.VOCAB, sampling=specjax.Sampling(0.0), taps=(tap,))
  tokens, state, _ = decode([(arm(drafter, 'greedy'), head_params())])
  assert tokens == plain()
  assert list(state.features) == [tap % 3]
  check_features(state, tap % 3)


@pytest.mark.parametrize('per_row', [False, True])
def test_a_head_catches_up_from_the_buffer(per_row):
  model, params = toys.transformer(1)
  sampling = specjax.Sampling(0.0)
  drafters = [
    (linear_head(toys.VOCAB, sampling=sampling), head_params()),
    (
      specjax.DRAFTERS['autoregressive'](model, trees.chain(3), sampling),
      params,
    ),
    (specjax.DRAFTERS['none'](), None),
  ]
  tokens, state, results = decode(
    [(arm(drafter, 'greedy'), each) for drafter, each in drafters],
    bandit=specjax.BANDITS['round_robin'](3),
    per_row=per_row,
  )
  assert tokens == plain()
  check_features(state, 2)
  assert all(result.num_catch_up_tokens > 0 for result in results)
  sums = state.drafters[0]
  want = np.asarray(features_of(state, 2))
  for row, num in enumerate(np.asarray(sums.lengths)):
    assert 0 < num < state.lengths[row]
    np.testing.assert_allclose(
      sums.total[row], want[row, :num].sum(0), atol=2e-3
    )


def markov_with_features():
  """The chain of `lossless_test`, whose features are the tokens, one-hot."""
  model = lossless_test.MODEL

  def extend(params, cache, tokens, **options):
    features = (jax.nn.one_hot(tokens, VOCAB),)
    return model.extend(params, cache, tokens, **options)._replace(
      features=features
    )

  def prefill(params, cache, tokens, lengths):
    cache, _ = model.prefill(params, cache, tokens, lengths)
    return cache, (jax.nn.one_hot(tokens, VOCAB),)

  return model._replace(extend=extend, prefill=prefill, feature_sizes=(VOCAB,))


@pytest.mark.parametrize(
  ('verifier', 'broken'), [('maximal', False), (parts.resampling, True)]
)
def test_a_head_on_features_has_the_target_distribution(verifier, broken):
  target, _ = lossless_test.tables('stationary')
  params = head_params(size=VOCAB, vocab_size=VOCAB)
  decoder = specjax.Decoder(
    markov_with_features(),
    target,
    [(arm(linear_head(VOCAB), verifier), params)],
  )
  p = lossless_test.p_value(decoder, target, specjax.Sampling())
  assert p < 1e-6 if broken else p > 1e-4


@pytest.mark.parametrize('catch_up', ['lazy', 'always'])
def test_a_head_reads_features_in_every_round(catch_up):
  """Also with full information, where drafters read after each round."""

  def estimate(params, state, context, rows, target):
    del params
    nothing = jnp.zeros(target.probs.raw.shape[:2])
    return *read(state, context, rows), base.Probs(nothing, nothing)

  head = linear_head(toys.VOCAB, sampling=specjax.Sampling(0.0))
  tokens, state, results = decode(
    [(arm(head._replace(estimate=estimate), 'greedy'), head_params())],
    bandit=specjax.BANDITS['ucb1'](1),
    catch_up=catch_up,
  )
  assert tokens == plain()
  (sums,) = state.drafters
  # All but the tokens of the last rounds, of 3 at most.
  assert (sums.lengths >= state.lengths - 4).all()
  assert all(result.num_catch_up_tokens > 20 for result in results)


def test_nothing_is_stored_if_nobody_asks():
  _, state, _ = decode([(arm(specjax.DRAFTERS['none']()), None)])
  assert state.features == {}


@pytest.mark.parametrize(
  ('target', 'taps', 'message'),
  [
    (lossless_test.MODEL, (-1,), r'taps \(-1,\) ask for features .* has none'),
    (TRANSFORMER[0], (3,), r'taps must lie in \[-3, 2\], .* got 3'),
    (TRANSFORMER[0], (-4,), r'taps must lie in \[-3, 2\], .* got -4'),
  ],
)
def test_features_that_are_not_there_are_refused(target, taps, message):
  drafter = linear_head(target.vocab_size, taps=taps)
  with pytest.raises(ValueError, match=message):
    decoding.make_round(target, [arm(drafter)], specjax.BANDITS['fixed'](1))


# Trees of their own for every row and round.

BOUNDS = trees.Bounds(num_nodes=6, depth=3, width=2)


def growing(parents_of=None):
  """Draws trees by chance, of nodes that a Markov table draws.

  Two nodes a level, each below one of the two above, as many as chance has it.
  `parents_of` spoils the parents.
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
    tokens, parents, exists, probs = rows(keys, params, last)
    if parents_of is not None:
      parents = parents_of(parents)
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
  drafter = growing()._replace(taps=(-1,))
  decoder = specjax.Decoder(
    markov_with_features(), target, [(arm(drafter), draft)], max_length=32
  )
  state = decoder.init([[0], [1], [2, 1]], 20)
  for _ in range(4):
    state, _ = decoding.trace(decoder.round_fn, decoder.params, state, 1)
    assert jnp.isfinite(state.features[0]).all()


@pytest.mark.parametrize(
  ('verifier', 'broken'),
  [('maximal', False), ('otm', False), (parts.resampling, True)],
)
def test_trees_of_every_round_have_the_target_distribution(verifier, broken):
  target, draft = lossless_test.tables('stationary')
  decoder = specjax.Decoder(
    lossless_test.MODEL, target, [(arm(growing(), verifier), draft)]
  )
  p = lossless_test.p_value(decoder, target, specjax.Sampling())
  assert p < 1e-6 if broken else p > 1e-4


@pytest.mark.parametrize('per_row', [False, True])
def test_trees_of_every_round_among_arms_have_the_target_distribution(per_row):
  target, draft = lossless_test.tables('stationary')
  chain = specjax.DRAFTERS['autoregressive'](
    lossless_test.MODEL, trees.chain(3)
  )
  decoder = specjax.Decoder(
    lossless_test.MODEL,
    target,
    [(arm(growing(), 'kseq'), draft), (arm(chain), draft)],
    bandit=specjax.BANDITS['uniform'](2),
    per_row=per_row,
  )
  p = lossless_test.p_value(decoder, target, specjax.Sampling())
  assert p > 1e-4


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


@pytest.mark.parametrize('verifier', ['otm', 'kseq'])
def test_dynamic_trees_decode_as_static_ones(verifier):
  """Masks and positions of a transformer's call, and the walk."""
  model, params = TRANSFORMER
  static = specjax.DRAFTERS['autoregressive'](model, trees.prefix_tree((2, 2)))
  one, other = (
    decode([(arm(drafter, verifier), params)], temperature=1.0)
    for drafter in (static, as_dynamic(static))
  )
  assert one[0] == other[0]
  for ours, theirs in zip(one[2], other[2], strict=True):
    assert ours.accepted.tolist() == theirs.accepted.tolist()
    assert ours.accepted.sum() > 0


@pytest.mark.parametrize(
  'spoil',
  [
    lambda parents: parents.at[:, 0].set(1),
    lambda parents: parents.at[:, 2].set(-1),
    lambda parents: jnp.maximum(parents - 2, -1),
  ],
  ids=['below a later one', 'too many at the root', 'levels mixed'],
)
def test_trees_that_contradict_their_bounds_are_raised(spoil):
  target, draft = lossless_test.tables('stationary')
  decoder = specjax.Decoder(
    lossless_test.MODEL, target, [(arm(growing(spoil)), draft)]
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
