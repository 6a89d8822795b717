"""The host's side of decoding: lists of prompts in, lists of results out."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import bandits
from specjax import base
from specjax import drafters
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import drivers
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib


class Result(NamedTuple):
  """What one prompt got."""

  tokens: list[int]  # emitted, a stop token included
  rounds: int  # target calls
  draft_calls: int  # sequential drafter calls
  accepted: np.ndarray  # [D] draft tokens kept at each depth
  drafted: np.ndarray  # [D] rounds whose tree reached each depth
  pulls: np.ndarray  # [A] rounds of each arm


class Piece(NamedTuple):
  """One streamed token and where it came from."""

  token: int
  origin: str  # 'accepted', 'corrected', 'bonus', or 'sampled' without a draft


class Decoder:
  """Decodes prompts with one compiled loop.

  A prompt's output depends on the prompt, the seed and its request id alone,
  not on the other prompts of the batch. Batches of one shape share a compiled
  program, whatever `max_new_tokens` is.
  """

  def __init__(
    self,
    target: base.LanguageModel,
    target_params: base.Params,
    arms: Sequence[tuple[base.Arm, base.Params]],
    *,
    bandit: base.Bandit | None = None,
    reward: base.Reward = rewards.emitted,
    sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
    stop_tokens: Sequence[int] = (),
    max_length: int = 512,
  ):
    """Builds the round; nothing is compiled yet.

    Args:
      target: the model to sample from.
      target_params: its parameters.
      arms: each way to play a round, with its drafter's parameters.
      bandit: the rule that picks among them; the first arm always, by default.
      reward: what the bandit learns from.
      sampling: how the target's tokens are drawn.
      stop_tokens: tokens that end a row; they are emitted.
      max_length: longest row in tokens, prompt included.
    """
    if not arms:
      raise ValueError('arms must hold at least one arm, got none.')
    if max_length < 2:
      raise ValueError(f'max_length must be >= 2, got {max_length}.')
    self._arms = tuple(arm for arm, _ in arms)
    self._target = target
    self._params = state_lib.Params(target_params, tuple(p for _, p in arms))
    self._bandit = bandit or bandits.BANDITS['fixed'](len(arms))
    self._stop_tokens = jnp.asarray(list(stop_tokens) or [-1], jnp.int32)
    self._max_length = max_length
    self.round_fn = round_lib.make_round(
      target, self._arms, self._bandit, reward, sampling
    )
    self._init = jax.jit(self._init_keys_and_state)

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
  ) -> state_lib.DecodeState:
    """Reads prompts into a state for the drivers.

    Args:
      prompts: token ids of each prompt.
      max_new_tokens: how many tokens to emit at most, for all or for each.
      seed: of everything random.
      request_ids: a number for each prompt; its row's randomness comes from
        seed and number alone. 0, 1, ... by default.

    Raises:
      ValueError: a prompt is empty, too long or holds an unknown token.
    """
    limits = self._limits(prompts, max_new_tokens)
    longest = max(map(len, prompts))
    # Powers of two, so that prompts of similar length share a program.
    width = min(self._max_length, max(16, 1 << (longest - 1).bit_length()))
    tokens = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(tokens, prompts):
      row[: len(prompt)] = prompt
    ids = range(len(prompts)) if request_ids is None else request_ids
    return self._init(
      self._params,
      tokens,
      np.array([len(prompt) for prompt in prompts], np.int32),
      limits,
      np.uint32(seed),
      np.array(ids, np.uint32),
    )

  def _init_keys_and_state(self, params, tokens, lengths, limits, seed, ids):
    row_key, bandit_key = jax.random.split(jax.random.key(seed))
    return state_lib.init(
      self._target,
      self._arms,
      self._bandit,
      params,
      tokens,
      lengths,
      limits,
      sampling_lib.row_keys(row_key, ids),
      bandit_key,
      self._stop_tokens,
      self._max_length,
    )

  def decode(self, prompts, max_new_tokens, **options) -> list[Result]:
    """Decodes prompts to the end; arguments and errors as in `init`.

    Raises:
      FloatingPointError: the target gave NaN or infinite logits.
    """
    state = self.init(prompts, max_new_tokens, **options)
    return self.results(
      prompts, drivers.decode(self.round_fn, self._params, state)
    )

  def stream(self, prompt, max_new_tokens, **options) -> Iterator[list[Piece]]:
    """Yields the tokens of one prompt, round by round."""
    start = self.init([prompt], max_new_tokens, **options)
    for state, info in drivers.stream(self.round_fn, self._params, start):
      _check_finite(state)
      num, kept = int(info.num_emitted[0]), int(info.num_accepted[0])
      depth = int(info.depth)
      last = 'bonus' if kept == depth else 'corrected'
      origins = ['accepted'] * kept + [last if depth else 'sampled']
      yield [
        Piece(int(token), origin)
        for token, origin in zip(info.tokens[0, :num], origins)
      ]

  def results(self, prompts, state: state_lib.DecodeState) -> list[Result]:
    """Reads the rows of a finished state."""
    _check_finite(state)
    tokens, lengths, counters = jax.device_get(
      (state.tokens, state.lengths, state.counters)
    )
    return [
      Result(
        tokens=tokens[i, len(prompt) : lengths[i]].tolist(),
        rounds=int(counters.rounds[i]),
        draft_calls=int(counters.draft_calls[i]),
        accepted=counters.accepted[i],
        drafted=counters.drafted[i],
        pulls=counters.pulls[i],
      )
      for i, prompt in enumerate(prompts)
    ]

  def _limits(self, prompts, max_new_tokens):
    if not prompts:
      raise ValueError('prompts must hold at least one prompt, got none.')
    news = np.broadcast_to(max_new_tokens, len(prompts))
    for i, (prompt, new) in enumerate(zip(prompts, news)):
      if not len(prompt):
        raise ValueError(f'prompts[{i}] must not be empty.')
      if new < 0:
        raise ValueError(f'max_new_tokens must be >= 0, got {new}.')
      if len(prompt) + new > self._max_length:
        raise ValueError(
          f'prompts[{i}] has {len(prompt)} tokens; with max_new_tokens='
          f'{new} it exceeds max_length={self._max_length}.'
        )
      if not 0 <= min(prompt) <= max(prompt) < self._target.vocab_size:
        raise ValueError(
          f'prompts[{i}] must hold tokens in [0, {self._target.vocab_size}),'
          f' got {min(prompt)} to {max(prompt)}.'
        )
    return np.array([len(p) + n for p, n in zip(prompts, news)], np.int32)


def speculative(
  target: base.LanguageModel,
  target_params: base.Params,
  draft: base.LanguageModel | None,
  draft_params: base.Params = None,
  *,
  draft_length: int = 4,
  num_drafts: int = 1,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  verifier: str | base.Verifier | None = None,
  **options,
) -> Decoder:
  """Builds a decoder with one drafter of one or more i.i.d. chains.

  Args:
    target: the model to sample from.
    target_params: its parameters.
    draft: the small model, of the same vocabulary; None decodes plainly.
    draft_params: its parameters.
    draft_length: tokens of each chain, at least 1.
    num_drafts: chains drafted a round, at least 1.
    sampling: how draft and target tokens are drawn.
    verifier: one, or a name as in `verifiers.resolve`. By default the tree walk
      with the coupling `greedy` at temperature 0, else with `maximal` for one
      chain and with `otm` for more.
    **options: of `Decoder`.

  Raises:
    ValueError: the vocabularies differ, or a number is out of range.
  """
  if verifier is None:
    verifier = 'maximal' if num_drafts == 1 else 'otm'
    verifier = verifier if sampling.temperature else 'greedy'
  if draft is None:
    drafter = drafters.DRAFTERS['none']()
  else:
    if draft.vocab_size != target.vocab_size:
      raise ValueError(
        'Draft and target must share a vocabulary, got vocab_size '
        f'{draft.vocab_size} and {target.vocab_size}.'
      )
    for name, value in (
      ('draft_length', draft_length),
      ('num_drafts', num_drafts),
    ):
      if value < 1:
        raise ValueError(f'{name} must be >= 1, got {value}.')
    drafter = drafters.DRAFTERS['autoregressive'](
      draft, trees.chains(num_drafts, draft_length), sampling
    )
  arm = base.Arm(drafter, verifiers.resolve(verifier))
  return Decoder(
    target, target_params, [(arm, draft_params)], sampling=sampling, **options
  )


def _check_finite(state):
  if bool(state.counters.nonfinite.any()):
    rows = np.flatnonzero(state.counters.nonfinite).tolist()
    raise FloatingPointError(
      f'The target gave NaN or infinite logits in rows {rows}.'
    )
