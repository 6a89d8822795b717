"""The grammar of configs, and the one loop that decodes what they say."""

import json
import pathlib
import re
import shutil

import jax
import ml_collections
import numpy as np
import pytest

from experiments.common import arms
from experiments.common import calls
from experiments.common import compare
from experiments.common import components
from experiments.common import configs
from experiments.common import measure
from experiments.common import methods
from experiments.common import paper
from experiments.common import plots
from experiments.common import programs
from experiments.common import prompts
from experiments.common import results
from experiments.common import runner
from experiments.common import workdirs
from specjax import bandits
from specjax import base
from specjax import drafters
from specjax import families
from specjax import goals
from specjax import metrics
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.testing import toys
from tests.experiments import toy

_ROOT = pathlib.Path(__file__).parents[2]
_MODELS = ('small', 'far', 'translation_de-en')


@pytest.fixture(scope='module', name='folder')
def _folder(family, tmp_path_factory):
  """The toy family, with other prompts."""
  folder = tmp_path_factory.mktemp('common')
  shutil.copytree(family, folder, dirs_exist_ok=True)
  texts = ['count to two', 'what is it?', 'one two', 'a b a b', 'say it']
  _write_prompts(
    folder,
    [
      {'domain': domain, 'prompt': f'{text} {domain}', 'response': 'yes'}
      for domain in ('qa', 'math_word', 'math_sum')
      for text in texts
    ],
  )
  return folder


def _write_prompts(folder, rows):
  lines = [json.dumps(row) + '\n' for row in rows]
  (folder / 'prompts.jsonl').write_text(''.join(lines))


def _config(folder, **fields):
  return ml_collections.ConfigDict(
    toy.SIZES
    | {
      'experiment': 'compare',
      'family': str(folder),
      'data_dir': '',
      'prompts': {'family': {}},
      'prompts_per_domain': 1,
      'methods': ('none',),
      'sampling': {'temperature': 1.0},
      'seed': 0,
    }
    | fields
  )


# Components.


@pytest.mark.parametrize(
  ('entry', 'text'),
  [
    ('otm', 'otm'),
    ('opt(0.2)', 'opt(0.2)'),
    (' opt( alpha = 0.2 ) ', 'opt(alpha=0.2)'),
    ('bild(alpha=3.0, fallback=0.9)', 'bild(alpha=3.0, fallback=0.9)'),
    ('mixture(opt(0.2),chow(0.5))', 'mixture(opt(0.2), chow(0.5))'),
    ('over_acceptance(0.1,target)', 'over_acceptance(0.1, target)'),
    ('ensemble([small,"translation_de-en"])', None),
    ('f(-1, (1, 2), None, True)', 'f(-1, (1, 2), None, True)'),
  ],
)
def test_the_text_of_a_call_is_parsed_to_an_equal_call(entry, text):
  call = calls.parse(entry, 'here')
  hash(call)
  assert text is None or str(call) == text
  assert calls.parse(str(call), 'here') == call


@pytest.mark.parametrize(
  'entry',
  [
    *('', 'opt(', 'opt(0.2', '1 + 1', 'a.b(1)', 'f(**x)', 3, ()),
    *(('opt', 0.2), {'a': 1}, {'name': 'opt', 'alpha': 0.2}),
  ],
)
def test_other_forms_are_refused_with_the_place(entry):
  with pytest.raises(ValueError, match=r'^goal must be a name'):
    components.parse(base.Goal, entry, 'goal')


@pytest.mark.parametrize(
  ('entry', 'sentence'),
  [
    ('optt(0.2)', "here: Unknown goal 'optt'. Known: .*opt, opt_log"),
    ('opt', 'here: opt needs alpha, which is not set'),
    ('opt(beta=1)', "here: Unknown option 'beta' of opt. Known: alpha"),
    ('opt(0.1, 0.2)', 'here: opt takes at most 1 arguments, got 2'),
    ('opt(0.1, alpha=0.2)', 'here: opt is given alpha twice'),
    ('opt(x)', "here.alpha must be of type float, got 'x'"),
    ('chow(2)', r'here: chow\(2\): alpha of Chow must lie in \[0, 1\]'),
    ('mixture(opt(0.2), chw(0.5))', "here.second: Unknown goal 'chw'"),
  ],
)
def test_what_a_component_refuses_begins_with_the_place(entry, sentence):
  with pytest.raises(ValueError, match=f'^{sentence}'):
    components.build(base.Goal, entry, 'here')


def test_a_component_may_be_the_object_itself():
  goal = goals.Opt(0.2)
  assert components.parse(base.Goal, goal, 'here') is goal
  assert components.build(base.Goal, goal, 'here') is goal
  with pytest.raises(ValueError, match='here must be a name or a call'):
    components.build(base.Bandit, goal, 'here')


def test_options_that_are_components_are_built():
  goal = components.build(base.Goal, 'mixture(opt(0.2), chow(0.5))', 'here')
  assert goal == goals.Mixture(goals.Opt(0.2), goals.Chow(0.5))
  # An integer is valid where a float is expected.
  assert components.build(base.Goal, 'opt(1)', 'here') == goals.Opt(1.0)


# Arms.


def _pool(folder, temperature=1.0):
  family = families.load(str(folder))
  models = {'target': family.target, **family.drafters}
  return arms.Pool(models, sampling_lib.Sampling(temperature))


@pytest.mark.parametrize(
  ('short', 'tree', 'verifier', 'goal'),
  [
    ('small:4', trees.chain(4), 'maximal', None),
    ('small:3x4', trees.chains(3, 4), 'otm', None),
    ('small:3x4/kseq', trees.chains(3, 4), 'kseq', None),
    ('small:2.2/kseq', trees.prefix_tree((2, 2)), 'kseq', None),
    ('none', trees.chain(0), 'maximal', None),
    ('small:4~opt(0.2)', trees.chain(4), 'maximal', goals.Opt(0.2)),
    ('small:0~opt(0.2)', trees.chain(0), 'maximal', goals.Opt(0.2)),
    ('small:eagle', trees.eagle(), 'otm', None),
    ('prompt_lookup:2x3', trees.chains(2, 3), 'otm', None),
    ('token_recycling:2.2', trees.prefix_tree((2, 2)), 'otm', None),
    (
      'lookahead(candidates=2)',
      drafters.Lookahead(candidates=2).topology,
      'otm',
      None,
    ),
    ('suffix(factor=2.0):3/block', trees.chain(3), 'block', None),
    (' small : 3x4 / kseq ', trees.chains(3, 4), 'kseq', None),
  ],
)
def test_the_short_form_of_an_arm(folder, short, tree, verifier, goal):
  arm = arms.parse(short, _MODELS, 'here')
  short = short.replace(' ', '')
  assert str(arm) == short
  built_arm, params = arms.build(arm, _pool(folder), 'here')
  assert built_arm.drafter.topology == tree
  assert built_arm.verifier == verifiers.resolve(verifier)
  assert built_arm.goal == goal
  assert (params is not None) == short.startswith('small')


def test_an_arm_reaches_every_option(folder):
  pool = _pool(folder)
  text = (
    'autoregressive(model=small, distinct=True):chains(2, 3)'
    '/tree_walk(coupling=kseq)~token_v3(alpha=0.3)'
  )
  arm = arms.parse(text, _MODELS, 'here')
  built_arm, params = arms.build(arm, pool, 'here')
  model = pool.models['small']
  assert params is model.params
  assert built_arm.drafter == drafters.Autoregressive(
    model.model,
    trees.chains(2, 3),
    pool.sampling,
    bonus_probs=True,
    distinct=True,
  )
  assert built_arm.verifier == verifiers.resolve('kseq')
  assert built_arm.goal == goals.TokenV3(0.3)
  reparsed_arm = arms.parse(str(arm), _MODELS, 'here')
  assert arms.build(reparsed_arm, pool, 'here')[0] == built_arm


def test_arms_of_several_drafters_and_of_stop_rules(folder):
  pool = _pool(folder)
  built_arm, params = arms.build(
    arms.parse('ensemble([small, prompt_lookup]):3', _MODELS, 'here'),
    pool,
    'here',
  )
  assert built_arm.drafter.topology.num_nodes == 6
  assert params == (pool.models['small'].params, None)
  assert built_arm.verifier == verifiers.Ensemble()
  for text, tree, expected in (
    ('lookup_or(prompt_lookup, small, min_match=3):4', 4, 'small'),
    ("lookup_or(prompt_lookup, 'small:6', min_match=3):4", 6, 'small'),
    ('lookup_or(prompt_lookup, min_match=3):4', 4, None),
    ('lookup_or(suffix, token_recycling, min_match=3):4', 4, None),
  ):
    arm = arms.parse(text, _MODELS, 'here')
    assert arms.parse(str(arm), _MODELS, 'here') == arm
    built_arm, params = arms.build(arm, pool, 'here')
    assert built_arm.drafter.topology == trees.chain(tree)
    assert built_arm.drafter.min_match == 3
    assert params == (None, expected and pool.models[expected].params)
  cascade = 'small(stop=unsure(0.5)):10~chow(0.5)'
  arm = arms.parse(cascade, _MODELS, 'here')
  built_arm, _ = arms.build(arm, pool, 'here')
  assert built_arm.drafter.may_stop_early and built_arm.goal == goals.Chow(0.5)


@pytest.mark.parametrize(
  ('entry', 'sentence'),
  [
    (
      'medum:4',
      "here 'medum:4': Unknown drafter 'medum'. Known: small, far",
    ),
    ('small', "here: small needs a tree, as in 'small:4'"),
    (
      'small(distinct=True)/otm~chow(0.5)',
      r'here: autoregressive\(model=small, distinct=True\) needs a tree, as in '
      r"'autoregressive\(model=small, distinct=True\):4/otm~chow\(0.5\)'",
    ),
    ('windowed(small)', "here: small needs a tree, as in 'small:4'"),
    ('none:3', 'here: none takes no tree'),
    ('small:4/otmm', "here: Unknown verifier 'otmm'. Known: batch"),
    (
      'small:4/',
      "here 'small:4/': verifier must be a name or a call .* got ''",
    ),
    ('sm all:4', "here 'sm all:4': drafter must be a name or a call"),
    ('small:4~op t', "here 'small:4~op t': goal must be a name or a call"),
    *(
      (
        f'small:{tree}',
        f"here 'small:{tree}': Unknown tree '{tree}'. Known: 4 .one chain., "
        '8x4 .8 chains of 4., 3.2.1 .a prefix tree., chain, chains, eagle, '
        'of_parents, prefix_tree',
      )
      for tree in ('x', '4x', 'four', '8by4', '-1', '8 x 4', '', '3..1', '4.5x')
    ),
    ('small:chian(4)', r"here 'small:chian\(4\)': Unknown tree 'chian\(4\)'"),
    ('small:chains(2, 0)', 'here: chains.2, 0.: length must be >= 1'),
    ('prompt_lookup:2.2', 'here: prompt_lookup takes chains'),
    (
      'prompt_lookup(max_ngram=1.5):4',
      'here.max_ngram must be of type int, got 1.5',
    ),
    (
      'small(dstinct=True):4',
      "here: Unknown option 'dstinct' of autoregressive",
    ),
    (
      'autoregressive(huge):4',
      "here: autoregressive: Unknown model 'huge'. Known: small, far, "
      'translation_de-en, target',
    ),
    ('autoregressive:4', 'here: autoregressive needs the name of a model'),
    (
      'ensemble(small, far):4',
      r'here: drafters of ensemble must be a list, as in '
      r'ensemble\(\[small, far\]\), got small, far',
    ),
    ('ensemble(small):4', r'as in ensemble\(\[small\]\), got small'),
    ('ensemble([small, fa]):4', "here: Unknown drafter 'fa'. Known: small"),
    (
      'feature_head(small):4',
      "here: feature_head takes a head on features, but 'small' is a model. "
      'The family has no head on features; the families with heads are '
      'mini/heads, smollm2/heads.',
    ),
    *(
      (
        f'{name}(eagle):4',
        f"here: {name}: The family has no {noun} 'eagle', only small, far, "
        'translation_de-en, target; the families with heads are mini/heads, '
        'smollm2/heads.',
      )
      for name, noun in (
        ('feature_head', 'head on features'),
        ('medusa', 'set of parallel heads'),
        ('block_head', 'block head'),
      )
    ),
    ('small:eagle/x', "here: Unknown verifier 'x'"),
    (3, "here must be an arm such as 'medium:4'"),
    ({'drafter': 'none'}, "here must be an arm such as 'medium:4', got {'draf"),
  ],
)
def test_what_an_arm_refuses_begins_with_the_place(folder, entry, sentence):
  with pytest.raises(ValueError, match=sentence):
    arms.build(arms.parse(entry, _MODELS, 'here'), _pool(folder), 'here')


def _fail(*args, **options):
  raise AssertionError('A model was loaded.')


@pytest.mark.parametrize(
  ('entry', 'sentence'),
  [
    (
      'smal:4',
      r"methods\[0\] 'smal:4': Unknown drafter 'smal'. Known: code, far",
    ),
    ('small:4x', r"methods\[0\] 'small:4x': Unknown tree '4x'"),
    ('small:4/otn', r"methods\[0\]: Unknown verifier 'otn'"),
    ('small:4~op', r"methods\[0\]: Unknown goal 'op'"),
    ('small', r"methods\[0\]: small needs a tree, as in 'small:4'"),
    (
      'feature_head(eagel):4',
      r"methods\[0\]: .* The family has no head on features 'eagel'",
    ),
    (
      {'bandit': 'ucb', 'arms': ('none',)},
      r'methods\[0\].bandit: Unknown bandit',
    ),
    (
      {'bandit': 'ucb1', 'arms': ('none', 'small:x')},
      r"methods\[0\].arms\[1\] 'small:x': Unknown tree 'x'",
    ),
    (
      {'bandit': 'ucb1', 'arms': ('none',), 'reward': 'x'},
      r"methods\[0\].reward: Unknown reward 'x'",
    ),
  ],
)
def test_typos_are_answered_before_a_model_is_loaded(
  folder, monkeypatch, entry, sentence
):
  monkeypatch.setattr(families, 'load', _fail)
  with pytest.raises(ValueError, match=sentence):
    compare.prepare(_config(folder, methods=(entry,)))


# Methods.


def test_methods_have_labels_and_columns_that_tell_them_apart(folder):
  config = _config(
    folder,
    methods=(
      'small:2',
      {'arm': 'small:2~opt(0.2)', 'label': 'opt', 'columns': {'alpha': 0.2}},
      {'arm': 'small:2~opt(0.4)', 'label': 'opt', 'columns': {'alpha': 0.4}},
      {'arm': 'none', 'target': 'small', 'label': 'draft'},
      {'arm': 'none', 'sampling': {'min_p': 0.5}, 'label': 'min-p'},
    ),
    arms=('small:2', 'none'),
    bandits=(
      'ucb1(beta=0.1)',
      {'bandit': 'hedge', 'feedback': 'full', 'reward': 'accepted_fraction'},
    ),
  )
  parsed_methods = methods.parse_all(config, _MODELS)
  assert [method.label for method in parsed_methods] == [
    *('small:2', 'opt', 'opt', 'draft', 'min-p', 'ucb1(beta=0.1)'),
    'hedge, accepted_fraction, full feedback',
  ]
  assert parsed_methods[4].sampling == sampling_lib.Sampling(1.0, min_p=0.5)
  assert [len(method.arms) for method in parsed_methods[-2:]] == [2, 2]
  settings = [json.dumps(method.settings) for method in parsed_methods]
  assert len(set(settings)) == len(parsed_methods)


def test_a_bandit_and_a_reward_may_be_objects(folder, tmp_path):
  bandit = bandits.UCB1(num_arms=2, beta=0.1)
  text = {'bandit': 'ucb1(beta=0.1)', 'reward': 'accepted_fraction'}
  objects = {'bandit': bandit, 'reward': rewards.AcceptedFraction()}
  config = _config(folder, methods=(text, objects), arms=('small:2', 'none'))
  family = prompts.load_family(config)
  parsed_methods = methods.parse_all(config, list(family.drafters))
  assert parsed_methods[1].label == f'{bandit}, {rewards.AcceptedFraction()}'
  json.dumps(parsed_methods[1].settings)
  by_text, by_objects = (
    methods.build(method, family, 32).decoder.round_fn
    for method in parsed_methods
  )
  assert by_text == by_objects
  with workdirs.Workdir(tmp_path, config) as workdir:
    pathlib.Path(workdir, 'file').touch()
  assert str(bandit) in (tmp_path / 'config.json').read_text()


def test_arms_that_differ_in_depth_alone_share_what_is_learnt(folder):
  """Groups chains by drafter and verifier, whatever their depth."""
  arms = ('none', 'small:2', 'small:4', 'small:4/block', 'small:2x2/kseq')
  arms = (*arms, 'small:2x3/kseq', 'small:2.1/kseq', 'far:2')
  config = _config(folder, methods=({'bandit': 'goodput'},), arms=arms)
  family = prompts.load_family(config)
  (method,) = methods.parse_all(config, list(family.drafters))
  costs = {'costs': [1.0] * 8, 'depths': [0, 2, 4, 4, 2, 3, 2, 2]}
  decoder = methods.build(method, family, 32, lambda _: costs).decoder
  assert decoder.round_fn.bandit == bandits.Goodput(
    8, **costs, kinds=(0, 1, 1, 2, 3, 3, 3, 4)
  )
  with pytest.raises(ValueError, match='goodput needs costs, which is not set'):
    methods.build(method, family, 32)


@pytest.mark.parametrize(
  ('fields', 'sentence'),
  [
    ({'methods': ()}, 'methods must hold at least one method'),
    (
      {'methods': ('none', 'none')},
      r'methods\[1\] must differ from methods\[0\]',
    ),
    ({'methods': ({'arm': 'none', 'x': 1},)}, "Unknown field 'x' of a method"),
    (
      {'methods': ({'arm': 'none', 'drafter': 'none'},)},
      "Unknown field 'drafter' of a method",
    ),
    (
      {'methods': ({'label': 'x'},)},
      r'methods\[0\] must have an arm or a bandit',
    ),
    ({'bandits': ('ucb1',)}, r'bandits\[0\]: a bandit needs arms'),
    ({'sampling': {'heat': 1.0}}, "Unknown field 'heat'. Known: temperature"),
    (
      {'methods': ({'arm': 'none', 'target': 'huge'},)},
      r"methods\[0\]: Unknown target 'huge'",
    ),
    (
      {'arms': ('none',), 'bandits': ('ucb2',)},
      r"bandits\[0\].bandit: Unknown bandit 'ucb2'",
    ),
    (
      {'arms': ('none',), 'bandits': ({'bandit': 'ucb1', 'reward': 'x'},)},
      r"bandits\[0\].reward: Unknown reward 'x'",
    ),
    ({'prompts': {}}, 'prompts must hold at least one prompt set'),
    ({'prompts': {'a': {'form': 'x'}}}, "prompts.a: Unknown field 'form'"),
    ({'prompts': {'a': {'source': 'x'}}}, "must be from 'family', 'data' or a"),
    ({'prompts': {'a': {'domains': ('cod',)}}}, "Unknown domain 'cod'"),
    ({'max_length': 9}, 'No prompt of prompts.family fits: max_length=9'),
    ({'prompts': {'a': {'domains': 'qa'}}}, 'must be a tuple of names'),
    (
      {'prompts': {'a': {'turns': 4}}},
      r'turns of prompts.a must lie in \[1, 3',
    ),
    ({'prompts': {'a': {'longer_than': 50}}}, 'No prompt of prompts.a fits'),
    ({'prompts_per_domain': 0}, 'per_domain of prompts.family must be >= 1'),
    ({'num_seeds': 0}, 'num_seeds must be >= 1'),
  ],
)
def test_a_bad_config_is_refused_before_anything_is_decoded(
  folder, fields, sentence
):
  with pytest.raises(ValueError, match=sentence):
    compare.prepare(_config(folder, **fields))


# Prompts.


def test_sets_of_prompts(folder):
  config = _config(
    folder,
    prompts={
      'all': {'per_domain': 3},
      'parts': {'domains': ('math',), 'per_domain': 4},
      'few': {'limit': 2},
      'two': {'domains': ('qa', 'math_sum'), 'turns': 2, 'per_domain': 2},
      'again': {'domains': ('qa',), 'rephrase': True},
    },
  )
  family = families.load(str(folder))
  sets = {
    prompt_set.label: prompt_set.jobs
    for prompt_set in prompts.build(config, family)
  }
  assert len(sets['all']) == 9 and len(sets['few']) == 2
  assert {job.label for job in sets['parts']} == {'math'}
  texts = {family.tokenizer.decode(j.turns[0]) for j in sets['parts']}
  assert sum('math_sum' in text for text in texts) == 2  # Parts by turns.
  assert [len(job.turns) for job in sets['two']] == [2, 2]
  assert {job.label for job in sets['two']} == {'qa + math_sum'}
  assert sets['again'][0].turns != sets['all'][0].turns
  assert all(job.reference == 'yes' for job in sets['all'])
  # A prompt set does not depend on the other sets.
  config.prompts = {'few': {'limit': 2}}
  (small_set,) = prompts.build(config, family)
  assert small_set.jobs == sets['few']


# The runner.


def _decode(config, path, **options):
  setup = compare.prepare(config)
  return compare.decode(
    config, workdirs.Workdir(path, config), setup, **options
  )


def test_records_do_not_depend_on_the_batch(folder, tmp_path):
  """Gives a prompt the same randomness at every position in a batch.

  The last batch has one prompt, which is repeated to fill it and counts once.
  """
  fields = {'methods': ('small:2',), 'prompts_per_domain': 3}
  single_records, batch_records = (
    _decode(
      _config(folder, **fields, num_seeds=2, batch_size=size),
      tmp_path / str(size),
      fields=('arm', 'num_emitted', 'raw_acceptance'),
      observe=lambda batch: [{'prompt': job.turns[0]} for job in batch.jobs],
      tokens=True,
    )[0].records
    for size in (1, 2)
  )
  assert len(single_records) == len(batch_records) == 18
  key = lambda record: (record['job'], record['tokens'])
  for single_record, batch_record in zip(
    sorted(single_records, key=key), sorted(batch_records, key=key)
  ):
    acceptances = (
      single_record.pop('raw_acceptance'),
      batch_record.pop('raw_acceptance'),
    )
    np.testing.assert_allclose(*acceptances, atol=1e-5)
    del single_record['batch'], batch_record['batch']
    assert single_record == batch_record
    assert (
      len(single_record['tokens'])
      == single_record['emitted']
      == sum(single_record['num_emitted'])
      <= 8
    )
  assert len({tuple(record['tokens']) for record in single_records}) > 9


def test_points_of_one_rule_share_a_program(folder):
  config = _config(
    folder,
    methods=tuple(
      {'arm': f'small:2~opt({alpha})', 'columns': {'alpha': alpha}}
      for alpha in (0.1, 0.4)
    ),
  )
  setup = compare.prepare(config)
  first, second = (
    methods.build(method, setup.family, 64) for method in setup.methods
  )
  assert first.program == second.program and hash(first.program) == hash(
    second.program
  )
  method_goals = [
    compiled_method.decoder.round_fn.arms[0].goal
    for compiled_method in (first, second)
  ]
  assert method_goals == [goals.Opt(0.1), goals.Opt(0.4)]
  diff_method = methods.parse(config, 'small:2~diff(0.1)', ['small'], 'here')
  assert methods.build(diff_method, setup.family, 64).program != first.program


def test_a_shared_program_decodes_what_each_number_says(folder):
  """Compares a decoder whose alpha is data with one whose alpha is static."""
  texts = {}
  for alpha in (0.0, 0.9):
    config = _config(folder, methods=(f'small:2~token_v3({alpha})',))
    setup = compare.prepare(config)
    compiled_method = methods.build(setup.methods[0], setup.family, 64)
    tokens = [job.turns[0] for job in setup.prompt_sets[0].jobs[:2]]
    state = compiled_method.decoder.init(tokens, 16)
    expected = compiled_method.decoder.decode(tokens, 16)
    actual = compiled_method.decoder.results(
      tokens, compiled_method.decode(state)
    )
    assert [result.tokens for result in actual] == [
      result.tokens for result in expected
    ]
    texts[alpha] = [result.tokens for result in actual]
  assert texts[0.0] != texts[0.9]


def test_a_killed_run_goes_on_at_any_moment(folder, tmp_path):
  """Resumes bandits that carry over, with sessions and recorded rounds."""
  config = _config(
    folder,
    prompts={'two': {'domains': ('qa', 'math'), 'turns': 2, 'per_domain': 5}},
    methods=('small:2',),
    arms=('small:2', 'prompt_lookup:2'),
    bandits=('thompson', {'bandit': 'ucb1', 'per_row': True}),
    carry_over=True,
  )
  options = {'fields': ('arm', 'num_emitted', 'raw_acceptance')}
  options |= {'tokens': True}
  full_run = _decode(config, tmp_path / 'whole', **options)
  units = toy.units(tmp_path / 'whole')
  assert len(units) == 9
  for num_units in (1, 7):
    torn_dir = toy.torn_workdir(
      tmp_path / 'whole', tmp_path / str(num_units), num_units
    )
    resumed_run = _decode(config, torn_dir, **options)
    assert [decoded.records for decoded in resumed_run] == [
      decoded.records for decoded in full_run
    ]
    assert toy.units(torn_dir) == units
  first = full_run[1].records[0]
  assert sum(first['num_emitted']) == first['emitted'] == len(first['tokens'])
  assert (
    np.bincount(np.array(first['arm'], int), minlength=2).tolist()
    == (first['pulls'])
  )


@pytest.fixture(scope='module', name='chat')
def _chat(folder, tmp_path_factory):
  """A family that has a chat template, with the same prompts."""
  chat = tmp_path_factory.mktemp('chat')
  toys.write_family(chat, {'small': 0.2}, tokenizer=toys.chat_tokenizer())
  shutil.copy(folder / 'prompts.jsonl', chat)
  return chat


def test_drafters_may_have_other_tokenizers(folder, chat):
  config = _config(folder, drafters={'other': str(chat)})
  with pytest.raises(ValueError, match="the drafter 'other' must share a tok"):
    prompts.load_family(config)
  config.vocabulary = 'intersection'
  drafters = prompts.load_family(config).drafters
  assert (
    drafters['other'].model.vocab_size == drafters['small'].model.vocab_size
  )


def test_a_conversation_is_one_text(chat, tmp_path):
  """Compares token counts with greedy decoding of a `Conversation`."""
  prompt_fields = {'domains': ('qa', 'math_sum'), 'turns': 2, 'per_domain': 4}
  config = _config(
    chat,
    prompts={'talk': prompt_fields | {'conversation': True}},
    arms=('small:2', 'prompt_lookup:2'),
    bandits=({'bandit': 'ucb1', 'per_row': True},),
    sampling={'temperature': 0.0},
    max_new_tokens=20,
    max_length=256,
  )
  decoded = _decode(config, tmp_path / 'run')
  family = families.load(str(chat))
  greedy = sampling_lib.Sampling(temperature=0.0)
  decoder = families.decoder(family, None, sampling=greedy, max_length=256)
  examples = {
    tuple(family.tokenizer.encode_prompt(example.prompt)): example
    for example in family.prompts
  }
  by_domain = {'qa': [], 'math_sum': []}
  for example in family.prompts:
    by_domain.setdefault(example.domain, []).append(example.prompt)
  pairs = dict(zip(by_domain['qa'], by_domain['math_sum']))
  pairs |= {second: first for first, second in pairs.items()}
  for job, *records in zip(
    decoded[0].prompts.jobs, *(entry.records for entry in decoded)
  ):
    first = examples[tuple(job.turns[0])].prompt
    conversation = families.Conversation(family.tokenizer, decoder)
    num_tokens = [
      sum(piece.num_tokens for piece in conversation.say(text, 20))
      for text in (first, pairs[first])
    ]
    assert [record['emitted'] for record in records] == 2 * [sum(num_tokens)]
    assert records[0]['rounds'] == sum(num_tokens) > records[1]['rounds']


def test_a_conversation_follows_the_turns_of_a_line(chat, tmp_path, capsys):
  """Bad lines and lines with one turn are left out; the first is reported."""
  path = tmp_path / 'bench.jsonl'
  rows = [
    {'category': 'qa', 'turns': ['What is it?', 'Why?', 'Since when?']},
    {'category': 'qa', 'turns': ['Only once']},
    {'category': 'qa', 'turns': 'no list'},
  ]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  fields = {'source': str(path), 'template': 'Say: {}', 'per_domain': 4}
  config = _config(
    chat,
    prompts={'a': fields | {'conversation': True}, 'b': fields},
    max_new_tokens=8,
    max_length=256,
  )
  family = families.load(str(chat))
  conversations, single = prompts.build(config, family)
  assert f'Left out: {path}, line 3' in capsys.readouterr().out
  (job,) = conversations.jobs
  encode = family.tokenizer.encode_prompt
  assert job.conversation and len(job.turns) == 3
  assert job.turns[0] == encode('Say: What is it?')
  assert sorted(job.turns for job in single.jobs) == sorted(
    [[encode(f'Say: {row["turns"][0]}')] for row in rows[:2]]
  )


def test_a_conversation_needs_a_template_and_takes_no_clocks(
  folder, chat, tmp_path
):
  prompt_sets = {'a': {'domains': ('qa', 'math_sum'), 'turns': 2}}
  prompt_sets['a']['conversation'] = True
  with pytest.raises(ValueError, match='conversation of prompts.a needs a fam'):
    compare.prepare(_config(folder, prompts=prompt_sets))
  for field, value, message in (
    ('turns', 1, 'conversation of prompts.a needs lines with several turns'),
    ('template', 'Say', "template of prompts.a must contain '{}' once, got"),
  ):
    changed = {'a': prompt_sets['a'] | {field: value}}
    with pytest.raises(ValueError, match=message):
      prompts.build(_config(chat, prompts=changed), families.load(str(chat)))
  config = _config(chat, prompts=prompt_sets, repeats=1, max_length=256)
  with pytest.raises(ValueError, match='conversation cannot be timed'):
    _decode(config, tmp_path / 'run')


def test_a_family_without_prompts_needs_data(folder):
  config = _config(folder)
  family = families.load(str(folder))._replace(prompts=[])
  with pytest.raises(ValueError, match='no held-out prompts: set data_dir'):
    prompts.build(config, family)


@pytest.mark.parametrize(('repeats', 'num_decoded'), [(0, 1), (1, 2)])
def test_clocks_of_another_device_are_taken_again(
  repeats, num_decoded, folder, tmp_path, monkeypatch
):
  """And counts are not: they are the same on all."""
  config, calls = _config(folder), []
  workdir = workdirs.Workdir(tmp_path, config)
  jobs = [prompts.Job('a', [[1]])]
  run = runner.Run({'method': 'none'}, lambda: None, jobs, 4)
  options = runner.Options(repeats=repeats, reference=lambda: None)
  decode = lambda self, *args: calls.append(args) or {'records': [{}]}
  monkeypatch.setattr(runner._Session, 'decode', decode)
  for device in ('H100', 'H100, command buffers', 'H100'):
    monkeypatch.setattr(measure, 'device', lambda device=device: device)
    assert runner.decode(workdir, [run], options) == [[{}]]
  assert len(calls) == num_decoded


def test_clocks_are_of_turns_with_plain_decoding(folder, tmp_path):
  config = _config(folder, methods=('none', 'small:2'), repeats=2)
  rows = compare.rows(_decode(config, tmp_path))
  assert (rows[0]['speed_up'], rows[0]['speed_up_error']) == (1, 0)
  for row in rows:
    assert row['speed_up'] > 0 and row['speed_up_error'] >= 0
    assert row['latency'] > 0 and row['total_latency'] > 0
    ratio = row['tokens_per_second'] / row['plain_tokens_per_second']
    assert row['speed_up'] == pytest.approx(ratio)
    assert 'same_outputs' not in row
  with pytest.raises(ValueError, match='no fields of rounds'):
    _decode(config, tmp_path / 'other', fields=('arm',))


def test_greedy_answers_are_compared_with_plain_ones(folder, tmp_path):
  """Counts equal outputs, which a lossy rule has fewer of."""
  config = _config(
    folder,
    methods=(
      'small:2',
      'small:2~chow(alpha=1.0)',
      {'arm': 'small:2', 'target': 'small', 'label': 'of another target'},
    ),
    repeats=1,
    sampling={'temperature': 0.0},
  )
  exact, lossy, small_target = compare.rows(_decode(config, tmp_path))
  assert 'same_outputs' not in small_target
  assert exact['same_outputs'] == exact['decoded'] > 0
  assert lossy['same_outputs'] < lossy['decoded']


def test_a_batch_of_one_bandit_goes_by_its_request(folder, tmp_path):
  """Checks that prompts in batches of one draw different random arms."""
  config = _config(
    folder,
    methods=(),
    arms=('small:2', 'none'),
    bandits=('uniform',),
    batch_size=1,
    prompts_per_domain=5,
    max_new_tokens=12,
  )
  (decoded,) = _decode(config, tmp_path, fields=('arm',))
  first_arms = [tuple(record['arm'][:4]) for record in decoded.records]
  assert len(set(first_arms)) > 3


def test_rows_show_sums_over_records():
  records = [
    {
      **{'job': 0, 'emitted': 6, 'rounds': 2, 'num_catch_up_tokens': 1},
      **{'accepted': [2, 1], 'drafted': [2, 2], 'tested': [2, 2], 'pulls': [2]},
    },
    {
      **{'job': 1, 'emitted': 2, 'rounds': 2, 'num_catch_up_tokens': 0},
      **{'accepted': [0, 0], 'drafted': [2, 2], 'tested': [2, 0], 'pulls': [2]},
    },
  ]
  row = compare.summary(records)
  assert row['block_efficiency'] == 2.0 and row['tokens'] == 8
  assert row['block_efficiency_error'] == pytest.approx(1)
  # Seeds of one prompt are not independent: repeats do not reduce the error.
  repeated_row = compare.summary([*records, *records])
  assert repeated_row['block_efficiency_error'] == row['block_efficiency_error']
  # Two of the four first drafts were kept, both of them in one prompt.
  assert row['first_acceptance'] == 0.5
  assert row['first_acceptance_error'] == repeated_row['first_acceptance_error']
  assert row['first_acceptance_error'] == pytest.approx(0.5)
  # Four first drafts and two second drafts were reached; three were kept.
  assert row['rejection_rate'] == 0.5
  # A first draft is kept in two of four rounds, so a second one in a quarter.
  assert row['predicted_efficiency'] == 1 + 0.5 + 0.25
  plain_record = {'accepted': [], 'drafted': [], 'tested': [], 'rounds': 3}
  assert compare.rejection_rate([plain_record]) is None
  # Three rounds kept the first draft, but only one of them had a second draft.
  stopped_record = {'accepted': [3, 1], 'tested': [4, 1]}
  assert compare.rejection_rate([stopped_record]) == pytest.approx(1 / 5)
  assert compare.predicted_efficiency([plain_record]) is None
  # The second drafts of the second record were never reached.
  assert row['acceptance_by_depth'] == '0.50 0.50'


# The paper's numbers, tables and figures.

_TABLE = {
  'source': 'A, Table 1',
  'field': 'speed',
  'rows': (
    {'method': 'a', 'paper': 2.0, 'paper_error': 0.1},
    {'method': 'b', 'paper': 1.0},
  ),
  'claims': (
    ('a over b', {'method': 'a'}, {'method': 'b'}),
    ('a over b, as printed', {'method': 'a'}, {'method': 'b'}, 2.1),
    ('a over c', {'method': 'a'}, {'method': 'c'}, 3.0),
  ),
}


def test_what_prompts_have_in_common_cancels_in_a_claim():
  """Uses two prompts, one of which is easier for both methods by one factor."""
  columns = {'prompts': 'p', 'domain': 'all'}
  speeds = {'a': ([4, 8], [2, 2]), 'b': ([2, 4], [2, 2])}
  rows = [
    {
      **columns,
      'method': method,
      'speed': metrics.ratio(*counts)[0],
      'speed_error': metrics.ratio(*counts)[1],
      paper.PAIRED: {'speed': metrics.estimate(*counts)},
    }
    for method, counts in speeds.items()
  ]
  claim = paper.claims(rows, [_TABLE])[0]
  assert claim['measured'] == 2 and claim['measured_error'] == 0
  saved_rows = paper.unpaired(rows)
  assert all(paper.PAIRED not in row for row in saved_rows)
  rows[1]['prompts'] = 'other prompts'
  for table_rows in (rows, saved_rows):
    assert paper.claims(table_rows, [_TABLE])[0]['measured_error'] > 0.5


def test_the_papers_numbers_stand_beside_ours():
  rows = [
    {'method': 'a', 'speed': 3.0, 'speed_error': 0.3},
    {'method': 'b', 'speed': 2.0, 'speed_error': 0.1},
    {'method': 'd', 'speed': 1.0},
  ]
  a, b, d = paper.add_numbers(rows, [_TABLE])
  assert (a['paper'], a['paper_error'], b['paper']) == (2.0, 0.1, 1.0)
  assert a['paper_source'] == 'A, Table 1' and a['paper_field'] == 'speed'
  assert d == rows[2] and 'paper' not in rows[0]
  ratio_claim, quoted_claim = paper.claims(rows, [_TABLE])
  assert (ratio_claim['paper'], quoted_claim['paper']) == (2.0, 2.1)
  assert ratio_claim['measured'] == 1.5
  error = 1.5 * np.hypot(0.1, 0.05)
  assert ratio_claim['measured_error'] == pytest.approx(error)
  rows[0]['speed'] = 0.0
  zero_claim, _ = paper.claims(rows, [_TABLE])
  assert zero_claim['measured'] == 0 and zero_claim['measured_error'] == 0.15
  rows[1]['speed'] = 0.0  # A ratio to it is no number.
  assert not paper.claims(rows, [_TABLE])


def test_kept_results_have_the_papers_numbers():
  """Adds the numbers of the configs to kept rows and compares the results."""
  num_numbers = 0
  for path in sorted((_ROOT / 'docs' / 'results' / 'data').rglob('*.json')):
    content = results.read(path)
    (name,) = re.findall(r'--config=(\S+)', content['command'])
    tables = configs.load(str(_ROOT / name)).get('paper', ())
    rows_of_run = [
      {k: v for k, v in row.items() if k.split('_')[0] != 'paper'}
      for row in content['rows']
    ]
    rows = json.loads(json.dumps(paper.add_numbers(rows_of_run, tables)))
    assert rows == content['rows'], path
    key = lambda claim: (claim['source'], claim['claim'], claim['paper'])
    claims = {key(claim) for claim in paper.claims(rows_of_run, tables)}
    assert claims >= {key(claim) for claim in content['claims']}, path
    num_numbers += sum('paper' in row for row in rows)
  assert num_numbers > 600


def test_tables_show_errors_beside_their_numbers():
  rows = [
    {'method': 'a', 'speed': 3.0, 'speed_error': 0.25, 'n': 2, 'lacking': None},
    {'method': 'bb', 'speed': 1234.5678, 'n': None, 'lacking': None},
  ]
  assert results.text(results.cells(rows)).split('\n') == [
    'method speed ± standard error n',
    '     a          3.000 ± 0.250 2',
    '    bb                 1234.6  ',
  ]
  config = ml_collections.ConfigDict({'columns': ('n', 'method')})
  (table,) = results.tables(rows, config)
  assert results.markdown(table).split('\n') == [
    *('| n | method |', '| --- | --- |', '| 2 | a |', '|  | bb |'),
  ]
  pivot = {'down': ('method',), 'across': 'n', 'value': 'speed'}
  rows = [
    {
      **{'method': method, 'n': n, 'speed': n / 2, 'speed_error': 0.5},
      **paper_fields,
    }
    for method in 'ab'
    for n, paper_fields in (
      (1, {}),
      (2, {'paper': 3.0, 'paper_field': 'speed'}),
    )
  ]
  config = ml_collections.ConfigDict({'pivot': pivot})
  (table,) = results.tables(rows, config)
  assert [[*table], *table.to_numpy().tolist()] == [
    ['method', '1', '2'],
    ['a', '0.500 ± 0.500', '1.000 ± 0.500 (3.000)'],
    ['b', '0.500 ± 0.500', '1.000 ± 0.500 (3.000)'],
  ]
  rows = [{'part': part, 'n': n} for part in 'xy' for n in (1, 2)]
  x_table, y_table = results.tables(rows, {})
  assert [*x_table] == ['part', 'n']
  assert x_table.to_numpy().tolist() == [['x', '1'], ['x', '2']]
  assert y_table.to_numpy().tolist() == [['y', '1'], ['y', '2']]


def test_equal_rows_give_equal_pictures(tmp_path):
  rows = [
    {
      'method': method,
      'x': x,
      'y': x**2,
      'e': 0.5,
      'paper': x,
      'paper_field': 'y',
    }
    for method in ('a', 'b')
    for x in (1, 2, 3)
  ]
  for name in ('one', 'two'):
    figure = plots.lines(rows, 'x', 'y', 'method', error='e', paper=True)
    plots.save(figure, tmp_path / f'{name}.svg')
    figure = plots.bars(rows, 'x', 'y', 'method', error='e', paper=True)
    plots.save(figure, tmp_path / f'{name}_bars.svg')
  for kind in ('', '_bars'):
    first_svg, second_svg = (
      (tmp_path / f'{name}{kind}.svg').read_text() for name in ('one', 'two')
    )
    assert first_svg == second_svg and 'paper' in first_svg


def test_up_to_six_lines_have_labels_without_overlap_and_more_a_legend():
  rows = [
    {'x': x, 'y': x + 1e-3 * i, 'method': f'method {i}'}
    for i in range(7)
    for x in (1, 2)
  ]
  figure = plots.lines(rows[:12], 'x', 'y', 'method')
  (axes,) = figure.axes
  heights = [text.get_window_extent() for text in axes.texts]
  assert [text.get_text() for text in axes.texts] == [
    f'method {i}' for i in range(6)
  ]
  assert not figure.legends
  for lower, upper in zip(heights, heights[1:]):
    assert lower.y0 + lower.height / 2 < upper.y0 + upper.height / 2
  figure = plots.lines(rows, 'x', 'y', 'method')
  assert len(figure.legends) == 1 and not figure.axes[0].texts


def test_a_method_has_one_color_in_all_figures():
  styles = [
    plots.line_style(names, 'ucb_spec')
    for names in (['ucb_spec'], ['none', 'hedge', 'ucb_spec'])
  ]
  assert styles[0]['color'] == styles[1]['color'] == plots.BLUE
  names = ['ucb1, BD', 'ucb1, BD, from the prompt']
  first, second = (plots.line_style(names, name) for name in names)
  assert first['color'] == second['color']
  assert first['linestyle'] != second['linestyle']


def test_a_figure_has_room_for_its_legend():
  rows = [{'x': 'a', 'method': 'short', 'y': 1.0}]
  widths = [
    plots.bars(
      [rows[0] | {'method': method}], 'x', 'y', 'method'
    ).get_figwidth()
    for method in ('short', 'a name of twenty-five letters', 60 * 'w')
  ]
  assert widths[0] < widths[1] < widths[2]


def test_a_title_is_no_wider_than_its_panel():
  title = 'prompts summarization, sampling.temperature 0.5'
  (single, _), (double, axes) = (plots.panels(num * [title]) for num in (1, 2))
  # The difference leaves out the width of the legend.
  inches = double.get_figwidth() - single.get_figwidth()
  for panel in axes:
    assert panel.title.get_window_extent().width / double.dpi < inches
    assert panel.get_title().split() == title.split()


def test_programs_are_dropped_where_they_map_much(monkeypatch):
  clear_calls = []
  monkeypatch.setattr(jax, 'clear_caches', lambda: clear_calls.append(1))
  assert not programs.drop(10**9) and not clear_calls
  assert programs.drop(0) and clear_calls == [1]


def test_progress_is_silent_where_the_output_is_no_terminal(capsys):
  assert list(measure.progress('rounds')([1, 2])) == [1, 2]
  assert capsys.readouterr().err == ''
