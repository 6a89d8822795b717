"""Expected acceptance by the draft's temperature: closed forms and limits."""

import numpy as np
import pytest

import specjax
from specjax import sampling as sampling_lib
from specjax import theory
from specjax import trees
from specjax.testing import rounds
from specjax.testing import toys

STARTS, LENGTHS = [1, 2, 3], [6, 2, 9]
TEMPERATURES = (0.0, 0.5, 1.0, 3.0)
VOCAB_SIZE = 5


def tempered(table, temperature):
  """Returns the oracle's distributions `[..., V]`, in float64."""
  table = np.asarray(table, np.float64)
  if temperature == 0:
    return np.eye(table.shape[-1])[table.argmax(-1)]
  powers = table ** (1 / temperature)
  return powers / powers.sum(-1, keepdims=True)


def texts():
  rng = np.random.default_rng(40)
  return rng.integers(VOCAB_SIZE, size=(3, 10), dtype=np.int32)


def sums(pair, temperatures=TEMPERATURES, **options):
  """Returns the sums of `pair`, the target and the draft, on the texts."""
  (target, target_params), (draft, draft_params) = pair
  return theory.temperature_sums(
    *(target, draft, (target_params, draft_params), STARTS, LENGTHS, texts()),
    temperatures,
    sampling_lib.Sampling(**options),
  )


@pytest.mark.parametrize('temperature', [1.0, 0.5])
def test_sums_are_those_of_formulas(temperature):
  pair = [toys.markov(seed, VOCAB_SIZE, 12) for seed in (0, 1)]
  result = sums(pair, temperature=temperature)
  assert result.num_tokens.tolist() == [5, 0, 6]
  for row, (start, length) in enumerate(zip(STARTS, LENGTHS)):
    index = np.arange(start - 1, length - 1)
    tables = [np.asarray(t)[index, texts()[row, index]] for _, t in pair]
    target = tempered(tables[0], temperature)
    drafts = [tempered(tables[1], value) for value in TEMPERATURES]
    acceptance = np.array([np.minimum(target, d).sum(1) for d in drafts])
    assert result.acceptance[row] == pytest.approx(acceptance.sum(1), abs=1e-5)
    highest = acceptance.max(0, initial=0).sum()
    assert result.highest[row] == pytest.approx(highest, abs=1e-5)
    best = np.bincount(acceptance.argmax(0), minlength=len(TEMPERATURES))
    assert result.is_highest[row].tolist() == best.tolist()


def test_a_draft_that_equals_the_target_is_best_at_its_temperature():
  model = toys.markov(0, VOCAB_SIZE, 12)
  result = sums([model, model], temperature=0.5)
  np.testing.assert_allclose(result.acceptance[:, 1], [5, 0, 6], atol=1e-5)
  assert (result.acceptance[[0, 2]][:, [0, 2, 3]] < [[5], [6]]).all()
  np.testing.assert_allclose(result.highest, [5, 0, 6], atol=1e-5)


def test_low_temperatures_approach_the_most_likely_token():
  pair = [toys.markov(seed, VOCAB_SIZE, 12) for seed in (0, 1)]
  result = sums(pair, (0.0, 1e-6, 1.0))
  np.testing.assert_allclose(
    result.acceptance[:, 0], result.acceptance[:, 1], atol=1e-4
  )


def test_a_greedy_target_accepts_the_more_the_colder_a_correct_draft_is():
  """The draft's most likely token is the target's in every context."""
  model = toys.markov(0, VOCAB_SIZE, 12)
  acceptance = sums([model, model], temperature=0.0).acceptance[[0, 2]]
  assert (np.diff(acceptance, axis=1) < 0).all()
  np.testing.assert_allclose(acceptance[:, 0], [5, 6])


def test_a_chosen_draft_beats_samples_where_it_is_right_but_not_confident():
  """Enumerates two tokens: a confident target, and an uncertain draft."""
  target, draft = np.array([0.95, 0.05]), np.array([0.55, 0.45])
  at = {t: np.minimum(target, tempered(draft, t)).sum() for t in TEMPERATURES}
  assert at[0.0] == pytest.approx(0.95) and at[1.0] == pytest.approx(0.6)


@pytest.mark.parametrize('temperature', [0.0, 0.5])
def test_rounds_accept_as_expected_at_another_draft_temperature(temperature):
  """Compares a drafter with a temperature of its own with the closed form."""
  case = rounds.Case(trees.chain(1))
  context, rows = rounds.ROOT, 20_000
  model = specjax.models.Markov(case.vocab_size)
  target, draft = (np.float32(table) for table in (case.target, case.draft))
  drafter = specjax.drafters.Autoregressive(
    model,
    case.topology,
    sampling_lib.Sampling(temperature=temperature),
  )
  arm = specjax.Arm(drafter, specjax.verifiers.TreeWalk())
  decoder = specjax.Decoder(model, target, [(arm, draft)])
  results = decoder.decode([[context]] * rows, 1)
  accepted = sum(result.accepted.sum() for result in results) / rows
  probs = tempered(case.draft[context], temperature)
  expected = np.minimum(case.target[context], probs).sum()
  error = np.sqrt(expected * (1 - expected) / rows)
  assert abs(accepted - expected) < 5 * error
  tokens = np.bincount([int(result.tokens[0]) for result in results])
  np.testing.assert_allclose(tokens / rows, case.target[context], atol=0.02)


@pytest.mark.parametrize(
  ('temperatures', 'message'),
  [((), 'number of temperatures'), ((-1.0,), 'temperature must be 0')],
)
def test_bad_temperatures_are_refused(temperatures, message):
  pair = [toys.markov(seed, VOCAB_SIZE, 12) for seed in (0, 1)]
  with pytest.raises(ValueError, match=message):
    sums(pair, temperatures)
