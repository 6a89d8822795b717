"""Directories of transformers are loaded, and written for it again."""

import copy
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy
import tokenizers

from specjax import families
from specjax import meshes
from specjax import models
from specjax import trees
from specjax.data import chat
from specjax.data import prompt_format
from specjax.data import tokenizer as tokenizer_lib
from tests import extras
from tests.models.huggingface import oracle

torch = extras.load('torch')
transformers = extras.load('transformers')
pytestmark = pytest.mark.oracles

_LENGTHS = np.array([7, 5])
# Of the nodes, those with an odd parent or none belong to the rows' own text.
_TREE = trees.Topology((-1, -1, 0, 1, 1, 3))
_TRUE_ENTRIES = [0, 2, 4, 6]


def _entries_after(rows, num, lengths=_LENGTHS):
  """Returns the `num` entries of each row after its prompt."""
  return np.stack([row[n : n + num] for row, n in zip(rows, lengths)])


def _tree_tokens():
  """Returns trees with the text along one path and junk elsewhere."""
  tokens = np.full((2, 1 + _TREE.num_nodes), 3)
  tokens[:, _TRUE_ENTRIES] = _entries_after(oracle.TOKENS, 4)
  return tokens


def _ways_to_read(model, params):
  """Returns logits of full rows and after prompts of different lengths."""
  full_logits = model.extend(params, None, oracle.TOKENS).logits
  cache = model.init_cache(params, 2, 16)
  cache, _ = model.prefill(params, cache, oracle.TOKENS, _LENGTHS)
  tree = model.extend(
    params,
    cache,
    _tree_tokens(),
    positions=_LENGTHS[:, None] + _TREE.offsets,
    mask=_TREE.mask,
  ).logits[:, np.array(_TRUE_ENTRIES)]
  steps = []
  for i in range(2):
    tokens = _entries_after(oracle.TOKENS, 1, _LENGTHS + i)
    step = model.extend(params, cache, tokens)
    num = (step.logits[:, 0, 0] < jnp.inf).astype(jnp.int32)
    cache = model.commit(cache, step.pending_kv, np.zeros((2, 1), int), num)
    steps.append(step.logits)
  return full_logits, tree, jnp.concatenate(steps, axis=1)


def _assert_close(logits, expected):
  scale = np.abs(expected).max()
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize('case', oracle.DECODERS)
def test_logits_equal_those_of_transformers(case, tmp_path):
  expected = oracle.logits(oracle.model(case))
  # Neither flat nor the same everywhere, or nothing is tested.
  assert expected.std(axis=-1).min() > 0.3 and expected.std(axis=1).mean() > 0.1
  checkpoint = models.load(oracle.save(case, tmp_path))
  logits_fn = jax.jit(lambda params: _ways_to_read(checkpoint.model, params))
  full_logits, tree, steps = logits_fn(checkpoint.params)
  _assert_close(full_logits, expected)
  _assert_close(tree, _entries_after(expected, 4))
  _assert_close(steps, _entries_after(expected, 2))


def _newer_names(arrays, fields):
  """As the modules are called since transformers 4.52."""
  del fields
  new = lambda name: name.replace('language_model.model.', 'language_model.')
  return {f'model.{new(name)}': array for name, array in arrays.items()}


@pytest.mark.parametrize('newer', [False, True])
def test_of_a_model_that_also_sees_the_text_is_read(tmp_path, newer):
  _, fields = oracle.CASES['gemma3']
  sight = {'hidden_size': 16, 'intermediate_size': 16, 'num_hidden_layers': 1}
  sight |= {'num_attention_heads': 2, 'image_size': 28, 'patch_size': 14}
  config = transformers.Gemma3Config(text_config=fields, vision_config=sight)
  peer = transformers.Gemma3ForConditionalGeneration(config).eval()
  peer.model.language_model.load_state_dict(
    oracle.model('gemma3').model.state_dict()
  )
  peer.save_pretrained(tmp_path)
  if newer:
    _rewrite(tmp_path, _newer_names)
  checkpoint = models.load(tmp_path)
  extend = jax.jit(checkpoint.model.extend)
  _assert_close(
    extend(checkpoint.params, None, oracle.TOKENS).logits,
    oracle.logits(oracle.model('gemma3')),
  )


def _rewrite(folder, change):
  """Changes the arrays and the config of a directory."""
  path = folder / 'model.safetensors'
  arrays = safetensors_numpy.load_file(path)
  fields = json.loads((folder / 'config.json').read_text())
  arrays = change(arrays, fields) or arrays
  safetensors_numpy.save_file(arrays, path, {'format': 'pt'})
  _write_json(folder, 'config.json', **fields)


def _tied(arrays, fields):
  fields['tie_word_embeddings'] = True


def _tied_to_an_equal_head(arrays, fields):
  _tied(arrays, fields)
  arrays['lm_head.weight'] = arrays['model.embed_tokens.weight'].copy()


def _tied_without_an_embedding(arrays, fields):
  _tied(arrays, fields)
  del arrays['model.embed_tokens.weight']


def _without_the_outer_module(arrays, fields):
  del fields
  return {name.removeprefix('model.'): array for name, array in arrays.items()}


def _with_constants(arrays, fields):
  del fields
  name = 'model.layers.0.self_attn.rotary_emb.inv_freq'
  arrays[name] = np.ones(4, np.float32)


@pytest.mark.parametrize(
  ('case', 'change'),
  [
    ('llama', _tied),
    ('llama', _tied_to_an_equal_head),
    ('llama', _tied_without_an_embedding),
    ('neox_parallel', _tied),
    ('gemma2', _without_the_outer_module),
    ('llama', _with_constants),
  ],
)
def test_files_mean_what_they_mean_to_transformers(case, change, tmp_path):
  """Covers arrays that are duplicated, renamed or missing."""
  folder = oracle.save(case, tmp_path)
  _rewrite(folder, change)
  peer = transformers.AutoModelForCausalLM.from_pretrained(
    folder, attn_implementation='eager'
  )
  checkpoint = models.load(folder)
  logits = jax.jit(checkpoint.model.extend)(
    checkpoint.params, None, oracle.TOKENS
  )
  _assert_close(logits.logits, oracle.logits(peer.eval()))


@pytest.mark.parametrize('case', oracle.CASES)
def test_transformers_loads_what_was_saved(case, tmp_path):
  checkpoint = models.load(oracle.save(case, tmp_path / 'theirs'))
  models.save(checkpoint, tmp_path / 'ours')
  peer, report = type(oracle.model(case)).from_pretrained(
    tmp_path / 'ours', attn_implementation='eager', output_loading_info=True
  )
  assert not any(report.values())
  reloaded = models.load(tmp_path / 'ours')
  assert reloaded.stop_tokens == checkpoint.stop_tokens
  jax.tree.map(
    np.testing.assert_array_equal, reloaded.params, checkpoint.params
  )
  inputs = {'input_ids': torch.from_numpy(oracle.TOKENS % 30)}
  if case == 't5':
    inputs['decoder_input_ids'] = inputs['input_ids']
  with torch.no_grad():
    torch.testing.assert_close(
      peer(**inputs).logits, oracle.model(case)(**inputs).logits
    )


def test_the_type_of_the_file_is_kept(tmp_path):
  """The model computes in the type of its file or in the requested type."""
  narrow = copy.deepcopy(oracle.model('llama')).to(torch.bfloat16)
  narrow.save_pretrained(tmp_path)
  checkpoint_of_file = models.load(tmp_path)
  wide = models.load(tmp_path, dtype=jnp.float32)
  for checkpoint_of_type, dtype in [
    (checkpoint_of_file, jnp.bfloat16),
    (wide, jnp.float32),
  ]:
    cache = checkpoint_of_type.model.init_cache(checkpoint_of_type.params, 1, 4)
    arrays = jax.tree.leaves((checkpoint_of_type.params, cache.layers))
    assert {leaf.dtype for leaf in arrays} == {jnp.dtype(dtype)}
  logits = [
    jax.jit(checkpoint.model.extend)(
      checkpoint.params, None, oracle.TOKENS
    ).logits
    for checkpoint in (checkpoint_of_file, wide)
  ]
  assert 0 < np.abs(logits[0] - logits[1]).max() < 0.1 * np.abs(logits[1]).max()
  # Logits are not rounded to the type of the computations.
  rounded = logits[0].astype(jnp.bfloat16).astype(jnp.float32)
  assert (np.asarray(logits[0]) != np.asarray(rounded)).mean() > 0.9


@pytest.mark.parametrize('dtype', ['int8', 'float8_e4m3fn', 'complex64', 'b16'])
def test_types_that_no_model_has_are_refused(dtype, tmp_path):
  with pytest.raises(ValueError, match=f'float64, got {dtype!r}'):
    models.load(tmp_path, dtype=dtype)


def _write_json(folder, name, **fields):
  (folder / name).write_text(json.dumps(fields))


def test_stop_tokens_are_those_of_generation_then_those_of_the_model(tmp_path):
  oracle.save('llama', tmp_path)
  _write_json(tmp_path, 'generation_config.json', eos_token_id=[7, 5])
  assert models.load(tmp_path).stop_tokens == (7, 5)
  (tmp_path / 'generation_config.json').unlink()
  assert models.load(tmp_path).stop_tokens == (2,)
  _write_json(tmp_path, 'generation_config.json', eos_token_id='</s>')
  with pytest.raises(ValueError, match="must be a token id .* got '</s>'"):
    models.load(tmp_path)


def test_a_tilde_is_the_home_directory(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  oracle.save('llama', tmp_path / 'model')
  checkpoint = models.load('~/model')
  assert models.read_config('~/model') == checkpoint.config
  models.save(checkpoint, '~/again')
  names = ['again', 'model']
  assert sorted(file.name for file in tmp_path.iterdir()) == names


def test_a_directory_without_a_tokenizer_has_none(tmp_path):
  checkpoint = models.load(oracle.save('llama', tmp_path))
  assert checkpoint.tokenizer is None and checkpoint.chat_template is None


def _chat_tokenizer():
  """A tokenizer with a template that names its special tokens."""
  core = tokenizers.Tokenizer(tokenizers.models.WordLevel({'a': 0, 'b': 1}))
  core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  core.add_special_tokens(['<s>', '</s>', '<end>'])
  source = (
    '{{ bos_token }}{% for m in messages %}{{ m.content }}<end>{% endfor %}'
  )
  template = chat.Template(source, {'bos_token': '<s>', 'eos_token': '</s>'})
  text_format = prompt_format.plain_format(core, [3])._replace(
    template=template
  )
  return tokenizer_lib.Tokenizer(core, text_format)


def test_text_goes_with_the_model(tmp_path):
  """Saves the tokenizer, chat template and stop tokens for transformers."""
  tokenizer = _chat_tokenizer()
  base_checkpoint = models.load(oracle.save('llama', tmp_path / 'theirs'))
  stop_tokens = tokenizer.stop_tokens
  checkpoint = base_checkpoint._replace(
    tokenizer=tokenizer, stop_tokens=stop_tokens
  )
  models.save(checkpoint, tmp_path / 'ours')
  reloaded = models.load(tmp_path / 'ours')
  assert stop_tokens == (4, 3)
  assert reloaded.stop_tokens == reloaded.tokenizer.stop_tokens == stop_tokens
  assert reloaded.chat_template == checkpoint.chat_template
  reloaded.tokenizer.check_same(tokenizer, 'Both')
  peer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'ours')
  messages = [{'role': 'user', 'content': 'a b'}]
  ids = peer.apply_chat_template(messages, return_dict=False)
  assert reloaded.tokenizer.encode_chat(messages) == ids == [2, 0, 1, 4]


def test_the_mini_family_is_written_for_transformers(tmp_path):
  family = families.load('mini')
  model = min(family.drafters.values(), key=families.num_params)
  models.save(models.Checkpoint(*model, family.tokenizer, (3,)), tmp_path)
  peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
  logits = jax.jit(model.model.extend)(model.params, None, oracle.TOKENS)
  _assert_close(logits.logits, oracle.logits(peer.eval()))
  assert models.load(tmp_path).tokenizer.encode_prompt('Hello') == (
    family.tokenizer.encode_prompt('Hello')
  )


def test_arrays_go_to_the_devices_of_a_mesh(tmp_path):
  folder = oracle.save('gemma3', tmp_path)
  mesh = meshes.make()
  expected = models.load(folder).params
  checkpoint = models.load(folder, mesh=mesh)
  jax.tree.map(np.testing.assert_array_equal, checkpoint.params, expected)
  for leaf in jax.tree.leaves(checkpoint.params):
    assert leaf.sharding.mesh == mesh


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('config.json', None, 'has no config.json'),
    ('config.json', '[1]', 'must contain a JSON object'),
    ('config.json', '{"model_type"', 'Cannot read .*config.json'),
    ('config.json', '[' * 100_000, 'Cannot read .*config.json'),
    ('tokenizer.json', '{}', 'Cannot read the tokenizer'),
    ('model.safetensors', '', 'truncated or corrupt'),
  ],
)
def test_broken_directories_are_refused(tmp_path, name, content, message):
  path = oracle.save('llama', tmp_path) / name
  path.unlink(missing_ok=True)
  if content is not None:
    path.write_text(content)
  with pytest.raises(ValueError, match=f'Cannot load {tmp_path}: .*{message}'):
    models.load(tmp_path)


def test_a_config_of_other_weights_is_refused(tmp_path):
  oracle.save('llama', tmp_path)
  fields = json.loads((tmp_path / 'config.json').read_text())
  _write_json(tmp_path, 'config.json', **fields | {'vocab_size': 60})
  with pytest.raises(ValueError, match=r'\(50, 32\), not \(60, 32\)'):
    models.load(tmp_path)
  with pytest.raises(ValueError, match='There is no directory'):
    models.load(tmp_path / 'nowhere')


def test_a_folder_with_files_is_not_written_to(tmp_path):
  checkpoint = models.load(oracle.save('llama', tmp_path))
  with pytest.raises(ValueError, match=f'new or empty, got {tmp_path}'):
    models.save(checkpoint, tmp_path)
