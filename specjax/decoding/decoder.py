"""The host's side of decoding: lists of prompts in, lists of results out."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
from typing import Any

import jax
import numpy as np

from specjax import bandits
from specjax import base
from specjax import checks
from specjax import meshes
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax.decoding import drivers
from specjax.decoding import queues as queues_lib
from specjax.decoding import reading
from specjax.decoding import refill
from specjax.decoding import requests
from specjax.decoding import results as results_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib
from specjax.decoding import turns
from specjax.decoding import warm_start as warm_start_lib

# Tokens that rows are continued with at once.
_CHUNKS = (16, 64, 256)
# Stop tokens that a program has room for; more of them take another one.
_STOP_TOKENS = 8


class Decoder:
  """Decodes prompts with one compiled loop.

  A prompt's output depends on the prompt, the seed and its request id alone,
  not on the other prompts of the batch. Batches of one shape share a compiled
  program, whatever `max_new_tokens`, the stop tokens and the arm of `Fixed`
  are; so do decoders that are built of equal parts.
  """

  def __init__(
    self,
    target: base.LanguageModel,
    target_params: base.Params,
    arms: Sequence[tuple[base.Arm, base.Params]],
    *,
    bandit: base.Bandit | None = None,
    reward: base.Reward | None = rewards.Emitted(),
    sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
    stop_tokens: Sequence[int] = (),
    max_length: int = 512,
    per_row: bool = False,
    catch_up: str = 'lazy',
    warm_start: int = 0,
  ):
    """Builds the round; nothing is compiled yet.

    Arms that draft with the same model and parameters share one cache.

    Args:
      target: the model to sample from.
      target_params: its parameters.
      arms: each way to play a round, with its drafter's parameters.
      bandit: the rule that picks among them; the first arm always, by default.
      reward: what the bandit learns from; None if it only learns in `stream`,
        from real clocks.
      sampling: how the target's tokens are drawn.
      stop_tokens: tokens that end a row; they are emitted.
      max_length: longest row in tokens, prompt included.
      per_row: every row has a bandit of its own, instead of one for the batch.
      catch_up: 'lazy' or 'always', as in `make_round`.
      warm_start: how many of a prompt's last tokens the bandit learns from
        before the first round: how likely drafts would be accepted there.
    """
    if not arms:
      raise ValueError('arms must hold at least one arm, got none.')
    if max_length < 2:
      raise ValueError(f'max_length must be >= 2, got {max_length}.')
    self._arms = tuple(arm for arm, _ in arms)
    self._params = state_lib.Params(target_params, tuple(p for _, p in arms))
    self._bandit = bandit or bandits.Fixed(len(arms))
    self._stop_tokens = _stop_tokens(stop_tokens)
    self.round_fn = round_lib.make_round(
      target,
      self._arms,
      self._bandit,
      reward,
      sampling,
      per_row=per_row,
      catch_up=catch_up,
      slots=_slots(arms),
    )
    starts = _warm_start(self.round_fn, warm_start, bandit)
    self._setup = reading.Setup(self.round_fn, max_length, starts)

  @property
  def params(self) -> state_lib.Params:
    """Parameters of all models, as the drivers take them."""
    return self._params

  def init(
    self,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int | Sequence[int],
    *,
    seed: int = 0,
    request_ids: Sequence[int] | None = None,
    bandit_state: Any = None,
  ) -> state_lib.DecodeState:
    """Reads prompts into a state for the drivers.

    Args:
      prompts: token ids of each prompt.
      max_new_tokens: how many tokens to emit at most, for all or for each.
      seed: of everything random.
      request_ids: a number for each prompt; its row's randomness comes from
        seed and number alone. 0, 1, ... by default.
      bandit_state: `state.bandit` of earlier prompts, which is carried over; by
        default the bandit starts anew.

    Raises:
      ValueError: a prompt is empty, too long or holds something else than
        tokens of the vocabulary, or another argument does not fit.
    """
    requests.check_seed(seed)
    asked = requests.read(
      self._setup.plan.target,
      self._setup.max_length,
      prompts,
      max_new_tokens,
      request_ids,
    )
    requests.warn_beyond_positions(self.round_fn.target, self._arms, asked)
    longest = max(map(len, asked.prompts))
    return _begin(
      self._setup,
      self._params,
      reading.padded(asked, reading.width(longest, self._setup.max_length)),
      np.uint32(seed),
      self._stop_tokens,
      self._bandit_state(bandit_state, len(asked.prompts)),
    )

  def trace_init(self, batch_size: int) -> jax.stages.Traced:
    """Returns the program of `init` for so many prompts of one token.

    Nothing is computed, and parameters may be abstract. The state that `decode`
    takes has the shapes of its `out_info`, whatever the prompts.
    """
    array = jax.ShapeDtypeStruct
    each = array((batch_size,), np.int32)
    return _begin.trace(
      self._setup,
      self._params,
      reading.Prompts(
        array((batch_size, 1), np.int32),
        each,
        each,
        array((batch_size,), np.uint32),
      ),
      array((), np.uint32),
      array(self._stop_tokens.shape, np.int32),
      self._bandit_state(None, batch_size),
    )

  def append(
    self,
    state: state_lib.DecodeState,
    texts: Sequence[Sequence[int]],
    max_new_tokens: int | Sequence[int],
  ) -> state_lib.DecodeState:
    """Continues rows with more text, such as the next turn of a chat.

    What the models have read they do not read again.

    Args:
      state: of rows that are done; donated.
      texts: token ids that come behind each row.
      max_new_tokens: how many tokens to emit behind them at most, for all or
        for each.

    Returns:
      A state for the drivers, in which bandits know what they have learnt.

    Raises:
      ValueError: as in `init`; or the target is an encoder-decoder, whose
        source ends where its answer begins.
    """
    plan, max_length = self._setup.plan, self._setup.max_length
    lengths = meshes.fetch(state.lengths).copy()
    asked = requests.read_more(
      plan.target, max_length, texts, max_new_tokens, lengths
    )
    requests.warn_beyond_positions(plan.target, self._arms, asked)
    left, size = list(asked.prompts), state.tokens.shape[1]
    while any(left):
      room, longest = size - lengths.max(), max(map(len, left))
      fits = [each for each in _CHUNKS if each <= room]
      # Near the end of the buffer, as little as any buffer has left.
      width = next(
        (each for each in fits if each >= longest),
        fits[-1] if fits else size - max_length,
      )
      num = np.array([min(len(row), width) for row in left], np.int32)
      tokens = np.zeros((len(left), width), np.int32)
      for row, text, count in zip(tokens, left, num):
        row[:count] = text[:count]
      state = turns.append(plan, self._params, state, tokens, num, asked.limits)
      lengths += num
      left = [text[count:] for text, count in zip(left, num)]
    return state

  def _bandit_state(self, given, num_rows):
    """What the bandit begins with; as data, so that programs are shared."""
    fresh = jax.tree.map(np.asarray, self._bandit.init())
    if self.round_fn.per_row:
      fresh = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (num_rows, *leaf.shape)), fresh
      )
    if given is None:
      return fresh
    shapes = lambda state: jax.tree.map(np.shape, state)
    if shapes(given) != shapes(fresh):
      of = (
        f'{num_rows} rows, as prompts is'
        if self.round_fn.per_row
        else 'the bandit'
      )
      raise ValueError(
        f'bandit_state must be of {of}, with shapes {shapes(fresh)}, got '
        f'{shapes(given)}.'
      )
    return given

  def decode(
    self,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int | Sequence[int],
    **options: Any,
  ) -> list[results_lib.Result]:
    """Decodes prompts to the end; arguments and errors as in `init`.

    Raises:
      FloatingPointError: target, drafter or goal gave NaN or infinity.
      ValueError: the bandit picked an arm that is not there, or a reward was
        NaN or outside [0, 1].
    """
    state = self.init(prompts, max_new_tokens, **options)
    return self.results(
      prompts, drivers.decode(self.round_fn, self._params, state)
    )

  def decode_many(
    self,
    prompts: Iterable[Sequence[int]],
    max_new_tokens: int | Iterable[int],
    *,
    batch_size: int,
    seed: int = 0,
    request_ids: Iterable[int] | None = None,
    queue_size: int = 64,
    bandit_state: Any = None,
  ) -> Iterator[results_lib.Result]:
    """Yields the results of many prompts, in their order.

    So many rows are kept busy: where one is done, the next prompt takes its
    place. Each result is that of the prompt alone; but for a bandit of the
    batch, which goes on from prompt to prompt. With `per_row`, the bandit of
    each prompt begins anew.

    Args:
      prompts: token ids of each prompt, at least one; may be more than there is
        memory for.
      max_new_tokens: how many tokens to emit at most, for all or for each.
      batch_size: rows that are decoded at the same time.
      seed: of everything random.
      request_ids: as of `init`.
      queue_size: prompts that wait on the device; at least `batch_size`.
      bandit_state: as of `init`; not with `per_row`.

    Raises:
      ValueError: as of `init`, once the prompt's turn comes.
      FloatingPointError: as of `decode`.
    """
    checks.check_range('batch_size', batch_size, 1)
    checks.check_range('queue_size', queue_size, batch_size)
    requests.check_seed(seed)
    fresh = self._fresh_bandit(bandit_state)
    queues = self._reported(
      requests.queues(
        self.round_fn.target,
        self._setup.max_length,
        prompts,
        max_new_tokens,
        request_ids,
        queue_size,
      )
    )
    first = next(queues)
    batch = refill.begin(
      self._setup,
      self._params,
      np.full(batch_size, first.ids[0]),
      np.uint32(seed),
      self._stop_tokens,
      self._bandit_state(bandit_state, batch_size),
    )
    return queues_lib.play(
      *(self._setup, self._params, batch),
      *(itertools.chain([first], queues), queue_size, np.uint32(seed)),
      fresh,
    )

  def _reported(self, queues):
    """Yields queues, with a warning where texts may outgrow a model."""
    for each in queues:
      requests.warn_beyond_positions(self.round_fn.target, self._arms, each)
      yield each

  def _fresh_bandit(self, given):
    """What the bandit of each of many prompts begins with, if it has one."""
    if not self.round_fn.per_row:
      return None
    if given is not None:
      raise ValueError(
        'bandit_state must be None with per_row, as the bandit of each prompt '
        'begins anew.'
      )
    return self._bandit_state(None, 1)

  def stream(
    self,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    max_rate: float | None = None,
    **options: Any,
  ) -> Iterator[list[results_lib.Piece]]:
    """Yields the tokens of one prompt, round by round.

    Args:
      prompt: token ids.
      max_new_tokens: how many tokens to emit at most.
      max_rate: the bandit learns from measured tokens per second, of which
        these earn a reward of 1; for a decoder with `reward=None`.
      **options: of `init`.
    """
    start = self.init([prompt], max_new_tokens, **options)
    learn = None
    if max_rate is not None:
      if self.round_fn.reward is not None:
        raise ValueError('max_rate needs a decoder with reward=None.')
      learn = drivers.throughput_learner(
        self._bandit, max_rate, self.round_fn.per_row
      )
    rounds = drivers.stream(self.round_fn, self._params, start, learn)
    for state, info in rounds:
      results_lib.check(state)
      yield results_lib.pieces(info)

  def results(
    self, prompts: Sequence[Sequence[int]], state: state_lib.DecodeState
  ) -> list[results_lib.Result]:
    """Reads the rows of a finished state."""
    results_lib.check(state)
    rows = meshes.fetch(refill.of_rows(state))
    return [
      results_lib.of_row(self._arms, rows, i, len(each))
      for i, each in enumerate(prompts)
    ]


_begin = jax.jit(reading.read, static_argnames='setup')


def _warm_start(plan, num_tokens, bandit):
  """How the bandit learns from prompts; None if it does not."""
  checks.check_range('warm_start', num_tokens, 0)
  if not num_tokens:
    return None
  if bandit is None:
    raise ValueError(f'warm_start={num_tokens} needs a bandit, got none.')
  return warm_start_lib.WarmStart(plan, num_tokens)


def _slots(arms):
  """The slot of each arm; drafters share one that have the same parameters.

  The same object, that is: copies would be two caches.
  """
  names = [
    (arm.drafter.slot.name if arm.drafter.slot else i, id(params))
    for i, (arm, params) in enumerate(arms)
  ]
  distinct = list(dict.fromkeys(names))
  return tuple(distinct.index(name) for name in names)


def _stop_tokens(tokens):
  """An array with room, so that decoders with others share a program."""
  tokens = list(tokens)
  size = max(_STOP_TOKENS, 1 << max(len(tokens) - 1, 0).bit_length())
  return np.array([*tokens, *[-1] * (size - len(tokens))], np.int32)
