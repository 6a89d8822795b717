"""Parts that several tests share: a broken coupling, and stand-ins."""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import families
from specjax import sampling
from specjax.models import adapters
from specjax.models import cutting


def uniform(key, shape=(), dtype=jnp.float32):
  """Stands for `jax.random.uniform` where a key is its numbers themselves.

  Numbers at the end that do not matter may be missing.
  """
  num = math.prod(shape)
  numbers = jnp.pad(key[:num], (0, max(num - len(key), 0)), constant_values=0.5)
  return numbers.reshape(shape).astype(dtype)


@components.component
class Resampling(base.Coupling):
  """A broken maximal coupling: replaces rejected tokens by target samples."""

  def __call__(self, key, candidates, active, draft, target):
    accept_uniform, *target_uniforms = jax.random.uniform(key, (2,))
    candidate = candidates[jnp.argmax(active)]
    passed = accept_uniform * draft[candidate] < target[candidate]
    token = jnp.where(
      active.any() & passed,
      candidate,
      sampling.draw(jnp.stack(target_uniforms), target),
    )
    return token, (active & (candidates == token)).any()


@components.component
class FunctionCoupling(base.Coupling):
  """The coupling that a function computes."""

  function: Callable[..., tuple[jax.Array, jax.Array]] = components.static()

  def __call__(self, *args):
    return self.function(*args)


@components.component
class FunctionGoal(base.Goal):
  """The goal that a function computes."""

  function: Callable[..., jax.Array] = components.static()

  def __call__(self, target, draft, raw):
    return self.function(target, draft, raw)


def first_layers(model, num_layers, dtype):
  """A model of a family with fewer layers, which has less to compile."""
  config, params = cutting.keep_layers(
    model.config, model.params, range(num_layers)
  )
  return families.Model(config, adapters.language_model(config, dtype), params)
