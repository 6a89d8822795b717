"""Checks by enumeration of drafts that a verifier is lossless."""

from collections.abc import Sequence
import dataclasses
import functools

import jax
import numpy as np

from specjax import base
from specjax import trees
from specjax import verifiers
from specjax.testing import building
from specjax.testing import rounds

# Number of rounds per case, divided among its drafts.
_NUM_ROUNDS = 2**17
# Standard errors beyond which a frequency contradicts its probability.
_LIMIT = 5.5

_PREFIX_TREE = trees.prefix_tree((2, 2))
# Sampled and chosen drafts, with and without invalid nodes.
_CASES = (
  rounds.Case(trees.chain(2)),
  rounds.Case(trees.chain(2), valid=(True, False)),
  rounds.Case(trees.chain(2), chosen=(1, 2)),
  rounds.Case(trees.chains(3, 1)),
  rounds.Case(trees.chains(3, 1), valid=(False, True, True)),
  rounds.Case(trees.chains(2, 1), chosen=(2, 1)),
  rounds.Case(trees.chains(2, 2), 2),
  rounds.Case(_PREFIX_TREE, 2),
  rounds.Case(_PREFIX_TREE, 2, valid=(True, True, False, True, True, False)),
)


def check_lossless(
  verifier: str | base.Verifier | base.Coupling,
  cases: Sequence[trees.Topology | rounds.Case] | None = None,
) -> None:
  """Checks that rounds have the target's distribution.

  All drafts of small trees on Markov models with 2 or 3 tokens are enumerated
  with their exact probabilities, and each is verified with thousands of keys.
  The distribution of a whole round, including the bonus token, is compared;
  rounds that end early are continued by the target. A correct verifier fails
  with probability below 1e-5. A verifier whose probability of a sequence is
  wrong by 0.012 (on a chain, 0.006) is detected with probability above 0.99. So
  is the maximal coupling that omits its residual in one of ten cases.

  Args:
    verifier: a verifier, a coupling or a name, see `verifiers.resolve`. A
      coupling is checked as a tree walk.
    cases: drafts that are verified; a topology stands for sampled tokens and
      valid nodes. By default, chains, siblings, several chains and a prefix
      tree are verified, also with chosen tokens and invalid nodes. Except for
      sampled chains, those that the verifier refuses are skipped.

  Raises:
    AssertionError: a sequence is more or less likely than under the target.
    ValueError: the verifier refuses one of `cases`, or a chain.
  """
  verify = verifiers.resolve(verifier)
  for entry in _CASES if cases is None else cases:
    case = entry if isinstance(entry, rounds.Case) else _sampled(entry)
    try:
      _compare(case, *measure(verify, case))
    except ValueError:
      if cases is not None or case == _CASES[0]:
        raise


def _sampled(topology: trees.Topology) -> rounds.Case:
  """Returns a case with a vocabulary whose drafts can be enumerated."""
  return rounds.Case(topology, 3 if topology.num_nodes <= 4 else 2)


def measure(
  verifier: base.Verifier, case: rounds.Case
) -> tuple[np.ndarray, np.ndarray]:
  """Returns `[V**(D + 1)]` estimated probabilities of rounds, and errors.

  Args:
    verifier: the verifier.
    case: the drafts. Rounds that end early are completed by the target.
  """
  num_drafts = len(case.drafts)
  num_keys = _NUM_ROUNDS // num_drafts
  keys = jax.random.split(jax.random.key(0), (num_drafts, num_keys))

  # Cases that differ only in their valid nodes share a program.
  like = dataclasses.replace(case, valid=None)
  drafts = case.drafts.astype(np.int32)
  outcome = _verify_all(verifier, like, keys, drafts, case.is_valid)
  tokens, num_accepted = map(np.asarray, (outcome.tokens, outcome.num_accepted))
  weights = np.full(num_keys, 1 / num_keys)
  # For each draft, means and mean squares of the probability that the target
  # completes a round to each sequence.
  means, squares = (
    np.array(
      [
        rounds.complete(*outcomes, weights, table)
        for outcomes in zip(tokens, num_accepted)
      ]
    )
    for table in (case.target, case.target**2)
  )
  draft_probs = case.weights[:, None]
  probs = (draft_probs * means).sum(0)
  variance = (draft_probs**2 * (squares - means**2)).sum(0).clip(0) / num_keys
  return probs, np.sqrt(variance)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _verify_all(
  verifier: base.Verifier,
  case: rounds.Case,
  keys: jax.Array,
  drafts: jax.Array,
  valid: jax.Array,
) -> base.Outcome:
  """Returns the outcomes of `[n, N]` drafts with `[n, R]` keys."""
  verify = lambda key, tokens: case.verify(verifier, key, tokens, valid)
  verify_keys = jax.vmap(verify, (0, None))
  return jax.lax.map(lambda inputs: verify_keys(*inputs), (keys, drafts))


def _compare(case: rounds.Case, probs: np.ndarray, error: np.ndarray) -> None:
  """Checks that estimated probabilities of sequences match the target's.

  Args:
    case: the case.
    probs: `[V**(D + 1)]` estimates.
    error: `[V**(D + 1)]` standard errors.
  """
  expected = case.expected
  excess = np.abs(probs - expected) - _LIMIT * error
  worst = int(excess.argmax())
  length = case.topology.depth + 1
  sequence = np.unravel_index(worst, (case.vocab_size,) * length)
  drafts = 'chosen' if case.chosen else 'sampled'
  building.require(
    excess[worst] <= 1e-6,
    'Rounds must have the distribution of the target: the tokens '
    f'{tuple(map(int, sequence))} have probability {expected[worst]:.4f}, but '
    f'{probs[worst]:.4f} +- {error[worst]:.4f} after verification of {drafts} '
    f'drafts with parents {case.topology.parents} and valid nodes '
    f'{case.is_valid.tolist()}.',
  )
