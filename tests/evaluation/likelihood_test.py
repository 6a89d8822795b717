"""Log-likelihoods of responses: products of a table's entries, one by one."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import components
from specjax import models
from specjax import sampling as sampling_lib
from specjax.evaluation import likelihood as likelihood_lib
from specjax.testing import distributions
from specjax.testing import toys

_V, _HORIZON = 5, 40
_RNG = np.random.default_rng(0)
_TABLE = distributions.random_table(_RNG, _HORIZON, _V, _V)
# Prompts of a token and of many, an empty response, widths on both sides of a
# power of two, and more of one width than a batch holds.
_SHAPES = [(1, 3), (9, 8), (10, 9), (20, 0), (2, 1), (5, 17), (4, 5), (3, 8)]
_SEQUENCES = [
  (_RNG.integers(_V, size=start + num).tolist(), start)
  for start, num in _SHAPES
]


@components.component
class _PromptSum(base.LanguageModel):
  """A model that depends on the prompt, by its sum and its length.

  Only `prefill` sees the prompt, and `extend` finds no token in padding.
  """

  vocab_size = _V

  def init_cache(self, params, batch, size):
    return jnp.zeros(batch, jnp.int32)

  def prefill(self, params, cache, tokens, lengths):
    is_prompt = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
    return jnp.where(is_prompt, tokens + 1, 0).sum(axis=1), ()

  def extend(
    self, params, cache, tokens, *, pending_kv=None, positions=None, mask=None
  ):
    logits = jnp.log(params[cache[:, None] % _HORIZON, tokens])
    return base.ModelOutput(
      jnp.where(positions[..., None] < 0, jnp.nan, logits), (), None
    )


def _markov_row(tokens, start, t):
  return _TABLE[t - 1, tokens[t - 1]]


def _prompt_sum_row(tokens, start, t):
  read = tokens[: start - 1]
  return _TABLE[(sum(read) + len(read)) % _HORIZON, tokens[t - 1]]


# What a token is drawn from, by hand.
_SAMPLINGS = {
  'raw': (None, lambda row: row),
  'sampled': (
    sampling_lib.Sampling(temperature=0.5),
    lambda row: row**2 / (row**2).sum(),
  ),
  'truncated': (
    sampling_lib.Sampling(top_k=4),
    lambda row: np.where(row > row.min(), row, 0) / (row.sum() - row.min()),
  ),
  'greedy': (
    sampling_lib.Sampling(temperature=0.0),
    lambda row: (row == row.max()).astype(float),
  ),
}


def _product(row_of, probs_of, tokens, start):
  nats = 0.0
  for t in range(start, len(tokens)):
    prob = probs_of(row_of(tokens, start, t).astype(np.float64))[tokens[t]]
    nats += math.log(prob) if prob else -math.inf
  return nats


@pytest.mark.parametrize('kind', _SAMPLINGS)
@pytest.mark.parametrize(
  ('model', 'row_of'),
  [
    (models.Markov(_V), _markov_row),
    (_PromptSum(), _prompt_sum_row),
  ],
  ids=['markov', 'prompt_sum'],
)
def test_likelihoods_are_products_of_table_entries(model, row_of, kind):
  """The tables of each position, and of each prompt, are different ones."""
  sampling, probs_of = _SAMPLINGS[kind]
  got = likelihood_lib.likelihood(
    model, jnp.asarray(_TABLE), _SEQUENCES, batch_size=2, sampling=sampling
  )
  expected = [_product(row_of, probs_of, *sequence) for sequence in _SEQUENCES]
  np.testing.assert_allclose(got.nats, expected, rtol=1e-5)
  np.testing.assert_array_equal(got.num_tokens, [num for _, num in _SHAPES])
  for (tokens, start), regrets in zip(_SEQUENCES, got.regrets):
    rows = [row_of(tokens, start, t) for t in range(start, len(tokens))]
    gaps = [np.log(row.max() / row[t]) for row, t in zip(rows, tokens[start:])]
    np.testing.assert_allclose(regrets, gaps, rtol=1e-4, atol=1e-6)
  possible = np.isfinite(expected)
  assert possible.any() and possible.all() == (kind in ('raw', 'sampled'))


def test_what_greedy_decoding_gives_is_certain():
  tokens = [2]
  for t in range(12):
    tokens.append(int(_TABLE[t, tokens[-1]].argmax()))
  got = likelihood_lib.likelihood(
    models.Markov(_V),
    jnp.asarray(_TABLE),
    [(tokens, 1), (tokens[:-1] + [(tokens[-1] + 1) % _V], 1)],
    sampling=sampling_lib.Sampling(temperature=0.0),
  )
  np.testing.assert_array_equal(got.nats, [0.0, -np.inf])
  certain, other = got.regrets
  np.testing.assert_array_equal(certain, np.zeros(12))
  row = _TABLE[11, tokens[-2]]
  gap = np.log(row.max() / row[(tokens[-1] + 1) % _V])
  np.testing.assert_allclose(other, [0.0] * 11 + [gap], rtol=1e-5)


@pytest.mark.parametrize('batch_size', [1, 3])
def test_neighbours_and_padding_do_not_count(batch_size):
  """With attention, against a forward pass without a cache."""
  model, params = toys.transformer(num_layers=1)
  sequences = [_SEQUENCES[i] for i in (0, 1, 4, 5, 6)]
  got = likelihood_lib.likelihood(
    model, params, sequences, batch_size=batch_size
  ).nats
  padded = np.zeros((len(sequences), 24), np.int32)
  for row, (tokens, _) in zip(padded, sequences):
    row[: len(tokens)] = tokens
  logits = jax.jit(lambda tokens: model.extend(params, None, tokens).logits)
  scores = np.asarray(jax.nn.log_softmax(logits(padded)), np.float64)
  expected = [
    sum(scores[row, t - 1, tokens[t]] for t in range(start, len(tokens)))
    for row, (tokens, start) in enumerate(sequences)
  ]
  np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_there_is_one_program_for_each_pair_of_widths():
  """Powers of two from 8 on; the prompt's last token is scored from."""
  traces = []

  @components.component
  class Traced(models.ModelWrapper):
    def extend(self, params, cache, tokens, **options):
      traces.append(tokens.shape)
      return self.model.extend(params, cache, tokens, **options)

  model = Traced(_PromptSum())
  for sequences in (_SEQUENCES, _SEQUENCES[::-1], _SEQUENCES[:3]):
    likelihood_lib.likelihood(
      model, jnp.asarray(_TABLE), sequences, batch_size=2
    )
  assert sorted(traces) == [(2, 8), (2, 8), (2, 16), (2, 32)]


@pytest.mark.parametrize(
  ('sequences', 'options', 'message'),
  [
    ([], {}, 'sequences must not be empty'),
    ([([1, 2], 1), ([1, 2], 0)], {}, r'start of sequences\[1\].*\[1, 2\].*0'),
    ([([1, 2], 3)], {}, r'start of sequences\[0\] must lie in \[1, 2\], got 3'),
    ([([1, 5], 1)], {}, r'tokens of sequences\[0\] must lie in \[0, 4\]'),
    ([([1, -1], 1)], {}, r'tokens of sequences\[0\] must lie in \[0, 4\]'),
    ([([1, 2], 1)], {'batch_size': 0}, 'batch_size must be >= 1, got 0'),
  ],
)
def test_bad_input_is_refused(sequences, options, message):
  with pytest.raises(ValueError, match=message):
    likelihood_lib.likelihood(
      models.Markov(_V), jnp.asarray(_TABLE), sequences, **options
    )
