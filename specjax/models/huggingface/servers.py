"""Servers that load heads trained here, and what each of them reads.

The code that was read, in September 2026: `transformers_utils/configs/
speculators` and `models/llama_eagle*.py` in vLLM, `models/llama_eagle*.py` in
SGLang, and `conversion/llama.py` and `src/models/eagle3.cpp` in llama.cpp.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np

from specjax import registry
from specjax.models import head_config
from specjax.models import heads

# Field of the layers of the target that a head reads.
LAYER_IDS = 'eagle_aux_hidden_state_layer_ids'
_BIASES = ('qkv_bias', 'out_bias', 'mlp_bias')
# EAGLE-3's servers concatenate this number of hidden states.
_NUM_TAPS = 3


class Reader(NamedTuple):
  """How a server reads one kind of head.

  Attributes:
    architecture: the name of its class, in `config.json`.
    options: fields of the head's config that may be True.
    in_speculators: whether the files are in the format of the library
      speculators, which names the target; otherwise, they are in that of the
      heads' authors.
    has_default_taps: whether the server derives the taps from the number of the
      target's layers, as `heads.default_taps` does.
    outputs_count: whether layer ids count outputs of layers, in `eagle_config`.
    adds_bias: whether the projection always has a bias.
    has_draft_vocab: whether the head may have a reduced vocabulary; otherwise,
      the server uses the target's whole output head.
  """

  architecture: str
  options: tuple[str, ...] = ()
  in_speculators: bool = False
  has_default_taps: bool = False
  outputs_count: bool = False
  adds_bias: bool = False
  has_draft_vocab: bool = True


SERVERS: dict[str, dict[str, Reader]] = {
  'llama.cpp': {
    'eagle3': Reader(
      'LlamaForCausalLMEagle3',
      options=('norm_before_residual',),
      has_default_taps=True,
    ),
  },
  'sglang': {
    'eagle': Reader(
      'LlamaForCausalLMEagle',
      options=('bias',),
      adds_bias=True,
      has_draft_vocab=False,
    ),
    'eagle3': Reader(
      'LlamaForCausalLMEagle3',
      options=('norm_before_fc', 'norm_output', 'norm_taps'),
      outputs_count=True,
    ),
  },
  'vllm': {
    'eagle': Reader('LlamaForCausalLM', has_draft_vocab=False),
    'eagle3': Reader(
      'Eagle3DraftModel',
      options=(
        'norm_before_fc',
        'norm_before_residual',
        'norm_output',
        'norm_taps',
      ),
      in_speculators=True,
    ),
  },
}


def find(server: str, config: head_config.HeadConfig) -> Reader:
  """Returns how a server reads a head.

  Args:
    server: a name in `SERVERS`.
    config: config of the head.

  Raises:
    ValueError: the server is unknown, or it cannot load the head or would
      compute something else.
  """
  readers = registry.lookup(SERVERS, 'server', server)
  kind = config.kind
  if kind not in readers:
    raise ValueError(
      f'{server} loads heads of the kind {" or ".join(readers)}, got {kind!r}.'
    )
  reader = readers[kind]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if value is True and field.name not in reader.options:
      raise ValueError(
        f'{field.name} must be False in a head of the kind {kind} for '
        f'{server}, got True.'
      )
  for name in _BIASES:
    if getattr(config.layer, name):
      raise ValueError(
        f'{name} must be False in the layer of a head for {server}, got True.'
      )
  _check_taps(server, reader, config)
  return reader


def _check_taps(
  server: str, reader: Reader, config: head_config.HeadConfig
) -> None:
  """Raises `ValueError` if a server cannot provide the taps of a head."""
  taps = config.taps
  if config.kind == 'eagle':
    if taps != (-1,):
      raise ValueError(
        f'taps must be (-1,) in an EAGLE head for {server}, got {taps}.'
      )
  elif len(taps) != _NUM_TAPS or min(taps) < 1:
    raise ValueError(
      f'taps must be {_NUM_TAPS} inputs of layers from the second on for '
      f'{server}, got {taps}.'
    )
  elif reader.has_default_taps and taps != heads.default_taps(taps[-1] + 3):
    raise ValueError(
      f'taps must be 2, n // 2 and n - 3 for {server} and a target with n '
      f'layers, got {taps}.'
    )


def complete(
  server: str,
  reader: Reader,
  config: head_config.HeadConfig,
  fields: dict[str, Any],
  arrays: Mapping[str, np.ndarray],
  target: str | None,
  draft_length: int | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the fields and the arrays that a server reads.

  Args:
    server: See `find`.
    reader: from `find`.
    config: config of the head.
    fields: fields of `config.json`, in the format that the server reads.
    arrays: the arrays, by their names there.
    target: name or path of the target, where the format has one.
    draft_length: number of draft tokens per round, where the format has one.

  Raises:
    ValueError: `target` or `draft_length` is missing, or has no place in the
      format.
  """
  fields = {**fields, 'architectures': [reader.architecture]}
  if reader.in_speculators:
    fields['speculators_config'] = _speculators_config(
      config.kind, target, draft_length
    )
  elif target is not None or draft_length is not None:
    raise ValueError(
      f'target and draft_length must be None for {server} and the kind '
      f'{config.kind}: both are arguments of the server, got {target!r} and '
      f'{draft_length!r}.'
    )
  if reader.outputs_count:
    fields['eagle_config'] = {
      'use_aux_hidden_state': True,
      LAYER_IDS: [tap - 1 for tap in config.taps],
    }
  if not reader.has_draft_vocab:
    fields.pop('draft_vocab_size', None)
  if reader.adds_bias and 'fc.bias' not in arrays:
    weight = arrays['fc.weight']
    arrays = {**arrays, 'fc.bias': np.zeros(weight.shape[0], weight.dtype)}
    fields['bias'] = True
  return fields, dict(arrays)


def _speculators_config(
  algorithm: str, target: str | None, draft_length: int | None
) -> dict[str, Any]:
  """Returns the field by which speculators and vLLM know how to decode."""
  if not isinstance(target, str) or not target:
    raise ValueError(
      'target must be the name or the path of the model that vllm serves, got '
      f'{target!r}.'
    )
  if type(draft_length) is not int or draft_length < 1:
    raise ValueError(
      f'draft_length must be an integer >= 1, got {draft_length!r}.'
    )
  method = {
    'proposal_type': 'greedy',
    'speculative_tokens': draft_length,
    'verifier_accept_k': 1,
    'accept_tolerance': 0.0,
  }
  return {
    'algorithm': algorithm,
    'default_proposal_method': method['proposal_type'],
    'proposal_methods': [method],
    # Its architecture, which may be compared, is that of any model.
    'verifier': {'name_or_path': target, 'architectures': []},
  }
