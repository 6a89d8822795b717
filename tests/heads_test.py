"""Heads on a target's features: what they draft is exact, and well aligned."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import specjax
from specjax import base
from specjax import components
from specjax import decoding
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.drafters import siblings
from specjax.drafters import tree_drafting
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import heads
from specjax.models import loading
from specjax.testing import distributions
from tests import arms
from tests import sizes
from tests import tiers
from tests.decoding import drivers_test

_TARGET = config_lib.TransformerConfig(
  vocab_size=3,
  num_layers=3,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
)
_DRAFT = dataclasses.replace(_TARGET, num_layers=1)
_GREEDY = sampling_lib.Sampling(0.0)
_TREE = trees.Topology((-1, -1, 0, 0, 1, 2))
PROMPT, LENGTH, ROWS = [2, 0, 1], 3, 8000


def _random(key, params, scale=0.4):
  """Far from all alike, as trained models are."""
  leaves, structure = jax.tree.flatten(params)
  keys = jax.random.split(jax.random.key(key), len(leaves))

  @jax.jit
  def moved(keys, leaves):
    return [
      leaf + scale * jax.random.normal(key, leaf.shape, leaf.dtype)
      for key, leaf in zip(keys, leaves)
    ]

  return structure.unflatten(moved(list(keys), leaves))


@functools.cache
def _target():
  params = _random(1, flax_modules.init_params(jax.random.key(0), _TARGET))
  return adapters.Transformer(_TARGET), params


@functools.cache
def _head(kind, **options):
  """Returns a head whose parameters are the target's, moved at random."""
  if kind == 'dflash':
    options = {'markov_rank': 2, **options}
  config = heads.configure(kind, _TARGET, **options)
  params = heads.begin(jax.random.key(2), config, _TARGET, _target()[1])
  head_params = heads.own_params(config, params)
  return heads.head(config), {**params, **_random(3, head_params, 0.2)}


def _eagle(*args, kind='eagle', **options):
  return kind, drafters.FeatureHeadDrafter(_head(kind)[0], *args, **options)


def _medusa(*args):
  return 'medusa', drafters.Medusa(_head('medusa')[0], *args)


def _block(*args):
  return 'dflash', drafters.BlockHeadDrafter(_head('dflash')[0], *args)


@functools.cache
def _draft_params():
  """Returns parameters of a model that rescores, which has one layer."""
  params = flax_modules.init_params(jax.random.key(4), _DRAFT)
  return _random(5, params)


def _rescored(*args, **options):
  model = adapters.Transformer(_DRAFT)
  head, _ = _head('medusa')
  return 'rescored', drafters.Rescored(head, model, *args, top=2, **options)


def _changed(change, head):
  kind, drafter = head
  return kind, change(drafter)


_CHAIN = trees.chain(3)
_DRAFTERS = {
  'eagle chain': lambda sampling: _eagle(_CHAIN, sampling),
  'eagle tree': lambda sampling: _eagle(_TREE, sampling),
  'eagle tree that may stop': lambda sampling: _eagle(
    _TREE, sampling, stop=drafters.Unsure(0.3)
  ),
  'eagle3 tree': lambda sampling: _eagle(_TREE, sampling, kind='eagle3'),
  'dynamic tree': lambda sampling: (
    'eagle',
    drafters.DynamicTree(_head('eagle')[0], 5, 3, beam=2),
  ),
  'eagle chain in a window': lambda sampling: _changed(
    drafters.Windowed, _eagle(_CHAIN, sampling)
  ),
  'eagle chain that reads late': lambda sampling: _changed(
    drafters.Deferred, _eagle(_CHAIN, sampling)
  ),
  'medusa tree': lambda sampling: _medusa(_TREE, sampling),
  'block tree': lambda sampling: _block(_TREE, sampling),
  'rescored tree': lambda sampling: _rescored(_TREE, sampling),
  'rescored tree that may stop': lambda sampling: _rescored(
    _TREE, sampling, stop=drafters.Unsure(0.3)
  ),
}
_PROMPTS = [[1], [2] * 5, [0, 1, 2, 2, 1, 0, 0], PROMPT]


def _arm(name, sampling):
  """An arm and its parameters; 'none' drafts nothing."""
  if name == 'none':
    verifier = verifiers.default(sampling.temperature)
    return base.Arm(drafters.NoDrafter(), verifiers.resolve(verifier)), None
  kind, drafter = _DRAFTERS[name](sampling)
  if kind == 'rescored':
    params = _head('medusa')[1], _draft_params()
  else:
    params = _head(kind)[1]
  verifier = verifiers.default(
    sampling.temperature, drafter.topology.width, drafter.siblings
  )
  return base.Arm(drafter, verifiers.resolve(verifier)), params


def _decoder(names, sampling=_GREEDY, **options):
  """A decoder of heads whose bandit selects the arms of its state in turn."""
  return decoding.Decoder(
    *_target(),
    [_arm(name, sampling) for name in names],
    sampling=sampling,
    bandit=arms.Cycling(len(names)),
    max_length=sizes.BUFFER,
    **options,
  )


# Heads and plain decoding are arms of one decoder, and so one program.
_HEADS = (
  *('eagle chain', 'eagle tree that may stop', 'eagle3 tree', 'dynamic tree'),
  *('eagle chain in a window', 'eagle chain that reads late', 'medusa tree'),
  'block tree',
  'rescored tree that may stop',
)
_ALL = (*_HEADS, 'none')
_OF_EACH_KIND = (
  *('eagle chain', 'eagle3 tree', 'dynamic tree', 'medusa tree'),
  'block tree',
)
_SHARING = 'eagle chain', 'eagle tree that may stop', 'dynamic tree'


@functools.cache
def _played():
  """Returns a decoder, results of interleaved arms, and the final state."""
  decoder = _decoder(_ALL)

  def decode(num, *selected):
    start = decoder.init(
      _PROMPTS, num, bandit_state=arms.cycle(len(_ALL), *selected)
    )
    state = decoding.decode(decoder.round_fn, decoder.params, start)
    return state, decoder.results(_PROMPTS, state)

  results_of = {(name,): decode(24, i)[1] for i, name in enumerate(_ALL)}
  results_of[_SHARING] = decode(24, *map(_ALL.index, _SHARING))[1]
  state, results = decode(40, *range(len(_ALL)))
  plain = _decoder(['none']).decode(_PROMPTS, 40)
  assert arms.tokens(results) == arms.tokens(plain)
  assert (sum(result.pulls for result in results) > 0).all()
  return decoder, results_of, state


@pytest.mark.parametrize('name', _HEADS)
def test_greedy_tokens_are_those_of_plain_decoding(name):
  _, results_of, _ = _played()
  results, plain = results_of[name,], results_of['none',]
  assert arms.tokens(results) == arms.tokens(plain)
  assert all(result.rounds == 24 for result in plain)
  assert sum(result.rounds for result in results) < 24 * len(plain)
  if name.endswith('stop'):
    drafted = sum(result.drafted for result in results)
    assert 0 < drafted[1] < drafted[0]


@pytest.mark.slow
def test_tokens_by_shared_noise_are_those_of_plain_decoding():
  """Draws with the noise that each position has for the target as well."""
  shared = sampling_lib.Sampling(shared_noise=True)
  names = 'eagle tree', 'medusa tree', 'block tree', 'rescored tree'
  results = _decoder(names, shared).decode(_PROMPTS, 24, seed=4)
  plain = _decoder(['none'], shared).decode(_PROMPTS, 24, seed=4)
  assert arms.tokens(results) == arms.tokens(plain)
  pulls = sum(result.pulls for result in results)
  accepted = sum(result.accepted.sum() for result in results)
  assert (pulls > 0).all() and accepted > 0


@pytest.mark.slow
@pytest.mark.parametrize(
  ('target_dtype', 'head_dtype'),
  [('float32', 'bfloat16'), ('bfloat16', 'float32')],
)
def test_a_head_computes_in_its_type_whatever_that_of_its_target(
  target_dtype, head_dtype
):
  model, target_params = _target()
  in_dtype = functools.partial(loading.in_dtype, dtype=head_dtype)
  pairs = []
  for name in _OF_EACH_KIND:
    arm, params = _arm(name, _GREEDY)
    head = dataclasses.replace(arm.drafter.head, dtype=head_dtype)
    drafter = dataclasses.replace(arm.drafter, head=head)
    head_params = jax.tree.map(in_dtype, heads.own_params(head.config, params))
    pairs.append((arm._replace(drafter=drafter), {**params, **head_params}))
  plain, spec = (
    decoding.Decoder(
      dataclasses.replace(model, dtype=target_dtype),
      jax.tree.map(lambda leaf: leaf.astype(target_dtype), target_params),
      pairs,
      sampling=_GREEDY,
      bandit=arms.Cycling(len(pairs)),
      max_length=sizes.BUFFER,
    )
    for pairs in ([_arm('none', _GREEDY)], pairs)
  )
  state = spec.init(_PROMPTS, 24)
  types = {
    leaf.dtype
    for leaf in jax.tree.leaves(state.drafters)
    if jnp.issubdtype(leaf.dtype, jnp.floating)
  }
  assert types == {jnp.dtype(head_dtype)}
  results = spec.results(
    _PROMPTS, decoding.decode(spec.round_fn, spec.params, state)
  )
  assert arms.tokens(results) == arms.tokens(plain.decode(_PROMPTS, 24))
  assert sum(result.accepted.sum() for result in results) > 0


@pytest.mark.parametrize(
  'names',
  [
    ('eagle chain in a window',),
    ('eagle chain', 'medusa tree', 'block tree', 'rescored tree'),
  ],
  ids=['window', 'others'],
)
@pytest.mark.slow
def test_rows_that_are_refilled_forget_who_was_there(names):
  """They take as many rounds; with a head of each kind of state."""
  decoder, news = _decoder(names), [24, 3, 24, 24]
  for arm in range(len(names)):
    selected = {'bandit_state': arms.cycle(len(names), arm)}
    results = decoder.decode(_PROMPTS, news, **selected)
    batched = list(
      decoder.decode_many(
        _PROMPTS, news, batch_size=2, queue_size=4, **selected
      )
    )
    assert arms.tokens(batched) == arms.tokens(results)
    assert [r.rounds for r in batched] == [r.rounds for r in results]


@pytest.mark.slow
@pytest.mark.parametrize(
  'names',
  [
    ('eagle tree that may stop',),
    (
      *('eagle chain', 'eagle3 tree', 'dynamic tree', 'medusa tree'),
      *('eagle chain in a window', 'eagle chain that reads late'),
      'block tree',
      'rescored tree',
    ),
  ],
  ids=['tree', 'others'],
)
def test_the_loop_samples_the_target(names):
  decoder = _decoder(names, sampling_lib.Sampling(0.8))
  for i, name in enumerate(names):
    emitted = _emitted(decoder, arms.cycle(len(names), i))
    assert distributions.chi_square(emitted, _want(0.8)) > 1e-4, name


@pytest.mark.parametrize(
  ('verifier', 'least', 'most'),
  tiers.cases(
    [('ensemble', 0.0, 0.006), ('multiround', 0.15, 1.0)],
    ('ensemble', 0.0, 0.006),
  ),
)
def test_distinct_siblings_need_their_own_probabilities(verifier, least, most):
  """Covers all pairs; using the first one's distribution for both is wrong."""
  target, draft = np.float32([[0.34, 0.33, 0.33], [0.8, 0.15, 0.05]])
  topology, num_keys = trees.chains(2, 1), 2**17
  walk = verifiers.resolve(verifier)

  @jax.jit
  def first_tokens(keys, siblings, probs):
    tree = base.DraftTree(siblings, topology, jnp.ones(2, bool), probs)
    round_ = lambda key: walk(key, tree, jnp.asarray([target] * 3))
    return jax.vmap(round_)(keys).tokens[:, 0]

  total = np.zeros(3)
  for first, second in itertools.permutations(range(3), 2):
    residual = draft / (1 - draft[first])
    residual[first] = 0.0
    keys = jax.random.split(jax.random.key(3 * first + second), num_keys)
    siblings = np.int32([first, second])
    tokens = first_tokens(keys, siblings, np.stack([draft, residual]))
    weight = float(draft[first] * residual[second])
    total += weight * np.bincount(tokens, minlength=3) / num_keys
  assert least <= np.abs(total - target).sum() / 2 <= most


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_siblings_are_different_and_have_what_is_left(temperature):
  sampling = sampling_lib.Sampling(temperature)
  logits = jnp.log(jnp.array([[[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]]]))

  @jax.jit
  def draw(key):
    above = tree_drafting.predict(logits, sampling)
    row = np.array([0, 1, 0, 0, 0])
    uniforms = jax.random.uniform(key, (1, 5, 1))
    return siblings.draw(
      uniforms, above.logits, above.probs.processed, row, sampling
    )

  tokens, probs, exists = draw(jax.random.key(5))
  assert exists.tolist() == [[True, True, True, True, False]]
  first = [int(token) for token in tokens[0, [0, 2, 3]]]
  assert sorted(first) == [0, 1, 2]
  residual = np.array([0.5, 0.3, 0.2, 0.0])
  if not temperature:
    assert probs is None
    assert first == [0, 1, 2] and tokens[0, 1] == 3
    return
  for node, token in zip((0, 2, 3), first):
    np.testing.assert_allclose(
      probs[0, node], residual / residual.sum(), rtol=1e-5
    )
    residual[token] = 0


def _emitted(decoder, selected):
  results = decoder.decode(
    [PROMPT] * ROWS, LENGTH, seed=13, bandit_state=selected
  )
  assert sum(result.accepted.sum() for result in results) > ROWS / 2
  return np.array([result.tokens for result in results])


@functools.cache
def _want(temperature):
  """The exact distribution of what follows the prompt, by all its forms."""
  model, params = _target()
  every = np.array(list(itertools.product(range(3), repeat=LENGTH)), np.int32)
  rows = np.concatenate([np.tile(PROMPT, (len(every), 1)), every], axis=1)
  output = jax.jit(model.extend)(params, None, rows.astype(np.int32))
  logits = np.asarray(output.logits, np.float64)[:, len(PROMPT) - 1 : -1]
  logs = special.log_softmax(logits / temperature, axis=-1)
  chosen = np.take_along_axis(logs, every[..., None], axis=-1)
  return np.exp(chosen[..., 0].sum(-1))


@functools.cache
def _whole_text():
  """The target's output for the final texts, by one call without a cache."""
  model, params = _target()
  _, _, state = _played()
  return jax.jit(model.extend)(params, None, state.tokens)


@pytest.mark.parametrize(
  'name', tiers.cases(_HEADS, 'dynamic tree', 'eagle chain in a window')
)
def test_what_a_head_has_read_is_what_it_would_read_at_once(name):
  """A tree in the loop, after others' rounds, is that of a fresh state."""
  decoder, _, state = _played()
  output = _whole_text()
  arm, params = _arm(name, _GREEDY)
  drafter = arm.drafter
  context = base.Context(
    state.tokens,
    state.lengths,
    tuple(state.features[tap % 4] for tap in drafter.taps),
  )
  whole = context._replace(
    features=tuple(output.features[tap] for tap in drafter.taps)
  )
  keys = jax.random.split(jax.random.key(4), len(_PROMPTS))
  slot = decoder.round_fn.slot_of_arm[_ALL.index(name)]

  @jax.jit
  def drafted(params, drafter_state, context):
    if drafter.can_catch_up:
      rows = jnp.ones(len(_PROMPTS), bool)
      drafter_state, _ = drafter.catch_up(params, drafter_state, context, rows)
    return drafter.draft(keys, params, drafter_state, context)[0]

  fresh = jax.jit(drafter.init, static_argnums=2)(params, whole, sizes.BUFFER)
  tree = drafted(params, state.drafters[slot], context)
  fresh_tree = drafted(params, fresh, whole)
  np.testing.assert_array_equal(tree.tokens, fresh_tree.tokens)
  np.testing.assert_array_equal(tree.valid, fresh_tree.valid)
  assert fresh_tree.valid.all() or name.endswith('stop')


def test_a_head_reads_as_many_pairs_as_its_own_rounds_leave():
  """Reads the pairs of 2 levels; more only after rounds of other drafters."""
  head, params = _head('eagle')
  read = []

  @components.component
  class Recorded(heads.EagleHead):
    def extend(self, params, cache, tokens, *args, **options):
      count = lambda: read.append(tokens.shape[1])
      jax.debug.callback(count, ordered=True)
      return super().extend(params, cache, tokens, *args, **options)

  drafter = drafters.FeatureHeadDrafter(Recorded(head.config), trees.chain(2))
  tokens = jnp.zeros((1, 20), jnp.int32)
  features = (jnp.ones((1, 20, head.feature_size)),)
  init = jax.jit(drafter.init, static_argnums=2)
  draft = jax.jit(drafter.draft)
  keys = jax.random.split(jax.random.key(0), 1)
  context = base.Context(tokens, jnp.array([12]), features)
  for lag, width in ((1, 3), (3, 3), (4, 8)):
    state = init(params, context._replace(lengths=jnp.array([13 - lag])), 20)
    jax.effects_barrier()
    read.clear()
    draft(keys, params, state, context)
    jax.effects_barrier()
    assert read == [width, 1]


@pytest.mark.parametrize('lag', tiers.cases([1, 3, 5], 5))
def test_pairs_that_are_read_in_vain_change_no_draft(lag, monkeypatch):
  """Covers accelerators, which read a fixed number of pairs at any lag."""
  head, params = _head('eagle')
  drafter = drafters.FeatureHeadDrafter(head, trees.chain(2))
  draw = np.random.default_rng(0)
  tokens = jnp.asarray(draw.integers(0, 3, (2, 24)), jnp.int32)
  features = draw.normal(size=(2, 24, head.feature_size)).astype(np.float32)
  context = base.Context(tokens, jnp.array([12, 9]), (jnp.asarray(features),))
  prefix = context._replace(lengths=context.lengths + 1 - jnp.array([lag, 1]))
  state = jax.jit(drafter.init, static_argnums=2)(params, prefix, 24)
  keys = jax.random.split(jax.random.key(0), 2)
  outcome = base.Outcome(*np.zeros((3, 2, 3), np.int32))
  outcome = outcome._replace(num_accepted=jnp.array([1, 2]))
  next_context = context._replace(lengths=context.lengths + 2)

  def two_rounds():
    tree, pending = drafter.draft(keys, params, state, context)
    rows = jnp.ones(2, bool)
    next_state = drafter.commit(state, pending, context, outcome, rows)
    return next_state.lengths, *(
      (draft_tree.tokens, draft_tree.probs)
      for draft_tree in (
        tree,
        drafter.draft(keys, params, next_state, next_context)[0],
      )
    )

  expected = jax.jit(two_rounds)()
  monkeypatch.setattr(
    jax.lax, 'platform_dependent', lambda *args, default, **_: default(*args)
  )
  actual = jax.jit(lambda: two_rounds())()
  for actual_leaf, expected_leaf in zip(
    *map(jax.tree.leaves, (actual, expected)), strict=True
  ):
    np.testing.assert_allclose(actual_leaf, expected_leaf, rtol=1e-4, atol=1e-6)


def test_a_head_far_behind_reads_sinks_and_a_window():
  """It drafts as if there were no pairs between them, each pair a true one."""
  sinks, window = 2, 12
  (model, target), (head, params) = _target(), _head('eagle')
  inner = drafters.FeatureHeadDrafter(head, trees.chain(1))
  drafter = drafters.Windowed(inner, sinks, window)
  tokens = jax.random.randint(jax.random.key(5), (2, 48), 0, 3)
  features = jax.jit(model.extend)(target, None, tokens).features
  context = base.Context(
    tokens, jnp.array([6, 9]), tuple(features[tap] for tap in drafter.taps)
  )
  state = jax.jit(drafter.init, static_argnums=2)(params, context, 64)
  lengths = np.array([30, 41])
  context = context._replace(lengths=jnp.asarray(lengths))
  state, num = jax.jit(drafter.catch_up)(
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


def test_medusa_drafts_no_more_siblings_than_it_has_tokens():
  """A reduced head has two of three tokens; the tree asks for four."""
  (model, target), tree = _target(), trees.prefix_tree((4, 1))
  config = heads.configure('medusa', _TARGET, head_size=2)
  params = heads.begin(jax.random.key(2), config, _TARGET, target, [0, 2])
  drafter = drafters.Medusa(heads.head(config), tree)
  tokens = jnp.array([[1, 2, 0]])
  features = jax.jit(model.extend)(target, None, tokens).features
  context = base.Context(
    tokens, jnp.array([3]), tuple(features[tap] for tap in drafter.taps)
  )
  keys = jax.random.split(jax.random.key(3), 1)
  drafted, _ = jax.jit(drafter.draft)(keys, params, (), context)
  first, second = (np.array(level) for level in tree.levels)
  assert drafted.valid[0, first].tolist() == [True, True, False, False]
  assert drafted.valid[0, second].tolist() == [True, True, False, False]
  assert {*drafted.tokens[0, first[:2]].tolist()} == {0, 2}


def test_drafts_of_one_head_share_its_cache():
  """Chains, static and dynamic trees; and rounds of one serve the others."""
  decoder, results_of, _ = _played()
  slots = decoder.round_fn.slot_of_arm
  assert len({slots[_ALL.index(name)] for name in _SHARING}) == 1
  assert len(set(slots)) == len(_ALL) - 2
  results = results_of[_SHARING]
  assert arms.tokens(results) == arms.tokens(results_of['none',])
  assert not sum(result.num_catch_up_tokens for result in results)


def test_a_dynamic_tree_is_that_of_the_algorithm():
  """Follows EAGLE-2's description path by path, without a KV cache."""
  config = heads.configure('eagle', dataclasses.replace(_TARGET, vocab_size=7))
  head = heads.head(config)
  params = _random(6, flax_modules.init_params(jax.random.key(7), config))
  tokens = jnp.array([[3, 1, 4, 1, 5]], jnp.int32)
  features = jax.random.normal(jax.random.key(8), (1, 4, 8))
  num_nodes, depth, beam = 6, 3, 2
  drafter = drafters.DynamicTree(head, num_nodes, depth, beam=beam)
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
      ((*path, token), score + log_prob)
      for path, score in level
      for token, log_prob in likeliest(path, beam)
    ]
    ranked += below
    level = sorted(below, key=lambda entry: -entry[1])[:beam]
  ranked.sort(key=lambda entry: -entry[1])
  expected = {path for path, _ in ranked[:num_nodes]}
  parents = np.asarray(tree.topology.parents[0])
  paths = []
  for node, parent in enumerate(parents):
    above = paths[parent] if parent >= 0 else ()
    paths.append((*above, int(tree.tokens[0, node])))
  assert tree.valid.all() and tree.topology.is_valid.all()
  assert set(paths) == expected
  for node, (*above, token) in enumerate(paths):
    log_probs = dict(likeliest(tuple(above), 7))
    actual = jnp.log(tree.raw_probs[0, node, token])
    np.testing.assert_allclose(actual, log_probs[token], rtol=1e-4, atol=1e-5)


def _log_probs(head, params, tokens, features, path):
  """Returns `[V]` log probabilities after a path, without a KV cache."""
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
      r'taps must lie in \[-4, 3\] for a target of 3 layers, got \(9,\)',
    ),
    (
      lambda: heads.configure('eagle', _TARGET, taps=(1, 2)),
      r'taps of eagle must be one index, got \(1, 2\)',
    ),
    (
      lambda: heads.configure('eagle', _TARGET, head_size=4),
      r'head_size must lie in \[1, 3\]',
    ),
    (
      lambda: heads.begin(
        jax.random.key(0),
        heads.configure('eagle', _TARGET, head_size=2),
        _TARGET,
        _target()[1],
      ),
      'tokens must have head_size=2 entries, got 0',
    ),
    (
      lambda: drafters.Medusa(_head('medusa')[0], trees.chain(5)),
      'depth from 1 to 4, as there are 4 heads, got 5',
    ),
    (
      lambda: drafters.Windowed(
        drafters.Medusa(_head('medusa')[0], trees.chain(2))
      ),
      'drafter must be one that can forget what it has read',
    ),
    (
      lambda: drafters.DynamicTree(_head('eagle')[0], 5, 3),
      r'beam must lie in \[1, 3\], got 10',
    ),
    (
      lambda: drafters.DynamicTree(_head('eagle')[0], 99, 2, beam=2),
      r'num_nodes must lie in \[1, 6\], got 99',
    ),
  ],
)
def test_bad_heads_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.parametrize('size', tiers.cases([0.01, 1.0], 0.01))
def test_a_new_head_reads_tokens_and_features_alike(size):
  """However small the target's embeddings are; the feature itself besides."""
  wide = dataclasses.replace(_TARGET, d_model=256, vocab_size=64)
  params = flax_modules.init_params(jax.random.key(0), wide)
  params['embedding'] = jax.tree.map(lambda x: size * x, params['embedding'])
  config = heads.configure('eagle', wide)
  initial_params = heads.begin(jax.random.key(1), config, wide, params)
  of_tokens, of_features = np.split(
    np.asarray(initial_params['join']['kernel']), 2
  )
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
  matching_config = dataclasses.replace(
    config, target=heads.fingerprint(params)
  )
  heads.check_target('a', matching_config, _TARGET, params)
  other_params = _random(9, params)
  with pytest.raises(ValueError, match='has the fingerprint'):
    heads.check_target('a', matching_config, _TARGET, other_params)
  wider = dataclasses.replace(_TARGET, d_model=16)
  with pytest.raises(
    ValueError, match='its d_model is 8, but this target has 16'
  ):
    heads.check_target('a', config, wider, params)
  with pytest.raises(ValueError, match='features of size 8'):
    decoding.Decoder(
      adapters.Transformer(wider), None, [_arm('eagle chain', _GREEDY)]
    )
  markov = specjax.models.Markov(3)
  with pytest.raises(ValueError, match='features of a target that has none'):
    decoding.Decoder(markov, None, [_arm('eagle chain', _GREEDY)])


def test_parameters_that_a_head_shares_are_the_targets(tmp_path):
  """In memory and on disk; a reduced head is made of the target's."""
  model, target = _target()
  config = heads.configure('eagle', _TARGET, head_size=2)
  params = heads.begin(jax.random.key(2), config, _TARGET, target, [0, 2])
  assert params['embedding']['embedding'] is target['embedding']['embedding']
  path = tmp_path / 'head.safetensors'
  checkpoint.save(path, config, heads.own_params(config, params), np.float32)
  loaded_config, loaded_params = checkpoint.load(path, target)
  assert loaded_config == config
  jax.tree.map(np.testing.assert_array_equal, loaded_params, params)
  outputs = jax.random.normal(jax.random.key(3), (1, 1, 8))
  logits = heads.head(config).predict(params, outputs)[0, 0]
  table = target['embedding']['embedding']
  np.testing.assert_allclose(
    logits[jnp.array([0, 2])], table[jnp.array([0, 2])] @ outputs[0, 0],
    rtol=1e-5,
  )  # fmt: skip
  assert logits[1] == -np.inf


@pytest.mark.slow
def test_an_early_exit_reads_the_first_layers():
  """Uses the target's parameters; with all layers, all drafts are kept."""
  model, params = _target()
  tokens = jnp.array([[2, 0, 1, 1]], jnp.int32)
  part = cutting.keep_layers(_TARGET, params, (0, 1))
  extend = jax.jit(adapters.Transformer(part[0]).extend)
  expected = extend(part[1], None, tokens).logits
  actual = jax.jit(model.exit(2).extend)(params, None, tokens).logits
  np.testing.assert_array_equal(actual, expected)
  verifier = verifiers.resolve('greedy')
  exits = [
    drafters.EarlyExit(model, _CHAIN, _GREEDY, num_layers=num) for num in (2, 3)
  ]
  decoder = decoding.Decoder(
    model,
    params,
    [(base.Arm(drafter, verifier), params) for drafter in exits],
    sampling=_GREEDY,
    max_length=sizes.BUFFER,
  )
  early_result, late_result = (
    decoder.decode([PROMPT], 24, bandit_state=np.int32(arm))[0]
    for arm in range(2)
  )
  assert early_result.tokens == late_result.tokens
  assert early_result.rounds > late_result.rounds == 6
  with pytest.raises(ValueError, match=r'num_layers must lie in \[1, 3\]'):
    drafters.EarlyExit(model, trees.chain(3), num_layers=6)
  markov = specjax.models.Markov(3)
  with pytest.raises(ValueError, match='early exit needs a model of several'):
    drafters.EarlyExit(markov, trees.chain(3), num_layers=1)


@pytest.mark.slow
@pytest.mark.parametrize(
  'names',
  [('eagle chain',), ('eagle chain', 'eagle3 tree', 'dynamic tree', 'none')],
  ids=['one', 'several'],
)
def test_no_cache_is_copied_in_the_loop(names):
  """Covers the target's and the heads' caches, with and without a plain arm."""
  decoder = _decoder(names)
  state, loop = drivers_test.compiled_loop(decoder, _PROMPTS)
  assert not drivers_test.cache_copies(loop, state)
