"""Over-acceptance: more drafts are kept than a lossless rule may keep.

Yin et al. (2024), Section 4. Notation: the paper's p is the draft, its q is the
target.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax import registry
from specjax import sampling
from specjax import trees
from specjax.couplings import residuals
from specjax.verifiers import walks

_REPLACEMENTS = ('residual', 'target', 'draft')


@registry.component(topologies=[trees.chains(2, 2), trees.prefix_tree((2, 2))])
def over_acceptance(
  epsilon: float = 0.1, replacement: str = 'residual'
) -> base.Verifier:
  """Builds the verifier that accepts with `min(1, (target + epsilon) / draft)`.

  Its output does not have the target's distribution, but no rule that rejects
  as seldom is nearer to it, if what is rejected is replaced by a sample of the
  residual `max(target - draft, 0)` (Decoding-OPT, Theorem 5): rejection and
  bias then sum to the total variation between draft and target.

  Args:
    epsilon: at least 0, which is lossless; 1 keeps every draft.
    replacement: what a sample of stands for a rejected draft: 'residual';
      'target' (Decoding-UNO), which is further from the target's distribution;
      or 'draft', which is what the code in Appendix G has for Decoding-UNO.

  Raises:
    ValueError: an argument is out of range.
  """
  checks.check_range('epsilon', epsilon, 0)
  if replacement not in _REPLACEMENTS:
    raise ValueError(
      f'replacement must be one of {_REPLACEMENTS}, got {replacement!r}.'
    )

  return walks.tree_walk(OverAcceptanceCoupling(epsilon, replacement))


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
    weights = {
      'residual': residuals.residual(draft, target),
      'target': target,
      'draft': draft,
    }[self.replacement]
    weights = jnp.where(any_active, weights, target)
    token = sampling.draw(uniforms[1:], weights)
    return jnp.where(passed, candidate, token), passed
