"""The whole loop emits the target's distribution, through the public interface.

One batch of many requests, which all start from the same prompt: the joint
distribution of the first three emitted tokens, against the exact one. With 27
sequences and 20000 rows, a distribution at chi-square divergence 0.004 fails
the test (p < 1e-4) with chance 0.995; without the residual the divergence is
0.01 and more.

That each verifier and each drafter is lossless is proved exactly elsewhere
(tests/verifiers, tests/contracts_test.py); here is the loop around them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.testing import distributions
from tests import arms
from tests import tiers

ROWS, VOCAB_SIZE, LENGTH = 20000, 3, 3
PROMPT = [2, 0]
MODEL = specjax.models.Markov(VOCAB_SIZE)


def tables(kind):
  """Transition tables of target and draft."""
  rng = np.random.default_rng(12)
  horizon = (4,) if kind == 'time-varying' else ()
  shape = (*horizon, VOCAB_SIZE, VOCAB_SIZE)
  target = distributions.random_table(rng, *shape, low=0.2)
  return target, distributions.random_table(rng, *shape, low=0.05)


def p_value(decoder, table, sampling=sampling_lib.Sampling(), **options):
  """Returns the p-value of the first `LENGTH` tokens after `PROMPT`."""
  results = decoder.decode([PROMPT] * ROWS, LENGTH, seed=13, **options)
  tokens = np.array([result.tokens for result in results])
  # Something was drafted and accepted, and something was not.
  accepted, drafted = (
    sum(getattr(result, name).sum() for result in results)
    for name in ('accepted', 'drafted')
  )
  assert 0 < accepted < drafted
  with np.errstate(divide='ignore'):
    logits = np.log(table)
  table = sampling_lib.probabilities(jnp.asarray(logits), sampling)
  probs = distributions.sequence_probs(
    table, PROMPT[-1], LENGTH, len(PROMPT) - 1
  )
  return distributions.chi_square(tokens, probs)


def p_values(decoder, table, num_arms):
  """Returns the p-value of each arm with the bandit `fixed`, in one program."""
  return [
    p_value(decoder, table, bandit_state=np.int32(arm))
    for arm in range(num_arms)
  ]


def chain(length, draft, **options):
  return arms.chain(length, (MODEL, draft), **options)


def chains(draft, **options):
  return arms.chains(2, 2, (MODEL, draft), **options)


def prefix_tree(widths, draft, **options):
  return arms.model(trees.prefix_tree(widths), (MODEL, draft), **options)


# Arms of `several`.
CHAIN, BROKEN, SHORT, TREE, BLOCK, CHAINS = range(6)


def several(target, draft):
  """Arms of different depth, with different drafts, that a cycle selects."""
  return arms.decoder(
    chain(2, draft),
    chain(2, draft, verifier=arms.BROKEN),
    chain(1, draft),
    prefix_tree((2, 1), draft[::-1], verifier='maximal'),
    chain(3, draft, verifier='block'),
    chains(draft[::-1], verifier='otm'),
    bandit=arms.Cycling(6),
    target=(MODEL, target),
  )


@pytest.mark.parametrize(
  ('selected', 'is_lossless'),
  [
    pytest.param((CHAIN,), True, marks=pytest.mark.slow),
    pytest.param((BROKEN,), False, marks=pytest.mark.slow),
    pytest.param((SHORT, TREE), True, marks=pytest.mark.slow),
    ((SHORT, BROKEN), False),
    ((BLOCK, CHAINS), True),
  ],
)
def test_arms_have_the_target_distribution(selected, is_lossless):
  """Alone and alternating; without a residual, the test finds it."""
  target, draft = tables('time-varying')
  p = p_value(
    several(target, draft), target, bandit_state=arms.cycle(6, *selected)
  )
  assert p > 1e-4 if is_lossless else p < 1e-6


def test_a_reduced_draft_vocabulary_has_the_target_distribution():
  target, draft = tables('time-varying')
  reduced = draft * np.array([1.0, 0.0, 1.0], np.float32)  # Never token 1.
  reduced /= reduced.sum(axis=-1, keepdims=True)
  decoder = several(target, reduced)
  assert p_value(decoder, target, bandit_state=arms.cycle(6, CHAIN)) > 1e-4


@pytest.mark.parametrize(
  'options',
  [
    {'temperature': 0.6, 'top_k': 2},
    pytest.param({'temperature': 1.5, 'top_p': 0.7}, marks=pytest.mark.slow),
    pytest.param({'temperature': 0.6, 'min_p': 0.3}, marks=pytest.mark.slow),
  ],
)
def test_truncated_sampling_has_the_target_distribution(options):
  sampling = sampling_lib.Sampling(**options)
  target, draft = tables('time-varying')
  decoder = specjax.speculative(
    MODEL, target, MODEL, draft, draft_length=2, sampling=sampling
  )
  assert p_value(decoder, target, sampling) > 1e-4


@pytest.mark.parametrize('is_shared_by_positions', [False, True])
def test_shared_noise_has_the_target_distribution(
  is_shared_by_positions, monkeypatch
):
  """With the noise of one position for a whole round, the test finds it."""
  sampling = sampling_lib.Sampling(shared_noise=True)
  target, draft = tables('time-varying')
  race_times = sampling_lib.race_times
  if is_shared_by_positions:
    monkeypatch.setattr(
      sampling_lib,
      'race_times',
      lambda noise, offsets, size: race_times(noise, 0 * offsets, size),
    )
  length = 3 if is_shared_by_positions else 2  # Another program.
  decoder = specjax.speculative(
    MODEL, target, MODEL, draft, draft_length=length, sampling=sampling
  )
  p = p_value(decoder, target, sampling)
  assert p < 1e-6 if is_shared_by_positions else p > 1e-4


@pytest.mark.slow
def test_verifiers_of_several_drafts_have_the_target_distribution():
  target, draft = tables('time-varying')
  names = 'batch', 'kseq', 'multiround', 'otm_table'
  decoder = arms.decoder(
    *[chains(draft, verifier=name) for name in names],
    *[prefix_tree((2, 2), draft, verifier=name) for name in ('block', 'otm')],
    target=(MODEL, target),
  )
  assert min(p_values(decoder, target, len(names) + 2)) > 1e-4


@pytest.mark.parametrize('feedback', tiers.cases(['bandit', 'full'], 'bandit'))
def test_rows_with_adverse_bandits_have_the_target_distribution(feedback):
  """Makes every row select by its past, among arms of several shapes.

  Where all rows begin with an arm that is not lossless, the test finds it.
  """
  target, draft = tables('time-varying')
  decoder = arms.decoder(
    chain(1, draft),
    chains(draft[::-1]),
    chain(3, draft, verifier='block'),
    arms.lookup(2),
    arms.none(),
    chain(1, draft, verifier=arms.BROKEN),
    target=(MODEL, target),
    bandit=arms.Adversary(6, 5),
    per_row=True,
    feedback=feedback,
  )
  assert p_value(decoder, target) > 1e-4
  broken = np.full(ROWS, 5, np.int32)
  assert p_value(decoder, target, bandit_state=broken) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize('feedback', ['bandit', 'full'])
def test_outcome_dependent_choice_of_arms_has_the_target_distribution(feedback):
  """A bandit that reacts to every reward chooses from the past alone."""
  target, draft = tables('stationary')
  decoder = arms.decoder(
    chain(1, draft),
    chain(2, draft[::-1]),
    arms.none(),
    target=(MODEL, target),
    bandit=arms.Adversary(3),
    feedback=feedback,
  )
  start = decoder.init([PROMPT], LENGTH)

  def run(key):
    state = specjax.decode(
      decoder.round_fn, decoder.params, start.replace(keys=key[None])
    )
    return state.tokens[0, len(PROMPT) : len(PROMPT) + LENGTH]

  # One row a batch: the arm is the batch's, and here each row's own.
  keys = sampling_lib.row_keys(jax.random.key(14), jnp.arange(ROWS))
  probs = distributions.sequence_probs(target, PROMPT[-1], LENGTH)
  assert distributions.chi_square(jax.jit(jax.vmap(run))(keys), probs) > 1e-4
