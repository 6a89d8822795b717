"""Names our modules as HuggingFace's checkpoints do.

There is one table per architecture, read in both directions; `{}` is the number
of a layer.
"""

_T5_ATTENTION = {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}
_T5_PARTS = {
  'attention': ('SelfAttention', _T5_ATTENTION),
  'cross': ('EncDecAttention', _T5_ATTENTION),
  'feed_forward': (
    'DenseReluDense',
    {'gate': 'wi_0', 'up': 'wi_1', 'down': 'wo'},
  ),
}


def _t5_stack(stack, *others):
  """Names of one side, whose layers have these parts behind self-attention."""
  names = {
    f'{stack}/relative_bias/table': (
      f'{stack}.block.0.layer.0.SelfAttention.relative_attention_bias'
    ),
    f'{stack}/final_norm': f'{stack}.final_layer_norm',
  }
  for i, part in enumerate(('attention', *others)):
    ours, theirs = (
      f'{stack}/layers/{{}}/{part}',
      f'{stack}.block.{{}}.layer.{i}',
    )
    names[f'{ours}_norm'] = f'{theirs}.layer_norm'
    module, kernels = _T5_PARTS[part]
    names |= {
      f'{ours}/{mine}': f'{theirs}.{module}.{each}'
      for mine, each in kernels.items()
    }
  return names


LLAMA = {
  'embedding': 'model.embed_tokens',
  'layers/{}/attention_norm': 'model.layers.{}.input_layernorm',
  'layers/{}/attention/query': 'model.layers.{}.self_attn.q_proj',
  'layers/{}/attention/key': 'model.layers.{}.self_attn.k_proj',
  'layers/{}/attention/value': 'model.layers.{}.self_attn.v_proj',
  'layers/{}/attention/out': 'model.layers.{}.self_attn.o_proj',
  'layers/{}/feed_forward_norm': 'model.layers.{}.post_attention_layernorm',
  'layers/{}/feed_forward/gate': 'model.layers.{}.mlp.gate_proj',
  'layers/{}/feed_forward/up': 'model.layers.{}.mlp.up_proj',
  'layers/{}/feed_forward/down': 'model.layers.{}.mlp.down_proj',
  'final_norm': 'model.norm',
  'head': 'lm_head',
}
_QK_NORMS = {
  'layers/{}/attention/query_norm': 'model.layers.{}.self_attn.q_norm',
  'layers/{}/attention/key_norm': 'model.layers.{}.self_attn.k_norm',
}
QWEN3 = LLAMA | _QK_NORMS
# Modules of ours that share one of theirs are fused there, in this order.
PHI3 = LLAMA | {
  'layers/{}/attention/query': 'model.layers.{}.self_attn.qkv_proj',
  'layers/{}/attention/key': 'model.layers.{}.self_attn.qkv_proj',
  'layers/{}/attention/value': 'model.layers.{}.self_attn.qkv_proj',
  'layers/{}/feed_forward/gate': 'model.layers.{}.mlp.gate_up_proj',
  'layers/{}/feed_forward/up': 'model.layers.{}.mlp.gate_up_proj',
}
GEMMA2 = LLAMA | {
  'layers/{}/attention_post_norm': 'model.layers.{}.post_attention_layernorm',
  'layers/{}/feed_forward_norm': 'model.layers.{}.pre_feedforward_layernorm',
  'layers/{}/feed_forward_post_norm': (
    'model.layers.{}.post_feedforward_layernorm'
  ),
}
GEMMA3 = GEMMA2 | _QK_NORMS
GPT_NEOX = {
  'embedding': 'gpt_neox.embed_in',
  'layers/{}/attention_norm': 'gpt_neox.layers.{}.input_layernorm',
  'layers/{}/attention/query': 'gpt_neox.layers.{}.attention.query_key_value',
  'layers/{}/attention/key': 'gpt_neox.layers.{}.attention.query_key_value',
  'layers/{}/attention/value': 'gpt_neox.layers.{}.attention.query_key_value',
  'layers/{}/attention/out': 'gpt_neox.layers.{}.attention.dense',
  'layers/{}/feed_forward_norm': 'gpt_neox.layers.{}.post_attention_layernorm',
  'layers/{}/feed_forward/up': 'gpt_neox.layers.{}.mlp.dense_h_to_4h',
  'layers/{}/feed_forward/down': 'gpt_neox.layers.{}.mlp.dense_4h_to_h',
  'final_norm': 'gpt_neox.final_layer_norm',
  'head': 'lm_head',
}

T5 = {
  'embedding': 'shared',
  **_t5_stack('encoder', 'feed_forward'),
  **_t5_stack('decoder', 'cross', 'feed_forward'),
  'head': 'lm_head',
}
