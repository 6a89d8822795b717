"""The supported architectures in HuggingFace's format."""

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from specjax import registry
from specjax.contrib import t5
from specjax.models import config as config_lib
from specjax.models.huggingface import configs
from specjax.models.huggingface import names

_Field = configs.Field


class Architecture(NamedTuple):
  """An architecture in HuggingFace's format.

  Attributes:
    description: the fields of its `config.json`.
    names: HuggingFace's names of our modules. Modules with the same name are
      fused there, in this order.
    fused_by_head: whether a fused array holds all parts of the first head, then
      those of the second, and so on. Otherwise, each part is contiguous.
    defaults: values of fields that a file may omit.
    is_multimodal: whether the model also reads images; the fields of its text
      model are then in a `text_config`, and its arrays in a module
      `language_model`.
    embedding_copies: names of arrays that must be copies of the embedding.
  """

  description: configs.Description
  names: dict[str, str]
  fused_by_head: bool = False
  defaults: dict[str, Any] = {}
  is_multimodal: bool = False
  embedding_copies: tuple[str, ...] = ()


_SIZES = {
  'vocab_size': _Field('vocab_size'),
  'num_layers': _Field('num_hidden_layers'),
  'd_model': _Field('hidden_size'),
  'num_heads': _Field('num_attention_heads'),
  'd_ff': _Field('intermediate_size'),
  'max_length': _Field('max_position_embeddings'),
  'tie_embeddings': _Field('tie_word_embeddings', False),
  'rope_scaling': configs.rope_scaling(),
}
_DECODER = _SIZES | {
  'activation': configs.activation('hidden_act'),
  'norm_epsilon': _Field('rms_norm_eps'),
  'num_kv_heads': _Field(
    'num_key_value_heads', lambda file: file['num_attention_heads']
  ),
  'head_dim': _Field(
    'head_dim', lambda file: file['hidden_size'] // file['num_attention_heads']
  ),
  'rope_theta': _Field('rope_theta', 10000.0),
  'mask_token': _Field('pard_token', None),
}
_QKV_BIAS = {'qkv_bias': _Field('attention_bias', False)}
_BIASES = _QKV_BIAS | {'out_bias': _Field('attention_bias', False)}
_FULLY_ROTATED = {'partial_rotary_factor': (None, 1.0)}
_LLAMA = configs.Description(
  'LlamaForCausalLM',
  _DECODER | _BIASES | {'mlp_bias': _Field('mlp_bias', False)},
  allowed=_FULLY_ROTATED,
)
_MISTRAL = configs.Description(
  'MistralForCausalLM',
  _DECODER | {'sliding_window': _Field('sliding_window', 4096)},
  # With types of layers, the model is another one, Ministral.
  allowed=_FULLY_ROTATED | {'layer_types': (None,)},
)


def _qwen_local(file: configs.HFConfig) -> list[bool]:
  """Returns that layers from `max_window_layers` on are local, if enabled."""
  if not file.get('use_sliding_window', False):
    return [False]
  first = file.get('max_window_layers', 28)
  return configs.layer_types(file) or [
    i >= first for i in range(file['num_hidden_layers'])
  ]


_QWEN2 = configs.Description(
  'Qwen2ForCausalLM',
  _DECODER,
  implied={'qkv_bias': True},
  allowed=_FULLY_ROTATED,
  local=_qwen_local,
)
_QWEN3 = configs.Description(
  'Qwen3ForCausalLM',
  _DECODER | _BIASES,
  implied={'qk_norm': True},
  allowed=_FULLY_ROTATED,
  local=_qwen_local,
)
_PHI3 = configs.Description(
  'Phi3ForCausalLM',
  _DECODER
  | {
    'rotary_fraction': _Field('partial_rotary_factor', 1.0),
    'sliding_window': _Field('sliding_window', None),
  },
)
_GEMMA2 = configs.Description(
  'Gemma2ForCausalLM',
  _DECODER
  | _BIASES
  | {
    'activation': configs.activation('hidden_activation'),
    'head_dim': _Field('head_dim'),
    'tie_embeddings': _Field('tie_word_embeddings', True),
    'attention_scale': configs.attention_scale('query_pre_attn_scalar'),
    'attention_softcap': _Field('attn_logit_softcapping', 50.0),
    'logit_softcap': _Field('final_logit_softcapping', 30.0),
  },
  implied={
    'norm_unit_offset': True,
    'post_norms': True,
    'scale_embeddings': True,
  },
  allowed=_FULLY_ROTATED | {'use_bidirectional_attention': (None, False)},
  local=lambda file: configs.layer_types(file) or [True, False],
)


def _gemma3_local(file: configs.HFConfig) -> list[bool]:
  """Returns that every sixth layer, or every `n`-th, is global."""
  period = file.get('_sliding_window_pattern')
  period = period or file.get('sliding_window_pattern') or 6
  return configs.layer_types(file) or [True] * (period - 1) + [False]


_GEMMA3 = _GEMMA2._replace(
  architecture='Gemma3ForCausalLM',
  fields=_GEMMA2.fields
  | {
    'attention_softcap': _Field('attn_logit_softcapping', None),
    'logit_softcap': _Field('final_logit_softcapping', None),
    'rope_theta': _Field('rope_theta', 1e6),
    'local_rope_theta': _Field('rope_local_base_freq', 1e4),
  },
  implied=_GEMMA2.implied | {'qk_norm': True},
  local=_gemma3_local,
)
_GPT_NEOX = configs.Description(
  'GPTNeoXForCausalLM',
  _SIZES
  | {
    'activation': configs.activation('hidden_act'),
    'norm_epsilon': _Field('layer_norm_eps'),
    'qkv_bias': _Field('attention_bias', True),
    'out_bias': _Field('attention_bias', True),
    'parallel_residual': _Field('use_parallel_residual', True),
    'rope_theta': _Field('rotary_emb_base', 10000.0),
    'rotary_fraction': _Field('rotary_pct', 0.25),
  },
  implied={
    'norm': 'layer',
    'gated': False,
    'mlp_bias': True,
    'num_kv_heads': lambda file: file['num_attention_heads'],
    'head_dim': lambda file: file['hidden_size'] // file['num_attention_heads'],
  },
)

# Default values of the config classes in transformers.
_LLAMA_DEFAULTS = {
  'hidden_act': 'silu',
  'max_position_embeddings': 2048,
  'rms_norm_eps': 1e-6,
}
_MISTRAL_DEFAULTS = _LLAMA_DEFAULTS | {
  'max_position_embeddings': 131072,
  'num_key_value_heads': 8,
}
_QWEN2_DEFAULTS = _LLAMA_DEFAULTS | {
  'max_position_embeddings': 32768,
  'num_key_value_heads': 32,
  'sliding_window': 4096,
}
_PHI3_DEFAULTS = _LLAMA_DEFAULTS | {
  'max_position_embeddings': 4096,
  'rms_norm_eps': 1e-5,
}
_GEMMA2_DEFAULTS = {
  'head_dim': 256,
  'hidden_activation': 'gelu_pytorch_tanh',
  'max_position_embeddings': 8192,
  'num_key_value_heads': 4,
  'query_pre_attn_scalar': 256,
  'rms_norm_eps': 1e-6,
  'sliding_window': 4096,
}
_GEMMA3_DEFAULTS = _GEMMA2_DEFAULTS | {'max_position_embeddings': 131072}
_GPT_NEOX_DEFAULTS = {
  'hidden_act': 'gelu',
  'layer_norm_eps': 1e-5,
  'max_position_embeddings': 2048,
}

# A config is written as the first architecture that can express it.
ARCHITECTURES = {
  'llama': Architecture(_LLAMA, names.LLAMA, defaults=_LLAMA_DEFAULTS),
  'mistral': Architecture(_MISTRAL, names.LLAMA, defaults=_MISTRAL_DEFAULTS),
  'qwen2': Architecture(_QWEN2, names.LLAMA, defaults=_QWEN2_DEFAULTS),
  'qwen3': Architecture(
    _QWEN3, names.QWEN3, defaults=_QWEN2_DEFAULTS | {'head_dim': 128}
  ),
  'phi3': Architecture(_PHI3, names.PHI3, defaults=_PHI3_DEFAULTS),
  'gemma2': Architecture(_GEMMA2, names.GEMMA2, defaults=_GEMMA2_DEFAULTS),
  'gemma3_text': Architecture(_GEMMA3, names.GEMMA3, defaults=_GEMMA3_DEFAULTS),
  'gemma3': Architecture(
    _GEMMA3,
    names.GEMMA3,
    # Published files omit even these sizes.
    defaults=_GEMMA3_DEFAULTS
    | {'num_attention_heads': 8, 'vocab_size': 262208},
    is_multimodal=True,
  ),
  'gpt_neox': Architecture(
    _GPT_NEOX, names.GPT_NEOX, fused_by_head=True, defaults=_GPT_NEOX_DEFAULTS
  ),
  't5': Architecture(
    t5.DESCRIPTION,
    t5.NAMES,
    defaults={'d_kv': 64},
    embedding_copies=t5.EMBEDDING_COPIES,
  ),
}


def read_config(hf_config: Mapping[str, Any]) -> config_lib.Config:
  """Translates the fields of a `config.json`.

  Args:
    hf_config: the fields, including `model_type`, with the names of
      transformers 4 or 5.

  Returns:
    The config. All rows of the embedding table count as vocabulary; replace
    `vocab_size` and `padded_vocab_size` if some are padding.

  Raises:
    ValueError: the architecture is unknown, or fields are missing or not
      supported; all of them are listed.
  """
  name = hf_config.get('model_type')
  if not isinstance(name, str | None):
    raise ValueError(f'model_type must be a text, got {name!r}.')
  architecture = registry.lookup(ARCHITECTURES, 'model_type', name)
  fields = (
    hf_config.get('text_config') if architecture.is_multimodal else hf_config
  )
  if not isinstance(fields, Mapping):
    raise ValueError(f'A {name} model needs a text_config, got {fields!r}.')
  try:
    return configs.read(
      architecture.description,
      {**hf_config, **architecture.defaults, **fields},
    )
  except ValueError as error:
    raise ValueError(f'The config of a {name} model: {error}.') from error


def write_config(config: config_lib.Config) -> dict[str, Any]:
  """Returns the fields of a `config.json`.

  Args:
    config: the architecture. Padding of its table counts as vocabulary.

  Raises:
    ValueError: no supported HuggingFace architecture can express the config.
  """
  for name, architecture in ARCHITECTURES.items():
    hf_config = configs.write(architecture.description, config)
    if hf_config is not None:
      return {'model_type': name, **hf_config}
  raise ValueError(
    f'No HuggingFace architecture ({", ".join(ARCHITECTURES)}) can express '
    f'{config}.'
  )
