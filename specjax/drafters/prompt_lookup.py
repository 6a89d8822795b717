"""Prompt lookup: the row's own text, where it ended like this before."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry
from specjax import trees
from specjax.drafters import matching
from specjax.drafters import stateless

# Matches that are looked at for each draft.
_LOOKED_AT = 8


@registry.component
def prompt_lookup(
  draft_length: int = 8,
  num_drafts: int = 1,
  *,
  max_ngram: int = 3,
  min_ngram: int = 1,
) -> base.Drafter:
  """Builds a drafter that copies from the row's prompt and output.

  A draft is what followed an earlier match of the last tokens: the longest
  match first, and of those the most recent one (prompt lookup decoding, PLD).
  Further drafts are the next ones that begin with another token.

  Args:
    draft_length: tokens of each chain.
    num_drafts: chains.
    max_ngram: tokens beyond which a match counts as no longer.
    min_ngram: tokens that must match for a draft.

  Returns:
    The drafter; it takes no parameters.
  """
  checks.check_range('draft_length', draft_length, 1)
  checks.check_range('num_drafts', num_drafts, 1)
  checks.check_range('max_ngram', max_ngram, 1)
  checks.check_range('min_ngram', min_ngram, 1, max_ngram)

  @jax.vmap
  def from_row(tokens, length):
    size = len(tokens)
    matched = matching.own(tokens, length, max_ngram)
    # As floats, since XLA sorts integers in full on CPU.
    order = (matched * size + np.arange(size)).astype(jnp.float32)
    # Several matches may go on alike: more are looked at than are drafted.
    num = 1 if num_drafts == 1 else min(_LOOKED_AT * num_drafts, size)
    _, places = jax.lax.top_k(order, num)
    continuations = jax.vmap(
      matching.own_continuation, in_axes=(None, None, 0, None)
    )(tokens, length, places, draft_length)
    first = continuations[:, 0]
    repeats = first[:, None] == first[None]
    repeats &= np.tri(num, k=-1, dtype=bool)
    fresh = (matched[places] >= min_ngram) & ~repeats.any(1)
    chosen = jnp.argsort(~fresh)[:num_drafts]
    draft = jnp.where(fresh[chosen, None], continuations[chosen], 0)
    draft = jnp.pad(draft, ((0, num_drafts - len(chosen)), (0, 0)))
    valid = jnp.pad(fresh[chosen], (0, num_drafts - len(chosen)))
    return draft.T.ravel(), jnp.tile(valid, draft_length)

  def propose(params, context):
    del params
    return from_row(context.tokens, context.lengths)

  return stateless.stateless(trees.chains(num_drafts, draft_length), propose)
