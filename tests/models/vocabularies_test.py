"""Draft models with another vocabulary than the target's."""

from collections.abc import Callable
import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import models
from specjax import sampling
from specjax import testing
from specjax import trees
from specjax import verifiers
from specjax.data import prompt_format
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import vocabularies
from specjax.testing import distributions
from specjax.testing import rounds
from tests import tiers
from tests import twins
from tests.verifiers import exact

# The draft's five tokens for the target's three, of which it lacks the second.
_TRANSLATION = vocabularies.Translation(inputs=(2, 0, 4), outputs=(2, -1, 4))


def _resize(size):
  return vocabularies.resize(models.Markov(size), 3)


def _translate(size):
  return vocabularies.TranslatedVocabulary(models.Markov(size), _TRANSLATION)


@dataclasses.dataclass(frozen=True)
class _Adapted(exact.Case):
  """A draft model with other tokens than the target's three."""

  size: int = 3
  adapt: Callable = _resize

  @functools.cached_property
  def table(self):
    """`[V, V]` float32, the draft's probabilities after each token."""
    drafts = jnp.asarray(rounds.tables(self.size)[0])
    model = self.adapt(self.size)
    assert model.vocab_size == self.vocab_size
    tokens = jnp.arange(self.vocab_size)[None]
    logits = model.extend(drafts, model.init_cache(drafts, 1, 9), tokens).logits
    return sampling.probabilities(logits[0], sampling.Sampling())

  @functools.cached_property
  def draft(self):
    return rounds.normalize(np.asarray(self.table))

  def tree(self, tokens, valid=None):
    parent_tokens = jnp.append(tokens, rounds.ROOT)[
      np.array(self.topology.parents)
    ]
    valid = jnp.asarray(self.is_valid) if valid is None else valid
    return base.DraftTree(
      tokens, self.topology, valid, self.table[parent_tokens]
    )


@dataclasses.dataclass(frozen=True)
class _NotRenormalized(_Adapted):
  """Keeps the probabilities that the draft model has among its own tokens."""

  def tree(self, tokens, valid=None):
    tree = super().tree(tokens, valid)
    shared = _shared_mass(rounds.tables(self.size)[0], _TRANSLATION)
    parent_tokens = jnp.append(tokens, rounds.ROOT)[
      np.array(self.topology.parents)
    ]
    return tree._replace(
      probs=tree.probs * jnp.asarray(shared)[parent_tokens][:, None]
    )


def _shared_mass(table, translation):
  """Returns `[V]`, the draft's probability of shared tokens after each token.

  Args:
    table: probabilities of the draft model's own tokens.
    translation: its token ids.
  """
  outputs = [token for token in translation.outputs if token >= 0]
  return table[list(translation.inputs)][:, outputs].sum(axis=1)


def _emitted(case):
  """Returns the exact distribution of a round, completed by the target."""
  return exact.integrate(
    case, verifiers.resolve('maximal'), *exact.walk_cells(case)
  ).probs


@pytest.mark.parametrize('num_tokens', [1, 2])
@pytest.mark.parametrize(
  ('size', 'adapt'),
  [(2, _resize), (3, _resize), (5, _resize), (5, _translate)],
)
def test_a_drafter_of_another_vocabulary_leaves_the_target_exact(
  size, adapt, num_tokens
):
  """All drafts are enumerated, and the uniforms integrated."""
  case = _Adapted(trees.chain(num_tokens), size=size, adapt=adapt)
  np.testing.assert_allclose(case.draft.sum(1), 1)
  own_probs = rounds.tables(size)[0]
  if adapt is _translate:
    expected = own_probs[[2, 0, 4]][:, [2, 1, 4]] * np.array([1, 0, 1])
  elif size < 3:
    expected = np.pad(own_probs, ((0, 1), (0, 1)), mode='edge')
    expected[:, size:] = 0  # Never drafted,
  else:
    expected = own_probs[:3, :3]
  np.testing.assert_allclose(case.draft, rounds.normalize(expected), rtol=1e-5)
  np.testing.assert_allclose(_emitted(case), case.expected, atol=1e-5)


def test_probabilities_that_are_not_renormalized_are_not_exact():
  """The negative control of the enumeration."""
  case = _NotRenormalized(trees.chain(1), size=5, adapt=_translate)
  assert abs(_emitted(case) - case.expected).max() > 0.02


def test_a_vocabulary_of_the_same_size_is_the_same_model():
  model = models.Markov(3)
  assert vocabularies.resize(model, 3) is model
  resized = vocabularies.resize(model, 5)
  assert vocabularies.resize(model, 5) == resized != model


def test_a_translated_model_is_a_model():
  """Equal translations, read from two files, share one program."""
  testing.check_model(
    vocabularies.TranslatedVocabulary,
    params=rounds.tables(5)[0],
    model=models.Markov(5),
    translation=_TRANSLATION,
  )
  assert _translate(5) == vocabularies.TranslatedVocabulary(
    models.Markov(5), vocabularies.Translation((2, 0, 4), (2, -1, 4))
  )
  assert hash(_translate(5)) != hash(
    vocabularies.TranslatedVocabulary(
      models.Markov(5), vocabularies.Translation((2, 0, 4), (2, 0, 4))
    )
  )


def test_the_mask_token_is_one_that_is_read_as_it():
  @functools.cache
  def translate(mask_token):
    model = twins.twin(models.Markov(5), mask_token=mask_token)
    return vocabularies.TranslatedVocabulary(model, _TRANSLATION)

  assert [translate(token).mask_token for token in (None, 4, 3)] == [
    None,
    2,
    None,
  ]


@pytest.mark.parametrize(
  ('inputs', 'outputs', 'error'),
  [
    ((1, 2), (1,), 'inputs and outputs must have equal lengths, got 2 and 1'),
    ((-1, 2), (1, 2), 'inputs must be >= 0, got -1'),
    ((1, 2), (-1, -1), 'outputs must have a shared token, got none'),
    ((1, 5), (1, -1), r'ids of translation must lie in \[0, 4\], got 5'),
  ],
)
def test_translations_without_meaning_raise(inputs, outputs, error):
  with pytest.raises(ValueError, match=error):
    vocabularies.TranslatedVocabulary(
      models.Markov(5), vocabularies.Translation(inputs, outputs)
    )


# Two tokenizers of one text.

_TEXT = 'the year of the day, and the day of the year; the days of the years. '
_SMALL, _LARGE = 264, 276


@functools.cache
def _tokenizer(vocab_size):
  return tokenizer_lib.train([_TEXT] * 9, vocab_size)


def _intersect(vocab_size, target_size, model=None):
  """Returns a model with one tokenizer that drafts for another."""
  return vocabularies.intersect(
    model or models.Markov(vocab_size),
    _tokenizer(vocab_size).token_texts(),
    _tokenizer(target_size).token_texts(),
    target_size,
    'They',
  )


@pytest.mark.parametrize(
  ('size', 'target_size'), [(_SMALL, _LARGE), (_LARGE, _SMALL)]
)
def test_tokens_with_equal_texts_are_shared(size, target_size):
  """A table that is off by one entry fails."""
  own, target = _tokenizer(size), _tokenizer(target_size)
  translation = _intersect(size, target_size).translation
  shared = [token for token in translation.outputs if token >= 0]
  assert len(shared) == len(set(shared)) == min(size, target_size)
  for token in range(target_size):
    spelling, output = target.spelling(token), translation.outputs[token]
    read = own.spelling(translation.inputs[token])
    assert (read if output >= 0 else '') == (spelling if output >= 0 else '')
    assert spelling.endswith(read)
  lengths = [
    len(target.spelling(token)) - len(own.spelling(translation.inputs[token]))
    for token in range(target_size)
  ]
  assert (max(lengths) > 0) == (target_size == _LARGE)


def test_duplicates_and_padding_are_never_drafted():
  """Special tokens are read as the end, unless they have the same name."""
  end = prompt_format.END
  texts = {0: end, 1: b'a', 2: b'ba', 3: '<s>', 4: 'a'}
  target_texts = {5: end, 0: b'cba', 1: b'ba', 2: 'a', 3: '<user>', 4: b'ba'}
  model = vocabularies.intersect(
    models.Markov(5), texts, target_texts, 7, 'They'
  )
  assert model.translation == vocabularies.Translation(
    inputs=(2, 2, 4, 0, 2, 0, 0), outputs=(-1, 2, 4, -1, -1, 0, -1)
  )


def test_vocabularies_without_common_tokens_raise():
  end = prompt_format.END
  error = 'They must share tokens other than special ones, but their 3 and 2 t'
  with pytest.raises(ValueError, match=error):
    vocabularies.intersect(
      models.Markov(2), {0: end, 1: b'a'}, {0: b'b', 1: end, 2: 'a'}, 3, 'They'
    )


def _bigrams(vocab_size, count):
  """Returns `[V, V]` float32, bigram frequencies of the text.

  Args:
    vocab_size: size of the tokenizer.
    count: what every bigram is counted in addition.
  """
  tokens = _tokenizer(vocab_size).encode(_TEXT * 3)
  table = np.full((vocab_size, vocab_size), count)
  np.add.at(table, (tokens[:-1], tokens[1:]), 1)
  return np.float32(table / table.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
  ('size', 'target_size', 'is_lossless'),
  tiers.cases(
    [(_SMALL, _LARGE, True), (_LARGE, _SMALL, True), (_LARGE, _SMALL, False)],
    (_LARGE, _SMALL, True),
    (_LARGE, _SMALL, False),
  ),
)
def test_drafts_of_another_tokenizer_have_the_target_distribution(
  size, target_size, is_lossless
):
  """The joint distribution of two tokens, in a chi-square test.

  With 8000 rows and 17 cells (12 for the larger tokenizer), a distribution at
  chi-square divergence 0.01 fails the test (p < 1e-4) with probability 0.999.
  If probabilities are not renormalized, the divergence of the first token is
  already 0.09.
  """
  target, draft = _bigrams(target_size, 1 / 500), _bigrams(size, 1 / 100)
  model = _intersect(size, target_size)
  drafter = specjax.drafters.Autoregressive(
    model, trees.chain(1), sampling.Sampling()
  )
  if not is_lossless:
    shared = _shared_mass(draft, model.translation)
    drafter = _not_renormalized(drafter, shared)
  arm = specjax.Arm(drafter, verifiers.resolve('maximal'))
  decoder = specjax.Decoder(
    models.Markov(target_size), jnp.asarray(target), [(arm, draft)]
  )
  prompt = _tokenizer(target_size).encode('the')
  results = decoder.decode([prompt] * 8000, 2, seed=1)
  assert 0.2 < np.mean([result.accepted.sum() for result in results])
  p_value = distributions.chi_square(
    [result.tokens for result in results],
    distributions.sequence_probs(target, prompt[-1], 2),
  )
  assert p_value > 1e-4 if is_lossless else p_value < 1e-6


def _not_renormalized(drafter, shared):
  """Returns a drafter whose probabilities keep the mass of lacking tokens.

  Args:
    drafter: the drafter of one token.
    shared: `[V]` probability of shared tokens after each token.
  """

  def draft(keys, params, state, context):
    tree, proposal = drafter.draft(keys, params, state, context)
    index = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, index, axis=1)
    scale = jnp.asarray(shared)[last][..., None]
    return tree._replace(probs=tree.probs * scale), proposal

  return twins.twin(drafter, draft=draft)
