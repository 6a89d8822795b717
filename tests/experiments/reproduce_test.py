"""One command runs all of a paper, and writes its tables."""

from absl import flags
import pytest

from experiments import main
from experiments import reproduce
from experiments.common import configs
from experiments.common import results
from tests import smoke

_PAPERS = 'spectr', 'banditspec', 'metasd', 'cascades', 'theory'
# What trains a model is no run of a paper, and recipes at a paper's scale need
# weights that do not come with specjax.
_NO_RUNS = (
  *('all', 'lm1b_97m', 'responses', 'specialist', 'vicuna_68m'),
  *('eagle2_7b', 'paper_scale', 'pythia', 'vicuna_7b'),
)
_CONFIG = 'configs/theory/batch_improvement.py'
_RUN = {'config': _CONFIG, 'fields': {'max_drafts': 2}}
_DATA_RUN = {'config': 'configs/evaluate.py', 'fields': {'data_dir': 'DATA'}}


def _suite(tmp_path, **fields):
  config = smoke.load('theory/all:small')
  config.update({'runs': (_RUN,), 'data_dir': str(tmp_path)} | fields)
  return config


def _parsed(run):
  """Returns the config that the command line makes of a run's arguments."""
  values = flags.FlagValues()
  main.parse_flags(['main', *run.arguments, '--workdir=run'], values)
  return values.config.to_json()


@pytest.mark.parametrize('size', ['full', 'small'])
@pytest.mark.parametrize('paper', _PAPERS)
def test_a_suite_holds_every_config_of_its_folder(paper, size, tmp_path):
  """Checks the runs of a suite; a small suite may leave out configs.

  Each run is a valid command line.
  """
  config = smoke.load(f'{paper}/all:{size}')
  config.data_dir = str(tmp_path)
  names = set()
  for run in reproduce.prepare(config):
    assert str(tmp_path) not in run.command
    assert run.config.experiment in configs.experiments()
    is_training = run.config.experiment.startswith('train.')
    assert bool(run.workdir) == is_training
    assert _parsed(run) == run.config.to_json()
    if is_training:
      continue
    path = run.path.partition(':')[0]
    names.add(path.removeprefix(f'configs/{paper}/').removesuffix('.py'))
  folder = smoke.ROOT / 'configs' / paper
  config_names = {path.stem for path in folder.glob('*.py')}
  missing_names = config_names - set(_NO_RUNS) - names
  assert names <= config_names and (size == 'small' or not missing_names)


def test_a_run_has_a_folder_and_tables_and_goes_on(tmp_path, capsys):
  workdir = tmp_path / 'run'
  for _ in range(2):
    main.run(_suite(tmp_path), workdir)
    content = results.read(workdir / 'theory_batch_improvement')
    assert {row['num_drafts'] for row in content['rows']} == {1, 2}
    assert content['command'].endswith(f'{_CONFIG} --config.max_drafts=2')
    folder = workdir / 'docs' / 'results' / 'tables' / 'theory'
    page = folder / 'batch_improvement.md'
    assert '--config.max_drafts=2' in page.read_text()
  assert '[1 of 1] python -m experiments.main' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'runs': ()}, 'runs must hold at least one config'),
    (
      {'runs': (_RUN, {'config': 'configs/nothing.py'})},
      r"runs\[1\]: There is no config 'configs/nothing.py'",
    ),
    (
      {'runs': ({'config': _CONFIG, 'fields': {'max': 1}},)},
      r"runs\[0\]: Unknown config field 'max'",
    ),
    (
      {'runs': ({'config': _CONFIG, 'fields': {'max_drafts': 'two'}},)},
      r'runs\[0\]: max_drafts: .*type',
    ),
    (
      {'runs': (_RUN | {'command_buffers': True},)},
      r"runs\[0\]: Unknown key 'command_buffers' of a run. Known: config, f",
    ),
    (
      {'runs': (_DATA_RUN,), 'data_dir': 'nowhere'},
      "data_dir must be a folder, got 'nowhere'",
    ),
    ({'runs': (_DATA_RUN,), 'data_dir': ''}, "must be a folder, got ''"),
  ],
)
def test_what_is_wrong_is_refused_before_anything_runs(
  fields, message, tmp_path
):
  with pytest.raises(ValueError, match=message):
    main.run(_suite(tmp_path, **fields), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_what_a_run_needs_has_its_own_folder_and_no_table(tmp_path):
  """Keeps only the results of a run without its own workdir."""
  needed_dir = tmp_path / 'needed'
  needed = {'config': _CONFIG, 'fields': {'max_drafts': 3}}
  runs = needed | {'workdir': str(needed_dir)}, _RUN
  workdir = tmp_path / 'run'
  main.run(_suite(tmp_path, runs=runs), workdir)
  assert len(results.read(needed_dir)['rows']) > len(
    results.read(workdir / 'theory_batch_improvement')['rows']
  )
  data = workdir / 'docs' / 'results' / 'data'
  assert [path.stem for path in data.rglob('*.json')] == ['batch_improvement']


def test_a_size_that_is_not_known_is_refused():
  with pytest.raises(ValueError, match="Unknown size 'tiny'. Known: full, sma"):
    smoke.load('theory/all:tiny')
