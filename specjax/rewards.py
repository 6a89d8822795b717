"""Rewards that a bandit receives for a round, in [0, 1]."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components


@components.component
class Emitted(base.Reward):
  """Rewards accepted tokens, on one scale for all arms.

  BanditSpec (Hou et al. 2025) counts `Y` in 1..L+1 emitted tokens, where `L` is
  the depth of the deepest arm; this is `(Y - 1) / L`.
  """

  def __call__(self, info: base.RoundInfo) -> jax.Array:
    return _num_accepted(info) / max(info.tokens.shape[1] - 1, 1)


@components.component
class AcceptedFraction(base.Reward):
  """Rewards accepted tokens, divided by the depth of the arm's own tree.

  MetaSD (Kim et al. 2026), the reward BE; 0 if nothing was drafted.
  """

  def __call__(self, info: base.RoundInfo) -> jax.Array:
    depth = jnp.maximum(info.tree_depth, 1).astype(jnp.float32)
    return _num_accepted(info) / depth


@components.component
class BlockDivergence(base.Reward):
  """Rewards the mean of `1 - TV` over drafted tokens.

  MetaSD (Kim et al. 2026), equation (4), the reward BD. All drafted tokens
  count, including those after a rejection. The paper defines it for chains. For
  a tree it is the mean over all nodes that have children, including the root,
  of `1 - TV` with what the drafter predicts there. For tokens that are copied
  instead of predicted, as by prompt lookup, it is the probability that one of
  them comes next.

  The distributions are those before temperature, top-k and top-p: at
  temperature 0, the others would show only whether the most likely tokens are
  equal.
  """

  def __call__(self, info: base.RoundInfo) -> jax.Array:
    return jnp.clip(info.raw_acceptance, 0, 1)


@components.component
class Tradeoff(base.Reward):
  """Rewards speed and fidelity, for arms with different goals.

  It is `(1 - weight)` times the reward `Emitted`, plus `weight` times the mean
  of `1 - TV` between the goal and the target, which is 1 for the lossless goal.
  The deviation of a lossy verifier from the goal is not measured.

  Attributes:
    weight: weight of the fidelity, in [0, 1].
  """

  weight: float = 0.5

  def __post_init__(self) -> None:
    checks.check_range('weight', self.weight, 0, 1)

  def __call__(self, info: base.RoundInfo) -> jax.Array:
    fidelity = jnp.clip(info.fidelity, 0, 1)
    speed = Emitted()(info)
    total = (1 - self.weight) * speed + self.weight * fidelity
    return jnp.minimum(total, 1)  # Sums may round past 1.


@components.component
class Throughput(base.Reward):
  """Rewards tokens per second, by a table of the costs of rounds.

  Unlike accepted tokens, this includes the cost of drafting. A reward of 1 is
  the highest rate that any arm can reach, with all its drafts accepted.

  Attributes:
    costs: `[A]` seconds per round of each arm, at the batch size in use; a
      sequence or an array.
    depths: `[A]` depth of each arm's tree.
    catch_up_costs: `[A]` seconds per token that an arm's drafter reads when it
      is selected after idle rounds; the default is 0.

  Raises:
    ValueError: an argument is out of range, or has another number of entries.
  """

  costs: Sequence[float]
  depths: Sequence[int]
  catch_up_costs: Sequence[float] | None = None

  def __post_init__(self) -> None:
    components.freeze_sequences(self, 'costs', 'depths', 'catch_up_costs')
    names = 'costs', 'depths', 'catch_up_costs'
    num_arms = checks.num_entries(self.costs)
    if self.catch_up_costs is None and num_arms is not None:
      object.__setattr__(self, 'catch_up_costs', (0.0,) * num_arms)
    sizes = [checks.num_entries(getattr(self, name)) for name in names]
    if len({*sizes} - {None}) > 1:
      raise ValueError(
        'costs, depths and catch_up_costs must have an entry for each arm, got '
        f'{sizes[0]}, {sizes[1]} and {sizes[2]}.'
      )
    checks.check_positive('costs', self.costs)
    checks.check_integers('depths', self.depths, 0)
    checks.check_range('catch_up_costs', self.catch_up_costs, 0)

  @property
  def arm_depths(self) -> Sequence[int]:
    """`[A]` depths that the arms' trees must have."""
    return self.depths

  def __call__(self, info: base.RoundInfo) -> jax.Array:
    costs, depths, catch_up_costs = (
      jnp.asarray(values, jnp.float32)
      for values in (self.costs, self.depths, self.catch_up_costs)
    )
    num_read = info.num_catch_up_tokens.astype(jnp.float32)
    seconds = costs[info.arm] + catch_up_costs[info.arm] * num_read
    rate = info.num_emitted.astype(jnp.float32) / seconds
    best = ((depths + 1) / costs).max()
    return jnp.clip(rate / best, 0, 1)


def _num_accepted(info: base.RoundInfo) -> jax.Array:
  """Returns `[B]` float32, an estimate for arms that were not selected."""
  return jnp.maximum(info.num_emitted - 1, 0).astype(jnp.float32)


REWARDS: dict[str, type[base.Reward]] = {
  'accepted_fraction': AcceptedFraction,
  'block_divergence': BlockDivergence,
  'emitted': Emitted,
  'throughput': Throughput,
  'tradeoff': Tradeoff,
}
