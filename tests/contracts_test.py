"""What every component keeps, by its name in a table alone.

A component is one file and one line in a table. Its contract is that of
`specjax.testing`, which builds it with the example that stands with it. Broken
twins must fail.
"""

from collections.abc import Sequence
import dataclasses
import functools
import importlib
import itertools
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import components
from specjax import evaluation
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import testing
from specjax import trees
from specjax.evaluation import scoring
from specjax.goals import apply as goal_lib
from specjax.testing import bandits as bandit_checks
from specjax.testing import building
from specjax.testing import drafters as drafter_checks
from specjax.testing import goals as goal_checks
from specjax.testing import rewards as reward_checks
from specjax.testing import values
from specjax.testing import verifiers as verifier_checks
from tests import tiers
from tests import twins

TABLES = {
  'bandit': specjax.BANDITS,
  'coupling': specjax.COUPLINGS,
  'drafter': specjax.DRAFTERS,
  'goal': specjax.GOALS,
  'metric': evaluation.METRICS,
  'model': specjax.MODELS,
  'reward': specjax.REWARDS,
  'verifier': specjax.VERIFIERS,
}


def check(kind, name):
  """All that a row of a table has to keep."""
  component = registry.lookup(TABLES[kind], kind, name)
  options = OPTIONS.get(kind, {}) if name == 'new' else {}
  testing.CHECKS[kind](component, **options)


ROWS = [(kind, name) for kind, table in TABLES.items() for name in table]
# Their programs are large, and other tests verify or compare them exactly.
LARGE = ('coupling', 'otm_table'), ('verifier', 'distinct')


@pytest.mark.parametrize(
  ('kind', 'name'),
  tiers.cases(ROWS, *(row for row in ROWS if row not in LARGE)),
)
def test_contract(kind, name):
  check(kind, name)


@pytest.mark.parametrize('kind', TABLES)
def test_unknown_name_raises_with_all_known_names(kind):
  table = TABLES[kind]
  with pytest.raises(ValueError) as error:
    registry.lookup(table, kind, 'nope')
  message = str(error.value)
  assert message.startswith(f"Unknown {kind} 'nope'. Known: ")
  assert message.split('Known: ')[1].rstrip('.').split(', ') == sorted(table)


# The room of each table, of which its components are names, too.
ROOMS = {
  'bandit': specjax.bandits,
  'coupling': specjax.couplings,
  'drafter': specjax.drafters,
  'goal': specjax.goals,
  'metric': evaluation,
  'model': specjax.models,
  'reward': specjax.rewards,
  'verifier': specjax.verifiers,
}
PACKAGES = [
  'specjax',
  *(
    module.name
    for module in pkgutil.iter_modules(specjax.__path__, 'specjax.')
    if module.ispkg
  ),
]


@pytest.mark.parametrize('kind', TABLES)
def test_a_component_is_a_name_of_its_room(kind):
  """Even where a module has the same name, whatever is imported first."""
  room = ROOMS[kind]
  for module in pkgutil.iter_modules(getattr(room, '__path__', [])):
    importlib.import_module(f'{room.__name__}.{module.name}')
  for name, component in TABLES[kind].items():
    attribute = component.__name__ if isinstance(component, type) else name
    assert getattr(room, attribute) is component
    # A room that is one module has no list of names.
    assert attribute in getattr(room, '__all__', vars(room))


@pytest.mark.parametrize('name', PACKAGES)
def test_a_package_has_the_names_that_it_lists(name):
  package = importlib.import_module(name)
  assert len(set(package.__all__)) == len(package.__all__)
  assert all(hasattr(package, attribute) for attribute in package.__all__)


# One file and one line: new components, as somebody else would write them.


@components.component
class Patient(base.Bandit):
  """The bandit that changes arms after a round without a reward."""

  def init(self):
    return jnp.int32(0)

  def select(self, key, state):
    return state

  def update(self, state, arm, reward, /, **extra):
    return jnp.where(reward > 0, arm, (arm + 1) % self.num_arms)

  def update_all(self, state, rewards):
    return jnp.argmax(rewards).astype(jnp.int32)


@components.component
class Naive(base.Coupling):
  """The coupling that draws from the target, whatever the candidates are."""

  def __call__(self, key, candidates, active, draft, target):
    num = sampling_lib.num_uniforms(target.size)
    token = sampling_lib.draw(jax.random.uniform(key, (num,)), target)
    return token, (active & (candidates == token)).any()


@components.component
class Counting(specjax.drafters.StatelessDrafter):
  """Counts on from the last token; params are another step."""

  draft_length: int = components.static()
  step: int = components.static()

  @functools.cached_property
  def topology(self):
    return trees.chain(self.draft_length)

  def propose(self, params, context):
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)
    steps = (self.step + params) * (np.arange(self.draft_length)[None] + 1)
    tokens = (last + steps) % 3
    return tokens, jnp.ones_like(tokens, bool)


@components.component
class Blend(base.Goal):
  """The goal that is a mixture of both distributions."""

  share: float

  def __call__(self, target, draft, raw):
    return (1 - self.share) * target + self.share * draft


def equal():
  """The metric of texts that are equal to the letter."""
  return scoring.mean(lambda prediction, reference: prediction == reference)


@components.component
class Unigram(specjax.models.Markov):
  """The model that looks at a token's position only; params are its logits."""

  def init_cache(self, params, batch, size):
    return super().init_cache(self._table(params), batch, size)

  def extend(self, params, cache, tokens, **options):
    return super().extend(self._table(params), cache, tokens, **options)

  def _table(self, params):
    rows = jax.nn.softmax(params)[:, None]
    return jnp.broadcast_to(
      rows, (len(params), self.vocab_size, self.vocab_size)
    )


@components.component
class Steep(base.Reward):
  """The reward of emitted tokens, of which many are worth more."""

  depths: Sequence[int] = components.static()
  power: float = 2.0

  def __post_init__(self):
    components.freeze_sequences(self, 'depths')

  def __call__(self, info):
    return (info.num_emitted / (max(self.depths) + 1)) ** self.power


@components.component
class Careful(base.Verifier):
  """The verifier that keeps the first draft token at most."""

  def __call__(self, key, tree, target_probs):
    topology, walk = tree.topology, specjax.verifiers.TreeWalk()
    if topology != trees.chain(topology.num_nodes):
      raise ValueError(
        f'A chain is needed, got a tree with parents {topology.parents}.'
      )
    if not topology.depth:
      return walk(key, tree, target_probs)
    first = jax.tree.map(lambda leaf: leaf[:1], tree)
    first = first._replace(topology=trees.chain(1))
    outcome = walk(key, first, target_probs[:2])
    longer = lambda leaf: jnp.pad(leaf, (0, topology.depth - 1))
    return base.Outcome(
      longer(outcome.path), outcome.num_accepted, longer(outcome.tokens)
    )


NEW = {
  'bandit': Patient,
  'coupling': Naive,
  'drafter': Counting,
  'goal': Blend,
  'metric': equal,
  'model': Unigram,
  'reward': Steep,
  'verifier': Careful,
}


# Arguments of the checks of `NEW` that have no default.
OPTIONS = {
  'drafter': {'step': 1, 'params': jnp.int32(1)},
  'goal': {'share': 0.25},
  'model': {
    'vocab_size': 4,
    'params': np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32),
  },
}


@pytest.mark.parametrize('kind', TABLES)
def test_a_line_in_a_table_is_enough(kind, monkeypatch):
  monkeypatch.setitem(TABLES[kind], 'new', NEW[kind])
  check(kind, 'new')


def test_an_example_that_lacks_an_argument_is_named(monkeypatch):
  @components.component
  class Lacking(specjax.drafters.StatelessDrafter):
    """Never built."""

    draft_length: int = components.static()
    width: int = components.static()

  monkeypatch.setitem(TABLES['drafter'], 'new', Lacking)
  words = "Lacking: The example must contain .* missing .* argument: 'width'"
  with pytest.raises(AssertionError, match=words):
    check('drafter', 'new')


def twin(kind, change):
  """What `NEW` has, but that a change is made to it, or to what was built."""
  factory = NEW[kind]
  if kind in ('bandit', 'drafter', 'model'):
    return change(factory)
  if kind == 'metric':

    @functools.wraps(factory)
    def build(*args, **kwargs):
      return change(factory(*args, **kwargs))

    return build

  @components.component
  class Twin(factory):
    """A component that is broken."""

    def __call__(self, *args):
      return change(super().__call__)(*args)

  return Twin


def overriding(**methods):
  """Breaks methods of a bandit or of a model."""
  methods['__doc__'] = 'A component that is broken.'
  return lambda parent: components.component(type('Broken', (parent,), methods))


def picking(pick):
  """Breaks what a coupling returns."""
  return lambda coupling: (
    lambda key, candidates, active, draft, target: pick(
      *coupling(key, candidates, active, draft, target), target
    )
  )


def drafting(change, **attributes):
  """Breaks the trees of a drafter, which may look at the context."""

  def broken(drafter_class):
    def draft(self, *args):
      tree, proposal = drafter_class.draft(self, *args)
      return change(tree, args[-1]), proposal

    return twins.subclass(drafter_class, draft=draft, **attributes)

  return broken


def looking_at_junk(tree, context):
  junk = jnp.take_along_axis(context.tokens, context.lengths[:, None], axis=1)
  return tree._replace(tokens=tree.tokens * 0 + junk)


def of_mass(mass):
  """A drafter that reports distributions of a mass."""

  def change(tree, context):
    del context
    probs = mass * jax.nn.one_hot(tree.tokens, 3)
    return tree._replace(probs=probs)

  return drafting(change, vocab_size=3)


def misreporting(tree, context):
  del context
  probs = jax.nn.one_hot((tree.tokens + 1) % 3, 3)
  return tree._replace(probs=probs)


def forked(drafter_class):
  """Breaks a drafter that reports distinct siblings."""
  topology = trees.chains(2, 1)

  def draft(self, *args):
    tree, proposal = drafter_class.draft(self, *args)
    tokens = jnp.repeat(tree.tokens[:, :1], 2, axis=1)
    valid = jnp.ones(tokens.shape, bool)
    return base.DraftTree(tokens, topology, valid, None), proposal

  return twins.subclass(drafter_class, topology=topology, draft=draft)


def estimating(change):
  """Breaks the estimated acceptance of a drafter."""

  def broken(drafter_class):
    def estimate(self, *args):
      return change(*drafter_class.estimate(self, *args))

    return twins.subclass(drafter_class, estimate=estimate)

  return broken


def doubled(state, num_tokens, acceptance):
  return state, num_tokens, jax.tree.map(lambda leaf: 2 * leaf, acceptance)


def extending(change, arguments=lambda options: options):
  """Breaks the output of a model, or the arguments of its calls."""

  def extend(self, params, cache, tokens, **options):
    return change(
      Unigram.extend(self, params, cache, tokens, **arguments(options))
    )

  return overriding(extend=extend)


def calling(arguments):
  """Breaks the arguments of a model's calls."""
  return extending(lambda output: output, arguments)


def verifying(change):
  """Breaks the outcomes of a verifier."""
  return lambda verifier: lambda *args: change(verifier(*args))


def refusing(words, accepts=lambda topology: not topology.num_nodes):
  """A verifier that takes some trees alone: by default, the empty one."""

  def broken(verifier):
    def verify(key, tree, target_probs):
      if not accepts(tree.topology):
        raise ValueError(words)
      return verifier(key, tree, target_probs)

    return verify

  return broken


def all_valid(verifier):
  return lambda key, tree, target_probs: verifier(
    key, tree._replace(valid=jnp.ones_like(tree.valid)), target_probs
  )


# Of each kind what is broken, by what the contract says of it.
BROKEN = {
  ('bandit', 'Arms must lie in'): overriding(
    select=lambda self, key, state: jnp.int32(self.num_arms)
  ),
  ('bandit', 'select must return an arm'): overriding(
    select=lambda self, key, state: jnp.float32(0)
  ),
  ('bandit', 'num_arms must be'): overriding(
    __post_init__=lambda self: object.__setattr__(
      self, 'num_arms', self.num_arms + 1
    )
  ),
  ('bandit', 'update must keep'): overriding(
    update=lambda self, state, arm, reward, /, **extra: jnp.append(state, arm)
  ),
  ('bandit', 'update_all must keep'): overriding(
    update_all=lambda self, state, rewards: rewards.max()
  ),
  ('coupling', 'A token must be accepted'): picking(
    lambda token, accepted, target: (token, True | accepted)
  ),
  ('coupling', 'accepted exactly if'): picking(
    lambda token, accepted, target: (token, False & accepted)
  ),
  ('coupling', 'All tokens must have mass'): lambda coupling: (
    lambda key, candidates, active, draft, target: coupling(
      key, candidates, active, draft, jnp.float32(target == target.min())
    )
  ),
  ('coupling', 'A token must be a scalar'): picking(
    lambda token, accepted, target: (token[None], accepted)
  ),
  ('drafter', 'tokens of all nodes'): drafting(
    lambda tree, context: tree._replace(tokens=tree.tokens[:, 1:])
  ),
  ('drafter', 'valid of all nodes'): drafting(
    lambda tree, context: tree._replace(valid=tree.tokens)
  ),
  ('drafter', 'in the vocabulary, also'): drafting(
    lambda tree, context: tree._replace(tokens=tree.tokens + 1)
  ),
  ('drafter', 'distributions must have mass 1'): of_mass(0.5),
  ('drafter', 'parent of a valid node must be'): drafting(
    lambda tree, context: tree._replace(
      valid=tree.valid & (np.arange(2) > 0)[None]
    )
  ),
  ('drafter', 'must be drawn from the probs'): drafting(
    misreporting, vocab_size=3
  ),
  ('drafter', 'must not depend on other rows'): drafting(
    lambda tree, context: tree._replace(tokens=jnp.roll(tree.tokens, 1, 0))
  ),
  ('drafter', 'or on undefined tokens after its text'): drafting(
    looking_at_junk
  ),
  ('drafter', 'greedy must have chosen'): drafting(
    lambda tree, context: tree._replace(
      probs=jnp.full((*tree.tokens.shape, 3), 1 / 3)
    ),
    vocab_size=3,
  ),
  ('drafter', 'Valid siblings must be different'): forked,
  ('drafter', 'commit must keep'): lambda drafter_class: twins.subclass(
    drafter_class, commit=lambda self, state, proposal, *args: (proposal, 1)
  ),
  ('drafter', 'observe must keep'): lambda drafter_class: twins.subclass(
    drafter_class,
    num_likeliest=1,
    observe=lambda self, state, scored, rows: scored.likeliest,
  ),
  ('drafter', 'must implement estimate'): lambda drafter_class: twins.subclass(
    drafter_class, can_estimate=False
  ),
  ('drafter', 'acceptance rate must lie in'): estimating(doubled),
  ('drafter', 'estimate must keep'): estimating(
    lambda *outputs: (outputs, *outputs[1:])
  ),
  ('goal', 'Goals must have mass 1'): lambda goal: (
    lambda *args: 2 * goal(*args)
  ),
  ('goal', 'Probabilities must be >= 0'): lambda goal: (
    lambda target, draft, raw: 2 * target - draft
  ),
  ('goal', 'A goal must return a distribution'): lambda goal: (
    lambda *args: goal(*args).sum()
  ),
  ('metric', 'Scores must be percentages'): lambda metric: metric._replace(
    total=lambda sums: sums[0] / sums[1]
  ),
  ('model', 'extend must return logits'): extending(
    lambda output: output._replace(logits=output.logits[..., :3])
  ),
  ('model', 'a cache whose lengths are'): overriding(
    init_cache=lambda self, params, batch, size: ()
  ),
  ('model', 'one by one'): overriding(commit=lambda self, cache, *args: cache),
  ('model', 'after pending tokens'): calling(
    lambda options: options | {'pending_kv': None}
  ),
  ('model', 'as a tree'): calling(
    lambda options: options | {'positions': None}
  ),
  ('model', 'after a committed path'): overriding(
    commit=lambda self, cache, pending_kv, path, num: Unigram.commit(
      self, cache, pending_kv, path, jnp.full_like(num, path.shape[1])
    )
  ),
  ('model', 'rolled back'): overriding(
    rollback=lambda self, cache, lengths: cache
  ),
  ('model', 'commit must keep'): overriding(
    commit=lambda self, cache, pending_kv, *args: cache.replace(
      lengths=pending_kv
    )
  ),
  ('model', 'must match feature_sizes'): overriding(feature_sizes=(3,)),
  ('reward', 'rewards must lie'): lambda reward: (
    lambda info: 1.01 * reward(info)
  ),
  ('reward', r'rewards must lie in \[0, 1\]'): lambda reward: (
    lambda info: reward(info) / info.tree_depth.astype(jnp.float32)
  ),
  ('reward', 'one reward per row'): lambda reward: (
    lambda info: reward(info).max()
  ),
  ('verifier', 'must match the depth'): verifying(
    lambda outcome: outcome._replace(tokens=outcome.path)
  ),
  ('verifier', 'accepted nodes must be valid'): all_valid,
  ('verifier', 'tokens of the accepted path must be emitted'): verifying(
    lambda outcome: outcome._replace(
      tokens=(outcome.tokens + 1) % verifier_checks.VOCAB_SIZE
    )
  ),
  ('verifier', 'must be accepted, got'): refusing('It needs the empty tree.'),
  ('verifier', 'A refusal must be a sentence'): refusing(
    'bad tree', lambda topology: len(topology.leaves) < 2
  ),
}


@pytest.mark.parametrize(('kind', 'words'), BROKEN)
def test_check_rejects_what_is_broken(kind, words, monkeypatch):
  monkeypatch.setitem(TABLES[kind], 'new', twin(kind, BROKEN[kind, words]))
  with pytest.raises(AssertionError, match=words):
    check(kind, 'new')


@pytest.mark.parametrize(
  ('verifier', 'topologies', 'words'),
  [
    (Careful, [trees.chains(2, 2)], 'must be accepted, got'),
    (specjax.verifiers.TreeWalk, [], 'must be refused, or be in topologies'),
    (specjax.verifiers.TreeWalk, [trees.chains(2, 2)], 'must be refused'),
  ],
)
def test_check_rejects_a_verifier_that_says_what_is_not_so(
  verifier, topologies, words
):
  with pytest.raises(AssertionError, match=words):
    testing.check_verifier(verifier, topologies=topologies)


# Components that are no values, or whose numbers are no data.


class Undecorated(Steep):
  """A subclass that is not registered with JAX."""


@components.component
class Alike(Steep):
  """A reward that is equal to others of another power."""

  power: float = dataclasses.field(default=2.0, compare=False)


@components.component
class Compiled(Steep):
  """A reward that is compiled for each power."""

  power: float = components.static(default=2.0)


@components.component
class CompiledForCosts(base.Reward):
  """A reward that is compiled for each table of costs."""

  costs: Sequence[float] = components.static()

  def __post_init__(self):
    components.freeze_sequences(self, 'costs')


@pytest.mark.parametrize(
  ('component_class', 'words'),
  [
    (Undecorated, 'Components must be decorated with components.component'),
    (Alike, 'Another power must make another component'),
    (Compiled, 'power is a number, which must be data'),
    (CompiledForCosts, 'costs is a number, which must be data'),
  ],
)
def test_check_rejects_components_that_are_no_data(component_class, words):
  arguments = {'depths': [4], 'costs': [0.5]}
  arguments = building.select_arguments(component_class, arguments)
  with pytest.raises(AssertionError, match=words):
    values.check_component(component_class, arguments)


def test_a_mixture_of_traced_goals_leaves_nothing_behind():
  goals = specjax.GOALS
  target, draft = goal_checks.pairs()

  @jax.jit
  def mixed(alpha):
    goal = goals['mixture'](goals['chow'](alpha), goals['target']())
    return jax.vmap(goal)(target, draft, base.RawProbs(target, draft))

  with jax.checking_leaks():
    first, second, third = mixed(0.25), mixed(0.25), mixed(0.75)
  np.testing.assert_array_equal(first, second)
  assert (first != third).any()


@pytest.mark.parametrize(
  'name', tiers.cases(specjax.BANDITS, 'hedge', 'thompson', 'ucb1')
)
def test_a_bandit_first_built_while_jax_traces_is_of_use_later(name):
  """What it holds are not values of that trace."""
  bandit_class = specjax.BANDITS[name]
  arguments = building.arguments(
    bandit_class, bandit_checks.default_arguments(7), {}
  )
  built = []

  @jax.jit
  def trace(number):
    built.append(bandit_class(**arguments))
    return number

  with jax.checking_leaks():
    trace(1.0)
  (bandit,) = built
  assert bandit == bandit_class(**arguments)
  state = jax.device_get(bandit.init())
  arm = jax.jit(bandit.select)(jax.random.key(0), state)
  assert 0 <= int(arm) < bandit.num_arms


# Of drafters and goals.


def certain(tree):
  """A broken twin: it claims to be certain of what it has proposed."""
  return tree._replace(raw_probs=jax.nn.one_hot(tree.tokens, 3))


@pytest.mark.parametrize(
  ('name', 'temperature'),
  tiers.cases(
    itertools.product(sorted(set(specjax.DRAFTERS) - {'none'}), [0.0, 1.0]),
    ('autoregressive', 1.0),
    ('ensemble', 1.0),
    ('feature_head', 0.0),
    ('prompt_lookup', 1.0),
  ),
)
def test_a_rule_that_defers_samples_the_target(name, temperature):
  """Covers any draft, including tokens that are chosen rather than drawn.

  No drafter here assigns a token a probability of 0.9999.
  """
  drafter_class = specjax.DRAFTERS[name]
  sampling = sampling_lib.Sampling(temperature)
  chosen = drafter_checks.arguments(drafter_class, sampling)
  drafter = drafter_class(**chosen)
  params = drafter_checks.example_params(drafter_class, chosen)
  context = drafter_checks.contexts(drafter)
  keys = jax.random.split(jax.random.key(0), len(context.lengths))

  @jax.jit
  def goals(alpha):
    state = drafter.init(params, context, context.tokens.shape[1])
    tree, _ = drafter.draft(keys, params, state, context)
    shape = len(keys), tree.topology.num_nodes + 1, 3
    raw, draws = jax.random.dirichlet(
      jax.random.key(1), jnp.ones(3), (2, *shape[:2])
    )
    target = base.Probs(draws, raw)
    goal = functools.partial(goal_lib.probs, specjax.GOALS['chow'](alpha))
    sample = lambda tree: jax.vmap(goal)(tree, target)
    has_probs = jax.vmap(goal_lib.has_draft_probs)(tree)[-1]
    return draws, sample(tree), sample(certain(tree)), has_probs

  for alpha in (0.0, 1e-4):
    target, samples, broken, has_probs = goals(alpha)
    np.testing.assert_array_equal(samples, target)
    assert (alpha == 0) == (broken == target).all()
  # This includes the distributions after leaves if bonus_probs is set.
  assert has_probs.all() or not chosen.get('bonus_probs')


# Of single components.


@pytest.mark.parametrize(
  ('options', 'name'),
  [({'num_arms': 0}, 'num_arms'), ({'num_arms': 2, 'arm': 2}, 'arm')],
)
def test_fixed_bandit_out_of_range_raises(options, name):
  with pytest.raises(ValueError, match=name):
    specjax.bandits.Fixed(**options)


def test_fixed_bandit_plays_its_arm():
  bandit = specjax.bandits.Fixed(3, arm=2)
  assert bandit.select(jax.random.key(0), bandit.init()) == 2


def test_emitted_counts_tokens_beyond_the_first():
  np.testing.assert_allclose(
    specjax.rewards.Emitted()(reward_checks.info(2, 4)), [0, 0, 0.25, 0.5]
  )


@pytest.mark.parametrize(
  'name',
  [
    *('bild', 'chow', 'chow_log', 'diff', 'diff_log', 'lossy', 'mixture'),
    *('opt', 'opt_log', 'target'),
  ],
)
def test_with_equal_models_there_is_only_one_goal(name):
  """With nothing to choose between; the token rules sharpen the target."""
  target, _ = goal_checks.pairs()
  goal_class = specjax.GOALS[name]
  goal = goal_class(**goal_checks.EXAMPLES[goal_class])
  raw = base.RawProbs(target, target)
  goals = jax.jit(jax.vmap(goal))(target, target, raw)
  np.testing.assert_allclose(goals, target, atol=1e-5)


@pytest.mark.parametrize(
  ('name', 'topology', 'words'),
  [
    ('batch', trees.prefix_tree((2, 2)), 'needs chains from the root, got'),
  ],
)
def test_a_verifier_says_which_trees_it_needs(name, topology, words):
  tree, target_probs = verifier_checks.random_trees(topology)
  verify = jax.vmap(specjax.VERIFIERS[name]())
  keys = jax.random.split(jax.random.key(0), verifier_checks.NUM_TREES)
  with pytest.raises(ValueError, match=words):
    jax.eval_shape(verify, keys, tree, target_probs)
