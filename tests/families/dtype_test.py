"""Tests families in bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import families
from specjax import models
from specjax import sampling as sampling_lib
from specjax.models.huggingface import weights
from specjax.testing import distributions
from specjax.testing import toys
from tests import parts

_GREEDY = sampling_lib.Sampling(temperature=0.0)
_PROMPTS = 48
_NEW_TOKENS = 32


@pytest.fixture(scope='module', name='family')
def _family():
  return families.load('mini/heads', dtype='bfloat16')


def _prompts(family, num):
  return [
    family.tokenizer.encode_prompt(example.prompt)[:40]
    for example in family.prompts[:num]
  ]


def _texts(family, drafter):
  options = {} if drafter is None else {'draft_length': 3}
  decoder = families.decoder(
    family, drafter, sampling=_GREEDY, max_length=128, **options
  )
  results = decoder.decode(_prompts(family, _PROMPTS), _NEW_TOKENS)
  return [result.tokens for result in results]


def test_all_parameters_and_caches_have_the_type(family):
  models = {'target': family.target, **family.drafters}
  for model in models.values():
    assert {leaf.dtype for leaf in jax.tree.leaves(model.params)} == {
      jnp.dtype('bfloat16')
    }
  cache = family.target.model.init_cache(family.target.params, 1, 8)
  assert cache.layers[0][0].dtype == jnp.bfloat16


def test_heads_share_the_embedding_of_their_target(family):
  table = family.target.params['embedding']['embedding']
  for name in ('eagle', 'eagle3', 'medusa'):
    assert family.drafters[name].params['embedding']['embedding'] is table


def test_files_are_read_in_the_type(tmp_path, monkeypatch):
  """No model is first loaded in the type of its file, also if it has heads."""
  (tmp_path / 'specjax').mkdir()
  toys.write_family(tmp_path / 'specjax', {'small': 0.2})
  family = families.load(tmp_path / 'specjax')
  text = family.tokenizer, family.tokenizer.stop_tokens
  models.save(models.Checkpoint(*family.target, *text), tmp_path / 'published')
  types_read = []
  read_array = weights.read
  monkeypatch.setattr(
    weights,
    'read',
    lambda *args: (types_read.append(args[3]), read_array(*args))[1],
  )
  for name in ('specjax', 'published'):
    toys.write_heads(tmp_path / name, {'eagle': 'eagle'})
    family = families.load(tmp_path / name / 'heads', dtype='bfloat16')
    for model in (family.target, *family.drafters.values()):
      types = {leaf.dtype.name for leaf in jax.tree.leaves(model.params)}
      assert types == {'bfloat16'}
    table = family.target.params['embedding']['embedding']
    assert family.drafters['eagle'].params['embedding']['embedding'] is table
  assert types_read == [None, 'bfloat16']


@pytest.mark.slow
def test_greedy_texts_agree_in_most_tokens(family):
  """They agree with plain decoding in the same type and in float32."""
  plain, speculative = _texts(family, None), _texts(family, 'small')
  exact = _texts(families.load('mini'), None)
  assert _agreement(plain, speculative) > 0.99
  assert _agreement(plain, exact) > 0.8


def _agreement(texts, other_texts):
  """Returns the share of positions at which the tokens agree."""
  num_equal = sum(
    a == b for pair in zip(texts, other_texts) for a, b in zip(*pair)
  )
  return num_equal / sum(
    max(map(len, pair)) for pair in zip(texts, other_texts)
  )


@pytest.mark.slow
def test_the_loop_has_the_distribution_of_the_target(family):
  """Compares the first two tokens with the target's probabilities."""
  num_rows, num_kept = 2000, 8
  prompt = _prompts(family, 1)[0][:8]
  family = family._replace(
    target=parts.first_layers(family.target, 2, 'bfloat16')
  )
  model, params = family.target.model, family.target.params
  sampling = sampling_lib.Sampling(temperature=0.7, top_k=num_kept)
  decoder = families.decoder(
    family, 'small', draft_length=2, sampling=sampling, max_length=16
  )
  results = decoder.decode([prompt] * num_rows, 2, seed=3)
  tokens = np.array([result.tokens for result in results])

  def probs(rows):
    cache = model.init_cache(params, len(rows), 1)
    extend = jax.jit(model.extend)
    logits = extend(params, cache, np.array(rows, np.int32)).logits
    return np.asarray(sampling_lib.probabilities(logits[:, -1], sampling))

  (first_probs,) = probs([prompt])
  support = np.flatnonzero(first_probs)
  second_probs = probs([[*prompt, token] for token in support])
  # Joint probabilities that are not 0, in any order.
  joint = first_probs[support, None] * second_probs
  row_of = {token: i for i, token in enumerate(support.tolist())}
  flat = np.array([row_of[a] * joint.shape[1] + b for a, b in tokens])
  cells = np.flatnonzero(joint)
  counts = np.bincount(flat, minlength=joint.size)
  assert counts.sum() == counts[cells].sum()
  assert 0.2 < np.mean([r.accepted.sum() > 0 for r in results]) < 1
  index = np.searchsorted(cells, flat)
  assert distributions.chi_square(index[:, None], joint.ravel()[cells]) > 1e-4
