"""A model that drafts all levels in one call: PARD."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import specjax
from specjax import drafters
from specjax import trees
from specjax.decoding import round as round_steps
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import twins
from tests.decoding import drivers_test

MASK = 3
TREE = trees.Topology((-1, -1, 0, 0, 1, 2))


def parallel(topology, draft=arms.DRAFT, temperature=0.0, mask=MASK, **options):
  """Returns an arm of a parallel drafter."""
  model, params = draft
  sampling = specjax.Sampling(temperature)
  drafter = drafters.Parallel(
    model, topology, sampling, mask_token=mask, **options
  )
  return arms.arm(drafter, params, 'greedy' if not temperature else 'otm')


@jax.jit
def logits_of(tokens):
  """Returns the logits of a whole text, `[1, S, V]`, without a KV cache."""
  model, params = arms.TARGET
  return model.extend(params, None, tokens).logits


def predictions(tokens, num_masks, mask):
  """Returns the logits after a text and after the mask tokens that follow it.

  This is the definition. Padding comes last, where no token attends to it.
  """
  text = [*tokens, *[mask] * num_masks]
  padded = np.int32([text + [0] * (sizes.BUFFER - len(text))])
  return np.array(logits_of(padded))[0, len(tokens) - 1 : len(text)]


@functools.partial(jax.jit, static_argnames='num_rounds')
def rounds_of(round_fn, params, state, num_rounds):
  """Returns the text before each round, and its draft with probabilities."""

  def step(state, _):
    selected, choice = round_steps.select(round_fn, state)
    current, _ = round_steps.catch_up(round_fn, params, selected, choice)
    tree = round_steps.draft(round_fn, params, current, choice, [0])[0].tree
    texts = state.tokens, state.lengths
    state, info = round_fn(params, state)
    draft = tree.tokens, tree.raw_probs
    return state, (*texts, *draft, info.num_emitted)

  return jax.lax.scan(step, state, length=num_rounds)[1]


def largest_error(mask, **attributes):
  """Compares the probabilities of drafts with the definition.

  Args:
    mask: the mask token of the definition.
    **attributes: of a twin of the drafter.

  Returns:
    The largest difference, and how many tokens the rounds emitted.
  """
  arm, params = parallel(trees.chain(3), arms.TARGET, 1.0)
  arm = arm._replace(drafter=twins.twin(arm.drafter, **attributes))
  decoder = arms.decoder((arm, params))
  rounds = rounds_of(
    decoder.round_fn, decoder.params, decoder.init(sizes.PROMPTS, 24), 8
  )
  errors = []
  for texts, lengths, _, probs, _ in zip(*map(np.array, rounds)):
    for row in (0, 1):
      text = texts[row, : lengths[row]].tolist()
      expected = predictions(text, 2, mask)
      errors.append(np.abs(probs[row] - jax.nn.softmax(expected)).max())
  return max(errors), np.unique(rounds[-1]).tolist()


def test_levels_are_predicted_by_mask_tokens():
  error, emitted = largest_error(MASK)
  assert error < 1e-5
  # The first level is the target's own prediction, so that it is accepted.
  assert emitted == [2, 3, 4]
  assert largest_error(MASK + 1)[0] > 1e-3


def test_another_token_in_the_cache_is_found():
  reader = parallel(trees.chain(3), arms.TARGET, 1.0)[0].drafter.reader
  careless = twins.twin(reader, tail_path=lambda lags, index: lags - index)
  assert largest_error(MASK, reader=careless)[0] > 1e-3


@pytest.mark.parametrize('name', ['chain', 'tree'])
def test_greedy_tokens_are_those_of_plain_decoding(name):
  topology = {'chain': trees.chain(3), 'tree': TREE}[name]
  decoder = arms.decoder(
    parallel(topology, arms.TARGET, distinct=True), temperature=0.0
  )
  results = decoder.decode(sizes.PROMPTS, sizes.NEW)
  assert arms.tokens(results) == arms.greedy_tokens()
  assert sum(result.accepted.sum() for result in results) > 0


@pytest.mark.parametrize('verifier', ['maximal', 'kseq'])
def test_the_loop_samples_the_target(verifier):
  target, draft = lossless_test.tables('stationary')
  topology = trees.chain(3) if verifier == 'maximal' else trees.chains(2, 3)
  drafter = drafters.Parallel(lossless_test.MODEL, topology, mask_token=1)
  decoder = arms.decoder(
    arms.arm(drafter, draft, verifier), target=(lossless_test.MODEL, target)
  )
  assert lossless_test.p_value(decoder, target) > 1e-4


def test_chains_of_several_lengths_share_a_kv_cache():
  decoder = arms.decoder(
    *(parallel(trees.chain(length)) for length in (1, 4, 7)),
    bandit='round_robin',
    temperature=0.0,
  )
  assert len(decoder.round_fn.slots) == 1


@pytest.mark.slow
def test_no_cache_is_copied_in_the_loop():
  decoder = arms.decoder(parallel(trees.chain(3)), temperature=0.0)
  state, loop = drivers_test.compiled_loop(decoder, sizes.PROMPTS)
  assert not drivers_test.cache_copies(loop, state)


def test_the_mask_token_is_that_of_the_model():
  model, _ = arms.DRAFT
  config = dataclasses.replace(model.config, mask_token=MASK)
  trained_model = dataclasses.replace(model, config=config)
  drafter = drafters.Parallel(trained_model, trees.chain(2))
  assert drafter.mask_token == MASK
  assert drafter == drafters.Parallel(
    trained_model, trees.chain(2), mask_token=MASK
  )
  other = drafters.Parallel(trained_model, trees.chain(2), mask_token=4)
  assert other.mask_token == 4
  with pytest.raises(ValueError, match='^mask_token must be given for a model'):
    drafters.Parallel(model, trees.chain(2))
  with pytest.raises(ValueError, match='^mask_token must lie in'):
    dataclasses.replace(config, mask_token=config.vocab_size)


def test_a_mask_token_outside_of_the_vocabulary_is_refused():
  with pytest.raises(ValueError, match='mask_token must lie in'):
    parallel(trees.chain(2), mask=10**6)
