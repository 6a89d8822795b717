"""Directories of transformers are loaded, and written for it again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from specjax import models
from specjax import trees
from tests.models.huggingface import oracle

_LENGTHS = np.array([7, 5])
# Of the nodes, those with an odd parent or none belong to the rows' own text.
_TREE = trees.Topology((-1, -1, 0, 1, 1, 3))
_TRUE_ENTRIES = [0, 2, 4, 6]


def _behind(rows, num, lengths=_LENGTHS):
  """The entries of each row behind its prompt."""
  return np.stack([row[n : n + num] for row, n in zip(rows, lengths)])


def _tree_tokens():
  """The text goes on along one path; other nodes are junk."""
  tokens = np.full((2, 1 + _TREE.num_nodes), 3)
  tokens[:, _TRUE_ENTRIES] = _behind(oracle.TOKENS, 4)
  return tokens


def _ways_to_read(model, params):
  """Logits of the whole rows, and behind prompts of different lengths."""
  whole = model.extend(params, None, oracle.TOKENS).logits
  cache = model.init_cache(params, 2, 16)
  cache, _ = model.prefill(params, cache, oracle.TOKENS, _LENGTHS)
  tree = model.extend(
    params,
    cache,
    _tree_tokens(),
    positions=_LENGTHS[:, None] + _TREE.offsets,
    mask=_TREE.mask,
  ).logits[:, np.array(_TRUE_ENTRIES)]
  steps = []
  for i in range(2):
    tokens = _behind(oracle.TOKENS, 1, _LENGTHS + i)
    step = model.extend(params, cache, tokens)
    num = (step.logits[:, 0, 0] < jnp.inf).astype(jnp.int32)
    cache = model.commit(cache, step.pending, np.zeros((2, 1), int), num)
    steps.append(step.logits)
  return whole, tree, jnp.concatenate(steps, axis=1)


def _assert_close(logits, expected):
  scale = np.abs(expected).max()
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize('case', oracle.DECODERS)
def test_logits_equal_those_of_transformers(case, tmp_path):
  expected = oracle.logits(oracle.model(case))
  # Neither flat nor the same everywhere, or nothing is tested.
  assert expected.std(axis=-1).min() > 0.3 and expected.std(axis=1).mean() > 0.1
  loaded = models.load(oracle.save(case, tmp_path))
  read = jax.jit(lambda params: _ways_to_read(loaded.functions, params))
  whole, tree, steps = read(loaded.params)
  _assert_close(whole, expected)
  _assert_close(tree, _behind(expected, 4))
  _assert_close(steps, _behind(expected, 2))


@pytest.mark.parametrize('case', oracle.CASES)
def test_transformers_loads_what_was_saved(case, tmp_path):
  loaded = models.load(oracle.save(case, tmp_path / 'theirs'))
  models.save(loaded, tmp_path / 'ours')
  peer, report = type(oracle.model(case)).from_pretrained(
    tmp_path / 'ours', attn_implementation='eager', output_loading_info=True
  )
  assert not any(report.values())
  again = models.load(tmp_path / 'ours')
  assert again.stop_tokens == loaded.stop_tokens
  jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)
  inputs = {'input_ids': torch.from_numpy(oracle.TOKENS % 30)}
  if case == 't5':
    inputs['decoder_input_ids'] = inputs['input_ids']
  with torch.no_grad():
    torch.testing.assert_close(
      peer(**inputs).logits, oracle.model(case)(**inputs).logits
    )
