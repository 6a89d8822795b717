"""Drafts from a lattice of heads that a small language model rescores.

The oracle writes the paper's formula out for one node. The loop, and what the
model has read, are tested with the other heads (tests/heads_test.py).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import specjax
from specjax import drafters
from specjax import trees
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import heads
from specjax.testing import distributions
from tests import twins

SIZE = 7  # Number of tokens in the vocabulary.
ROWS, BUFFER = 6, 16
MODEL = specjax.models.Markov(SIZE)
TABLE = distributions.random_table(np.random.default_rng(3), SIZE, SIZE)
TREE = trees.Topology((-1, -1, 0, 0, 1, 2))


@functools.cache
def head():
  """Returns heads and their parameters, whose predictions differ by level."""
  target = config_lib.TransformerConfig(
    vocab_size=SIZE,
    num_layers=1,
    d_model=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    d_ff=12,
  )
  config = heads.configure('medusa', target)
  rng = np.random.default_rng(4)
  params = jax.tree.map(
    lambda leaf: leaf + np.float32(rng.normal(size=leaf.shape)),
    jax.device_get(flax_modules.init_params(jax.random.key(5), config)),
  )
  return heads.head(config), params


def texts(lengths, rows=ROWS):
  """Returns texts of these lengths, repeated, with random hidden states."""
  rng = np.random.default_rng(6)
  tokens = rng.integers(SIZE, size=(len(lengths), BUFFER))
  features = rng.normal(size=(len(lengths), BUFFER, 8))
  row = np.arange(rows) % len(lengths)
  return specjax.Context(
    jnp.asarray(tokens[row], jnp.int32),
    jnp.asarray(np.array(lengths)[row], jnp.int32),
    (jnp.asarray(features[row], jnp.float32),),
  )


# Texts of one token have no hidden states.
CONTEXT = texts([1, 2, 5, 9])


def rescored(topology, temperature=1.0, **options):
  options = {'top': 3, 'weight': 0.3} | options
  sampling = specjax.Sampling(temperature)
  return drafters.Rescored(head()[0], MODEL, topology, sampling, **options)


@functools.partial(jax.jit, static_argnames='drafter')
def drafted(drafter, context, params):
  """Returns the tree that a drafter drafts after it has read the texts."""
  keys = jax.random.split(jax.random.key(7), len(context.lengths))
  state = drafter.init(params, context, BUFFER)
  return drafter.draft(keys, params, state, context)[0]


def draft(drafter, context=CONTEXT, table=TABLE):
  return jax.device_get(drafted(drafter, context, (head()[1], table)))


def head_logits(context, at):
  """Returns `[B, H, V]` logits of the heads at positions `[B]`."""
  rows = np.arange(len(at))
  features = np.array(context.features[0])[rows, at][:, None]
  return np.array(head()[0].predict(head()[1], (features,)), np.float64)[:, 0]


def oracle(logits, tokens, top, weight, temperature=1.0, table=TABLE):
  """Returns `[V]` the distribution after a path, by the paper's formula.

  Args:
    logits: `[H, V]` of the heads; None without hidden states.
    tokens: the last committed token, and the path.
    top: number of tokens of each head.
    weight: of the model's logits.
    temperature: of the draft.
    table: of the model.
  """
  scores = np.full(SIZE, -np.inf)
  with np.errstate(divide='ignore'):
    model_logits = np.log(np.float64(table[tokens[-1]]))
  if logits is None:
    scores = model_logits
  else:
    level = logits[len(tokens) - 1]
    for token in np.argsort(-level)[:top]:
      scores[token] = (1 - weight) * level[token] + weight * model_logits[token]
  return special.softmax(scores / temperature)


def oracles(drafter, tree, context, temperature=1.0):
  """Returns `[B, N, V]` the oracle's distribution after each node's parent."""
  lengths, parents = np.array(context.lengths), tree.topology.parents
  logits = head_logits(context, np.maximum(lengths - 2, 0))
  probs = np.zeros((*tree.tokens.shape, SIZE))
  for row, length in enumerate(lengths):
    for node, parent in enumerate(parents):
      path = []
      while parent >= 0:
        path.insert(0, tree.tokens[row, parent])
        parent = parents[parent]
      probs[row, node] = oracle(
        logits[row] if length > 1 else None,
        [context.tokens[row, length - 1], *path],
        drafter.top,
        drafter.weight,
        temperature,
      )
  return probs


def largest_error(drafter, described):
  """Compares distributions before the temperature with the oracle's.

  Args:
    drafter: drafts.
    described: the drafter whose numbers the oracle takes.
  """
  tree = draft(drafter)
  return np.abs(tree.raw_probs - oracles(described, tree, CONTEXT)).max()


@pytest.mark.parametrize(
  ('topology', 'options'),
  [
    (trees.chain(3), {'temperature': 0.7}),
    (TREE, {'top': 4, 'weight': 0.8}),
    (TREE, {'temperature': 0.0}),
  ],
  ids=['chain', 'tree', 'greedy tree'],
)
def test_probs_are_those_of_the_formula(topology, options):
  drafter = rescored(topology, **options)
  assert largest_error(drafter, drafter) < 1e-5
  tree, temperature = draft(drafter), options.get('temperature', 1.0)
  assert tree.valid.all()
  if not temperature:
    # Siblings are the likeliest tokens, in their order.
    rank = drafters.siblings.ranks(topology.parents)
    best = np.argsort(-oracles(drafter, tree, CONTEXT), axis=-1)
    expected = np.take_along_axis(best, rank[None, :, None], axis=-1)
    np.testing.assert_array_equal(tree.tokens, expected[..., 0])
    return
  first = np.flatnonzero(drafters.siblings.ranks(topology.parents) == 0)
  probs = oracles(drafter, tree, CONTEXT, temperature)
  np.testing.assert_allclose(tree.probs[:, first], probs[:, first], atol=1e-5)


def below(outputs):
  """Returns what a node predicts with, but for the level of its parent."""
  logits, lattice = outputs
  return logits, lattice._replace(
    **{
      name: jnp.roll(leaf, 1, axis=2)
      for name, leaf in lattice._asdict().items()
    }
  )


@pytest.mark.parametrize(
  'mistake', ['level', 'path', 'hidden state', 'weight', 'top']
)
def test_oracle_rejects_broken_twins(mistake):
  drafter = rescored(TREE)
  reader = drafter.reader

  def read_nodes(params, cache, tokens, *args):
    if mistake == 'path':
      tokens = jnp.zeros_like(tokens)
    outputs, pending = reader.read_nodes(params, cache, tokens, *args)
    return (below(outputs) if mistake == 'level' else outputs), pending

  def read_tail(params, cache, context, *args):
    if mistake == 'hidden state':
      (states,) = context.features
      context = context._replace(features=(jnp.roll(states, 1, axis=1),))
    return reader.read_tail(params, cache, context, *args)

  numbers = {
    'weight': {'weight': 1 - reader.weight},
    'top': {'top': reader.top + 1},
  }
  broken = twins.twin(
    reader,
    read_nodes=read_nodes,
    read_tail=read_tail,
    **numbers.get(mistake, {}),
  )
  if mistake in numbers:
    broken = twins.twin(reader, **numbers[mistake])
  twin = twins.twin(drafter, reader=broken)
  assert largest_error(twin, drafter) > 1e-2


@pytest.mark.parametrize('weight', [0.0, 1.0])
def test_with_all_tokens_one_of_both_drafts_alone(weight):
  drafter = rescored(trees.chain(3), top=SIZE, weight=weight)
  tree = draft(drafter, texts([2, 5, 9]))
  keys = jax.random.split(jax.random.key(7), ROWS)
  if weight:
    other = drafters.Autoregressive(MODEL, trees.chain(3))
    params, state = TABLE, drafter.init((None, TABLE), texts([2, 5, 9]), BUFFER)
  else:
    other, state = drafters.Medusa(head()[0], trees.chain(3)), ()
    params = head()[1]
  expected, _ = jax.jit(other.draft)(keys, params, state, texts([2, 5, 9]))
  np.testing.assert_array_equal(tree.tokens, expected.tokens)
  np.testing.assert_allclose(tree.probs, expected.probs, atol=1e-6)


def p_value(drafter):
  """Compares many drafts of two tokens with the probabilities they report.

  Of 20000 drafts of one text, a chi-square divergence of 0.006 from the product
  of the probabilities, with up to 9 paths, fails with probability 0.99.
  """
  tree = draft(drafter, texts([5], rows=20000))
  chances = np.zeros((SIZE, SIZE))
  # Every path that is drafted reports its own probabilities.
  for path, probs in zip(tree.tokens, tree.probs):
    chances[path[0]] = probs[0, path[0]] * probs[1]
  every = np.indices((SIZE, SIZE)).reshape(2, -1)
  return distributions.chi_square(tree.tokens, chances[tuple(every)])


def test_tokens_have_the_reported_probs():
  """Else verification would not keep the target's distribution."""
  drafter = rescored(trees.chain(2))
  assert p_value(drafter) > 1e-4

  def unscored(*args):
    """Reports the distributions of the heads."""
    tree, pending = drafter.draft(*args)
    params, context = args[1], args[3]
    features = context.features_at(context.lengths[:, None] - 2)
    logits = drafter.head.predict(params[0], features)[:, 0, :2]
    return tree._replace(probs=jax.nn.softmax(logits)), pending

  assert p_value(twins.twin(drafter, draft=unscored)) < 1e-6


def test_tokens_that_the_model_forbids_come_last():
  """Where it forbids all tokens of a lattice, one of them is still drafted."""
  context = texts([2, 5, 9], rows=3)
  logits = head_logits(context, np.array(context.lengths) - 2)
  lattice = np.argsort(-logits[:, 0])[:, :3]
  last = np.array(context.last_tokens())
  for num_forbidden in (1, 3):
    table = np.array(TABLE)
    table[last, lattice[:, :num_forbidden]] = 0
    tree = draft(rescored(trees.chain(1)), context, table)
    inside = np.take_along_axis(tree.probs[:, 0], lattice, axis=1)
    np.testing.assert_allclose(inside.sum(-1), 1, atol=1e-6)
    if num_forbidden == 1:
      for row in range(3):
        expected = oracle(logits[row], last[row], 3, 0.3, table=table)
        np.testing.assert_allclose(tree.probs[row, 0], expected, atol=1e-5)


def test_forbidden_lattices_have_probs_at_low_temperatures():
  context = texts([2, 5, 9], rows=3)
  logits = head_logits(context, np.array(context.lengths) - 2)
  table = np.array(TABLE)
  lattice = np.argsort(-logits[:, 0])[:, :3]
  table[np.array(context.last_tokens()), lattice] = 0
  tree = draft(rescored(trees.chain(1), 0.1, weight=1.0), context, table)
  inside = np.take_along_axis(tree.probs[:, 0], lattice, axis=1)
  np.testing.assert_allclose(inside.sum(-1), 1, atol=1e-6)


def test_estimates_are_those_of_the_formula():
  """Compares committed positions with a target of random probabilities."""
  drafter, num = rescored(trees.chain(2)), 3
  prompts = texts([2, 5, 9])
  rng = np.random.default_rng(8)
  probs = np.float32(rng.dirichlet(np.ones(SIZE), (ROWS, num)))
  target = specjax.base.TargetProbs(
    prompts.lengths, specjax.base.Probs(probs, probs)
  )
  context = prompts._replace(lengths=prompts.lengths + num)
  params = head()[1], TABLE

  @jax.jit
  def estimate(params):
    state = drafter.init(params, prompts, BUFFER)
    rows = jnp.ones(ROWS, bool)
    return drafter.estimate(params, state, context, rows, target)[-1]

  acceptance = estimate(params).processed
  for i in range(num):
    at = np.array(prompts.lengths) + i
    logits = head_logits(context, at - 2)
    for row in range(ROWS):
      last = int(context.tokens[row, at[row] - 1])
      draft_probs = oracle(logits[row], [last], drafter.top, drafter.weight)
      expected = np.minimum(draft_probs, probs[row, i]).sum()
      np.testing.assert_allclose(acceptance[row, i], expected, atol=1e-5)


def test_weights_share_a_program_and_a_kv_cache():
  one, other = (
    rescored(trees.chain(2), weight=weight) for weight in (0.2, 0.6)
  )
  assert jax.tree.structure(one) == jax.tree.structure(other)
  assert one.slot.key(estimates=False) == other.slot.key(estimates=False)
  assert one.slot.key(estimates=True) != other.slot.key(estimates=True)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'topology': trees.chain(5)},
      'topology must have a depth from 1 to 4, as there are 4 heads, got 5',
    ),
    (
      {'topology': trees.chain(4), 'bonus_probs': True},
      'topology must have a depth from 1 to 3',
    ),
    (
      {'model': specjax.models.Markov(3)},
      'model must have the vocabulary of head, which has 7 tokens, got 3',
    ),
    ({'top': 8}, r'top must lie in \[1, 7\], got 8'),
    ({'weight': 1.5}, r'weight must lie in \[0, 1\], got 1.5'),
  ],
)
def test_an_argument_out_of_range_raises(options, message):
  valid = {'model': MODEL, 'topology': trees.chain(2), 'top': 3}
  with pytest.raises(ValueError, match=message):
    drafters.Rescored(head()[0], **valid | options)
