"""A head that drafts a block of tokens in one call: DFlash, DSpark."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import drafters
from specjax import trees
from specjax.models import heads
from tests import arms
from tests import parallel_test
from tests import sizes
from tests import twins
from tests.decoding import drivers_test

_TAPS = 1, -1
_MASK = 3
_KINDS = {
  'dflash': {'predicts_next': False, 'num_layers': 2},
  'dspark': {'markov_rank': 3},
}
_DEPTH = 3


@functools.cache
def head_of(kind):
  """Returns a head of the common target, with random parameters."""
  model, params = arms.TARGET
  config = heads.configure(
    'dflash',
    model.config,
    taps=_TAPS,
    mask_token=_MASK,
    block_size=8,
    **_KINDS[kind],
  )
  begun = heads.begin(jax.random.key(4), config, model.config, params)
  rng = np.random.default_rng(5)
  moved = jax.tree.map(
    lambda leaf: leaf + np.float32(0.2 * rng.normal(size=leaf.shape)),
    jax.device_get(heads.own_params(config, begun)),
  )
  return heads.head(config), {**begun, **moved}


def arm_of(kind, topology, temperature=0.0, **options):
  """Returns an arm with its parameters."""
  head, params = head_of(kind)
  sampling = specjax.Sampling(temperature)
  drafter = drafters.BlockHeadDrafter(head, topology, sampling, **options)
  verifier = 'greedy' if not temperature else 'maximal'
  return arms.arm(drafter, params, verifier)


@functools.partial(jax.jit, static_argnames='kind')
def outputs_of(kind, tokens, length):
  """Returns the logits `[K, V]` of a block at the end of a text `[1, S]`.

  This is the definition: the target reads the text, the head its features, and
  no cache is involved.
  """
  (target, target_params), (head, params) = arms.TARGET, head_of(kind)
  features = target.extend(target_params, None, tokens).features
  index = jnp.arange(tokens.shape[1])[None]
  entries = head.encode(
    params,
    tuple(features[tap] for tap in _TAPS),
    jnp.where(index < length - 1, index, -1),
  )
  size = _DEPTH + head.first_output
  block = jnp.full((1, size), _MASK).at[0, 0].set(tokens[0, length - 1])
  outputs, _ = head.extend(
    params,
    None,
    block,
    pending_kv=entries,
    positions=length - 1 + jnp.arange(size)[None],
    mask=np.ones((size, tokens.shape[1] + size), bool),
  )
  return head.predict(params, outputs)[0, head.first_output :]


def largest_error(kind, **attributes):
  """Compares the probabilities of drafts with the definition.

  Args:
    kind: a name in `_KINDS`.
    **attributes: of a twin of the drafter.

  Returns:
    The largest difference, and how many tokens the rounds emitted.
  """
  arm, params = arm_of(kind, trees.chain(_DEPTH), 1.0)
  arm = arm._replace(drafter=twins.twin(arm.drafter, **attributes))
  decoder = arms.decoder((arm, params))
  rounds = parallel_test.rounds_of(
    decoder.round_fn, decoder.params, decoder.init(sizes.PROMPTS, 24), 8
  )
  head, head_params = head_of(kind)
  errors = []
  for texts, lengths, drafted, probs, _ in zip(*map(np.array, rounds)):
    for row in (0, 1):
      text = np.zeros((1, sizes.BUFFER), np.int32)
      text[0, : lengths[row]] = texts[row, : lengths[row]]
      logits = outputs_of(kind, text, lengths[row])
      last = text[0, lengths[row] - 1]
      before = np.array([last, *drafted[row, :-1]])[None]
      expected = head.condition(head_params, logits[None], before)[0]
      errors.append(np.abs(probs[row] - jax.nn.softmax(expected)).max())
  return max(errors), np.unique(rounds[-1]).tolist()


def test_outputs_depend_on_distances_in_local_layers_too():
  """A layer's queries and keys have the same rotary frequencies."""
  _, target_params = arms.TARGET
  target_config = dataclasses.replace(
    arms.TARGET[0].config,
    **{'sliding_window': 64, 'local_layers': (True, False)},
    local_rope_theta=100.0,
  )
  config = heads.configure(
    'dflash', target_config, taps=_TAPS, mask_token=_MASK, num_layers=2
  )
  head = heads.head(config)
  params = heads.begin(jax.random.key(4), config, target_config, target_params)
  shape = 1, 6, target_config.d_model
  features = tuple(jax.random.normal(jax.random.key(5), (len(_TAPS), *shape)))
  index, block = jnp.arange(6)[None], jnp.full((1, 3), _MASK)

  def outputs_at(first):
    entries = head.encode(params, features, first + index)
    positions = first + 5 + jnp.arange(3)[None]
    return head.extend(
      params,
      None,
      block,
      pending_kv=entries,
      positions=positions,
      mask=np.ones((3, 9), bool),
    )[0]

  np.testing.assert_allclose(outputs_at(0), outputs_at(40), atol=1e-4)


@pytest.mark.parametrize('kind', _KINDS)
def test_levels_are_predicted_by_a_block_after_the_features(kind):
  error, emitted = largest_error(kind)
  assert error < 1e-5
  assert len(emitted) > 1  # Some drafts are accepted.


def estimate_and_draft(kind, length):
  """Returns two probabilities that the first draft token is accepted.

  Args:
    kind: a name in `_KINDS`.
    length: of the draft.

  Returns:
    What the drafter estimates once the token is committed, and what follows
    from the distribution of its draft.
  """
  (model, target_params), (_, params) = arms.TARGET, head_of(kind)
  drafter = arm_of(kind, trees.chain(length), 1.0)[0].drafter
  vocab_size = model.config.vocab_size
  tokens = np.random.default_rng(6).integers(vocab_size, size=(1, 12))
  tokens = jnp.asarray(tokens, jnp.int32)
  features = jax.jit(model.extend)(target_params, None, tokens).features
  features = tuple(features[tap] for tap in drafter.taps)
  context = base.Context(tokens, jnp.array([8]), features)
  state = drafter.init(params, context, 16)
  keys = jax.random.split(jax.random.key(7), 1)
  tree, _ = drafter.draft(keys, params, state, context)
  noise = jax.random.normal(jax.random.key(8), (1, 1, vocab_size))
  probs = jax.nn.softmax(noise)
  target = base.TargetProbs(context.lengths, base.Probs(probs, probs))
  context = context._replace(lengths=context.lengths + 1)
  every = jnp.ones(1, bool)
  *_, acceptance = drafter.estimate(params, state, context, every, target)
  drafted = np.minimum(tree.probs[0, 0], probs[0, 0]).sum()
  return acceptance.processed[0, 0], drafted


@pytest.mark.parametrize('kind', _KINDS)
def test_an_estimate_is_that_of_a_block_as_long_as_a_draft(kind):
  estimate, drafted = estimate_and_draft(kind, _DEPTH)
  assert estimate == pytest.approx(drafted, abs=1e-5)
  # The block of a shorter draft predicts something else.
  shorter, _ = estimate_and_draft(kind, 1)
  assert shorter != pytest.approx(drafted, abs=1e-4)


def test_an_entry_that_is_lost_is_found():
  reader = arm_of('dspark', trees.chain(_DEPTH), 1.0)[0].drafter.reader
  careless = twins.twin(reader, tail_path=lambda lags, index: lags - index)
  assert largest_error('dspark', reader=careless)[0] > 1e-3


@pytest.mark.parametrize('kind', _KINDS)
@pytest.mark.parametrize('name', ['chain', 'tree'])
def test_greedy_tokens_are_those_of_plain_decoding(kind, name):
  topology = {'chain': trees.chain(3), 'tree': parallel_test.TREE}[name]
  decoder = arms.decoder(arm_of(kind, topology), temperature=0.0)
  results = decoder.decode(sizes.PROMPTS, sizes.NEW)
  assert arms.tokens(results) == arms.greedy_tokens()
  assert sum(result.accepted.sum() for result in results) > 0


def test_chains_of_several_lengths_share_a_kv_cache():
  decoder = arms.decoder(
    *(arm_of('dspark', trees.chain(length)) for length in (1, 4, 7)),
    bandit='round_robin',
    temperature=0.0,
  )
  assert len(decoder.round_fn.slots) == 1


@pytest.mark.slow
def test_no_cache_is_copied_in_the_loop():
  decoder = arms.decoder(arm_of('dspark', trees.chain(3)), temperature=0.0)
  state, loop = drivers_test.compiled_loop(decoder, sizes.PROMPTS)
  assert not drivers_test.cache_copies(loop, state)


@pytest.mark.parametrize(('kind', 'deepest'), [('dflash', 7), ('dspark', 8)])
def test_a_tree_deeper_than_a_block_is_refused(kind, deepest):
  arm_of(kind, trees.chain(deepest))
  with pytest.raises(ValueError, match=f'depth of at most {deepest}, as the'):
    arm_of(kind, trees.chain(deepest + 1))


@pytest.mark.parametrize(
  ('options', 'sentence'),
  [
    ({'mask_token': 10**6}, 'mask_token must be in'),
    ({'block_size': 1}, 'block_size must be >= 2, got 1'),
    ({'num_layers': 0}, 'num_layers must be >= 1, got 0'),
    ({'markov_rank': -1}, 'markov_rank must be >= 0, got -1'),
  ],
)
def test_a_config_out_of_range_is_refused(options, sentence):
  with pytest.raises(ValueError, match=sentence):
    heads.configure('dflash', arms.TARGET[0].config, **options)
