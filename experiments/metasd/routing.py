"""A router: it picks the arm by the prompt, before anything is decoded.

What MetaSD (Kim et al. 2026, Table 6) compares a bandit with: there a BERT
classifier that was fine-tuned on prompts whose domain is known, here
multinomial logistic regression on their words. It needs labelled prompts and
learns nothing from the rounds; a bandit needs no labels and learns from nothing
else.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from specjax import checks

_STEPS = 100  # Of L-BFGS.


class Router(NamedTuple):
  """Which arm suits a prompt, by its tokens."""

  weights: np.ndarray  # [V, A]
  bias: np.ndarray  # [A]


def fit(prompts, labels, num_labels, vocab_size, l2=1e-4):
  """Learns from `P` labelled prompts which of `num_labels` arms suits which.

  The loss is convex and all prompts are read in every step of L-BFGS, so
  nothing is random; half of `l2` times the squared weights is added to it. `P`
  prompts take `4 P V` bytes: 50 MB for 3000 prompts of 4096 tokens, which take
  some seconds. Raises a `ValueError` if a label has no prompt or is out of
  range, a token is, a prompt is empty, or prompts and labels differ in number.
  """
  if len(prompts) != len(labels):
    raise ValueError(
      f'prompts and labels must be as many, got {len(prompts)} and '
      f'{len(labels)}.'
    )
  found = set(np.asarray(labels).tolist())
  if found != set(range(num_labels)):
    raise ValueError(
      f'labels must be all of 0, ..., {num_labels - 1}, got {sorted(found)}.'
    )
  features = _features(prompts, vocab_size)
  labels = np.asarray(labels, np.int32)
  return Router(*map(np.asarray, _minimize(features, labels, num_labels, l2)))


def route(router, prompts):
  """Returns `[P]` int32, the arm for each prompt.

  `Decoder.init(prompts, ..., bandit_state=route(router, prompts))` plays them,
  with the bandit 'fixed' and `per_row=True`. Raises a `ValueError` if a token
  is out of range.
  """
  scores = _features(prompts, len(router.weights)) @ router.weights
  return (scores + router.bias[None]).argmax(axis=1).astype(np.int32)


def _features(prompts, vocab_size):
  """`[P, V]` logs of the counts of each prompt's tokens, with norm 1."""
  features = np.zeros((len(prompts), vocab_size), np.float32)
  for i, (row, prompt) in enumerate(zip(features, prompts)):
    if not len(prompt):
      raise ValueError(f'prompts[{i}] must not be empty.')
    checks.check_range(f'tokens of prompts[{i}]', prompt, 0, vocab_size - 1)
    tokens, counts = np.unique(np.array(prompt, int), return_counts=True)
    values = np.log1p(counts).astype(np.float32)
    row[tokens] = values / np.linalg.norm(values)
  return features


@functools.partial(jax.jit, static_argnames='num_labels')
def _minimize(features, labels, num_labels, l2):
  """Minimizes the mean loss from zero weights."""

  def loss_fn(params):
    weights, bias = params
    losses = optax.softmax_cross_entropy_with_integer_labels(
      features @ weights + bias[None], labels
    )
    return losses.mean() + l2 / 2 * jnp.sum(weights**2)

  solver = optax.lbfgs()
  value_and_grad = optax.value_and_grad_from_state(loss_fn)

  def step(_, carry):
    params, state = carry
    value, grad = value_and_grad(params, state=state)
    updates, state = solver.update(
      grad, state, params, value=value, grad=grad, value_fn=loss_fn
    )
    return optax.apply_updates(params, updates), state

  zeros = jnp.zeros((features.shape[1], num_labels)), jnp.zeros(num_labels)
  params, _ = jax.lax.fori_loop(0, _STEPS, step, (zeros, solver.init(zeros)))
  return params
