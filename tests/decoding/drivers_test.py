"""The drivers agree, and the compiled loop copies no KV cache."""

import functools
import re

import jax
import numpy as np
import pytest

import specjax
from specjax import decoding
from specjax import trees
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import xla

_XLA_TYPES = {'float32': 'f32', 'int32': 's32'}


def bandit_for_each_row():
  """A bandit for each row, which draws at random among arms of two shapes."""
  model, params = toys.markov(0, toys.VOCAB)
  draft = model, params[::-1]
  return arms.decoder(
    arms.model(trees.prefix_tree((2, 1)), draft, verifier='maximal'),
    arms.none(),
    target=(model, params),
    bandit='hedge',
    per_row=True,
    feedback='full',
  )


@pytest.mark.parametrize(
  'build',
  [
    bandit_for_each_row,
    pytest.param(lambda: arms.decoder(arms.chain()), marks=pytest.mark.slow),
  ],
  ids=['bandit', 'chain'],
)
def test_while_scan_and_generator_are_one(build):
  """Rounds after the last row is done change no counter."""
  decoder = build()
  args = decoder.round_fn, decoder.params
  start = lambda: decoder.init(sizes.PROMPTS, [20, 12, 20, 7])
  looped = decoding.decode(*args, start())
  scanned, infos = decoding.trace(*args, start(), 25)
  *_, (streamed, last_info) = decoding.stream(*args, start())
  for field in ('lengths', 'done', 'counters', 'bandit'):
    for state in (scanned, streamed):
      jax.tree.map(
        np.testing.assert_array_equal,
        getattr(looped, field),
        getattr(state, field),
      )
  for i, length in enumerate(looped.lengths):
    for state in (scanned, streamed):
      np.testing.assert_array_equal(
        looped.tokens[i, :length], state.tokens[i, :length]
      )
  new = np.asarray(looped.lengths) - [len(prompt) for prompt in sizes.PROMPTS]
  np.testing.assert_array_equal(infos.num_emitted.sum(axis=0), new)
  assert last_info.live.any()
  idle = ~np.asarray(infos.live)
  assert scanned.done.all() and idle[-1].all()
  assert (infos.num_emitted[idle] == 0).all()
  assert (infos.reward[idle] == 0).all()
  np.testing.assert_array_equal(
    scanned.counters.pulls.sum(axis=1), infos.live.sum(axis=0)
  )


def compiled_loop(decoder, prompts=tuple(sizes.PROMPTS), new=sizes.NEW):
  """Returns a state and the loop that users would get for it."""
  state = decoder.init(prompts, new)
  lowered = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  return state, xla.compile_as_usual(lowered)


def copies_of(compiled, arrays) -> list[str]:
  """Returns the lines of a program that copy an array of one of the shapes."""
  shapes = {
    f'{_XLA_TYPES[str(array.dtype)]}[{",".join(map(str, array.shape))}]'
    for array in arrays
  }
  text = compiled.as_text()
  assert all(shape in text for shape in shapes)
  return [
    line
    for line in text.splitlines()
    if (result := re.search(r'= (\S+?)(?:\{\S*)? copy\(', line))
    and result.group(1) in shapes
  ]


def cache_copies(compiled, state) -> list[str]:
  """Returns the lines of a program that copy a KV cache of the state."""
  leaves = jax.tree.leaves((state.target, state.drafters))
  return copies_of(compiled, [leaf for leaf in leaves if leaf.ndim == 4])


@pytest.mark.parametrize(
  ('build', 'batch_size'),
  [
    (arms.none, sizes.ROWS),
    pytest.param(arms.chains, sizes.ROWS, marks=pytest.mark.slow),
    pytest.param(arms.chain, 1, marks=pytest.mark.slow),
  ],
)
def test_no_cache_is_copied_in_the_loop(build, batch_size):
  """`arms_test` has a loop of several models and a prompt lookup."""
  decoder = arms.decoder(build())
  state, compiled = compiled_loop(decoder, [[1, 2]] * batch_size)
  assert not cache_copies(compiled, state)


def test_no_cache_is_copied_where_a_window_of_it_is_read():
  decoder = arms.decoder(arms.none(), max_length=600)
  state, compiled = compiled_loop(decoder)
  assert 'conditional(' in compiled.as_text()
  assert not cache_copies(compiled, state)


def test_an_eager_write_is_seen_as_copies():
  """The check above has teeth: committing before verification copies."""
  decoder = arms.decoder(arms.none())
  state, (target, _) = decoder.init(sizes.PROMPTS, 20), arms.TARGET

  def naive(params, state):
    round_state, _ = decoder.round_fn(params, state)
    pending = target.extend(
      params.target, state.target, state.tokens[:, :2]
    ).pending_kv
    path = jax.numpy.zeros((sizes.ROWS, 1), int)
    num = jax.numpy.ones(sizes.ROWS, int)
    cache = target.commit(state.target, pending, path, num)
    return round_state.replace(target=cache)

  @functools.partial(jax.jit, donate_argnums=1)
  def loop(params, state):
    return jax.lax.while_loop(
      lambda state: ~state.done.all(), lambda state: naive(params, state), state
    )

  compiled = xla.compile_as_usual(loop.lower(decoder.params, state))
  assert cache_copies(compiled, state)


def test_the_state_is_donated():
  decoder = arms.decoder(arms.chain())
  state = decoder.init(sizes.PROMPTS, 4)
  specjax.decode(decoder.round_fn, decoder.params, state)
  assert state.target.layers[0][0].is_deleted()
