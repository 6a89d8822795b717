"""Goals: formulas, the lemmas of speculative cascades, and what is refused.

Lemmas, equations and tables are those of Narasimhan et al. (2024). Goals are
compared with float64 NumPy that is written as the tables are.
"""

import functools
import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy import special

import specjax
from specjax import base
from specjax import drafters
from specjax import trees
from specjax import verifiers
from specjax.couplings import residuals
from specjax.goals import apply
from specjax.testing import distributions
from specjax.testing import toys
from tests import parts

VOCAB = 12

# From deferring often to seldom. Binary fractions meet the ties of
# probabilities in sixteenths exactly; ties of entropies, at 0, are not exact in
# any float.
ALPHAS = {
  'bild': (0.0, 0.7, 2.0, 6.0),
  'chow': (0.0, 0.25, 0.6, 0.75),
  'chow_log': (0.0, 0.7, 1.5, 2.2),
  'diff': (-0.5, 0.0, 0.25, 0.6),
  'diff_log': (-0.5, 0.1, 0.3, 1.0),
  'lossy': (0.0, 0.1, 0.5, 0.9),
  'opt': (-0.5, 0.0, 0.25, 2.0),
  'opt_log': (-0.5, 0.1, 0.4, 2.0),
  'token_v1': (-0.25, 0.0, 0.25, 0.5),
  'token_v2': (0.0, 0.1, 0.25, 0.5),
  'token_v3': (0.0, 0.1, 0.25, 0.8),
}
TOKEN_RULES = ['token_v1', 'token_v2', 'token_v3']
DEFERRALS = sorted(set(ALPHAS) - {'lossy', *TOKEN_RULES})
each_rule = pytest.mark.parametrize('name', ALPHAS)


def top(probs):
  return probs.max(-1, keepdims=True)


def entropy(probs):
  return surprise(probs, probs)


def surprise(draft, target):
  """Cross entropy, with `0 log 0 = 0`."""
  return -special.xlogy(draft, target).sum(-1, keepdims=True)


def distance(target, draft):
  return np.maximum(0, target - draft).sum(-1, keepdims=True)


# A rule defers where its gap is positive, at a position or token by token; of
# alpha, the sampled probabilities and the raw ones, `[..., V]` each.
GAPS = {
  'bild': lambda a, t, d, t1, d1: surprise(d, t1) - a,
  'chow': lambda a, t, d, t1, d1: (1 - a) - top(d1),
  'chow_log': lambda a, t, d, t1, d1: entropy(d1) - a,
  'diff': lambda a, t, d, t1, d1: (top(t1) - a) - top(d1),
  'diff_log': lambda a, t, d, t1, d1: (entropy(d1) - a) - entropy(t1),
  'opt': lambda a, t, d, t1, d1: (top(t1) - a * distance(t, d)) - top(d1),
  'opt_log': lambda a, t, d, t1, d1: (
    (entropy(d1) - a * distance(t, d)) - entropy(t1)
  ),
  'token_v1': lambda a, t, d, t1, d1: (top(t1) - a) - d1,
  'token_v2': lambda a, t, d, t1, d1: (top(t1) - a) - t1,
  'token_v3': lambda a, t, d, t1, d1: top(t1) * (1 - a) - t1,
}


def lossy_formula(alpha, target, draft):
  """One pair's goal, with the beta at which its mass is 1."""

  def goal(share):
    kept = np.minimum(draft, target / (1 - alpha))
    return np.maximum(kept, target * share)

  excess = lambda share: goal(share).sum() - 1
  if excess(0) >= 0:
    return goal(0)  # Nothing is rejected.
  if excess(1) <= 0:
    return goal(1)  # What float32 lacks of mass 1.
  return goal(optimize.brentq(excess, 0, 1, xtol=1e-13))


def formula(name, alpha, *four):
  """Returns goals `[n, V]` in float64, and the gaps that decided."""
  target, draft = four[:2]
  if name == 'lossy':
    goals = [lossy_formula(alpha, t, d) for t, d in zip(target, draft)]
    return np.array(goals), np.full((len(goals), 1), np.inf)
  gap = GAPS[name](alpha, *four)
  defer = (gap > 0).astype(np.float64)
  if name in TOKEN_RULES:
    deferred_mass = (defer * draft).sum(-1, keepdims=True)
    return draft * (1 - defer) + target * deferred_mass, gap
  return (1 - defer) * draft + defer * target, gap


def float32_pairs(sampled, raw=None):
  """`[2, n, V]` of target and draft as four float32 arrays `[n, V]`."""
  four = [*sampled, *(sampled if raw is None else raw)]
  # Numbers too small for float32 are 0 on some machines only.
  return tuple(
    np.where(probs < 1e-30, 0, probs).astype(np.float32) for probs in four
  )


def of_temperature(temperature, logits):
  """Pairs that are sampled at a temperature."""
  if temperature:
    sampled = special.softmax(logits / temperature, axis=-1)
  else:
    sampled = np.eye(logits.shape[-1])[logits.argmax(-1)]
  return sampled, special.softmax(logits, axis=-1)


def similar_logits(rng, num):
  """`[2, num, V]` logits of a target and of a draft that is near it."""
  target = rng.normal(size=(num, VOCAB), scale=2)
  return np.stack([target, target + rng.normal(size=target.shape)])


@functools.cache
def pairs():
  """Returns 1,000 `(target, draft, raw target, raw draft)`, `[n, V]`.

  They are sharp and flat; sparse, in sixteenths and quarters, with many ties;
  equal; and from similar models at temperatures 0 (one-hots), 0.5 and 2.
  """
  rng = np.random.default_rng(23)
  even = np.full(VOCAB, 1 / VOCAB)
  plain = [
    *(rng.dirichlet(np.full(VOCAB, c), (2, 100)) for c in (0.05, 0.3, 1, 10)),
    rng.multinomial(16, even, (2, 150)) / 16,
    rng.multinomial(4, even, (2, 50)) / 4,
    np.stack([rng.dirichlet(np.full(VOCAB, 0.5), 100)] * 2),
  ]
  parts = [(probs, probs) for probs in plain] + [
    of_temperature(temperature, similar_logits(rng, num))
    for temperature, num in ((0, 150), (0.5, 75), (2, 75))
  ]
  return float32_pairs(*(np.concatenate(arrays, 1) for arrays in zip(*parts)))


def dirichlet_pairs(seed, num, size=VOCAB):
  """Pairs without zeros or ties, at temperature 1."""
  rng = np.random.default_rng(seed)
  return float32_pairs(rng.dirichlet(np.ones(size), (2, num)))


@functools.cache
def rule(name):
  """The rule for batches, of any alpha: one program for a vocabulary size."""
  goal = lambda alpha, *args: specjax.GOALS[name](alpha=alpha)(*args)
  return jax.jit(jax.vmap(goal, (None, 0, 0, 0)))


def goals_of(name, alpha, four):
  num = len(four[0])
  resized = tuple(np.resize(probs, (1000, probs.shape[1])) for probs in four)
  raw = base.RawProbs(*resized[2:])
  return np.asarray(rule(name)(alpha, *resized[:2], raw))[:num]


def defers(name, alpha, four):
  """`[n]` whether the goal is the target; also true where both are equal."""
  return (goals_of(name, alpha, four) == four[0]).all(1)


@each_rule
def test_goal_equals_the_formula(name):
  """Skips inequalities that hold by so little that float32 may miss them."""
  four = pairs()
  assert four[0].shape == (1000, VOCAB)
  gaps = []
  for alpha in ALPHAS[name]:
    expected, gap = formula(
      name, alpha, *(probs.astype(float) for probs in four)
    )
    hair = ((gap != 0) & (np.abs(gap) < 1e-5)).any(1)
    assert hair.sum() <= 20
    np.testing.assert_allclose(
      goals_of(name, alpha, four)[~hair], expected[~hair], atol=1e-6
    )
    gaps.append(gap)
  if name != 'lossy':
    assert min((np.array(gaps) > 0).mean(), (np.array(gaps) < 0).mean()) > 0.1
  if name in ('chow', 'diff', 'opt', *TOKEN_RULES):
    assert (np.array(gaps) == 0).sum() > 20  # Ties do not defer.


@each_rule
def test_alpha_may_be_static(name):
  """Shapes and types are those of the target."""
  target, draft, *_ = four = dirichlet_pairs(1, 100)
  alpha = 0.25  # Float32 has it exactly.
  goal = specjax.GOALS[name](alpha=alpha)

  @jax.jit
  def goals(target, draft, raw):
    first = jax.tree.map(lambda probs: probs[0], (target, draft, raw))
    return jax.vmap(goal)(target, draft, raw), goal(*first)

  batch, single = goals(target, draft, base.RawProbs(*four[2:]))
  for probs, shape in ((batch, target.shape), (single, (VOCAB,))):
    assert (probs.shape, probs.dtype) == (shape, jnp.float32)
  np.testing.assert_allclose(goals_of(name, alpha, four), batch, atol=1e-6)


def test_all_values_of_alpha_share_one_program():
  target, draft, *raw = dirichlet_pairs(1, 100)
  num_traced = 0

  @jax.jit
  def evaluate(goal):
    nonlocal num_traced
    num_traced += 1
    return jax.vmap(goal)(target, draft, base.RawProbs(*raw))

  for alpha in ALPHAS['opt']:
    np.testing.assert_allclose(
      evaluate(specjax.goals.Opt(alpha)),
      goals_of('opt', alpha, (target, draft, *raw)),
      atol=1e-6,
    )
  assert num_traced == 1


@jax.jit
def lossy_goals(alpha, beta, target, draft):
  """Goals and their residuals."""
  goal = specjax.goals.Lossy(alpha, beta)
  probs = jax.vmap(goal)(target, draft, base.RawProbs(target, draft))
  return probs, jax.vmap(residuals.residual)(draft, probs)


@pytest.mark.parametrize(
  ('alpha', 'beta'), [(0.5, 0.5), (0.5, 1.0), (0.1, 1.0), (0.75, 2.0)]
)
def test_lossy_step_accepts_and_replaces_as_lossy_sampling(alpha, beta):
  """Lemma 2, token by token, with goals whose mass is not 1."""
  target, draft = pairs()[:2]
  goal, residual = map(np.asarray, lossy_goals(alpha, beta, target, draft))
  assert (np.abs(goal.sum(1) - 1) > 0.01).mean() > 0.3
  ratio = lambda mass: np.minimum(1, mass[draft > 0] / draft[draft > 0])
  with np.errstate(over='ignore'):
    np.testing.assert_allclose(
      ratio(goal), ratio(target / (1 - alpha)), atol=1e-6
    )
  excess = np.maximum(0, target / beta - draft)
  has_excess = excess.sum(1) > 1e-6  # Else nothing of the target is left.
  assert has_excess.mean() > 0.3
  np.testing.assert_allclose(
    residual[has_excess], excess[has_excess], atol=1e-6
  )


@pytest.mark.parametrize('name', DEFERRALS)
def test_rejection_is_the_distance_where_a_rule_defers(name):
  """Checks Lemma 3 by the masses."""
  four = pairs()
  distances = distance(*four[:2])[:, 0]
  for alpha in ALPHAS[name]:
    rejected = distance(four[1], goals_of(name, alpha, four))[:, 0]
    expected = np.where(defers(name, alpha, four), distances, 0)
    np.testing.assert_allclose(rejected, expected, atol=1e-6)


@functools.partial(jax.jit, static_argnums=2)
def coupled(alpha, draft, num):
  """Draws of the coupling with Chow's goal, and the goal."""
  target = jnp.array([0.1, 0.2, 0.3, 0.4])
  goal = specjax.goals.Chow(alpha)(target, draft, base.RawProbs(target, draft))
  step = jax.vmap(specjax.couplings.Maximal(), (0, 0, None, None, None))
  candidate_key, step_key = jax.random.split(jax.random.key(3))
  candidates = jax.random.categorical(
    candidate_key, jnp.log(draft), shape=(num, 1)
  )
  keys = jax.random.split(step_key, num)
  return goal, *step(keys, candidates, jnp.ones(1, bool), draft, goal)


@pytest.mark.parametrize(('alpha', 'deferred'), [(0.25, 1), (0.75, 0)])
def test_rejections_seen_are_the_distance_where_a_rule_defers(alpha, deferred):
  """Lemma 3, by 20,000 draws of the coupling.

  Within 4.5 standard deviations, about 0.016; a rate that is off by 0.03 passes
  once in 30,000 times.
  """
  num, rejection = 20_000, deferred * 0.5
  draft = np.array([0.5, 0.3, 0.15, 0.05], np.float32)
  goal, tokens, accepted = jax.device_get(coupled(alpha, draft, num))
  margin = 4.5 * np.sqrt(rejection * (1 - rejection) / num)
  assert abs((~accepted).mean() - rejection) <= margin
  assert distributions.chi_square(tokens, goal) > 1e-4


@pytest.mark.parametrize('alpha', [-0.3, -0.1, 0.1, 0.3])
def test_opt_and_diff_are_one_rule_at_temperature_zero(alpha):
  """Lemma 8: where their decisions differ, the models' tokens do not.

  Equal goals are equal acceptances and equal residuals.
  """
  rng = np.random.default_rng(5)
  four = float32_pairs(*of_temperature(0, similar_logits(rng, 1000)))
  opt, diff = (goals_of(name, alpha, four) for name in ('opt', 'diff'))
  np.testing.assert_array_equal(opt, diff)
  decisions = [GAPS[name](alpha, *four) > 0 for name in ('opt', 'diff')]
  assert np.not_equal(*decisions).sum() > 20
  differ = (four[0] != four[1]).any(1)
  assert 0.01 < (opt == four[0]).all(1)[differ].mean() < 0.99


@functools.cache
def markov_models():
  """Target and draft of 8 tokens, with a distribution for each position."""
  return [toys.markov(seed, 8, horizon=64) for seed in (0, 1)]


def decoder_of(goal):
  """Builds chains of 3 with bonus probabilities, at temperature 0."""
  sampling = specjax.Sampling(0.0)
  target, (draft, draft_table) = markov_models()
  drafter = drafters.Autoregressive(
    draft, trees.chain(3), sampling, bonus_probs=True
  )
  arm = specjax.Arm(drafter, verifiers.resolve('maximal'), goal)
  return specjax.Decoder(
    *target, [(arm, draft_table)], sampling=sampling, max_length=64
  )


def greedy_text(name, alpha, prompt, num):
  """Decodes greedily with a rule after a prompt, one token at a time."""
  tokens, deferred = list(prompt), 0
  for position in range(len(prompt) - 1, len(prompt) - 1 + num):
    raw = [
      np.asarray(table, np.float64)[position, tokens[-1]]
      for _, table in markov_models()
    ]
    sampled = [np.eye(8)[probs.argmax()] for probs in raw]
    goal, _ = formula(name, alpha, *sampled, *raw)
    deferred += (goal != sampled[1]).any()
    tokens.append(int(goal.argmax()))
  return tokens[len(prompt) :], deferred


def test_opt_and_diff_decode_alike_at_temperature_zero():
  """Lemma 8, in whole decodes: texts, rounds and acceptances."""
  prompts, num, alpha = [[1], [2, 3], [4, 5, 6], [7] * 9], 40, 0.1
  opt, diff = (
    decoder_of(specjax.GOALS[name](alpha=alpha)).decode(prompts, num)
    for name in ('opt', 'diff')
  )
  for prompt, opt_result, diff_result in zip(prompts, opt, diff):
    assert (opt_result.tokens, opt_result.rounds) == (
      diff_result.tokens,
      diff_result.rounds,
    )
    np.testing.assert_array_equal(opt_result.accepted, diff_result.accepted)
    text, deferred = greedy_text('opt', alpha, prompt, num)
    assert opt_result.tokens == text
    assert 0 < deferred < num
    assert 0 < opt_result.accepted.sum() < opt_result.drafted.sum()


def zero_one(probs):
  """Returns the `[n, V]` loss of these probabilities for each true token."""
  return 1.0 - (probs == top(probs))


def log_loss(probs):
  return -np.log(probs)


def loss_of(name):
  return log_loss if name.endswith('log') else zero_one


def expected_costs(name, alpha, world, target, draft):
  """Returns `[2, n]` costs of keeping and deferring on tokens from `world`.

  Lemma 6 (Chow), Lemma 1 (Diff) or Lemma 4 (OPT) minimizes these costs.
  """
  draft_loss, target_loss = (
    (world * loss_of(name)(probs)).sum(1) for probs in (draft, target)
  )
  if name.startswith('chow'):
    return np.stack([draft_loss, np.full_like(draft_loss, alpha)])
  distances = distance(target, draft)[:, 0] if name.startswith('opt') else 1
  return np.stack([draft_loss, target_loss + alpha * distances])


# Costs of a target call, whatever its output: comparable to a draft's loss.
CHOW_PRICES = {'chow': (0.5, 0.65, 0.8), 'chow_log': (1.4, 1.6, 1.75)}


def calibrated_to(rng, world, loss):
  """A model whose confidence is what it costs in the world, `[V]`.

  For the 0-1 loss, it gives some token its true probability, which is its
  largest. For the log loss, its entropy is its cross entropy: of all powers of
  a random distribution, it is the one closest to the world.
  """
  if loss is zero_one:
    likely = np.flatnonzero(world > 1.01 / world.size)
    probs = np.eye(world.size)[rng.choice(likely)]
    true = (world * probs).sum()
    return np.where(probs > 0, true, (1 - true) / (world.size - 1))
  scores = rng.normal(size=world.size)
  power = optimize.brentq(
    lambda power: (special.softmax(power * scores) - world) @ scores, -1e3, 1e3
  )
  return special.softmax(power * scores)


@pytest.mark.parametrize(
  'name', ['chow', 'chow_log', 'diff', 'diff_log', 'opt', 'opt_log']
)
def test_rule_is_the_cheapest_choice_for_calibrated_models(name):
  """Lemmas 1, 4 and 6, by both choices in random worlds."""
  rng = np.random.default_rng(31)
  worlds = rng.dirichlet(np.full(6, 2.0), 300)
  models = [
    [calibrated_to(rng, world, loss_of(name)) for world in worlds]
    for _ in range(2)
  ]
  four = float32_pairs(np.array(models))
  cheapest = []
  for alpha in CHOW_PRICES.get(name, (0.02, 0.1, 0.6)):
    costs = expected_costs(name, alpha, worlds, *four[:2])
    # Of equal ones, nobody can tell which was chosen.
    clear = (np.abs(costs[0] - costs[1]) > 1e-5) & (four[0] != four[1]).any(1)
    assert clear.mean() > 0.4
    best = costs.argmin(0)[clear]
    np.testing.assert_array_equal(defers(name, alpha, four)[clear], best)
    cheapest.extend(best)
  assert 0.05 < np.mean(cheapest) < 0.95


@pytest.mark.parametrize('alpha', [-50.0, 0.3, 50.0])
@pytest.mark.parametrize('name', ['opt', 'opt_log'])
def test_regret_of_opt_is_bounded(name, alpha):
  """Lemmas 5 and 7, by both choices; the opposite choices break the bounds."""
  rng = np.random.default_rng(37)
  world = rng.dirichlet(np.ones(6), 1000)
  blur = rng.uniform(0, 0.5, (2, 1000, 1))
  four = float32_pairs(
    (1 - blur) * world + blur * rng.dirichlet(np.ones(6), (2, 1000))
  )
  target, draft = (probs.astype(float) for probs in four[:2])
  costs = expected_costs(name, alpha, world, target, draft)
  chosen = defers(name, alpha, four).astype(int)
  rows = np.arange(1000)
  regret, opposite = (
    costs[choice, rows] - costs.min(0) for choice in (chosen, 1 - chosen)
  )
  errors = np.abs(world - np.stack([draft, target]))
  if name == 'opt':
    bound = errors.max(2).sum(0)
  else:
    largest = np.abs(np.log([draft, target])).max(2)
    bound = (largest * errors.sum(2)).sum(0)
  assert (regret <= bound + 1e-6).all()
  if abs(alpha) > 1:
    assert (opposite > bound).mean() > 0.5


def test_opt_solves_the_problem_with_a_budget_of_rejections():
  """Checks C.4 with the paper's multiplier for each pair."""
  four = dirichlet_pairs(41, 1000)
  target, draft = (probs.astype(float) for probs in four[:2])
  draft_loss, target_loss = (1 - top(probs)[:, 0] for probs in (draft, target))
  distances, budget = distance(target, draft)[:, 0], 0.5
  allowed = distances <= budget
  alphas = np.where(allowed, 0, (draft_loss - target_loss) / distances + 0.01)
  goals = jax.jit(jax.vmap(lambda goal, *args: goal(*args)))(
    specjax.goals.Opt(alphas.astype(np.float32)),
    *four[:2],
    base.RawProbs(*four[2:]),
  )
  costs = np.stack([draft_loss, np.where(allowed, target_loss, np.inf)])
  clear = np.abs(draft_loss - target_loss) > 1e-5
  best = costs.argmin(0)
  assert 0.05 < best.mean() < allowed.mean() < 0.95
  np.testing.assert_array_equal((goals == four[0]).all(1)[clear], best[clear])


# What makes each rule keep all drafts, and what makes it the target, for
# probabilities without zeros.
NEVER = {
  'bild': 1e3,
  'chow': 1.0,
  'chow_log': 2.6,
  'diff': 1.0,
  'diff_log': 2.6,
  'opt': 1e6,
  'opt_log': 1e6,
  'token_v1': 1.0,
  'token_v2': 1.0,
  'token_v3': 1.0,
}
ALWAYS = {
  'bild': 0.0,
  'chow': 0.0,
  'chow_log': 0.0,
  'diff': -1.0,
  'diff_log': -2.6,
  'lossy': 0.0,
  'opt': -1e6,
  'opt_log': -1e6,
  'token_v1': -1.0,
  'token_v2': -1.0,
}


@pytest.mark.parametrize(
  ('table', 'model'), [(ALWAYS, 0), (NEVER, 1)], ids=['target', 'draft']
)
def test_extreme_rules_are_one_of_the_models(table, model):
  four = dirichlet_pairs(43, 200)
  for name, alpha in table.items():
    np.testing.assert_allclose(
      goals_of(name, alpha, four), four[model], atol=1e-6, err_msg=name
    )


@pytest.mark.parametrize('name', TOKEN_RULES)
def test_token_rules_give_distributions_for_every_alpha(name):
  low = 0 if name == 'token_v3' else -1
  four = pairs()
  for alpha in np.linspace(low, 1, 9):
    np.testing.assert_allclose(
      goals_of(name, float(alpha), four).sum(1), 1, atol=2e-6
    )


@pytest.mark.parametrize('suffix', ['', '_log'])
def test_opt_and_diff_agree_where_rejections_are_free(suffix):
  four = pairs()
  np.testing.assert_array_equal(
    *(goals_of(name + suffix, 0.0, four) for name in ('opt', 'diff'))
  )


# By rule: a component, and which tokens it keeps, of target `[n, V]`.
OTHER_TOKEN_RULES = {
  'typical': (
    specjax.goals.Typical(0.2, 0.5),
    lambda target: target > np.minimum(0.2, 0.5 * np.exp(-entropy(target))),
  ),
  'top_k': (
    specjax.goals.TopK(2, 0.3),
    lambda target: (
      (target >= np.sort(target)[:, [-2]]) & (target >= top(target) - 0.3)
    ),
  ),
}


@pytest.mark.parametrize('name', OTHER_TOKEN_RULES)
def test_other_token_rules_keep_the_tokens_of_their_definition(name):
  """What is not kept is sampled from the target, as in the token rules."""
  goal, keeps = OTHER_TOKEN_RULES[name]
  assert isinstance(goal, specjax.GOALS[name])
  target, draft, *raw = dirichlet_pairs(44, 500)
  actual = jax.vmap(goal)(target, draft, base.RawProbs(*raw))
  kept = np.where(keeps(np.float64(raw[0])), draft, 0)
  expected = kept + target * (1 - kept.sum(1, keepdims=True))
  np.testing.assert_allclose(actual, expected, atol=1e-6)
  assert 0.05 < (kept > 0).mean() < 0.95


@pytest.mark.parametrize(
  ('goal', 'arguments', 'message'),
  [
    (specjax.goals.Typical, (-0.1,), 'epsilon of Typical must'),
    (specjax.goals.Typical, (0.1, -1.0), 'delta of Typical must'),
    (specjax.goals.TopK, (0,), 'num of TopK must be >= 1, got 0'),
    (specjax.goals.TopK, (2, 1.1), 'alpha of TopK must'),
  ],
)
def test_arguments_of_other_token_rules_out_of_range_raise(
  goal, arguments, message
):
  with pytest.raises(ValueError, match=message):
    goal(*arguments)


def test_token_v3_at_one_accepts_everything():
  """Includes tokens to which the target gives no mass."""
  four = pairs()
  np.testing.assert_array_equal(goals_of('token_v3', 1.0, four), four[1])


@jax.jit
def mixtures(weight, target, draft, raw):
  goals = [specjax.GOALS[name](alpha=0.25) for name in ('diff', 'token_v2')]
  mixture = specjax.GOALS['mixture'](*goals, weight)
  return jax.vmap(mixture)(target, draft, base.RawProbs(*raw))


@pytest.mark.parametrize('weight', [0.0, 0.3, 1.0])
def test_mixture_is_the_weighted_sum(weight):
  four = pairs()
  first, second = (goals_of(name, 0.25, four) for name in ('diff', 'token_v2'))
  np.testing.assert_allclose(
    mixtures(weight, *four[:2], four[2:]),
    (1 - weight) * first + weight * second,
    atol=1e-6,
  )


OUT_OF_RANGE = {
  'bild': (-0.1,),
  'chow': (-0.1, 1.1),
  'chow_log': (-0.1,),
  'diff': (-1.1, 1.1),
  'diff_log': (),
  'lossy': (-0.1, 1.0, 1.1),
  'opt': (),
  'opt_log': (),
  'token_v1': (-1.1, 1.1),
  'token_v2': (-1.1, 1.1),
  'token_v3': (-0.1, 1.1),
}


@pytest.mark.parametrize(
  ('name', 'alpha'),
  [
    (name, alpha)
    for name, alphas in OUT_OF_RANGE.items()
    for alpha in (*alphas, np.nan, np.inf, -np.inf)
  ],
)
def test_alpha_out_of_range_is_refused(name, alpha):
  with pytest.raises(ValueError, match=f'alpha.*{alpha}'):
    specjax.GOALS[name](alpha=alpha)


@pytest.mark.parametrize('beta', [0.7, 0.0, -1.0, np.nan])
def test_beta_below_its_limit_is_refused(beta):
  specjax.GOALS['lossy'](alpha=0.25, beta=0.75)
  with pytest.raises(ValueError, match=f'beta.*{beta}'):
    specjax.GOALS['lossy'](alpha=0.25, beta=beta)


@pytest.mark.parametrize('weight', [-0.1, 1.1, np.nan])
def test_weight_out_of_range_is_refused(weight):
  target = specjax.GOALS['target']()
  with pytest.raises(ValueError, match=f'weight.*{weight}'):
    specjax.GOALS['mixture'](target, target, weight)


@pytest.mark.parametrize(
  'goal',
  [
    parts.FunctionGoal(lambda target, draft, raw: target * jnp.nan),
    parts.FunctionGoal(lambda target, draft, raw: 2 * target - draft),
    parts.FunctionGoal(lambda target, draft, raw: target / 2),
    parts.FunctionGoal(lambda target, draft, raw: target + draft),
    specjax.GOALS['lossy'](alpha=0.5, beta=1.0),
    lambda target, draft, raw: target,
  ],
  ids=['nan', 'negative', 'half', 'double', 'lossy', 'function'],
)
def test_goal_that_is_no_distribution_is_refused(goal):
  with pytest.raises(ValueError, match='goal'):
    decoder_of(goal).decode([[1]], 4)


def test_probabilities_behind_the_leaves_of_a_dynamic_tree_are_refused():
  topology = trees.DynamicTopology(
    jnp.array([-1, 0]), jnp.array([1, 2]), trees.Bounds(2, 2, 1)
  )
  probs = jnp.full((2, 3), 1 / 3)
  tree = base.DraftTree(
    jnp.array([0, 1]),
    topology,
    jnp.ones(2, bool),
    probs,
    bonus_probs=base.Probs(probs[:1], probs[:1]),
  )
  with pytest.raises(ValueError, match='bonus_probs need a static topology'):
    apply.has_draft_probs(tree)


@pytest.mark.slow
def test_a_goal_is_checked_with_a_large_vocabulary_in_little_memory():
  """A square of the vocabulary would not fit in memory."""
  peak_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  apply.check(specjax.GOALS['opt'](0.2), 200_000)
  increase = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_before
  assert increase < 2e6  # Kilobytes; the square of float64 has 3.2e8.
