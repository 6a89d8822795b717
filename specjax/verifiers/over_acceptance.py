"""Over-acceptance: more drafts are kept than a lossless rule may keep.

Yin et al. (2024), Section 4. Notation: the paper's p is the draft, its q is the
target.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax import sampling
from specjax.couplings import residuals
from specjax.verifiers import walks

# What a rejected draft may be replaced with.
REPLACEMENTS = ('residual', 'target', 'draft')


@components.component
class OverAcceptance(base.Verifier):
  """Accepts a draft with `min(1, (target + epsilon) / draft)`.

  The output does not have the target's distribution, but no rule that rejects
  as seldom is nearer to it, if a rejected draft is replaced by a sample of the
  residual `max(target - draft, 0)` (Decoding-OPT, Theorem 5): rejection and
  bias then sum to the total variation between draft and target.

  Draft tokens that were chosen, such as those of prompt lookup, are verified
  without loss. At temperature 0, those of a chain are not: with `epsilon` 1,
  all of them are kept.

  Attributes:
    epsilon: at least 0, which is lossless; 1 keeps every sampled draft.
    replacement: the distribution of the token that replaces a rejected draft:
      'residual'; 'target' (Decoding-UNO), which is further from the target's
      distribution; or 'draft', which the code in Appendix G has for
      Decoding-UNO.
  """

  epsilon: float = 0.1
  replacement: str = components.static(default='residual')

  def __post_init__(self) -> None:
    checks.check_range('epsilon', self.epsilon, 0)
    if self.replacement not in REPLACEMENTS:
      raise ValueError(
        f'replacement must be one of {REPLACEMENTS}, got {self.replacement!r}.'
      )

  @property
  def is_lossless(self) -> bool:
    return False

  @property
  def judges_by_level(self) -> bool:
    return True

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    return walks.TreeWalk(self._coupling)(key, tree, target_probs)

  @property
  def _coupling(self) -> 'OverAcceptanceCoupling':
    return OverAcceptanceCoupling(self.epsilon, self.replacement)

  def token_probs(
    self, draft: jax.Array, target: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what `Lossy.token_probs` does, for this rule."""
    accepted = jnp.minimum(draft, target + self.epsilon)
    rejection = (draft - accepted).sum()
    weights = self._coupling.weights(draft, target)
    return accepted + rejection * weights / weights.sum(), rejection


@components.component
class OverAcceptanceCoupling(base.Coupling):
  """The test of one candidate. See `OverAcceptance` for the attributes."""

  epsilon: float
  replacement: str = components.static()

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    num_draw = sampling.num_uniforms(target.shape[0])
    uniforms = jax.random.uniform(key, (1 + num_draw,), jnp.float32)
    any_active = active.any()
    candidate = candidates[jnp.argmax(active)]
    bar = uniforms[0] * draft[candidate]
    passed = any_active & (bar < target[candidate] + self.epsilon)
    weights = self.weights(draft, target)
    weights = jnp.where(any_active, weights, target)
    token = sampling.draw(uniforms[1:], weights)
    return jnp.where(passed, candidate, token), passed

  def weights(self, draft: jax.Array, target: jax.Array) -> jax.Array:
    """Returns `[V]`, in proportion to which a rejected draft is replaced."""
    return {
      'residual': residuals.residual(draft, target),
      'target': target,
      'draft': draft,
    }[self.replacement]
