"""The host interface of decoding: lists of prompts in, lists of results out."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import bandits
from specjax import base
from specjax import checks
from specjax import components
from specjax import drafters
from specjax import meshes
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import arm_checks
from specjax.decoding import continuous_batching
from specjax.decoding import drivers
from specjax.decoding import prefill as prefill_lib
from specjax.decoding import results as results_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib
from specjax.goals import apply as goal_lib
from specjax.models import transposes

# Numbers of tokens that one call of `append` may add to each row.
_APPEND_WIDTHS = (16, 64, 256)
# Prompts that wait on the device in continuous batching, if rows are fewer.
_QUEUE_SIZE = 64
# Stop tokens that a program has room for; more of them need another program.
_MAX_STOP_TOKENS = 8


class Decoder:
  """Decodes prompts with one compiled loop.

  A prompt's output depends on the prompt, the seed and its request id only, not
  on the other prompts of the batch. Batches of one shape share a compiled
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
    feedback: str = 'bandit',
    warm_start: int = 0,
  ):
    """Builds the round; nothing is compiled yet.

    Arms that draft with the same model and parameters share one KV cache; with
    full feedback or a warm start, only those that also draw tokens alike do.

    Args:
      target: the model to sample from.
      target_params: its parameters. On a CPU, a decoder makes transposed
        copies of large kernels, see `models.transposes`.
      arms: each arm, with its drafter's parameters.
      bandit: the rule that selects among them; by default, always the first.
      reward: what the bandit learns from; None if it only learns in `stream`,
        from measured time.
      sampling: how the target's tokens are drawn.
      stop_tokens: tokens that end a row; they are emitted.
      max_length: longest row in tokens, prompt included.
      per_row: each row has a bandit, instead of one for the batch.
      feedback: 'bandit' if it learns the reward of the selected arm, 'full' if
        it learns those of all arms in every round (see `make_round`).
      warm_start: how many of a prompt's last tokens the bandit learns from
        before the first round: how likely drafts would be accepted there.

    Raises:
      ValueError: the arms do not fit each other, the target or the bandit, or
        a number is out of range.
    """
    if not arms:
      raise ValueError('arms must hold at least one arm, got none.')
    arm_checks.check_pairs(arms)
    checks.check_integers('max_length', max_length, 2)
    self._arms = tuple(arm for arm, _ in arms)
    self._params = _with_copies(target_params, arms)
    self._bandit = bandit or bandits.Fixed(len(arms))
    self.round_fn = round_lib.make_round(
      target,
      self._arms,
      self._bandit,
      reward,
      sampling,
      per_row=per_row,
      feedback=feedback,
      slots=_shared_slots(arms, feedback == 'full' or bool(warm_start)),
    )
    self._stop_tokens = _padded_stop_tokens(stop_tokens, target.vocab_size)
    checks.check_integers('warm_start', warm_start, 0)
    if warm_start and bandit is None:
      raise ValueError(f'warm_start={warm_start} needs a bandit, got none.')
    prefill_lib.check_warm_start(self.round_fn, warm_start)
    self._setup = prefill_lib.Setup(self.round_fn, max_length, warm_start)

  @property
  def params(self) -> state_lib.Params:
    """Parameters of all models, as the drivers take them."""
    return self._params

  @property
  def max_length(self) -> int:
    """Longest row in tokens, prompt included."""
    return self._setup.max_length

  def init(
    self,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int | Sequence[int],
    *,
    seed: int = 0,
    request_ids: Sequence[int] | None = None,
    bandit_state: Any = None,
  ) -> state_lib.DecodeState:
    """Prefills prompts; returns the state that the drivers begin with.

    Args:
      prompts: token ids of each prompt.
      max_new_tokens: how many tokens to emit at most: one number, or one for
        each prompt.
      seed: all randomness comes from it and from request ids.
      request_ids: a number for each prompt; its row's randomness comes from
        seed and number only. 0, 1, ... by default.
      bandit_state: `state.bandit` after earlier prompts, to continue from; by
        default the bandit starts anew.

    Raises:
      ValueError: a prompt is empty, too long or holds something other than
        tokens of the vocabulary, or another argument does not fit.
    """
    prefill_lib.check_seed(seed)
    requests = prefill_lib.check_prompts(
      self.round_fn.target,
      self.max_length,
      prompts,
      max_new_tokens,
      request_ids,
    )
    prefill_lib.warn_beyond_positions(
      self.round_fn.target, self._arms, requests
    )
    longest = max(map(len, requests.prompts))
    width = prefill_lib.bucket_width(longest, self.max_length)
    return _prefill(
      self._setup,
      self._params,
      prefill_lib.pad(requests, width),
      np.uint32(seed),
      self._stop_tokens,
      self._bandit_state(bandit_state, len(requests.prompts)),
    )

  def trace_init(self, batch_size: int) -> jax.stages.Traced:
    """Returns the traced program of `init` for prompts of one token.

    Nothing is computed, and parameters may be abstract. The state that `decode`
    takes has the shapes of its `out_info`, whatever the prompts.

    Args:
      batch_size: number of prompts.
    """
    array = jax.ShapeDtypeStruct
    numbers = array((batch_size,), np.int32)
    return _prefill.trace(
      self._setup,
      self._params,
      prefill_lib.PromptBatch(
        tokens=array((batch_size, 1), np.int32),
        lengths=numbers,
        limits=numbers,
        ids=array((batch_size,), np.uint32),
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
    """Appends text to rows, such as the next user message of a chat.

    Models read only what they have not read yet.

    Args:
      state: all of its rows are done; donated.
      texts: token ids to append to each row.
      max_new_tokens: how many tokens to emit at most after them: one number,
        or one for each row.

    Returns:
      A state for the drivers, in which bandits keep what they have learned, and
      whose counters go on: `results` then has the rounds of all turns.

    Raises:
      ValueError: a text is empty, too long or holds something other than tokens
        of the vocabulary, another argument does not fit, or the target is an
        encoder-decoder, whose source ends where its answer begins.
    """
    lengths = meshes.fetch(state.lengths).copy()
    requests = prefill_lib.check_texts(
      self.round_fn.target, self.max_length, texts, max_new_tokens, lengths
    )
    prefill_lib.warn_beyond_positions(
      self.round_fn.target, self._arms, requests
    )
    remaining, size = list(requests.prompts), state.tokens.shape[1]
    while any(remaining):
      room, longest = size - lengths.max(), max(map(len, remaining))
      fitting = [width for width in _APPEND_WIDTHS if width <= room]
      # Near the end of the buffer, the width that every buffer has room for.
      width = next(
        (width for width in fitting if width >= longest),
        fitting[-1] if fitting else size - self.max_length,
      )
      num = np.array([min(len(text), width) for text in remaining], np.int32)
      tokens = np.zeros((len(remaining), width), np.int32)
      for row, text, count in zip(tokens, remaining, num):
        row[:count] = text[:count]
      state = prefill_lib.append(
        self.round_fn, self._params, state, tokens, num, requests.limits
      )
      lengths += num
      remaining = [text[count:] for text, count in zip(remaining, num)]
    return state

  def decode(
    self,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int | Sequence[int],
    **options: Any,
  ) -> list[results_lib.Result]:
    """Decodes prompts to the end.

    Args:
      prompts: token ids of each prompt.
      max_new_tokens: how many tokens to emit at most: one number, or one for
        each prompt.
      **options: see `init`.

    Raises:
      FloatingPointError: target, drafter or goal gave NaN or infinity.
      ValueError: see `init`; or the bandit returned an invalid arm index, or a
        reward was NaN or outside [0, 1].
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
    queue_size: int | None = None,
    bandit_state: Any = None,
  ) -> Iterator[results_lib.Result]:
    """Yields the results of many prompts in their order: continuous batching.

    The next prompt replaces a row as soon as it is done. Each result is that of
    the prompt alone, except with a bandit of the batch, which continues from
    prompt to prompt. With `per_row`, each prompt's bandit starts anew.

    Args:
      prompts: token ids of each prompt, at least one; may be more than fit in
        memory.
      max_new_tokens: how many tokens to emit at most: one number, or one for
        each prompt.
      batch_size: rows that are decoded at the same time.
      seed: all randomness comes from it and from request ids.
      request_ids: a number for each prompt; 0, 1, ... by default.
      queue_size: prompts that wait on the device; at least `batch_size`. By
        default 64, or `batch_size` if it is larger.
      bandit_state: `state.bandit` after earlier prompts, to continue from; must
        be None with `per_row`.

    Raises:
      ValueError: an argument does not fit; for prompts, see `init`, once their
        queue is taken.
      FloatingPointError: target, drafter or goal gave NaN or infinity.
    """
    checks.check_integers('batch_size', batch_size, 1)
    if queue_size is None:
      queue_size = max(_QUEUE_SIZE, batch_size)
    checks.check_integers('queue_size', queue_size, batch_size)
    prefill_lib.check_seed(seed)
    prompt_bandit = self._prompt_bandit_state(bandit_state)
    queues = self._with_warnings(
      continuous_batching.request_queues(
        self.round_fn.target,
        self.max_length,
        prompts,
        max_new_tokens,
        request_ids,
        queue_size,
      )
    )
    first = next(queues)
    batch = continuous_batching.idle_batch(
      self._setup,
      self._params,
      np.full(batch_size, first.ids[0]),
      np.uint32(seed),
      self._stop_tokens,
      self._bandit_state(bandit_state, batch_size),
    )
    return continuous_batching.decode_queues(
      self._setup,
      self._params,
      batch,
      itertools.chain([first], queues),
      queue_size=queue_size,
      seed=np.uint32(seed),
      bandit_state=prompt_bandit,
    )

  def stream(
    self,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    max_rate: float | None = None,
    **options: Any,
  ) -> Iterator[list[results_lib.Piece]]:
    """Reads a prompt; the result yields its tokens, round by round.

    Args:
      prompt: token ids.
      max_new_tokens: how many tokens to emit at most.
      max_rate: makes the bandit learn from measured tokens per second; this
        rate has a reward of 1. It needs a decoder with `reward=None`.
      **options: see `init`.

    Raises:
      FloatingPointError: target, drafter or goal gave NaN or infinity.
      ValueError: see `decode`; or `max_rate` does not fit.
    """
    learn = None
    if max_rate is not None:
      if self.round_fn.reward is not None:
        raise ValueError('max_rate needs a decoder with reward=None.')
      learn = drivers.throughput_learner(
        self._bandit, max_rate, self.round_fn.per_row
      )
    start = self.init([prompt], max_new_tokens, **options)
    rounds = drivers.stream(self.round_fn, self._params, start, learn)

    def checked_pieces() -> Iterator[list[results_lib.Piece]]:
      for state, info in rounds:
        results_lib.check_flags(state)
        yield results_lib.pieces(info)

    return checked_pieces()

  def results(
    self, prompts: Sequence[Sequence[int]], state: state_lib.DecodeState
  ) -> list[results_lib.Result]:
    """Returns the results of a finished state.

    Args:
      prompts: the prompt of each row.
      state: whose rows are done.

    Raises:
      FloatingPointError: target, drafter or goal gave NaN or infinity.
      ValueError: a tree, an arm index or a reward was out of range.
    """
    results_lib.check_flags(state)
    rows = meshes.fetch(results_lib.finished_rows(state))
    return [
      results_lib.row_result(self._arms, rows, i, len(prompt))
      for i, prompt in enumerate(prompts)
    ]

  def _with_warnings(
    self, queues: Iterable[prefill_lib.Requests]
  ) -> Iterator[prefill_lib.Requests]:
    """Yields queues; warns where rows may outgrow a model's positions."""
    for requests in queues:
      prefill_lib.warn_beyond_positions(
        self.round_fn.target, self._arms, requests
      )
      yield requests

  def _bandit_state(
    self, state: base.BanditState | None, num_rows: int
  ) -> base.BanditState:
    """Returns a bandit's initial state: data, so that programs are shared."""
    fresh = jax.tree.map(np.asarray, self._bandit.init())
    if self.round_fn.per_row:
      fresh = jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (num_rows, *leaf.shape)), fresh
      )
    if state is None:
      return fresh
    shapes = functools.partial(jax.tree.map, _shape_and_kind)
    if shapes(state) != shapes(fresh):
      owner = (
        f'{num_rows} rows, as prompts is'
        if self.round_fn.per_row
        else 'the bandit'
      )
      raise ValueError(
        f'bandit_state must be of {owner}, with shapes and kinds of numbers '
        f'{shapes(fresh)}, got {shapes(state)}.'
      )
    return state

  def _prompt_bandit_state(
    self, state: base.BanditState | None
  ) -> base.BanditState | None:
    """Returns the initial state of each prompt's bandit, if it has one."""
    if not self.round_fn.per_row:
      return None
    if state is not None:
      raise ValueError(
        'bandit_state must be None with per_row, as the bandit of each prompt '
        'begins anew.'
      )
    return self._bandit_state(None, 1)


_prefill = jax.jit(prefill_lib.prefill)


def _shape_and_kind(leaf: Any) -> tuple[tuple[int, ...], str]:
  """Returns an array's shape, and 'f' for floats, 'i' for integers."""
  dtype = jnp.result_type(leaf)
  kind = getattr(dtype, 'kind', str(dtype))  # Keys have no kind.
  return np.shape(leaf), 'i' if kind == 'u' else kind


def _with_copies(
  target_params: base.Params, arms: Sequence[tuple[base.Arm, base.Params]]
) -> state_lib.Params:
  """Returns the parameters of a decoder, with `transposes` of kernels.

  Arms with the same parameters keep the same object, by which costs are shared.
  """
  drafters = {
    id(params): jax.tree.map(
      transposes.add, params, is_leaf=lambda node: isinstance(node, dict)
    )
    for _, params in arms
  }
  return state_lib.Params(
    transposes.add(target_params),
    tuple(drafters[id(params)] for _, params in arms),
  )


def _shared_slots(
  arms: Sequence[tuple[base.Arm, base.Params]], estimates: bool
) -> tuple[int, ...]:
  """Returns `[A]` each arm's slot; drafters of the same parameters share one.

  Args:
    arms: each arm, with its drafter's parameters. Only the same arrays count as
      the same parameters: copies need two caches.
    estimates: whether drafters estimate acceptance; if so, those that share a
      slot have equal estimates.
  """
  names = []
  for i, (arm, params) in enumerate(arms):
    slot = arm.drafter.slot or base.StateSlot(i, num_levels=0)
    names.append((slot.key(estimates), components.identity(params)))
  indices = {name: i for i, name in enumerate(dict.fromkeys(names))}
  return tuple(indices[name] for name in names)


def _padded_stop_tokens(tokens: Sequence[int], vocab_size: int) -> np.ndarray:
  """Returns an array with room for more, so that programs are shared."""
  if np.shape(tokens) != (0,):
    tokens = prefill_lib.check_text('stop_tokens', tokens, vocab_size)
  size = max(_MAX_STOP_TOKENS, 1 << max(len(tokens) - 1, 0).bit_length())
  return np.array([*tokens, *[-1] * (size - len(tokens))], np.int32)


def speculative(
  target: base.LanguageModel,
  target_params: base.Params,
  draft: base.LanguageModel | base.AnyHead | None,
  draft_params: base.Params = None,
  *,
  draft_length: int = 4,
  num_drafts: int = 1,
  tree: trees.Topology | None = None,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  verifier: str | base.Verifier | base.Coupling | None = None,
  goal: base.Goal | None = None,
  **options: Any,
) -> Decoder:
  """Builds a decoder with one drafter of static trees: chains, by default.

  Args:
    target: the model to sample from.
    target_params: its parameters.
    draft: the draft model, with the same vocabulary, or a head on the target's
      hidden states; None for plain decoding, without `draft_length`,
      `num_drafts` and `tree`.
    draft_params: its parameters.
    draft_length: tokens of each chain, at least 1.
    num_drafts: chains per round, at least 1.
    tree: the tree to draft instead of chains.
    sampling: how draft and target tokens are drawn.
    verifier: a verifier, a coupling or a name, see `verifiers.resolve`; by
      default that of `verifiers.default`.
    goal: what is sampled instead of the target, such as one of `GOALS`; the
      drafter then also computes probabilities at the bonus position.
    **options: see `Decoder`.

  Raises:
    ValueError: the vocabularies differ, an argument is out of range or of
      another type, or there is a goal without a draft.
  """
  checks.check_integers('draft_length', draft_length, 1)
  checks.check_integers('num_drafts', num_drafts, 1)
  if tree is None:
    tree = trees.chains(num_drafts, draft_length)
  if not isinstance(tree, trees.Topology):
    raise ValueError(
      f'tree must be a Topology, such as trees.eagle(), got {tree!r}.'
    )
  if not isinstance(sampling, sampling_lib.Sampling):
    raise ValueError(f'sampling must be a Sampling, got {sampling!r}.')
  if goal_lib.is_target(goal):
    goal = None
  if draft is None and goal is not None:
    raise ValueError(
      "goal needs a draft, whose distribution it mixes with the target's, got "
      f'draft=None and {goal}.'
    )
  drafter = _make_drafter(draft, tree, sampling, goal)
  if verifier is None:
    # At temperature 0, a goal may be no one-hot distribution.
    temperature = sampling.temperature if goal is None else 1.0
    verifier = verifiers.default(temperature, tree.width, drafter.siblings)
  arm = base.Arm(drafter, verifiers.resolve(verifier), goal)
  return Decoder(
    target, target_params, [(arm, draft_params)], sampling=sampling, **options
  )


_DRAFTERS_OF_HEADS: dict[type, Callable[..., base.Drafter]] = {
  base.FeatureHead: drafters.FeatureHeadDrafter,
  base.ParallelHead: drafters.Medusa,
  base.BlockHead: drafters.BlockHeadDrafter,
}


def _make_drafter(
  draft: base.LanguageModel | base.AnyHead | None,
  tree: trees.Topology,
  sampling: sampling_lib.Sampling,
  goal: base.Goal | None,
) -> base.Drafter:
  """Builds the drafter that fits a model or a head."""
  has_goal = goal is not None
  if draft is None:
    return drafters.NoDrafter()
  # At temperature 0, independent draws would all be the same token.
  drafter_class: Callable[..., base.Drafter] = functools.partial(
    drafters.Autoregressive, distinct=sampling.is_greedy
  )
  for kind, kind_drafter in _DRAFTERS_OF_HEADS.items():
    if isinstance(draft, kind):
      drafter_class = kind_drafter
  if isinstance(draft, base.Drafter):
    raise ValueError(
      'draft must be a model, a head or None, got the drafter '
      f'{type(draft).__name__}: pass it to Decoder as an arm.'
    )
  return drafter_class(draft, tree, sampling, bonus_probs=has_goal)
