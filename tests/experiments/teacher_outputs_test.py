"""Text that models learn, as texts and as token ids."""

import types

import ml_collections
import numpy as np
import pytest

from experiments.common import limits
from experiments.train import teacher_outputs
from specjax.data import examples as examples_lib
from specjax.data import token_ids
from specjax.testing import toys


def test_token_ids_are_learnt_as_they_were_sampled(tmp_path):
  tokenizer = toys.chat_tokenizer()
  texts = tmp_path / 'texts.jsonl'
  examples_lib.write(texts, [examples_lib.Example('a', 'x', 'y')])
  ids = tmp_path / 'ids.npz'
  prompts = [token_ids.Prompt('b', [5, 6]), token_ids.Prompt('c', [7])]
  responses = [
    token_ids.Response(1, 0.0, [8, 9]),
    token_ids.Response(0, 1.0, [3]),
  ]
  token_ids.write(ids, prompts, responses)
  examples = teacher_outputs.read([str(texts), str(ids)])
  assert [example.domain for example in examples] == ['a', 'c', 'b']
  assert teacher_outputs.encode(examples, tokenizer) == [
    tokenizer.encode_example('x', 'y'),
    ([7, 8, 9], 1),
    ([5, 6, 3], 2),
  ]


@pytest.mark.parametrize(('max_tokens', 'num'), [(1, 1), (40, 4), (1000, 6)])
def test_some_of_the_text_has_so_many_tokens(max_tokens, num):
  sequences = [(list(range(30)), i) for i in range(6)]
  subset = teacher_outputs._subset(sequences, max_tokens, row_length=10, seed=0)
  assert len(subset) == num
  starts = [start for _, start in subset]
  assert len(set(starts)) == num
  assert num < 6 or starts != sorted(np.arange(6))


def test_a_teacher_that_runs_out_of_time_says_so(tmp_path, monkeypatch):
  for name, value in limits.environment(-1.0).items():
    monkeypatch.setenv(name, value)
  texts = tmp_path / 'texts.jsonl'
  examples_lib.write(texts, [examples_lib.Example('a', 'x', 'y')])
  config = ml_collections.ConfigDict(
    {
      'num_texts': {},
      'responses': (str(texts),),
      'domain': 'all',
      'max_tokens': 0,
      'row_length': 8,
      'prompt_weight': 0.0,
      'seed': 0,
      'teacher_batch_size': 1,
    }
  )
  tokenizer = toys.chat_tokenizer()
  model, params = toys.transformer(0)
  target = types.SimpleNamespace(
    model=model, params=params, config=model.config
  )
  family = types.SimpleNamespace(target=target, tokenizer=tokenizer)
  with pytest.raises(limits.OutOfTime, match='the same command resumes'):
    teacher_outputs.compute(config, family, tmp_path)
