"""Published mistakes: their exact errors, and the check that finds them."""

import numpy as np
import pytest

from specjax import testing
from specjax.testing import losslessness
from specjax.testing import mistakes
from specjax.testing import rounds
from tests import tiers

MISTAKES = mistakes.MISTAKES
_for_mistakes = pytest.mark.parametrize(
  'name', tiers.cases(MISTAKES, 'shared noise')
)


@pytest.mark.parametrize('name', MISTAKES)
def test_laws_are_distributions_far_from_the_target(name):
  mistake = MISTAKES[name]
  probs = mistake.probs
  assert probs.shape == mistake.broken.case.expected.shape
  assert (probs >= 0).all() and probs.sum() == pytest.approx(1)
  assert mistake.total_variation > 0.012  # The check's resolution.
  broken, mended = mistake.broken.case, mistake.mended.case
  assert broken.topology == mended.topology
  assert broken.vocab_size == mended.vocab_size


@_for_mistakes
def test_rounds_have_the_exact_law_of_their_mistake(name):
  """Compares closed forms with verifiers, on all drafts and many keys."""
  mistake = MISTAKES[name]
  case, verifier = mistake.broken
  probs, errors = losslessness.measure(verifier, case)
  assert (np.abs(probs - mistake.probs) < 5.5 * errors + 1e-6).all()


@_for_mistakes
def test_check_finds_the_mistake(name):
  mistake = MISTAKES[name]
  with pytest.raises(AssertionError, match='distribution of the target'):
    mistake.broken.check()
  mistake.mended.check()


def test_noise_of_the_draft_is_exact_on_two_tokens():
  """Checks that nothing is lost where the residual is a single token."""
  case = rounds.Case(MISTAKES['shared noise'].broken.case.topology, 2)
  law = MISTAKES['shared noise'].law(case)
  np.testing.assert_allclose(law, case.expected, atol=1e-12)


def test_noise_is_that_of_the_gumbel_max_trick():
  """Draws both tokens from one noise vector, as the engine did."""
  mistake = MISTAKES['shared noise']
  case = mistake.broken.case
  draft, target = case.draft[rounds.ROOT], case.target[rounds.ROOT]
  rng = np.random.default_rng(0)
  num = 400_000
  gumbel = rng.gumbel(size=(num, case.vocab_size))
  drafted = (np.log(draft) + gumbel).argmax(1)
  kept = rng.uniform(size=num) * draft[drafted] < target[drafted]
  with np.errstate(divide='ignore'):
    logits = np.log(np.maximum(target - draft, 0))
  tokens = np.where(kept, drafted, (logits + gumbel).argmax(1))
  first = mistake.probs.reshape(case.vocab_size, -1).sum(1)
  frequencies = np.bincount(tokens, minlength=case.vocab_size) / num
  np.testing.assert_allclose(frequencies, first, atol=0.004)
  assert np.abs(frequencies - target).max() > 0.01


def test_a_tree_that_the_block_mistake_cannot_verify_is_refused():
  case = rounds.Case(MISTAKES['likeliest siblings'].broken.case.topology)
  with pytest.raises(ValueError, match=r'parents \(-1, -1\)'):
    testing.check_lossless(mistakes.TokenwiseBlock(), [case])
