"""Tests families: the shipped ones, folders, and joined checkpoints."""

import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import families
from specjax import meshes
from specjax import metrics
from specjax import models
from specjax import sampling as sampling_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import heads
from specjax.testing import toys
from tests import tiers


@pytest.fixture(scope='module')
def family():
  return families.load('mini')


def _decode(
  family, drafter, prompts, temperature, max_new_tokens=32, **options
):
  decoder = families.decoder(
    family, drafter, sampling=sampling_lib.Sampling(temperature), **options
  )
  tokens = [family.tokenizer.encode_prompt(e.prompt) for e in prompts]
  return decoder.decode(tokens, max_new_tokens)


def test_sizes(family):
  sizes = {n: families.num_params(m) for n, m in family.drafters.items()}
  target = families.num_params(family.target)
  assert target >= 8e6 and list(sizes) == ['large', 'medium', 'small']
  np.testing.assert_allclose(
    [target / size for size in sizes.values()], [4, 12, 30], rtol=0.1
  )


@pytest.mark.slow
def test_greedy_equals_autoregressive_on_held_out_prompts(family):
  """64 prompts of 8 domains, token for token, in float32."""
  assert len(family.prompts) >= 64
  plain, speculative = (
    [result.tokens for result in _decode(family, name, family.prompts, 0.0)]
    for name in (None, 'medium')
  )
  assert speculative == plain


@pytest.mark.slow
def test_block_efficiency_grows_with_the_drafter(family):
  efficiency = [
    metrics.block_efficiency(_decode(family, name, family.prompts[::2], 1.0))[0]
    for name in ('small', 'medium', 'large')
  ]
  assert efficiency == sorted(efficiency) and efficiency[-1] > 1.8


def test_errors_on_unknown_names_list_the_known_ones(family):
  with pytest.raises(ValueError, match="'huge'. Known: large, medium, small"):
    families.decoder(family, 'huge')
  with pytest.raises(ValueError, match="Unknown family 'maxi'. Known: mini"):
    families.load('maxi')


def test_a_folder_without_a_target_is_refused(tmp_path):
  with pytest.raises(ValueError, match='no target.safetensors'):
    families.load(str(tmp_path))


def test_a_subfolder_of_a_family_adds_drafters(tmp_path):
  toys.write_family(tmp_path, {'small': 0.2})
  toys.write_heads(tmp_path, {'eagle': 'eagle'})
  assert set(families.load(tmp_path).drafters) == {'small'}
  pool = families.load(tmp_path / 'heads')
  assert set(pool.drafters) == {'small', 'eagle'}
  shutil.copy(tmp_path / 'small.safetensors', tmp_path / 'heads')
  with pytest.raises(ValueError, match='are both called small'):
    families.load(tmp_path / 'heads')


def test_heads_share_a_part_of_the_targets_output_head(tmp_path):
  """Heads share rows that belong to the same tokens in the same order."""
  toys.write_family(tmp_path, {})
  folder = tmp_path / 'heads'
  folder.mkdir()
  target = families.load(tmp_path).target
  parts = {'a': range(8), 'b': range(8), 'c': range(1, 9)}
  for name, tokens in parts.items():
    config = heads.configure('eagle', target.config, head_size=8)
    params = heads.begin(
      jax.random.key(0), config, target.config, target.params, tokens
    )
    own_params = heads.own_params(config, params)
    checkpoint.save(folder / f'{name}.safetensors', config, own_params)
  drafters = families.load(folder).drafters
  kernels = {
    name: head.params['head']['kernel'] for name, head in drafters.items()
  }
  assert kernels['a'] is kernels['b'] and kernels['a'] is not kernels['c']
  table = cutting.output_head(target.params, None)['kernel']
  np.testing.assert_array_equal(kernels['c'], table[:, 1:9])


def _checkpoint(seed, texts='', padding=0, **tiny):
  """Returns a random model with a tokenizer trained for it."""
  tokenizer = tokenizer_lib.train(['the year the year', texts], 270)
  vocab_size = tokenizer.vocab_size + padding
  config = config_lib.TransformerConfig(vocab_size, **toys.TINY | tiny)
  params = flax_modules.init_params(jax.random.key(seed), config)
  params = jax.tree.map(
    lambda leaf: 6 * leaf if leaf.ndim > 1 else leaf, params
  )
  model = adapters.language_model(config)
  return models.Checkpoint(config, model, params, tokenizer)


@pytest.mark.parametrize('padding', tiers.cases([0, 9], 9))
def test_checkpoints_of_padded_vocabularies_decode_together(padding):
  """Greedy texts equal the target's, for smaller and larger vocabularies."""
  target, draft = _checkpoint(0, padding=5), _checkpoint(1, padding=padding)
  joined = families.join(target, {'draft': draft, 'same': target})
  assert list(joined.drafters) == ['draft', 'same'][:: 1 if padding else -1]
  assert joined.target.model is target.model
  greedy = sampling_lib.Sampling(0.0)
  prompts = [joined.tokenizer.encode_prompt(text) for text in ('the', 'year')]
  decoded = {
    name: families.decoder(joined, name, sampling=greedy, max_length=64).decode(
      prompts, 20
    )
    for name in (None, 'draft', 'same')
  }
  plain = [result.tokens for result in decoded[None]]
  for results in decoded.values():
    assert [result.tokens for result in results] == plain
  assert sum(r.accepted.sum() for r in decoded['same']) > 20


_TEXT = 'the year of the day, and the day of the year; the days of the years.'


@functools.cache
def _trained_checkpoint(vocab_size, seed=0):
  """Returns a model that has learned a text, with a tokenizer of this size."""
  tokenizer = tokenizer_lib.train([_TEXT] * 9, vocab_size)
  config = config_lib.TransformerConfig(tokenizer.vocab_size, **toys.TINY)
  model = adapters.language_model(config)
  prompt, response = _TEXT.split('and ')
  tokens = jnp.array([tokenizer.encode_example(prompt, response)[0]])
  optimizer = optax.adam(0.02)

  def loss(params):
    logits = model.extend(params, None, tokens[:, :-1]).logits
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, tokens[:, 1:]
    ).mean()

  def step(carry, _):
    params, state = carry
    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return (optax.apply_updates(params, updates), state), None

  @jax.jit
  def train(params):
    start = params, optimizer.init(params)
    return jax.lax.scan(step, start, length=100)[0][0]

  params = flax_modules.init_params(jax.random.key(seed), config)
  with jax.numpy_dtype_promotion('standard'):  # Adam mixes types.
    params = train(params)
  return models.Checkpoint(config, model, params, tokenizer)


@pytest.mark.parametrize(
  ('target_size', 'size'), tiers.cases([(280, 276), (272, 276)], (280, 276))
)
def test_checkpoints_of_other_tokenizers_draft_shared_tokens(target_size, size):
  """Greedy texts equal the target's, and drafts are accepted."""
  target = _trained_checkpoint(target_size)
  joined = families.join(
    target,
    {'other': _trained_checkpoint(size), 'same': target},
    vocabulary='intersection',
  )
  assert joined.drafters['same'].model is target.model
  prompt = joined.tokenizer.encode_prompt(_TEXT.split('and ')[0])
  plain, other = (
    families.decoder(
      joined, name, sampling=sampling_lib.Sampling(0.0), max_length=96
    ).decode([prompt], 40)[0]
    for name in (None, 'other')
  )
  assert other.tokens == plain.tokens
  assert joined.tokenizer.decode(plain.tokens) == _TEXT.split('and ')[1]
  assert other.accepted.sum() > 6


def test_checkpoints_of_other_tokenizers_are_refused():
  target, other_checkpoint = (
    _checkpoint(0),
    _checkpoint(1, 'of days of days of days'),
  )
  with pytest.raises(ValueError, match="and the drafter 'b' must share a tok"):
    families.join(target, {'a': target, 'b': other_checkpoint})
  with pytest.raises(ValueError, match=r"of \('shared', .*, got 'union'"):
    families.join(target, {}, vocabulary='union')
  with pytest.raises(ValueError, match='a has no tokenizer.json'):
    families.join(target, {'a': target._replace(tokenizer=None)})
  with pytest.raises(ValueError, match='target has no tokenizer.json'):
    families.join(target._replace(tokenizer=None), {'a': target})


def test_a_huggingface_folder_is_a_family_without_drafters(tmp_path):
  checkpoint = _checkpoint(0)
  models.save(checkpoint, tmp_path / 'model')
  family = families.load(tmp_path / 'model')
  assert not family.drafters and not family.prompts
  jax.tree.map(
    np.testing.assert_array_equal, family.target.params, checkpoint.params
  )
  toys.write_heads(tmp_path / 'model', {'eagle': 'eagle'})
  assert set(families.load(tmp_path / 'model' / 'heads').drafters) == {'eagle'}
  (tmp_path / 'model' / 'model.safetensors').unlink()
  with pytest.raises(ValueError, match='model.safetensors'):
    families.load(tmp_path / 'model')


def _greedy(family, drafter):
  """Returns the tokens emitted after two prompts."""
  decoder = families.decoder(
    family,
    drafter,
    sampling=sampling_lib.Sampling(0.0),
    max_length=64,
  )
  prompts = [family.tokenizer.encode_prompt(text) for text in ('the', 'year')]
  return [result.tokens for result in decoder.decode(prompts, 20)]


@pytest.fixture(name='pair')
def _pair(tmp_path):
  """Paths of a HuggingFace target and of a drafter in a folder inside of it."""
  models.save(_checkpoint(0), tmp_path / 'target')
  path = tmp_path / 'target' / 'drafts' / 'draft'
  models.save(_checkpoint(1, padding=5), path)
  return tmp_path / 'target', path


def test_drafters_may_be_huggingface_folders(pair):
  """Loads them by name or from a folder of drafters, with equal tokens."""
  target, draft = pair
  loaded_families = [
    families.load(target, drafters={'draft': draft}),
    families.load(target / 'drafts'),
    families.load(target / 'drafts', drafters={'other': str(draft)}),
  ]
  names = [['draft'], ['draft'], ['draft', 'other']]
  assert [list(family.drafters) for family in loaded_families] == names
  plain = _greedy(loaded_families[0], None)
  for family, drafter in zip(loaded_families, ('draft', 'draft', 'other')):
    assert _greedy(family, drafter) == plain


def test_drafters_may_have_any_format(pair, tmp_path):
  target, _ = pair
  loaded_family = families.load(target)
  toys.write_heads(target, {'eagle': 'eagle'})
  models.save_head(
    families.load(target / 'heads').drafters['eagle'], tmp_path / 'head'
  )
  family = tmp_path / 'family'
  family.mkdir()
  loaded_family.tokenizer.save(family)
  for name in ('target', 'small'):
    path = family / f'{name}.safetensors'
    checkpoint.save(
      path, loaded_family.target.config, loaded_family.target.params
    )
  paths = {
    'family': family,
    'file': family / 'small.safetensors',
    'published head': tmp_path / 'head',
    'stored head': target / 'heads' / 'eagle.safetensors',
  }
  shutil.copytree(tmp_path / 'head', family / 'published')
  assert set(families.load(family).drafters) == {'small', 'published'}
  loaded_family = families.load(target, drafters=paths, dtype='bfloat16')
  assert set(loaded_family.drafters) == set(paths)
  for drafter in loaded_family.drafters.values():
    types = {leaf.dtype.name for leaf in jax.tree.leaves(drafter.params)}
    assert types == {'bfloat16'}
  assert isinstance(loaded_family.drafters['published head'], models.Head)
  table = loaded_family.target.params['embedding']['embedding']
  for name in ('published head', 'stored head'):
    assert (
      loaded_family.drafters[name].params['embedding']['embedding'] is table
    )


def _empty(pool):
  shutil.rmtree(pool / 'draft')


def _without_weights(pool):
  (pool / 'draft' / 'model.safetensors').rename(pool / 'draft' / 'weights.bin')


def _without_config(pool):
  (pool / 'draft' / 'config.json').unlink()


def _other_tokenizer(pool):
  tokenizer = _checkpoint(1, 'of days of days of days').tokenizer
  tokenizer.save(pool / 'draft')


def _twice(pool):
  shutil.copytree(pool / 'draft', pool / 'named')


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (_empty, 'There is no drafter in .*drafts'),
    (_without_weights, 'only weights.bin: pickled weights'),
    (_without_config, "The drafter 'draft' must be .* got '.*drafts/draft'"),
    (_other_tokenizer, "the drafter 'draft' must share a tokenizer"),
    (_twice, 'drafts/named and .*draft are both called named'),
  ],
)
def test_no_folder_of_drafters_is_ignored(pair, change, message):
  target, draft = pair
  change(target / 'drafts')
  with pytest.raises(ValueError, match=message):
    families.load(target / 'drafts', drafters={'named': draft})


def test_drafters_are_named_paths(pair):
  target, draft = pair
  with pytest.raises(ValueError, match="must be paths, but 'draft' is 3"):
    families.load(target, drafters={'draft': 3})
  with pytest.raises(
    ValueError, match=f'must not be called target, got {draft}'
  ):
    families.load(target, drafters={'target': draft})


def test_a_checkpoint_is_laid_out_once(pair):
  """Its outputs are constrained as those from `models.load`, in any type."""
  target, draft = pair
  mesh = meshes.make()
  loaded_models = [
    models.load(target, mesh=mesh),
    *(
      families.load(
        target, drafters={'d': draft}, mesh=mesh, dtype=dtype
      ).target
      for dtype in (None, 'float32')
    ),
  ]
  joined = families.on_mesh(families.join(loaded_models[0], {}), mesh)
  loaded_models.append(joined.target)
  tokens = np.ones((1, 4), np.int32)
  counts = [
    str(
      jax.make_jaxpr(loaded_model.model.extend)(
        loaded_model.params, None, tokens
      )
    ).count('sharding_constraint')
    for loaded_model in loaded_models
  ]
  assert counts[0] > 0 and len(set(counts)) == 1


@pytest.mark.slow
def test_specialists_are_additional_drafters_for_the_same_target(family):
  """The specialist for math drafts best on prompts about math."""
  pool = families.load('mini/specialists')
  assert pool.prompts == family.prompts
  jax.tree.map(
    np.testing.assert_array_equal, pool.target.params, family.target.params
  )
  added = set(pool.drafters) - set(family.drafters)
  sizes = {families.num_params(pool.drafters[name]) for name in added}
  assert sizes == {families.num_params(family.drafters['medium'])}
  assert len(pool.drafters) == len(added) + len(family.drafters)
  assert {'all', 'code', 'translation_ja-en'} <= added
  math = [prompt for prompt in pool.prompts if prompt.domain == 'math']
  efficiency = {
    name: metrics.block_efficiency(_decode(pool, name, math, 1.0))[0]
    for name in ('math', 'all', 'code')
  }
  assert max(efficiency, key=efficiency.get) == 'math'


@pytest.mark.slow
def test_heads_emit_the_tokens_of_their_target(family):
  """They need fewer rounds than plain decoding, and use its embedding."""
  pool = families.load('mini/heads')
  assert set(pool.drafters) == {*family.drafters, 'eagle', 'eagle3', 'medusa'}
  prompts = pool.prompts[::4]
  plain = _decode(pool, None, prompts, 0.0)
  efficiency = {}
  for name in ('medusa', 'eagle3', 'eagle'):
    results = _decode(pool, name, prompts, 0.0, draft_length=4)
    assert [r.tokens for r in results] == [r.tokens for r in plain]
    efficiency[name] = metrics.block_efficiency(results)[0]
    table = pool.drafters[name].params['embedding']['embedding']
    assert table is pool.target.params['embedding']['embedding']
  assert list(efficiency) == sorted(efficiency, key=efficiency.get)
  assert efficiency['medusa'] > 1.1 and efficiency['eagle'] > 1.8
