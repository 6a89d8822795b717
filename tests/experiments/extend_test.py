"""A component that is in its table alone is of use to every experiment.

Each is seen in what is decoded: it keeps all or nothing of a draft, or plays or
rewards one arm, as its option says.
"""

import os
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import ml_collections
import pytest

from experiments import main
from experiments.common import results
import specjax
from specjax import base
from specjax import registry
from specjax import testing
from specjax import trees
from specjax.drafters import stateless
from specjax.testing import toys

_ROOT = pathlib.Path(__file__).parents[2]


@registry.component
def drafter(draft_length: int, *, silent: bool = False):
  """The drafter of the last token, again and again, or of nothing."""

  def propose(params, context):
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)
    tokens = jnp.repeat(last, draft_length, axis=1)
    return tokens, jnp.full_like(tokens, not silent, bool)

  return stateless.stateless(trees.chain(draft_length), propose)


def coupling(key, candidates, active, draft, target):
  """The coupling that keeps what is drafted, if the target may say it."""
  first = candidates[jnp.argmax(active)]
  keep = active.any() & (target[first] > 0)
  token = jnp.where(keep, first, jnp.argmax(target).astype(jnp.int32))
  return token, (active & (candidates == token)).any()


@registry.component(example={'share': 0.5})
def goal(share: float, other: base.Goal | None = None):
  """The goal that is a share of the draft, else another goal or the target."""
  other = other or specjax.GOALS['target']()
  return lambda target, draft, raw=None: (
    share * draft + (1 - share) * other(target, draft, raw)
  )


@registry.component
def bandit(num_arms: int, *, arm: int = 0):
  """The bandit that plays one arm, or the first if it is not there."""
  return specjax.BANDITS['fixed'](num_arms, arm=arm % num_arms)


@registry.component
def reward(*, arm: int = 0):
  """The reward of playing one arm."""
  return lambda info: (info.arm == arm).astype(jnp.float32)


@registry.component
def verifier(*, keep: bool = True, coupling: str = 'maximal'):
  """The verifier that is a tree walk, or keeps nothing."""
  walk = specjax.VERIFIERS['tree_walk'](coupling)

  def verify(key, tree, target_probs):
    return walk(key, tree._replace(valid=tree.valid & keep), target_probs)

  return verify


_NEW = {
  'drafter': (specjax.DRAFTERS, drafter),
  'coupling': (specjax.COUPLINGS, coupling),
  'goal': (specjax.GOALS, goal),
  'bandit': (specjax.BANDITS, bandit),
  'reward': (specjax.REWARDS, reward),
  'verifier': (specjax.VERIFIERS, verifier),
}
# By kind, two ways: with the first, nothing is kept; with the second, much.
_LEARNER = 'epsilon_greedy(epsilon=0.0)'
_WAYS = {
  'drafter': ('mine(silent=True):3', {'drafter': 'mine', 'tree': 3}),
  'coupling': ('none', 'small:2/mine'),
  'goal': ('none', 'small:2~mine(share=1, other=mine(0.5))'),
  'bandit': ({'bandit': 'mine'}, {'bandit': {'name': 'mine', 'arm': 1}}),
  'reward': (
    {'bandit': _LEARNER, 'reward': 'mine'},
    {'bandit': _LEARNER, 'reward': 'mine(arm=1)'},
  ),
  'verifier': (
    'small:2/mine(keep=False)',
    {'drafter': 'small', 'tree': 2, 'verifier': {'name': 'mine'}},
  ),
}


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('family')
  toys.write_family(folder, {'small': 0.02})
  line = '{"domain": "qa", "prompt": "one two"}\n'
  (folder / 'prompts.jsonl').write_text(2 * line)
  return folder


def _config(folder, **fields):
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': str(folder),
      'prompts': {'family': {}},
      'prompts_per_domain': 2,
      'ways': (),
      'arms': ('none', 'small:2'),
      'bandits': (),
      'reward': 'emitted',
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 9,
      'max_length': 64,
      'batch_size': 2,
      'seed': 0,
    }
    | fields
  )


@pytest.mark.parametrize('kind', _NEW)
def test_these_are_components(kind):
  """They keep what all of their kind keep, but for the output's."""
  testing.CHECKS[kind](_NEW[kind][1])


@pytest.mark.parametrize('kind', _WAYS)
def test_a_component_in_its_table_is_usable_from_a_config(
  kind, folder, tmp_path, monkeypatch
):
  table, component = _NEW[kind]
  monkeypatch.setitem(table, 'mine', component)
  assert 'mine' in main.usage()
  main.run(_config(folder, ways=_WAYS[kind]), tmp_path)
  less, more = results.read(tmp_path)['rows']
  if kind == 'drafter':  # Of what it drafts, little may be kept.
    assert less['rejection_rate'] is None and more['rejection_rate'] >= 0
  else:
    assert less['block_efficiency'] < 1.5 < more['block_efficiency']


@pytest.mark.parametrize(
  ('kind', 'way', 'sentence'),
  [
    (
      'drafter',
      'mine(quiet=True):3',
      "Unknown option 'quiet' of mine. Known: ",
    ),
    ('goal', 'small:2~mine', 'mine needs share, which is not set'),
    ('goal', 'small:2~mine(0, other=m)', "other: Unknown goal 'm'. Known: "),
    ('goal', 'small:2~mine(share=x)', "share must be of type float, got 'x'"),
    ('verifier', 'small:2/mine(keep=1)', 'keep must be of type bool, got 1'),
    ('coupling', 'small:2/mine(x=1)', "Unknown option 'x' of mine. Known: "),
  ],
)
def test_what_it_refuses_is_said_at_its_place(
  kind, way, sentence, folder, tmp_path, monkeypatch
):
  table, component = _NEW[kind]
  monkeypatch.setitem(table, 'mine', component)
  with pytest.raises(ValueError) as error:
    main.run(_config(folder, ways=('none', way)), tmp_path)
  said = str(error.value)
  assert said.startswith('ways[1]') and sentence in said


# The config of a user: a file that adds to the tables.
_FILE = """
from tests.experiments import extend_test


def get_config():
  for table, component in extend_test._NEW.values():
    table['mine'] = component
  return extend_test._config({folder!r}, ways=('none',))
"""


def _run(*flags):
  return subprocess.run(
    [sys.executable, '-m', 'experiments.main', *flags],
    cwd=_ROOT,
    env=os.environ | {'PYTHONPATH': str(_ROOT)},
    capture_output=True,
    text=True,
  )


@pytest.mark.slow
def test_components_in_their_tables_are_usable_from_the_command_line(
  folder, tmp_path
):
  config = tmp_path / 'mine.py'
  config.write_text(_FILE.format(folder=str(folder)))
  flags = f'--config={config}', f'--workdir={tmp_path / "run"}'
  ways = [
    *('none', 'mine:3', 'small:2/kseq', 'small:2x2/mine'),
    *('small:2~mine(share=1.0)', 'small:2/tree_walk(mine)'),
  ]
  bandits = ('mine(arm=1)', 'ucb1')
  done = _run(
    *flags,
    f'--config.ways={tuple(ways)}',
    f'--config.bandits={bandits}',
    '--config.reward=mine(arm=1)',
    "--config.arms=('none', 'small:2/mine(keep=True)')",
  )
  assert not done.returncode, done.stderr
  rows = {row['way']: row for row in results.read(tmp_path / 'run')['rows']}
  assert list(rows) == [*ways, *bandits]
  assert rows['none']['block_efficiency'] == 1
  for name in ('small:2~mine(share=1.0)', 'mine(arm=1)'):
    assert rows[name]['block_efficiency'] > 1
  bad = "--config.bandits=('mine(leg=1)',)"
  done = _run(*flags, '--config.reward=mine(arm=1)', bad)
  assert done.returncode
  assert "Error: bandits[0].bandit: Unknown option 'leg' of mine" in done.stderr
