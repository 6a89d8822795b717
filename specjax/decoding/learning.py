"""How bandits learn of rounds: one of the batch, or one of each row."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.decoding import arms as arms_lib


def update(
  bandit: base.Bandit,
  per_row: bool,
  state: base.BanditState,
  info: base.RoundInfo,
) -> base.BanditState:
  """Returns the bandit's state after a round, in rows that were live.

  Args:
    bandit: the rule.
    per_row: whether `state` has a first axis of rows.
    state: of the bandit, or of all rows' bandits.
    info: of the round; a bandit of the batch gets means over live rows, and
      sums of their levels.
  """
  extra = {} if info.rewards is None else {'rewards': info.rewards}
  levels = _levels(info)
  if not per_row:
    levels = jax.tree.map(lambda rows: rows.sum(axis=0), levels)
  learn = lambda state, arm, earned, levels: bandit.update(
    state, arm, earned[0], levels=levels, **earned[1]
  )
  arm = info.arm if per_row else info.arm[0]
  earned = info.reward, extra
  return _learn(learn, per_row, state, info.live, arm, earned, levels)


def _levels(info):
  """`[B, D]` of each row, by what was emitted.

  What ends its row is worth no token behind it, and what was not drafted is
  worth none: both count as if they were not accepted.
  """
  level = np.arange(info.tokens.shape[1] - 1)[None]
  deepest = jnp.minimum(info.tree_depth, info.num_emitted)
  live = info.live[:, None]
  return base.Levels(
    *(
      (live & (level < num[:, None])).astype(jnp.float32)
      for num in (deepest, info.num_emitted - 1)
    )
  )


def update_all(
  bandit: base.Bandit,
  per_row: bool,
  state: base.BanditState,
  live: jax.Array,
  rewards: jax.Array,
) -> base.BanditState:
  """Returns the bandit's state once all arms' rewards are known, unplayed.

  Args:
    bandit: the rule.
    per_row: whether `state` has a first axis of rows.
    state: of the bandit, or of all rows' bandits.
    live: `[B]` the rows that show something.
    rewards: `[B, A]` of all arms.
  """
  learn = lambda state, _, rewards: bandit.update_all(state, rewards)
  arm = jnp.zeros_like(live, jnp.int32) if per_row else jnp.int32(0)
  return _learn(learn, per_row, state, live, arm, rewards)


def _learn(learn, per_row, state, live, arm, earned, *sums):
  """Updates rows that are live, or one state by the means over such rows."""
  if per_row:
    new = jax.vmap(learn)(state, arm, earned, *sums)
    return arms_lib.where(live, new, state)
  count = jnp.maximum(live.sum(dtype=jnp.float32), 1)
  weight = live.astype(jnp.float32) / count
  mean = lambda value: jnp.tensordot(weight, value, axes=1)
  new = learn(state, arm, jax.tree.map(mean, earned), *sums)
  return jax.tree.map(
    lambda new, old: jnp.where(live.any(), new, old), new, state
  )
