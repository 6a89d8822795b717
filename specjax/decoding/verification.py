"""Verification of arms: their rules, and the trees that are verified at once.

A rule is a verifier and the goal that it samples from. A round keeps each rule
once, compared while its numbers are known: in a compiled program they are
arguments. Trees of one structure are verified at once, whichever arms they
belong to, if their rules differ only in numbers.
"""

from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import trees
from specjax.decoding import feedback as feedback_lib
from specjax.goals import apply as goal_lib

# Rules.


class Rule(NamedTuple):
  """How trees are verified."""

  verifier: base.Verifier
  goal: base.Goal | None  # None is the target


def different_rules(
  arms: Sequence[base.Arm],
) -> tuple[tuple[Rule, ...], tuple[int, ...]]:
  """Returns the different rules of arms, and `[A]` the rule of each arm.

  Args:
    arms: drafter, verifier and goal of each arm. Rules whose numbers are traced
      count as different.
  """
  keys = [_key(Rule(arm.verifier, arm.goal)) or i for i, arm in enumerate(arms)]
  index_of_key = {key: i for i, key in enumerate(dict.fromkeys(keys))}
  rule_of_arm = tuple(index_of_key[key] for key in keys)
  rules = []
  for i in range(len(index_of_key)):
    arm = arms[rule_of_arm.index(i)]
    rules.append(Rule(arm.verifier, arm.goal))
  return tuple(rules), rule_of_arm


def _key(rule: Rule) -> Hashable:
  """Returns what equal rules have in common; None if a number is not known."""
  numbers, structure = jax.tree.flatten(rule)
  if not checks.is_known(numbers):
    return None
  arrays = map(np.asarray, numbers)
  return structure, tuple((a.shape, a.dtype, a.tobytes()) for a in arrays)


def groups_verified_at_once(
  rules: Sequence[Rule],
  rule_of_arm: Sequence[int],
  draft_trees: Mapping[int, base.DraftTree],
) -> list[list[int]]:
  """Returns groups of arms whose rules and trees have equal structures.

  Args:
    rules: the different rules.
    rule_of_arm: `[A]` the index of each arm's rule in `rules`.
    draft_trees: the draft tree of each arm, by the arm's index.
  """
  groups: dict[Any, list[int]] = {}
  for i, tree in draft_trees.items():
    numbers, structure = jax.tree.flatten(rules[rule_of_arm[i]])
    types = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in numbers)
    key = structure, types, jax.tree.structure(tree)
    groups.setdefault(key, []).append(i)
  return list(groups.values())


def selected_rule(
  rules: Sequence[Rule],
  rule_of_arm: Sequence[int],
  group: Sequence[int],
  arm: jax.Array,
) -> tuple[Rule, int | None]:
  """Returns the rule of the selected arms of one group.

  Args:
    rules: the different rules.
    rule_of_arm: `[A]` the index of each arm's rule in `rules`.
    group: arms whose rules differ only in numbers.
    arm: `[]` or `[B]` the selected arm. The rule is undefined where it does not
      belong to the group.

  Returns:
    The rule, and the axis of its numbers that counts rows, if there is one.
  """
  indices = sorted({rule_of_arm[i] for i in group})
  if len(indices) == 1:
    return rules[indices[0]], None
  index_of_arm = np.zeros(len(rule_of_arm), np.int32)
  for i in group:
    index_of_arm[i] = indices.index(rule_of_arm[i])
  index = jnp.asarray(index_of_arm)[arm]
  rule = jax.tree.map(
    lambda *numbers: jnp.stack(numbers)[index], *(rules[i] for i in indices)
  )
  return rule, 0 if arm.ndim else None


# Verification.


class Verification(NamedTuple):
  """Outcomes of all rows; padded, where arms are merged."""

  outcome: base.Outcome  # batched, for the deepest tree
  depth: jax.Array  # [B] int32, of the deepest valid node
  acceptance: feedback_lib.Acceptance
  fidelity: jax.Array  # [B]
  target: base.Probs | None  # [B, P, V] at committed positions; if kept
  bad_probs: jax.Array  # [B] bool, probabilities of drafter or goal were NaN
  bad_tree: jax.Array  # [B] bool, the tree contradicts its bounds


def verify_trees(
  rule: Rule,
  axis: int | None,
  keys: jax.Array,
  tree: base.DraftTree,
  target: base.Probs,
  *,
  keep_target: bool,
) -> Verification:
  """Verifies the trees of all rows.

  Args:
    rule: verifier and goal.
    axis: the axis of the rule's numbers that counts rows; None if they are
      those of all rows.
    keys: `[B]` one key per row, consumed.
    tree: batched.
    target: `[B, M, V]` probabilities after the root and at least all nodes.
    keep_target: whether those at committed positions are returned.
  """
  topology, rows = tree.topology, tree.tokens.shape[:1]
  target = jax.tree.map(
    lambda probs: probs[:, : topology.num_nodes + 1], target
  )
  sampled, fidelity = target, jnp.ones(rows, jnp.float32)
  bad_probs = _has_bad_probs(tree, rule.goal is not None)
  if rule.goal is not None:
    goal_probs = jax.vmap(goal_lib.probs, in_axes=(axis, 0, 0))
    goal = goal_probs(rule.goal, tree, target)
    known = jax.vmap(goal_lib.has_draft_probs)(tree)
    fidelity = feedback_lib.goal_fidelity(goal, target.processed, known)
    sampled = target._replace(processed=goal)
    bad_probs |= jnp.isnan(fidelity)
  depths = jnp.broadcast_to(topology.depths, tree.valid.shape)
  call = lambda verifier, *inputs: verifier(*inputs)
  outcome = jax.vmap(call, in_axes=(axis, 0, 0, 0))(
    rule.verifier, keys, tree, sampled.processed
  )
  committed = None
  if keep_target:
    committed = jax.tree.map(
      lambda probs: trees.at_entries(probs, outcome.entries), target
    )
  return Verification(
    outcome=outcome,
    depth=jnp.where(tree.valid, depths, 0).max(axis=1, initial=0),
    acceptance=feedback_lib.tree_acceptance(tree, sampled, outcome),
    fidelity=fidelity,
    target=committed,
    bad_probs=bad_probs,
    bad_tree=~jnp.broadcast_to(topology.is_valid, rows),
  )


def _has_bad_probs(tree: base.DraftTree, has_goal: bool) -> jax.Array:
  """Returns `[B]` whether a probability that is used is not finite.

  Only goals use raw probabilities and those of bonus positions.
  """
  used = [(tree.probs, tree.valid)]
  if has_goal:
    used.append((tree.raw_probs, tree.valid))
  if has_goal and tree.bonus_probs is not None:
    drawn = jnp.pad(tree.valid, ((0, 0), (1, 0)), constant_values=True)
    leaves = drawn[:, goal_lib.leaf_entries(tree.topology)]
    used += [(probs, leaves) for probs in tree.bonus_probs]
  bad = jnp.zeros(tree.tokens.shape[:1], bool)
  for probs, exists in used:
    if probs is not None:
      bad |= (~jnp.isfinite(probs.sum(2)) & exists).any(axis=1)
  return bad
