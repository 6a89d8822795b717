"""A router: it picks the arm by the prompt, before anything is decoded.

What MetaSD (Kim et al. 2026, Table 6) compares a bandit with: there a BERT
classifier that was fine-tuned on prompts whose domain is known, here
multinomial logistic regression on their words. It needs labelled prompts and
learns nothing from the rounds; a bandit needs no labels and learns from nothing
else.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from specjax import checks


class Router(NamedTuple):
  """Which arm suits a prompt, by its tokens."""

  weights: np.ndarray  # [V, A]
  bias: np.ndarray  # [A]


def fit(
  prompts: Sequence[Sequence[int]],
  labels: Sequence[int],
  num_labels: int,
  vocab_size: int,
  *,
  steps: int = 100,
  l2: float = 1e-4,
) -> Router:
  """Learns from labelled prompts which arm suits which.

  The loss is convex and all prompts are read in every step of L-BFGS, so
  nothing is random. `P` prompts take `4 P V` bytes: 50 MB for 3000 prompts of
  4096 tokens, which take some seconds.

  Args:
    prompts: `P` sequences of token ids.
    labels: `[P]`, the arm of each prompt, in `[0, num_labels)`.
    num_labels: `A`; each label has a prompt.
    vocab_size: `V`.
    steps: of L-BFGS.
    l2: half of it times the squared weights is added to the mean loss.

  Returns:
    The router.

  Raises:
    ValueError: there are not as many prompts as labels, a label is out of range
      or has no prompt, or a prompt has no token or one out of range.
  """
  checks.check_range('num_labels', num_labels, 1)
  checks.check_range('steps', steps, 1)
  checks.check_range('l2', l2, 0)
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
  features = np.zeros((len(prompts), vocab_size), np.float32)
  for row, (tokens, values) in zip(features, _words(prompts, vocab_size)):
    row[tokens] = values
  weights, bias = _minimize(
    features, np.asarray(labels, np.int32), num_labels, steps, l2
  )
  return Router(np.asarray(weights), np.asarray(bias))


def route(router: Router, prompts: Sequence[Sequence[int]]) -> np.ndarray:
  """Picks an arm for each prompt.

  `Decoder.init(prompts, ..., bandit_state=route(router, prompts))` plays them,
  with the bandit 'fixed' and `per_row=True`.

  Args:
    router: from `fit`.
    prompts: `P` sequences of token ids.

  Returns:
    `[P]` int32.

  Raises:
    ValueError: a token is out of range, or a prompt has none.
  """
  scores = [
    values @ router.weights[tokens] + router.bias
    for tokens, values in _words(prompts, len(router.weights))
  ]
  return np.array([np.argmax(score) for score in scores], np.int32)


def _words(prompts, vocab_size):
  """Yields each prompt's tokens, and the logs of their counts with norm 1."""
  for i, prompt in enumerate(prompts):
    tokens, counts = np.unique(np.asarray(prompt, np.int64), return_counts=True)
    if not tokens.size:
      raise ValueError(f'prompts[{i}] must not be empty.')
    if tokens[0] < 0 or tokens[-1] >= vocab_size:
      raise ValueError(
        f'prompts[{i}] must hold tokens in [0, {vocab_size}), got '
        f'{tokens[0]} to {tokens[-1]}.'
      )
    values = np.log1p(counts).astype(np.float32)
    yield tokens, values / np.linalg.norm(values)


@functools.partial(jax.jit, static_argnames=('num_labels', 'steps'))
def _minimize(features, labels, num_labels, steps, l2):
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
  params, _ = jax.lax.fori_loop(0, steps, step, (zeros, solver.init(zeros)))
  return params
