"""The abstractions: NamedTuples of pure functions, and what flows between them.

Data flows one way:

    bandit -> arm -> drafter -> tree -> target -> verifier -> outcome -> reward
      ^                                                          |          |
      |                                                          v          |
      |                                                     caches, tokens  |
      +---------------------------------------------------------------------+

Axes: `B` rows, `N` nodes of a draft tree (root excluded), `D` its depth, `W`
its widest level, `V` vocabulary, `S` buffer length, `T` tokens in one model
call, `M` tokens of an open block, `A` arms, `P` tokens of a round.

Parameters are always arguments and never closed over. Target and draft are
always written out; the papers disagree on which of them is `p`.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import inspect
import types
from typing import Any
from typing import NamedTuple
from typing import ParamSpec
from typing import TypeVar
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np

from specjax import trees

Params = Any
Cache = Any

_Arguments = ParamSpec('_Arguments')
_Component = TypeVar('_Component')

# Components that each factory remembers.
_REMEMBERED = 1024


@overload
def component(
  factory: Callable[_Arguments, _Component],
) -> Callable[_Arguments, _Component]: ...


@overload
def component(
  *,
  example: dict[str, Any] | None = None,
  params: Callable[..., Params] | None = None,
  topologies: Sequence[trees.Topology] | None = None,
) -> Callable[
  [Callable[_Arguments, _Component]], Callable[_Arguments, _Component]
]: ...


def component(factory=None, *, example=None, params=None, topologies=None):
  """Makes components values: equal calls of a factory return one object.

  JAX shares compiled programs between static arguments that are equal, and
  functions are equal only to themselves. Every factory of the library is
  decorated with this, so that what is built twice is compiled once. Sequences
  and NumPy arrays are compared by their contents: a list equals a tuple, or an
  array, of the same numbers. Numbers of different types differ, as they do for
  JAX: 1, 1.0 and True are three values. A call with values that JAX traces is
  never remembered.

  The keywords are for contract tests, which a component enters with its line
  in a table: what they have to know beyond what they give to all components of
  its kind. They become attributes of the factory.

  Args:
    factory: builds the component.
    example: arguments that it is built with. What all of its kind are given,
      such as `num_arms` or `topology`, is added if the factory has it.
    params: of a model or a drafter, returns its parameters; takes arguments of
      the factory by their names, and `model_params`, those of the small model
      that drafters are given. None stands for the latter.
    topologies: of a verifier, trees that it takes beside chains; it refuses all
      other shapes. None leaves open what it takes.
  """
  if factory is None:
    return functools.partial(
      component, example=example, params=params, topologies=topologies
    )
  signature = inspect.signature(factory)

  @functools.lru_cache(maxsize=_REMEMBERED)
  def remembered(call):
    # Arrays that are made here outlive the trace that may be in progress.
    with jax.ensure_compile_time_eval():
      return factory(*call.args, **call.kwargs)

  @functools.wraps(factory)
  def build(*args, **kwargs):
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if _is_traced(bound.arguments, set()):
      return factory(*args, **kwargs)
    try:
      call = _Call(_by_contents(bound.arguments), args, kwargs)
    except TypeError:  # Something has no hash.
      return factory(*args, **kwargs)
    return remembered(call)

  build.example = example or {}
  build.params = params
  build.topologies = topologies
  return build


class _Call:
  """Arguments of a factory, equal to others by their contents."""

  def __init__(self, key, args, kwargs):
    self.key, self.args, self.kwargs = key, args, kwargs
    self._hash = hash(key)

  def __hash__(self):
    return self._hash

  def __eq__(self, other):
    return self.key == other.key


def _by_contents(value):
  """Returns what stands for a value where calls are compared."""
  if isinstance(value, dict):
    named = ((name, _by_contents(each)) for name, each in value.items())
    return dict, frozenset(named)
  if isinstance(value, np.ndarray) and value.size and value.ndim:
    value = list(value)
  if isinstance(value, list | tuple):
    own = type(value) if hasattr(value, '_fields') else tuple
    return own, *map(_by_contents, value)
  if isinstance(value, functools.partial):
    return value.func, _by_contents(value.args), _by_contents(value.keywords)
  if isinstance(value, np.ndarray):
    return value.shape, value.dtype.str, value.tobytes()
  if isinstance(value, bool | int | float | np.number | np.bool_):
    return np.result_type(value), value
  return value


def _is_traced(value, seen):
  """Returns whether JAX traces a value, or what it holds or closes over.

  Args:
    value: anything.
    seen: functions that were looked into, as some close over themselves.
  """
  if isinstance(value, jax.core.Tracer):
    return True
  function = inspect.unwrap(value) if callable(value) else None
  if isinstance(function, types.FunctionType):
    if function in seen:
      return False
    seen.add(function)
  return any(_is_traced(part, seen) for part in _parts(value, function))


def _parts(value, function):
  """Returns what a value holds, or what a function closes over."""
  if isinstance(value, dict):
    return value.values()
  if isinstance(value, list | tuple):
    return value
  if isinstance(value, functools.partial):
    return value.func, value.args, value.keywords
  if not isinstance(function, types.FunctionType):
    return ()
  nothing = types.CellType()  # What stands for a name without a value yet.
  cells = [cell for cell in function.__closure__ or () if cell != nothing]
  closed = [cell.cell_contents for cell in cells]
  return closed, function.__defaults__ or (), function.__kwdefaults__ or {}


class Extension(NamedTuple):
  """What a model says of the tokens that it has just read."""

  logits: jax.Array  # [B, T, V] float32; [:, t] predicts what follows token t
  features: Any  # [B, T, ...] hidden features of the tokens, or None
  block: Any  # uncommitted part of the cache, for `extend` and `keep`


class LanguageModel(NamedTuple):
  """A model that reads tokens behind a cache with a length per row.

  Attributes:
    init_cache: `(params, batch, size) -> cache`, empty, with `size` slots.
    prefill: `(params, cache, tokens[B, T], lengths[B]) -> cache`; reads the
      first `lengths` tokens of each row into an empty cache.
    extend: `(params, cache, tokens[B, T], *, block=None, positions=None,
      mask=None) -> Extension`; scores `T` tokens that stand behind the cache
      and the open block, a chain by default. `positions` `[B, T]` are absolute,
      negative for padding; `mask` `[T, M + T]` or `[B, T, M + T]` is true where
      a token attends to an entry of the block. The cache is only read.
    keep: `(cache, block, path[B, P], num[B]) -> cache`; commits the block's
      entries `path[:num]` and drops the rest. Never recomputes. `num` must
      depend on what the model said of the block (see `models.kv_cache.keep`).
    rollback: `(cache, lengths[B]) -> cache`; forgets what lies past `lengths`.
    vocab_size: `V`.
    start_id: of an encoder-decoder, the token that ends every prompt; all
      before it is the encoder's. None of a decoder-only model.
  """

  init_cache: Callable[..., Cache]
  prefill: Callable[..., Cache]
  extend: Callable[..., Extension]
  keep: Callable[..., Cache]
  rollback: Callable[..., Cache]
  vocab_size: int
  start_id: int | None = None


class Laws(NamedTuple):
  """The two laws that a model's logits give, or one number for each of them.

  Equal at temperature 1 without top-k and top-p; at temperature 0, `sampled` is
  one-hot and says nothing of how sure the model is.
  """

  sampled: jax.Array  # what tokens are drawn from
  untempered: jax.Array  # the softmax of the logits


class DraftTree(NamedTuple):
  """A drafter's proposal.

  `probs[:, n]` is the float32 distribution from which node `n` was drawn, i.e.
  after its parent; siblings are independent, and verifiers take them as i.i.d.
  unless they ask for a law of each. None means that every token was chosen
  deterministically. `untempered` is what the model said before temperature,
  top-k and top-p; None means the same as `probs`. `leaf_laws` is what the
  drafter says after its leaves, in the order of `topology.leaf_entries`; only
  goals other than the target ask for it.
  """

  tokens: jax.Array  # [B, N] int32
  topology: trees.Topology  # static: parents and depths of the nodes
  valid: jax.Array  # [B, N] bool; false where nothing was proposed
  probs: jax.Array | None  # [B, N, V] float32
  untempered: jax.Array | None = None  # [B, N, V] float32
  leaf_laws: Laws | None = None  # [B, leaves, V] float32

  @property
  def laws(self) -> Laws:
    """Both laws of each node; None where tokens were chosen."""
    same = self.untempered is None
    return Laws(self.probs, self.probs if same else self.untempered)


class Context(NamedTuple):
  """What a drafter may see of the rows."""

  tokens: jax.Array  # [B, S] int32; committed up to `lengths`, junk beyond
  lengths: jax.Array  # [B] int32


class Outcome(NamedTuple):
  """What a verifier made of one row's tree."""

  path: jax.Array  # [D] int32 accepted nodes from the root down, then junk
  num_accepted: jax.Array  # [] int32, draft tokens kept
  tokens: jax.Array  # [D + 1] int32 accepted tokens, then the next one, junk


class Committed(NamedTuple):
  """What the target said of the tokens that a round has committed."""

  start: jax.Array  # [B] int32, the position of the first of them
  laws: Laws  # [B, P, V] the target's at each, then junk


class CatchUp(NamedTuple):
  """What came of reading tokens that other drafters committed."""

  state: Any  # of the drafter
  num_tokens: jax.Array  # [B] int32, tokens that were read
  overlap: Laws | None = None  # [B, P], where `Committed` was given


class Drafter(NamedTuple):
  """A proposer of token trees.

  Attributes:
    topology: shape of the trees that it proposes.
    init: `(params, tokens[B, T], lengths[B], max_length) -> state`; reads the
      prompts, with room for rows of `max_length` tokens.
    draft: `(keys[B], params, state, context) -> (DraftTree, proposal)`; the
      proposal is whatever `commit` needs of the computation. `state` is only
      read, so that a switch over drafters copies no cache.
    commit: `(state, proposal, context, outcome, keep[B]) -> state`; keeps what
      was computed of the accepted path in rows where `keep`, nothing elsewhere.
      `outcome` and `context` (as it was when drafting) are batched.
    catch_up: `(params, state, context, wanted[B], committed=None) -> CatchUp`;
      reads the tokens that other drafters committed, in rows where `wanted`.
      With `committed`, it also tells how far its laws and the target's overlap
      at each of those positions: the chance that a draft would be accepted.
    num_calls: sequential model calls a draft costs, for the cost model.
    memory: what names the state, if not the drafter itself: drafters of equal
      `memory` (hashable) and the same parameters can use one state in turns.
      The one with the most calls commits what any of them has proposed, padded
      behind; `num_accepted` then counts no level that was not read.
    vocab_size: of its laws; None if it has none.
    partial: whether its trees may be valid in part only. The target then scores
      them as deep as the deepest valid node of the batch, not in full.
    lags: whether what it commits can fall short of what was accepted, so that
      it must catch up even if it alone is played.
  """

  topology: trees.Topology
  init: Callable[..., Any]
  draft: Callable[..., tuple[DraftTree, Any]]
  commit: Callable[..., Any]
  catch_up: Callable[..., CatchUp]
  num_calls: int
  memory: Any = None
  vocab_size: int | None = None
  partial: bool = False
  lags: bool = False


# `(key, candidates[W], active[W], draft[V], target[V]) -> (token, accepted)`.
# For one position of one row: picks the next token with exactly the law
# `target`, given i.i.d. candidates from `draft` of which some are active.
# `accepted` says that the token is one of the active candidates; without any,
# it is a plain sample of the target.
Coupling = Callable[..., tuple[jax.Array, jax.Array]]

# `(key, tree, target_probs[N + 1, V]) -> Outcome` for one row; row 0 of
# `target_probs` follows the root and row `n + 1` follows node `n`.
Verifier = Callable[..., Outcome]

# `(target[V], draft[V], untempered=None) -> goal[V]`: the law to be sampled
# instead of the target's, by what tokens are drawn from. `untempered` is a pair
# `(target[V], draft[V])` that says how sure the models are: their laws before
# temperature, top-k and top-p; None means the same as the first two.
Goal = Callable[..., jax.Array]


class Feedback(NamedTuple):
  """What an arm's round has shown, or would have shown, in each row."""

  arm: jax.Array  # [B] int32
  emitted: jax.Array  # [B] float32 tokens; expected, if it was not played
  overlap: jax.Array  # [B] float32, mean chance that a drafted token is kept
  agreement: jax.Array  # [B] float32, 1 - TV of the untempered laws
  fidelity: jax.Array  # [B] float32, mean of 1 - TV of goal and target
  depth: jax.Array  # [B] int32, of the arm's tree
  max_depth: int  # of the deepest arm
  caught_up: jax.Array  # [B] int32, tokens that its drafter had to read first


# `(feedback) -> [B]` in [0, 1]: what a round was worth in each row.
Reward = Callable[[Feedback], jax.Array]


class Arm(NamedTuple):
  """One way to play a round; `goal` None is the target: lossless."""

  drafter: Drafter
  verifier: Verifier
  goal: Goal | None = None


class Bandit(NamedTuple):
  """A rule that picks the arm of the next round.

  Attributes:
    num_arms: `A`, how many arms it picks from.
    init: `() -> state`.
    select: `(key, state) -> arm`, a scalar int32 in [0, A).
    update: `(state, arm, reward, **extra) -> state`: what the arm that was
      selected has earned; unknown extras are ignored. Where a round yields
      them, `rewards` `[A]` are those of all arms.
    update_all: `(state, rewards[A]) -> state`: what every arm would have
      earned. No arm was selected, so that nothing is divided by a chance of
      being selected.
  """

  num_arms: int
  init: Callable[[], Any]
  select: Callable[[jax.Array, Any], jax.Array]
  update: Callable[..., Any]
  update_all: Callable[[Any, jax.Array], Any]


def lookup(table: dict[str, Any], kind: str, name: str) -> Any:
  """Returns `table[name]`, or raises a `ValueError` that lists the names."""
  if name not in table:
    raise ValueError(
      f'Unknown {kind} {name!r}. Known: {", ".join(sorted(table))}.'
    )
  return table[name]


def check_range(name: str, values, low, high=np.inf) -> None:
  """Raises a `ValueError` unless all values lie in `[low, high]`.

  Values are checked where they are known, which they are not while JAX traces.
  """
  if not isinstance(values, jax.core.Tracer):
    array = np.asarray(values, np.float64)
    if not ((low <= array) & (array <= high)).all():
      allowed = f'be >= {low}' if high == np.inf else f'lie in [{low}, {high}]'
      raise ValueError(f'{name} must {allowed}, got {values}.')


def pad_to(leaf: jax.Array, like: Any) -> jax.Array:
  """Pads an array with zeros, at the ends of its axes, to another's shape."""
  return jnp.pad(
    leaf, [(0, new - old) for old, new in zip(leaf.shape, like.shape)]
  )
