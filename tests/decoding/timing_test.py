"""Cost tables: what is timed, and how times become costs.

No test compares clocks: times are replaced by numbers.
"""

import itertools

import jax
import numpy as np
import pytest

import specjax
from specjax import drafters
from specjax import trees
from specjax.decoding import timing
from specjax.testing import building
from tests import arms
from tests import sizes

MARKOV = {'target': arms.MARKOV_TARGET}


def several():
  """Two chains of one model, plain decoding, and a prompt lookup."""
  chains = [arms.chain(num, arms.MARKOV_DRAFT) for num in (3, 2)]
  return chains[0], arms.none(), chains[1], arms.lookup(2)


@pytest.fixture(name='seconds')
def _seconds(monkeypatch):
  """Replaces measured times: the run with index `i` takes `i + 1` seconds."""
  prepared = []

  def interleaved(runs, repeats, *, progress):
    for launch in runs:
      jax.block_until_ready(launch()())
    prepared.append(len(runs))
    return np.tile(np.arange(1.0, len(runs) + 1), (repeats, 1))

  monkeypatch.setattr(timing, 'interleaved', interleaved)
  return prepared


def test_a_table_has_the_costs_of_every_arm(seconds):
  """Three slots: of the model, of plain decoding and of the lookup.

  Runs are four of rounds, three of catch-up and three of prefill, in this
  order.
  """
  decoder = arms.decoder(*several(), bandit='ucb1', per_row=True, **MARKOV)
  costs = specjax.measure_costs(
    decoder, sizes.MARKOV_PROMPTS, batch_size=2, num_rounds=2, repeats=3
  )
  assert seconds == [10]
  assert costs.batch_size == 2
  assert costs.round_seconds == (0.5, 1.0, 1.5, 2.0)
  assert costs.depths == (3, 0, 2, 2)
  assert costs.kinds == (0, 1, 0, 2)
  assert costs.prefill_seconds == (1.0, 0.0, 1.0, 0.0)
  # The model has read all but the last token; it catches up to the end.
  num_read = sizes.BUFFER - min(len(prompt) for prompt in sizes.PROMPTS[:2])
  catch_up = costs.catch_up_seconds
  assert catch_up[1] == catch_up[3] == 0
  assert catch_up[0] == catch_up[2] == pytest.approx(5 / num_read, rel=0.1)
  assert costs.prefill_seconds_per_token(4.0) == (0.5, 0.0, 0.5, 0.0)


def test_a_prefill_has_its_cost_even_if_there_is_no_room_to_catch_up(seconds):
  decoder = arms.decoder(*several(), max_length=13, **MARKOV)
  costs = specjax.measure_costs(
    decoder, [[0] * 12], batch_size=1, num_rounds=1, repeats=1
  )
  assert costs.prefill_seconds[0] > 0 and costs.prefill_seconds[1] == 0


def test_goodput_is_built_from_a_table(seconds):
  """In three lines, as the module's docstring has them."""
  pairs = arms.chain(draft=arms.MARKOV_DRAFT), arms.none()
  decoder, prompts = arms.decoder(*pairs, **MARKOV), sizes.MARKOV_PROMPTS
  costs = specjax.measure_costs(decoder, prompts, num_rounds=1, repeats=1)
  goodput = specjax.bandits.Goodput(
    len(pairs), costs.round_seconds, costs.depths, costs.kinds
  )
  decoder = arms.decoder(*pairs, bandit=goodput, **MARKOV)
  for result in decoder.decode(prompts, 4):
    assert len(result.tokens) == 4


def test_costs_do_not_depend_on_the_bandit_or_on_stop_tokens(seconds):
  """The measured decoder selects a fixed arm, and no token ends a row."""
  decoder = arms.decoder(arms.none(), stop_tokens=range(3), **MARKOV)
  state = timing.begin(decoder, sizes.MARKOV_PROMPTS, 8)
  state, _ = specjax.trace(decoder.round_fn, decoder.params, state, 3)
  assert not state.done.any()
  default_round_fn, bandit_round_fn = (
    timing._with_fixed_arm(
      arms.decoder(*several(), **MARKOV, **options)
    ).round_fn
    for options in ({}, {'bandit': 'ucb1', 'per_row': True})
  )
  assert default_round_fn == bandit_round_fn


def test_deferred_drafters_have_read_before_rounds_are_timed():
  chain = arms.chain(draft=arms.MARKOV_DRAFT)
  decoder, prompts = (
    arms.decoder(arms.deferred(chain), **MARKOV),
    sizes.MARKOV_PROMPTS,
  )
  (waiting,) = decoder.init(prompts, 8).drafters
  (ready,) = timing.begin(decoder, prompts, 8).drafters
  lengths = [len(prompt) for prompt in sizes.PROMPTS]
  assert waiting.waiting.tolist() == lengths
  assert not ready.waiting.any()


def _windowed(inner):
  arm, params = inner
  return arm._replace(drafter=drafters.Windowed(arm.drafter)), params


@pytest.mark.parametrize(
  ('build', 'shares'),
  [
    (lambda: arms.chain(2), True),
    (lambda: arms.chain(3), True),
    # Other parameters, verifiers, drafters, trees.
    (lambda: arms.chain(2, arms.OTHER), False),
    (lambda: arms.chain(2, verifier='block'), False),
    (lambda: arms.chain(2, verifier='otm'), False),
    (lambda: arms.chain(2, temperature=0.0, verifier='maximal'), False),
    (lambda: arms.chain(2, goal=specjax.goals.Chow(0.3)), False),
    (lambda: arms.chain(2, stop=drafters.Unsure(0.3)), False),
    (lambda: arms.model(trees.prefix_tree((2, 1)), verifier='maximal'), False),
    (lambda: _windowed(arms.chain(2)), False),
    (arms.none, False),
  ],
)
def test_arms_of_one_drafter_and_verifier_share_levels(build, shares):
  kinds = timing.level_kinds([arms.chain(3), build(), arms.chain(1)])
  assert kinds == ((0, 0, 0) if shares else (0, 1, 0))


def _lookup_or(length):
  arm, params = arms.chain(length)
  drafter = drafters.LookupOr(drafters.PromptLookup(4), arm.drafter)
  return arm._replace(drafter=drafter), params


def test_arms_of_several_trees_share_levels_only_if_they_are_equal():
  """A lookup reaches levels that the other drafter does not have."""
  alike, short, long = _lookup_or(2), _lookup_or(2), _lookup_or(3)
  assert short[0].drafter.topology == long[0].drafter.topology
  assert timing.level_kinds([alike, short, long]) == (0, 0, 1)
  # A drafter that is as deep as the lookup.
  for deep, shallow in itertools.permutations([_lookup_or(4), short]):
    assert timing.level_kinds([deep, shallow]) == (0, 1)


def test_a_level_that_is_chosen_is_none_that_is_drawn():
  """Medusa draws chains, and chooses the tokens of other trees."""
  head, params = building.head(drafters.Medusa), object()
  arm = arms.chain(1)[0]
  pairs = [
    (arm._replace(drafter=drafters.Medusa(head, topology)), params)
    for topology in (trees.chain(1), trees.chain(2), trees.prefix_tree((1, 2)))
  ]
  assert timing.level_kinds(pairs) == (0, 0, 1)


def test_a_kind_shares_levels_between_all_its_arms():
  """One level is the top of two trees, which differ below it."""
  one, other = trees.Topology((-1, -1, 0, 0)), trees.Topology((-1, -1, 1, 1))
  build = lambda topology: arms.model(topology, verifier='otm')
  pairs = [build(trees.prefix_tree((2,))), build(one), build(other)]
  assert timing.level_kinds(pairs) == (0, 0, 1)


def test_arms_with_one_rule_to_stop_share_levels():
  long, short, other_bound = (
    arms.chain(length, stop=drafters.STOPS['unsure'](bound))
    for length, bound in ((3, 0.3), (2, 0.3), (2, 0.4))
  )
  assert timing.level_kinds([long, short, other_bound]) == (0, 0, 1)
  deferred = arms.deferred(long), arms.deferred(short)
  assert timing.level_kinds([long, *deferred]) == (0, 1, 1)


def test_runs_alternate_their_order(monkeypatch):
  """A machine that slows down steadily favors no run."""
  clock = itertools.count()
  monkeypatch.setattr(timing, 'timed', lambda run: (None, run()))
  runs = [lambda: lambda: float(next(clock))] * 3
  seconds = timing.interleaved(runs, 4, warm_up=False)
  np.testing.assert_array_equal(seconds[:2], [[0, 1, 2], [5, 4, 3]])
  np.testing.assert_array_equal(seconds.sum(axis=0), 22)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'batch_size': 0}, 'batch_size must be >= 1, got 0'),
    ({'num_rounds': 0}, 'num_rounds must be >= 1, got 0'),
    ({'repeats': 0}, 'repeats must be >= 1, got 0'),
  ],
)
def test_numbers_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    specjax.measure_costs(arms.decoder(arms.none()), [[1]], **options)


def test_without_prompts_nothing_is_measured():
  with pytest.raises(ValueError, match='prompts must hold at least one'):
    specjax.measure_costs(arms.decoder(arms.none()), [], batch_size=2)


def test_a_prompt_that_fills_the_decoder_is_refused():
  decoder = arms.decoder(arms.none(), max_length=8)
  with pytest.raises(
    ValueError, match='shorter than max_length=8, got one of 8'
  ):
    specjax.measure_costs(decoder, [[1], [1] * 8])
