"""Draft models whose vocabulary differs from the target's.

Two models with one tokenizer may pad their vocabularies to different sizes
(`resize`). Two tokenizers share some of their tokens, which the draft model
may then propose (`intersect`).
"""

from collections.abc import Mapping
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax.data import prompt_format
from specjax.models import layers
from specjax.models import wrappers


class _VocabularyWrapper(wrappers.ModelWrapper):
  """A model that reads and predicts tokens of another vocabulary.

  Subclasses convert tokens and logits.
  """

  def prefill(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[base.Cache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`."""
    return self.model.prefill(params, cache, self._inputs(tokens), lengths)

  def extend(
    self,
    params: base.Params,
    cache: base.Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: base.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> base.ModelOutput:
    """See `LanguageModel.extend`."""
    output = self.model.extend(
      params,
      cache,
      self._inputs(tokens),
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )
    return output._replace(logits=self._outputs(output.logits))

  def exit(self, num_layers: int) -> base.LanguageModel:
    """See `LanguageModel.exit`."""
    return dataclasses.replace(self, model=self.model.exit(num_layers))

  def _inputs(self, tokens: jax.Array) -> jax.Array:
    """Returns the tokens that the wrapped model reads."""
    raise NotImplementedError

  def _outputs(self, logits: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` logits, given those of the wrapped model."""
    raise NotImplementedError


@components.component
class ResizedVocabulary(_VocabularyWrapper):
  """A model with a larger or smaller vocabulary than the wrapped model.

  Additional tokens have probability 0, and the wrapped model reads its last
  token in their place. The mass of removed tokens goes to the others.

  Attributes:
    model: the wrapped model.
    vocab_size: `V`.
  """

  vocab_size: int = components.static()

  def _inputs(self, tokens: jax.Array) -> jax.Array:
    return jnp.minimum(tokens, self.model.vocab_size - 1)

  def _outputs(self, logits: jax.Array) -> jax.Array:
    return jnp.pad(
      logits[..., : self.vocab_size],
      ((0, 0), (0, 0), (0, max(0, self.vocab_size - self.model.vocab_size))),
      constant_values=-jnp.inf,
    )


@dataclasses.dataclass(frozen=True)
class Translation:
  """Token ids of a draft model for each token of the target's vocabulary.

      target's token    ' the'   'a'   ' year'   end
      draft's token     ' the'   'a'       'r'   end
      inputs                 2     1         3     4
      outputs                2     1        -1     4

  Attributes:
    inputs: `[V]` ids that the draft model reads in place of the target's.
    outputs: `[V]` ids of the same tokens, -1 for tokens that the draft model
      lacks.

  Raises:
    ValueError: the tables have different lengths, have other ids, or share no
      token.
  """

  inputs: tuple[int, ...]
  outputs: tuple[int, ...]

  def __post_init__(self) -> None:
    if len(self.inputs) != len(self.outputs):
      raise ValueError(
        'inputs and outputs must have equal lengths, got '
        f'{len(self.inputs)} and {len(self.outputs)}.'
      )
    if min(self.inputs) < 0:
      raise ValueError(f'inputs must be >= 0, got {min(self.inputs)}.')
    if max(self.outputs) < 0:
      raise ValueError('outputs must have a shared token, got none.')

  def __hash__(self) -> int:
    return self._hash

  @functools.cached_property
  def _hash(self) -> int:
    # A decoder looks its programs up by this hash in every call, and the hash
    # of two tuples of 150,000 ids takes some milliseconds.
    return hash((self.inputs, self.outputs))

  @functools.cached_property
  def largest_id(self) -> int:
    """Returns the largest id of the draft model."""
    return max(*self.inputs, *self.outputs)


@components.component
class TranslatedVocabulary(_VocabularyWrapper):
  """A model that drafts the tokens which its vocabulary shares with another.

  This is token-level intersection (TLI; Timor et al. 2025, arXiv:2502.05202,
  Section 4). Tokens of the target that the model lacks have probability 0,
  and the mass of the model's other tokens goes to the shared ones. A draft is
  drawn from exactly this distribution, which is also the one that verification
  divides by, so every verifier stays exact at any temperature.

  Attributes:
    model: the wrapped model.
    translation: its token ids for those of the target.

  Raises:
    ValueError: the translation has ids outside of the model's vocabulary.
  """

  translation: Translation = components.static()

  def __post_init__(self) -> None:
    checks.check_range(
      'ids of translation',
      self.translation.largest_id,
      0,
      self.model.vocab_size - 1,
    )

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    return len(self.translation.inputs)

  @functools.cached_property
  def start_id(self) -> int | None:
    """See `LanguageModel.start_id`."""
    return self._read_as(self.model.start_id)

  @functools.cached_property
  def mask_token(self) -> int | None:
    """See `LanguageModel.mask_token`."""
    return self._read_as(self.model.mask_token)

  def _inputs(self, tokens: jax.Array) -> jax.Array:
    return jnp.asarray(self.translation.inputs, jnp.int32)[tokens]

  def _outputs(self, logits: jax.Array) -> jax.Array:
    rows = jnp.asarray(self.translation.outputs, jnp.int32)
    return layers.take_logits(logits, rows)

  def _read_as(self, token: int | None) -> int | None:
    """Returns a token that the wrapped model reads as one of its own."""
    if token not in self.translation.inputs:
      return None
    return self.translation.inputs.index(token)


def resize(model: base.LanguageModel, vocab_size: int) -> base.LanguageModel:
  """Returns the model, or a `ResizedVocabulary` if the sizes differ.

  Args:
    model: a model with the same tokens, except for padding.
    vocab_size: `V` of the result.
  """
  if vocab_size == model.vocab_size:
    return model
  return ResizedVocabulary(model, vocab_size)


def intersect(
  model: base.LanguageModel,
  texts: Mapping[int, bytes | str],
  target_texts: Mapping[int, bytes | str],
  vocab_size: int,
  names: str,
) -> TranslatedVocabulary:
  """Returns a model that drafts for a target with another tokenizer.

  The context may have tokens that the model lacks. Each is read as the model's
  token for its longest suffix, since the next token depends most on the
  characters right before it. If there is none, as for special tokens, it is
  read as the token that ends a response. Thus one token is read per token of
  the target: KV caches have the target's lengths, and nothing is encoded again.

  Args:
    model: the draft model.
    texts: texts of its tokens, from `Tokenizer.token_texts`. Of tokens with
      equal texts, the first one counts.
    target_texts: texts of the target's tokens.
    vocab_size: `V` of the target, whose vocabulary may be padded.
    names: names of both models, for the error.

  Raises:
    ValueError: the vocabularies share no token other than special ones.
  """
  ids, target_ids = _first_ids(texts), _first_ids(target_texts)
  if not any(isinstance(text, bytes) for text in ids.keys() & target_ids):
    raise ValueError(
      f'{names} must share tokens other than special ones, but their '
      f'{len(target_ids)} and {len(ids)} tokens all differ.'
    )
  inputs = [ids[prompt_format.END]] * vocab_size
  outputs = [-1] * vocab_size
  for token, text in target_texts.items():
    if token < vocab_size:
      inputs[token] = _suffix_id(text, ids)
      if target_ids[text] == token:
        outputs[token] = ids.get(text, -1)
  return TranslatedVocabulary(model, Translation(tuple(inputs), tuple(outputs)))


def _first_ids(texts: Mapping[int, bytes | str]) -> dict[bytes | str, int]:
  """Returns the first of the tokens with a text, for each text."""
  ids: dict[bytes | str, int] = {}
  for token, text in texts.items():
    ids.setdefault(text, token)
  return ids


def _suffix_id(text: bytes | str, ids: Mapping[bytes | str, int]) -> int:
  """Returns the token for the longest suffix of a text, or else the end."""
  # The suffix of a special token is its whole name.
  starts = range(1) if isinstance(text, str) else range(len(text))
  suffixes = (text[start:] for start in starts)
  known = (ids[suffix] for suffix in suffixes if suffix in ids)
  return next(known, ids[prompt_format.END])
