"""Token recycling: a table of the target's likeliest successors of each token.

Luo et al. (2024, arXiv:2408.08696). Nothing is trained, and no model drafts.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import trees
from specjax.drafters import acceptance_estimate
from specjax.drafters import siblings

# In place of a successor that is not known.
_UNKNOWN = -1


@components.component
class TokenRecycling(base.Drafter):
  """Drafts a static tree from a table that the target's calls fill.

  The state has, for each row and token, the `num_successors` likeliest tokens
  after it when the target last scored it, in an accepted or a rejected draft of
  any arm. The children of a node are the first successors of its token. If one
  call scores a token several times, the last node counts.

  Rows begin with the table in the parameters, `[V, num_successors]` int32 with
  -1 for unknown successors, or with an empty one if the parameters are None.
  In the authors' code, one table serves one prompt after the other; here each
  row has its own, so that it depends on no other prompt. The target's logits on
  the prompt itself are recycled in neither.

  Attributes:
    topology: the tree to draft, at least one node. That of the paper has 80
      nodes on 6 levels (`trees.TREES['token_recycling']`).
    vocab_size: `V` of the target.
    num_successors: at least the largest number of children of a node, at most
      `V`; 8 in the paper.
  """

  topology: trees.Topology = components.static()
  vocab_size: int = components.static()
  _: dataclasses.KW_ONLY
  num_successors: int = components.static(default=8)

  can_estimate = True
  may_stop_early = True
  siblings = base.Siblings.CHOSEN
  greedy = True

  def __post_init__(self) -> None:
    checks.check_range('nodes of topology', self.topology.num_nodes, 1)
    most = int(self.ranks.max()) + 1
    checks.check_integers(
      'num_successors', self.num_successors, most, self.vocab_size
    )

  @functools.cached_property
  def ranks(self) -> np.ndarray:
    """`[N]` which successor of its parent each node is."""
    return siblings.ranks(self.topology.parents)

  @functools.cached_property
  def num_likeliest(self) -> int:
    """The number of successors."""
    return self.num_successors

  @functools.cached_property
  def slot(self) -> base.StateSlot:
    """Shared by all trees."""
    name = 'token_recycling', self.vocab_size, self.num_successors
    num_children = len(self.topology.levels[0])
    return base.StateSlot(name, num_levels=0, estimate=num_children)

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> jax.Array:
    """Returns the initial table of each row, `[B, V, num_successors]` int32."""
    del max_length
    shape = self.vocab_size, self.num_successors
    if params is None:
      table = jnp.full(shape, _UNKNOWN, jnp.int32)
    elif (given := getattr(params, 'shape', None)) != shape:
      raise ValueError(
        'The parameters of token_recycling must be None or a table of shape '
        f'{shape}, got {type(params).__name__} of shape {given}.'
      )
    else:
      table = jnp.asarray(params, jnp.int32)
    return jnp.broadcast_to(table, (len(context.lengths), *shape))

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: jax.Array,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    """Walks through the table from the last token on."""
    del keys, params
    last = context.last_tokens()[:, 0]
    tokens, valid = jax.vmap(self._draft_row)(state, last)
    return base.DraftTree(tokens, self.topology, valid, probs=None), ()

  def _draft_row(
    self, table: jax.Array, last: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns `[N]` tokens and which are valid, given `[V, k]` and a token."""
    # They begin with the root; each level appends its nodes.
    tokens, valid = last[None], jnp.ones(1, bool)
    entries = np.asarray(self.topology.parents) + 1
    for level in self.topology.levels:
      parents = entries[level]
      successors = table[tokens[parents], self.ranks[level]]
      exists = valid[parents] & (successors != _UNKNOWN)
      tokens = jnp.append(tokens, jnp.where(exists, successors, 0))
      valid = jnp.append(valid, exists)
    return tokens[1:], valid[1:]

  def observe(
    self, state: jax.Array, scored: base.Scored, rows: jax.Array
  ) -> jax.Array:
    """Replaces the successors of all tokens that were scored."""
    return jax.vmap(self._observe_row)(state, scored, rows)

  def _observe_row(
    self, table: jax.Array, scored: base.Scored, is_live: jax.Array
  ) -> jax.Array:
    """Returns a row's table after a call of the target."""
    tokens, valid = scored.tokens, scored.valid & is_live
    same = (tokens[:, None] == tokens[None]) & valid[None]
    is_last = valid & ~jnp.triu(same, k=1).any(1)
    # Nothing is written past the last token of the vocabulary.
    at = jnp.where(is_last, tokens, self.vocab_size)
    successors = scored.likeliest[:, : self.num_successors]
    return table.at[at].set(successors, mode='drop')

  def estimate(
    self,
    params: base.Params,
    state: jax.Array,
    context: base.Context,
    rows: jax.Array,
    target: base.TargetProbs,
  ) -> tuple[jax.Array, jax.Array, base.Probs]:
    """Returns the target's mass on the successors at each position.

    They are those in the table before the round.
    """
    del params
    num_children = len(self.topology.levels[0])
    tokens = acceptance_estimate.tokens_before(context, target)
    look_up = lambda table, tokens: table[tokens, :num_children]
    successors = jax.vmap(look_up)(state, tokens)
    acceptance = acceptance_estimate.mass(
      target, successors, successors != _UNKNOWN
    )
    return state, jnp.zeros_like(rows, jnp.int32), acceptance
