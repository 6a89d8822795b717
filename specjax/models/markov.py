"""Exact Markov models, which depend on the last token and its position."""

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components


class MarkovCache(struct.PyTreeNode):
  """The cache of a Markov model, which holds only the lengths of the rows."""

  lengths: jax.Array  # [B] int32


@components.component
class Markov(base.LanguageModel):
  """A language model with known transition probabilities.

  Its parameters are a table of transition probabilities, `[V, V]` for a
  stationary chain or `[H, V, V]` for one that changes with the position: row
  `[h, x]` is the distribution of the token after `x` at position `h`. Positions
  past the horizon `H` use its last table. Logits are logs of the entries, so
  that sampling at temperature 1 draws from the table.

  Attributes:
    vocab_size: `V`.
  """

  vocab_size: int = components.static()

  def __post_init__(self):
    checks.check_integers('vocab_size', self.vocab_size, 1)

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> MarkovCache:
    """Returns a cache; see `LanguageModel.init_cache`.

    Raises:
      ValueError: the table has another vocabulary size.
    """
    del size
    if params.shape[-2:] != (self.vocab_size, self.vocab_size):
      raise ValueError(
        f'params must have the shape [..., {self.vocab_size}, '
        f'{self.vocab_size}], got {params.shape}.'
      )
    return MarkovCache(lengths=jnp.zeros(batch, jnp.int32))

  def prefill(
    self,
    params: base.Params,
    cache: MarkovCache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[MarkovCache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`."""
    del params, cache, tokens
    return MarkovCache(lengths), ()

  def extend(
    self,
    params: base.Params,
    cache: MarkovCache | None,
    tokens: jax.Array,
    *,
    pending_kv: jax.Array | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> base.ModelOutput:
    """See `LanguageModel.extend`; `pending_kv` holds positions only."""
    del mask
    if positions is None:
      first = 0 if cache is None else cache.lengths[:, None]
      first = first + (0 if pending_kv is None else pending_kv.shape[1])
      positions = jnp.broadcast_to(
        first + jnp.arange(tokens.shape[1])[None], tokens.shape
      )
    tables = jnp.asarray(params if params.ndim == 3 else params[None])
    index = jnp.clip(positions, 0, tables.shape[0] - 1)
    if pending_kv is not None:
      positions = jnp.append(pending_kv, positions, 1)
    return base.ModelOutput(
      logits=jnp.log(tables[index, tokens]), features=(), pending_kv=positions
    )

  def commit(
    self,
    cache: MarkovCache,
    pending_kv: jax.Array,
    path: jax.Array,
    num: jax.Array,
  ) -> MarkovCache:
    """See `LanguageModel.commit`."""
    del pending_kv, path
    return MarkovCache(lengths=cache.lengths + num)

  def rollback(self, cache: MarkovCache, lengths: jax.Array) -> MarkovCache:
    """See `LanguageModel.rollback`."""
    return MarkovCache(jnp.minimum(cache.lengths, lengths))
