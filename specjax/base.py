"""Base classes of all components, and the values that flow between them.

Data flows one way; the steps of a round stand in this order:

    select -> catch up -> draft -> score -> verify -> commit -> observe -> learn

    bandit -> arm -> drafter -> tree -> target -> verifier -> outcome -> reward
      ^                                                          |          |
      |                                                          v          |
      |                                                     caches, tokens  |
      +---------------------------------------------------------------------+

Axes: `B` rows, `N` nodes of a draft tree (root excluded), `D` its depth, `W`
its widest level, `V` vocabulary, `S` buffer length, `T` tokens in one model
call, `M` pending tokens, `F` size of features, `A` arms, `P` tokens of a round.

Parameters are always arguments and never closed over. Target and draft are
always written out; the papers disagree on which of them is `p`.
"""

from collections.abc import Hashable
from collections.abc import Sequence
import enum
import functools
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import checks
from specjax import components
from specjax import trees

Params = Any
Cache = Any
PendingKV = Any
DraftState = Any
Proposal = Any
BanditState = Any


# Models.


class ModelOutput(NamedTuple):
  """What a model computes for the tokens of one call."""

  logits: jax.Array  # [B, T, V] float32; [:, t] predicts what follows token t
  # Hidden states, [B, T, F] each: the input of every layer, then the input of
  # the output head. A program computes and keeps only those that it uses. Empty
  # if a model has none.
  features: tuple[jax.Array, ...]
  pending_kv: PendingKV  # keys and values that are not committed yet


class LanguageModel:
  """A model that scores tokens after a KV cache with one length per row.

  Subclasses are frozen dataclasses (`components.component`) without parameters:
  equal models share compiled programs. An attribute may be a field, a property
  or a constant of the class.
  """

  # Not `property`, which a field of a subclass could not replace.

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    raise NotImplementedError

  @functools.cached_property
  def feature_sizes(self) -> tuple[int, ...]:
    """`F` of each of `ModelOutput.features`."""
    return ()

  @functools.cached_property
  def start_id(self) -> int | None:
    """The token that ends every prompt of an encoder-decoder.

    The encoder reads all tokens before it. None for a decoder-only model.
    """
    return None

  @functools.cached_property
  def max_length(self) -> int | None:
    """Number of positions that the model was trained for; None if unlimited."""
    return None

  @functools.cached_property
  def mask_token(self) -> int | None:
    """The token that stands for a token to predict.

    None for a model that was not trained to predict several tokens at once.
    """
    return None

  def init_cache(self, params: Params, batch: int, size: int) -> Cache:
    """Returns an empty KV cache with `size` slots for each of `batch` rows.

    It is a pytree whose leaves have the rows as first axis, with an attribute
    `lengths` `[B]` int32, the number of committed tokens of each row.
    """
    raise NotImplementedError

  def prefill(
    self, params: Params, cache: Cache, tokens: jax.Array, lengths: jax.Array
  ) -> tuple[Cache, tuple[jax.Array, ...]]:
    """Reads prompts into an empty cache.

    Args:
      params: parameters of the model.
      cache: from `init_cache`.
      tokens: `[B, T]` int32, padded at the end.
      lengths: `[B]` int32, how many tokens of each row are read.

    Returns:
      The cache, and the features of all `T` tokens, as in `ModelOutput`.
    """
    raise NotImplementedError

  def extend(
    self,
    params: Params,
    cache: Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> ModelOutput:
    """Scores tokens that follow the cache and the pending tokens.

    Args:
      params: parameters of the model.
      cache: the committed tokens; it is only read. None stands for none.
      tokens: `[B, T]` int32.
      pending_kv: `ModelOutput.pending_kv` of `M` tokens that were scored after
        the cache; None stands for none.
      positions: `[B, T]` absolute positions, negative for padding; None for
        those of a chain. Tokens may come in any order: with a mask, a token
        can attend to tokens after it in the array.
      mask: `[T, M + T]` or `[B, T, M + T]`, true where a token attends to a
        pending or a new one, may be a NumPy array; None for a chain.

    Returns:
      The output, whose `pending_kv` holds the `M` entries and then the new `T`.
    """
    raise NotImplementedError

  def commit(
    self, cache: Cache, pending_kv: PendingKV, path: jax.Array, num: jax.Array
  ) -> Cache:
    """Writes some pending entries to the cache, drops the others.

    Args:
      cache: the committed tokens.
      pending_kv: entries from `extend`; nothing is computed again.
      path: `[B, P]` int32, which entries are written, in this order.
      num: `[B]` int32, how many of `path` are. It must depend on what the model
        computed (see `ordering.after`).
    """
    raise NotImplementedError

  def rollback(self, cache: Cache, lengths: jax.Array) -> Cache:
    """Forgets the tokens at and past `lengths` `[B]`.

    Rejected drafts need no rollback, since they are never committed; it serves
    to take back committed text.
    """
    raise NotImplementedError

  def exit(self, num_layers: int) -> 'LanguageModel':
    """Returns the first layers and the output head as a model.

    It takes the parameters of the whole model.

    Args:
      num_layers: how many layers are read.

    Raises:
      ValueError: the model has no early exit, or fewer layers.
    """
    del num_layers
    raise ValueError(
      f'An early exit needs a model of several layers, got a '
      f'{type(self).__name__}, which has no exit.'
    )


# Heads on the target's features.


class FeatureHead:
  """A head that drafts token by token from features and tokens (EAGLE).

  Pair `i` joins the target's features at token `i` with token `i + 1`; from it,
  the head predicts token `i + 2`. Past the target's last features, the head's
  own output for the previous pair takes their place. Its cache holds pairs.

  Subclasses are frozen dataclasses, as those of `LanguageModel` are.
  """

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """Which of the target's features it reads, as in `Drafter.taps`."""
    raise NotImplementedError

  @functools.cached_property
  def feature_size(self) -> int:
    """`F` of each of these features."""
    raise NotImplementedError

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    raise NotImplementedError

  @functools.cached_property
  def max_length(self) -> int | None:
    """Number of positions that the head was trained for; None if unlimited."""
    return None

  def init_cache(self, params: Params, batch: int, size: int) -> Cache:
    """Returns an empty KV cache with `size` slots for each of `batch` rows.

    It is a pytree whose leaves have the rows as first axis, with an attribute
    `lengths` `[B]` int32, the number of committed tokens of each row.
    """
    raise NotImplementedError

  def fuse(self, params: Params, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns `[B, T, F]` inputs from the features that `taps` name."""
    raise NotImplementedError

  def extend(
    self,
    params: Params,
    cache: Cache | None,
    tokens: jax.Array,
    inputs: jax.Array,
    *,
    pending_kv: PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> tuple[jax.Array, PendingKV]:
    """Reads pairs that follow the cache and the pending pairs.

    Args:
      params: parameters of the head.
      cache: the committed pairs; it is only read. None stands for none.
      tokens: `[B, T]` int32.
      inputs: `[B, T, F]` from `fuse`, or outputs for the previous pairs.
      pending_kv: See `LanguageModel.extend`, with pairs for tokens.
      positions: `[B, T]` absolute positions of the features, or None.
      mask: See `LanguageModel.extend`.

    Returns:
      `[B, T, F]` outputs, with which the next pairs are read, and the pending
      entries.
    """
    raise NotImplementedError

  def predict(self, params: Params, outputs: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 logits of outputs `[B, T, F]`."""
    raise NotImplementedError

  def likeliest(
    self, params: Params, outputs: jax.Array, num: int
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the likeliest tokens after outputs `[B, T, F]`, the best first.

    Returns:
      `[B, T, num]` log-probabilities, -inf where there are no more tokens, and
      `[B, T, num]` tokens.
    """
    raise NotImplementedError

  def commit(
    self, cache: Cache, pending_kv: PendingKV, path: jax.Array, num: jax.Array
  ) -> Cache:
    """Writes pending pairs to the cache, as `LanguageModel.commit` does."""
    raise NotImplementedError

  def rollback(self, cache: Cache, lengths: jax.Array) -> Cache:
    """Forgets the pairs at and past `lengths` `[B]`."""
    raise NotImplementedError


class ParallelHead:
  """Heads that predict several tokens at once from one feature (Medusa).

  From the target's features at token `i`, head `k` of `K`, counted from 1,
  predicts token `i + 1 + k`.

  Subclasses are frozen dataclasses, as those of `LanguageModel` are.
  """

  @functools.cached_property
  def num_steps(self) -> int:
    """`K`."""
    raise NotImplementedError

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """Which of the target's features they read, as in `Drafter.taps`."""
    raise NotImplementedError

  @functools.cached_property
  def feature_size(self) -> int:
    """`F` of each of these features."""
    raise NotImplementedError

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    raise NotImplementedError

  def predict(
    self, params: Params, features: tuple[jax.Array, ...]
  ) -> jax.Array:
    """Returns `[B, T, K, V]` float32 logits of features `[B, T, F]`."""
    raise NotImplementedError

  def likeliest(
    self, params: Params, features: tuple[jax.Array, ...], num: int
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the likeliest tokens of each head, the best first.

    Returns:
      `[B, T, K, num]` log-probabilities, -inf where there are no more tokens,
      and `[B, T, K, num]` tokens.
    """
    raise NotImplementedError


class BlockHead:
  """A head that predicts a block of tokens in one call (DFlash).

  A block is the last token of a row, followed by mask tokens. All of its tokens
  attend to each other, and to keys and values that are computed from the
  target's features at the earlier tokens. The head's cache holds these; a block
  is never committed.

  Subclasses are frozen dataclasses, as those of `LanguageModel` are.
  """

  @functools.cached_property
  def block_size(self) -> int:
    """Number of tokens in the blocks that the head was trained for."""
    raise NotImplementedError

  @functools.cached_property
  def mask_token(self) -> int:
    """The token that stands for a token to predict."""
    raise NotImplementedError

  @functools.cached_property
  def first_output(self) -> int:
    """Index of the output that predicts the first token after the row.

    1 if a mask token predicts the token in its place, as in DFlash; 0 if every
    token predicts the next one, as in DSpark.
    """
    raise NotImplementedError

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """Which of the target's features it reads, as in `Drafter.taps`."""
    raise NotImplementedError

  @functools.cached_property
  def feature_size(self) -> int:
    """`F` of each of these features."""
    raise NotImplementedError

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    raise NotImplementedError

  @functools.cached_property
  def max_length(self) -> int | None:
    """Number of positions that the head was trained for; None if unlimited."""
    return None

  def init_cache(self, params: Params, batch: int, size: int) -> Cache:
    """Returns an empty KV cache, as `FeatureHead.init_cache` does."""
    raise NotImplementedError

  def encode(
    self,
    params: Params,
    features: tuple[jax.Array, ...],
    positions: jax.Array,
  ) -> PendingKV:
    """Returns keys and values of the features that `taps` name.

    Args:
      params: parameters of the head.
      features: `[B, T, F]` each.
      positions: `[B, T]` those of their tokens, negative for padding.
    """
    raise NotImplementedError

  def extend(
    self,
    params: Params,
    cache: Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> tuple[jax.Array, PendingKV]:
    """Reads blocks that follow the cache and the pending entries.

    Args:
      params: parameters of the head.
      cache: the committed entries; it is only read. None stands for none.
      tokens: `[B, T]` int32, one block or more.
      pending_kv: from `encode`, or None.
      positions: See `LanguageModel.extend`.
      mask: See `LanguageModel.extend`.

    Returns:
      `[B, T, F]` outputs, and the pending entries.
    """
    raise NotImplementedError

  def predict(self, params: Params, outputs: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 logits of outputs `[B, T, F]`."""
    raise NotImplementedError

  def condition(
    self, params: Params, logits: jax.Array, tokens: jax.Array
  ) -> jax.Array:
    """Returns logits that also depend on the token before (DSpark).

    Args:
      params: parameters of the head.
      logits: from `predict`, `[B, 1 or T, V]`.
      tokens: `[B, T]` the token before each predicted one.

    Returns:
      `[B, T, V]` logits, or the argument if the head ignores these tokens.
    """
    raise NotImplementedError

  def commit(
    self, cache: Cache, pending_kv: PendingKV, path: jax.Array, num: jax.Array
  ) -> Cache:
    """Writes pending entries to the cache, as `LanguageModel.commit` does."""
    raise NotImplementedError

  def rollback(self, cache: Cache, lengths: jax.Array) -> Cache:
    """Forgets the entries at and past `lengths` `[B]`."""
    raise NotImplementedError


AnyHead = FeatureHead | ParallelHead | BlockHead

# Drafts.


class Probs(NamedTuple):
  """The two distributions of a model's logits, or a number of each of them.

  Equal at temperature 1 without top-k and top-p; at temperature 0, `processed`
  is one-hot and does not show how sure the model is.
  """

  processed: jax.Array  # what tokens are drawn from
  raw: jax.Array  # the softmax of the logits


class Siblings(enum.Enum):
  """How the children of a node are drawn, on which exact verification depends.

  A drafter has one of these kinds, and `Verifier.accepts` some of them.
  """

  IID = 'i.i.d.'  # from one distribution, so that tokens may repeat
  # One after the other, each from what the earlier ones leave of the first
  # one's distribution.
  WITHOUT_REPLACEMENT = 'without replacement'
  INDEPENDENT = 'independent'  # each from another distribution
  CHOSEN = 'chosen'  # deterministically: `DraftTree.probs` is None


class DraftTree(NamedTuple):
  """A drafter's proposal.

  `probs[:, n]` is the float32 distribution from which node `n` was drawn, i.e.
  after its parent: normalized, and after temperature, top-k and top-p, since it
  is compared with the target's as it is. How it differs among siblings follows
  from `Drafter.siblings`. None means that every token was chosen
  deterministically; valid siblings of one drafter are then different.
  `raw_probs` are what a drafter predicts after the parent, before temperature,
  top-k, top-p and earlier siblings; None means the same as `probs`. Drafters
  that choose their tokens by a model's distribution also return them. In an
  ensemble, rows of members that predict no distribution are zero.
  `bonus_probs` are the drafter's distributions at the bonus positions, i.e.
  after its leaves, in the order of `topology.leaf_entries`; only goals other
  than the target ask for them.

  `valid[:, n]` may depend on tokens drawn before node `n`, never on its own, a
  sibling's or a later one: the output would not be exact. The parent of a valid
  node is valid, and tokens lie in [0, V) even where they are not.
  """

  tokens: jax.Array  # [B, N] int32
  topology: trees.Topology | trees.DynamicTopology
  valid: jax.Array  # [B, N] bool; false where nothing was proposed
  probs: jax.Array | None  # [B, N, V] float32
  raw_probs: jax.Array | None = None  # [B, N, V] float32
  bonus_probs: Probs | None = None  # [B, leaves, V] float32

  def both_probs(self, vocab_size: int) -> Probs:
    """Returns both distributions of each node, `[..., N, V]` each.

    Where tokens were chosen, the processed one is one-hot. Where a drafter
    predicts no distribution, such as prompt lookup, the raw one is zero.

    Args:
      vocab_size: `V`.
    """
    processed, raw = self.probs, self.raw_probs
    if processed is None:
      processed = jax.nn.one_hot(self.tokens, vocab_size, dtype=jnp.float32)
      if raw is None:
        raw = jnp.zeros_like(processed)
    return Probs(processed, processed if raw is None else raw)


class Noise(NamedTuple):
  """Noise of the rows' positions, which target and drafters share.

  See `sampling.race`, which computes it. It comes from the key and the position
  alone, so it is the same in every round that drafts the position.
  """

  keys: jax.Array  # [B] the rows' keys
  start: jax.Array  # [B] int32, the position of the next token


class Context(NamedTuple):
  """What a drafter may see of the rows.

  In `Drafter.init`, buffers are as long as the prompts, `[B, T]`, and there is
  no noise.
  """

  tokens: jax.Array  # [B, S] int32; committed up to `lengths`, then undefined
  lengths: jax.Array  # [B] int32
  # [B, S, F] each: the target's features that the drafter's `taps` name, of all
  # committed tokens but the last; then undefined.
  features: tuple[jax.Array, ...] = ()
  noise: Noise | None = None
  # [B] bool, rows whose drafts are used; None for all. Others are finished, or
  # have selected other drafters.
  rows: jax.Array | None = None

  def of_rows(self, values: jax.Array) -> jax.Array:
    """Returns values `[B, ...]` with zeros in rows whose drafts are not used.

    Choices for the whole batch, such as how many tokens are read, are made for
    the other rows.
    """
    if self.rows is None:
      return values
    rows = self.rows.reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.where(rows, values, jnp.zeros_like(values))

  def last_tokens(self) -> jax.Array:
    """Returns `[B, 1]` the last committed token of each row."""
    return trees.at_entries(self.tokens, self.lengths[:, None] - 1)

  def features_at(self, positions: jax.Array) -> tuple[jax.Array, ...]:
    """Returns `[B, T, F]` features at positions `[B, T]`; zeros before 0."""
    exists = positions[..., None] >= 0
    return tuple(
      jnp.where(exists, trees.at_entries(states, positions), 0)
      for states in self.features
    )

  def first(self, num: int) -> 'Context':
    """Returns the context with the first `num` positions of its buffers."""
    features = tuple(states[:, :num] for states in self.features)
    return self._replace(tokens=self.tokens[:, :num], features=features)


class Outcome(NamedTuple):
  """The result of verifying one row's tree; batched, with `[B]` in front.

  Past the accepted nodes, and past the next token, they are undefined.
  """

  path: jax.Array  # [D] int32 accepted nodes from the root down
  num_accepted: jax.Array  # [] int32, accepted draft tokens
  tokens: jax.Array  # [D + 1] int32 accepted tokens, then the next one

  @property
  def entries(self) -> jax.Array:
    """`[..., D + 1]` entries of the target call: root and accepted nodes."""
    widths = [(0, 0)] * (self.path.ndim - 1) + [(1, 0)]
    return jnp.pad(self.path + 1, widths)


class TargetProbs(NamedTuple):
  """The target's probabilities at committed positions."""

  start: jax.Array  # [B] int32, the position of the first of them
  probs: Probs  # [B, P, V] at each, then undefined


class Scored(NamedTuple):
  """What the target predicts after each token of one of its calls.

  `K` is the largest `Drafter.num_likeliest`.
  """

  tokens: jax.Array  # [B, N + 1] int32, of the root and the nodes
  valid: jax.Array  # [B, N + 1] bool, those that were drafted, and the root
  # [B, N + 1, K] int32, the likeliest tokens, best first, also after nodes that
  # are not valid; zeros where nothing was scored.
  likeliest: jax.Array


class StateSlot(NamedTuple):
  """Identifies a state that several drafters can share, one at a time.

  Drafters share a state if they have equal names and the same parameters. The
  one that reads the most levels owns it, and commits the proposals of all. Only
  the owner estimates acceptance: where estimates are needed, drafters share a
  state only if what their `estimate` depends on is equal as well.
  """

  name: Hashable
  num_levels: int  # levels of its tree that the drafter has read itself
  estimate: Hashable = None  # what an estimate depends on, besides the state

  def key(self, estimates: bool) -> Hashable:
    """Returns what is equal for drafters that share a state.

    Args:
      estimates: whether drafters estimate acceptance.
    """
    return self.name, self.estimate if estimates else None


class Drafter:
  """Proposes token trees.

  A subclass is a component (see `components.component`). It implements `draft`
  and `topology`; if it has a state, `init` and `commit`; and it overrides every
  other attribute whose default is not true of it. Attributes are cached
  properties, which a subclass may also declare as fields.

  Capabilities are methods that a drafter may lack. A subclass that implements
  one sets its class attribute: `can_catch_up` for `catch_up`, `can_estimate`
  for `estimate`, `can_roll_back` for `rollback`. A drafter without `catch_up`
  keeps no state of the text.
  """

  can_catch_up: ClassVar[bool] = False
  # Whether the drafter can be missing committed tokens after a round that it
  # has drafted itself, so that it catches up even if it is the only drafter.
  lags_after_own_rounds: ClassVar[bool] = False
  can_estimate: ClassVar[bool] = False
  can_roll_back: ClassVar[bool] = False

  @functools.cached_property
  def topology(self) -> trees.Topology | trees.Bounds:
    """Shape of the trees, or bounds if each row and round has its own."""
    raise NotImplementedError

  @functools.cached_property
  def slot(self) -> StateSlot | None:
    """Slot of the state, if other drafters may share it."""
    return None

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """Indices of the hidden states of the target model that it reads.

    They index `ModelOutput.features`; -1 is what the target's head reads. Those
    of a round's tokens are available from the next round on, to a `catch_up`
    that is called in every round.
    """
    return ()

  @functools.cached_property
  def feature_size(self) -> int | None:
    """Size of each hidden state that `taps` names; None if any will do."""
    return None

  @functools.cached_property
  def num_calls(self) -> int:
    """Number of sequential model calls per draft, for reports and costs."""
    return 0

  @functools.cached_property
  def vocab_size(self) -> int | None:
    """`V` of its distributions or its state; None if it has none."""
    return None

  @functools.cached_property
  def max_length(self) -> int | None:
    """Number of positions that its model was trained for, if limited."""
    return None

  @functools.cached_property
  def num_likeliest(self) -> int:
    """Number of the target's likeliest tokens that `observe` reads."""
    return 0

  @functools.cached_property
  def may_stop_early(self) -> bool:
    """Whether only a part of a tree may be valid.

    The target then scores trees up to the last valid node of the batch. A
    drafter that reads what the target predicts after nodes that are not valid
    leaves it false.
    """
    return False

  @functools.cached_property
  def has_stop_rule(self) -> bool:
    """Whether a stop rule ends drafts, which `estimate` does not apply."""
    return False

  @functools.cached_property
  def tree_sizes(self) -> tuple[int, ...]:
    """Numbers of first nodes that hold all valid ones in many rounds.

    The target's call is compiled for each of them.
    """
    return (self.topology.num_nodes,)

  @functools.cached_property
  def siblings(self) -> Siblings:
    """How the children of a node are drawn; a chain has no siblings."""
    return Siblings.IID

  @functools.cached_property
  def greedy(self) -> bool:
    """Whether tokens are chosen: `DraftTree.probs` is None or one-hot."""
    return False

  def init(
    self, params: Params, context: Context, max_length: int
  ) -> DraftState:
    """Reads the prompts.

    Args:
      params: of the drafter.
      context: the prompts; its buffers are `[B, T]`.
      max_length: number of tokens per row that the state must have room for.

    Returns:
      The state; by default, none.
    """
    del params, context, max_length
    return ()

  def draft(
    self,
    keys: jax.Array,
    params: Params,
    state: DraftState,
    context: Context,
  ) -> tuple[DraftTree, Proposal]:
    """Proposes a tree for each row.

    Args:
      keys: `[B]` one key per row.
      params: of the drafter.
      state: is only read, so that a choice among drafters copies no KV cache.
      context: the committed text.

    Returns:
      The trees, and the part of the computation that `commit` needs.
    """
    raise NotImplementedError

  def commit(
    self,
    state: DraftState,
    proposal: Proposal,
    context: Context,
    outcome: Outcome,
    rows: jax.Array,
  ) -> DraftState:
    """Commits what `draft` has computed for the accepted path.

    Args:
      state: as it was in `draft`.
      proposal: from `draft`. Proposals of drafters that share a slot are padded
        with zeros at the ends of their axes.
      context: as it was in `draft`, without its `rows`.
      outcome: batched. `num_accepted` counts the emitted tokens before the last
        one, at most the levels that the drafter has read.
      rows: `[B]` bool; the other rows stay as they are.

    Returns:
      The state, of the same shapes and types.
    """
    del proposal, context, outcome, rows
    return state

  def catch_up(
    self,
    params: Params,
    state: DraftState,
    context: Context,
    rows: jax.Array,
  ) -> tuple[DraftState, jax.Array]:
    """Reads the committed tokens that the state is missing.

    Args:
      params: of the drafter.
      state: may be missing what was committed while the drafter was idle.
      context: the committed text.
      rows: `[B]` bool; the other rows stay as they are.

    Returns:
      The state, and `[B]` int32 how many tokens were read.
    """
    raise NotImplementedError

  def estimate(
    self,
    params: Params,
    state: DraftState,
    context: Context,
    rows: jax.Array,
    target: TargetProbs,
  ) -> tuple[DraftState, jax.Array, Probs]:
    """Catches up, and estimates how likely its drafts would be accepted.

    Bandits with full feedback learn from the estimates. If the drafter has
    distributions, an estimate is `1 - TV` of the one that it would predict at
    this position; if it chooses its tokens, it is the target's mass on all
    tokens that it would propose there. At the first committed position it must
    be that of the draft that `draft` would have returned before the round.

    Args:
      params: see `catch_up`.
      state: see `catch_up`.
      context: see `catch_up`.
      rows: see `catch_up`.
      target: the target's probabilities at the committed positions.

    Returns:
      The state, `[B]` int32 how many tokens were read, and `[B, P]` the
      probability that a draft would have been accepted at each committed
      position, against the processed and against the raw distribution.
    """
    raise NotImplementedError

  def observe(
    self, state: DraftState, scored: Scored, rows: jax.Array
  ) -> DraftState:
    """Reads what the target has predicted in a round, whichever arm drafted.

    It is called last in each round if `num_likeliest` is above 0.

    Args:
      state: after `commit`, and after `estimate` with full feedback.
      scored: the tokens of the target's call, also those that were rejected.
      rows: `[B]` bool; the other rows stay as they are.

    Returns:
      The state, of the same shapes and types.
    """
    raise NotImplementedError

  def rollback(self, state: DraftState, lengths: jax.Array) -> DraftState:
    """Forgets what was read past `lengths` `[B]`.

    A state that can be rolled back has `lengths` `[B]`, which count what it
    has read.
    """
    raise NotImplementedError


class DraftPosition(NamedTuple):
  """Where a draft may stop: after the nodes of one level of a tree.

  Attributes:
    raw_probs: `[B, W, V]` the draft distribution after each node, before
      temperature, top-k and top-p.
    path_probs: `[B, W]` the product of such probabilities of the tokens drafted
      so far, 1 after the root.
    depth: number of tokens drafted so far, 0 after the root.
  """

  raw_probs: jax.Array
  path_probs: jax.Array
  depth: int


class StopRule:
  """Decides where a drafter stops drafting, before the next token is drawn.

  A subclass is a component (see `components.component`). Rules depend only on
  tokens that are already drafted, so that the target's distribution is kept.
  """

  def __call__(self, position: DraftPosition) -> jax.Array:
    """Returns `[B, W]` bool, after which nodes of a level to stop."""
    raise NotImplementedError


# Verification.


class Coupling:
  """Picks the next token at one position of one row, given its candidates.

  The token has exactly the distribution `target`, and should be one of the
  candidates as often as possible. A subclass is a component
  (`components.component`).

  Attributes:
    is_greedy: whether the token has the distribution `target` only where that
      is one-hot, as it is at temperature 0.
  """

  is_greedy: ClassVar[bool] = False

  def accepts(self, siblings: Siblings) -> bool:
    """Returns whether the token is exact for candidates that are drawn so."""
    return siblings in (Siblings.IID, Siblings.CHOSEN)

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    """Picks a token; a function of its arguments, which may be called twice.

    Args:
      key: consumed.
      candidates: `[W]` int32 tokens, in the order in which they were drawn, as
        siblings that the coupling accepts. Chosen tokens are no candidates.
      active: `[W]` bool, which of them are present; without any, the token is
        a sample of the target. Of candidates without replacement, none that
        was drawn between two active ones is absent.
      draft: `[V]` float32, the distribution of i.i.d. candidates; or `[W, V]`,
        that of each candidate, if the coupling accepts other ones.
      target: `[V]` float32.

    Returns:
      `(token, accepted)`: `[]` int32, and `[]` bool, whether the token is one
      of the active candidates.
    """
    raise NotImplementedError


class Verifier:
  """Selects which tokens of one row's draft tree are kept, and the next token.

  A subclass is a component (`components.component`).
  """

  def accepts(self, siblings: Siblings) -> bool:
    """Returns whether it is exact for siblings that are drawn so."""
    return siblings in (Siblings.IID, Siblings.CHOSEN)

  @property
  def is_greedy(self) -> bool:
    """Whether it is exact only where no token is sampled: at temperature 0."""
    return False

  @property
  def is_lossless(self) -> bool:
    """Whether emitted tokens have the goal distribution at any temperature."""
    return True

  @property
  def judges_by_level(self) -> bool:
    """Whether a node is kept or not whatever is drafted below it."""
    return False

  def __call__(
    self, key: jax.Array, tree: DraftTree, target_probs: jax.Array
  ) -> Outcome:
    """Verifies a tree.

    Args:
      key: consumed.
      tree: one row's tree.
      target_probs: `[N + 1, V]` float32 goal distributions: row 0 follows the
        root, and row `n + 1` follows node `n`.

    Raises:
      ValueError: the verifier does not take trees of this shape.
    """
    raise NotImplementedError


class RawProbs(NamedTuple):
  """What both models predict at one position: see `Probs.raw`.

  The raw distributions show how sure the models are, even at temperature 0.
  """

  target: jax.Array  # [V] float32
  draft: jax.Array  # [V] float32


class Goal:
  """The goal distribution: what a verifier samples from at each position.

  It replaces the target's distribution, which is the goal of lossless decoding.
  A subclass is a component (`components.component`) whose numbers are data, so
  that one compiled program serves every value of them.
  """

  def __call__(
    self, target: jax.Array, draft: jax.Array, raw: RawProbs
  ) -> jax.Array:
    """Returns the `[V]` float32 goal distribution at one position.

    Args:
      target: `[V]` float32, the target's distribution, from which lossless
        decoding samples: after temperature, top-k and top-p.
      draft: `[V]` float32, the distribution from which the draft was sampled.
      raw: both models' distributions before temperature, top-k and top-p.
    """
    raise NotImplementedError


class Arm(NamedTuple):
  """What a bandit selects for a round; `goal` None is the target: lossless."""

  drafter: Drafter
  verifier: Verifier
  goal: Goal | None = None


# Bandits.


class Flags(NamedTuple):
  """What went wrong in a row, to be raised by the host."""

  target: jax.Array  # [B] bool, a largest logit was not finite
  draft: jax.Array  # [B] bool, probabilities of drafter or goal were not
  tree: jax.Array  # [B] bool, a dynamic tree contradicts its bounds
  arm: jax.Array  # [B] bool, the bandit picked an arm that is not there
  reward: jax.Array  # [B] bool, a reward was outside [0, 1]


class RoundInfo(NamedTuple):
  """One round, row by row. `D` is the depth of the deepest arm.

  A reward receives the round of the selected arm. With full feedback, it also
  receives an estimate for every arm, in which only `arm`, `num_emitted` (a
  float), `tree_depth`, `acceptance`, `raw_acceptance` and `num_catch_up_tokens`
  (0) belong to that arm. `reward`, `rewards` and `flags` are added later.
  """

  arm: jax.Array  # [B] int32
  live: jax.Array  # [B] bool, rows that were not done
  tokens: jax.Array  # [B, D + 1] int32, the first `num_emitted` were committed
  num_emitted: jax.Array  # [B] int32, 0 in rows that were done; or its estimate
  num_accepted: jax.Array  # [B] int32, committed tokens that were drafted
  depth: jax.Array  # [B] int32, depth to which something was drafted
  tree_depth: jax.Array  # [B] int32, depth of the arm's trees
  acceptance: jax.Array  # [B] float32, mean of 1 - TV of draft and goal
  raw_acceptance: jax.Array  # [B] float32, the same of raw draft and target
  fidelity: jax.Array  # [B] float32, mean of 1 - TV of goal and target
  # [B] int32, tokens committed while the drafter was idle that it read now.
  num_catch_up_tokens: jax.Array
  reward: jax.Array | None = None  # [B] float32
  rewards: jax.Array | None = None  # [B, A] of all arms, with full feedback
  flags: Flags | None = None
  path: jax.Array | None = None  # [B, D] int32, nodes of `tokens`


class Reward:
  """Returns what a round was worth to the bandit.

  A subclass is decorated with `components.component`, and its numbers are data.
  """

  @property
  def arm_depths(self) -> Sequence[int] | None:
    """`[A]` depths that the arms' trees must have; None for any depths."""
    return None

  def __call__(self, info: RoundInfo) -> jax.Array:
    """Returns `[B]` floats in [0, 1], one for each row.

    Args:
      info: the round, or the estimate of what it would have been with another
        arm.
    """
    raise NotImplementedError


class Levels(NamedTuple):
  """What drafts were worth: in one row, or summed over live ones.

  A row emits one token, and one for each level that is passed.
  """

  # [D] float32: the tree has it, drafted or not, and all above was passed.
  reached: jax.Array
  passed: jax.Array  # [D] float32: accepted, and the row does not end there


@components.component
class Bandit:
  """Selects the arm of the next round.

  A subclass is decorated with `components.component`. Its numbers are data, so
  that one compiled program serves every value of them; what fixes the shapes of
  its state is static. Its state is a pytree of arrays that a compiled loop
  carries.

  Attributes:
    num_arms: `A`, the number of arms that it selects from, at least 1.
    needs_all_rewards: whether `update` needs the rewards of all arms, as rounds
      with full feedback have them; a class attribute.
    learns_from_rewards: whether rewards alone change the state, as a warm start
      requires; a class attribute.
  """

  num_arms: int = components.static()

  needs_all_rewards: ClassVar[bool] = False
  learns_from_rewards: ClassVar[bool] = True

  def __post_init__(self) -> None:
    checks.check_integers('num_arms', self.num_arms, 1)

  @property
  def arm_depths(self) -> Sequence[int] | None:
    """`[A]` depths that the arms' trees must have; None for any depths."""
    return None

  def init(self) -> BanditState:
    """Returns the state before the first round."""
    raise NotImplementedError

  def read_text(
    self, state: BanditState, context: Context, live: jax.Array
  ) -> BanditState:
    """Returns the state with what the rows' text shows before a round.

    Only contextual bandits read it.

    Args:
      state: what the bandit has learned so far.
      context: the committed text of the rows for which the bandit selects.
      live: `[B]` bool, the rows that are not finished.
    """
    del context, live
    return state

  def select(self, key: jax.Array, state: BanditState) -> jax.Array:
    """Returns the arm of the next round, an int32 scalar in [0, A).

    Args:
      key: a random key of this round.
      state: what the bandit has learned so far.
    """
    raise NotImplementedError

  def update(
    self, state: BanditState, arm: jax.Array, reward: jax.Array, /, **extra: Any
  ) -> BanditState:
    """Returns the state after a round.

    Args:
      state: the state before the round.
      arm: `[]` int32, the arm that was selected.
      reward: `[]` float in [0, 1], the reward of that arm. If one bandit
        selects for a whole batch, this is the mean over its unfinished rows.
      **extra: further feedback, of which a bandit ignores what it does not use:
        `levels`, the `Levels` of the arm's trees; and `rewards`, `[A]`, those
        of all arms, where the round has full feedback.
    """
    raise NotImplementedError

  def update_all(self, state: BanditState, rewards: jax.Array) -> BanditState:
    """Returns the state after every arm has received a reward.

    No arm was selected, so no reward is divided by the probability of a
    selection. A bandit that does not learn from rewards keeps its state.

    Args:
      state: the state before.
      rewards: `[A]` floats in [0, 1].
    """
    del rewards
    if self.learns_from_rewards:
      raise NotImplementedError
    return state
