"""HuggingFace's names of our modules.

There is one table per architecture, used in both directions; `{}` is the index
of a layer.
"""

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
# Modules with the same HuggingFace name are fused there, in this order.
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
