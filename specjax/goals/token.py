"""Token rules: they keep a draft token or not by how the target rates it.

Speculative cascades (Narasimhan et al. 2024), Algorithm 6 and equations (13) to
(15). The mass that the draft gives to the other tokens is sampled from the
target: `goal(v) = draft(v) (1 - r(v)) + target(v) sum_u r(u) draft(u)`, where
`r(v)` is 1 for the tokens that are not kept. Notation: the paper's p is the
target, its q is the draft. A larger `alpha` keeps more tokens.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax.goals import deferral


class TokenRule(base.Goal):
  """The goal that keeps some draft tokens and defers the others' mass."""

  def defers(self, raw: base.RawProbs) -> jax.Array:
    """Returns `r`, `[V]` bool: which tokens are not kept.

    Args:
      raw: See `base.Goal`.
    """
    raise NotImplementedError

  def __call__(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    deferred = jnp.where(self.defers(raw), draft, 0.0)
    return draft - deferred + target * deferred.sum()


@components.component
class TokenV1(TokenRule):
  """Keeps tokens with `draft(v) >= max target - alpha`.

  Attributes:
    alpha: in [-1, 1].
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of TokenV1', self.alpha, -1, 1)

  def defers(self, raw: base.RawProbs) -> jax.Array:
    return raw.draft < raw.target.max() - self.alpha


@components.component
class TokenV2(TokenRule):
  """Keeps tokens with `target(v) >= max target - alpha`.

  Attributes:
    alpha: in [-1, 1].
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of TokenV2', self.alpha, -1, 1)

  def defers(self, raw: base.RawProbs) -> jax.Array:
    return raw.target < raw.target.max() - self.alpha


@components.component
class TokenV3(TokenRule):
  """Keeps tokens with `target(v) >= (1 - alpha) max target`.

  The rule "[Token]" of the paper's main results.

  Attributes:
    alpha: in [0, 1]; 1 keeps every token.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of TokenV3', self.alpha, 0, 1)

  def defers(self, raw: base.RawProbs) -> jax.Array:
    return raw.target < raw.target.max() * (1 - self.alpha)


@components.component
class Typical(TokenRule):
  """Keeps tokens that are typical for the target: Medusa's acceptance.

  Cai et al. (2024, arXiv:2401.10774), Section 2.3.1: tokens with `target(v) >
  min(epsilon, delta exp(-entropy of target))`. Medusa emits the target's most
  likely token in place of a token that is not kept, whereas this goal samples
  it from the target, as all token rules do.

  Attributes:
    epsilon: the largest threshold, in [0, 1]; 0 keeps all tokens to which the
      target gives any probability.
    delta: scale of the threshold, at least 0.
  """

  epsilon: float = 0.09
  delta: float = 0.3

  def __post_init__(self) -> None:
    checks.check_range('epsilon of Typical', self.epsilon, 0, 1)
    checks.check_range('delta of Typical', self.delta, 0)

  def defers(self, raw: base.RawProbs) -> jax.Array:
    entropy = deferral.entropy(raw.target)
    threshold = jnp.minimum(self.epsilon, self.delta * jnp.exp(-entropy))
    return raw.target <= threshold


@components.component
class TopK(TokenRule):
  """Keeps tokens among the target's `num` most likely: relaxed acceptance.

  TensorRT-LLM relaxes acceptance in the thinking phase of reasoning models in
  this way (`relaxed_topk`, `relaxed_delta`).

  Attributes:
    num: number of tokens, at least 1, and those that tie with the last one.
    alpha: only tokens with `target(v) >= max target - alpha` are kept, in
      [0, 1].
  """

  num: int = components.static(default=10)
  alpha: float = 0.6

  def __post_init__(self) -> None:
    checks.check_integers('num of TopK', self.num, 1)
    checks.check_range('alpha of TopK', self.alpha, 0, 1)

  def defers(self, raw: base.RawProbs) -> jax.Array:
    num = min(self.num, raw.target.shape[-1])
    likeliest = jax.lax.top_k(raw.target, num)[0]
    threshold = jnp.maximum(likeliest[-1], likeliest[0] - self.alpha)
    return raw.target < threshold
