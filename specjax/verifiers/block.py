"""Block verification: a chain is judged as a whole, not token by token.

Sun et al. (2024), "Block Verification Accelerates Speculative Decoding". It
accepts at least as many tokens as the tree walk, in expectation, on any chain.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import registry
from specjax import sampling
from specjax import trees


@registry.component(topologies=[])
def block() -> base.Verifier:
  """Builds the verifier that keeps the longest prefix that passes its test.

  With `p_0 = 1` and `p_i = min(p_{i-1} target(x_i) / draft(x_i), 1)`, prefix
  `i` passes with chance `m_i / (m_i + 1 - p_i)`, where `m_i` is the mass of the
  residual `max(p_i target - draft, 0)` of what follows, and the whole chain
  with chance `p_L`. A prefix may pass where shorter ones did not.

  Returns:
    The verifier, for chains only; its output has the target's distribution.
  """

  def verify(key, tree, target_probs):
    length = tree.topology.num_nodes
    if tree.topology != trees.chain(length):
      raise ValueError(
        'Block verification needs a chain, got a tree with parents '
        f'{tree.topology.parents}.'
      )
    drafts = _draft_probs(tree, target_probs.shape[-1])
    num_valid = jnp.cumprod(tree.valid).sum()
    shares = _shares(tree.tokens, drafts, target_probs)
    ends = (jnp.arange(length + 1) == num_valid)[:, None]
    # Behind the last draft nothing is subtracted: the bonus token.
    residuals = jnp.where(
      ends,
      target_probs,
      jnp.maximum(shares[:, None] * target_probs - drafts, 0.0),
    )
    masses = jnp.where(ends[:, 0], shares, residuals.sum(axis=1))
    num_draw = sampling.num_uniforms(target_probs.shape[-1])
    uniforms = jax.random.uniform(key, (length + 1 + num_draw,))
    # The draw comes first: it is the same whatever was not drafted.
    draw_uniforms, test_uniforms = uniforms[:num_draw], uniforms[num_draw:]
    passed = test_uniforms * (masses + 1 - shares) < masses
    index = jnp.arange(length + 1)
    passed &= (index > 0) & (index <= num_valid)
    num_accepted = jnp.where(passed, index, 0).max().astype(jnp.int32)
    weights = residuals[num_accepted]
    weights = jnp.where(weights.sum() > 0, weights, target_probs[num_accepted])
    token = sampling.draw(draw_uniforms, weights)
    tokens = jnp.append(tree.tokens, 0)
    return base.Outcome(
      path=jnp.arange(length, dtype=jnp.int32),
      num_accepted=num_accepted,
      tokens=tokens.at[num_accepted].set(token),
    )

  return verify


def _draft_probs(tree, vocab_size):
  """`[L + 1, V]` the drafter's distributions; 0 behind the last."""
  probs = tree.probs
  if probs is None:
    probs = jax.nn.one_hot(tree.tokens, vocab_size)
  return jnp.concatenate([probs, jnp.zeros((1, vocab_size))])


def _shares(tokens, drafts, targets):
  """`[L + 1]` p_0 to p_L."""

  def step(share, ratio):
    share = jnp.minimum(share * ratio, 1.0)
    return share, share

  index = jnp.arange(tokens.shape[0])
  ratios = targets[index, tokens] / drafts[index, tokens]
  return jnp.append(1.0, jax.lax.scan(step, jnp.float32(1), ratios)[1])
