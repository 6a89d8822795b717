"""The whole loop emits the target's distribution, through the public interface.

One batch of many requests, which all start from the same prompt: the joint
distribution of the first three emitted tokens, against the exact one. With 27
sequences and 20000 rows, a distribution at chi-square divergence 0.004 fails
the test (p < 1e-4) with chance 0.995; without the residual the divergence is
0.01 and more.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.testing import distributions
from tests import parts

ROWS, VOCAB_SIZE, LENGTH = 20000, 3, 3
PROMPT = [2, 0]
MODEL = specjax.MODELS['markov'](VOCAB_SIZE)


def tables(kind):
  """Transition tables of target and draft."""
  rng = np.random.default_rng(12)
  horizon = (4,) if kind == 'time-varying' else ()
  shape = (*horizon, VOCAB_SIZE, VOCAB_SIZE)
  target = distributions.random_table(rng, *shape, low=0.2)
  return target, distributions.random_table(rng, *shape, low=0.05)


def p_value(decoder, table, sampling):
  """Of the first `LENGTH` tokens that a decoder emits after `PROMPT`."""
  results = decoder.decode([PROMPT] * ROWS, LENGTH, seed=13)
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


@pytest.mark.parametrize(
  ('kind', 'sampling'),
  [
    ('stationary', sampling_lib.Sampling()),
    ('time-varying', sampling_lib.Sampling()),
    ('time-varying', sampling_lib.Sampling(temperature=0.6, top_k=2)),
    ('time-varying', sampling_lib.Sampling(temperature=1.5, top_p=0.7)),
    ('time-varying', sampling_lib.Sampling(temperature=0.6, min_p=0.3)),
  ],
)
def test_speculative_decoding_has_the_target_distribution(kind, sampling):
  target, draft = tables(kind)
  decoder = specjax.speculative(
    MODEL, target, MODEL, draft, draft_length=2, sampling=sampling
  )
  assert p_value(decoder, target, sampling) > 1e-4


def test_a_reduced_draft_vocabulary_has_the_target_distribution():
  target, draft = tables('stationary')
  reduced = draft * np.array([1.0, 0.0, 1.0])  # It never says token 1.
  reduced /= reduced.sum(axis=-1, keepdims=True)
  decoder = specjax.speculative(MODEL, target, MODEL, reduced, draft_length=2)
  assert p_value(decoder, target, sampling_lib.Sampling()) > 1e-4


def test_check_rejects_a_verifier_without_residual():
  target, draft = tables('stationary')
  verifier = specjax.VERIFIERS['tree_walk'](parts.resampling)
  decoder = specjax.speculative(
    MODEL, target, MODEL, draft, draft_length=2, verifier=verifier
  )
  assert p_value(decoder, target, sampling_lib.Sampling()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
  ('num_drafts', 'draft_length', 'verifier'),
  [
    (1, 3, 'block'),
    (2, 2, 'block'),
    (2, 2, 'batch'),
    (2, 2, 'kseq'),
    (2, 2, 'multiround'),
    (2, 2, 'otm'),
    (2, 2, 'otm_table'),
  ],
)
def test_verifiers_of_chains_have_the_target_distribution(
  num_drafts, draft_length, verifier
):
  target, draft = tables('time-varying')
  decoder = specjax.speculative(
    MODEL,
    target,
    MODEL,
    draft,
    num_drafts=num_drafts,
    draft_length=draft_length,
    verifier=verifier,
  )
  assert p_value(decoder, target, sampling_lib.Sampling()) > 1e-4


def arm(topology, verifier='maximal'):
  """The verifier is a name, or a coupling for the tree walk."""
  if not isinstance(verifier, str):
    verifier = specjax.VERIFIERS['tree_walk'](verifier)
  drafter = specjax.DRAFTERS['autoregressive'](MODEL, topology)
  return specjax.Arm(drafter, verifiers.resolve(verifier))


@pytest.mark.slow
@pytest.mark.parametrize(
  'verifier', ['block', 'maximal', 'kseq', 'multiround', 'otm']
)
def test_prefix_trees_have_the_target_distribution(verifier):
  target, draft = tables('time-varying')
  arms = [(arm(trees.prefix_tree((2, 2)), verifier), draft)]
  decoder = specjax.Decoder(MODEL, target, arms)
  assert p_value(decoder, target, sampling_lib.Sampling()) > 1e-4


@pytest.mark.parametrize(
  ('first', 'second'),
  [
    ((trees.chain(1),), (trees.prefix_tree((2, 1)),)),
    ((trees.chain(1),), (trees.prefix_tree((2, 1)), parts.resampling)),
    ((trees.chain(3), 'block'), (trees.chains(2, 2), 'otm')),
  ],
  ids=['maximal', 'resampling', 'block and otm'],
)
def test_alternating_arms_have_the_target_distribution(first, second):
  """Arms of different depth, with different drafts, turn about."""
  target, draft = tables('time-varying')
  arms = [(arm(*first), draft), (arm(*second), draft[::-1])]
  decoder = specjax.Decoder(MODEL, target, arms, bandit=parts.alternating(2))
  p = p_value(decoder, target, sampling_lib.Sampling())
  assert p < 1e-6 if parts.resampling in second else p > 1e-4


@registry.component
def adversary(num_arms):
  """Reacts to all that it is shown; plays what would have earned least."""

  def update(state, arm, reward, *, rewards=None, **extra):
    if rewards is None:
      return (arm + jnp.where(reward > 0, 2, 1)) % num_arms
    others = jnp.where(jnp.arange(num_arms) == arm, jnp.inf, rewards)
    return jnp.argmin(others).astype(jnp.int32)

  def update_all(state, rewards):
    return jnp.argmin(rewards).astype(jnp.int32)

  return specjax.Bandit(
    num_arms,
    init=lambda: jnp.int32(0),
    select=lambda key, state: state,
    update=update,
    update_all=update_all,
  )


def varied(draft, first='maximal'):
  """Sampled and deterministic drafts of several shapes, and none."""
  maximal = verifiers.resolve('maximal')
  return [
    (arm(trees.chain(1), first), draft),
    (arm(trees.chains(2, 2), 'otm'), draft[::-1]),
    (arm(trees.chain(3), 'block'), draft),
    (specjax.Arm(specjax.DRAFTERS['prompt_lookup'](2), maximal), None),
    (specjax.Arm(specjax.DRAFTERS['none'](), maximal), None),
  ]


@pytest.mark.parametrize(
  ('catch_up', 'first'),
  [
    ('lazy', 'maximal'),
    pytest.param('always', 'maximal', marks=pytest.mark.slow),
    ('lazy', parts.resampling),
  ],
  ids=['lazy', 'always', 'resampling'],
)
def test_rows_with_adverse_bandits_have_the_target_distribution(
  catch_up, first
):
  """Every row chooses for itself, by what came before; all begin alike."""
  target, draft = tables('time-varying')
  decoder = specjax.Decoder(
    MODEL,
    target,
    varied(draft, first),
    bandit=adversary(5),
    per_row=True,
    catch_up=catch_up,
    max_length=16,
  )
  p = p_value(decoder, target, sampling_lib.Sampling())
  assert p < 1e-6 if first is parts.resampling else p > 1e-4


@pytest.mark.parametrize(
  'catch_up', [pytest.param('lazy', marks=pytest.mark.slow), 'always']
)
def test_outcome_dependent_choice_of_arms_has_the_target_distribution(catch_up):
  """A bandit that reacts to every reward chooses from the past alone."""
  target, draft = tables('stationary')
  arms = [
    (arm(trees.chain(1)), draft),
    (arm(trees.chain(2)), draft[::-1]),
    (
      specjax.Arm(specjax.DRAFTERS['none'](), verifiers.resolve('maximal')),
      None,
    ),
  ]
  decoder = specjax.Decoder(
    MODEL, target, arms, bandit=adversary(3), catch_up=catch_up
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
