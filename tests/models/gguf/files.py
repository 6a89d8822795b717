"""Small GGUF files, written by the package of llama.cpp."""

import gguf
import numpy as np
from tokenizers import pre_tokenizers

# Names behind 'blk.0.' and in HuggingFace's layers.
LAYER = {
  'attn_norm': 'input_layernorm',
  'attn_q': 'self_attn.q_proj',
  'attn_k': 'self_attn.k_proj',
  'attn_v': 'self_attn.v_proj',
  'attn_q_norm': 'self_attn.q_norm',
  'attn_k_norm': 'self_attn.k_norm',
  'attn_output': 'self_attn.o_proj',
  'ffn_norm': 'post_attention_layernorm',
  'ffn_gate': 'mlp.gate_proj',
  'ffn_up': 'mlp.up_proj',
  'ffn_down': 'mlp.down_proj',
}
TOP = {
  'token_embd': 'model.embed_tokens',
  'output_norm': 'model.norm',
  'output': 'lm_head',
}
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
TEMPLATE = (
  "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] "
  "+ '<|im_end|>\n' }}{% endfor %}"
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
MERGES = ['t h', 'th e', 'Ġ the', '1 2', "' t"]
TOKENS = [*SPECIAL, *ALPHABET, *(m.replace(' ', '') for m in MERGES), '<think>']


def write(path, arrays, metadata=None, kinds=None):
  """Writes a file.

  Args:
    path: where to.
    arrays: by their names in the file.
    metadata: changes to `tokenizer()`; None leaves a field out.
    kinds: formats of arrays that are not float32.
  """
  writer = gguf.GGUFWriter(path, 'llama')
  for name, value in (tokenizer() | (metadata or {})).items():
    if value is not None:
      _add(writer, name, value)
  for name, array in arrays.items():
    kind = (kinds or {}).get(name, gguf.GGMLQuantizationType.F32)
    data = gguf.quants.quantize(array, kind)
    # Arrays of NumPy's types are written as they are.
    raw = None if data.dtype in (np.float32, np.float16) else kind
    writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=raw)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def tokenizer():
  """Metadata of a tokenizer of bytes and few merges."""
  kinds = [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL) - 1) + [4]
  fields = {
    'model': 'gpt2',
    'pre': 'smollm',
    'tokens': TOKENS,
    'token_type': kinds,
    'merges': MERGES,
    'bos_token_id': 1,
    'eos_token_id': 2,
    'add_bos_token': False,
  }
  named = {f'tokenizer.ggml.{name}': value for name, value in fields.items()}
  return named | {'tokenizer.chat_template': TEMPLATE}


def model(peer):
  """Returns a transformers model's metadata and arrays for llama.cpp."""
  config = peer.config
  name = config.model_type
  sizes = {
    'embedding_length': config.hidden_size,
    'feed_forward_length': config.intermediate_size,
    'block_count': config.num_hidden_layers,
    'attention.head_count': config.num_attention_heads,
    'attention.head_count_kv': config.num_key_value_heads,
    'attention.key_length': config.head_dim,
    'context_length': config.max_position_embeddings,
    'vocab_size': config.vocab_size,
    'attention.layer_norm_rms_epsilon': config.rms_norm_eps,
    'rope.freq_base': config.rope_parameters['rope_theta'],
  }
  metadata = {f'{name}.{field}': value for field, value in sizes.items()}
  part_names = {hf_name: part for part, hf_name in (TOP | LAYER).items()}
  heads = {'attn_q': config.num_attention_heads}
  heads['attn_k'] = config.num_key_value_heads
  arrays = {}
  for hf_name, value in peer.state_dict().items():
    array = value.numpy()
    *prefix, leaf = hf_name.split('.')
    if 'layers' not in prefix:
      arrays[f'{part_names[".".join(prefix)]}.{leaf}'] = array
      continue
    part = part_names['.'.join(prefix[3:])]
    if name == 'llama' and part in heads:
      rows = array.reshape(heads[part], 2, -1, *array.shape[1:])
      array = rows.swapaxes(1, 2).reshape(array.shape)
    arrays[f'blk.{prefix[2]}.{part}.{leaf}'] = array
  if config.tie_word_embeddings:
    arrays.pop('output.weight', None)
  if config.rope_parameters['rope_type'] == 'llama3':
    scaled = peer.model.rotary_emb.inv_freq.numpy()
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    plain = config.rope_parameters['rope_theta'] ** -exponents
    arrays['rope_freqs.weight'] = (plain / scaled).astype(np.float32)
  return metadata | {'general.architecture': name}, arrays


def _add(writer, name, value):
  """Adds a value, whose type says how it is stored."""
  if name == 'general.architecture':
    writer.kv_data[0].pop(name, None)
  if isinstance(value, bool):
    writer.add_bool(name, value)
  elif isinstance(value, int):
    writer.add_uint32(name, value)
  elif isinstance(value, float):
    writer.add_float32(name, value)
  elif isinstance(value, str):
    writer.add_string(name, value)
  else:
    writer.add_array(name, value)
