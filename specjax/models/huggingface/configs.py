"""Translates between a `config.json` and the architecture that it describes.

A `Description` is a table that is used in both directions. Rotary fields have
the names of transformers 4, which transformers 5 also reads.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

from specjax import registry
from specjax.models import config as config_lib

HFConfig = Mapping[str, Any]

REQUIRED = object()
# HuggingFace's names of our activations; the first of equal ones is written.
_ACTIVATIONS = {
  'silu': 'silu',
  'swish': 'silu',
  'gelu': 'gelu',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'gelu_new': 'gelu_tanh',
  'gelu_fast': 'gelu_tanh',
}
_LAYER_TYPES = {'full_attention': False, 'sliding_attention': True}
# Fields of `rope_parameters` in transformers 5, which are separate fields in
# transformers 4.
_ORIGINAL_CONTEXT = 'original_max_position_embeddings'
_ROPE_PARAMETERS = {
  'rope_theta': 'rope_theta',
  'rotary_fraction': 'partial_rotary_factor',
}
_SCALINGS = {
  'linear': {'factor': 'factor'},
  'llama3': {
    'factor': 'factor',
    'low_frequency_factor': 'low_freq_factor',
    'high_frequency_factor': 'high_freq_factor',
    'original_context': 'original_max_position_embeddings',
  },
}
_NEVER = {'quantization_config': (None,), 'compression_config': (None,)}
# Errors that values of wrong types or sizes raise in the code below.
_BAD_VALUES = (ArithmeticError, KeyError, TypeError, ValueError)


class Field(NamedTuple):
  """HuggingFace's form of one of our fields.

  Attributes:
    name: HuggingFace's name.
    default: value if a file lacks the field. A function computes it from the
      file's other fields, also if the value is null.
    read: converts HuggingFace's value to ours.
    write: converts our value to HuggingFace's.
  """

  name: str
  default: Any = REQUIRED
  read: Callable[[Any], Any] = lambda value: value
  write: Callable[[Any], Any] = lambda value: value


class Description(NamedTuple):
  """The `config.json` of an architecture.

  Attributes:
    architecture: its class in transformers.
    fields: our fields that are in a file, by our names.
    implied: our fields that are not in a file: values, or functions of the
      file's fields. All other fields have our defaults.
    allowed: supported values of HuggingFace's fields that we lack; the first is
      written.
    local: returns which layers are local, as a repeated pattern, from the
      file's fields; None if files have no `layer_types`.
    config: our config class.
  """

  architecture: str
  fields: dict[str, Field]
  implied: dict[str, Any] = {}
  allowed: dict[str, tuple[Any, ...]] = {}
  local: Callable[[HFConfig], list[bool]] | None = None
  config: type[Any] = config_lib.TransformerConfig


def activation(name: str) -> Field:
  """Returns the field of the activation of feed-forward layers.

  Args:
    name: HuggingFace's name of the field.
  """
  return Field(
    name,
    read=lambda value: registry.lookup(_ACTIVATIONS, 'activation', value),
    write=lambda value: next(n for n, o in _ACTIVATIONS.items() if o == value),
  )


def attention_scale(name: str) -> Field:
  """Returns the field of an integer whose inverse square root is the scale.

  Args:
    name: HuggingFace's name of the field.
  """
  return Field(
    name,
    read=lambda value: value**-0.5,
    write=lambda value: round(value**-2),
  )


def rope_scaling() -> Field:
  """Returns the field of the scaling of rotary embeddings."""
  return Field('rope_scaling', None, _read_scaling, _write_scaling)


def layer_types(hf_config: HFConfig) -> list[bool] | None:
  """Returns which layers are local, or None if a file has no `layer_types`."""
  types = hf_config.get('layer_types')
  if types is None:
    return None
  if len(types) != hf_config['num_hidden_layers']:
    raise ValueError(
      f'layer_types must have num_hidden_layers entries, got {len(types)}'
    )
  return [registry.lookup(_LAYER_TYPES, 'layer type', name) for name in types]


def read(description: Description, hf_config: HFConfig) -> config_lib.Config:
  """Translates the fields of a `config.json`.

  Args:
    description: the architecture.
    hf_config: the fields, with the names of transformers 4 or 5.

  Returns:
    The config; all rows of the embedding table count as vocabulary.

  Raises:
    ValueError: fields are missing or not supported; all of them are listed.
  """
  hf_config, problems = _with_old_names(description, hf_config)
  for name, allowed in (description.allowed | _NEVER).items():
    value = hf_config.get(name)
    if value not in allowed:
      problems.append(f'{name} must be {allowed[0]!r}, got {value!r}')
  collect = functools.partial(_collect, problems)
  fields = {
    name: collect(name, _read_field, field, hf_config)
    for name, field in description.fields.items()
  }
  for name, value in description.implied.items():
    is_function = callable(value)
    fields[name] = collect(name, value, hf_config) if is_function else value
  local_fields = collect('layer_types', _local_fields, description, hf_config)
  fields |= local_fields or {}
  if not problems:
    config = collect('it', description.config, **fields)
  if problems:
    raise ValueError('; '.join(dict.fromkeys(problems)))
  return config


def write(
  description: Description, config: config_lib.Config
) -> dict[str, Any] | None:
  """Returns the fields of a `config.json`, or None if it cannot express them.

  Args:
    description: the HuggingFace architecture.
    config: our architecture. Padding of its table counts as vocabulary.
  """
  if not isinstance(config, description.config):
    return None
  config = _canonical(config)
  hf_config: dict[str, Any] = {
    name: values[0]
    for name, values in description.allowed.items()
    if values[0] is not None
  }
  hf_config['architectures'] = [description.architecture]
  for name, field in description.fields.items():
    hf_config[field.name] = field.write(getattr(config, name))
  if description.local is not None and isinstance(
    config, config_lib.TransformerConfig
  ):
    names = {local: name for name, local in _LAYER_TYPES.items()}
    hf_config |= {
      'sliding_window': config.sliding_window,
      'use_sliding_window': config.sliding_window is not None,
      'layer_types': [names[local] for local in config.local_layers],
    }
  try:
    is_equal = _canonical(read(description, hf_config)) == config
  except ValueError:
    return None
  return hf_config if is_equal else None


def _collect(
  problems: list[str],
  name: str,
  step: Callable[..., Any],
  *args: Any,
  **kwargs: Any,
) -> Any:
  """Runs a step of reading and adds its error, if any, to `problems`.

  Args:
    problems: descriptions of errors.
    name: name of the field that is read.
    step: the function.
    *args: its arguments.
    **kwargs: its keyword arguments.

  Returns:
    The result of the step, or None.
  """
  try:
    return step(*args, **kwargs)
  except _BAD_VALUES as error:
    message = str(error).removesuffix('.')
    is_complete = type(error) is ValueError
    problems.append(
      message if is_complete else f'{name} cannot be read ({message})'
    )
    return None


def _read_field(field: Field, hf_config: HFConfig) -> Any:
  """Returns our value of a field."""
  return field.read(_value(field, hf_config))


def _value(field: Field, hf_config: HFConfig) -> Any:
  """Returns HuggingFace's value of a field, or its default."""
  value = hf_config.get(field.name)
  is_computed = callable(field.default)
  if value is not None or (field.name in hf_config and not is_computed):
    return value
  if field.default is REQUIRED:
    raise ValueError(f'{field.name} is missing')
  return field.default(hf_config) if is_computed else field.default


def _with_old_names(
  description: Description, hf_config: HFConfig
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields with the names of transformers 4, and problems.

  Problems are settings of transformers 5 that have no such names.
  """
  flat = dict(hf_config)
  # As in transformers, the old name comes first.
  name = 'rope_scaling' if flat.get('rope_scaling') else 'rope_parameters'
  rope = flat.get(name) or {}
  flat.pop('rope_parameters', None)
  # Since transformers 5 the old field of T5 is always true.
  if 'scale_decoder_outputs' in flat:
    flat['tie_word_embeddings'] = flat['scale_decoder_outputs']
  problems = []
  if isinstance(rope, dict) and isinstance(rope.get('full_attention'), dict):
    local, rope = rope.get('sliding_attention') or {}, rope['full_attention']
    if 'rope_theta' in local:
      flat['rope_local_base_freq'] = local['rope_theta']
    if _read_scaling(local) is not None:
      problems.append(f'positions of local layers are stretched ({local})')
  if not isinstance(rope, dict):
    return flat, [f'{name} cannot be read ({rope!r})']
  rope = dict(rope)
  for field, new_name in _ROPE_PARAMETERS.items():
    if new_name in rope:
      old_name = description.fields.get(field, Field(new_name)).name
      flat[old_name] = rope.pop(new_name)
  context = flat.get(_ORIGINAL_CONTEXT)
  if rope and context is not None:
    rope[_ORIGINAL_CONTEXT] = context
  flat['rope_scaling'] = rope
  return flat, problems


def _local_fields(
  description: Description, hf_config: HFConfig
) -> dict[str, Any]:
  """Returns our fields of local layers, if there are any."""
  local = [] if description.local is None else description.local(hf_config)
  if not any(local):
    return {}
  window = _value(Field('sliding_window'), hf_config)
  return {'sliding_window': window, 'local_layers': tuple(local)}


def _canonical(config: Any) -> Any:
  """Returns the form of a config that is unique among equal architectures."""
  plain = {'vocab_size': config.table_size, 'padded_vocab_size': None}
  if not isinstance(config, config_lib.TransformerConfig):
    return dataclasses.replace(config, **plain)
  local = tuple(config.is_local(i) for i in range(config.num_layers))
  return dataclasses.replace(
    config,
    **plain,
    attention_scale=config.product_scale,
    sliding_window=config.sliding_window if any(local) else None,
    local_layers=local,
    local_rope_theta=config.local_rope_theta if any(local) else None,
  )


def _read_scaling(scaling: Any) -> config_lib.RopeScaling | None:
  """Converts HuggingFace's `rope_scaling`."""
  if scaling is None:
    return None
  if not isinstance(scaling, dict):
    raise ValueError(f'rope_scaling must be an object, got {scaling!r}')
  kind = scaling.get('rope_type', scaling.get('type', 'default'))
  if kind == 'default':
    return None
  if kind == 'longrope':
    return _read_longrope(scaling)
  names = registry.lookup(_SCALINGS, 'rope scaling', str(kind))
  missing = [name for name in names.values() if name not in scaling]
  if missing:
    raise ValueError(f'rope_scaling lacks {", ".join(missing)}')
  return config_lib.RopeScaling(
    kind=str(kind),
    **{name: scaling[hf_name] for name, hf_name in names.items()},
  )


def _read_longrope(scaling: Mapping[str, Any]) -> config_lib.RopeScaling:
  """Converts one factor per frequency, equal for short and long texts."""
  factors: Any = scaling.get('short_factor')
  is_equal = scaling.get('long_factor') == factors
  if not is_equal or scaling.get('attention_factor') != 1:
    raise ValueError(
      "Unsupported rope scaling 'longrope': short_factor and long_factor must "
      'be equal, and attention_factor 1'
    )
  return config_lib.RopeScaling('factors', 1.0, factors=tuple(factors))


def _write_scaling(
  scaling: config_lib.RopeScaling | None,
) -> dict[str, Any] | None:
  """Returns HuggingFace's `rope_scaling`; inverts `_read_scaling`."""
  if scaling is None:
    return None
  if scaling.kind == 'factors':
    factors = [scaling.factor * factor for factor in scaling.factors]
    return {
      'rope_type': 'longrope',
      'short_factor': factors,
      'long_factor': factors,
      'attention_factor': 1.0,
      'original_max_position_embeddings': scaling.original_context,
    }
  fields = {
    hf_name: getattr(scaling, name)
    for name, hf_name in _SCALINGS[scaling.kind].items()
  }
  return {'rope_type': scaling.kind, **fields}
