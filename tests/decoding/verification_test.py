"""Arms that are verified at once, and those that are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import components
from specjax import trees
from specjax.decoding import verification
from tests import arms
from tests import sizes
from tests import tiers

CHOW, OPT = specjax.goals.Chow, specjax.goals.Opt
OTM, MAXIMAL = (specjax.verifiers.resolve(name) for name in ('otm', 'maximal'))


def rules_of(*pairs):
  """Returns the different rules of arms with verifiers and goals."""
  return verification.different_rules(
    [specjax.Arm(specjax.drafters.NoDrafter(), *pair) for pair in pairs]
  )


def test_equal_rules_are_kept_once():
  rules, rule_of_arm = rules_of(
    (OTM, None),
    (OTM, CHOW(0.3)),
    (MAXIMAL, CHOW(0.3)),
    (OTM, CHOW(0.3)),
    (OTM, OPT(0.3)),
    (OTM, None),
    (OTM, CHOW(0.1)),
  )
  assert rule_of_arm == (0, 1, 2, 1, 3, 0, 4)
  assert rules[1] == (OTM, CHOW(0.3)) and rules[4] == (OTM, CHOW(0.1))


def test_rules_with_traced_numbers_count_as_different():
  @jax.jit
  def trace(alpha):
    pairs = [(OTM, CHOW(alpha)), (OTM, CHOW(alpha)), (OTM, None), (OTM, None)]
    assert rules_of(*pairs)[1] == (0, 1, 2, 2)
    return alpha

  trace(0.3)


def proposed(topology):
  """Returns the chosen tokens of one row."""
  tokens = jnp.zeros((1, topology.num_nodes), jnp.int32)
  return specjax.DraftTree(tokens, topology, tokens == 0, probs=None)


def test_a_group_has_one_structure_and_selects_the_numbers_of_each_row():
  rules, rule_of_arm = rules_of(
    (OTM, CHOW(0.25)),
    (OTM, CHOW(0.5)),
    (OTM, OPT(0.5)),
    (OTM, CHOW(0.5)),
    (OTM, CHOW(0.25)),
  )
  shapes = [trees.chain(length) for length in (2, 2, 2, 2, 3)]
  groups = verification.groups_verified_at_once(
    rules, rule_of_arm, dict(enumerate(map(proposed, shapes)))
  )
  assert groups == [[0, 1, 3], [2], [4]]

  def select(group, arm):
    return verification.selected_rule(rules, rule_of_arm, group, arm)

  arm = np.array([3, 0, 1])
  rule, axis = select(groups[0], jnp.asarray(arm))
  assert axis == 0
  np.testing.assert_array_equal(rule.goal.alpha, [0.5, 0.25, 0.5])
  rule, axis = select(groups[0], jnp.int32(0))
  assert axis is None and rule.goal.alpha == 0.25
  # Of arms with equal numbers, nothing is selected.
  assert select([1, 3], jnp.asarray(arm)) == (rules[1], None)


@components.component
class OtherWalk(specjax.verifiers.TreeWalk):
  """A tree walk that differs from `TreeWalk` in its class only."""


@pytest.mark.parametrize(
  ('per_row', 'alphas'),
  tiers.cases(
    [(True, (0.05, 0.3)), (True, None), (False, (0.05, 0.3)), (False, None)],
    (True, (0.05, 0.3)),
  ),
  ids=['chow, row', 'target, row', 'chow, batch', 'target, batch'],
)
def test_arms_that_are_verified_at_once_emit_what_they_emit_apart(
  per_row, alphas
):
  """Covers goals with different parameters."""
  options = [{}, {}]
  if alphas:
    options = [{'goal': CHOW(alpha), 'bonus_probs': True} for alpha in alphas]
  first_arm = arms.chain(2, arms.MARKOV_DRAFT, **options[0])
  second_arm, params = arms.chain(2, arms.MARKOV_OTHER, **options[1])
  separate_arm = second_arm._replace(
    verifier=OtherWalk(second_arm.verifier.coupling)
  )
  assert first_arm[0].verifier == second_arm.verifier != separate_arm.verifier
  joint_results, separate_results = (
    arms.decoder(
      first_arm,
      (arm, params),
      bandit='uniform',
      target=arms.MARKOV_TARGET,
      per_row=per_row,
    ).decode(sizes.MARKOV_PROMPTS, 12)
    for arm in (second_arm, separate_arm)
  )
  assert sum(result.pulls for result in joint_results).all()
  for joint_result, separate_result in zip(joint_results, separate_results):
    assert joint_result.tokens == separate_result.tokens
    np.testing.assert_array_equal(
      joint_result.accepted, separate_result.accepted
    )
