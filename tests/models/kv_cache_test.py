"""What a transformer says of a token depends on its past alone.

However the past was read (chunks, trees, drafts that were rolled back), the
logits are those of one call on the whole sequence. `prefill`, and one call
without a cache, are compared with another implementation in
`transformer_test`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import allocation
from specjax import trees
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import kv_cache
from tests import tiers

# A local and a global layer, with a window shorter than every text.
_CONFIG = config_lib.TransformerConfig(
  vocab_size=20,
  num_layers=2,
  d_model=16,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  d_ff=24,
  sliding_window=3,
  local_layers=(True, False),
)
_MODEL = adapters.Transformer(_CONFIG)
# Sharper than initial weights, so that every key matters.
_PARAMS = jax.tree.map(
  lambda x: 20 * x if x.ndim > 1 else x,
  flax_modules.init_params(jax.random.key(0), _CONFIG),
)
_LENGTHS = np.array([7, 3, 5])
_SIZE = 24
_RNG = np.random.default_rng(0)
_TOKENS = _RNG.integers(20, size=(3, 14))
_JUNK = _RNG.integers(20, size=(3, 6))
# Children of the root, then uneven branches down to depth 3.
_TREE = trees.Topology((-1, -1, 0, 0, 1, 2, 4))
_NODES = _RNG.integers(20, size=(3, _TREE.num_nodes))

_extend = jax.jit(_MODEL.extend)
_commit = jax.jit(_MODEL.commit)
_prefill = jax.jit(_MODEL.prefill)


def _entries_after(lengths, num, rows=_TOKENS):
  """Returns the `num` entries of each row after its first `lengths`."""
  return np.stack([row[n : n + num] for row, n in zip(rows, lengths)])


def _prompts(lengths=_LENGTHS):
  """A cache that holds the first tokens of each row."""
  cache = _MODEL.init_cache(_PARAMS, 3, _SIZE)
  return _prefill(_PARAMS, cache, _TOKENS, lengths)[0]


def _full_logits(tokens):
  """Returns the reference: logits from one call on full rows."""
  return np.asarray(_extend(_PARAMS, None, tokens).logits)


def _commit_first(cache, pending, num):
  width = pending.positions.shape[1]
  path = np.broadcast_to(np.arange(width), (3, width))
  return _commit(cache, pending, path, jnp.asarray(num))


def _assert_close(logits, expected):
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_the_reference_depends_on_each_token_of_the_past():
  """Otherwise the other tests would compare constants."""
  changed = _TOKENS.copy()
  changed[:, 0] = (changed[:, 0] + 1) % 20
  difference = np.abs(_full_logits(changed) - _full_logits(_TOKENS)).max(
    axis=-1
  )
  assert difference.min() > 0.01


@pytest.mark.parametrize(
  'chunks, commit',
  [
    ((4, 1, 4, 1, 4), True),
    ((1, 1, 4, 4, 4), True),
    ((4, 1, 9), False),
  ],
  ids=str,
)
def test_any_chunking_equals_one_call(chunks, commit):
  """Chunks are committed to the cache, or stay pending."""
  cache, pending = _MODEL.init_cache(_PARAMS, 3, _SIZE), None
  logits, start = [], 0
  for num in chunks:
    tokens = _TOKENS[:, start : start + num]
    output = _extend(_PARAMS, cache, tokens, pending_kv=pending)
    logits.append(output.logits)
    start += num
    if commit:
      cache = _commit_first(cache, output.pending_kv, [num] * 3)
    else:
      pending = output.pending_kv
  _assert_close(np.concatenate(logits, axis=1), _full_logits(_TOKENS))


def test_rows_of_different_lengths_equal_one_call():
  """Covers rows that advance by different numbers of tokens, one by none."""
  cache, full_logits, lengths = _prompts(), _full_logits(_TOKENS), _LENGTHS
  for moved in ([2, 0, 3], [1, 4, 1]):
    output = _extend(_PARAMS, cache, _entries_after(lengths, 4))
    _assert_close(output.logits, _entries_after(lengths, 4, full_logits))
    cache = _commit_first(cache, output.pending_kv, moved)
    lengths = lengths + moved
    np.testing.assert_array_equal(cache.lengths, lengths)


def test_rolled_back_drafts_never_happened():
  """Compares bits: the attention weights of junk are exactly zero."""
  tokens = _entries_after(_LENGTHS, 4)
  fresh_logits = _extend(_PARAMS, _prompts(), tokens).logits
  drafts = _extend(_PARAMS, _prompts(), _JUNK).pending_kv
  cache = _commit_first(_prompts(), drafts, [6, 1, 3])
  cache = _MODEL.rollback(cache, _LENGTHS)
  np.testing.assert_array_equal(
    _extend(_PARAMS, cache, tokens).logits, fresh_logits
  )


def test_rollback_never_lengthens_a_row():
  cache = _MODEL.rollback(_prompts(), jnp.array([4, 9, 5]))
  np.testing.assert_array_equal(cache.lengths, [4, 3, 5])


def test_nothing_past_the_length_matters():
  """Huge entries past the length do not change a bit of the logits."""
  cache = _prompts()
  is_past_length = jnp.arange(_SIZE)[None] >= cache.lengths[:, None]
  spoilt = cache.replace(
    layers=jax.tree.map(
      lambda x: jnp.where(is_past_length[:, None, :, None], 1e6, x),
      cache.layers,
    )
  )
  true = _entries_after(_LENGTHS, 4)
  np.testing.assert_array_equal(
    _extend(_PARAMS, spoilt, true).logits,
    _extend(_PARAMS, cache, true).logits,
  )


def _read_tree():
  """Scores the root and the nodes after the prompts in one call."""
  return _extend(
    _PARAMS,
    _prompts(),
    np.concatenate([_entries_after(_LENGTHS, 1), _NODES], axis=1),
    positions=_LENGTHS[:, None] + _TREE.offsets,
    mask=_TREE.mask,
  )


def _path_to(node):
  """Block entries from the root to a node."""
  return np.flatnonzero(_TREE.mask[node + 1])


@pytest.mark.parametrize('leaf', _TREE.leaves)
def test_each_path_of_a_tree_equals_a_chain(leaf):
  path = _path_to(leaf)
  root = _entries_after(_LENGTHS, 1)
  chain = np.concatenate([root, _NODES[:, path[1:] - 1]], axis=1)
  expected = _extend(_PARAMS, _prompts(), chain).logits
  _assert_close(_read_tree().logits[:, path], expected)


def test_a_tree_read_level_by_level_equals_one_call():
  """Extends like a drafter: each level follows the pending tokens."""
  cache, pending, logits = _prompts(), None, []
  root = _entries_after(_LENGTHS, 1)
  entries = [np.array([0]), *(level + 1 for level in _TREE.levels)]
  for level in entries:
    output = _extend(
      _PARAMS,
      cache,
      np.concatenate([root, _NODES], axis=1)[:, level],
      pending_kv=pending,
      positions=_LENGTHS[:, None] + _TREE.offsets[level],
      mask=_TREE.mask[level, : level[-1] + 1],
    )
    pending = output.pending_kv
    logits.append(output.logits)
  _assert_close(np.concatenate(logits, axis=1), _read_tree().logits)


def test_a_committed_path_equals_a_chain_that_was_read():
  """Rows commit paths to different leaves; one row commits only its root."""
  paths = [_path_to(5), _path_to(6)[:1], _path_to(3)]
  num = np.array([len(path) for path in paths])
  padded = np.stack([np.resize(path, 4) for path in paths])
  cache = _commit(_prompts(), _read_tree().pending_kv, padded, jnp.asarray(num))
  np.testing.assert_array_equal(cache.lengths, _LENGTHS + num)
  texts = _TOKENS.copy()
  for text, path, length, nodes in zip(texts, paths, _LENGTHS, _NODES):
    text[length + 1 : length + len(path)] = nodes[path[1:] - 1]
  assert (texts != _TOKENS).any()
  lengths = _LENGTHS + num
  logits = _extend(_PARAMS, cache, _entries_after(lengths, 2, texts)).logits
  _assert_close(logits, _entries_after(lengths, 2, _full_logits(texts)))


def test_tokens_at_negative_positions_are_not_attended_to():
  """Neither the same call nor later ones attend to these tokens."""
  cache, full_logits = _prompts(), _full_logits(_TOKENS)
  true = _entries_after(_LENGTHS, 4)
  logits = []
  for junk in (_JUNK[:, :2], _JUNK[:, 2:4]):
    first_output = _extend(
      _PARAMS,
      cache,
      np.insert(true[:, :2], [0, 1], junk, axis=1),
      positions=np.insert(_LENGTHS[:, None] + np.arange(2), [0, 1], -1, axis=1),
    )
    second_output = _extend(
      _PARAMS,
      cache,
      true[:, 2:],
      pending_kv=first_output.pending_kv,
      positions=_LENGTHS[:, None] + np.arange(2, 4),
    )
    assert np.isfinite(first_output.logits).all()
    logits.append(
      np.concatenate(
        [first_output.logits[:, 1::2], second_output.logits], axis=1
      )
    )
  np.testing.assert_array_equal(*logits)
  _assert_close(logits[0], _entries_after(_LENGTHS, 4, full_logits))


def test_bfloat16_stays_bfloat16():
  """Checks the KV cache; logits are float32, for the softmax."""
  model = adapters.Transformer(_CONFIG, dtype=jnp.bfloat16)

  def read(params):
    cache = model.init_cache(params, 3, _SIZE)
    cache, _ = model.prefill(params, cache, _TOKENS, _LENGTHS)
    output = model.extend(params, cache, _entries_after(_LENGTHS, 2))
    return _commit_first(cache, output.pending_kv, [2, 1, 0]), output

  cache, output = jax.eval_shape(read, _PARAMS)
  assert {x.dtype for x in jax.tree.leaves(cache.layers)} == {
    jnp.dtype('bfloat16')
  }
  assert cache.lengths.dtype == jnp.int32
  assert output.logits.dtype == jnp.float32


def test_pending_entries_append_along_their_tokens():
  pending = _read_tree().pending_kv
  first_entries = jax.tree.map(
    lambda x: x[:, :3] if x.ndim == 2 else x[:, :, :3], pending
  )
  window = jax.tree.map(
    lambda x: x[:, 3:] if x.ndim == 2 else x[:, :, 3:], pending
  )
  joined = kv_cache.append(kv_cache.append(None, first_entries), window)
  jax.tree.map(np.testing.assert_array_equal, joined, pending)


@pytest.mark.parametrize(
  'size, of_layers, of_calls',
  [
    (24, [24], [24]),
    (511, [511], [511]),
    (512, [256, 512], [512]),
    (1100, [256, 512, 1100], [256, 1100]),
    (2080, [256, 512, 1024, 2080], [256, 512, 2080]),
    (8224, [256, 512, 1024, 2048, 4096, 8224], [512, 2048, 8224]),
  ],
)
def test_windows_are_parts_of_the_buffer(size, of_layers, of_calls):
  assert kv_cache.windows_of_layers(size) == of_layers
  assert kv_cache.windows_of_calls(size) == of_calls


@pytest.mark.parametrize('size', tiers.cases([24, 300, 1030], 24, 1030))
@pytest.mark.parametrize('lengths', [(7, 3, 5), (257, 12, 254), (530, 1, 513)])
def test_a_window_holds_all_that_is_seen(size, lengths):
  """Compares buffers of several sizes with one call without a KV cache."""
  if max(lengths) > size:
    return
  texts = _RNG.integers(20, size=(3, max(lengths) + 4))
  lengths = np.array(lengths)
  cache = _MODEL.init_cache(_PARAMS, 3, size)
  cache = _prefill(_PARAMS, cache, texts, lengths)[0]
  logits = _extend(_PARAMS, cache, _entries_after(lengths, 4, texts)).logits
  _assert_close(logits, _entries_after(lengths, 4, _full_logits(texts)))


def test_a_call_that_chooses_reads_what_its_layers_would():
  """Accelerators choose once a call, which is compiled for them alone."""
  size = 1100
  assert len(kv_cache.windows_of_calls(size)) > 1
  shape = 1, _CONFIG.num_kv_heads, size, _CONFIG.head_dim
  cache = jax.tree.map(
    lambda x: jnp.asarray(_RNG.normal(size=x.shape), x.dtype),
    kv_cache.init(_CONFIG.num_layers, shape).layers,
  )
  tokens = jnp.asarray(_RNG.integers(20, size=(1, 4)))
  positions, mask = flax_modules.positions_and_mask(
    None, tokens, None, None, None
  )
  model = flax_modules.merge(_CONFIG, _PARAMS)
  read = lambda cache: model(tokens, positions, mask, cache)[0]
  by_layer, by_call = (
    jax.jit(lambda cache, choose=choose: choose(cache, read))
    for choose in (kv_cache.KVCache._by_layer, kv_cache.KVCache._by_call)
  )
  for length in (5, 257, 600, 1096):
    row_cache = kv_cache.KVCache(cache, jnp.array([length], jnp.int32))
    _assert_close(by_call(row_cache), by_layer(row_cache))
  short = kv_cache.KVCache(cache, jnp.array([5], jnp.int32))
  spoilt = short.replace(  # NaN past the window would show.
    layers=jax.tree.map(lambda x: x.at[:, :, 256:].set(np.nan), cache)
  )
  np.testing.assert_array_equal(by_call(spoilt), by_call(short))


@pytest.mark.parametrize('size, chooses', [(511, False), (512, True)])
def test_a_window_of_more_than_half_a_cache_is_no_choice_on_cpus(size, chooses):
  cache = _MODEL.init_cache(_PARAMS, 1, size)
  tokens = jnp.zeros((1, 2), jnp.int32)
  program = jax.jit(_MODEL.extend).lower(_PARAMS, cache, tokens).compile()
  assert ('conditional(' in program.as_text()) == chooses


@pytest.mark.parametrize('size, slots', [(1, 32), (32, 32), (33, 64)])
def test_caches_fill_their_tiles(size, slots):
  assert allocation.round_up_slots(size) == slots


def test_what_lies_behind_the_window_is_not_read():
  """Fills the slots past the window with NaN."""
  cache = _MODEL.init_cache(_PARAMS, 3, 600)
  cache = _prefill(_PARAMS, cache, _TOKENS, _LENGTHS)[0]
  spoilt = cache.replace(
    layers=jax.tree.map(lambda x: x.at[:, :, 256:].set(np.nan), cache.layers)
  )
  tokens = _entries_after(_LENGTHS, 4)
  logits = [_extend(_PARAMS, state, tokens).logits for state in (cache, spoilt)]
  np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize('num_rows', [1, 3])
def test_tpus_write_what_other_devices_write(num_rows):
  """Each row writes a different path at a different position."""
  keys = jax.random.split(jax.random.key(0), 2)
  buffers = {'k': jax.random.normal(keys[0], (num_rows, 2, 9, 4))}
  entries = {'k': jax.random.normal(keys[1], (num_rows, 2, 5, 4))}
  path = jnp.array([[0, 2, 4], [3, 3, 1], [4, 0, 2]])[:num_rows]
  starts = jnp.array([6, 0, 4])[:num_rows]
  by_default, by_rows = (
    jax.jit(write)(buffers, entries, path, starts)['k']
    for write in (kv_cache._write_all, kv_cache._write_by_rows)
  )
  np.testing.assert_array_equal(by_default, by_rows)
  assert not np.array_equal(by_default, buffers['k'])
