"""Exact Markov models: the next token depends on the last one and its place."""

from flax import struct
import jax
import jax.numpy as jnp

from specjax import base
from specjax import registry


class MarkovCache(struct.PyTreeNode):
  """A Markov model remembers nothing but where it is."""

  lengths: jax.Array  # [B] int32


@registry.component(
  example={'vocab_size': 5},
  # It is not the same at all positions.
  params=lambda vocab_size: jax.nn.softmax(
    jax.random.normal(jax.random.key(0), (9, vocab_size, vocab_size))
  ),
)
def markov(vocab_size: int) -> base.LanguageModel:
  """Builds the functions of a Markov model.

  Its parameters are a table of transition probabilities, `[V, V]` for a
  stationary chain or `[H, V, V]` for one that changes with the position: row
  `[h, x]` is the distribution of what follows token `x` at position `h`.
  Positions past the horizon `H` use its last table.

  Args:
    vocab_size: `V`.

  Returns:
    The model; logits are logs of the table's entries, so that temperature 1
    gives them back.
  """
  if vocab_size < 1:
    raise ValueError(f'vocab_size must be >= 1, got {vocab_size}.')

  def init_cache(params, batch, size):
    del size
    if params.shape[-2:] != (vocab_size, vocab_size):
      raise ValueError(
        f'A table of shape [..., {vocab_size}, {vocab_size}] is needed, got '
        f'{params.shape}.'
      )
    return MarkovCache(lengths=jnp.zeros(batch, jnp.int32))

  def extend(params, cache, tokens, *, pending=None, positions=None, mask=None):
    del mask
    if positions is None:
      first = 0 if cache is None else cache.lengths[:, None]
      first = first + (0 if pending is None else pending.shape[1])
      positions = jnp.broadcast_to(
        first + jnp.arange(tokens.shape[1])[None], tokens.shape
      )
    tables = jnp.asarray(params if params.ndim == 3 else params[None])
    at = jnp.clip(positions, 0, tables.shape[0] - 1)
    positions_read = (
      positions if pending is None else jnp.append(pending, positions, 1)
    )
    return base.Extension(
      logits=jnp.log(tables[at, tokens]), features=(), pending=positions_read
    )

  def commit(cache, pending, path, num):
    del pending, path
    return MarkovCache(lengths=cache.lengths + num)

  return base.LanguageModel(
    init_cache=init_cache,
    prefill=lambda params, cache, tokens, lengths: (MarkovCache(lengths), ()),
    extend=extend,
    commit=commit,
    rollback=lambda cache, lengths: MarkovCache(
      jnp.minimum(cache.lengths, lengths)
    ),
    vocab_size=vocab_size,
  )
