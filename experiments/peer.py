"""The family's weights in HuggingFace transformers, for comparisons only."""

from collections.abc import Sequence
import warnings

import numpy as np

from specjax import families
from specjax.models import huggingface


def load(family: families.Family, drafter: str | None):
  """Returns a `LlamaForCausalLM` with the weights of target or drafter."""
  import torch
  import transformers

  model = family.drafters[drafter] if drafter else family.target
  config = model.config
  peer = transformers.LlamaForCausalLM(
    transformers.LlamaConfig(
      vocab_size=config.vocab_size,
      hidden_size=config.d_model,
      intermediate_size=config.d_ff,
      num_hidden_layers=config.num_layers,
      num_attention_heads=config.num_heads,
      num_key_value_heads=config.num_kv_heads,
      head_dim=config.head_dim,
      rms_norm_eps=config.norm_epsilon,
      rope_theta=config.rope_theta,
      max_position_embeddings=config.max_length,
      tie_word_embeddings=config.tie_embeddings,
      bos_token_id=None,
      eos_token_id=family.tokenizer.end_id,
      pad_token_id=0,
    )
  )
  arrays = huggingface.export_params(config, 'llama', model.params)
  missing, unexpected = peer.load_state_dict(
    {k: torch.tensor(np.asarray(v)) for k, v in arrays.items()}, strict=False
  )
  if unexpected or set(missing) - {'lm_head.weight'}:
    raise ValueError(f'Weights do not fit: {missing}, {unexpected}.')
  peer.tie_weights()
  return peer.eval()


def generate(
  target,
  drafter,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  draft_length: int,
  end_id: int,
) -> list[list[int]]:
  """Generates greedily, one prompt at a time; assisted if given a drafter."""
  import torch

  options = {}
  if drafter is not None:
    drafter.generation_config.num_assistant_tokens = draft_length
    drafter.generation_config.num_assistant_tokens_schedule = 'constant'
    drafter.generation_config.assistant_confidence_threshold = 0.0
    options['assistant_model'] = drafter
  outputs = []
  for prompt in prompts:
    tokens = torch.tensor([list(prompt)])
    with torch.no_grad(), warnings.catch_warnings():
      warnings.simplefilter('ignore')
      output = target.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=end_id,
        **options,
      )
    outputs.append(output[0, len(prompt) :].tolist())
  return outputs
