"""Published mistakes in speculative sampling, with their exact errors.

Each was reported for, or asked about, a well-known engine. In a mistake, a
draft and a verifier do not fit together, so that the output no longer has the
target's distribution:

    from specjax import testing

    mistake = testing.mistakes.MISTAKES['shared noise']
    mistake.total_variation  # The distance from the target's distribution.
    mistake.mended.check()  # Passes.
    mistake.broken.check()  # Raises an AssertionError.

The distribution of a broken round is a closed form, summed over all drafts. The
check estimates it with the verifier instead.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling
from specjax import trees
from specjax import verifiers
from specjax.couplings import residuals
from specjax.drafters import siblings
from specjax.testing import losslessness
from specjax.testing import rounds

# Raw logits of large language models are about this large. Their rounding is a
# relative error of probabilities.
_LOGIT = 20.0


class Round(NamedTuple):
  """Drafts and the verifier that receives them."""

  case: rounds.Case
  verifier: base.Verifier

  def check(self) -> None:
    """Raises `AssertionError` if rounds lack the target's distribution."""
    losslessness.check_lossless(self.verifier, [self.case])


@dataclasses.dataclass(frozen=True)
class Mistake:
  """A published mistake.

  Attributes:
    source: where it was reported.
    description: what is wrong, in one sentence.
    broken: the round with the mistake.
    mended: a round of the same topology without it.
    law: from the broken case to the exact distribution of a round, as
      `rounds.Case.expected`.
  """

  source: str
  description: str
  broken: Round
  mended: Round
  law: Callable[[rounds.Case], np.ndarray]

  @property
  def probs(self) -> np.ndarray:
    """`[V**(D + 1)]` distribution of a round that the target completes."""
    return self.law(self.broken.case)

  @property
  def total_variation(self) -> float:
    """The distance of this distribution from the target's."""
    return float(np.abs(self.probs - self.broken.case.expected).sum() / 2)


@components.component
class SharedNoise(base.Coupling):
  """The maximal coupling, whose residual is drawn with the draft's own noise.

  A token is drawn from weights as the argument that minimizes `noise / weight`,
  with exponential noise (the Gumbel-max trick). The noise of the draft is drawn
  here, given its token: the smallest quotient is exponential as well, and the
  noise of all other tokens is at least its multiple by their probability.
  """

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    accept_key, first_key, noise_key = jax.random.split(key, 3)
    candidate = candidates[jnp.argmax(active)]
    uniform = jax.random.uniform(accept_key)
    keep = active.any() & (uniform * draft[candidate] < target[candidate])
    smallest = jax.random.exponential(first_key)
    noise = jax.random.exponential(noise_key, target.shape)
    drafted = jnp.where(active.any(), draft, 0.0)
    weights = residuals.residual(drafted, target)
    noise += smallest * drafted
    quotients = jnp.where(weights > 0, noise / weights, jnp.inf)
    token = jnp.where(keep, candidate, jnp.argmin(quotients))
    return token.astype(jnp.int32), (active & (candidates == token)).any()


@components.component
class TokenwiseBlock(base.Verifier):
  """Accepts the longest prefix for which products of ratios exceed uniforms.

  Prefix `i` passes if `u_1 ... u_i <= r_1 ... r_i`, with ratios `min(1,
  target / draft)`. The next token is drawn from `max(target - draft, 0)`, as if
  tokens had been tested one by one. Block verification multiplies the target
  in both places by the prefix's probability (`verifiers.Block`).
  """

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    if tree.topology.width > 1 or tree.probs is None:
      raise ValueError(
        'TokenwiseBlock needs a sampled chain, got a tree with parents '
        f'{tree.topology.parents}.'
      )
    length, size = tree.topology.num_nodes, target_probs.shape[1]
    index = np.arange(length)
    at = index, tree.tokens
    ratios = jnp.minimum(target_probs[at] / tree.probs[at], 1.0)
    test_key, draw_key = jax.random.split(key)
    uniforms = jax.random.uniform(test_key, (length,))
    passed = jnp.cumprod(uniforms) <= jnp.cumprod(ratios)
    passed &= jnp.cumprod(tree.valid).astype(bool)
    end = jnp.where(passed, index + 1, 0).max(initial=0)
    is_tested = jnp.append(tree.valid, False)[end]
    drafted = jnp.pad(tree.probs, ((0, 1), (0, 0)))[end]
    weights = residuals.residual(
      jnp.where(is_tested, drafted, 0.0), target_probs[end]
    )
    uniforms = jax.random.uniform(draw_key, (sampling.num_uniforms(size),))
    return base.Outcome(
      path=jnp.asarray(index, jnp.int32),
      num_accepted=end.astype(jnp.int32),
      tokens=jnp.append(tree.tokens, 0)
      .at[end]
      .set(sampling.draw(uniforms, weights)),
    )


@dataclasses.dataclass(frozen=True)
class Likeliest(rounds.Case):
  """Siblings are the likeliest tokens, but are reported as samples."""

  @functools.cached_property
  def drafts(self) -> np.ndarray:
    """`[1, N]` the only draft."""
    tokens: list[int] = []
    parents = self.topology.parents
    for parent, rank in zip(parents, siblings.ranks(parents)):
      context = tokens[parent] if parent >= 0 else rounds.ROOT
      tokens.append(int(np.argsort(-self.draft[context])[rank]))
    return np.array([tokens], int)

  @functools.cached_property
  def node_probs(self) -> np.ndarray:
    """`[1, N, V]`, one-hot."""
    return np.eye(self.vocab_size)[self.drafts]


@dataclasses.dataclass(frozen=True)
class Bfloat16(rounds.Case):
  """Tokens are drawn from bfloat16 logits; float32 ones are reported."""

  @functools.cached_property
  def drawn(self) -> np.ndarray:
    """`[V, V]` float64, the distributions of the drafts."""
    logits = jnp.log(rounds.tables(self.vocab_size)[0]) + _LOGIT
    rounded = logits.astype(jnp.bfloat16).astype(jnp.float32)
    return rounds.normalize(np.asarray(jax.nn.softmax(rounded)))

  @functools.cached_property
  def node_probs(self) -> np.ndarray:
    """`[n, N, V]` the distribution from which each node is drawn."""
    return self.drawn[self.parent_tokens]


def _residual(target: np.ndarray, draft: np.ndarray) -> np.ndarray:
  excess = np.maximum(target - draft, 0)
  return excess / excess.sum()


def _tested_in_order(case: rounds.Case) -> np.ndarray:
  """Returns the law of siblings that multi-round rejection takes for samples.

  One sibling is the maximal coupling.
  """
  draft = case.draft[rounds.ROOT]
  first = np.zeros(case.vocab_size)
  for tokens, reached in zip(case.drafts, case.weights):
    target = case.target[rounds.ROOT]
    for token in tokens:
      accepted = reached * min(1, target[token] / draft[token])
      first[token] += accepted
      reached -= accepted
      target = _residual(target, draft)
    first += reached * target
  return _complete(first, case)


def _shared_noise(case: rounds.Case) -> np.ndarray:
  """Returns the law of a chain of one token under `SharedNoise`.

  Given the smallest quotient `s` of the draft, token `v` has the quotient
  `(s draft_v + e_v) / residual_v` with exponential `e_v`: from `s draft_v /
  residual_v` on, it occurs at the rate `residual_v`. Integrated over the
  exponential `s`, the probability that token `v` is the first is the integral
  of `residual_v / (1 + sum_w max(0, u residual_w - draft_w))**2` over `u` from
  `draft_v / residual_v` on.
  """
  draft, target = case.draft[rounds.ROOT], case.target[rounds.ROOT]
  first = np.minimum(draft, target)
  residual = _residual(target, draft)
  possible = np.flatnonzero(residual)
  starts = draft[possible] / residual[possible]
  order = possible[np.argsort(starts)]
  starts = np.sort(starts)
  replaced = np.zeros_like(first)
  for i, start in enumerate(starts):
    # Between two starts, the sum has the same terms and is linear.
    begun = order[: i + 1]
    rate = residual[begun].sum()
    inverse = lambda u, begun=begun: (
      1 / (1 + (u * residual[begun] - draft[begun]).sum())
    )
    end = inverse(starts[i + 1]) if i + 1 < len(starts) else 0.0
    replaced[begun] += residual[begun] / rate * (inverse(start) - end)
  return _complete(first + (1 - first.sum()) * replaced, case)


def _tokenwise_block(case: rounds.Case) -> np.ndarray:
  """Returns the law of a chain of two tokens under `TokenwiseBlock`.

  With ratios `a` and `b`, the uniforms pass `u_1 u_2 <= a b` with probability
  `a b (1 - log(a b))`; otherwise, `u_1 <= a` remains.
  """
  table, size = case.target, case.vocab_size
  a, b = np.minimum(1, table / case.draft)[case.parent_tokens, case.drafts].T
  two = a * b * (1 - np.log(a * b))
  one = a - a * b * (1 - np.log(b))
  residual = np.array([_residual(*pair) for pair in zip(table, case.draft)])
  corrected = residual[rounds.ROOT][:, None, None] * table[:, :, None] * table
  law = np.zeros((size, size, size))
  for (x, y), weight, p, q in zip(case.drafts, case.weights, two, one):
    law[x, y] += weight * p * table[y]
    law[x] += weight * q * residual[x][:, None] * table
    law += weight * (1 - p - q) * corrected
  return law.ravel()


def _complete(first: np.ndarray, case: rounds.Case) -> np.ndarray:
  """Returns `[V**2]`, the first token and the target's next one."""
  return (first[:, None] * case.target).ravel()


_TOKEN, _PAIR, _CHAIN = trees.chain(1), trees.chains(2, 1), trees.chain(2)
_MAXIMAL = verifiers.resolve('maximal')

MISTAKES: dict[str, Mistake] = {
  'shared noise': Mistake(
    'vLLM #54282',
    'A rejected token is replaced by a draw with the noise of its own draft.',
    Round(rounds.Case(_TOKEN, 4), verifiers.TreeWalk(SharedNoise())),
    Round(rounds.Case(_TOKEN, 4), _MAXIMAL),
    _shared_noise,
  ),
  'likeliest siblings': Mistake(
    'EAGLE #110, #221',
    'The likeliest tokens of the draft are tested as if they were samples.',
    Round(Likeliest(_PAIR, 4), verifiers.resolve('multiround')),
    Round(rounds.Case(_PAIR, 4, chosen=(1, 2)), _MAXIMAL),
    _tested_in_order,
  ),
  'greedy draft': Mistake(
    'transformers #32867',
    'The likeliest token is accepted with probability `min(1, target/draft)`.',
    Round(Likeliest(_TOKEN, 4), _MAXIMAL),
    Round(rounds.Case(_TOKEN, 4, chosen=(1,)), _MAXIMAL),
    _tested_in_order,
  ),
  'tokenwise block': Mistake(
    'vllm-ascend #7807',
    'Products of ratios are tested, but corrections are those of one token.',
    Round(rounds.Case(_CHAIN), TokenwiseBlock()),
    Round(rounds.Case(_CHAIN), verifiers.resolve('block')),
    _tokenwise_block,
  ),
  'other dtype': Mistake(
    'DeepSpec #31',
    'Drafts are drawn from bfloat16 logits and tested with float32 ones.',
    Round(Bfloat16(_TOKEN, 2), _MAXIMAL),
    Round(rounds.Case(_TOKEN, 2), _MAXIMAL),
    _tested_in_order,
  ),
}
