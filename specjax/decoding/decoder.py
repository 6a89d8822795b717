"""The host's side of decoding: lists of prompts in, lists of results out."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
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
from specjax.decoding import prompts as prompts_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib


class Result(NamedTuple):
  """What one prompt got."""

  tokens: list[int]  # emitted, a stop token included
  rounds: int  # target calls
  draft_calls: int  # sequential drafter calls
  caught_up: int  # tokens that drafters read behind others
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
    reward: base.Reward | None = rewards.emitted(),
    sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
    stop_tokens: Sequence[int] = (),
    max_length: int = 512,
    per_row: bool = False,
    catch_up: str = 'lazy',
    prompt_tokens: int = 0,
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
      prompt_tokens: how many of a prompt's last tokens the bandit learns from
        before the first round: how far target and drafters agree on them.
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
    self._per_row = per_row
    self._reward = reward
    # Equal parameters are the same object here: copies would be two caches.
    names = [
      (i if arm.drafter.memory is None else arm.drafter.memory, id(params))
      for i, (arm, params) in enumerate(arms)
    ]
    distinct = list(dict.fromkeys(names))
    self._memories = tuple(distinct.index(name) for name in names)
    self.round_fn = round_lib.make_round(
      target,
      self._arms,
      self._bandit,
      reward,
      sampling,
      per_row=per_row,
      catch_up=catch_up,
      memories=self._memories,
    )
    self._prompt_tokens = prompt_tokens
    self._lesson = None
    if prompt_tokens:
      self._lesson = self._make_lesson(bandit, reward, sampling, catch_up)
    self._init = jax.jit(self._init_keys_and_state)

  def _make_lesson(self, bandit, reward, sampling, catch_up):
    return prompts_lib.make_lesson(
      self._target,
      self._arms,
      bandit,
      reward,
      sampling,
      self._prompt_tokens,
      per_row=self._per_row,
      catch_up=catch_up,
      memories=self._memories,
    )

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
      bandit_state: `state.bandit` of earlier prompts, whose lessons are carried
        over; by default the bandit starts anew.

    Raises:
      ValueError: a prompt is empty, too long or holds an unknown token.
    """
    limits = self._limits(prompts, max_new_tokens)
    lessons = jax.tree.leaves(bandit_state) if self._per_row else []
    if any(len(leaf) != len(prompts) for leaf in lessons):
      raise ValueError(
        f'bandit_state must be of {len(prompts)} rows, as prompts is, got '
        f'{len(lessons[0])}.'
      )
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
      bandit_state,
    )

  def _init_keys_and_state(
    self, params, tokens, lengths, limits, seed, ids, bandit_state
  ):
    row_key, bandit_key = jax.random.split(jax.random.key(seed))
    if self._per_row:
      bandit_key = sampling_lib.row_keys(bandit_key, ids)
    later = jnp.minimum(self._prompt_tokens, lengths - 1)
    state = state_lib.init(
      self._target,
      self._arms,
      self._bandit,
      params,
      tokens,
      lengths - later,
      limits,
      sampling_lib.row_keys(row_key, ids),
      bandit_key,
      self._stop_tokens,
      self._max_length,
      bandit_state=bandit_state,
      memories=self._memories,
    )
    return (
      state if self._lesson is None else self._lesson(params, state, lengths)
    )

  def decode(self, prompts, max_new_tokens, **options) -> list[Result]:
    """Decodes prompts to the end; arguments and errors as in `init`.

    Raises:
      FloatingPointError: the target gave NaN or infinite logits.
      ValueError: a reward was NaN or outside [0, 1].
    """
    state = self.init(prompts, max_new_tokens, **options)
    return self.results(
      prompts, drivers.decode(self.round_fn, self._params, state)
    )

  def stream(
    self,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    max_rate: float | None = None,
    **options,
  ) -> Iterator[list[Piece]]:
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
      if self._reward is not None:
        raise ValueError('max_rate needs a decoder with reward=None.')
      learn = drivers.clocked(self._bandit, max_rate, self._per_row)
    rounds = drivers.stream(self.round_fn, self._params, start, learn)
    for state, info in rounds:
      _check(state)
      num, kept = int(info.num_emitted[0]), int(info.num_accepted[0])
      depth = int(info.depth[0])
      last = 'bonus' if kept == depth else 'corrected'
      origins = ['accepted'] * kept + [last if depth else 'sampled']
      yield [
        Piece(int(token), origin)
        for token, origin in zip(info.tokens[0, :num], origins)
      ]

  def results(self, prompts, state: state_lib.DecodeState) -> list[Result]:
    """Reads the rows of a finished state."""
    _check(state)
    tokens, lengths, counters = jax.device_get(
      (state.tokens, state.lengths, state.counters)
    )
    return [
      Result(
        tokens=tokens[i, len(prompt) : lengths[i]].tolist(),
        rounds=int(counters.rounds[i]),
        draft_calls=int(counters.draft_calls[i]),
        caught_up=int(counters.caught_up[i]),
        accepted=counters.accepted[i],
        drafted=counters.drafted[i],
        pulls=counters.pulls[i],
      )
      for i, prompt in enumerate(prompts)
    ]

  def _check_source(self, name, prompt):
    """Refuses what an encoder-decoder cannot take apart."""
    start = self._target.start_id
    if start is None:
      return
    if len(prompt) < 2 or [*prompt, start].index(start) != len(prompt) - 1:
      raise ValueError(
        f'{name} must be a source and then the start token {start}, once, got '
        f'{prompt}.'
      )

  def _limits(self, prompts, max_new_tokens):
    if not prompts:
      raise ValueError('prompts must hold at least one prompt, got none.')
    news = np.broadcast_to(max_new_tokens, len(prompts))
    for i, (prompt, new) in enumerate(zip(prompts, news)):
      if not len(prompt):
        raise ValueError(f'prompts[{i}] must not be empty.')
      self._check_source(f'prompts[{i}]', list(prompt))
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
  goal: base.Goal | None = None,
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
    verifier: one, or a name as in `verifiers.resolve`; by default that of
      `verifiers.default`.
    goal: what is sampled instead of the target, such as one of `GOALS`; the
      drafter is then asked for its law behind the chains, too.
    **options: of `Decoder`.

  Raises:
    ValueError: the vocabularies differ, or a number is out of range.
  """
  if verifier is None:
    # At temperature 0, a goal may be no one-hot law.
    temperature = sampling.temperature if goal is None else 1.0
    verifier = verifiers.default(temperature, num_drafts)
  if draft is None:
    drafter = drafters.DRAFTERS['none']()
  else:
    for name, value in (
      ('draft_length', draft_length),
      ('num_drafts', num_drafts),
    ):
      if value < 1:
        raise ValueError(f'{name} must be >= 1, got {value}.')
    drafter = drafters.DRAFTERS['autoregressive'](
      draft,
      trees.chains(num_drafts, draft_length),
      sampling,
      leaf_laws=goal is not None,
    )
  arm = base.Arm(drafter, verifiers.resolve(verifier), goal)
  return Decoder(
    target, target_params, [(arm, draft_params)], sampling=sampling, **options
  )


def _check(state):
  """Raises what cannot be raised inside the loop."""
  for flags, error, what in (
    (
      state.counters.nonfinite,
      FloatingPointError,
      'The target gave NaN or infinite logits',
    ),
    (
      state.counters.bad_reward,
      ValueError,
      'Rewards must lie in [0, 1], got another, or NaN,',
    ),
  ):
    if bool(flags.any()):
      raise error(f'{what} in rows {np.flatnonzero(flags).tolist()}.')
