"""Heads on a target's features: what they draft is exact, and well aligned."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.drafters import growth
from specjax.drafters import siblings
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import heads
from specjax.testing import distributions
from tests import xla
from tests.decoding import drivers_test

_TARGET = config_lib.TransformerConfig(
  vocab_size=3,
  num_layers=5,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
)
_GREEDY = sampling_lib.Sampling(0.0)
_TREE = trees.Topology((-1, -1, 0, 0, 1, 2))
PROMPT, LENGTH, ROWS = [2, 0, 1], 3, 8000


def _random(key, params, scale=0.4):
  """Far from all alike, as trained models are."""
  leaves, structure = jax.tree.flatten(params)
  keys = jax.random.split(jax.random.key(key), len(leaves))
  return structure.unflatten(
    leaf + scale * jax.random.normal(key, leaf.shape)
    for key, leaf in zip(keys, leaves)
  )


@functools.cache
def _target():
  params = _random(1, adapters.init_params(jax.random.key(0), _TARGET))
  return adapters.transformer(_TARGET), params


@functools.cache
def _head(kind, **options):
  """A head that begins with its target's parameters, moved at random."""
  config = heads.configure(kind, _TARGET, **options)
  params = heads.begin(jax.random.key(2), config, _TARGET, _target()[1])
  own = heads.own(config, params)
  return heads.functions(config), {**params, **_random(3, own, 0.2)}


_DRAFTERS = {
  'eagle chain': lambda sampling: (
    'eagle',
    drafters.feature_head(_head('eagle')[0], trees.chain(3), sampling),
  ),
  'eagle tree': lambda sampling: (
    'eagle',
    drafters.feature_head(_head('eagle')[0], _TREE, sampling),
  ),
  'eagle3 tree': lambda sampling: (
    'eagle3',
    drafters.feature_head(_head('eagle3')[0], _TREE, sampling),
  ),
  'dynamic tree': lambda sampling: (
    'eagle',
    drafters.dynamic_tree(_head('eagle')[0], 5, 3, beam=2),
  ),
  'eagle chain in a window': lambda sampling: (
    'eagle',
    drafters.windowed(
      drafters.feature_head(_head('eagle')[0], trees.chain(3), sampling)
    ),
  ),
  'eagle chain that reads late': lambda sampling: (
    'eagle',
    drafters.deferred(
      drafters.feature_head(_head('eagle')[0], trees.chain(3), sampling)
    ),
  ),
  'medusa chain': lambda sampling: (
    'medusa',
    drafters.medusa(_head('medusa')[0], trees.chain(3), sampling),
  ),
  'medusa tree': lambda sampling: (
    'medusa',
    drafters.medusa(_head('medusa')[0], _TREE, sampling),
  ),
}


# One of each kind of state.
_REFILLED = (
  *('eagle chain', 'dynamic tree'),
  *('eagle chain in a window', 'medusa tree'),
)


def _arm(name, sampling, verifier=None):
  kind, drafter = _DRAFTERS[name](sampling)
  verifier = verifier or verifiers.default(
    sampling.temperature, drafter.topology.width, drafter.own_probs
  )
  return base.Arm(drafter, verifiers.resolve(verifier)), _head(kind)[1]


def _decoder(names, sampling=_GREEDY, **options):
  """A decoder of heads; 'none' drafts nothing."""
  nothing = base.Arm(drafters.none(), verifiers.resolve('greedy')), None
  arms = [nothing if name == 'none' else _arm(name, sampling) for name in names]
  return decoding.Decoder(
    *_target(), arms, sampling=sampling, max_length=64, **options
  )


@pytest.mark.parametrize('name', _DRAFTERS)
def test_greedy_tokens_are_those_of_plain_decoding(name):
  """Rows that are refilled forget who was there: they take as many rounds."""
  prompts = [[1], [2] * 5, [2, 1], PROMPT, [0, 1, 2, 2, 1, 0, 0]]
  news = [24, 3, 24, 24, 24]
  decoder = _decoder([name])
  results = decoder.decode(prompts, news)
  plain = _decoder(['none']).decode(prompts, news)
  assert [r.tokens for r in results] == [r.tokens for r in plain]
  assert sum(r.rounds for r in results) < sum(r.rounds for r in plain)
  if name in _REFILLED:
    many = list(decoder.decode_many(prompts, news, batch_size=2))
    assert [r.tokens for r in many] == [r.tokens for r in plain]
    assert [r.rounds for r in many] == [r.rounds for r in results]


@pytest.mark.parametrize('name', _DRAFTERS)
def test_the_loop_samples_the_target(name):
  decoder = _decoder([name], sampling_lib.Sampling(0.8))
  assert distributions.chi_square(_emitted(decoder), _want(0.8)) > 1e-4


@pytest.mark.parametrize(
  ('verifier', 'least', 'most'),
  [
    ('ensemble', 0.0, 0.006),
    ('distinct', 0.0, 0.006),
    ('multiround', 0.15, 1.0),
  ],
)
def test_distinct_siblings_need_their_own_probabilities(verifier, least, most):
  """All pairs of siblings; with the first one's distribution, it is wrong."""
  target, draft = jnp.array([[0.34, 0.33, 0.33], [0.8, 0.15, 0.05]])
  topology, num_keys = trees.chains(2, 1), 2**17
  walk = verifiers.resolve(verifier)
  total = np.zeros(3)
  for first, second in itertools.permutations(range(3), 2):
    left = draft.at[first].set(0.0) / (1 - draft[first])
    tree = base.DraftTree(
      jnp.array([first, second], jnp.int32),
      topology,
      jnp.ones(2, bool),
      jnp.stack([draft, left]),
    )
    keys = jax.random.split(jax.random.key(3 * first + second), num_keys)
    round_ = lambda key, tree=tree: walk(key, tree, jnp.stack([target] * 3))
    tokens = jax.jit(jax.vmap(round_))(keys).tokens[:, 0]
    weight = float(draft[first] * left[second])
    total += weight * np.bincount(tokens, minlength=3) / num_keys
  assert least <= np.abs(total - np.asarray(target)).sum() / 2 <= most


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_siblings_are_different_and_have_what_is_left(temperature):
  sampling = sampling_lib.Sampling(temperature)
  logits = jnp.log(jnp.array([[[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]]]))
  plan = growth.Growth(_TREE, sampling, 2)
  above = growth.predict(plan, logits)
  row = np.array([0, 1, 0, 0, 0])
  uniforms = jax.random.uniform(jax.random.key(5), (1, 5, 1))
  tokens, probs, exists = siblings.draw(
    uniforms, above.logits, above.probs.processed, row, sampling
  )
  assert exists.tolist() == [[True, True, True, True, False]]
  first = [int(token) for token in tokens[0, [0, 2, 3]]]
  assert sorted(first) == [0, 1, 2]
  left = np.array([0.5, 0.3, 0.2, 0.0])
  if not temperature:
    assert probs is None
    assert first == [0, 1, 2] and tokens[0, 1] == 3
    return
  for node, token in zip((0, 2, 3), first):
    np.testing.assert_allclose(probs[0, node], left / left.sum(), rtol=1e-5)
    left[token] = 0


def _emitted(decoder):
  results = decoder.decode([PROMPT] * ROWS, LENGTH, seed=13)
  assert sum(result.accepted.sum() for result in results) > ROWS / 2
  return np.array([result.tokens for result in results])


@functools.cache
def _want(temperature):
  """The exact distribution of what follows the prompt, by all its forms."""
  model, params = _target()
  every = np.array(list(itertools.product(range(3), repeat=LENGTH)), np.int32)
  rows = np.concatenate([np.tile(PROMPT, (len(every), 1)), every], axis=1)
  logits = model.extend(params, None, jnp.asarray(rows, jnp.int32)).logits
  logs = jax.nn.log_softmax(logits[:, len(PROMPT) - 1 : -1] / temperature)
  chosen = jnp.take_along_axis(logs, jnp.asarray(every)[..., None], axis=-1)
  return np.exp(np.asarray(chosen[..., 0].sum(-1), np.float64))


@pytest.mark.parametrize('name', _DRAFTERS)
def test_what_a_head_has_read_is_what_it_would_read_at_once(name):
  """A tree in the loop, behind others' rounds, is that of a fresh state."""
  sampling, others = _GREEDY, ['none', 'eagle chain', name]
  decoder = _decoder(others, bandit=specjax.BANDITS['round_robin'](3))
  state = decoder.init([PROMPT, [1], [0, 2, 2, 1, 0]], 40)
  state, info = decoding.trace(decoder.round_fn, decoder.params, state, 7)
  assert info.arm[-1, 0] == 0
  arm, params = _arm(name, sampling)
  drafter = arm.drafter
  context = base.Context(
    state.tokens,
    state.lengths,
    tuple(state.features[tap % 6] for tap in drafter.taps),
  )
  model, target = _target()
  extension = jax.jit(model.extend)(target, None, state.tokens)
  whole = base.Context(
    state.tokens,
    state.lengths,
    tuple(extension.features[tap] for tap in drafter.taps),
  )
  keys = jax.random.split(jax.random.key(4), 3)
  own = state.drafters[decoder.round_fn.slots.of_arms[2]]
  fresh = jax.jit(drafter.init, static_argnums=2)(params, whole, 64)
  if drafter.catch_up is not None:
    read = jax.jit(drafter.catch_up.read)
    own, fresh = (
      read(params, each, seen, jnp.ones(3, bool))[0]
      for each, seen in ((own, context), (fresh, whole))
    )
  draft = jax.jit(drafter.draft)
  tree, _ = draft(keys, params, own, context)
  again, _ = draft(keys, params, fresh, whole)
  np.testing.assert_array_equal(tree.tokens, again.tokens)
  np.testing.assert_array_equal(tree.valid, again.valid)
  assert again.valid.all()


@pytest.mark.parametrize(('lag', 'width'), [(1, 3), (3, 3), (4, 8)])
def test_a_head_reads_as_many_pairs_as_its_own_rounds_leave(lag, width):
  """Those of 2 levels; more only where it lags behind others' rounds."""
  head, params = _head('eagle')
  read = []

  def extend(params, cache, tokens, *args, **options):
    jax.debug.callback(lambda: read.append(tokens.shape[1]))
    return head.extend(params, cache, tokens, *args, **options)

  drafter = drafters.feature_head(head._replace(extend=extend), trees.chain(2))
  tokens = jnp.zeros((1, 20), jnp.int32)
  features = (jnp.ones((1, 20, head.feature_size)),)
  now = base.Context(tokens, jnp.array([12]), features)
  state = drafter.init(params, now._replace(lengths=jnp.array([13 - lag])), 20)
  jax.effects_barrier()
  read.clear()
  drafter.draft(jax.random.split(jax.random.key(0), 1), params, state, now)
  jax.effects_barrier()
  assert read == [width, 1]


def test_a_head_far_behind_reads_sinks_and_a_window():
  """It drafts as if there were no pairs between them, each pair a true one."""
  sinks, window = 2, 12
  (model, target), (head, params) = _target(), _head('eagle')
  inner = drafters.feature_head(head, trees.chain(1))
  drafter = drafters.windowed(inner, sinks, window)
  tokens = jax.random.randint(jax.random.key(5), (2, 48), 0, 3)
  features = jax.jit(model.extend)(target, None, tokens).features
  context = base.Context(
    tokens, jnp.array([6, 9]), tuple(features[tap] for tap in drafter.taps)
  )
  state = jax.jit(drafter.init, static_argnums=2)(params, context, 64)
  lengths = np.array([30, 41])
  context = context._replace(lengths=jnp.asarray(lengths))
  state, num = jax.jit(drafter.catch_up.read)(
    params, state, context, jnp.ones(2, bool)
  )
  assert (0 < num).all() and (num <= window).all()
  keys = jax.random.split(jax.random.key(4), 2)
  tree, _ = jax.jit(drafter.draft)(keys, params, state, context)
  inputs = head.fuse(params, context.features)
  extend = jax.jit(head.extend)
  for row, length in enumerate(lengths):
    pairs = np.r_[:sinks, length - 1 - window : length - 1]
    outputs, _ = extend(
      params, None, tokens[row][None, pairs + 1], inputs[row][None, pairs]
    )
    probs = jax.nn.softmax(head.predict(params, outputs[:, -1:]))
    np.testing.assert_allclose(tree.raw_probs[row, 0], probs[0, 0], atol=1e-6)


def test_drafts_of_one_head_share_its_cache():
  """Chains, static and dynamic trees; and rounds of one serve the others."""
  names = ['eagle chain', 'eagle tree', 'dynamic tree']
  decoder = _decoder(names, bandit=specjax.BANDITS['round_robin'](3))
  prompts = [PROMPT, [1], [0, 2, 2, 1, 0]]
  assert len(decoder.init(prompts, 24).drafters) == 1
  results = decoder.decode(prompts, 24)
  plain = _decoder(['none']).decode(prompts, 24)
  assert [r.tokens for r in results] == [r.tokens for r in plain]
  assert not sum(r.num_catch_up_tokens for r in results)


@pytest.mark.parametrize('temperature', [0.0, 0.8])
def test_a_tree_of_different_siblings_may_stop(temperature):
  sampling = sampling_lib.Sampling(temperature)
  head, params = _head('eagle')
  drafter = drafters.feature_head(
    head, _TREE, sampling, stop=drafters.STOPS['unsure'](0.5)
  )
  name = verifiers.default(temperature, 2, drafter.own_probs)
  arm = base.Arm(drafter, verifiers.resolve(name)), params
  decoder = decoding.Decoder(
    *_target(), [arm], sampling=sampling, max_length=64
  )
  if temperature:
    emitted = [r.tokens for r in decoder.decode([PROMPT] * ROWS, LENGTH)]
    assert distributions.chi_square(np.array(emitted), _want(0.8)) > 1e-4
    return
  prompts = [[first, second] for first in range(3) for second in range(3)]
  results = decoder.decode(prompts, 24)
  plain = _decoder(['none']).decode(prompts, 24)
  assert [r.tokens for r in results] == [r.tokens for r in plain]
  drafted = sum(result.drafted for result in results)
  assert 0 < drafted[1] < drafted[0]


def test_a_dynamic_tree_is_that_of_the_algorithm():
  """As EAGLE-2 describes it, path by path, without a cache."""
  config = heads.configure('eagle', dataclasses.replace(_TARGET, vocab_size=7))
  head = heads.functions(config)
  params = _random(6, adapters.init_params(jax.random.key(7), config))
  tokens = jnp.array([[3, 1, 4, 1, 5]], jnp.int32)
  features = jax.random.normal(jax.random.key(8), (1, 4, 8))
  num_nodes, depth, beam = 6, 3, 2
  drafter = drafters.dynamic_tree(head, num_nodes, depth, beam=beam)
  context = base.Context(
    tokens, jnp.array([5]), (jnp.pad(features, ((0, 0), (0, 1), (0, 0))),)
  )
  state = jax.jit(drafter.init, static_argnums=2)(params, context, 16)
  keys = jax.random.split(jax.random.key(0), 1)
  tree, _ = jax.jit(drafter.draft)(keys, params, state, context)
  log_probs_of = jax.jit(functools.partial(_log_probs, head))
  likeliest = lambda path, num: _largest(
    log_probs_of(params, tokens, features, jnp.array(path, jnp.int32)), num
  )
  level = [((), 0.0)]
  ranked = []
  for _ in range(depth):
    below = [
      ((*path, token), score + own)
      for path, score in level
      for token, own in likeliest(path, beam)
    ]
    ranked += below
    level = sorted(below, key=lambda each: -each[1])[:beam]
  ranked.sort(key=lambda each: -each[1])
  want = {path for path, _ in ranked[:num_nodes]}
  parents = np.asarray(tree.topology.parents[0])
  paths = []
  for node, parent in enumerate(parents):
    above = paths[parent] if parent >= 0 else ()
    paths.append((*above, int(tree.tokens[0, node])))
  assert tree.valid.all() and tree.topology.is_valid.all()
  assert set(paths) == want
  for node, (*above, token) in enumerate(paths):
    log_probs = dict(likeliest(tuple(above), 7))
    found = jnp.log(tree.raw_probs[0, node, token])
    np.testing.assert_allclose(found, log_probs[token], rtol=1e-4, atol=1e-5)


def _log_probs(head, params, tokens, features, path):
  """`[V]` of the token behind a path, without a cache."""
  inputs = head.fuse(params, (features,))
  for i in range(len(path) + 1):
    read = jnp.concatenate([tokens[:, 1:], path[None, :i]], axis=1)
    outputs, _ = head.extend(params, None, read, inputs)
    inputs = jnp.concatenate([inputs, outputs[:, -1:]], axis=1)
  return jax.nn.log_softmax(head.predict(params, outputs[:, -1:])[0, 0])


def _largest(log_probs, num):
  """The likeliest tokens, and their log-probabilities."""
  best = np.argsort(-np.asarray(log_probs), kind='stable')[:num]
  return [(int(token), float(log_probs[token])) for token in best]


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: heads.configure('hydra', _TARGET), 'Unknown kind of head'),
    (
      lambda: heads.configure('eagle', _TARGET, taps=(9,)),
      r'taps must lie in \[-6, 5\] for a target of 5 layers, got \(9,\)',
    ),
    (
      lambda: heads.configure('eagle', _TARGET, taps=(1, 2)),
      r'taps of eagle must be one feature, got \(1, 2\)',
    ),
    (
      lambda: heads.configure('eagle', _TARGET, head_size=4),
      r'head_size must lie in \[1, 3\]',
    ),
    (
      lambda: drafters.medusa(_head('medusa')[0], trees.chain(5)),
      'depth from 1 to 4, as there are 4 heads, got 5',
    ),
    (
      lambda: drafters.windowed(
        drafters.medusa(_head('medusa')[0], trees.chain(2))
      ),
      'drafter must be one that can forget what it has read',
    ),
    (
      lambda: drafters.dynamic_tree(_head('eagle')[0], 5, 3),
      r'beam must lie in \[1, 3\], got 10',
    ),
    (
      lambda: drafters.dynamic_tree(_head('eagle')[0], 99, 2, beam=2),
      r'num_nodes must lie in \[1, 6\], got 99',
    ),
  ],
)
def test_bad_heads_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.parametrize('size', [0.01, 1.0])
def test_a_new_head_reads_tokens_and_features_alike(size):
  """However small the target's embeddings are; the feature itself besides."""
  wide = dataclasses.replace(_TARGET, d_model=256, vocab_size=64)
  params = adapters.init_params(jax.random.key(0), wide)
  params['embedding'] = jax.tree.map(lambda x: size * x, params['embedding'])
  config = heads.configure('eagle', wide)
  begun = heads.begin(jax.random.key(1), config, wide, params)
  of_tokens, of_features = np.split(np.asarray(begun['join']['kernel']), 2)
  root_mean_square = lambda x: np.sqrt(np.square(x).mean())
  table = np.asarray(params['embedding']['embedding'])
  features = np.random.default_rng(0).normal(size=(64, 256))
  random = features @ (of_features - np.eye(256))
  assert 0 < root_mean_square(random) < 0.5
  assert root_mean_square(table @ of_tokens) == pytest.approx(
    root_mean_square(random), rel=0.1
  )


def test_the_head_of_another_target_is_refused():
  config, (_, params) = heads.configure('eagle', _TARGET), _target()
  own = dataclasses.replace(config, target=heads.fingerprint(params))
  heads.check_target('a', own, _TARGET, params)
  other = _random(9, params)
  with pytest.raises(ValueError, match='has the fingerprint'):
    heads.check_target('a', own, _TARGET, other)
  wider = dataclasses.replace(_TARGET, d_model=16)
  with pytest.raises(ValueError, match='its d_model is 8, .* is 16'):
    heads.check_target('a', config, wider, params)
  with pytest.raises(ValueError, match='features of size 8'):
    decoding.Decoder(
      adapters.transformer(wider), None, [_arm('eagle chain', _GREEDY)]
    )
  markov = specjax.MODELS['markov'](3)
  with pytest.raises(ValueError, match='features of a target that has none'):
    decoding.Decoder(markov, None, [_arm('eagle chain', _GREEDY)])


def test_parameters_that_a_head_shares_are_the_targets(tmp_path):
  """In memory and on disk; a reduced head is made of the target's."""
  model, target = _target()
  config = heads.configure('eagle', _TARGET, head_size=2)
  params = heads.begin(jax.random.key(2), config, _TARGET, target, [0, 2])
  assert params['embedding']['embedding'] is target['embedding']['embedding']
  path = tmp_path / 'head.safetensors'
  checkpoint.save(path, config, heads.own(config, params), np.float32)
  again, loaded = checkpoint.load(path, target)
  assert again == config
  jax.tree.map(np.testing.assert_array_equal, loaded, params)
  outputs = jax.random.normal(jax.random.key(3), (1, 1, 8))
  logits = heads.functions(config).predict(params, outputs)[0, 0]
  table = target['embedding']['embedding']
  np.testing.assert_allclose(
    logits[jnp.array([0, 2])], table[jnp.array([0, 2])] @ outputs[0, 0],
    rtol=1e-5,
  )  # fmt: skip
  assert logits[1] == -np.inf


def test_an_early_exit_reads_the_first_layers():
  """With the target's parameters; with all layers, all drafts are kept."""
  model, params = _target()
  tokens = jnp.array([[2, 0, 1, 1]], jnp.int32)
  part = cutting.keep_layers(_TARGET, params, (0, 1))
  extend = jax.jit(adapters.transformer(part[0]).extend)
  wanted = extend(part[1], None, tokens).logits
  got = jax.jit(model.exit(2).extend)(params, None, tokens).logits
  np.testing.assert_array_equal(got, wanted)
  results = []
  for num in (2, 5):
    drafter = drafters.early_exit(
      model, trees.chain(3), _GREEDY, num_layers=num
    )
    arm = base.Arm(drafter, verifiers.resolve('greedy'))
    decoder = decoding.Decoder(
      model, params, [(arm, params)], sampling=_GREEDY, max_length=64
    )
    results += decoder.decode([PROMPT], 24)
  assert results[0].tokens == results[1].tokens
  assert results[0].rounds > results[1].rounds == 6
  with pytest.raises(ValueError, match=r'num_layers must lie in \[1, 5\]'):
    drafters.early_exit(model, trees.chain(3), num_layers=6)
  markov = specjax.MODELS['markov'](3)
  with pytest.raises(ValueError, match='a model that can be left early'):
    drafters.early_exit(markov, trees.chain(3), num_layers=1)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['eagle chain', 'eagle tree', 'dynamic tree'])
def test_no_cache_is_copied_in_the_loop(name):
  """Neither the target's nor the head's, where they take turns with nothing."""
  decoder = _decoder([name, 'none'], bandit=specjax.BANDITS['ucb1'](2))
  state = decoder.init([PROMPT] * 2, 20)
  lowered = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  compiled = xla.compile_as_usual(lowered)
  assert not drivers_test.cache_copies(compiled, state)
