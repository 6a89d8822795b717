"""What arms with goals do: their distributions, their texts, their costs.

Oracles: the exact distribution of a Markov chain whose table is the goal of two
tables; sequential cascades as loops over whole texts, without a cache; counts
by hand.
"""

import functools
import math
import types

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from experiments.common import methods as methods_lib
import specjax
from specjax import base
from specjax import components
from specjax import families
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.testing import distributions
from specjax.testing import toys
from tests import arms
from tests import goals_test
from tests import lossless_test
from tests import retrieval_test
from tests import tiers
from tests.decoding import drivers_test
from tests.decoding import feedback_test

# The distribution of a run, by the chi-square test of `lossless_test` with its
# power.

GOALS = {
  'chow': specjax.GOALS['chow'](0.55),
  'lossy': specjax.GOALS['lossy'](0.4),
  'mixture': specjax.GOALS['mixture'](
    specjax.GOALS['diff'](0.1), specjax.GOALS['token_v2'](0.0), 0.6
  ),
  'opt': specjax.GOALS['opt'](0.3),
  'token_v3': specjax.GOALS['token_v3'](0.5),
}
PROMPT, LENGTH = lossless_test.PROMPT, lossless_test.LENGTH


def chain_probs(table):
  """Returns the probabilities of the emitted tokens, from rows of a table."""
  return distributions.sequence_probs(
    table, PROMPT[-1], LENGTH, len(PROMPT) - 1
  )


@functools.cache
def known_probs(sampling):
  """Distributions of the texts of target, draft and each goal."""

  @jax.jit
  def tables(*raw):
    pair = [
      sampling_lib.probabilities(jnp.log(table), sampling) for table in raw
    ]
    goals = [
      jax.vmap(jax.vmap(goal))(*pair, base.RawProbs(*raw))
      for goal in GOALS.values()
    ]
    return pair, goals

  models, goals = tables(*lossless_test.tables('time-varying'))
  return list(map(chain_probs, models)), dict(
    zip(GOALS, map(chain_probs, goals))
  )


@components.component
class Selected(base.Goal):
  """The goal of `GOALS` at an index, which may be traced."""

  index: jax.Array

  def __call__(self, target, draft, raw):
    return jax.lax.switch(self.index, list(GOALS.values()), target, draft, raw)


def samples(build, sampling):
  """Yields the name of each goal and `[n, LENGTH]` texts of `build(goal)`.

  One compiled program plays all goals.
  """
  target, draft = lossless_test.tables('time-varying')
  model = lossless_test.MODEL
  decoder = specjax.Decoder(
    model, target, [(build(None), draft)], sampling=sampling, max_length=8
  )

  @jax.jit
  def run(goal_index, params, state):
    round_fn = specjax.make_round(
      model,
      [build(Selected(goal_index))],
      specjax.bandits.Fixed(1),
      sampling=sampling,
    )
    return specjax.decode(round_fn, params, state)

  start = decoder.init([PROMPT] * lossless_test.ROWS, LENGTH, seed=17)
  for goal_index, name in enumerate(GOALS):
    state = run(goal_index, decoder.params, start)
    assert state.counters.accepted.sum() > 0
    yield name, state.tokens[:, len(PROMPT) : len(PROMPT) + LENGTH]


def builder(topology, verifier, sampling, **options):
  """Builds an arm for each goal, optionally with bonus probabilities."""

  def build(goal):
    arm, _ = arms.model(
      topology,
      (lossless_test.MODEL, None),
      sampling.temperature,
      verifier,
      goal,
      **{'bonus_probs': True} | options,
    )
    return arm

  return build


@pytest.mark.parametrize(
  ('topology', 'verifier', 'temperature'),
  [
    pytest.param(trees.chain(1), 'maximal', 1.0, marks=pytest.mark.slow),
    pytest.param(trees.chain(3), 'block', 0.5, marks=pytest.mark.slow),
    (trees.prefix_tree((2, 2)), 'multiround', 1.0),
    pytest.param(trees.chains(2, 1), 'otm', 0.5, marks=pytest.mark.slow),
  ],
  ids=['one', 'block', 'prefix tree', 'otm'],
)
def test_a_run_has_the_distribution_of_its_goal(
  topology, verifier, temperature
):
  """Tests every position, including those after a fully accepted round."""
  sampling = specjax.Sampling(temperature)
  models, expected = known_probs(sampling)
  for name, texts in samples(builder(topology, verifier, sampling), sampling):
    assert distributions.chi_square(texts, expected[name]) > 1e-4, name
    assert all(
      distributions.chi_square(texts, probs) < 1e-6 for probs in models
    ), name


def test_without_bonus_probs_the_bonus_token_is_the_target_s():
  """Checks that the test above rejects a distribution other than the goal's."""
  sampling = specjax.Sampling()
  _, expected = known_probs(sampling)
  build = builder(trees.chain(1), 'maximal', sampling, bonus_probs=False)
  for name, texts in samples(build, sampling):
    assert distributions.chi_square(texts, expected[name]) < 1e-6, name


def lookup_drafts(text, length):
  """Returns the drafts of prompt lookup for matches of up to three tokens."""
  matches = [
    retrieval_test.matched(text[:at], text, 3) for at in range(len(text))
  ]
  best = max(range(len(text)), key=lambda at: (matches[at], at))
  return retrieval_test.copied(text, best, length) if matches[best] else []


def chance(goal, table, prompt, text, length):
  """Returns the probability of a text whose lookup drafts are not sampled."""
  num_done, result = 0, 1.0
  table = np.asarray(table)
  while num_done < len(text):
    for token in [*lookup_drafts([*prompt, *text[:num_done]], length), None]:
      context = [*prompt, *text[:num_done]]
      probs = table[min(len(context) - 1, len(table) - 1), context[-1]]
      if token is not None:
        drafted = np.eye(len(probs), dtype=np.float32)[token]
        unsure = np.full_like(drafted, 1 / len(probs))
        probs = goal(probs, drafted, base.RawProbs(probs, unsure))
      result *= float(probs[text[num_done]])
      num_done += 1
      if num_done == len(text) or text[num_done - 1] != token:
        break
  return result


@pytest.mark.slow
def test_a_goal_takes_drafts_without_a_distribution_as_unsure():
  target, _ = lossless_test.tables('time-varying')
  prompt, length, goal = [0, 1, 0], 2, GOALS['mixture']
  arm = arms.lookup(length)[0]._replace(goal=goal)
  decoder = arms.decoder((arm, None), target=(lossless_test.MODEL, target))
  results = decoder.decode([prompt] * lossless_test.ROWS, LENGTH, seed=18)
  every = np.ndindex(*[lossless_test.VOCAB_SIZE] * LENGTH)
  probs = np.array(
    [chance(goal, target, prompt, text, length) for text in every]
  )
  assert probs.sum() == pytest.approx(1, abs=1e-5)
  texts = [result.tokens for result in results]
  assert distributions.chi_square(texts, probs) > 1e-4
  plain = distributions.sequence_probs(
    target, prompt[-1], LENGTH, len(prompt) - 1
  )
  assert distributions.chi_square(texts, plain) < 1e-6


# Texts.

PROMPTS = [[1], [2, 3], [4, 5, 6]]


@pytest.mark.parametrize('per_row', tiers.cases([True, False], True))
def test_an_arm_says_the_same_beside_one_of_another_goal(per_row):
  target, draft = (toys.markov(seed, 8) for seed in (0, 1))
  pair = [
    arms.model(trees.chain(2), draft, goal=GOALS[name], bonus_probs=True)
    for name in ('chow', 'token_v3')
  ]
  alone = arms.decoder(pair[1], target=target).decode(PROMPTS, 20)
  two_arms = arms.decoder(*pair, target=target, per_row=per_row)
  assert len(two_arms.init(PROMPTS, 20).drafters) == 1
  other_results, same_results = (
    two_arms.decode(
      PROMPTS,
      20,
      bandit_state=np.full(len(PROMPTS), arm, np.int32)
      if per_row
      else np.int32(arm),
    )
    for arm in range(2)
  )
  assert (
    arms.tokens(same_results)
    == arms.tokens(alone)
    != arms.tokens(other_results)
  )


# Baselines that call their models one after the other, as loops.


class Pair:
  """Two models in a family, with their texts and whole-text probabilities."""

  def __init__(self, target, draft, end=None):
    self.models = [
      families.Model(None, *model_and_params)
      for model_and_params in (target, draft)
    ]
    self.end = end

  def family(self):
    target, draft = self.models
    stop_tokens = () if self.end is None else (self.end,)
    tokenizer = types.SimpleNamespace(stop_tokens=stop_tokens)
    return families.Family(tokenizer, target, {'draft': draft}, [])

  def compiled_method(self, entry, temperature=0.0):
    sampling = {'sampling': {'temperature': temperature}}
    config = ml_collections.ConfigDict(sampling)
    method = methods_lib.parse(config, entry, ['draft'], 'the method')
    return methods_lib.build(method, self.family(), 64)

  def text(self, entry, prompt, num):
    compiled_method = self.compiled_method(entry)
    state = compiled_method.decode(compiled_method.decoder.init([prompt], num))
    (result,) = compiled_method.decoder.results([prompt], state)
    return result.tokens

  def texts(self, arm, alphas, prompt, num):
    """Returns the texts of an arm, with each alpha in place of its `{}`."""
    return [self.text(arm.format(alpha), prompt, num) for alpha in alphas]

  def probs(self, text):
    """Returns the probabilities of target and draft after a text."""
    tokens = np.pad(text, (0, 64 - len(text)))[None]
    return [
      np.asarray(whole_text(model.model, model.params, tokens))[
        0, len(text) - 1
      ]
      for model in self.models
    ]


@functools.partial(jax.jit, static_argnums=0)
def whole_text(model, params, tokens):
  return jax.nn.softmax(model.extend(params, None, tokens).logits)


@functools.cache
def pair(kind, end=None):
  if kind == 'markov':
    return Pair(*goals_test.markov_models(), end)
  model, _ = toys.transformer(0, num_layers=1)
  params, draft_params = (
    jax.tree.map(
      lambda leaf: 6 * leaf if leaf.ndim > 1 else leaf,
      toys.transformer(seed, num_layers=1)[1],
    )
    for seed in (0, 1)
  )
  near_params = jax.tree.map(
    lambda a, b: a + 0.1 * (b - a), params, draft_params
  )
  return Pair((model, params), (model, near_params), end)


def token_cascade(models, alpha, prompt, num, window):
  """Runs Algorithm 2; also returns how often it deferred and hit the cap."""
  text, run, num_deferred, num_capped = list(prompt), 0, 0, 0
  while len(text) < len(prompt) + num:
    target, draft = models.probs(text)
    unsure = draft.max() < 1 - alpha
    num_capped += run == window and not unsure
    defers = unsure or run == window
    text.append(int((target if defers else draft).argmax()))
    run = 0 if defers else run + 1
    num_deferred += unsure
  return text[len(prompt) :], num_deferred, num_capped


CASCADES = {'markov': ((0.2, 0.5, 0.65), 10), 'transformer': ((0.3, 0.7), 3)}


@pytest.mark.parametrize(
  'kind', tiers.cases(['markov', 'transformer'], 'markov')
)
def test_token_cascade_is_algorithm_2(kind):
  """The cap strikes at some alpha and not at another."""
  (alphas, window), models = CASCADES[kind], pair(kind)
  # Behind a whole window, the target's token.
  arm = f'draft(stop=unsure({{0}}),bonus_probs=False):{window}~chow({{0}})'
  texts = models.texts(arm, alphas, PROMPTS[-1], 40)
  cap_outcomes = set()
  for alpha, text in zip(alphas, texts):
    expected, num_deferred, num_capped = token_cascade(
      models, alpha, PROMPTS[-1], 40, window
    )
    assert text == expected
    assert 0 < num_deferred < 40
    cap_outcomes.add(num_capped > 0)
  assert cap_outcomes == {False, True}


def test_chow_says_what_the_token_cascade_says_without_a_cap():
  (alphas, window), models = CASCADES['markov'], pair('markov')
  texts = models.texts('draft:3~chow({})', alphas, PROMPTS[-1], 40)
  equalities = []
  for alpha, text in zip(alphas, texts):
    uncapped, capped = (
      token_cascade(models, alpha, PROMPTS[-1], 40, most)[0]
      for most in (math.inf, window)
    )
    assert text == uncapped
    equalities.append(uncapped == capped)
  assert any(equalities) and not all(equalities)


def test_oracle_cascade_is_algorithm_3():
  alphas = (-0.1, 0.0, 0.2)
  texts = pair('markov').texts('draft:0~diff({})', alphas, PROMPTS[-1], 40)
  for alpha, text in zip(alphas, texts):
    expected, num_deferred = goals_test.greedy_text(
      'diff', alpha, PROMPTS[-1], 40
    )
    assert text == expected and 0 < num_deferred < 40


def original_bild(models, alpha, fallback, prompt, num, window):
  """Kim et al. (2023): falls back where unsure, rolls back to a surprise."""
  text, num_rollbacks = list(prompt), 0
  while len(text) < len(prompt) + num:
    drafted, targets = [], []
    while True:
      target, draft = models.probs(text + drafted)
      targets.append(target)
      if draft.max() < 1 - fallback or len(drafted) == window:
        break
      drafted.append(int(draft.argmax()))
    surprises = [
      -math.log(probs[v]) > alpha for probs, v in zip(targets, drafted)
    ]
    if any(surprises):
      kept = surprises.index(True)
      text += [*drafted[:kept], int(targets[kept].argmax())]
      num_rollbacks += 1
    elif len(drafted) < window:
      text += [*drafted, int(targets[-1].argmax())]
    else:
      text += drafted
  return text[len(prompt) : len(prompt) + num], num_rollbacks


@pytest.mark.parametrize(
  'kind', tiers.cases(['markov', 'transformer'], 'markov')
)
def test_bild_falls_back_and_rolls_back_as_the_original(kind):
  (_, window), models = CASCADES[kind], pair(kind)
  alphas, fallback = (0.5, 1.5, 4.0), 0.6
  arm = f'draft(stop=unsure({fallback})):{window}~bild({{}},{fallback})'
  texts = models.texts(arm, alphas, PROMPTS[-1], 40)
  rollback_counts = []
  for alpha, text in zip(alphas, texts):
    expected, num_rollbacks = original_bild(
      models, alpha, fallback, PROMPTS[-1], 40, window
    )
    assert text == expected
    rollback_counts.append(num_rollbacks)
  assert rollback_counts[0] > rollback_counts[-1] >= 0
  assert len(set(map(tuple, texts))) > 1


def test_truncation_changes_nothing_at_temperature_0():
  models = pair('markov')
  greedy = models.text('none', PROMPTS[-1], 40)
  truncated = {'arm': 'none', 'sampling': {'min_p': 0.5}}
  assert models.text(truncated, PROMPTS[-1], 40) == greedy


@pytest.mark.parametrize(
  ('arm', 'num_texts'),
  [
    pytest.param('draft:3~opt({})', 3, marks=pytest.mark.slow),
    ('draft(stop=unsure({0})):3~bild(2.0,{0})', 2),
    # Lossless at temperature 0.
    pytest.param('draft:3/lossy({})', 1, marks=pytest.mark.slow),
  ],
)
def test_one_program_serves_all_alphas(arm, num_texts):
  traced = []
  models = pair('markov')

  @components.component
  class Counted(specjax.models.ModelWrapper):
    def extend(self, *args, **options):
      traced.append(1)
      return self.model.extend(*args, **options)

  target, draft = models.models
  counting_target = target._replace(model=Counted(target.model))
  counting_pair = Pair(counting_target[1:], draft[1:])
  texts, num_traced = [], []
  for alpha in (0.1, 0.4, 0.9):
    texts.append(counting_pair.text(arm.format(alpha), PROMPTS[-1], 20))
    num_traced.append(len(traced))
  assert num_traced == [num_traced[0]] * 3 and num_traced[0] > 0
  assert len(set(map(tuple, texts))) == num_texts


@pytest.mark.slow
@pytest.mark.parametrize(
  'arm', ['draft:3~opt(0.3)', 'draft(stop=unsure(0.6)):3~bild(0.3,0.6)']
)
def test_loop_copies_no_cache_and_calls_no_host(arm):
  decoder = pair('transformer').compiled_method(arm, temperature=1.0).decoder
  state, loop = drivers_test.compiled_loop(decoder)
  assert not drivers_test.cache_copies(loop, state)
  for word in ('callback', 'infeed', 'outfeed', ' send(', ' recv('):
    assert word not in loop.as_text()


# What a round reports of its goal.


def played(decoder, prompts, num, rounds):
  start = decoder.init(prompts, num)
  return jax.device_get(
    specjax.trace(decoder.round_fn, decoder.params, start, rounds)
  )


def test_fidelity_is_the_mean_overlap_of_goal_and_target_in_the_tree():
  """Runs at temperature 0, along the draft's text and the tokens after it."""
  alpha = 0.1
  decoder = goals_test.decoder_of(specjax.GOALS['diff'](alpha))
  state, infos = played(decoder, PROMPTS, 24, 24)
  assert state.done.all()
  seen = set()
  for row, prompt in enumerate(PROMPTS):
    length = len(prompt)
    for live, num, fidelity in zip(
      infos.live[:, row], infos.num_emitted[:, row], infos.fidelity[:, row]
    ):
      if not live:
        assert fidelity == 0
        continue
      text, equalities = state.tokens[row, :length].tolist(), []
      for _ in range(4):
        (goal,), _ = goals_test.greedy_text('diff', alpha, text, 1)
        models = [
          int(table[len(text) - 1, text[-1]].argmax())
          for _, table in goals_test.markov_models()
        ]
        equalities.append(goal == models[0])
        text.append(models[1])
      np.testing.assert_allclose(fidelity, np.mean(equalities), rtol=1e-6)
      seen.add(float(fidelity))
      length += num
  assert len(seen) > 2


def test_reward_trades_speed_for_fidelity():
  """Uses rows that are shifts of one another, so that overlaps are constant.

  The lossless arm is faithful; the mixture lies midway between the models.
  """
  model = specjax.models.Markov(3)
  target, draft, _ = feedback_test.TABLES
  target_goal, chow = specjax.GOALS['target'](), specjax.GOALS['chow'](1.0)
  halfway = specjax.GOALS['mixture'](target_goal, chow, 0.5)
  decoder = arms.decoder(
    *[
      arms.model(trees.chain(2), (model, draft), goal=goal, bonus_probs=True)
      for goal in (None, target_goal, halfway, chow)
    ],
    bandit='ucb1',
    target=(model, target),
    per_row=True,
    reward=specjax.rewards.Tradeoff(0.75),
  )
  state, infos = played(decoder, [[0], [1]], 40, 40)
  expected = np.array([1, 1, 0.95, 0.9])[infos.arm]
  live = infos.live
  np.testing.assert_allclose(infos.fidelity[live], expected[live], rtol=1e-5)
  rewards = 0.25 * (infos.num_emitted - 1) / 2 + 0.75 * expected
  np.testing.assert_allclose(infos.reward[live], rewards[live], rtol=1e-5)
  total_rewards = np.where(live, rewards, 0).sum(axis=0)
  np.testing.assert_allclose(
    state.bandit.rewards.sum(axis=1), total_rewards, rtol=1e-5
  )
  assert (state.bandit.pulls > 0).all()


def test_goals_other_than_the_target_show_no_other_arm_s_worth():
  plain_arm, _ = arms.none()
  make = functools.partial(
    specjax.make_round,
    toys.markov()[0],
    bandit=specjax.bandits.Fixed(2),
    feedback='full',
  )
  make([plain_arm, plain_arm._replace(goal=specjax.GOALS['target']())])
  with pytest.raises(ValueError, match=r"'full' needs .* goal \(arm 1\)"):
    make([plain_arm, plain_arm._replace(goal=GOALS['chow'])])
