"""Servers that load heads trained here, and what each of them reads.

The code that was read, in September 2026, is, in vLLM, `transformers_utils/
configs/speculators`, `configs/medusa.py`, `config/speculative.py`,
`models/medusa.py`, `models/llama_eagle*.py`, `models/qwen3_dflash.py`,
`models/qwen3_dspark.py` and `v1/worker/gpu/spec_decode`; in SGLang,
`models/llama_eagle*.py`, `models/dflash.py`, `models/dspark.py`,
`speculative/dflash_utils.py` and `speculative/dspark_components`; in llama.cpp,
`conversion/llama.py`, `conversion/qwen.py`, `src/models/eagle3.cpp` and
`src/models/dflash.cpp`.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np

from specjax import registry
from specjax.models import cutting
from specjax.models import head_config
from specjax.models import heads

# Field of the layers of the target that a head reads.
LAYER_IDS = 'eagle_aux_hidden_state_layer_ids'
_BIASES = ('qkv_bias', 'out_bias', 'mlp_bias')
# EAGLE-3's servers concatenate this number of hidden states.
_NUM_TAPS = 3
# The rows of the Markov head's output, one for each token of the draft.
_MARKOV_ROWS = 'markov_head.markov_w2.weight'


class Reader(NamedTuple):
  """How a server reads one kind of head.

  Attributes:
    architecture: the name of its class, in `config.json`.
    layout: the format of the files, a key of `_WRITERS` in `published_heads`.
    options: fields of the head's config that may be True.
    has_default_taps: whether the server derives the taps from the number of the
      target's layers, as `heads.default_taps` does.
    outputs_count: whether layer ids count outputs of layers, in `eagle_config`.
    adds_bias: whether the projection always has a bias.
    has_draft_vocab: whether the head may have a reduced vocabulary; otherwise,
      the server uses the target's whole output head.
    shares_head: whether the server takes the target's output head, for a head
      that has no separate one and that drafts all tokens; otherwise, the files
      contain a copy.
  """

  architecture: str
  layout: str
  options: tuple[str, ...] = ()
  has_default_taps: bool = False
  outputs_count: bool = False
  adds_bias: bool = False
  has_draft_vocab: bool = True
  shares_head: bool = True


# Some versions of vLLM shift a block in the format of speculators by one token.
_DFLASH = Reader('DFlashDraftModel', 'dflash_authors', has_draft_vocab=False)
_DSPARK = Reader(
  'Qwen3DSparkModel', 'dspark_authors', options=('predicts_next',)
)
SERVERS: dict[str, dict[str, Reader]] = {
  'llama.cpp': {
    'dflash': _DFLASH,
    'dspark': _DSPARK,
    'eagle3': Reader(
      'LlamaForCausalLMEagle3',
      'eagle3',
      options=('norm_before_residual',),
      has_default_taps=True,
    ),
  },
  'sglang': {
    'dflash': _DFLASH,
    'dspark': _DSPARK._replace(has_draft_vocab=False),
    'eagle': Reader(
      'LlamaForCausalLMEagle',
      'eagle',
      options=('bias',),
      adds_bias=True,
      has_draft_vocab=False,
    ),
    'eagle3': Reader(
      'LlamaForCausalLMEagle3',
      'eagle3',
      options=('norm_before_fc', 'norm_output', 'norm_taps'),
      outputs_count=True,
    ),
  },
  'vllm': {
    'dflash': _DFLASH._replace(has_draft_vocab=True),
    'dspark': _DSPARK,
    'eagle': Reader('LlamaForCausalLM', 'eagle', has_draft_vocab=False),
    'eagle3': Reader(
      'Eagle3DraftModel',
      'speculators',
      options=(
        'norm_before_fc',
        'norm_before_residual',
        'norm_output',
        'norm_taps',
      ),
    ),
    'medusa': Reader(
      'MedusaModel',
      'medusa_in_vllm',
      options=('own_heads',),
      shares_head=False,
    ),
  },
}


class Arguments(NamedTuple):
  """What the files contain in addition to a head; None for nothing.

  Attributes:
    target: name or path of the target.
    draft_length: number of draft tokens per round.
    num_target_layers: number of the target's layers.
  """

  target: str | None = None
  draft_length: int | None = None
  num_target_layers: int | None = None

  def check_unused(self, used: tuple[str, ...], condition: str) -> None:
    """Raises `ValueError` if an argument has a value, but no place in a format.

    Args:
      used: names of the arguments that have a place.
      condition: describes the format, for errors.
    """
    for name, value in self._asdict().items():
      if value is not None and name not in used:
        raise ValueError(f'{name} must be None {condition}, got {value!r}.')


# The arguments that a layout requires.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
  'dflash_authors': ('num_target_layers',),
  'dspark_authors': ('num_target_layers',),
  'speculators': ('target', 'draft_length'),
}


def find(
  server: str, config: head_config.HeadConfig, arguments: Arguments
) -> Reader:
  """Returns how a server reads a head.

  Args:
    server: a name in `SERVERS`.
    config: config of the head.
    arguments: what else the files contain.

  Raises:
    ValueError: the server is unknown, it cannot load the head or would compute
      something else, or an argument is missing, out of range or has no place in
      the format.
  """
  readers = registry.lookup(SERVERS, 'server', server)
  kind = _published_kind(config)
  if kind not in readers:
    others = [name for name, kinds in SERVERS.items() if kind in kinds]
    raise ValueError(
      f'server must be {" or ".join(others)} for a head of the kind {kind}, '
      f'got {server!r}.'
    )
  reader = readers[kind]
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if value is True and field.name not in reader.options:
      raise ValueError(
        f'{field.name} must be False in a head of the kind {kind} for '
        f'{server}, got True.'
      )
  _check_layer(server, kind, config)
  used = _ARGUMENTS.get(reader.layout, ())
  arguments.check_unused(used, f'for {server} and the kind {kind}')
  _check_taps(server, kind, reader, config.taps)
  if 'target' in used:
    _check_speculators(arguments.target, arguments.draft_length)
  if 'num_target_layers' in used:
    _check_num_layers(arguments.num_target_layers, config.taps)
  return reader


def _published_kind(config: head_config.HeadConfig) -> str:
  """Returns the kind of a head, where DSpark's differs from DFlash's."""
  is_dspark = (
    isinstance(config, head_config.DFlashConfig) and config.predicts_next
  )
  return 'dspark' if is_dspark else config.kind


def _check_layer(
  server: str, kind: str, config: head_config.HeadConfig
) -> None:
  """Raises `ValueError` if a server has other layers than a head."""
  layer = config.layer
  if isinstance(config, head_config.MedusaConfig):
    if layer.logit_softcap is not None:
      raise ValueError(
        f'logit_softcap must be None in the layer of a head of the kind {kind} '
        f'for {server}, got {layer.logit_softcap}.'
      )
    return
  for name in _BIASES:
    if getattr(layer, name):
      raise ValueError(
        f'{name} must be False in the layer of a head for {server}, got True.'
      )
  if not isinstance(config, head_config.DFlashConfig):
    return
  if not layer.qk_norm:
    raise ValueError(
      f'qk_norm must be True in the layer of a head of the kind {kind} for '
      f'{server}, as with for_servers=True of heads.configure, got False.'
    )
  if config.predicts_next != (config.markov_rank > 0):
    allowed = '>= 1' if config.predicts_next else '0'
    raise ValueError(
      f'markov_rank must be {allowed} in a head of the kind {kind} for '
      f'{server}, got {config.markov_rank}.'
    )


def _check_taps(
  server: str, kind: str, reader: Reader, taps: tuple[int, ...]
) -> None:
  """Raises `ValueError` if a server cannot provide the taps of a head."""
  if kind in ('eagle', 'medusa'):
    if taps != (-1,):
      raise ValueError(
        f'taps must be (-1,) in a head of the kind {kind} for {server}, got '
        f'{taps}.'
      )
    return
  is_number_valid = kind != 'eagle3' or len(taps) == _NUM_TAPS
  # Servers collect hidden states in the order of the layers.
  if not is_number_valid or min(taps) < 1 or list(taps) != sorted(taps):
    number = f'{_NUM_TAPS} ' if kind == 'eagle3' else ''
    raise ValueError(
      f'taps must be {number}inputs of layers from the second on, in '
      f'ascending order, for {server}, got {taps}.'
    )
  if reader.has_default_taps and taps != heads.default_taps(taps[-1] + 3):
    raise ValueError(
      f'taps must be 2, n // 2 and n - 3 for {server} and a target with n '
      f'layers, got {taps}.'
    )


def _check_num_layers(num_layers: int | None, taps: tuple[int, ...]) -> None:
  """Raises `ValueError` unless a target with `num_layers` has the taps."""
  if type(num_layers) is not int or num_layers <= taps[-1]:
    raise ValueError(
      'num_target_layers must be the number of layers of the target, larger '
      f'than the last of the taps {taps}, got {num_layers!r}.'
    )


def complete(
  reader: Reader,
  config: head_config.HeadConfig,
  fields: dict[str, Any],
  arrays: Mapping[str, np.ndarray],
  rows: np.ndarray | None,
  arguments: Arguments,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the fields and the arrays that a server reads.

  Args:
    reader: from `find`.
    config: config of the head.
    fields: fields of `config.json`, in the format that the server reads.
    arrays: the arrays, by their names there.
    rows: `[V]` row of each token in a reduced output head, or None.
    arguments: what else the files contain, as `find` has checked.
  """
  fields = {**fields, 'architectures': [reader.architecture]}
  if reader.layout == 'speculators':
    fields['speculators_config'] = _speculators_config(config.kind, arguments)
  if arguments.num_target_layers is not None:
    fields['num_target_layers'] = arguments.num_target_layers
  if reader.outputs_count:
    fields['eagle_config'] = {
      'use_aux_hidden_state': True,
      LAYER_IDS: [tap - 1 for tap in config.taps],
    }
  if not reader.has_draft_vocab:
    fields.pop('draft_vocab_size', None)
    if rows is not None and _MARKOV_ROWS in arrays:
      arrays = {**arrays, _MARKOV_ROWS: _all_rows(arrays[_MARKOV_ROWS], rows)}
  if reader.adds_bias and 'fc.bias' not in arrays:
    weight = arrays['fc.weight']
    arrays = {**arrays, 'fc.bias': np.zeros(weight.shape[0], weight.dtype)}
    fields['bias'] = True
  return fields, dict(arrays)


def _all_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """Returns `[V, F]` rows of all tokens, from those of a reduced head."""
  full = np.zeros((len(rows), array.shape[1]), array.dtype)
  full[cutting.head_tokens(rows)] = array
  return full


def _check_speculators(target: str | None, draft_length: int | None) -> None:
  """Raises `ValueError` unless there is a target and a draft length."""
  if not isinstance(target, str) or not target:
    raise ValueError(
      'target must be the name or the path of the model that vllm serves, got '
      f'{target!r}.'
    )
  if type(draft_length) is not int or draft_length < 1:
    raise ValueError(
      f'draft_length must be an integer >= 1, got {draft_length!r}.'
    )


def _speculators_config(algorithm: str, arguments: Arguments) -> dict[str, Any]:
  """Returns the field by which speculators and vLLM know how to decode."""
  method = {
    'proposal_type': 'greedy',
    'speculative_tokens': arguments.draft_length,
    'verifier_accept_k': 1,
    'accept_tolerance': 0.0,
  }
  return {
    'algorithm': algorithm,
    'default_proposal_method': method['proposal_type'],
    'proposal_methods': [method],
    # Its architecture, which may be compared, is that of any model.
    'verifier': {'name_or_path': arguments.target, 'architectures': []},
  }
