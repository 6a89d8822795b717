"""Drafters that look up, against slow searches written for lists.

The texts are random over few tokens, so that matches of all lengths abound.
"""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.data import datastore
from specjax.drafters import matching
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import tiers
from tests import twins

SIZE = 40
RAGGED = trees.Topology((-1, -1, -1, 1, 1, 0, 4))


def texts(seed=0):
  """Rows of every length from 1 to a full buffer; junk is of the same kind."""
  rng = np.random.default_rng(seed)
  lengths = np.arange(1, SIZE + 1).repeat(3)
  sizes = rng.choice([1, 2, 3, 8], size=len(lengths))
  tokens = rng.integers(sizes[:, None], size=(len(lengths), SIZE))
  return specjax.Context(
    jnp.asarray(tokens, jnp.int32), jnp.asarray(lengths, jnp.int32)
  )


def select_rows(context, index):
  """Some of the rows."""
  return jax.tree.map(lambda field: np.asarray(field)[index], context)


def rows(context):
  return [
    tokens[:length]
    for tokens, length in zip(context.tokens.tolist(), context.lengths.tolist())
  ]


def corpus(num, longest, seed=1):
  """Documents and their datastore; the tokens are 0 to 3 only."""
  rng = np.random.default_rng(seed)
  documents = [[1, 1, 1, 0]] + [
    rng.integers(rng.integers(2, 5), size=n).tolist()
    for n in rng.integers(longest + 1, size=num - 1)
  ]
  return documents, datastore.build(documents, progress=False)


CORPORA = {
  'one': corpus(1, 0),  # 3 places.
  'short': corpus(60, 6),  # Separators everywhere.
  'long': corpus(4, 600),  # Enough for three digits of an entry.
}


@functools.partial(jax.jit, static_argnums=0)
def drafted(drafter, params, context):
  return drafter.draft(None, params, (), context)[0]


def proposals(drafter, params, context):
  """Returns each row's proposed tokens, None where there is nothing."""
  tree = jax.device_get(drafted(drafter, params, context))
  assert not tree.tokens[~tree.valid].any()  # They must be of the vocabulary.
  return [
    [token if good else None for token, good in zip(*row)]
    for row in zip(tree.tokens.tolist(), tree.valid.tolist())
  ]


# The slow searches.


def matched(context, text, max_match):
  """How many trailing tokens agree."""
  num = 0
  while num < min(len(context), len(text), max_match):
    if context[-1 - num] != text[-1 - num]:
      break
    num += 1
  return num


def copied(text, place, num):
  """Copies the text from a position on, token by token."""
  text = list(text)
  for i in range(num):
    text.append(text[place + i])
  return text[-num:]


def match_positions(text, max_match):
  """Returns the longest match's length, and its positions, latest first."""
  lengths = [
    matched(text[:position], text, max_match) for position in range(len(text))
  ]
  longest = max(lengths)
  return longest, [
    position
    for position in reversed(range(len(text)))
    if lengths[position] == longest
  ]


def corpus_matches(documents, text, max_match, num_samples):
  """Returns the length of the longest match, and samples of what follows it."""
  lengths, order, following = [], [], []
  for document in documents:
    for position in range(1, len(document)):
      lengths.append(matched(document[:position], text, max_match))
      order.append(document[:position][: -datastore.DEPTH - 1 : -1])
      following.append(document[position:])
  longest = max(lengths)
  indices = [i for i in np.arange(len(order)) if lengths[i] == longest]
  indices.sort(key=lambda i: order[i])
  num = min(len(indices), num_samples)
  return longest, [
    following[indices[i * len(indices) // num]] for i in range(num)
  ]


def voted(continuations, weights, topology):
  """The tree of a trie that counts, None where it has no child left."""
  trie = collections.defaultdict(collections.Counter)
  for continuation, weight in zip(continuations, weights):
    for i, token in enumerate(continuation if weight else ()):
      trie[tuple(continuation[:i])][token] += weight
  paths, num_children = {-1: ()}, collections.Counter()
  for node, parent in enumerate(topology.parents):
    # Of equals the first seen is first.
    ranked = trie[paths[parent]].most_common() if paths[parent] != 0 else []
    rank = num_children[parent]
    num_children[parent] += 1
    # 0 is no path: there is nothing here.
    paths[node] = (*paths[parent], ranked[rank][0]) if rank < len(ranked) else 0
  del paths[-1]
  return [path[-1] if path else None for path in paths.values()]


# The shared parts.


@pytest.mark.parametrize('max_match', [1, 3, SIZE + 5])
def test_own_matches_are_those_of_a_slow_search(max_match):
  context = texts()
  search = lambda *text: matching.match_row(*text, max_match)
  match_lengths = jax.jit(jax.vmap(search))(context.tokens, context.lengths)
  for row, text in zip(match_lengths.tolist(), rows(context)):
    expected = [
      matched(text[:position], text, max_match) for position in range(len(text))
    ]
    assert row == expected + [0] * (SIZE - len(text))


@pytest.mark.parametrize(
  ('topology', 'num'),
  [
    (trees.chain(1), 9),
    (trees.chain(4), 1),
    (trees.chain(4), 9),
    (trees.chains(3, 2), 2),
    (trees.chains(3, 2), 9),
    (trees.prefix_tree((3, 2, 2)), 9),
    (RAGGED, 1),
    (RAGGED, 2),
    (RAGGED, 9),
  ],
)
def test_vote_is_that_of_a_counting_trie(topology, num):
  """Fewer continuations than children, ties, and weights of 0 among them."""
  rng = np.random.default_rng(2)
  vote = jax.jit(lambda *args: matching.vote(*args, topology))
  for _ in range(100):
    continuations = rng.integers(-1, 3, size=(num, topology.depth))
    weights = rng.integers(3, size=num)
    ended = [
      row[: row.index(-1)] if -1 in row else row
      for row in continuations.tolist()
    ]
    tokens, valid = vote(continuations.astype(np.int32), weights)
    draft = [t if v else None for t, v in zip(tokens.tolist(), valid.tolist())]
    assert draft == voted(ended, weights.tolist(), topology)


# The drafters.


@pytest.mark.parametrize(
  ('draft_length', 'num_drafts', 'max_ngram', 'min_ngram'),
  [(8, 1, 3, 1), (1, 1, 1, 1), (SIZE + 3, 1, 6, 3), (4, 2, 3, 1), (2, 7, 2, 2)],
)
def test_prompt_lookup_is_a_slow_search(
  draft_length, num_drafts, max_ngram, min_ngram
):
  """Checks that chains begin with different tokens, the longest match first."""
  drafter = specjax.drafters.PromptLookup(
    draft_length, num_drafts, max_ngram=max_ngram, min_ngram=min_ngram
  )
  context = texts()
  expected = []
  for text in rows(context):
    lengths = [
      matched(text[:position], text, max_ngram) for position in range(len(text))
    ]
    positions = sorted(
      range(len(text)), key=lambda position: (-lengths[position], -position)
    )
    drafts = {}
    for position in positions[: 8 * num_drafts]:
      if lengths[position] >= min_ngram:
        draft = copied(text, position, draft_length)
        drafts.setdefault(draft[0], draft)
    drafts = [*drafts.values()] + [[None] * draft_length] * num_drafts
    expected.append(
      [chain[i] for i in range(draft_length) for chain in drafts[:num_drafts]]
    )
  assert proposals(drafter, None, context) == expected
  # Some rows have a draft, and others have none.
  assert 0 < sum(draft[0] is None for draft in expected) < len(expected)


CHAIN = trees.chain(3), {'max_match': 1, 'num_samples': 1}
PREFIX_TREE = (
  trees.prefix_tree((3, 2, 1)),
  {'max_match': 3, 'num_samples': 7},
)
MANY = RAGGED, {'max_match': datastore.DEPTH, 'num_samples': 64}


@pytest.mark.parametrize(
  ('name', 'topology', 'options'),
  tiers.cases(
    [
      ('one', *CHAIN),
      ('long', *CHAIN),
      ('short', *PREFIX_TREE),
      ('long', *PREFIX_TREE),
      ('one', *MANY),
      ('short', *MANY),
    ],
    ('long', *PREFIX_TREE),
    ('short', *MANY),
  ),
)
def test_retrieval_is_a_slow_search(name, topology, options):
  documents, store = CORPORA[name]
  max_match, num = options['max_match'], options['num_samples']
  drafter = twins.twin(
    specjax.drafters.Retrieval(topology, max_match=max_match), num_samples=num
  )
  context = texts()
  expected = []
  for text in rows(context):
    longest, following = corpus_matches(documents, text, max_match, num)
    following = following if longest else []
    expected.append(voted(following, [1] * len(following), topology))
  assert proposals(drafter, store, context) == expected
  assert 0 < sum(draft[0] is None for draft in expected) < len(expected)


FEW = {'factor': 2.5, 'max_match': 3, 'num_samples': 3}
DEEP = {'factor': 0.5, 'max_match': datastore.DEPTH}
WIDE = {'num_drafts': 3, 'num_samples': 40}


@pytest.mark.parametrize(
  ('name', 'draft_length', 'options'),
  tiers.cases(
    [
      (None, 8, {}),
      ('one', 8, {}),
      ('long', 8, {}),
      ('short', 5, FEW),
      ('long', 5, FEW),
      (None, 6, DEEP),
      ('long', 6, DEEP),
      (None, 4, WIDE),
      ('short', 4, WIDE),
    ],
    ('long', 5, FEW),
    (None, 6, DEEP),
    ('short', 4, WIDE),
  ),
)
def test_suffix_is_a_slow_search(name, draft_length, options):
  documents, store = CORPORA.get(name, (None, None))
  options = dict(options)
  num = options.pop('num_samples', specjax.drafters.Suffix.num_samples)
  drafter = specjax.drafters.Suffix(draft_length, **options)
  drafter = twins.twin(drafter, num_samples=num)
  options = {'num_drafts': 1, 'max_match': 16, 'factor': 1} | options
  max_match = options['max_match']
  topology = trees.chains(options['num_drafts'], draft_length)
  context = texts()
  expected = []
  for text in rows(context):
    longest, positions = match_positions(text, max_match)
    voters = [
      copied(text, position, draft_length) for position in positions[:num]
    ]
    if documents:
      length, following = corpus_matches(documents, text, max_match, num)
      voters = voters if longest >= length else []
      voters += following if length >= longest else []
      longest = max(longest, length)
    voters = voters if longest else []
    draft = voted(voters, [1] * len(voters), topology)
    trusted = topology.depths <= options['factor'] * longest
    expected.append([t if keep else None for t, keep in zip(draft, trusted)])
  assert proposals(drafter, store, context) == expected
  assert 0 < sum(draft[0] is None for draft in expected) < len(expected)


# The drafters of this file, with parameters for tokens 0 to 3.
LOOKUPS = {
  'prompt_lookup': lambda: (specjax.drafters.PromptLookup(3), None),
  'retrieval': lambda: (
    specjax.drafters.Retrieval(trees.prefix_tree((2, 2))),
    CORPORA['short'][1],
  ),
  'suffix': lambda: (
    specjax.drafters.Suffix(3, factor=2.0),
    CORPORA['short'][1],
  ),
}


@pytest.mark.parametrize('name', LOOKUPS)
def test_proposals_depend_on_the_row_alone(name):
  """Varies the neighbors, the size of the buffer and the junk in it."""
  drafter, params = LOOKUPS[name]()
  context = texts()
  drafts = proposals(drafter, params, context)
  order = np.random.default_rng(3).permutation(len(drafts))
  shuffled = select_rows(context, order)
  assert proposals(drafter, params, shuffled) == [drafts[i] for i in order]
  subset = select_rows(context, slice(1, None, 3))  # One of each length.
  junk = np.pad(subset.tokens, ((0, 0), (0, 9)), constant_values=1)
  is_padding = np.arange(SIZE + 9)[None] >= subset.lengths[:, None]
  padded = subset._replace(tokens=np.where(is_padding, (junk + 1) % 4, junk))
  assert proposals(drafter, params, padded) == drafts[1::3]


@pytest.mark.parametrize('name', ['prompt_lookup', 'suffix'])
def test_a_row_that_loops_is_drafted_in_full(name):
  """Although its last loop is shorter than the draft."""
  loop = [5, 6, 7] * 4
  context = specjax.Context(
    jnp.asarray([loop], jnp.int32), jnp.asarray([len(loop)], jnp.int32)
  )
  drafter = specjax.DRAFTERS[name](8)
  assert proposals(drafter, None, context) == [[5, 6, 7, 5, 6, 7, 5, 6]]


def test_the_estimate_is_the_mass_of_what_would_be_proposed():
  """Covers every position that others committed, given the text before it."""
  drafter, params = LOOKUPS['retrieval']()
  context = select_rows(texts(), slice(60, None, 3))
  shape = len(context.lengths), 4, 8
  rng = np.random.default_rng(4)
  probs = specjax.Probs(*rng.random((2, *shape), np.float32))
  target = base.TargetProbs(context.lengths - 3, probs)
  every = np.ones(len(context.lengths), bool)
  state, num_read, acceptance = jax.jit(drafter.estimate)(
    params, (), context, every, target
  )
  assert state == () and not np.any(num_read)
  for step in range(3):
    prefix = context._replace(lengths=target.start + step)
    drafts = proposals(drafter, params, prefix)
    for chances, target_rows in zip(acceptance, probs, strict=True):
      expected = [
        sum(float(row[token]) for token in draft[:2] if token is not None)
        for row, draft in zip(target_rows[:, step], drafts)
      ]
      np.testing.assert_allclose(chances[:, step], expected, atol=1e-6)


@pytest.mark.parametrize(
  ('name', 'options', 'message'),
  [
    ('prompt_lookup', {'draft_length': 0}, 'draft_length must be >= 1, got 0'),
    ('prompt_lookup', {'num_drafts': 0}, 'num_drafts must be >= 1, got 0'),
    ('prompt_lookup', {'max_ngram': 0}, 'max_ngram must be >= 1, got 0'),
    ('prompt_lookup', {'min_ngram': 4}, r'min_ngram must lie in \[1, 3\], got'),
    ('retrieval', {'topology': trees.chain(0)}, 'topology must be >= 1, got 0'),
    (
      'retrieval',
      {'max_match': 33},
      r'max_match must lie in \[1, 32\], got 33',
    ),
    ('suffix', {'draft_length': 0}, 'draft_length must be >= 1, got 0'),
    ('suffix', {'num_drafts': 0}, 'num_drafts must be >= 1, got 0'),
    ('suffix', {'max_match': 0}, r'max_match must lie in \[1, 32\], got 0'),
    ('suffix', {'factor': 0.0}, 'factor must be > 0 and finite, got 0.0'),
  ],
)
def test_options_out_of_range_raise(name, options, message):
  if name == 'retrieval':
    options = {'topology': trees.chain(1)} | options
  with pytest.raises(ValueError, match=message):
    specjax.DRAFTERS[name](**options)


@pytest.mark.parametrize('name', ['retrieval', 'suffix'])
def test_what_is_no_datastore_raises(name):
  drafter, store = LOOKUPS[name]()
  for params, message in [
    ({}, f'parameters of {name} must be a Datastore, got dict'),
    (store._replace(suffixes=store.suffixes[:0]), 'must not be empty'),
  ] + [(None, 'got NoneType')] * (name == 'retrieval'):
    with pytest.raises(ValueError, match=message):
      drafter.draft(None, params, (), texts())


# In the whole loop.


def arm(drafter, coupling='maximal'):
  return specjax.Arm(drafter, specjax.verifiers.resolve(coupling))


def junk(topology):
  """Tokens and gaps that have to do with nothing, twins among siblings."""

  def propose(params, context):
    del params
    index = np.arange(topology.num_nodes)[None] + 7 * context.lengths[:, None]
    return (index * index // 3 % 3).astype(jnp.int32), index % 5 > 0

  return arms.Proposing(topology, propose)


def markov_arm(name):
  """An arm for texts of tokens 0 to 2, with its parameters."""
  if name == 'junk':
    return arm(junk(trees.prefix_tree((3, 2)))), None
  drafter, params = LOOKUPS[name]()
  return arm(drafter), params and THREE


THREE = datastore.build(
  np.random.default_rng(5).integers(3, size=(20, 9)), progress=False
)


@pytest.mark.slow
def test_emitted_tokens_have_the_target_distribution():
  """Interleaves all arms, with the power that `lossless_test` states.

  Junk among them only costs speed.
  """
  target, _ = lossless_test.tables('time-varying')
  names = [*LOOKUPS, 'junk']
  decoder = specjax.Decoder(
    lossless_test.MODEL,
    target,
    [markov_arm(name) for name in names],
    bandit=specjax.bandits.RoundRobin(len(names)),
    max_length=16,
  )
  sampling = sampling_lib.Sampling()
  assert lossless_test.p_value(decoder, target, sampling) > 1e-4


@pytest.mark.slow
def test_check_rejects_tokens_that_pass_for_samples():
  """Treats lookup drafts as samples, so that they are accepted too often."""
  target, _ = lossless_test.tables('time-varying')
  lookup_arm, params = markov_arm('suffix')

  def draft(*args):
    tree, proposal = lookup_arm.drafter.draft(*args)
    probs = jnp.full((*tree.tokens.shape, 3), 1 / 3, jnp.float32)
    return tree._replace(probs=probs), proposal

  decoder = specjax.Decoder(
    lossless_test.MODEL,
    target,
    [(arm(twins.twin(lookup_arm.drafter, draft=draft)), params)],
    max_length=16,
  )
  p = lossless_test.p_value(decoder, target, sampling_lib.Sampling())
  assert p < 1e-6


@functools.cache
def greedy_decoder():
  """Returns a decoder with a plain arm and an arm for each lookup drafter."""
  models = [LOOKUPS[name]() for name in LOOKUPS]
  all_arms = [
    arms.arm(*drafter_and_params, verifier='greedy')
    for drafter_and_params in models
  ]
  return arms.decoder(arms.none(), *all_arms, bandit='fixed', temperature=0.0)


@functools.cache
def greedy(name):
  """Outputs of plain decoding, or with a drafter that looks up."""
  prompts = [[1], [3, 1], [2, 2, 0, 1, 3, 3, 0], [5, 6]]
  assert len(prompts) == sizes.ROWS
  arm_index = np.int32(['none', *LOOKUPS].index(name))
  results = greedy_decoder().decode(prompts, 56, bandit_state=arm_index)
  pulls = np.array([result.pulls for result in results])
  assert (np.delete(pulls, arm_index, 1) == 0).all()
  return results


@pytest.mark.parametrize('name', tiers.cases(LOOKUPS, 'prompt_lookup'))
def test_greedy_output_is_that_of_plain_decoding(name):
  for plain, speculative in zip(greedy('none'), greedy(name), strict=True):
    assert speculative.tokens == plain.tokens


def test_greedy_loops_are_drafted():
  """The toy model's greedy text repeats itself, and rounds are saved."""
  for plain, speculative in zip(greedy('none'), greedy('prompt_lookup')):
    assert speculative.rounds < plain.rounds
