"""How prompts and more text enter a decode: validation, prefill, append.

The target reads every prompt except its last token, which is the next input;
drafters read what they need. With a warm start, the bandit learns from the last
tokens of the prompts before the first round.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from specjax import allocation
from specjax import base
from specjax import buckets
from specjax import checks
from specjax import components
from specjax import sampling as sampling_lib
from specjax.decoding import feedback as feedback_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib

# Seeds and request ids are folded into keys as 32 bits.
_MAX_UINT32 = 2**32 - 1


@components.component
class Setup:
  """What the programs of a decoder are compiled for.

  Attributes:
    round_fn: the round.
    max_length: longest row in tokens, prompt included.
    warm_start: number of last tokens of a prompt that the bandit learns from.
  """

  round_fn: round_lib.Round
  max_length: int = components.static()
  warm_start: int = components.static(default=0)


# Validation, on the host.


class Requests(NamedTuple):
  """Valid prompts of a batch."""

  prompts: list[list[int]]
  limits: np.ndarray  # [B] int32, longest length of each row
  ids: np.ndarray  # [B] uint32


def is_several(values: Any) -> bool:
  """Returns whether there is not just one number, nor an array without axes."""
  is_array_of_one = getattr(values, 'shape', None) == ()
  return isinstance(values, Iterable) and not is_array_of_one


def check_request_ids(request_ids: Any) -> None:
  """Raises `ValueError` for one number instead of one for each prompt."""
  if request_ids is not None and not is_several(request_ids):
    raise ValueError(
      f'request_ids must be one for each prompt, got {request_ids!r}.'
    )


def check_prompts(
  target: base.LanguageModel,
  max_length: int,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int | Sequence[int],
  request_ids: Sequence[int] | None = None,
  first_number: int = 0,
) -> Requests:
  """Returns the requests for a batch of prompts, if all of them are valid.

  Args:
    target: the model to sample from.
    max_length: longest row in tokens, prompt included.
    prompts: token ids of each prompt, or an integer array `[B, T]`.
    max_new_tokens: how many tokens to emit at most: one number, or one for
      each prompt.
    request_ids: a number for each prompt; 0, 1, ... if None.
    first_number: number of the first prompt, in error messages.

  Raises:
    ValueError: an argument has the wrong type or shape, or is out of range.
  """
  checked = _check_tokens('prompts', prompts, target.vocab_size, first_number)
  num_prompts = len(checked)
  num_new = _per_prompt('max_new_tokens', max_new_tokens, num_prompts)
  ids = np.arange(num_prompts)
  check_request_ids(request_ids)
  if request_ids is not None:
    ids = _per_prompt(
      'request_ids', list(request_ids), num_prompts, _MAX_UINT32
    )
  for i, (prompt, num) in enumerate(zip(checked, num_new), first_number):
    _check_source(f'prompts[{i}]', prompt, target.start_id)
    if len(prompt) + num > max_length:
      raise ValueError(
        f'prompts[{i}] has {len(prompt)} tokens; with max_new_tokens='
        f'{num} it exceeds max_length={max_length}.'
      )
  lengths = np.array([len(prompt) for prompt in checked])
  limits = (lengths + num_new).astype(np.int32)
  return Requests(checked, limits, ids.astype(np.uint32))


def check_texts(
  target: base.LanguageModel,
  max_length: int,
  texts: Sequence[Sequence[int]],
  max_new_tokens: int | Sequence[int],
  lengths: np.ndarray,
) -> Requests:
  """Returns the requests for text that is appended to rows, if it is valid.

  Args:
    target: the model to sample from.
    max_length: longest row in tokens.
    texts: token ids to append to each row.
    max_new_tokens: how many tokens to emit at most after them: one number, or
      one for each row.
    lengths: `[B]` of the rows so far.

  Raises:
    ValueError: an argument has the wrong type or shape, or is out of range; or
      the target is an encoder-decoder.
  """
  if target.start_id is not None:
    raise ValueError(
      'An encoder-decoder cannot be continued: its source ends where its '
      'answer begins.'
    )
  if len(texts) != len(lengths):
    raise ValueError(
      f'texts must be one for each of {len(lengths)} rows, got {len(texts)}.'
    )
  checked = _check_tokens('texts', texts, target.vocab_size)
  num_new = _per_prompt('max_new_tokens', max_new_tokens, len(checked))
  limits = lengths + [len(text) for text in checked] + num_new
  if limits.max() > max_length:
    row = int(limits.argmax())
    raise ValueError(
      f'texts[{row}] has {len(checked[row])} tokens; after a row of '
      f'{lengths[row]}, with max_new_tokens={num_new[row]}, it exceeds '
      f'max_length={max_length}.'
    )
  return Requests(checked, limits.astype(np.int32), np.arange(len(checked)))


def warn_beyond_positions(
  target: base.LanguageModel, arms: Sequence[base.Arm], requests: Requests
) -> None:
  """Warns if rows may outgrow the positions that a model was trained for."""
  longest = int(requests.limits.max())
  positions = {'target': target.max_length}
  positions |= {
    f'drafter of arm {i}': arm.drafter.max_length for i, arm in enumerate(arms)
  }
  for name, max_length in positions.items():
    if max_length is not None and max_length < longest:
      warnings.warn(
        f'A row may grow to {longest} tokens, but the model of the {name} was '
        f'trained for {max_length} positions (its max_length): past them, its '
        'predictions may be poor.',
        stacklevel=3,
      )


def check_seed(seed: int) -> None:
  """Raises `ValueError` unless a seed is an unsigned integer of 32 bits."""
  if np.ndim(seed):
    raise ValueError(f'seed must be one integer, got {seed!r}.')
  checks.check_integers('seed', np.asarray(seed), 0, _MAX_UINT32)


def check_is_encoded(name: str, texts: Any) -> None:
  """Raises `ValueError` if a string is given instead of token ids."""
  if isinstance(texts, str):
    raise ValueError(
      f'{name} must be a list of lists of token ids, got the text '
      f'{texts!r}: encode it first.'
    )


def _check_tokens(
  name: str, texts: Any, vocab_size: int, first_number: int = 0
) -> list[list[int]]:
  """Returns token ids of several texts, if they are valid."""
  check_is_encoded(name, texts)
  if not len(texts):
    raise ValueError(f'{name} must hold at least one prompt, got none.')
  return [
    check_text(f'{name}[{i}]', text, vocab_size)
    for i, text in enumerate(texts, first_number)
  ]


def check_text(name: str, text: Any, vocab_size: int) -> list[int]:
  """Returns token ids of one text, if they are valid."""
  if isinstance(text, str):
    raise ValueError(
      f'{name} must be a list of token ids, got the text {text!r}: encode it '
      'first.'
    )
  try:
    tokens = np.asarray(text)
  except ValueError:  # Lists of different lengths.
    tokens = np.zeros((0, 0))
  if tokens.ndim != 1:
    raise ValueError(f'{name} must be a list of token ids, got {text!r}.')
  if not tokens.size:
    raise ValueError(f'{name} must not be empty.')
  if not np.issubdtype(tokens.dtype, np.integer):
    value = next(value for value in text if not _is_integer(value))
    raise ValueError(f'{name} must hold integers, got {value!r}.')
  if not 0 <= tokens.min() <= tokens.max() < vocab_size:
    raise ValueError(
      f'{name} must hold tokens in [0, {vocab_size}), got {tokens.min()} to '
      f'{tokens.max()}.'
    )
  return tokens.tolist()


def _is_integer(value: Any) -> bool:
  return np.issubdtype(np.asarray(value).dtype, np.integer)


def _per_prompt(
  name: str, values: Any, num: int, most: float = np.inf
) -> np.ndarray:
  """Returns `[num]` integers, given one, or one for each prompt.

  Args:
    name: name of the argument, for the error.
    values: at least 0.
    num: number of prompts.
    most: largest allowed value.
  """
  array = np.asarray(values)
  checks.check_integers(name, array, 0, most)
  if array.shape not in ((), (num,)):
    raise ValueError(
      f'{name} must be one for each of {num} prompts, got {array.size}.'
    )
  return np.broadcast_to(array, num)


def _check_source(name: str, prompt: list[int], start_id: int | None) -> None:
  """Raises `ValueError` unless an encoder-decoder can split a prompt."""
  if start_id is None:
    return
  if len(prompt) < 2 or [*prompt, start_id].index(start_id) != len(prompt) - 1:
    raise ValueError(
      f'{name} must be a source and then the start token {start_id}, once, got '
      f'{prompt}.'
    )


# Prefill.


class PromptBatch(NamedTuple):
  """Prompts of a batch or of a queue, as arrays or their shapes."""

  tokens: Any  # [B, T] int32, each row padded at the end
  lengths: Any  # [B] int32
  limits: Any  # [B] int32, lengths at which rows are done
  ids: Any  # [B] uint32; a row's keys come from its id and the seed


def bucket_width(longest: int, max_length: int) -> int:
  """Returns the width of a batch: a power of two, so that programs are shared.

  Args:
    longest: tokens of the longest prompt.
    max_length: longest row, which the width never exceeds.
  """
  enough = 1 << (longest - 1).bit_length()
  return min(max_length, max(buckets.MIN_WIDTH, enough))


def pad(requests: Requests, width: int, num_rows: int = 0) -> PromptBatch:
  """Returns requests as arrays, `width` wide, of at least `num_rows` rows."""
  num = len(requests.prompts)
  tokens = np.zeros((max(num, num_rows), width), np.int32)
  for row, prompt in zip(tokens, requests.prompts):
    row[: len(prompt)] = prompt
  lengths = np.array([len(prompt) for prompt in requests.prompts], np.int32)
  missing = (0, len(tokens) - num)
  return PromptBatch(
    tokens=tokens,
    lengths=np.pad(lengths, missing),
    limits=np.pad(requests.limits, missing),
    ids=np.pad(requests.ids, missing),
  )


def prefill(
  setup: Setup,
  params: state_lib.Params,
  batch: PromptBatch,
  seed: jax.Array,
  stop_tokens: jax.Array,
  bandit_state: base.BanditState,
) -> state_lib.DecodeState:
  """Reads prompts; returns the state before the first round.

  Args:
    setup: of the decoder.
    params: of all models.
    batch: the prompts.
    seed: `[]` uint32; all randomness comes from it and from request ids.
    stop_tokens: `[E]` tokens that end a row.
    bandit_state: initial state of the batch's bandit, or with a leading axis of
      rows.
  """
  round_fn = setup.round_fn
  row_key, bandit_key = _keys(seed)
  # The key of a batch's bandit comes from the first row's id.
  bandit_keys = sampling_lib.row_keys(bandit_key, batch.ids)
  num_left = jnp.minimum(setup.warm_start, batch.lengths - 1)
  lengths = batch.lengths - num_left
  # Dynamic updates clamp silently at the end of a buffer, so the widest write
  # of a round must fit after the longest row.
  depth = max(drafter.topology.depth for drafter in round_fn.drafters)
  size = setup.max_length + depth + 1
  num_rows = len(batch.lengths)
  cache = round_fn.target.init_cache(
    params.target, num_rows, allocation.round_up_slots(size)
  )
  cache, features = round_fn.target.prefill(
    params.target, cache, batch.tokens, lengths - 1
  )
  taps = sorted({tap for taps in round_fn.taps for tap in taps})
  state = state_lib.DecodeState(
    tokens=_pad_to(batch.tokens, size),
    lengths=lengths,
    limits=batch.limits,
    done=lengths >= batch.limits,
    keys=sampling_lib.row_keys(row_key, batch.ids),
    stop_tokens=stop_tokens,
    target=cache,
    features={tap: _pad_to(features[tap], size) for tap in taps},
    drafters=tuple(
      round_fn.drafters[slot.owner].init(
        params.drafters[slot.owner],
        base.Context(
          batch.tokens,
          lengths,
          tuple(features[tap] for tap in round_fn.taps[slot.owner]),
        ),
        setup.max_length,
      )
      for slot in round_fn.slots
    ),
    bandit=bandit_state,
    bandit_key=bandit_keys if round_fn.per_row else bandit_keys[0],
    **state_lib.initial_sums(
      num_rows, len(round_fn.drafters), len(round_fn.slots), depth
    ),
  )
  if not setup.warm_start:
    return state
  num_tokens = min(setup.warm_start, batch.tokens.shape[1])
  return _warm_start(round_fn, params, state, batch.lengths, num_tokens)


def _keys(seed: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the keys from which rows' and bandits' keys are derived."""
  # With this generator, a key gives the same numbers in and out of `vmap`.
  row_key, bandit_key = jax.random.split(
    jax.random.key(seed, impl='threefry2x32')
  )
  return row_key, bandit_key


def _pad_to(rows: jax.Array, size: int) -> jax.Array:
  """Pads `[B, T, ...]` to `[B, size, ...]`."""
  width = rows.shape[1]
  return jnp.pad(rows, [(0, 0), (0, size - width)] + [(0, 0)] * (rows.ndim - 2))


# Append.


@functools.partial(jax.jit, donate_argnames='state')
def append(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  tokens: jax.Array,
  num: jax.Array,
  limits: jax.Array,
) -> state_lib.DecodeState:
  """Appends text to rows; models read only what they have not read yet.

  Args:
    round_fn: the round of the state.
    params: of all models.
    state: donated.
    tokens: `[B, T]` int32, each row padded at the end. The buffer must have `T`
      free positions after the longest row.
    num: `[B]` number of tokens in each row.
    limits: `[B]` lengths at which rows are done.

  Returns:
    The state, whose rows go on unless they have reached their limits.
  """
  state = state.replace(
    tokens=state_lib.write(state.tokens, tokens, state.lengths), limits=limits
  )
  state, _ = extend_rows(
    round_fn, params, state, state.lengths + num, tokens.shape[1]
  )
  drafters = list(state.drafters)
  for i, slot in enumerate(round_fn.slots):
    drafter = round_fn.drafters[slot.owner]
    if drafter.can_catch_up:
      drafters[i], _ = drafter.catch_up(
        params.drafters[slot.owner],
        drafters[i],
        state_lib.drafter_context(state, round_fn.taps[slot.owner]),
        num > 0,
      )
  return state.replace(drafters=tuple(drafters))


def extend_rows(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  lengths: jax.Array,
  num_tokens: int,
) -> tuple[state_lib.DecodeState, jax.Array]:
  """Commits tokens that the buffer holds past its rows; the target reads them.

  Args:
    round_fn: the round of the state.
    params: of all models.
    state: its target has read all committed tokens except the last.
    lengths: `[B]` new lengths of the rows.
    num_tokens: `P`, by which no row grows more.

  Returns:
    The state, and `[B, P, V]` logits at the new positions, then undefined.
  """
  start, index = state.lengths, np.arange(num_tokens)
  positions = start[:, None] - 1 + index[None]
  tokens = jnp.take_along_axis(state.tokens, positions, axis=1, mode='clip')
  extension = round_fn.target.extend(params.target, state.target, tokens)
  path = jnp.broadcast_to(index, tokens.shape)
  state = state.replace(
    lengths=lengths,
    done=lengths >= state.limits,
    target=round_fn.target.commit(
      state.target, extension.pending_kv, path, lengths - start
    ),
    features={
      tap: state_lib.write(buffer, extension.features[tap], start - 1)
      for tap, buffer in state.features.items()
    },
  )
  return state, extension.logits


# Warm start.


def check_warm_start(round_fn: round_lib.Round, num_tokens: int) -> None:
  """Raises `ValueError` unless the bandit of a round can learn from prompts.

  Args:
    round_fn: the round.
    num_tokens: last tokens of a prompt that it learns from; 0 for no warm
      start.
  """
  if not num_tokens:
    return
  if round_fn.reward is None:
    raise ValueError(
      f'warm_start={num_tokens} needs a reward to learn from, got none.'
    )
  for is_wrong, reason in (
    (
      not round_fn.bandit.learns_from_rewards,
      'a bandit that does not learn from rewards',
    ),
    (round_fn.target.start_id is not None, 'an encoder-decoder, which encodes'),
    (
      any(arm.goal is not None for arm in round_fn.arms),
      'goals but the target',
    ),
    (
      not all(arm.verifier.is_lossless for arm in round_fn.arms),
      'lossy verifiers, since estimates are those of lossless decoding',
    ),
    (
      any(not drafter.can_estimate for drafter in round_fn.drafters),
      'drafters that cannot estimate how likely their drafts are accepted',
    ),
    (
      any(drafter.has_stop_rule for drafter in round_fn.drafters),
      'stop rules, since estimates are those of whole drafts',
    ),
    (
      round_fn.sampling.shared_noise,
      'shared noise, since estimates are those of independent draws',
    ),
  ):
    if is_wrong:
      raise ValueError(f'warm_start must be 0 with {reason}, got {num_tokens}.')


def _warm_start(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  lengths: jax.Array,
  num_tokens: int,
) -> state_lib.DecodeState:
  """Reads the last tokens of prompts, and updates the bandit from them.

  The target's probabilities there, compared with those of the drafters, show
  which reward every arm would have received.

  Args:
    round_fn: the round of the state.
    params: of all models.
    state: models have read all but the last tokens of each row.
    lengths: `[B]` of the whole prompts.
    num_tokens: `P`, the most tokens that are left in a row.
  """
  start = state.lengths
  assert round_fn.reward is not None  # `check_warm_start` has checked it.
  state = state.replace(bandit=round_lib.read_text(round_fn, state))
  state, logits = extend_rows(round_fn, params, state, lengths, num_tokens)
  probs = sampling_lib.both_probs(logits, round_fn.sampling)
  rows = jnp.ones((len(round_fn.slots), len(start)), bool)
  state, _, by_slot = round_lib.estimate(
    round_fn, params, state, rows, base.TargetProbs(start, probs)
  )
  acceptance = jax.tree.map(lambda *slots: jnp.stack(slots, axis=1), *by_slot)
  num_read = lengths - start
  known = jnp.arange(num_tokens)[None] < num_read[:, None]
  known = jnp.broadcast_to(known[:, None], acceptance.processed.shape)
  history = feedback_lib.update_history(state.history, acceptance, known)
  rewards = feedback_lib.arm_rewards(
    round_fn.reward,
    _empty_report(start, state.counters.accepted.shape[1]),
    acceptance,
    known,
    history,
    round_fn.drafters,
    round_fn.slot_of_arm,
    num_starts=num_tokens,
  )
  bandit = feedback_lib.update_bandit_with_all_rewards(
    round_fn.bandit, round_fn.per_row, state.bandit, num_read > 0, rewards
  )
  return state.replace(history=history, bandit=bandit)


def _empty_report(lengths: jax.Array, depth: int) -> base.RoundInfo:
  """Returns the report of a round without tokens."""
  zeros = jnp.zeros_like(lengths)
  zero_floats = zeros.astype(jnp.float32)
  return base.RoundInfo(
    arm=zeros,
    live=zeros == 0,
    tokens=jnp.zeros((len(lengths), depth + 1), jnp.int32),
    num_emitted=zeros,
    num_accepted=zeros,
    depth=zeros,
    tree_depth=zeros,
    acceptance=zero_floats,
    raw_acceptance=zero_floats,
    fidelity=zero_floats + 1,
    num_catch_up_tokens=zeros,
  )
