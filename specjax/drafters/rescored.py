"""Parallel heads whose likeliest tokens a small language model rescores.

"Exploring and Improving Drafts in Blockwise Parallel Decoding" (Kim et al.
2024, arXiv:2404.09221), section 7.1: local rescoring. Heads such as Medusa's
predict each token whatever the others are, so that the likeliest ones often
make no text; many repeat the token before. The likeliest tokens of each head
form a lattice. A model reads a path through it from left to right, and its
logits are interpolated with those of the heads:

    lattice    a b c        b c d        a d e       the `top` of each head
    model      after text   after a      after a, c
    draft      a            c            d

The paper also rescores globally, by n-grams (section 7.2): a dynamic program
over the lattice selects the likeliest paths. It needs a model whose scores
depend on a few tokens, with an entry for each n-gram of a corpus, which no
family has. A `Markov` table serves here as a model of 2-grams, but locally.
"""

import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import lag
from specjax.drafters import medusa
from specjax.drafters import model_reader
from specjax.drafters import static_tree
from specjax.drafters import tree_drafting

# The logit of tokens that the model forbids: finite at every temperature.
_FORBIDDEN = -1e9


class Lattice(NamedTuple):
  """The likeliest tokens of each head, `H` levels of them, best first.

  The first level are the tokens that may come next.
  """

  log_probs: jax.Array  # [B, W, H, K], -inf where a head has fewer tokens
  tokens: jax.Array  # [B, W, H, K] int32

  def below(self) -> 'Lattice':
    """Returns the lattice after a token of the first level.

    The last level, which is none, is the first one again: all lattices of a
    tree have one shape.
    """
    return jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=2), self)


@components.component
class LatticeReader(model_reader.ModelReader):
  """Reads tokens with the model, and hidden states with the heads.

  Its outputs are pairs, of the model's logits `[B, W, V]` and the lattice. The
  lattice after a row's last token is also that of its draft: nodes inherit what
  is left of it.

  Attributes:
    model: the language model.
    tail: see `lag.Reader`.
    head: the heads.
    top: number of tokens of each head.
    weight: of the model's logits.
  """

  _: dataclasses.KW_ONLY
  head: base.ParallelHead
  top: int = components.static()
  weight: float

  def prefill(
    self, params: base.Params, context: base.Context, size: int
  ) -> base.Cache:
    """Reads the prompts with the model."""
    return super().prefill(params[1], context, size)

  def read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> lag.ReadEntries:
    """Reads the next tokens, and the hidden states before each."""
    entries = super().read(params[1], cache, context, num)
    at = cache.lengths[:, None] + np.arange(num)[None] - 1
    lattice = self._lattice(params[0], context, at)
    return entries._replace(outputs=(entries.outputs, lattice))

  def read_tail(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    depth: int,
    may_stop_early: bool,
  ) -> lag.Tail:
    """Reads the tail, and the last hidden states."""
    tail = super().read_tail(params[1], cache, context, depth, may_stop_early)
    lattice = self._lattice(params[0], context, context.lengths[:, None] - 2)
    return tail._replace(outputs=(tail.outputs, lattice))

  def read_nodes(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    parents: tree_drafting.Prediction,
    pending: base.PendingKV,
    positions: jax.Array,
    mask: jax.Array,
  ) -> tuple[Any, base.PendingKV]:
    """Reads the tokens of nodes with the model."""
    logits, pending = super().read_nodes(
      params[1], cache, tokens, parents, pending, positions, mask
    )
    return (logits, parents.outputs.below()), pending

  def predict(
    self,
    params: base.Params,
    outputs: Any,
    sampling: sampling_lib.Sampling,
  ) -> tree_drafting.Prediction:
    """Returns the rescored predictions, with the lattice."""
    del params
    logits, lattice = outputs
    one_node = functools.partial(_rescore, self.weight)
    rescored = jax.vmap(jax.vmap(one_node))(
      logits, lattice.log_probs[:, :, 0], lattice.tokens[:, :, 0]
    )
    return tree_drafting.predict(rescored, sampling, lattice)

  def _lattice(
    self, params: base.Params, context: base.Context, at: jax.Array
  ) -> Lattice:
    """Returns the lattices by hidden states at positions `[B, T]`.

    Before position 0 there are none, and a lattice is empty.
    """
    log_probs, tokens = self.head.likeliest(
      params, context.features_at(at), self.top
    )
    exists = at[..., None, None] >= 0
    return Lattice(jnp.where(exists, log_probs, -jnp.inf), tokens)


@components.component
class Rescored(static_tree.StaticTreeDrafter):
  """Drafts tokens of parallel heads that a language model finds likely.

  Children of a node are the `top` likeliest tokens of the head of their level
  at most. Their logits are `1 - weight` times the head's, plus `weight` times
  those of the model after the node. The paper drafts the likeliest token at
  every level, as a chain does here at temperature 0; at other temperatures, it
  is drawn from the softmax of these logits. Siblings are drawn without
  replacement, and are the likeliest tokens at temperature 0. In a row of one
  token, which has no hidden states yet, the model drafts alone.

  Parameters are a pair, of `head` and of `model`; the state is the model's KV
  cache.

  Attributes:
    head: the heads, at least as many as the tree is deep.
    model: the language model that rescores their tokens.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; usually the same as the target's.
    top: number of tokens of each head; 16 in most of the paper's results.
    weight: of the model's logits, in [0, 1]; the paper tunes it for each data
      set. It is data: arms that differ only in it share one program.
    bonus_probs: see `StaticTreeDrafter`; takes one head more.
    stop: see `StaticTreeDrafter`.

  Raises:
    ValueError: head and model differ in their vocabularies, the tree has no
      nodes or is deeper than there are heads, or a number is out of range.
  """

  head: base.ParallelHead
  model: base.LanguageModel
  topology: trees.Topology = components.static()
  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  _: dataclasses.KW_ONLY
  top: int = components.static(default=16)
  weight: float = 0.5
  bonus_probs: bool = components.static(default=False)
  stop: base.StopRule | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    medusa.check_depth(self.head, self.topology, self.bonus_probs)
    sizes = self.head.vocab_size, self.model.vocab_size
    if sizes[0] != sizes[1]:
      raise ValueError(
        'model must have the vocabulary of head, which has '
        f'{sizes[0]} tokens, got {sizes[1]}.'
      )
    checks.check_integers('top', self.top, 1, self.head.vocab_size)
    checks.check_range('weight', self.weight, 0, 1)

  @functools.cached_property
  def reader(self) -> LatticeReader:
    """Reads tokens with the model, and hidden states with the heads."""
    return LatticeReader(
      self.model, head=self.head, top=self.top, weight=self.weight
    )

  @functools.cached_property
  def slot(self) -> base.StateSlot:
    """The model's KV cache, whatever the lattices are."""
    reader = model_reader.ModelReader(self.model)
    settings = self.head, self.sampling, self.weight
    estimate = components.identity(settings), self.top
    return base.StateSlot(reader, self.num_levels, estimate)

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """The heads'."""
    return self.head.taps

  @functools.cached_property
  def feature_size(self) -> int:
    """The heads'."""
    return self.head.feature_size

  @functools.cached_property
  def num_calls(self) -> int:
    """One call of the heads, and those of the model."""
    return 2 + self.tree_spec.read_depth

  @functools.cached_property
  def num_levels(self) -> int:
    """All levels that are read: their KV is that of the committed tokens."""
    return self.tree_spec.read_depth

  @functools.cached_property
  def tree_spec(self) -> tree_drafting.TreeSpec:
    """Specifies the tree."""
    return tree_drafting.TreeSpec(
      self.topology,
      self.sampling,
      self.bonus_probs,
      self.stop,
      tree_drafting.tree_siblings(self.topology, self.sampling, distinct=True),
    )


def _rescore(
  weight: jax.typing.ArrayLike,
  logits: jax.Array,
  log_probs: jax.Array,
  tokens: jax.Array,
) -> jax.Array:
  """Returns `[V]` the rescored logits after one node, -inf off the lattice.

  Logits of the head and its log-probabilities differ by a constant, which
  the softmax does not see. A token that the model forbids is the last choice.

  Args:
    weight: of the model's logits.
    logits: `[V]` of the model; the result if the lattice is empty.
    log_probs: `[K]` of the lattice's tokens; -inf for none.
    tokens: `[K]` int32.
  """
  exists = log_probs != -jnp.inf
  model_logits = jnp.maximum(logits[tokens], _FORBIDDEN)
  scores = (1 - weight) * log_probs + weight * model_logits
  rescored = jnp.full_like(logits, -jnp.inf)
  rescored = rescored.at[tokens].max(jnp.where(exists, scores, -jnp.inf))
  return jnp.where(exists.any(), rescored, logits)
