"""Tiny models of transformers, in directories as it writes them."""

import functools

import jax
import numpy as np

from specjax.models.huggingface import weights
from tests import extras

torch = extras.load('torch')
transformers = extras.load('transformers')

_SIZES = {
  'vocab_size': 50,
  'hidden_size': 32,
  'intermediate_size': 48,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'max_position_embeddings': 256,
  'bos_token_id': 1,
  'eos_token_id': 2,
  'pad_token_id': 0,
}
_GROUPED = _SIZES | {'num_key_value_heads': 2}
LLAMA3 = {
  'rope_type': 'llama3',
  'rope_theta': 1e4,
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  # Wavelengths are 6, 63, 628, ...: one is kept, one blended, the rest scaled.
  'original_max_position_embeddings': 128,
}
_LINEAR = {'rope_type': 'linear', 'rope_theta': 1e3, 'factor': 4.0}
_WINDOW = {
  'use_sliding_window': True,
  'sliding_window': 4,
  'max_window_layers': 1,
}
_GEMMA = _GROUPED | {
  'head_dim': 16,
  'sliding_window': 4,
  'query_pre_attn_scalar': 7,
}
_NEOX = _SIZES | {
  'num_attention_heads': 2,
  'rope_parameters': {'rope_theta': 1e4, 'partial_rotary_factor': 0.25},
}
CASES = {
  'llama': ('llama', _GROUPED),
  'llama_llama3': ('llama', _GROUPED | {'rope_parameters': LLAMA3}),
  'llama_linear_biases_tied': (
    'llama',
    _GROUPED
    | {
      'rope_parameters': _LINEAR,
      'attention_bias': True,
      'mlp_bias': True,
      'tie_word_embeddings': True,
    },
  ),
  'mistral': ('mistral', _GROUPED | {'sliding_window': 4}),
  'mistral_global': ('mistral', _GROUPED | {'sliding_window': None}),
  'qwen2': ('qwen2', _GROUPED | {'tie_word_embeddings': True}),
  'qwen2_window': ('qwen2', _GROUPED | _WINDOW),
  'qwen3': ('qwen3', _GROUPED | {'head_dim': 16}),
  'phi3': (
    'phi3',
    _GROUPED
    | {
      'sliding_window': 5,
      'rope_parameters': {
        'rope_type': 'default',
        'rope_theta': 1e4,
        'partial_rotary_factor': 0.5,
      },
    },
  ),
  'gemma2': (
    'gemma2',
    _GEMMA
    | {
      'num_hidden_layers': 3,
      'attn_logit_softcapping': 5.0,
      'final_logit_softcapping': 10.0,
    },
  ),
  'gemma3': (
    'gemma3_text',
    _GEMMA
    | {
      'num_hidden_layers': 7,  # The last but one is global.
      'rope_parameters': {
        'full_attention': _LINEAR | {'rope_theta': 1e5},
        'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e2},
      },
    },
  ),
  'neox_parallel': ('gpt_neox', _NEOX),
  'neox_sequential': (
    'gpt_neox',
    _NEOX
    | {
      'use_parallel_residual': False,
      'attention_bias': False,
      'hidden_act': 'gelu_new',
    },
  ),
  't5': (
    't5',
    {
      'vocab_size': 30,
      'num_layers': 2,
      'num_decoder_layers': 1,
      'd_model': 16,
      'num_heads': 2,
      'd_kv': 6,
      'd_ff': 24,
      'decoder_start_token_id': 0,
      'relative_attention_num_buckets': 8,
      'relative_attention_max_distance': 9,
      'feed_forward_proj': 'gated-gelu',
      'tie_word_embeddings': False,
    },
  ),
}
DECODERS = [case for case in CASES if case != 't5']
TOKENS = np.random.default_rng(0).integers(50, size=(2, 12))


@functools.cache
def model(case):
  """Returns a model of which every array is random, norms included."""
  model_type, fields = CASES[case]
  config = transformers.AutoConfig.for_model(model_type, **fields)
  auto = transformers.AutoModelForCausalLM
  if model_type == 't5':
    auto = transformers.AutoModelForSeq2SeqLM
  peer = auto.from_config(
    config, attn_implementation='eager', dtype=torch.float32
  ).eval()
  if model_type == 't5':  # A head of its own, as in the files of T5 v1.1.
    peer.lm_head.weight = torch.nn.Parameter(peer.lm_head.weight.clone())
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for weight in peer.parameters():
      weight.normal_(0.0, 0.4, generator=generator)
  return peer


def logits(peer):
  """Returns what a decoder-only model says of `TOKENS`."""
  with torch.no_grad():
    return peer(torch.from_numpy(TOKENS)).logits.numpy()


def fields(case):
  """Returns what stands in the model's `config.json`."""
  return model(case).config.to_dict()


def arrays(case):
  """Returns the model's arrays by their names."""
  state = model(case).state_dict()
  return {name: array.numpy() for name, array in state.items()}


def tensors(named):
  """Returns what reads arrays that are in memory."""
  shapes = {n: jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in named.items()}
  return weights.Tensors(shapes, named.__getitem__)


def save(case, folder, **options):
  """Writes a directory and returns it."""
  model(case).save_pretrained(folder, **options)
  return folder
