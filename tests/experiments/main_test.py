"""The command line: configs, flags, sweeps, help, and folders of runs."""

import importlib
import json
import pathlib
import subprocess
import sys
import types

from absl import flags as absl_flags
import ml_collections
import pytest

from experiments import main
from experiments.common import configs
from experiments.common import log
from experiments.common import results

_ROOT = pathlib.Path(__file__).parents[2]


# What is asked for wrongly, and what is answered.


def test_help_lists_configs_and_components():
  said = main.usage()
  for path, line in configs.known().items():
    assert f'{path} ' in said and line in said and line, path
  for name in ('ucb_spec', 'otm', 'prompt_lookup', 'token_v3', 'prefix_tree'):
    assert name in said


_QUICKSTART = '--config=configs/quickstart.py'


@pytest.mark.parametrize(
  ('path', 'near'),
  [
    ('configs/decod.py', 'configs/decode.py'),
    ('decode.py', 'configs/decode.py'),
    ('configs/decode', 'configs/decode.py'),
    ('configs/eagle.py', 'configs/train/heads/eagle.py'),
    ('configs/languges.py', 'configs/metasd/languages.py'),
    ('configs/train.py', 'configs/train/target.py'),
    ('zzz', None),
  ],
)
def test_an_unknown_config_is_answered_with_the_nearest(path, near):
  with pytest.raises(ValueError) as caught:
    configs.load(path)
  said = str(caught.value)
  assert said.startswith(f'There is no config {path!r}; ')
  assert said.endswith(' --help lists all.') and said.count('.py') < 12
  assert (near is None) == ('nearest' not in said)
  if near is not None:
    assert f' {near},' in said


@pytest.mark.parametrize('flag', ['--help', '-h'])
@pytest.mark.parametrize(
  ('path', 'words'),
  [
    ('configs/decode.py', ['arms = (', 'sampling.top_p = 1.0', '--workdir']),
    (
      'configs/train/heads/eagle.py',
      ['heads.eagle_first.options.head_size = ', 'Variants:'],
    ),
  ],
)
def test_help_of_a_config_describes_it(path, words, flag, capsys):
  with pytest.raises(SystemExit) as caught:
    main._parse(['main.py', f'--config={path}', flag])
  assert caught.value.code == 0
  said = capsys.readouterr().out
  assert said.startswith(configs.docstring(path))
  for word in words:
    assert word in said
  assert 'Components, by kind' not in said


@pytest.mark.parametrize(
  ('flags', 'sentence'),
  [
    ([_QUICKSTART, '--config.sampling.heat=0'], 'Unknown config field'),
    ([_QUICKSTART, '--config.sweep={}'], 'sweep must hold at least one'),
  ],
)
def test_bad_flags_end_in_a_sentence_and_leave_nothing(
  flags, sentence, tmp_path
):
  """Where flags are parsed, and where the experiment runs."""
  done = subprocess.run(
    [sys.executable, '-m', 'experiments.main', *flags]
    + [f'--workdir={tmp_path / "run"}'],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode != 0
  assert f'Error: {sentence}' in done.stderr, done.stderr
  assert 'Traceback' not in done.stderr
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('flags', 'sentence'),
  [
    (['--config=configs/nothing.py'], 'There is no config'),
    (['--config=configs/quickstart.py:x'], 'takes no argument'),
    (
      [_QUICKSTART, '--config.sampling.temprature=0'],
      "Unknown config field 'sampling.temprature'. Known: ",
    ),
    (
      [_QUICKSTART, '--config.sampling.temperature=-1.0'],
      r'temperature must be 0 \(greedy\)',
    ),
    (
      [_QUICKSTART, "--config.ways=('medum:4',)"],
      r"ways\[0\] 'medum:4': Unknown drafter 'medum'. Known: ",
    ),
    (
      [_QUICKSTART, "--config.sweep={'seed': (1, 1)}"],
      'sweep of seed holds 1 twice.',
    ),
  ],
)
def test_bad_flags_raise(flags, sentence, tmp_path, monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['main.py'])  # Set as flags are parsed.
  values = absl_flags.FlagValues()
  workdir = tmp_path / 'run'
  with pytest.raises(ValueError, match=sentence):
    main.parsed(['main.py', *flags, f'--workdir={workdir}'], values)
    main.run(values.config, values.workdir)
  assert not workdir.exists()


def test_an_unknown_experiment_is_answered_with_the_known(tmp_path):
  config = ml_collections.ConfigDict({'experiment': 'nothing'})
  with pytest.raises(ValueError, match='Known: .*compare.*quickstart'):
    main.run(config, tmp_path)
  for name in configs.experiments():
    assert callable(importlib.import_module(f'experiments.{name}').run)


# Workdirs, of a toy in the place of an experiment.


def _toy(monkeypatch, **constants):
  """Has a toy take the place of an experiment; returns its config."""
  module = types.SimpleNamespace(run=_run_toy, **constants)
  monkeypatch.setitem(sys.modules, 'experiments.toy', module)
  return ml_collections.ConfigDict(
    {'experiment': 'toy', 'sizes': (1, 2), 'inner': {'rate': 0.5}, 'seed': 0}
  )


def _run_toy(config, workdir):
  """Goes on where it stopped: a row for each size; 13 is the end of it."""
  if config.seed < 0:
    raise ValueError(f'seed must be >= 0, got {config.seed}.')

  def measure(unit):
    if unit['size'] == 13:
      raise KeyboardInterrupt
    return {'double': 2 * unit['size'], 'rate': config.inner.rate}

  units = [{'size': size, 'rate': config.inner.rate} for size in config.sizes]
  found = log.resume(workdir, units, measure)
  return [{'size': u['size']} | each for u, each in zip(units, found)]


def _rows(config, workdir):
  main.run(config, workdir)
  return results.read(workdir)['rows']


def _lines(workdir):
  return (workdir / log.FILE).read_text().splitlines()


def test_a_refused_run_leaves_no_folder(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.seed = -1
  with pytest.raises(ValueError, match='seed'):
    main.run(config, tmp_path / 'a' / 'b')
  assert not list(tmp_path.iterdir())
  config.seed = 0
  assert len(_rows(config, tmp_path / 'a' / 'b')) == 2
  left = json.loads((tmp_path / 'a' / 'b' / 'config.json').read_text())
  assert left == json.loads(config.to_json())


def test_other_settings_are_refused_before_anything_is_touched(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch)
  main.run(config, tmp_path)
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  assert len(before) == 3
  config.seed = 1
  config.inner.rate = 0.25
  config.inner.more = 'x'
  with pytest.raises(ValueError) as caught:
    main.run(config, tmp_path)
  assert str(caught.value) == (
    f'{tmp_path} holds a run with other settings: inner.rate is 0.5 there and '
    '0.25 here; seed is 0 there and 1 here; inner.more is not set there and '
    '"x" here. Use another workdir, or delete this one.'
  )
  assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_of_another_experiment_only_that_is_said(tmp_path, monkeypatch):
  main.run(_toy(monkeypatch), tmp_path)
  other = configs.load(str(_ROOT / 'configs' / 'quickstart.py'))
  with pytest.raises(ValueError) as caught:
    main.run(other, tmp_path)
  assert str(caught.value) == (
    f'{tmp_path} holds a run with other settings: experiment is "toy" there '
    'and "quickstart" here. Use another workdir, or delete this one.'
  )


def test_a_spoilt_config_is_named(tmp_path, monkeypatch):
  (tmp_path / 'config.json').write_text('{"seed": ')
  with pytest.raises(ValueError, match=f'Cannot read {tmp_path}/config.json'):
    main.run(_toy(monkeypatch), tmp_path)


def test_files_of_an_older_format_are_refused(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  main.run(config, tmp_path)
  (tmp_path / log.FILE).write_text('{"size": 1}\n')
  with pytest.raises(ValueError, match='is of an older format: use another'):
    main.run(config, tmp_path)
  (tmp_path / results.FILE).write_text('[{"size": 1}]')
  with pytest.raises(ValueError, match='format 1, and only format 2 is read'):
    results.read(tmp_path)
  with pytest.raises(ValueError, match='There are no results in'):
    results.read(tmp_path / 'nowhere')


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  for _ in range(2):
    assert len(_rows(config, tmp_path)) == len(_lines(tmp_path)) == 2
  # A torn line is as good as none.
  path = tmp_path / log.FILE
  path.write_text(path.read_text()[:-3])
  assert len(_rows(config, tmp_path)) == len(_lines(tmp_path)) == 2


def test_named_fields_may_change_and_the_config_is_that_of_the_results(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch, MAY_CHANGE=('sizes',))
  main.run(config, tmp_path)
  config.sizes = (2, 3)
  assert [row['size'] for row in _rows(config, tmp_path)] == [2, 3]
  left = json.loads((tmp_path / 'config.json').read_text())
  assert left['sizes'] == [2, 3]
  assert len(_lines(tmp_path)) == 3  # Of 1, 2 and 3.


def test_a_killed_run_has_no_results_of_another_config(tmp_path, monkeypatch):
  config = _toy(monkeypatch, MAY_CHANGE=('sizes',))
  main.run(config, tmp_path)
  config.sizes = (1, 3, 13)
  with pytest.raises(KeyboardInterrupt):
    main.run(config, tmp_path)
  left = json.loads((tmp_path / 'config.json').read_text())
  assert left['sizes'] == [1, 3, 13]
  assert len(_lines(tmp_path)) == 3
  assert not (tmp_path / results.FILE).exists()


def test_two_equal_points_are_refused(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sizes = (1, 2, 1)
  with pytest.raises(ValueError, match='Two points are the same: .*"size": 1'):
    main.run(config, tmp_path)


# Sweeps.


def test_a_sweep_joins_the_rows_of_all_combinations(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sweep = "{'inner.rate': (0.5, 2), 'sizes': ((1,), (3, 4))}"
  rows = _rows(config, tmp_path)
  seen = [(row['inner.rate'], row['rate'], row['double']) for row in rows]
  assert seen == [
    *((0.5, 0.5, 2), (0.5, 0.5, 6), (0.5, 0.5, 8)),
    *((2, 2.0, 2), (2, 2.0, 6), (2, 2.0, 8)),
  ]
  # Points are folders of their own, which are not run again.
  (tmp_path / results.FILE).unlink()
  logs = {path: path.read_bytes() for path in tmp_path.rglob(log.FILE)}
  assert len(logs) == 4
  assert _rows(config, tmp_path) == rows
  assert logs == {path: path.read_bytes() for path in tmp_path.rglob(log.FILE)}


@pytest.mark.parametrize(
  ('sweep', 'sentence'),
  [
    ('(1, 2)', 'sweep must be a dictionary such as'),
    ('{', 'sweep must be a dictionary such as'),
    ("{'rate': (1,)}", "Unknown field 'rate' of sweep. Known: .*inner.rate"),
    ("{'seed': ()}", r'sweep of seed must hold values, got \(\)'),
    ("{'seed': 1}", 'sweep of seed must hold values, got 1'),
    ("{'seed': (1, 2, 1)}", 'sweep of seed holds 1 twice'),
    ("{'inner.rate': ('x',)}", 'sweep of inner.rate: .*type'),
    ('{}', 'sweep must hold at least one field'),
  ],
)
def test_bad_sweeps_are_refused(sweep, sentence, tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sweep = sweep
  with pytest.raises(ValueError, match=sentence):
    main.run(config, tmp_path / 'run')
  assert not list(tmp_path.iterdir())


def test_fields_that_may_change_are_fields_of_configs():
  known, named = set(), set()
  for path in configs.known():
    config = configs.load(str(_ROOT / path))
    named |= set(main.may_change(config))
    known |= set(config)
  assert named and named <= known
