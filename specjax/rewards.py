"""Rewards: what a round was worth to the bandit, in [0, 1]."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry


@registry.component
def emitted() -> base.Reward:
  """Builds the reward of emitted tokens, on one scale for all arms.

  BanditSpec (Hou et al. 2025) counts `Y` in 1..L+1 emitted tokens, with `L` the
  depth of the deepest arm; this is `(Y - 1) / L`.
  """
  return lambda info: (
    jnp.maximum(info.num_emitted - 1, 0) / max(info.tokens.shape[1] - 1, 1)
  )


@registry.component
def accepted_fraction() -> base.Reward:
  """Builds the reward of accepted tokens over the arm's own depth.

  MetaSD (Kim et al. 2024), the reward BE; 0 where nothing was drafted.
  """
  return lambda info: (
    jnp.maximum(info.num_emitted - 1, 0) / jnp.maximum(info.tree_depth, 1)
  )


@registry.component
def block_divergence(*, processed: bool = False) -> base.Reward:
  """Builds the reward of the mean of `1 - TV` over drafted tokens.

  MetaSD (Kim et al. 2024), equation (4), the reward BD. All drafted tokens
  count, those behind a rejection too.

  Args:
    processed: compare what tokens are drawn from, instead of the probabilities
      before temperature, top-k and top-p. At temperature 0 that would show only
      whether the most likely tokens are equal.
  """
  name = 'acceptance' if processed else 'raw_acceptance'
  return lambda info: jnp.clip(getattr(info, name), 0, 1)


@registry.component
def tradeoff(weight: float = 0.5) -> base.Reward:
  """Builds the reward of speed and fidelity, for arms of different goals.

  `(1 - weight)` times that of `emitted`, and `weight` times the mean of `1 -
  TV` between what is sampled and the target, which is 1 for the lossless goal.

  Args:
    weight: of the fidelity, in [0, 1].
  """
  checks.check_range('weight', weight, 0, 1)
  speed = emitted()

  def reward(info):
    fidelity = jnp.clip(info.fidelity, 0, 1)
    worth = (1 - weight) * speed(info) + weight * fidelity
    return jnp.minimum(worth, 1)  # Sums may round past 1.

  return reward


@registry.component
def throughput(
  costs: Sequence[float],
  depths: Sequence[int],
  catch_up_costs: Sequence[float] | None = None,
) -> base.Reward:
  """Builds the reward of tokens per second, by a table of what rounds take.

  Accepted tokens are blind to what drafting them costs; this is not. A reward
  of 1 is the largest rate that any arm can have, all its drafts accepted.

  Args:
    costs: `[A]` seconds of a round of each arm, at the batch size in use.
    depths: `[A]` depth of each arm's tree.
    catch_up_costs: `[A]` seconds for each token that an arm's drafter reads
      before it can be played again; nothing, by default.
  """
  costs = np.asarray(costs, np.float64)
  depths = np.asarray(depths)
  late = np.zeros_like(costs) if catch_up_costs is None else catch_up_costs
  late = np.asarray(late, np.float64)
  if not costs.size == depths.size == late.size:
    raise ValueError(
      'costs, depths and catch_up_costs must have an entry for each arm, got '
      f'{costs.size}, {depths.size} and {late.size}.'
    )
  if not (costs > 0).all() or not np.isfinite(costs).all():
    raise ValueError(f'costs must be > 0 and finite, got {costs}.')
  if not (late >= 0).all():
    raise ValueError(f'catch_up_costs must be >= 0, got {late}.')
  costs, late = costs / costs.max(), late / costs.max()
  best = float(((depths + 1) / costs).max())

  def reward(info):
    seconds = jnp.asarray(costs, jnp.float32)[info.arm]
    seconds += (
      jnp.asarray(late, jnp.float32)[info.arm] * info.num_catch_up_tokens
    )
    return jnp.clip(info.num_emitted / seconds / best, 0, 1)

  return reward


REWARDS = {
  'accepted_fraction': accepted_fraction,
  'block_divergence': block_divergence,
  'emitted': emitted,
  'throughput': throughput,
  'tradeoff': tradeoff,
}
