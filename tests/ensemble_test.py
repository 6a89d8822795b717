"""Ensembles: their trees, what each member keeps, and the loop with them.

Oracles: trees by hand; the members alone, on the text from its beginning; plain
greedy decoding; the target's distribution (the verifier's is in verifiers/).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import feedback
from specjax.goals import apply
from specjax.testing import toys
from tests import arms
from tests import lossless_test
from tests import sizes
from tests import tiers
from tests import twins
from tests.decoding import drivers_test

ENSEMBLE = specjax.drafters.Ensemble
AUTOREGRESSIVE = specjax.drafters.Autoregressive


def test_joined_trees_are_as_written_by_hand():
  members = [trees.chain(2), trees.Topology((-1, -1, 1)), trees.chain(0)]
  topology, nodes = trees.join(members)
  assert topology.parents == (-1, -1, -1, 0, 2)
  assert [member_nodes.tolist() for member_nodes in nodes] == [
    [0, 3],
    [1, 2, 4],
    [],
  ]


def fixed(topology, tokens, valid=True):
  """Proposes the same tokens in every row."""

  def propose(params, context):
    del params
    shape = len(context.lengths), topology.num_nodes
    return (
      jnp.broadcast_to(jnp.array(tokens, jnp.int32), shape),
      jnp.broadcast_to(jnp.array(valid), shape),
    )

  return arms.Proposing(topology, propose)


@pytest.mark.parametrize('width', [4, 6], ids=['own width', 'of a deeper arm'])
def test_members_keep_their_longest_path_that_spells_what_was_accepted(width):
  """Uses rows in which 2, none and 3 of the tokens 4, 2, 7 were accepted."""
  cases = [  # A member, and the nodes that it keeps in each row.
    ((trees.chain(3), [4, 2, 7]), [[0, 1], [], [0, 1, 2]]),
    ((trees.chains(2, 2), [4, 4, 1, 2]), [[1, 3], [], [1, 3]]),
    ((trees.chain(2), [5, 2]), [[], [], []]),
    ((trees.chain(2), [4, 2], [True, False]), [[0], [], [0]]),
    ((trees.chain(0), []), [[], [], []]),
  ]
  members = [
    twins.twin(
      fixed(*member),
      commit=lambda state, proposal, context, outcome, rows: outcome,
    )
    for member, _ in cases
  ]
  drafter = ENSEMBLE(members)
  none = (None,) * len(members)
  context = specjax.Context(np.zeros((3, 8), np.int32), np.ones(3, np.int32))
  keys = jax.random.split(jax.random.key(0), 3)
  tree, proposal = jax.jit(drafter.draft)(keys, none, none, context)
  assert tree.probs is None and drafter.vocab_size is None
  outcome = specjax.Outcome(
    path=np.full((3, width - 1), 9, np.int32),
    num_accepted=np.int32([2, 0, 3]),
    tokens=np.tile(np.int32([4, 2, 7, 1, 0, 0])[:width], (3, 1)),
  )
  args = none, proposal, context, outcome, np.ones(3, bool)
  kept = jax.device_get(jax.jit(drafter.commit)(*args))
  for member_outcome, member, (_, expected) in zip(
    kept, members, cases, strict=True
  ):
    assert member_outcome.path.shape == (3, member.topology.depth)
    assert member_outcome.tokens.shape == (3, member.topology.depth + 1)
    for path, num, nodes in zip(
      member_outcome.path, member_outcome.num_accepted, expected
    ):
      assert path[:num].tolist() == nodes


TARGET = arms.DRAFT  # One layer, as its drafters have.


def perturbed_model(share):
  """Returns a model, and parameters that differ from the target by `share`."""
  model, params = TARGET
  interpolate = lambda leaf, other: np.asarray(leaf + share * (other - leaf))
  return model, jax.tree.map(
    interpolate, *jax.device_get((params, arms.OTHER[1]))
  )


@functools.cache
def ensemble_and_members(temperature):
  """Returns an ensemble of a chain, a tree and a lookup, with its members."""
  sampling = sampling_lib.Sampling(temperature)
  (model, params), (_, other_params) = (
    perturbed_model(0.05),
    perturbed_model(-0.05),
  )
  members = (
    arms.chunked(AUTOREGRESSIVE(model, trees.chain(3), sampling), 2),
    AUTOREGRESSIVE(model, trees.prefix_tree((2, 1)), sampling),
    specjax.drafters.PromptLookup(2),
  )
  return ENSEMBLE(members), members, (params, other_params, None)


def arm(drafter, params, temperature):
  verifier = 'ensemble' if temperature else 'greedy'
  return arms.arm(drafter, params, verifier)


ROWS, SIZE = sizes.ROWS, sizes.BUFFER
jitted = functools.cache(jax.jit)


@functools.cache
def alone(member):
  """Drafts with a member that has prefilled the text from its beginning."""

  @jax.jit
  def draft(keys, number, params, context):
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
    state = member.init(params, context, SIZE)
    return member.draft(keys, params, state, context)[0]

  return draft


def check_tree(tree, keys, members, params, context):
  """Compares an ensemble's tree with those of its members."""
  _, nodes = trees.join([member.topology for member in members])
  for i, (member, member_nodes) in enumerate(zip(members, nodes)):
    expected = jax.device_get(alone(member)(keys, i, params[i], context))
    np.testing.assert_array_equal(tree.tokens[:, member_nodes], expected.tokens)
    np.testing.assert_array_equal(tree.valid[:, member_nodes], expected.valid)
    size = tree.probs.shape[-1]
    # A member that predicts nothing chooses its tokens.
    chosen = np.eye(size)[expected.tokens]
    for name, fallback in (
      ('probs', chosen),
      ('raw_probs', np.zeros_like(chosen)),
    ):
      probs = getattr(expected, name)
      np.testing.assert_allclose(
        getattr(tree, name)[:, member_nodes],
        fallback if probs is None else probs,
        atol=1e-4,
      )


def check_rounds(drafter, rounds=12):
  """Runs rounds that accept any path, cut anywhere, and checks every tree.

  Returns:
    The number of tokens with which members caught up.
  """
  rng = np.random.default_rng(29)
  _, members, params = ensemble_and_members(1.0)
  topology, rows = drafter.topology, np.arange(ROWS)[:, None]
  tokens = rng.integers(toys.VOCAB, size=(ROWS, SIZE)).astype(np.int32)
  lengths = np.array([1, 2, 3, 9], np.int32)
  every, num_catch_up_tokens = np.ones(ROWS, bool), 0
  prompts = specjax.Context(tokens.copy(), lengths)
  state = jax.jit(drafter.init, static_argnums=2)(params, prompts, SIZE)
  for number in range(rounds):
    context = specjax.Context(tokens.copy(), lengths)
    state, num = jitted(drafter.catch_up)(params, state, context, every)
    num_catch_up_tokens += np.sum(num)
    keys = jax.random.split(jax.random.key(number), ROWS)
    tree, proposal = jitted(drafter.draft)(keys, params, state, context)
    tree = jax.device_get(tree)
    check_tree(tree, keys, members, params, context)
    emitted = rng.integers(toys.VOCAB, size=(ROWS, topology.depth + 1))
    leaves = rng.choice(topology.leaves, size=ROWS)
    for row, leaf in enumerate(leaves):
      path = np.flatnonzero(topology.mask[leaf + 1, 1:])
      emitted[row, : len(path)] = tree.tokens[row, path]
    num = rng.integers(topology.depths[leaves] + 1)
    outcome = specjax.Outcome(
      path=np.tile(np.arange(topology.depth, dtype=np.int32), (ROWS, 1)),
      num_accepted=num.astype(np.int32),
      tokens=emitted.astype(np.int32),
    )
    state = jitted(drafter.commit)(state, proposal, context, outcome, every)
    tokens[rows, lengths[:, None] + np.arange(topology.depth + 1)] = emitted
    lengths = (lengths + num + 1).astype(np.int32)
  return num_catch_up_tokens


def test_drafts_are_those_of_the_members_alone():
  """Includes rounds that follow the acceptance of another member's draft."""
  assert check_rounds(ensemble_and_members(1.0)[0]) > 10


def stale(params, state, context, rows):
  """Reads nothing."""
  del params, context
  return state, jnp.zeros_like(rows, int)


def proud(state, proposal, context, outcome, rows):
  """Commits a member's own drafts where another member's were accepted."""
  return tuple(
    member.commit(*arguments, context, outcome, rows)
    for member, *arguments in zip(
      ensemble_and_members(1.0)[1], state, proposal[1]
    )
  )


@pytest.mark.parametrize(
  'part',
  tiers.cases([{'catch_up': stale}, {'commit': proud}], {'commit': proud}),
)
def test_check_rejects_members_that_miss_what_others_drafted(part):
  with pytest.raises(AssertionError, match='not equal|Not equal'):
    check_rounds(twins.twin(ensemble_and_members(1.0)[0], **part))


@pytest.mark.slow
@pytest.mark.parametrize(('per_row', 'others'), [(False, 0), (True, 1)])
def test_loop_copies_no_cache_and_emits_what_greedy_decoding_does(
  per_row, others
):
  """Alone, or in turns with another arm."""
  drafter, members, params = ensemble_and_members(0.0)
  several = [arm(drafter, params, 0.0)]
  several += [arm(members[0], params[0], 0.0)] * others
  greedy = functools.partial(arms.decoder, temperature=0.0, target=TARGET)
  decoder = greedy(*several, bandit='round_robin', per_row=per_row)
  state, loop = drivers_test.compiled_loop(decoder)
  assert not drivers_test.cache_copies(loop, state)
  results = decoder.results(
    sizes.PROMPTS, loop(decoder.round_fn, decoder.params, state)
  )
  plain = greedy(arms.none()).decode(sizes.PROMPTS, sizes.NEW)
  assert arms.tokens(results) == arms.tokens(plain)
  for result in results:
    # A draft costs the calls of all members, 3 and 2 and none.
    assert result.draft_calls == np.dot(result.pulls, [5, 3][: len(several)])
    assert result.num_catch_up_tokens > 0
  assert sum(result.accepted.sum() for result in results) > 0


@pytest.mark.parametrize(
  'verifier', tiers.cases(['ensemble', 'multiround'], 'ensemble')
)
def test_only_independent_siblings_have_the_target_distribution(verifier):
  """The power is that of `lossless_test`; siblings taken for i.i.d. fail it."""
  target, draft = lossless_test.tables('time-varying')
  drafter = ENSEMBLE(
    [
      fixed(trees.chain(2), [1, 1]),
      AUTOREGRESSIVE(lossless_test.MODEL, trees.chain(2)),
      AUTOREGRESSIVE(lossless_test.MODEL, trees.chains(2, 1)),
    ]
  )
  if verifier != 'ensemble':  # Else it is refused.
    drafter = twins.twin(drafter, siblings=specjax.Siblings.IID)
  decoder = specjax.Decoder(
    lossless_test.MODEL,
    target,
    [arms.arm(drafter, (None, draft, draft[::-1]), verifier)],
  )
  p = lossless_test.p_value(decoder, target, sampling_lib.Sampling())
  assert p > 1e-4 if verifier == 'ensemble' else p < 1e-6


def test_members_that_choose_their_tokens_are_no_samples():
  chooses = specjax.drafters.PromptLookup()
  recycles = specjax.drafters.TokenRecycling(trees.chain(2), toys.VOCAB)
  samples = specjax.drafters.Autoregressive(arms.DRAFT[0], trees.chain(2))
  join = lambda *members: specjax.drafters.Ensemble(members).siblings
  assert join(chooses, recycles) is base.Siblings.CHOSEN
  assert join(chooses, samples) is base.Siblings.INDEPENDENT


def test_ensembles_that_make_no_sense_are_refused():
  with pytest.raises(ValueError, match='at least one drafter, got none'):
    ENSEMBLE([])
  small, large = (
    AUTOREGRESSIVE(specjax.models.Markov(size), trees.chain(1))
    for size in (3, 4)
  )
  with pytest.raises(ValueError, match=r'vocab_size, got \[3, None, 4\]'):
    ENSEMBLE([small, specjax.drafters.NoDrafter(), large])
  wide = twins.twin(small, feature_size=8)
  narrow = twins.twin(small, feature_size=4)
  assert ENSEMBLE([small, wide]).feature_size == 8
  with pytest.raises(ValueError, match=r'feature_size, got \[8, 4\]'):
    ENSEMBLE([wide, narrow])
  with pytest.raises(ValueError, match=r"such as 'ensemble', got another one"):
    specjax.make_round(
      lossless_test.MODEL,
      [specjax.Arm(ENSEMBLE([small, small]), verifiers.resolve('otm'))],
      specjax.bandits.Fixed(1),
    )
  with pytest.raises(ValueError, match=r"feedback 'full' needs .* \(arm 0\)"):
    specjax.make_round(
      lossless_test.MODEL,
      [arm(ENSEMBLE([small]), None, 1.0)[0]],
      specjax.bandits.Fixed(1),
      feedback='full',
    )


@pytest.mark.parametrize('reverse', [False, True])
def test_goals_and_rewards_of_an_ensemble_with_a_lookup(reverse):
  """Uses a rule on the predicting member; the lookup counts by its token."""
  rng = np.random.default_rng(3)
  draft, target = np.float32(rng.dirichlet(np.ones(3), 2))
  members = [
    (1, jax.nn.one_hot(1, 3), jnp.zeros(3)),  # The lookup.
    (2, jnp.asarray(draft), jnp.asarray(draft)),
  ][:: -1 if reverse else 1]
  tokens, probs, raw = zip(*members)
  tree = specjax.DraftTree(
    jnp.asarray([tokens], jnp.int32),
    trees.chains(2, 1),
    jnp.ones((1, 2), bool),
    jnp.stack(probs)[None],
    jnp.stack(raw)[None],
  )
  rows = jnp.broadcast_to(jnp.asarray(target), (1, 3, 3))
  target_probs = base.Probs(rows, rows)
  for alpha, expected in ((1 - draft.max() - 0.01, target), (0.99, draft)):
    goal = functools.partial(apply.probs, specjax.GOALS['chow'](float(alpha)))
    np.testing.assert_allclose(
      jax.vmap(goal)(tree, target_probs)[0, 0], expected
    )
  outcome = specjax.Outcome(
    jnp.zeros((1, 1), jnp.int32),
    jnp.zeros(1, jnp.int32),
    jnp.zeros((1, 2), jnp.int32),
  )
  accepted = feedback.tree_acceptance(tree, target_probs, outcome).mean.raw
  overlap = np.minimum(draft, target).sum()
  np.testing.assert_allclose(
    accepted, overlap if reverse else target[1], rtol=1e-5
  )
