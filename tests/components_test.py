"""Tests that components are values, and that their numbers are data."""

import jax
import jax.numpy as jnp
import pytest

from specjax import checks
from specjax import components


@components.component
class Rule:
  """Scales what it is given, `num_times` times."""

  num_times: int = components.static()
  factor: float = 2.0

  def __post_init__(self):
    checks.check_range('factor', self.factor, 0, 10)

  def __call__(self, x):
    return x * self.factor**self.num_times


def test_equal_components_are_equal_and_have_one_hash():
  assert Rule(3, 0.5) == Rule(num_times=3, factor=0.5)
  assert hash(Rule(3, 0.5)) == hash(Rule(3, 0.5))
  assert Rule(3, 0.5) != Rule(3, 0.25) != Rule(2, 0.25)


def test_numbers_share_a_program_and_static_fields_do_not():
  num_traced = 0

  @jax.jit
  def apply(rule, x):
    nonlocal num_traced
    num_traced += 1
    return rule(x)

  assert [float(apply(Rule(2, factor), 1.0)) for factor in (1.0, 3.0)] == [1, 9]
  assert num_traced == 1
  assert float(apply(Rule(3, 2.0), 1.0)) == 8
  assert num_traced == 2


@components.component
class Shift:
  """Has a field of the type of `Rule`'s, and another meaning."""

  num_times: int = components.static()
  factor: float = 2.0

  def __call__(self, x):
    return x + self.factor


def test_classes_of_equal_fields_have_different_structures():
  """Prevents a program for one class from running for the other."""
  structures = [
    jax.tree.structure(rule_class(2, 0.5)) for rule_class in (Rule, Shift)
  ]
  assert structures[0] != structures[1]
  assert structures[0] == jax.tree.structure(Rule(2, 3.0))
  apply = jax.jit(lambda rule, x: rule(x))
  assert [
    float(apply(rule_class(2, 0.5), 1.0)) for rule_class in (Rule, Shift)
  ] == [
    0.25,
    1.5,
  ]


def test_numbers_can_be_mapped_over():
  outputs = jax.vmap(lambda rule: rule(1.0))(Rule(1, jnp.array([1.0, 4.0])))
  assert outputs.tolist() == [1.0, 4.0]


def test_numbers_are_checked_where_they_are_known():
  with pytest.raises(ValueError, match=r'factor must lie in \[0, 10\], got 11'):
    Rule(1, 11.0)
  jax.eval_shape(lambda rule: rule(1.0), Rule(1, 1.0))
  jax.tree.map(lambda leaf: None, Rule(1, 1.0))
