"""The drivers agree, and the compiled loop copies no cache."""

import functools
import re

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
from tests import xla

PROMPTS = [[1], [2, 3, 4], list(range(12))]


def _decoder(temperature=1.0, draft_length=3, **options):
  draft = toys.transformer(1, num_layers=1) if draft_length else (None, None)
  return decoding.speculative(
    *toys.transformer(),
    *draft,
    draft_length=draft_length or 1,
    sampling=sampling_lib.Sampling(temperature),
    **{'max_length': 48, **options},
  )


def _of_rows():
  """A bandit for each row, which draws at random among arms of two shapes."""
  model, params = toys.markov(vocab_size=toys.VOCAB)
  arms = [
    (
      base.Arm(
        drafters.DRAFTERS['autoregressive'](model, topology),
        verifiers.resolve('maximal'),
      ),
      params[::-1],
    )
    for topology in (trees.chain(3), trees.prefix_tree((2, 1)))
  ]
  return decoding.Decoder(
    model,
    params,
    arms,
    bandit=bandits.BANDITS['hedge'](2),
    max_length=48,
    per_row=True,
    catch_up='always',
  )


@pytest.mark.parametrize(
  'build',
  [
    functools.partial(_decoder, draft_length=0),
    pytest.param(_decoder, marks=pytest.mark.slow),
    _of_rows,
  ],
  ids=['plain', 'speculative', 'arms of rows'],
)
def test_while_scan_and_generator_are_one(build):
  decoder = build()
  args = decoder.round_fn, decoder.params
  looped = decoding.decode(*args, decoder.init(PROMPTS, 20))
  scanned, infos = decoding.trace(*args, decoder.init(PROMPTS, 20), 25)
  *_, (streamed, last) = decoding.stream(*args, decoder.init(PROMPTS, 20))
  for field in ('lengths', 'done', 'counters', 'bandit'):
    for other in (scanned, streamed):
      jax.tree.map(
        np.testing.assert_array_equal,
        getattr(looped, field),
        getattr(other, field),
      )
  for i, length in enumerate(looped.lengths):
    for other in (scanned, streamed):
      np.testing.assert_array_equal(
        looped.tokens[i, :length], other.tokens[i, :length]
      )
  new = np.asarray(looped.lengths) - [len(prompt) for prompt in PROMPTS]
  np.testing.assert_array_equal(infos.num_emitted.sum(axis=0), new)
  assert last.live.any()


def test_trace_counts_nothing_once_all_rows_are_done():
  decoder = _decoder()
  state, infos = decoding.trace(
    decoder.round_fn, decoder.params, decoder.init(PROMPTS, 4), 10
  )
  assert state.done.all() and not infos.live[-1].any()
  assert (infos.num_emitted[~infos.live] == 0).all()
  assert (infos.reward[~infos.live] == 0).all()
  np.testing.assert_array_equal(
    state.counters.pulls.sum(axis=1), infos.live.sum(axis=0)
  )


def cache_copies(compiled, state) -> list[str]:
  shapes = {
    'f32[' + ','.join(map(str, leaf.shape)) + ']'
    for leaf in jax.tree.leaves((state.target, state.drafters))
    if leaf.ndim == 4
  }
  return [
    line
    for line in compiled.as_text().splitlines()
    if (made := re.search(r'= (\S+?)(?:\{\S*)? copy\(', line))
    and made.group(1) in shapes
  ]


@pytest.mark.parametrize(
  ('temperature', 'draft_length', 'options'),
  [
    (0.0, 0, {}),
    pytest.param(1.0, 0, {}, marks=pytest.mark.slow),
    (0.0, 3, {}),
    pytest.param(1.0, 3, {}, marks=pytest.mark.slow),
    (1.0, 3, {'num_drafts': 4, 'verifier': 'otm'}),
  ],
)
@pytest.mark.parametrize(
  'batch_size', [pytest.param(1, marks=pytest.mark.slow), 8]
)
def test_no_cache_is_copied_in_the_loop(
  temperature, draft_length, options, batch_size
):
  decoder = _decoder(temperature, draft_length, **options)
  state = decoder.init([[1, 2]] * batch_size, 20)
  compiled = xla.compile_as_usual(
    decoding.decode.lower(decoder.round_fn, decoder.params, state)
  )
  assert not cache_copies(compiled, state)


def test_no_cache_is_copied_where_a_window_of_it_is_read():
  decoder = _decoder(max_length=600)
  state = decoder.init([[1, 2]] * 8, 20)
  compiled = xla.compile_as_usual(
    decoding.decode.lower(decoder.round_fn, decoder.params, state)
  )
  assert 'conditional(' in compiled.as_text()
  assert not cache_copies(compiled, state)


def test_an_eager_write_is_seen_as_copies():
  """The check above has teeth: committing before verification copies."""
  decoder = _decoder()
  state = decoder.init([[1, 2]] * 8, 20)
  target, _ = toys.transformer()

  def naive(params, state):
    round_state, _ = decoder.round_fn(params, state)
    pending = target.extend(
      params.target, state.target, state.tokens[:, :2]
    ).pending
    path = jax.numpy.zeros((8, 1), int)
    cache = target.commit(state.target, pending, path, jax.numpy.ones(8, int))
    return round_state.replace(target=cache)

  loop = jax.jit(
    lambda params, state: jax.lax.while_loop(
      lambda state: ~state.done.all(), lambda state: naive(params, state), state
    ),
    donate_argnums=1,
  )
  compiled = xla.compile_as_usual(loop.lower(decoder.params, state))
  assert cache_copies(compiled, state)


def test_the_state_is_donated():
  decoder = _decoder()
  state = decoder.init(PROMPTS, 4)
  decoding.decode(decoder.round_fn, decoder.params, state)
  assert state.target.layers[0][0].is_deleted()
