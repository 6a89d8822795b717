"""Trains routers, which select the arm from the prompt before decoding.

MetaSD (Kim et al. 2026, Table 6) compares bandits with a router: a BERT
classifier that was fine-tuned on prompts with known domains. Here the router is
multinomial logistic regression on the prompts' tokens. A router needs labelled
prompts and does not learn from rounds; a bandit needs no labels and learns only
from rounds.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from specjax import checks

_STEPS = 100  # Steps of L-BFGS.


class Router(NamedTuple):
  """The parameters of a router, over `V` tokens and `A` arms."""

  weights: np.ndarray  # [V, A]
  bias: np.ndarray  # [A]


def fit(prompts, labels, num_labels, vocab_size, l2=1e-4):
  """Trains a router on `P` labelled prompts.

  The loss is convex and every step of L-BFGS uses all prompts, so that the
  result is deterministic. `P` prompts take `4 P V` bytes: 50 MB for 3000
  prompts and a vocabulary of 4096 tokens, which takes some seconds.

  Args:
    prompts: `P` prompts of token ids.
    labels: the index of each prompt's arm.
    num_labels: the number of arms.
    vocab_size: the size of the vocabulary `V`.
    l2: half of `l2` times the squared weights is added to the loss.

  Raises:
    ValueError: a label has no prompt or is out of range, a token is out of
      range, a prompt is empty, or the numbers of prompts and labels differ.
  """
  if len(prompts) != len(labels):
    raise ValueError(
      f'prompts and labels must have the same length, got {len(prompts)} and '
      f'{len(labels)}.'
    )
  unique = set(np.asarray(labels).tolist())
  if unique != set(range(num_labels)):
    raise ValueError(
      f'labels must be all of 0, ..., {num_labels - 1}, got {sorted(unique)}.'
    )
  features = _features(prompts, vocab_size)
  labels = np.asarray(labels, np.int32)
  return Router(*map(np.asarray, _minimize(features, labels, num_labels, l2)))


def route(router, prompts):
  """Returns `[P]` int32, the arm of each prompt.

  `Decoder.init(prompts, ..., bandit_state=route(router, prompts))` decodes with
  these arms, given the bandit 'fixed' and `per_row=True`.

  Raises:
    ValueError: a token is out of range.
  """
  scores = _features(prompts, len(router.weights)) @ router.weights
  return (scores + router.bias[None]).argmax(axis=1).astype(np.int32)


def _features(prompts: Sequence[Sequence[int]], vocab_size: int) -> np.ndarray:
  """Returns `[P, V]` logarithms of token counts, normalized per prompt."""
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
def _minimize(
  features: jax.Array, labels: jax.Array, num_labels: int, l2: float
) -> tuple[jax.Array, jax.Array]:
  """Minimizes the mean loss, starting at zero weights."""

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
