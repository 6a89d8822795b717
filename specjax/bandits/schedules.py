"""Rules that learn nothing: what a bandit has to beat."""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import registry


@registry.component
def fixed(num_arms: int, *, arm: int = 0) -> base.Bandit:
  """Builds the rule that always plays the same arm, which is its state.

  So a router need not be a bandit: with a bandit per row, the `[B]` int32 arms
  that it chose for the prompts are the `bandit_state` of `Decoder.init`. What
  differs in `arm` alone shares a compiled program.

  Args:
    num_arms: `A`, at least 1.
    arm: the arm that is always played, unless the state holds another.
  """
  checks.check_range('num_arms', num_arms, 1)
  checks.check_range('arm', arm, 0, num_arms - 1)
  return _learns_nothing(num_arms, lambda: jnp.int32(arm), _state)


@registry.component
def uniform(num_arms: int) -> base.Bandit:
  """Builds the rule that draws each arm with the same chance."""
  checks.check_range('num_arms', num_arms, 1)
  select = lambda key, state: jax.random.randint(
    key, (), 0, num_arms, jnp.int32
  )
  return _learns_nothing(num_arms, lambda: (), select)


@registry.component
def round_robin(num_arms: int) -> base.Bandit:
  """Builds the rule that plays one arm after the other."""
  checks.check_range('num_arms', num_arms, 1)
  nothing = _learns_nothing(num_arms, lambda: jnp.int32(0), _state)
  update = lambda state, arm, reward, /, **extra: (state + 1) % num_arms
  return nothing._replace(update=update)


def _learns_nothing(num_arms, init, select):
  return base.Bandit(num_arms, init, select, _keep, _keep)


def _state(key, state):
  del key
  return state


def _keep(state, /, *args, **extra):
  del args, extra
  return state
