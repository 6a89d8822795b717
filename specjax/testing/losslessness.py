"""That a verifier samples the target, by enumeration of all drafts."""

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

# Rounds of each case, shared by its drafts.
_NUM_ROUNDS = 2**17
# Standard errors at which a frequency is not that of its probability.
_LIMIT = 5.5

_PREFIX_TREE = trees.prefix_tree((2, 2))
# Sampled and chosen drafts, of which some nodes are not valid.
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
  topologies: Sequence[trees.Topology] | None = None,
) -> None:
  """Checks that rounds have the target's distribution, whatever was drafted.

  All drafts of small trees on Markov models of 2 or 3 tokens are enumerated,
  with their exact probabilities; each is verified with thousands of keys. What
  is compared is the distribution of a whole round, bonus token included, which
  the target continues where it ends early. A correct verifier is refused with a
  chance below 1e-5. One that gives a sequence of tokens 0.012 too much or too
  little (on a chain, 0.006) is found with a chance above 0.99; that of the
  maximal coupling without its residual, once in ten times, is found, too.

  Args:
    verifier: a verifier, a coupling or a name, as in `verifiers.resolve`. A
      coupling is checked as the tree walk with it.
    topologies: trees that are verified, sampled and with all nodes valid. By
      default chains, siblings, several chains and a prefix tree, also of chosen
      tokens and with nodes that are not valid: all but sampled chains only if
      the verifier does not refuse them.

  Raises:
    AssertionError: a sequence is more or less likely than under the target.
    ValueError: the verifier refuses a topology that is asked for, or a chain.
  """
  cases: Sequence[rounds.Case] = _CASES
  if topologies is not None:
    cases = [
      rounds.Case(topology, _vocab_size(topology)) for topology in topologies
    ]
  verify = verifiers.resolve(verifier)
  for case in cases:
    try:
      _check(verify, case)
    except ValueError:
      if topologies is not None or case == _CASES[0]:
        raise


def _vocab_size(topology: trees.Topology) -> int:
  """So that all drafts can be enumerated."""
  return 3 if topology.num_nodes <= 4 else 2


def _check(verifier: base.Verifier, case: rounds.Case) -> None:
  num_drafts = len(case.drafts)
  num_keys = _NUM_ROUNDS // num_drafts
  keys = jax.random.split(jax.random.key(0), (num_drafts, num_keys))

  # One program for all cases that differ in what is valid.
  like = dataclasses.replace(case, valid=None)
  drafts = case.drafts.astype(np.int32)
  outcome = _verify_all(verifier, like, keys, drafts, case.is_valid)
  tokens, num_accepted = map(np.asarray, (outcome.tokens, outcome.num_accepted))
  weights = np.full(num_keys, 1 / num_keys)
  # Of each draft, the mean of what a round adds to a sequence, and its square.
  means, squares = (
    np.array(
      [
        rounds.complete(*draft_outcomes, weights, table)
        for draft_outcomes in zip(tokens, num_accepted)
      ]
    )
    for table in (case.target, case.target**2)
  )
  chances = case.weights[:, None]
  frequencies = (chances * means).sum(0)
  variance = (chances**2 * (squares - means**2)).sum(0).clip(0) / num_keys
  _compare(case, frequencies, np.sqrt(variance))


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


def _compare(
  case: rounds.Case, frequencies: np.ndarray, error: np.ndarray
) -> None:
  """The sequence that is farthest from its probability is not too far."""
  want = case.want
  excess = np.abs(frequencies - want) - _LIMIT * error
  worst = int(excess.argmax())
  length = case.topology.depth + 1
  sequence = np.unravel_index(worst, (case.vocab_size,) * length)
  drafts = 'chosen' if case.chosen else 'sampled'
  building.require(
    excess[worst] <= 1e-6,
    'Rounds must have the distribution of the target: the tokens '
    f'{tuple(map(int, sequence))} have probability {want[worst]:.4f}, but '
    f'{frequencies[worst]:.4f} +- {error[worst]:.4f} after verification of '
    f'{drafts} drafts of the tree with parents {case.topology.parents}, of '
    f'which valid are {case.is_valid.tolist()}.',
  )
