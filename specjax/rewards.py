"""Rewards: what a round was worth to the bandit, in [0, 1]."""

from collections.abc import Callable
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
  return lambda info: _num_accepted(info) / max(info.tokens.shape[1] - 1, 1)


@registry.component
def accepted_fraction() -> base.Reward:
  """Builds the reward of accepted tokens over the arm's own depth.

  MetaSD (Kim et al. 2026), the reward BE; 0 where nothing was drafted.
  """
  return lambda info: (
    _num_accepted(info) / jnp.maximum(info.tree_depth, 1).astype(jnp.float32)
  )


@registry.component
def block_divergence(*, processed: bool = False) -> base.Reward:
  """Builds the reward of the mean of `1 - TV` over drafted tokens.

  MetaSD (Kim et al. 2026), equation (4), the reward BD. All drafted tokens
  count, those behind a rejection too. The paper defines it for chains. Of a
  tree it is the mean over all nodes that have children, the root among them, of
  `1 - TV` with what the drafter predicts there. Of tokens that are found, not
  predicted, as by look-up, it is the probability that one of them comes next.

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
  seconds = np.asarray(costs, np.float64)
  late = np.zeros_like(seconds)
  if catch_up_costs is not None:
    late = np.asarray(catch_up_costs, np.float64)
  most = np.asarray(depths) + 1
  if not seconds.size == most.size == late.size:
    raise ValueError(
      'costs, depths and catch_up_costs must have an entry for each arm, got '
      f'{seconds.size}, {most.size} and {late.size}.'
    )
  if not (seconds > 0).all() or not np.isfinite(seconds).all():
    raise ValueError(f'costs must be > 0 and finite, got {seconds}.')
  if not (late >= 0).all():
    raise ValueError(f'catch_up_costs must be >= 0, got {late}.')
  rounds, late = seconds / seconds.max(), late / seconds.max()
  best = float((most / rounds).max())

  def reward(info):
    num_read = info.num_catch_up_tokens.astype(jnp.float32)
    seconds = jnp.asarray(rounds, jnp.float32)[info.arm]
    seconds += jnp.asarray(late, jnp.float32)[info.arm] * num_read
    rate = info.num_emitted.astype(jnp.float32) / seconds
    return jnp.clip(rate / best, 0, 1)

  return reward


def _num_accepted(info):
  """`[B]` float32; an estimate, where the round is another arm's."""
  return jnp.maximum(info.num_emitted - 1, 0).astype(jnp.float32)


REWARDS: dict[str, Callable[..., base.Reward]] = {
  'accepted_fraction': accepted_fraction,
  'block_divergence': block_divergence,
  'emitted': emitted,
  'throughput': throughput,
  'tradeoff': tradeoff,
}
