"""The encoder-decoder against HuggingFace's T5, and against itself.

Teacher-forced logits are compared with the independent implementation; then
they are the reference for whatever way a decoder may read a row.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import components
from specjax import decoding
from specjax import drafters
from specjax import models
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.contrib import encoder_decoder_config
from specjax.contrib import example_pairs
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import flax_modules
from specjax.models.huggingface import architectures
from specjax.models.huggingface import weights
from tests import arms as arms_lib
from tests import extras
from tests import xla
from tests.decoding import drivers_test
from tests.models.huggingface import oracle

torch = extras.load('torch')
transformers = extras.load('transformers')
pytestmark = pytest.mark.oracles

_FIELDS = {
  'vocab_size': 30,
  'encoder_layers': 2,
  'decoder_layers': 2,
  'd_model': 16,
  'num_heads': 2,
  'head_dim': 6,
  'd_ff': 24,
  'start_id': 0,
  # Small, so that most distances share a bucket, and some the last one.
  'num_buckets': 8,
  'max_distance': 9,
}
_HF_FIELDS = {
  'vocab_size': 30,
  'num_layers': 2,
  'num_decoder_layers': 2,
  'd_model': 16,
  'num_heads': 2,
  'd_kv': 6,
  'd_ff': 24,
  'decoder_start_token_id': 0,
  'relative_attention_num_buckets': 8,
  'relative_attention_max_distance': 9,
  'feed_forward_proj': 'gated-gelu',
}
_RNG = np.random.default_rng(0)
_SOURCES = [_RNG.integers(2, 30, length).tolist() for length in (5, 1, 14)]
_PROMPTS = [[*source, 0] for source in _SOURCES]
_STARTS = np.array([len(source) for source in _SOURCES])
# What the decoder reads: start tokens, then responses.
_DECODED = np.insert(_RNG.integers(1, 30, (3, 13)), 0, 0, axis=1)
_TREE = trees.Topology((-1, -1, 0, 0, 1, 2, 4))


def _rows(decoded=_DECODED, width=40):
  """Sources and what stands behind them, in rows with junk at their ends."""
  rows = np.random.default_rng(1).integers(1, 30, (len(decoded), width))
  for row, source, decoded_row in zip(rows, _SOURCES, decoded):
    row[: len(source)] = source
    row[len(source) : len(source) + len(decoded_row)] = decoded_row
  return rows


def _pairs(sources, decoded):
  """Unpacked pairs: one example a row."""
  width = max(map(len, sources))
  pad = lambda row, value: row + [value] * (width - len(row))
  return example_pairs.PairBatch(
    source_tokens=np.array([pad(list(row), 7) for row in sources]),
    source_segments=np.array([pad([0] * len(row), -1) for row in sources]),
    tokens=np.asarray(decoded),
    segments=np.zeros_like(decoded),
    weights=np.ones(np.shape(decoded), np.float32),
  )


@functools.cache
def _hf_model(tied):
  """A HuggingFace model of which every array is random, norms included."""
  config = transformers.AutoConfig.for_model(
    't5', **_HF_FIELDS, tie_word_embeddings=tied
  )
  model = transformers.T5ForConditionalGeneration(config).eval()
  if not tied:
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for weight in model.parameters():
      weight.normal_(0.0, 0.5, generator=generator)
    if tied:
      model.shared.weight *= 4
  model.generation_config.eos_token_id = None
  return model


def _hf_inputs():
  pairs = _pairs(_SOURCES, _DECODED)
  return {
    'input_ids': torch.from_numpy(pairs.source_tokens),
    'attention_mask': torch.from_numpy(1 + pairs.source_segments),
  }


def _state_dict(tied):
  return {name: x.numpy() for name, x in _hf_model(tied).state_dict().items()}


@functools.cache
def _imported(tied=False):
  config = architectures.read_config(_hf_model(tied).config.to_dict())
  tensors = oracle.tensors(_state_dict(tied))
  config, tensors = weights.resolve(config, 't5', tensors)
  return config, weights.read(config, 't5', tensors)


_jit = functools.partial(jax.jit, static_argnums=0)


@components.component
class _Jitted(models.ModelWrapper):
  """A model whose methods are compiled once for all tests."""

  @_jit
  def prefill(self, *args):
    return self.model.prefill(*args)

  @_jit
  def extend(self, *args, **options):
    return self.model.extend(*args, **options)

  @_jit
  def commit(self, *args):
    return self.model.commit(*args)


@functools.cache
def _model():
  """An untied model."""
  config, params = _imported()
  return _Jitted(adapters.language_model(config)), params


@functools.cache
def _draft(seed=1):
  """The target without its upper layers, with some noise on its weights."""
  config, params = _imported()
  config = dataclasses.replace(config, encoder_layers=1, decoder_layers=1)
  params = {**params}
  for name, count in (('encoder', 1), ('decoder', 1)):
    layers = {str(i): params[name]['layers'][str(i)] for i in range(count)}
    params[name] = {**params[name], 'layers': layers}
  keys = jax.random.split(jax.random.key(seed), len(jax.tree.leaves(params)))
  keys = jax.tree.unflatten(jax.tree.structure(params), list(keys))
  noisy = lambda x, key: x + 0.02 * jax.random.normal(key, x.shape)
  return adapters.language_model(config), jax.tree.map(noisy, params, keys)


@functools.cache
def _forced(tied):
  return jax.jit(adapters.teacher_forced(_imported(tied)[0]))


def _reference(decoded=_DECODED, sources=_SOURCES, tied=False):
  params = _imported(tied)[1]
  return np.asarray(_forced(tied)(params, _pairs(sources, decoded)))


def _prefilled(lengths, rows=None):
  model, params = _model()
  cache = model.init_cache(params, 3, 48)
  rows = _rows() if rows is None else rows
  cache, _ = model.prefill(params, cache, rows, np.asarray(lengths))
  np.testing.assert_array_equal(cache.lengths, lengths)
  return cache


def _behind(lengths, num, rows=None):
  rows = _rows() if rows is None else rows
  return np.stack([row[n : n + num] for row, n in zip(rows, lengths)])


def _commit_first(cache, pending, num):
  width = pending.positions.shape[1]
  path = np.broadcast_to(np.arange(width), (3, width))
  return _model()[0].commit(cache, pending, path, jnp.asarray(num))


def _assert_close(logits, expected):
  scale = np.abs(expected).max()
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize('tied', [False, True])
def test_logits_equal_those_of_huggingface(tied):
  """Sources and responses reach past the distance where buckets end."""
  with torch.no_grad():
    expected = _hf_model(tied)(
      **_hf_inputs(), decoder_input_ids=torch.from_numpy(_DECODED)
    ).logits.numpy()
  assert expected.std(axis=-1).min() > 0.3 and expected.std(axis=1).mean() > 0.1
  assert _imported(tied)[0].tie_embeddings == tied
  _assert_close(_reference(tied=tied), expected)


def test_greedy_decoding_equals_that_of_huggingface():
  expected = _hf_model(False).generate(
    **_hf_inputs(), max_new_tokens=16, do_sample=False, use_cache=False
  )
  assert _plain_greedy() == expected[:, 1:].tolist()
  assert len(set(map(tuple, expected.tolist()))) == 3


def test_a_tied_table_is_written_once():
  config, params = _imported(True)
  written = weights.write(config, 't5', params)
  copies = {f'{name}.embed_tokens.weight' for name in ('encoder', 'decoder')}
  copies.add('lm_head.weight')
  assert written.shapes.keys() == _state_dict(True).keys() - copies
  for name in written.shapes:
    np.testing.assert_array_equal(written.read(name), _state_dict(True)[name])


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'start_id': 30}, r'start_id must lie in \[0, 30\).*got 30'),
    ({'decoder_layers': 0}, 'decoder_layers must be >= 1, got 0'),
    ({'d_ff': 0}, 'd_ff must be >= 1, got 0'),
    ({'num_buckets': 7}, 'num_buckets must be even and >= 4, got 7'),
    ({'max_distance': 4}, r'max_distance must be > .*\(4\), got 4'),
    ({'padded_vocab_size': 29}, r'must be >= vocab_size \(30\), got 29'),
    ({'num_layers': 2}, "'num_layers'. Known: vocab_size, encoder_layers"),
  ],
)
def test_bad_configs_are_refused(change, message):
  with pytest.raises(ValueError, match=message):
    encoder_decoder_config.from_dict(_FIELDS | change)


def test_a_checkpoint_comes_back_exactly(tmp_path):
  config = encoder_decoder_config.from_dict(_FIELDS)
  params = flax_modules.init_params(jax.random.key(0), config)
  path = tmp_path / 'model.safetensors'
  checkpoint.save(path, config, params, dtype=np.float32)
  loaded_config, loaded = checkpoint.load(path)
  assert loaded_config == config
  jax.tree.map(np.testing.assert_array_equal, loaded, params)


def test_a_packed_example_has_the_logits_that_it_has_alone():
  """Several a row, in both of its sides; each is found by its source."""
  sequences = [
    (source + row[: 4 + i].tolist(), len(source) + 1)
    for i, (source, row) in enumerate(zip(_SOURCES, _DECODED))
  ]
  packed = example_pairs.pack(sequences, 24, 16, seed=0)
  assert packed.segments.max() > 0 and (packed.segments < 0).any()
  logits = np.asarray(_forced(False)(_imported()[1], packed))
  expected = _reference()
  num_examples = 0
  for i, (tokens, start) in enumerate(sequences):
    for row, segment in np.ndindex(len(packed.tokens), 3):
      is_example = packed.segments[row] == segment
      source = packed.source_tokens[row, packed.source_segments[row] == segment]
      if tokens == [*source, *packed.tokens[row, is_example]]:
        _assert_close(
          logits[row, is_example], expected[i, : len(tokens) - start + 1]
        )
        num_examples += 1
  assert num_examples == 3


@pytest.mark.parametrize('lag', [0, 1])
@pytest.mark.parametrize(
  ('chunks', 'commit'), [((4, 1, 5, 4), True), ((3, 1, 10), False)], ids=str
)
def test_any_chunking_equals_one_call(lag, chunks, commit):
  """From where a target starts, or a drafter that is one token behind it."""
  model, params = _model()
  lengths = _STARTS - lag
  cache, pending = _prefilled(lengths), None
  logits, done = [], 0
  for num in (chunks[0] + lag, *chunks[1:]):
    output = model.extend(
      params, cache, _behind(lengths + done, num), pending_kv=pending
    )
    logits.append(output.logits)
    done += num
    if commit:
      cache = _commit_first(cache, output.pending_kv, [num] * 3)
    else:
      pending = output.pending_kv
  logits = np.concatenate(logits, axis=1)[:, lag:]
  _assert_close(logits, _reference())


def test_prefill_reads_what_stands_behind_the_start_token():
  """As many tokens as a row has; one has no more than its source."""
  model, params = _model()
  num = np.array([6, 0, 3])
  cache = _prefilled(_STARTS + num)
  logits = model.extend(params, cache, _behind(_STARTS + num, 5)).logits
  _assert_close(logits, _behind(num, 5, _reference()))


def test_rolled_back_drafts_never_happened():
  """To the bit; also when they are rolled back to the start."""
  model, params = _model()
  for num in ([2, 0, 4], [0, 0, 0]):
    lengths = _STARTS + num
    true = _behind(lengths, 4)
    fresh = _prefilled(lengths)
    junk = model.extend(params, fresh, (true + 3) % 30).pending_kv
    cache = model.rollback(_commit_first(fresh, junk, [4, 1, 3]), lengths)
    np.testing.assert_array_equal(cache.lengths, lengths)
    np.testing.assert_array_equal(
      model.extend(params, cache, true).logits,
      model.extend(params, fresh, true).logits,
    )


@pytest.mark.parametrize('leaf', _TREE.leaves)
def test_each_path_of_a_tree_equals_a_chain(leaf):
  """And what was committed of it, another chain in each row."""
  model, params = _model()
  cache = _prefilled(_STARTS + 2)
  nodes = np.random.default_rng(2).integers(30, size=(3, _TREE.num_nodes))
  output = model.extend(
    params,
    cache,
    np.concatenate([_DECODED[:, 2:3], nodes], axis=1),
    positions=_STARTS[:, None] + 2 + _TREE.offsets,
    mask=_TREE.mask,
  )
  path = np.flatnonzero(_TREE.mask[leaf + 1])
  chain = np.concatenate([_DECODED[:, :3], nodes[:, path[1:] - 1]], axis=1)
  chain = np.concatenate([chain, _DECODED[:, -2:]], axis=1)
  expected = _reference(chain)
  _assert_close(output.logits[:, path], expected[:, 2:-2])
  num = np.array([len(path), 1, len(path) - 1])
  cache = model.commit(
    cache, output.pending_kv, np.tile(path, (3, 1)), jnp.asarray(num)
  )
  lengths = _STARTS + 2 + num
  logits = model.extend(params, cache, _behind(lengths, 1, _rows(chain))).logits
  _assert_close(logits, _behind(2 + num, 1, expected))


def test_the_source_matters_and_padding_does_not():
  model, params = _model()
  logits = lambda rows: (
    model.extend(params, _prefilled(_STARTS, rows), _DECODED).logits
  )
  rows = _rows()
  expected = logits(rows)
  is_after = np.arange(rows.shape[1]) > _STARTS[:, None]
  np.testing.assert_array_equal(logits(np.where(is_after, 9, rows)), expected)
  rows[:, 0] = 31 - rows[:, 0]
  assert (np.abs(logits(rows) - expected).max(axis=2) > 1e-3).all()


@functools.cache
def _plain_greedy():
  """What the target says with the highest probability, token by token."""
  results = _decoder([_plain()]).decode(_PROMPTS, 16)
  return [result.tokens for result in results]


def _plain():
  return base.Arm(drafters.NoDrafter(), verifiers.resolve('greedy')), None


def _arm(draft, topology, temperature=0.0):
  model, params = draft
  sampling = sampling_lib.Sampling(temperature)
  # Chunks are not as wide as sources, so that copies can be told apart.
  drafter = drafters.Autoregressive(model, topology, sampling)
  drafter = arms_lib.chunked(drafter, 8)
  coupling = 'otm' if temperature else 'greedy'
  return base.Arm(drafter, verifiers.resolve(coupling)), params


def _decoder(arms, temperature=0.0, **options):
  config, params = _imported()
  return decoding.Decoder(
    adapters.language_model(config),
    params,
    arms,
    sampling=sampling_lib.Sampling(temperature),
    max_length=64,
    **options,
  )


def _several():
  """Two drafters, one of which lags while the other is played."""
  arms = [
    _arm(_draft(), trees.chain(3)),
    _arm(_draft(2), trees.prefix_tree((2, 1))),
  ]
  return _decoder(arms, bandit=arms_lib.Adversary(2))


@pytest.mark.parametrize(
  'build',
  [
    lambda: _decoder([_arm(_draft(), trees.prefix_tree((2, 2)))]),
    pytest.param(_several, marks=pytest.mark.slow),
  ],
  ids=['tree', 'arms'],
)
def test_speculation_copies_no_cache_and_changes_no_token(build):
  decoder = build()
  state = decoder.init(_PROMPTS, 16)
  loop = xla.compile_as_usual(
    specjax.decode.lower(decoder.round_fn, decoder.params, state)
  )
  assert not drivers_test.cache_copies(loop, state)
  results = decoder.results(
    _PROMPTS, loop(decoder.round_fn, decoder.params, state)
  )
  assert [result.tokens for result in results] == _plain_greedy()
  # Drafts are kept and dropped; laggards read what others have committed.
  num_accepted = sum(result.accepted.sum() for result in results)
  assert 0 < num_accepted < sum(result.drafted.sum() for result in results)
  if len(results[0].pulls) > 1:
    assert sum(result.num_catch_up_tokens for result in results) > 0


@pytest.mark.slow
def test_a_row_is_the_same_alone_and_beside_others():
  """At temperature 1."""
  decoder = _decoder([_arm(_draft(), trees.chain(3), 1.0)], 1.0)
  together = decoder.decode(_PROMPTS, 12, seed=3)
  (single,) = decoder.decode(_PROMPTS[2:], 12, seed=3, request_ids=[2])
  assert single.tokens == together[2].tokens


@pytest.mark.parametrize(
  'prompt', [[5, 6], [5, 0, 6, 0], [5, 0, 6], [0]], ids=str
)
def test_a_prompt_that_is_not_a_source_and_a_start_is_refused(prompt):
  with pytest.raises(ValueError, match=r'prompts\[1\] must be a source'):
    _decoder([_plain()]).init([[5, 0], prompt], 4)


def test_a_warm_start_is_refused():
  with pytest.raises(ValueError, match='warm_start must be 0 .* got 8'):
    _decoder([_plain()], bandit=arms_lib.Adversary(1), warm_start=8)
