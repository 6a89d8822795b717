"""Every config is prepared; one config of each experiment runs.

To prepare a config is to build all that it decodes with, at its own sizes but
with toy models and texts; nothing is compiled. One config of each experiment
runs at its smallest sizes; its models are random, so its results prove nothing.
"""

import dataclasses
import inspect
import json
import re
import runpy
import shutil
import types

import pytest

from experiments import main
from experiments.common import compare
from experiments.common import configs
from experiments.common import log
from experiments.common import methods as methods_lib
from experiments.common import results
from tests import extras
from tests import smoke

pytestmark = pytest.mark.slow

# The config of each experiment that runs, and what it leaves beside rows.
_RUNS = {
  'accelerators.estimates': ('accelerators',),
  'arm_selection': ('metasd/drafters',),
  'banditspec.lengths': ('banditspec/lengths',),
  'banditspec.memory': ('banditspec/memory',),
  'banditspec.regret': ('banditspec/regret',),
  'benchmark.costs': ('benchmark/costs',),
  'benchmark.peer': ('benchmark/peer',),
  'benchmark.refill': ('benchmark/refill',),
  'benchmark.round_starts': ('benchmark/round_starts',),
  'benchmark.rounds': ('benchmark/rounds',),
  'benchmark.split': ('benchmark/split', 'parts.png'),
  'cascades.calibrate': ('cascades/calibrate', 'choice.json', 'dev.png'),
  'cascades.frontier': ('cascades/decoder_only',),
  'cascades.rule_bandit': ('cascades/rule_bandit',),
  'cascades.teacher_forced': ('cascades/teacher_forced', 'loss_01.png'),
  'chat': ('chat',),
  'compare': ('spectr/decode',),
  'decode': ('decode',),
  'harness_scores': ('harness_scores', 'score.png'),
  'metasd.alignment': ('metasd/alignment',),
  'metasd.batches': ('metasd/batches',),
  'metasd.switching': ('metasd/switching',),
  'quickstart': ('quickstart',),
  'reproduce': (
    *('theory/all', 'docs/results/tables/theory/batch_improvement.md'),
  ),
  'spectr.acceptance': ('spectr/acceptance',),
  'spectr.cost': ('spectr/cost',),
  'spectr.latency': ('spectr/latency',),
  'theory.chains': ('theory/chains',),
  'theory.diagnose': ('theory/diagnose',),
  'theory.draft_temperature': ('theory/draft_temperature',),
  'theory.improvement': ('theory/batch_improvement',),
  'theory.ledger': ('theory/ledger',),
  'theory.pareto': ('theory/pareto',),
  'theory.practice': ('theory/practice',),
  'theory.rejections': ('theory/rejections',),
  'theory.trees': ('theory/trees',),
  'theory.winrate': ('theory/winrate',),
  'timed_suite': ('accelerators:half_hour', 'kept/summary.md'),
  'train.datastore': ('train/datastore', 'datastore.safetensors'),
  'train.distill': ('train/distill', 'small.safetensors'),
  'train.heads': (
    'train/heads/all',
    *('eagle.safetensors', 'eagle3.safetensors', 'medusa.safetensors'),
  ),
  'train.models': ('metasd/specialist', 'code.safetensors', 'tokenizer.json'),
  'train.perplexity': ('train/perplexity',),
  'train.responses': ('train/responses', 'responses.jsonl'),
  'train.tokenizer': ('train/tokenizer', 'tokenizer.json'),
}
# Packages that an experiment needs in addition to those of specjax.
_PACKAGES = {'benchmark.peer': 'transformers', 'harness_scores': 'lm_eval'}
_NO_ROWS = 'reproduce', 'train.responses', 'train.tokenizer'
# The main config of each paper; a run of it that is stopped goes on.
_RESUMED = (
  *('arm_selection', 'cascades.frontier', 'compare', 'theory.rejections'),
)
# Columns of clocks, which no two runs have alike.
_CLOCKS = ('seconds', 'latency', 'speed', 'per_second')


@pytest.fixture(scope='session', name='folder')
def _folder(tmp_path_factory):
  return smoke.toy_folder(tmp_path_factory)


def _names(path):
  """The config of a file for each argument that it names."""
  return [
    name.removeprefix('configs/').replace('.py', '')
    for name in configs.variants(path)
  ]


def test_configs_that_take_an_argument_name_what_they_accept():
  for path in smoke.PATHS:
    module = runpy.run_path(smoke.ROOT / path)
    assert ('VARIANTS' in module) == bool(
      inspect.signature(module['get_config']).parameters
    ), path


def test_a_field_that_a_config_lacks_raises(tmp_path):
  text = (smoke.ROOT / 'configs/quickstart.py').read_text()
  file = tmp_path / 'config.py'
  for field in ('draft_lenghts', 'sampling.temprature'):
    file.write_text(f'{text}\n\nSMOKE = {{{field!r}: 2}}\n')
    configs.load(str(file))
    with pytest.raises(ValueError, match=f"Unknown field '{field}' of SMOKE"):
      configs.load(str(file), smoke=True)


_CHECKED = set()


@pytest.mark.parametrize('path', smoke.PATHS)
def test_a_config_is_prepared_and_its_rounds_keep_their_shapes(path, folder):
  """Covers every argument that it names, at its own sizes and the smallest.

  Each arm is traced in a decoder of its own, and every bandit with two arms.
  """
  for name in _names(path):
    for config in (smoke.sized(name, folder), smoke.smoke(name, folder)):
      for point, setup in main.prepare(config):
        if not isinstance(setup, compare.Setup):
          continue
        if point.get('prompts'):
          assert all(prompts.jobs for prompts in setup.prompt_sets)
          assert setup.methods and setup.prompt_sets
        for method in setup.methods:
          pair = method._replace(arms=method.arms[:2])
          for part in (pair, *methods_lib.single_arms(method)):
            _check_shapes(setup, part)


def _check_shapes(setup, method):
  """Traces a method with a kind of arm, bandit or reward that is new."""
  is_greedy = not method.sampling.temperature
  kinds = {(str(method.arms[0]), is_greedy)}
  if len(method.arms) > 1:
    options = method.feedback, method.per_row, method.warm_start > 0
    kinds = {
      (str(method.bandit), method.feedback),
      (str(method.reward), *options),
    }
  # Numbers and names of models make no other kind.
  names = '|'.join([*smoke.MODELS, 'eagle'])
  similar = re.compile(rf'\b({names})\b|(?<![a-wyz_])\d[\d.]*')
  kinds = {similar.sub('0', repr(kind)) for kind in kinds}
  if not kinds <= _CHECKED:
    _CHECKED.update(kinds)
    (compiled_method,) = compare.build_methods(
      setup._replace(methods=[method]), 128
    )
    compare.check_shapes(compiled_method, batch_size=2)


def test_a_round_that_changes_a_shape_raises(folder):
  ((_, setup),) = main.prepare(smoke.smoke('quickstart', folder))
  compiled_method = compare.build_methods(setup, 128)[0]

  def drop_a_column(params, state):
    return dataclasses.replace(state, tokens=state.tokens[:, 1:]), None

  decoder = types.SimpleNamespace(
    round_fn=drop_a_column,
    params=compiled_method.decoder.params,
    trace_init=compiled_method.decoder.trace_init,
  )
  with pytest.raises(TypeError, match='A round turns'):
    compare.check_shapes(
      compiled_method._replace(decoder=decoder), batch_size=2
    )


def test_of_every_experiment_one_config_runs():
  assert set(_RUNS) == set(configs.experiments())
  for experiment, (name, *_) in _RUNS.items():
    assert smoke.load(name, smoke=True).experiment == experiment


@pytest.mark.parametrize('experiment', _RUNS)
def test_a_config_runs(experiment, folder, tmp_path):
  if package := _PACKAGES.get(experiment):
    extras.load(package)
  name, *files = _RUNS[experiment]
  config = smoke.smoke(name, folder)
  whole = tmp_path / 'whole'
  main.run(config, whole)
  saved_config = json.loads((whole / 'config.json').read_text())
  assert saved_config == json.loads(config.to_json())
  for file in files:
    assert (whole / file).stat().st_size
  if experiment not in _NO_ROWS:
    assert results.read(whole)['rows']
  if experiment in _RESUMED:
    _check_resumption(config, whole, tmp_path)


def _check_resumption(config, whole, tmp_path):
  """A run that was killed at any moment ends as one that was not."""
  lines = (whole / log.FILE).read_text().splitlines(keepends=True)
  moments = sorted({1, len(lines) // 2, len(lines) - 1})
  assert len(moments) == 3
  for moment in moments:
    workdir = tmp_path / f'killed_{moment}'
    workdir.mkdir()
    shutil.copy(whole / 'config.json', workdir)
    log_prefix = ''.join(lines[:moment])
    # It was killed while it wrote a line.
    (workdir / log.FILE).write_text(log_prefix + lines[moment][:-20])
    main.run(config, workdir)
    text = (workdir / log.FILE).read_text()
    assert text.startswith(log_prefix)
    units = [json.loads(line)['unit'] for line in text.splitlines()]
    assert units == [json.loads(line)['unit'] for line in lines]
    assert _result(workdir) == _result(whole)


def _result(workdir):
  """Returns the files of a run, without clocks."""
  content = results.read(workdir)
  return [
    {
      column: value
      for column, value in row.items()
      if not any(word in column for word in _CLOCKS)
    }
    for row in (*content['rows'], *content['claims'])
  ]
