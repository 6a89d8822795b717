"""Tests SmolLM2: parity with transformers, and its answers."""

from concurrent import futures
import functools
import multiprocessing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from specjax import families
from specjax import metrics
from specjax import models
from tests import extras
from tests import memory
from tests.families import smollm2

torch = extras.load('torch')
transformers = extras.load('transformers')
pytestmark = [pytest.mark.slow, pytest.mark.oracles]

# Logits reach 40; in float32, those of either side are 1e-4 from float64's.
_ATOL = 2e-4


@pytest.fixture(scope='module', name='family')
def _family():
  assert smollm2.path().is_file()
  memory.drop_programs()
  return families.load('smollm2')


@pytest.fixture(scope='module', name='plain')
def _plain(family):
  """Prompts, and the tokens of plain greedy decoding."""
  prompts = [smollm2.FRANCE, *smollm2.prompts(family, 15)]
  answers = []
  for batch in (prompts[::2], prompts[1::2]):
    answers += [
      (text, result.tokens)
      for text, result in zip(
        batch, smollm2.greedy(family, None, batch), strict=True
      )
    ]
  return answers


@pytest.fixture(scope='module', name='folder')
def _folder(family, tmp_path_factory):
  """The same weights for transformers, as `models.save` writes them."""
  folder = tmp_path_factory.mktemp('smollm2')
  checkpoint = models.load(smollm2.path())._replace(params=family.target.params)
  models.save(checkpoint, folder)
  checkpoint.tokenizer.save(folder)
  return folder


@pytest.fixture(scope='module', name='peer_logits')
def _peer_logits_fn(folder):
  """Returns transformers' logits of tokens, from another process.

  Two copies of the weights are more than a process should hold.
  """
  spawn = multiprocessing.get_context('spawn')
  with futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
    yield lambda tokens: pool.submit(_peer_logits, folder, tokens).result()


def _peer_logits(folder, tokens):
  with torch.no_grad():
    return _peer(folder)(torch.tensor([tokens])).logits[0].numpy()


@functools.cache
def _peer(folder):
  options = {'dtype': torch.float32}
  load = transformers.AutoModelForCausalLM.from_pretrained
  return load(folder, **options).eval()


def _log_likelihoods(logits, tokens):
  """`[T]` of tokens, by `[T, V]` logits."""
  return special.log_softmax(logits, axis=-1)[np.arange(len(tokens)), tokens]


def test_it_is_a_family_like_any_other(family):
  assert families.num_params(family.target) == 134_515_008
  assert family.tokenizer.vocab_size == family.target.model.vocab_size
  assert len({example.domain for example in family.prompts}) == 8
  assert family.tokenizer.stop_tokens == (2, 0)


def test_chat_and_text_have_the_tokens_of_transformers(family, folder):
  peer = transformers.AutoTokenizer.from_pretrained(folder)
  texts = [
    *smollm2.prompts(family, 64),
    " 1984½ ٣٤ \n\n\tdon't 漢字🙂",
    '<|im_end|>',
  ]
  for text in texts:
    turns = [{'role': 'user', 'content': text}]
    expected = peer.apply_chat_template(
      turns, add_generation_prompt=True, return_dict=False
    )
    assert family.tokenizer.encode_prompt(text) == expected
    plain = family.tokenizer.with_prompts(chat=False)
    assert plain.encode_prompt(text) == peer.encode(text)
    assert plain.decode(expected) == peer.decode(
      expected, skip_special_tokens=True
    )


def test_logits_of_texts_steps_and_trees_are_those_of_transformers(
  family, peer_logits
):
  """Prefills a ragged batch, then extends it by a token and a tree of three."""
  model, params = family.target.model, family.target.params
  rows = [family.tokenizer.encode_prompt(t) for t in smollm2.prompts(family, 3)]
  lengths = np.array([len(row) for row in rows], np.int32)
  tokens = np.zeros((3, lengths.max()), np.int32)
  for row, prompt in zip(tokens, rows):
    row[: len(prompt)] = prompt
  extend = jax.jit(model.extend)
  full_logits = extend(params, None, jnp.asarray(tokens)).logits
  cache = model.init_cache(params, 3, 256)
  cache, _ = jax.jit(model.prefill)(
    params, cache, jnp.asarray(tokens), jnp.asarray(lengths)
  )
  added = np.array([[28, 30, 504, 99]] * 3, np.int32)
  step = extend(params, cache, jnp.asarray(added[:, :1]))
  # The second and third tokens follow the first; the last follows the second.
  mask = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], bool)
  positions = lengths[:, None] + np.array([[1, 1, 2]], np.int32)
  tree = extend(
    params,
    cache,
    jnp.asarray(added[:, 1:]),
    pending_kv=step.pending_kv,
    positions=jnp.asarray(positions),
    mask=jnp.asarray(mask),
  )
  paths = [[0], [0, 1], [0, 2], [0, 1, 3]]
  for i, row in enumerate(rows):
    expected = peer_logits(row)
    np.testing.assert_allclose(full_logits[i, : len(row)], expected, atol=_ATOL)
    ends = [peer_logits([*row, *added[i, p].tolist()])[-1] for p in paths]
    np.testing.assert_allclose(step.logits[i, 0], ends[0], atol=_ATOL)
    np.testing.assert_allclose(tree.logits[i], ends[1:], atol=_ATOL)


def test_perplexities_of_texts_are_those_of_transformers(family, peer_logits):
  """Covers 8 held-out texts without a chat template."""
  tokenizer = family.tokenizer.with_prompts(chat=False)
  extend = jax.jit(family.target.model.extend)
  for text in smollm2.prompts(family, 8):
    row = tokenizer.encode_prompt(text)[: smollm2.LONGEST]
    tokens = np.zeros((1, smollm2.LONGEST), np.int32)
    tokens[0, : len(row)] = row
    model_logits = extend(family.target.params, None, tokens).logits[0]
    perplexities = [
      np.exp(-_log_likelihoods(logits[: len(row) - 1], row[1:]).mean())
      for logits in (np.asarray(model_logits), peer_logits(row))
    ]
    np.testing.assert_allclose(*perplexities, rtol=1e-3)


def test_greedy_tokens_of_chats_equal_transformers(family, plain, peer_logits):
  """Compares 32 tokens for each of 16 prompts, or those up to a stop token.

  Each token is the likeliest after those before it, which are the same by
  induction.
  """
  for text, tokens in plain:
    prompt = family.tokenizer.encode_prompt(text)
    logits = peer_logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
    assert logits.argmax(-1).tolist() == tokens
    ended = tokens[-1] in family.tokenizer.stop_tokens
    assert ended or len(tokens) == smollm2.NEW_TOKENS


def test_it_names_the_capital_of_france(family, plain):
  answer = dict(plain)[smollm2.FRANCE]
  assert family.tokenizer.decode(answer) == 'The capital of France is Paris.'
  assert answer[-1] == family.tokenizer.end_id


def test_its_drafter_emits_the_same_tokens_in_fewer_rounds(family, plain):
  """Its file has at most 12 MB, without the embedding, which it shares."""
  assert smollm2.shares_the_embedding(family, 'small')
  assert (smollm2.FOLDER / 'small.safetensors').stat().st_size < 12e6
  texts, tokens = zip(*plain[: smollm2.ROWS])
  results = smollm2.greedy(family, 'small', texts)
  assert tuple(result.tokens for result in results) == tokens
  assert metrics.block_efficiency(results)[0] > 1.4
