"""The index against `sorted`, and files that are not one."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import main
from experiments.common import results
from specjax.data import datastore
from tests import smoke


def build(documents):
  return datastore.build(documents, progress=False)


def random_documents(seed, vocab_size, num, longest):
  rng = np.random.default_rng(seed)
  lengths = rng.integers(longest + 1, size=num)
  return [rng.integers(vocab_size, size=n).tolist() for n in lengths]


@pytest.mark.parametrize(
  'documents',
  [
    [[3, 3]],
    [[1], [], [5, 0, 5, 0, 5], [0]],
    # Longer than the depth to which contexts are told apart.
    [[7] * 3 * datastore.DEPTH, [7] * (datastore.DEPTH + 2), [2, 7, 7]],
    random_documents(0, 2, 60, 12),
    random_documents(1, 2, 3, 400),
    random_documents(2, 50, 20, 60),
  ],
  ids=['pair', 'short', 'loops', 'binary', 'long', 'many tokens'],
)
def test_places_are_sorted_by_their_contexts_read_backwards(documents):
  tokens, contexts = [-1], {}
  for document in documents:
    for i, token in enumerate(document):
      if i:
        contexts[len(tokens)] = document[:i][: -datastore.DEPTH - 1 : -1]
      tokens.append(token)
    tokens.append(-1)
  store = build(documents)
  np.testing.assert_array_equal(store.tokens, tokens)
  # Equal contexts in the order of the corpus: `sorted` is stable.
  assert store.suffixes.tolist() == sorted(contexts, key=contexts.get)
  assert store.tokens.dtype == store.suffixes.dtype == jnp.int32


def test_progress_is_shown_on_a_terminal_if_it_is_wanted(capsys, monkeypatch):
  for progress, is_terminal in ((False, True), (True, False), (True, True)):
    monkeypatch.setattr(sys.stderr, 'isatty', lambda shown=is_terminal: shown)
    datastore.build([[1, 2]], progress)
    is_shown = 'index' in capsys.readouterr().err
    assert is_shown == (progress and is_terminal)


@pytest.mark.parametrize(
  ('documents', 'message'),
  [
    ([], 'one of at least two tokens, got 0'),
    ([[], [4], [5]], 'one of at least two tokens, got 3'),
    ([[1, 2], [3, -1]], r'documents\[1\] must hold tokens >= 0, got -1'),
  ],
)
def test_bad_documents_raise(documents, message):
  with pytest.raises(ValueError, match=message):
    build(documents)


def test_a_saved_datastore_is_loaded(tmp_path):
  store = build(random_documents(3, 3, 10, 9))
  datastore.save(tmp_path / 'store', store)
  loaded = datastore.load(tmp_path / 'store')
  for field, expected in zip(loaded, store, strict=True):
    np.testing.assert_array_equal(field, expected)
    assert field.dtype == expected.dtype


def test_a_missing_file_raises(tmp_path):
  with pytest.raises(ValueError, match='no datastore at .*nowhere'):
    datastore.load(tmp_path / 'nowhere')


def flipped(content):
  return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
  'damage',
  [
    lambda content: b'',
    lambda content: content[:5],
    lambda content: content[:-4],
    lambda content: b'x' * 200,
    flipped,
    lambda content: content.replace(b'suffixes', b'prefixes'),
    lambda content: content.replace(b'"depth":"32"', b'"depth":"16"'),
  ],
  ids=['empty', 'torn', 'cut', 'junk', 'flipped', 'foreign', 'shallow'],
)
def test_a_damaged_file_raises(tmp_path, damage):
  path = tmp_path / 'store'
  datastore.save(path, build([[1, 2, 3]]))
  content = path.read_bytes()
  assert damage(content) != content
  path.write_bytes(damage(content))
  with pytest.raises(ValueError, match='store is truncated or corrupt'):
    datastore.load(path)


@pytest.mark.slow
def test_the_experiment_indexes_prompts_and_responses(tmp_path):
  data = tmp_path / 'data'
  data.mkdir()
  line = '{"prompt": "count %d", "response": "one two three"}\n'
  (data / 'a.train.jsonl').write_text(line % 1 + line % 2)
  (data / 'b.train.jsonl').write_text(line % 3)
  (data / 'b.eval.jsonl').write_text(line % 4)
  config = smoke.load('train/datastore')
  config.data_dir = str(data)
  main.run(config, tmp_path / 'run')
  (row,) = results.read(tmp_path / 'run')['rows']
  path = tmp_path / 'run' / 'datastore.safetensors'
  store = datastore.load(path)
  assert row['documents'] == 3 and row['bytes'] == path.stat().st_size
  # Four boundaries; the first token of a document is no continuation.
  assert row['tokens'] == len(store.tokens) - 4 == len(store.suffixes) + 3
