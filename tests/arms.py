"""Toy models, and the arms and decoders that most loop tests are made of.

An arm here is the pair that `specjax.Decoder` takes: the arm, and its drafter's
parameters.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import specjax
from specjax import components
from specjax import drafters
from specjax import trees
from specjax import verifiers
from specjax.testing import toys
from tests import parts
from tests import sizes
from tests import twins

# Functions and parameters. The target has two layers, so that one that reads
# the cache of the other is found.
TARGET = toys.transformer(0, num_layers=2)
DRAFT = toys.transformer(1, num_layers=1)
OTHER = toys.transformer(2, num_layers=1)
# Markov models of three tokens, whose exact distributions are known.
MARKOV_TARGET, MARKOV_DRAFT, MARKOV_OTHER = (
  toys.markov(seed, 3) for seed in range(3)
)
GREEDY = specjax.Sampling(temperature=0.0)
# A verifier that is not lossless: the negative control of statistical tests.
BROKEN = verifiers.TreeWalk(parts.Resampling())


def model(
  topology,
  draft=DRAFT,
  temperature=1.0,
  verifier=None,
  goal=None,
  chunk=None,
  **options,
):
  """An arm that drafts a tree with a model.

  Args:
    topology: of its trees.
    draft: the model and its parameters.
    temperature: of the drafter; 0 is greedy.
    verifier: one, or a name; by default that of `verifiers.default`.
    goal: of the arm.
    chunk: of the drafter; None for its own.
    **options: of `drafters.Autoregressive`.
  """
  language_model, params = draft
  sampling = specjax.Sampling(temperature)
  drafter = drafters.Autoregressive(
    language_model, topology, sampling, **options
  )
  if chunk is not None:
    drafter = chunked(drafter, chunk)
  name = verifier or verifiers.default(temperature, topology.width)
  return specjax.Arm(drafter, verifiers.resolve(name), goal), params


def chain(length=3, draft=DRAFT, temperature=1.0, **options):
  """An arm that drafts one chain with a model."""
  return model(trees.chain(length), draft, temperature, **options)


def chains(num=2, length=3, draft=DRAFT, temperature=1.0, **options):
  """An arm that drafts several chains with a model."""
  return model(trees.chains(num, length), draft, temperature, **options)


@functools.cache
def _chunked_class(drafter_class, chunk):
  return twins.subclass(drafter_class, chunk=chunk)


def chunked(drafter, chunk):
  """Returns a drafter that catches up by other numbers of tokens per call."""
  fields = {
    field.name: getattr(drafter, field.name)
    for field in dataclasses.fields(drafter)
  }
  return _chunked_class(type(drafter), chunk)(**fields)


def arm(drafter, params=None, verifier='maximal'):
  """An arm of any drafter."""
  return specjax.Arm(drafter, verifiers.resolve(verifier)), params


@components.component
class Proposing(drafters.StatelessDrafter):
  """A drafter that proposes what a function of params and context returns."""

  topology: trees.Topology = components.static()
  function: Callable = components.static()

  def propose(self, params, context):
    return self.function(params, context)


def lookup(length=3, verifier='maximal'):
  """An arm that looks its drafts up in the text."""
  return arm(drafters.PromptLookup(length), verifier=verifier)


def none():
  """The arm that decodes plainly."""
  return arm(drafters.NoDrafter())


def deferred(inner):
  """Returns the arm with its prefill deferred until it is first selected."""
  inner_arm, params = inner
  drafter = drafters.Deferred(inner_arm.drafter)
  return inner_arm._replace(drafter=drafter), params


def decoder(*arms, bandit=None, temperature=1.0, target=TARGET, **options):
  """A decoder over arms, of the common buffer.

  Args:
    *arms: as the functions above return them.
    bandit: a rule, or one of `BANDITS` by name.
    temperature: of the target; 0 is greedy.
    target: the model and its parameters.
    **options: of `specjax.Decoder`.
  """
  if isinstance(bandit, str):
    bandit = specjax.BANDITS[bandit](len(arms))
  return specjax.Decoder(
    *target,
    arms,
    bandit=bandit,
    sampling=specjax.Sampling(temperature),
    **{'max_length': sizes.BUFFER} | options,
  )


def tokens(results):
  """Returns the tokens of each result."""
  return [result.tokens for result in results]


@functools.cache
def greedy_tokens():
  """Returns the target's greedy continuations of `sizes.PROMPTS`."""
  plain = decoder(none(), temperature=0.0)
  return tokens(plain.decode(sizes.PROMPTS, sizes.NEW))


class Cycle(NamedTuple):
  """The state of `Cycling`: which arms it selects in turn."""

  num_rounds: jax.Array  # []
  arms: jax.Array  # [A], of which the first `length` are used
  length: jax.Array  # []


@components.component
class Cycling(specjax.Bandit):
  """Selects the arms of its state in turn.

  The arms are data: decoders that are given other states by `bandit_state`
  share one compiled program.
  """

  def init(self):
    return cycle(self.num_arms, *range(self.num_arms))

  def select(self, key, state):
    return state.arms[state.num_rounds % state.length]

  def update(self, state, arm, reward, /, **extra):
    return state._replace(num_rounds=state.num_rounds + 1)

  def update_all(self, state, rewards):
    return state


def cycle(num_arms, *arms):
  """Returns the state in which `Cycling` selects these arms."""
  padded = np.zeros(num_arms, np.int32)
  padded[: len(arms)] = arms
  return Cycle(np.int32(0), padded, np.int32(len(arms)))


@components.component
class Adversary(specjax.Bandit):
  """Reacts to all rewards and selects the worst arm.

  Attributes:
    num_used: it only selects the first ones, unless its state begins with
      another; all by default.
  """

  num_used: int | None = components.static(default=None)

  def init(self):
    return jnp.int32(0)

  def select(self, key, state):
    return state

  def update(self, state, arm, reward, /, *, rewards=None, **extra):
    if rewards is None:
      num_used = self.num_used or self.num_arms
      return (arm + jnp.where(reward > 0, 2, 1)) % num_used
    other_rewards = jnp.where(
      jnp.arange(self.num_arms) == arm, jnp.inf, rewards
    )
    return self.update_all(state, other_rewards)

  def update_all(self, state, rewards):
    return jnp.argmin(rewards[: self.num_used]).astype(jnp.int32)
