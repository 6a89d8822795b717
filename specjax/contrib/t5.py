"""T5 v1.1 in HuggingFace's format."""

from specjax.contrib import encoder_decoder_config
from specjax.models.huggingface import configs

_Field = configs.Field

# Tables that must be copies of the embedding.
EMBEDDING_COPIES = (
  'encoder.embed_tokens.weight',
  'decoder.embed_tokens.weight',
)
_ATTENTION = {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}
_PARTS = {
  'attention': ('SelfAttention', _ATTENTION),
  'cross': ('EncDecAttention', _ATTENTION),
  'feed_forward': (
    'DenseReluDense',
    {'gate': 'wi_0', 'up': 'wi_1', 'down': 'wo'},
  ),
}


def _stack(stack: str, *others: str) -> dict[str, str]:
  """Returns the names of the modules of the encoder or the decoder.

  Args:
    stack: 'encoder' or 'decoder'.
    *others: parts of its layers after self-attention.
  """
  names = {
    f'{stack}/relative_bias/table': (
      f'{stack}.block.0.layer.0.SelfAttention.relative_attention_bias'
    ),
    f'{stack}/final_norm': f'{stack}.final_layer_norm',
  }
  for i, part in enumerate(('attention', *others)):
    path = f'{stack}/layers/{{}}/{part}'
    hf_path = f'{stack}.block.{{}}.layer.{i}'
    names[f'{path}_norm'] = f'{hf_path}.layer_norm'
    hf_module, kernels = _PARTS[part]
    for kernel, hf_kernel in kernels.items():
      names[f'{path}/{kernel}'] = f'{hf_path}.{hf_module}.{hf_kernel}'
  return names


NAMES = {
  'embedding': 'shared',
  **_stack('encoder', 'feed_forward'),
  **_stack('decoder', 'cross', 'feed_forward'),
  'head': 'lm_head',
}

DESCRIPTION = configs.Description(
  'T5ForConditionalGeneration',
  {
    'vocab_size': _Field('vocab_size'),
    'encoder_layers': _Field('num_layers'),
    'decoder_layers': _Field(
      'num_decoder_layers', lambda file: file['num_layers']
    ),
    'd_model': _Field('d_model'),
    'num_heads': _Field('num_heads'),
    'head_dim': _Field('d_kv'),
    'd_ff': _Field('d_ff'),
    'start_id': _Field('decoder_start_token_id', lambda file: 0),
    'num_buckets': _Field('relative_attention_num_buckets', 32),
    'max_distance': _Field('relative_attention_max_distance', 128),
    'tie_embeddings': _Field('tie_word_embeddings', True),
    'norm_epsilon': _Field('layer_norm_epsilon', 1e-6),
    'max_length': _Field('n_positions', 512),
  },
  allowed={'feed_forward_proj': ('gated-gelu',)},
  config=encoder_decoder_config.EncoderDecoderConfig,
)
