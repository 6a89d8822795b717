"""Optimism: the arm whose mean could still be the largest."""

import jax
import jax.numpy as jnp
from jax.scipy import special

from specjax import bisection
from specjax import checks
from specjax import components
from specjax.bandits import counts

# Halvings of [mean, 1]: float32 has no more digits there.
_BISECTIONS = 22


@components.component
class UCBSpec(counts.CountsBandit):
  """Selects by UCBSpec (Hou et al. 2025, Algorithms 4 and 8).

  The paper's `Y` in [1, L + 1], the tokens of a round, is `1 + L reward` here,
  so that its radius loses a factor `L`.

  Attributes:
    delta: confidence in (0, 1]; the paper's proof takes 1/2.
  """

  delta: float = 0.5

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('delta', self.delta, 1e-12, 1)

  def indices(self, state: counts.Counts) -> jax.Array:
    """Returns `[A]` means plus radii."""
    pulls = state.divisors
    inside = jnp.log(self.num_arms / self.delta) + 2 * jnp.log(state.rounds)
    inside = 1 + 2 * (inside + jnp.log1p(pulls) / 2)
    return state.means + jnp.sqrt((1 + pulls) * inside) / (2 * pulls)


@components.component
class UCBSpecReleased(counts.CountsBandit):
  """Selects as the released code of UCBSpec does (Hou et al. 2025).

  `ucb_length_spec_generate` in generate_utils.py of
  https://github.com/sail-sg/BanditSpec adds `sqrt(6 log(t) / rounds)` to every
  arm, with the rounds of all arms together. The same number for all arms does
  not change which is the largest, so that the rule is greedy. It first takes
  the arms in order, for two passes less the last round: with four arms, 0, 1,
  2, 3, 0, 1, 2. There, arms are the draft lengths 1 to 4, the bandit starts
  anew with every batch, and rewards are measured tokens per second, as with
  the reward `Throughput`.

  Unlike `UCBSpec`, it never explores again, so that its regret is linear.
  """

  def indices(self, state: counts.Counts) -> jax.Array:
    """Returns `[A]` means."""
    return state.means

  def select(self, key: jax.Array, state: counts.Counts) -> jax.Array:
    """Returns the next arm of the passes, or that of the largest mean."""
    passes = state.pulls.sum() < 2 * self.num_arms - 1
    next_arm = jnp.argmin(state.pulls).astype(jnp.int32)
    return jnp.where(passes, next_arm, super().select(key, state))


@components.component
class UCB1(counts.CountsBandit):
  """Selects by UCB1 (Auer, Cesa-Bianchi and Fischer 2002).

  With `beta`, it is MetaSD-UCB (Kim et al. 2026, Algorithm 2).

  Attributes:
    beta: scale of the radius `sqrt(2 log(rounds) / pulls)`, at least 0; 0.01 in
      MetaSD's experiments.
  """

  beta: float = 1.0

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('beta', self.beta, 0)

  def indices(self, state: counts.Counts) -> jax.Array:
    """Returns `[A]` means plus radii."""
    radii = jnp.sqrt(2 * jnp.log(state.rounds) / state.divisors)
    return state.means + self.beta * radii


@components.component
class KLUCB(counts.CountsBandit):
  """Selects by KL-UCB (Garivier and Cappé 2011).

  Attributes:
    c: weight of `log(log(rounds))`, at least 0; 3 in the proof, 0 is best in
      practice.
  """

  c: float = 0.0

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('c', self.c, 0)

  def indices(self, state: counts.Counts) -> jax.Array:
    """Returns `[A]` the largest means that the pulls do not yet rule out."""
    log = jnp.log(state.rounds)
    budget = (log + self.c * jnp.log(jnp.maximum(log, 1))) / state.divisors
    mean = jnp.clip(state.means, 0, 1)  # A sum may round past its pulls.
    entropy = special.entr(mean) + special.entr(1 - mean)

    def is_possible(index: jax.Array) -> jax.Array:
      cross = special.xlogy(mean, index) + special.xlog1py(1 - mean, -index)
      return -entropy - cross <= budget

    ones = jnp.ones_like(mean)
    return bisection.bisect(is_possible, mean, ones, _BISECTIONS)[0]
