"""A component that is in its table alone is of use to every experiment.

Each is seen in what is decoded: it keeps all or nothing of a draft, or plays or
rewards one arm, as its option says.
"""

import contextlib
import functools
from unittest import mock

import absl.flags
import jax.numpy as jnp
import ml_collections
import pytest

from experiments import main
from experiments.common import results
import specjax
from specjax import base
from specjax import components
from specjax import drafters
from specjax import testing
from specjax import trees
from specjax.testing import toys


@components.component
class Repeat(drafters.StatelessDrafter):
  """Drafts the last token, again and again, or nothing."""

  draft_length: int = components.static()
  silent: bool = components.static(default=False, kw_only=True)

  @functools.cached_property
  def topology(self):
    return trees.chain(self.draft_length)

  def propose(self, params, context):
    last = context.lengths[:, None] - 1
    last = jnp.take_along_axis(context.tokens, last, axis=1)
    tokens = jnp.repeat(last, self.draft_length, axis=1)
    return tokens, jnp.full_like(tokens, not self.silent, bool)


@components.component
class Coupling(base.Coupling):
  """The coupling that keeps what is drafted, if the target may say it."""

  def __call__(self, key, candidates, active, draft, target):
    first = candidates[jnp.argmax(active)]
    keep = active.any() & (target[first] > 0)
    token = jnp.where(keep, first, jnp.argmax(target).astype(jnp.int32))
    return token, (active & (candidates == token)).any()


@components.component
class Goal(base.Goal):
  """The goal that is a share of the draft, else another goal or the target."""

  share: float
  other: base.Goal | None = None

  def __call__(self, target, draft, raw):
    other = self.other or specjax.goals.Target()
    return self.share * draft + (1 - self.share) * other(target, draft, raw)


@components.component
class Bandit(specjax.Bandit):
  """Selects one arm, or the first if it is not there."""

  arm: int = 0

  def init(self):
    return jnp.int32(self.arm % self.num_arms)

  def select(self, key, state):
    return state

  def update(self, state, arm, reward, /, **extra):
    return state

  def update_all(self, state, rewards):
    return state


@components.component
class Reward(specjax.Reward):
  """Rewards rounds with one arm."""

  arm: int = 0

  def __call__(self, info):
    return (info.arm == self.arm).astype(jnp.float32)


@components.component
class Verifier(base.Verifier):
  """The verifier that is a tree walk, or keeps nothing."""

  keep: bool = components.static(default=True)
  coupling: base.Coupling = specjax.couplings.Maximal()

  def __call__(self, key, tree, target_probs):
    walk = specjax.verifiers.TreeWalk(self.coupling)
    tree = tree._replace(valid=tree.valid & self.keep)
    return walk(key, tree, target_probs)


_NEW = {
  'drafter': (specjax.DRAFTERS, Repeat),
  'coupling': (specjax.COUPLINGS, Coupling),
  'goal': (specjax.GOALS, Goal),
  'bandit': (specjax.BANDITS, Bandit),
  'reward': (specjax.REWARDS, Reward),
  'verifier': (specjax.VERIFIERS, Verifier),
}
# What is decoded with one of them, in every form that a config may write, and
# whether much is kept of the drafts.
_LEARNER = 'epsilon_greedy(epsilon=0.0)'
_METHODS = {
  'drafts nothing': ('mine(silent=True):3', False),
  'coupling': ('small:2/mine', True),
  'goal': ('small:2~mine(share=1, other=mine(0.5))', True),
  'bandit': ({'bandit': 'mine(arm=1)'}, True),
  'reward of plain decoding': ({'bandit': _LEARNER, 'reward': 'mine'}, False),
  'reward of drafts': ({'bandit': _LEARNER, 'reward': 'mine(arm=1)'}, True),
  'verifier': ('small:2/mine(keep=False)', False),
}


@pytest.fixture(name='tables')
def _tables():
  """All are in their tables."""
  with contextlib.ExitStack() as stack:
    for table, component in _NEW.values():
      stack.enter_context(mock.patch.dict(table, mine=component))
    yield


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
      'methods': (),
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


# Arguments that have no default.
_OPTIONS = {'goal': {'share': 0.5}}


@pytest.mark.parametrize('kind', _NEW)
def test_these_are_components(kind):
  """They keep what all of their kind keep, but for the output's."""
  testing.CHECKS[kind](_NEW[kind][1], **_OPTIONS.get(kind, {}))


@pytest.mark.usefixtures('tables')
def test_components_in_their_tables_are_usable_from_a_config(folder, tmp_path):
  assert 'mine' in main.usage()
  entries = [
    ({'arm': method} if isinstance(method, str) else method) | {'label': label}
    for label, (method, _) in _METHODS.items()
  ]
  drafter_entry = {'arm': 'mine:3', 'label': 'drafter'}
  main.run(_config(folder, methods=(*entries, drafter_entry)), tmp_path)
  *rows, drafter_row = results.read(tmp_path)['rows']
  for row, (label, (_, keeps_drafts)) in zip(
    rows, _METHODS.items(), strict=True
  ):
    assert row['method'] == label
    assert (row['block_efficiency'] > 1.5) == keeps_drafts, label
  # Few of its drafts may be kept.
  assert rows[0]['rejection_rate'] is None
  assert drafter_row['rejection_rate'] >= 0


@pytest.mark.parametrize(
  ('method', 'sentence'),
  [
    (
      'mine(quiet=True):3',
      "Unknown option 'quiet' of mine. Known: ",
    ),
    ('small:2~mine', 'mine needs share, which is not set'),
    ('small:2~mine(0, other=m)', "other: Unknown goal 'm'. Known: "),
    ('small:2~mine(share=x)', "share must be of type float, got 'x'"),
    ('small:2/mine(keep=1)', 'keep must be of type bool, got 1'),
    ('small:2/mine(x=1)', "Unknown option 'x' of mine. Known: "),
  ],
)
@pytest.mark.usefixtures('tables')
def test_what_it_refuses_is_said_at_its_place(
  method, sentence, folder, tmp_path
):
  with pytest.raises(ValueError) as error:
    main.run(_config(folder, methods=('none', method)), tmp_path)
  message = str(error.value)
  assert message.startswith('methods[1]') and sentence in message


# The config of a user: a file that adds to the tables.
_FILE = """
from tests.experiments import extend_test


def get_config():
  for table, component in extend_test._NEW.values():
    table['mine'] = component
  return extend_test._config({folder!r}, methods=('none',))
"""


@pytest.mark.usefixtures('tables')
def test_components_are_usable_from_the_command_line(folder, tmp_path):
  file = tmp_path / 'mine.py'
  file.write_text(_FILE.format(folder=str(folder)))
  for table, _ in _NEW.values():
    del table['mine']
  methods = [
    *('none', 'mine:3', 'small:2/kseq', 'small:2x2/mine'),
    *('small:2~mine(share=1.0)', 'small:2/tree_walk(mine)'),
  ]

  def method_labels(*bandits):
    argv = [
      *('main.py', f'--config={file}', '--workdir=none'),
      *(f'--config.methods={tuple(methods)}', f'--config.bandits={bandits}'),
      '--config.reward=mine(arm=1)',
      "--config.arms=('none', 'small:2/mine(keep=True)')",
    ]
    values = absl.flags.FlagValues()
    main.parse_flags(argv, values)
    ((_, setup),) = main.prepare(values.config)
    return [method.label for method in setup.methods]

  assert method_labels('mine(arm=1)', 'ucb1') == [
    *methods,
    'mine(arm=1)',
    'ucb1',
  ]
  with pytest.raises(
    ValueError, match=r"bandits\[0\].bandit: .* 'leg' of mine"
  ):
    method_labels('mine(leg=1)')
