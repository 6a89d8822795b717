"""SpecTr-GBV next to the rules here, the linear programs, and its own code."""

import itertools

import numpy as np
import pytest

from specjax import theory
from specjax.testing import rounds
from tests.oracles import spectr_gbv

DRAFT, TARGET = (rounds.normalize(table) for table in rounds.tables(3))


def models(seed, size=2):
  """Returns a random target and a draft that resembles it."""
  rng = np.random.default_rng(seed)
  target, noise = rng.dirichlet(np.ones(size), size=(2, size))
  return target, 0.4 * target + 0.6 * noise


def accepted(*args):
  return theory.spectr_gbv_acceptance(*args).sum()


@pytest.mark.parametrize('num_chains', [1, 2, 3])
def test_acceptance_is_the_sum_of_the_masses_of_the_released_code(num_chains):
  args = TARGET, DRAFT, num_chains, 2
  case = spectr_gbv.Round(*args)
  expected = [
    sum(
      case.next_masses(p).sum() for p in itertools.product(range(3), repeat=n)
    )
    for n in range(2)
  ]
  actual = theory.spectr_gbv_acceptance(*args)
  np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize('seed', range(3))
def test_one_chain_reaches_the_optimal_transport_of_blocks(seed):
  """More than block verification, which later rounds need not make up for."""
  args = *models(seed), 1, 3
  best = theory.best_transport(*args)
  assert accepted(*args) == pytest.approx(best, abs=1e-8)
  block = theory.acceptance_by_depth(*args, 'block').sum()
  assert block < best - 0.01


@pytest.mark.parametrize('seed', range(3))
def test_several_chains_do_not_reach_it(seed):
  for num, length in ((2, 1), (3, 1), (2, 2), (3, 2)):
    args = *models(seed), num, length
    assert accepted(*args) < theory.best_transport(*args) - 1e-4


@pytest.mark.parametrize('seed', range(3))
def test_optimal_transport_accepts_more_of_several_chains_of_one_token(seed):
  for num in (2, 3):
    args = *models(seed, 3), num, 1
    otm = theory.acceptance_by_depth(*args, 'otm').sum()
    assert accepted(*args) < otm - 1e-4
    assert theory.best_transport(*args) == pytest.approx(otm, abs=1e-6)
    assert theory.best_accepted(*args) == pytest.approx(otm, abs=1e-6)


def test_either_of_it_and_block_verification_may_accept_more():
  gains = []
  for seed in range(6):
    args = *models(seed, 3), 2, 3
    block = theory.acceptance_by_depth(*args, 'block').sum()
    gains.append(accepted(*args) - block)
  assert min(gains) < -0.01 and max(gains) > 0.01


def test_its_masses_are_those_of_some_coupling():
  """Gale's condition for all sets of prefixes at which a round may end."""
  num, length = 2, 2
  for seed in range(3):
    case = spectr_gbv.Round(*models(seed), num, length)
    prefixes = [
      p
      for n in range(1, length + 1)
      for p in itertools.product(range(2), repeat=n)
    ]
    ends = {
      p: case.next_masses(p[:-1])[p[-1]]
      - (case.next_masses(p).sum() if len(p) < length else 0.0)
      for p in prefixes
    }
    assert min(ends.values()) >= -1e-12
    for count in range(1, len(prefixes) + 1):
      for subset in itertools.combinations(prefixes, count):
        # No chain begins with any of them.
        missed = sum(
          case.probs(case.draft, chain[:-1])[chain[-1]]
          for chain in itertools.product(range(2), repeat=length)
          if not any(chain[: len(p)] == p for p in subset)
        )
        assert sum(ends[p] for p in subset) <= 1 - missed**num + 1e-12


def block_of_target(case):
  probs = np.ones(())
  for position in range(case.length):
    rows = case.target[case.start] if position == 0 else case.target
    probs = probs[..., None] * rows
  return probs


def test_code_is_lossless_for_one_chain_if_later_rounds_make_up_for_it():
  case = spectr_gbv.Round(TARGET, DRAFT, 1, 2)
  probs = case.block(case.released_residual, case.left)
  np.testing.assert_allclose(probs, block_of_target(case), atol=1e-9)
  # The released code samples from the target itself.
  only_target = lambda prefix: case.probs(case.target, prefix)
  probs = case.block(case.released_residual, only_target)
  assert np.abs(probs - block_of_target(case)).sum() > 0.01


@pytest.mark.parametrize('residual', ['released_residual', 'left'])
def test_code_is_not_lossless_for_two_chains(residual):
  """Nor is its first token, which no later round can make up for."""
  case = spectr_gbv.Round(TARGET, DRAFT, 2, 2)
  probs = case.block(getattr(case, residual), case.left)
  assert probs.sum() == pytest.approx(1)
  errors = np.abs(probs.sum(axis=1) - TARGET[0])
  assert errors.sum() > 0.01
