"""The hidden states in the state: who reads them, and what is refused."""

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
from tests import tiers
from tests import twins
from tests.decoding import drivers_test

VOCAB = lossless_test.VOCAB_SIZE


class Sums(NamedTuple):
  total: jax.Array  # [B, F] of features that were read
  lengths: jax.Array  # [B] how many


def read(state, context, rows):
  """Adds the missing features to the state; the last token has none yet."""
  (features,) = context.features
  positions = np.arange(features.shape[1])[None]
  end = jnp.where(rows, context.lengths - 1, 0)[:, None]
  new = (positions >= state.lengths[:, None]) & (positions < end)
  total = state.total + jnp.where(new[..., None], features, 0.0).sum(1)
  return Sums(total, state.lengths + new.sum(1)), new.sum(1)


@components.component
class LinearHead(base.Drafter):
  """Drafts each token of a chain from `params[depth]`, `[F, V]`."""

  vocab_size: int = components.static()
  topology: trees.Topology = components.static(default=trees.chain(2))
  sampling: specjax.Sampling = components.static(default=specjax.Sampling())
  taps: tuple[int, ...] = components.static(default=(-1,))

  can_catch_up = True
  lags_after_own_rounds = True

  def init(self, params, context, max_length):
    zeros = jnp.zeros((len(context.lengths), params.shape[1]))
    return Sums(zeros, jnp.zeros_like(context.lengths))

  def draft(self, keys, params, state, context):
    count = jnp.maximum(state.lengths, 1).astype(jnp.float32)
    mean = state.total / count[:, None]
    logits = jnp.einsum('bf,lfv->blv', mean, params)
    probs = specjax.sampling.probabilities(logits, self.sampling)
    num_uniforms = specjax.sampling.num_uniforms(self.vocab_size)
    shape = self.topology.num_nodes, num_uniforms
    uniforms = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
    tokens = specjax.sampling.tokens(uniforms, logits, probs, self.sampling)
    valid = jnp.ones(tokens.shape, bool)
    return base.DraftTree(tokens, self.topology, valid, probs), ()

  def catch_up(self, params, state, context, rows):
    return read(state, context, rows)


def head_params(seed=0, size=16, vocab_size=toys.VOCAB, length=2):
  return 2 * jax.random.normal(jax.random.key(seed), (length, size, vocab_size))


def greedy_head(tap=-1):
  """An arm whose head reads the output of one layer, at temperature 0."""
  head = LinearHead(toys.VOCAB, sampling=specjax.Sampling(0.0), taps=(tap,))
  return arms.arm(head, head_params(), 'greedy')


@jax.jit
def whole_text_features(tokens):
  """`[B, S, F]` of each layer, by one call over the whole text."""
  model, params = arms.TARGET
  return model.extend(params, None, tokens).features


def check_features(state):
  """All but the last token of every row; past the end there is junk."""
  expected_features = whole_text_features(state.tokens)
  for tap, buffer in state.features.items():
    for row, length in enumerate(np.asarray(state.lengths) - 1):
      np.testing.assert_allclose(
        buffer[row, :length], expected_features[tap][row, :length], atol=2e-4
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
  state = loop(decoder.round_fn, decoder.params, start)
  results = decoder.results(sizes.PROMPTS, state)
  assert arms.tokens(results) == arms.greedy_tokens()
  check_features(state)
  check_reads_every_round(state, results)


@pytest.mark.parametrize('per_row', tiers.cases([True, False], True))
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
  expected_features = whole_text_features(state.tokens)
  for tap, sums in zip(taps, state.drafters):
    features = np.asarray(expected_features[tap])
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
  head = LinearHead(VOCAB)
  decoder = arms.decoder(
    *[arms.arm(head, params, name) for name in ('maximal', arms.BROKEN)],
    target=(MarkovWithFeatures(VOCAB), target),
  )
  p, broken = lossless_test.p_values(decoder, target, 2)
  assert p > 1e-4 and broken < 1e-6


@pytest.mark.slow
def test_a_head_reads_features_with_full_feedback():
  """Drafters then read after each round."""

  def estimate(params, state, context, rows, target):
    del params
    nothing = jnp.zeros(target.probs.raw.shape[:2])
    return *read(state, context, rows), base.Probs(nothing, nothing)

  arm, params = greedy_head()
  arm = arm._replace(
    drafter=twins.twin(arm.drafter, can_estimate=True, estimate=estimate)
  )
  decoder = arms.decoder(
    (arm, params), temperature=0.0, bandit='ucb1', feedback='full'
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
  arm, _ = arms.arm(LinearHead(target.vocab_size, taps=taps))
  with pytest.raises(ValueError, match=message):
    decoding.make_round(target, [arm], specjax.bandits.Fixed(1))
