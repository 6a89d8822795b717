"""Over-acceptance: what it rejects and how far it is from the target, exactly.

The verifier as it runs, by enumeration of drafts and uniforms.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import trees
from specjax import verifiers
from specjax.theory import pareto
from tests.oracles import candidates
from tests.oracles import maximal
from tests.verifiers import exact

EPSILONS = (0.0, 0.05, 0.2, 1.0)
REPLACEMENTS = ('residual', 'target', 'draft')
CASES = {
  'one': exact.Case(trees.chain(1), 4),
  'two': exact.Case(trees.chain(2)),
  'end invalid': exact.Case(trees.chain(2), valid=(True, False)),
  'chosen': exact.Case(trees.chain(2), chosen=(1, 2)),
  'two chains': exact.Case(trees.chains(2, 1)),
}
CHAINS = ('one', 'two')


@functools.cache
def integrated(name, epsilon, replacement='residual'):
  case = CASES[name]

  def breakpoints(draft, target, tokens, *args):
    steps = maximal.breakpoints(draft, target, tokens, *args)
    steps[0] = [
      (target[token] + epsilon) / draft[token] for token in tokens[:1]
    ]
    weights = {'residual': [], 'target': target, 'draft': draft}[replacement]
    draws = candidates.cumulative(weights) if len(weights) else []
    return [steps[0], np.append(steps[1], draws)]

  return exact.integrate(
    case,
    _with_replacement(replacement),
    *exact.walk_cells(case, breakpoints),
    parameters=(epsilon,),
  )


@functools.cache
def _with_replacement(replacement):
  return lambda epsilon: verifiers.OverAcceptance(epsilon, replacement)


@functools.cache
def table(name, epsilon, replacement='residual'):
  """Returns accepted and emitted mass `[V, V]` and rejections `[V]`."""
  case = CASES[name]
  accept = np.minimum(1, (case.target + epsilon) / case.draft)
  kept_probs = accept * case.draft
  rejected = 1 - kept_probs.sum(1)
  excess = np.maximum(case.target - case.draft, 0)
  replacement_probs = {
    'residual': excess / excess.sum(1, keepdims=True),
    'target': case.target,
    'draft': case.draft,
  }[replacement]
  return (
    kept_probs,
    kept_probs + rejected[:, None] * replacement_probs,
    rejected,
  )


def first_tokens(name, result):
  return result.probs.reshape(CASES[name].vocab_size, -1).sum(axis=1)


each_chain = pytest.mark.parametrize('name', CHAINS)
each_rule = pytest.mark.parametrize(
  ('name', 'epsilon', 'replacement'),
  [*itertools.product(CHAINS, EPSILONS, REPLACEMENTS)]
  + [('end invalid', 0.2, 'residual'), ('end invalid', 0.2, 'draft')],
)


@each_rule
def test_rejection_and_bias_are_those_of_the_rule(name, epsilon, replacement):
  """Compares the root with the formula and with `pareto`."""
  case = CASES[name]
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  result = integrated(name, epsilon, replacement)
  np.testing.assert_allclose(result.mass.sum(), 1, atol=1e-6)
  rejection = 1 - result.reach[0]
  accept = np.minimum(1, (target + epsilon) / draft)
  assert rejection == pytest.approx(((1 - accept) * draft).sum(), abs=1e-6)
  _, emitted, _ = table(name, epsilon, replacement)
  actual = first_tokens(name, result)
  np.testing.assert_allclose(actual, emitted[exact.ROOT], atol=1e-6)
  bias = 0.5 * np.abs(actual - target).sum()
  point = pareto.over_acceptance_point(
    jnp.asarray(draft), jnp.asarray(target), epsilon, replacement
  )
  assert point.rejection == pytest.approx(rejection, abs=1e-6)
  assert point.bias == pytest.approx(bias, abs=1e-6)


@each_chain
def test_rejection_and_bias_sum_to_the_distance(name):
  """The sum is exact with residuals; other replacements add bias."""
  case = CASES[name]
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  distance = 0.5 * np.abs(draft - target).sum()
  for epsilon in EPSILONS:
    best, *other_results = (
      integrated(name, epsilon, replacement) for replacement in REPLACEMENTS
    )
    rejection = 1 - best.reach[0]
    bias, *other_biases = (
      0.5 * np.abs(first_tokens(name, result) - target).sum()
      for result in (best, *other_results)
    )
    assert rejection + bias == pytest.approx(distance, abs=1e-6)
    for other_result, other_bias in zip(other_results, other_biases):
      np.testing.assert_allclose(other_result.reach, best.reach, atol=1e-6)
      if rejection > 1e-6:
        assert other_bias > bias + 1e-3


@each_rule
def test_walk_applies_the_rule_at_every_position(name, epsilon, replacement):
  """The target completes the text after rejected or missing drafts."""
  case = CASES[name]
  kept_probs, emitted, rejected = table(name, epsilon, replacement)
  num_valid = int(case.is_valid.sum())
  probs, going, reach = np.zeros(()), np.ones(1), []
  contexts = np.array([exact.ROOT])
  for depth in range(case.topology.depth + 1):
    rows, pass_probs = (
      case.target[contexts],
      np.zeros_like(case.target[contexts]),
    )
    if depth < num_valid:
      pass_probs = kept_probs[contexts]
      rows = emitted[contexts]
    new = going[:, None] * (rows - pass_probs)
    stopped = probs.reshape(-1, 1) * case.target[contexts]
    probs = (stopped + new).ravel()
    going = (going[:, None] * pass_probs).ravel()
    reach.append(going.sum())
    contexts = np.arange(probs.size) % case.vocab_size
  result = integrated(name, epsilon, replacement)
  np.testing.assert_allclose(result.probs, probs, atol=1e-6)
  np.testing.assert_allclose(result.reach, reach[:-1], atol=1e-6)


@each_chain
def test_epsilon_zero_is_lossless(name):
  result = integrated(name, 0.0)
  np.testing.assert_allclose(result.probs, CASES[name].expected, atol=1e-6)


def test_epsilon_zero_keeps_lossless_drafts_and_draws_again():
  """Computes the distribution with replacements from the draft by hand."""
  case = CASES['one']
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  kept_probs = np.minimum(draft, target)
  np.testing.assert_allclose(
    first_tokens('one', integrated('one', 0.0, 'draft')),
    kept_probs + (1 - kept_probs.sum()) * draft,
    atol=1e-6,
  )


@pytest.mark.parametrize('replacement', REPLACEMENTS)
def test_epsilon_one_keeps_every_draft(replacement):
  result = integrated('two', 1.0, replacement)
  assert (result.outcome.num_accepted == 2).all()


def test_what_was_not_sampled_is_verified_without_loss():
  """What is no sample has no ratio; it passes where the target picks it."""
  case = CASES['chosen']
  result = integrated('chosen', 0.2)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)
  reach = np.cumprod([case.target[exact.ROOT, 1], case.target[1, 2]])
  np.testing.assert_allclose(result.reach, reach, atol=1e-6)


def test_of_several_drafts_the_first_is_tested():
  """Both trees have one level of drafts."""
  tree_result, chain_result = (
    integrated(name, 0.2) for name in ('two chains', 'end invalid')
  )
  np.testing.assert_allclose(
    tree_result.reach[0], chain_result.reach[0], atol=1e-6
  )
  np.testing.assert_allclose(
    first_tokens('two chains', tree_result),
    first_tokens('end invalid', chain_result),
    atol=1e-6,
  )


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ((-0.1,), r'epsilon must be >= 0, got -0\.1'),
    ((float('nan'),), 'epsilon must be >= 0, got nan'),
    ((0.1, 'drafts'), r"'target', 'draft'\), got 'drafts'"),
  ],
)
def test_bad_arguments_are_refused(arguments, words):
  with pytest.raises(ValueError, match=words):
    verifiers.OverAcceptance(*arguments)
