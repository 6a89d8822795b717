import dataclasses
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.data import packing
from specjax.training import loop
from specjax.training import losses
from tests import tiers

_CONFIG = loop.TrainingConfig(
  steps=240,
  batch_size=4,
  learning_rate=0.05,
  warmup_steps=10,
  checkpoint_every=40,
  seed=1,
)
_VOCAB = 7


def _rows():
  """A corpus in which each token tells the next."""
  successor = np.random.default_rng(0).permutation(_VOCAB)
  sequences = []
  for first in range(60):
    tokens = [first % _VOCAB]
    for _ in range(4 + first % 5):
      tokens.append(int(successor[tokens[-1]]))
    sequences.append((tokens, 1))
  return packing.pack(sequences, row_length=16, seed=0)


def _params():
  draw = np.random.default_rng(0)
  return {
    'embedding': jnp.asarray(draw.normal(size=(_VOCAB, 8)), jnp.float32),
    'head': jnp.asarray(draw.normal(size=(8, _VOCAB)), jnp.float32),
    'bias': jnp.zeros(_VOCAB),
  }


def _loss(params, frozen, batch, key):
  del frozen, key
  logits = params['embedding'][batch.tokens] @ params['head']
  logits += params['bias'][None, None]
  nats = losses.token_losses(logits, batch.tokens) * batch.weights
  loss = nats.sum() / batch.weights.sum()
  return loss, {'loss': loss}


def _fit(workdir, loss_fn=_loss, config=_CONFIG):
  params = loop.fit(loss_fn, _params(), None, _rows(), config, str(workdir))
  return jax.tree.map(np.asarray, params)


def _child(workdir, event, count):
  """Trains in a process of its own, which may kill itself.

  Args:
    workdir: where; the parameters are left in `params.npz`.
    event: an audit event under `workdir` (or 'batch', a step that begins)
      before which the process dies as by `kill -9`; 'full' forbids to write to
      files instead, as a full disk would.
    count: how many such events there are until then, that one included.
  """
  num_steps = 0

  def hook(name, args):
    nonlocal num_steps
    if name == event and (not args or str(args[0]).startswith(workdir)):
      num_steps += 1
      if num_steps == count:
        os.kill(os.getpid(), signal.SIGKILL)

  def batch_at(*args):
    sys.audit('batch')
    return original(*args)

  original, packing.batch_at = packing.batch_at, batch_at
  sys.addaudithook(hook)
  size = resource.RLIMIT_FSIZE
  _, most = resource.getrlimit(size)
  if event == 'full':
    resource.setrlimit(size, (0, most))
  params = _fit(workdir)
  resource.setrlimit(size, (most, most))
  np.savez(os.path.join(workdir, 'params.npz'), **params)


def _children(jobs):
  """Trains in processes that are copies of this one, one after the other.

  Nothing of JAX but its modules may be there, which take long to import.

  Args:
    jobs: folder, event and count of each, as `_child` takes them.

  Returns:
    Their exit codes.
  """
  codes = []
  for job in jobs:
    child = os.fork()
    if not child:
      try:
        _child(*job)
        os._exit(0)
      except BaseException:
        traceback.print_exc()
        os._exit(1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
  return codes


def _start(*jobs):
  """Starts a process for jobs of `_children`."""
  jobs = [(str(workdir), *moment) for workdir, *moment in jobs]
  return subprocess.Popen(
    [sys.executable, __file__, json.dumps(jobs)],
    env=os.environ
    | {'PYTHONPATH': os.pathsep.join(sys.path), 'TQDM_DISABLE': '1'},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )


def _end(process, *codes):
  """Waits for a process, whose children must end with the exit codes."""
  output, errors = process.communicate(timeout=240)
  assert json.loads(output) == [*codes], errors[-3000:]


def _metrics(workdir):
  """Returns the whole lines of the metrics, without the speed."""
  path = pathlib.Path(workdir, 'metrics.jsonl')
  text = path.read_text(encoding='utf-8') if path.exists() else ''
  rows = [json.loads(line) for line in text.split('\n')[:-1]]
  for row in rows:
    assert row.pop('tokens_per_second') >= 0
  return rows


def _checkpoints(workdir):
  folder = pathlib.Path(workdir, 'checkpoints')
  names = sorted(os.listdir(folder)) if folder.exists() else []
  return [name for name in names if name != 'settings.json']


def _check_survivors(workdir, reference):
  """What a killed run left is enough to go on as if nothing had happened."""
  steps = [int(name) for name in _checkpoints(workdir) if name.isdigit()]
  metrics = _metrics(workdir)
  assert len(metrics) >= max(steps, default=0)
  assert metrics == _metrics(reference)[: len(metrics)]


def _check_same(workdir, params, reference):
  """A run that has ended left what one that nobody interrupted left."""
  with np.load(reference / 'params.npz') as expected:
    assert set(params) == set(expected)
    for name, value in params.items():
      np.testing.assert_array_equal(value, expected[name])
  assert _metrics(workdir) == _metrics(reference)
  assert _checkpoints(workdir) == _checkpoints(reference)


_NEVER = 'never', 0
_LATE = 'batch', 211  # 10 steps past the last checkpoint, at 200.
_MOMENTS = [
  ('os.rename', 1),  # The settings are written, but not named.
  ('batch', 30),  # Before the first checkpoint.
  ('batch', 41),  # The first checkpoint has just been made.
  ('os.mkdir', 7),  # The second checkpoint has just been begun.
  ('os.rename', 5),  # It is whole, but does not have its name.
  ('os.rmdir', 1),  # The oldest is being deleted.
]


@pytest.fixture(scope='module', name='folders')
def _folders(tmp_path_factory):
  """The folders of runs, by the moment at which they were killed."""
  moments = [_NEVER, _LATE, *_MOMENTS]
  folders = {moment: tmp_path_factory.mktemp('run') for moment in moments}
  process = _start(*((folders[moment], *moment) for moment in moments))
  _end(process, 0, *[-signal.SIGKILL] * (len(moments) - 1))
  return folders


@pytest.fixture(scope='module', name='reference')
def _reference(folders):
  """The folder of a run that nothing interrupted."""
  return folders[_NEVER]


@pytest.fixture(scope='module', name='killed')
def _killed(folders):
  """The folder of a run that was killed late."""
  return folders[_LATE]


def test_the_loss_goes_down(reference):
  """From that of a guess to nearly none, as each token tells the next."""
  rows = _metrics(reference)
  assert [row['step'] for row in rows] == list(range(1, _CONFIG.steps + 1))
  assert all(row['gradient_norm'] > 0 for row in rows)
  first, last = rows[0]['loss'], np.mean([row['loss'] for row in rows[-10:]])
  assert first > np.log(_VOCAB)
  assert last < 0.02


@pytest.mark.parametrize(
  ('event', 'count'), tiers.cases(_MOMENTS, ('batch', 41), ('os.rename', 5))
)
def test_a_run_killed_at_a_moment_ends_as_if_it_had_not_been(
  tmp_path, folders, reference, event, count
):
  workdir = shutil.copytree(folders[event, count], tmp_path / 'run')
  begun = [name for name in _checkpoints(workdir) if not name.isdigit()]
  assert bool(begun) == (event in ('os.mkdir', 'os.rename'))
  _check_survivors(workdir, reference)
  _check_same(workdir, _fit(workdir), reference)


@pytest.mark.slow
def test_a_run_killed_whenever_its_metrics_grow_ends_as_if_it_had_not_been(
  tmp_path, reference
):
  """From outside, three times in one run, wherever that happens to hit it."""
  for lines in (1, 41, 81):
    process = _start((tmp_path, *_NEVER))
    while len(_metrics(tmp_path)) < lines and process.poll() is None:
      time.sleep(1e-3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    _check_survivors(tmp_path, reference)
  _check_same(tmp_path, _fit(tmp_path), reference)


@pytest.mark.parametrize(
  'tail',
  [
    '{"step": 201, "lo',
    '{"step": 201, "loss": 9.0}\n{"step": 202, "loss": 9.0}\n{',
    '{"step": 201}',
  ],
)
def test_metrics_past_the_checkpoint_are_written_again(
  tmp_path, killed, reference, tail
):
  """Whole lines, a torn one, and one that lacks nothing but its end."""
  workdir = shutil.copytree(killed, tmp_path / 'run')
  with open(workdir / 'metrics.jsonl', encoding='utf-8') as file:
    lines = ''.join(line for line in file if json.loads(line)['step'] <= 200)
  (workdir / 'metrics.jsonl').write_text(lines + tail, encoding='utf-8')
  _check_same(workdir, _fit(workdir), reference)


def test_a_resumed_run_reports_the_steps_of_the_whole(
  tmp_path, killed, capsys, monkeypatch
):
  monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
  _fit(shutil.copytree(killed, tmp_path / 'run'))
  bar = capsys.readouterr().err
  assert ' 200/240 ' in bar and ' 240/240 ' in bar
  assert ' 0/240 ' not in bar


def test_a_finished_run_returns_its_parameters_without_training(
  tmp_path, reference
):
  def loss_fn(params, frozen, batch, key):
    raise AssertionError('The finished run was trained on.')

  workdir = shutil.copytree(reference, tmp_path / 'run')
  before = (workdir / 'metrics.jsonl').read_bytes()
  params = _fit(workdir, loss_fn)
  assert (workdir / 'metrics.jsonl').read_bytes() == before
  _check_same(workdir, params, reference)


def test_metrics_are_never_given_up_to_be_rewritten(tmp_path, reference):
  """A resumed run that cannot write, or dies as it starts, loses no line."""
  workdir = shutil.copytree(reference, tmp_path / 'run')
  (workdir / 'params.npz').unlink()
  process = _start((workdir, 'full', 0))
  _end(process, 0)
  assert _metrics(workdir) == _metrics(reference)
  with np.load(workdir / 'params.npz') as params:
    _check_same(workdir, dict(params), reference)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'learning_rate': 0.1}, 'learning_rate was 0.05 and is 0.1'),
    ({'steps': 100}, 'steps was 240 and is 100 (all learning rates'),
    (
      {'steps': 480, 'seed': 2},
      'steps was 240 and is 480 (all learning rates depend on it); seed was 1 '
      'and is 2',
    ),
  ],
)
def test_a_finished_run_is_not_taken_for_one_of_another_config(
  tmp_path, reference, changes, message
):
  workdir = shutil.copytree(reference, tmp_path / 'run')
  with pytest.raises(ValueError, match=re.escape(message)):
    _fit(workdir, config=dataclasses.replace(_CONFIG, **changes))
  with np.load(reference / 'params.npz') as params:
    _check_same(workdir, dict(params), reference)


def test_other_parameters_are_refused_in_one_sentence(
  tmp_path, reference, capfd, monkeypatch
):
  """Before orbax is asked, which prints all that it knows of every array."""
  wider = {
    'embedding': jnp.zeros((_VOCAB, 9)),
    'head': jnp.zeros((9, _VOCAB)),
    'scale': jnp.ones(9),
  }
  monkeypatch.setattr(sys.modules[__name__], '_params', lambda: wider)
  workdir = shutil.copytree(reference, tmp_path / 'run')
  with pytest.raises(ValueError, match='with other settings') as caught:
    _fit(workdir)
  message = str(caught.value)
  assert 'embedding was [7, 8] and is [7, 9]; head was [8, 7] and is' in message
  assert 'bias was [7] and is missing' in message
  assert 'scale was missing and is [9]' in message
  assert '\n' not in message and capfd.readouterr() == ('', '')


def test_of_many_other_parameters_some_are_named(tmp_path):
  config = loop.TrainingConfig(1, 1, 0.1, warmup_steps=0)
  loss_fn = lambda params, *_: (params['0'].sum(), {'loss': 0.0})

  def fit(size):
    params = {f'{i}': jnp.zeros(size) for i in range(20)}
    loop.fit(loss_fn, params, None, _rows(), config, str(tmp_path))

  fit(2)
  with pytest.raises(ValueError, match=r'is \[3\]; and 14 more\. Use'):
    fit(3)


def test_a_spoilt_checkpoint_is_named_and_can_be_done_without(
  tmp_path, reference
):
  """Without the last checkpoint the run goes on from the one before."""
  workdir = shutil.copytree(reference, tmp_path / 'run')
  last = workdir / 'checkpoints' / str(_CONFIG.steps)
  for path in last.rglob('*'):
    if path.is_file():
      path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
  with pytest.raises(ValueError, match=f'{last} is truncated, corrupt'):
    _fit(workdir)
  shutil.rmtree(last)
  _check_same(workdir, _fit(workdir), reference)


def test_the_caller_keeps_its_parameters(tmp_path):
  """The step donates its state, which must not be the caller's."""
  config = loop.TrainingConfig(1, 4, 0.1, warmup_steps=0)
  params = _params()
  loop.fit(_loss, params, None, _rows(), config, str(tmp_path))
  assert not any(x.is_deleted() for x in params.values())
  jax.tree.map(np.testing.assert_array_equal, params, _params())


def test_each_step_has_a_key_of_its_own(tmp_path):
  def loss_fn(params, frozen, batch, key):
    loss, metrics = _loss(params, frozen, batch, key)
    return loss, metrics | {'drawn': jax.random.uniform(key)}

  config = loop.TrainingConfig(6, 4, 0.05, warmup_steps=0)
  _fit(tmp_path, loss_fn, config)
  drawn = [row['drawn'] for row in _metrics(tmp_path)]
  assert len(set(drawn)) == 6


def test_frozen_parameters_reach_the_loss_and_stay(tmp_path):
  """The loss pulls towards them: a distillation in one number."""

  def loss_fn(params, frozen, batch, key):
    del batch, key
    loss = ((params['x'] - frozen['y']) ** 2).sum()
    return loss, {'loss': loss}

  config = loop.TrainingConfig(
    60, 4, 0.1, warmup_steps=0, weight_decay=0.0, checkpoint_every=60
  )
  frozen = {'y': jnp.array([1.0, -1.0])}
  params = loop.fit(
    loss_fn,
    {'x': np.zeros(2, np.float32)},
    frozen,
    _rows(),
    config,
    str(tmp_path),
  )
  np.testing.assert_allclose(params['x'], [1.0, -1.0], atol=0.05)
  np.testing.assert_array_equal(frozen['y'], [1.0, -1.0])


def test_more_rows_a_step_than_there_are_raise(tmp_path):
  config = loop.TrainingConfig(1, 1000, 0.1, warmup_steps=0)
  with pytest.raises(ValueError, match='batch_size .* got 1000'):
    _fit(tmp_path, config=config)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'name, value',
  [
    ('steps', 0),
    ('batch_size', 0),
    ('checkpoint_every', 0),
    ('warmup_steps', -1),
    ('warmup_steps', 10),
    ('learning_rate', 0.0),
    ('learning_rate', float('nan')),
    ('clip_norm', 0.0),
    ('weight_decay', -0.1),
    ('seed', -1),
  ],
)
def test_a_config_out_of_range_names_field_and_value(name, value):
  fields = dict(steps=10, batch_size=1, learning_rate=0.1, warmup_steps=0)
  with pytest.raises(ValueError, match=f'{name} .* got {value}'):
    loop.TrainingConfig(**fields | {name: value})


def test_epochs_are_whole_passes_over_the_rows():
  fields = {'epochs': 3, 'batch_size': 8, 'learning_rate': 0.1, 'warmup': 0.1}
  config = loop.TrainingConfig.for_epochs(39, **fields, seed=2)
  expected = loop.TrainingConfig(12, 8, 0.1, warmup_steps=1, seed=2)
  assert config == expected
  for name, value in (
    ('epochs', 0),
    ('epochs', 1.5),
    ('batch_size', 40),
    ('warmup', -0.1),
    ('warmup', 1),
  ):
    with pytest.raises(ValueError, match=f'{name} must .* got {value}'):
      loop.TrainingConfig.for_epochs(39, **fields | {name: value})


def _updates(config, params, gradients):
  """Yields what the optimizer adds to the parameters at each step."""
  transform = loop.optimizer(config)
  update = jax.jit(transform.update)
  state = transform.init(params)
  for gradient in gradients:
    with jax.numpy_dtype_promotion('standard'):  # Optax converts.
      added, state = update(gradient, state, params)
    yield jax.tree.map(np.asarray, added)


def test_the_learning_rate_warms_up_and_decays_to_a_tenth():
  """Adam's step is the learning rate where all gradients are equal."""
  config = loop.TrainingConfig(40, 1, 0.5, warmup_steps=10, weight_decay=0.0)
  ones = {'x': jnp.ones(3)}
  steps = [-u['x'][0] for u in _updates(config, ones, [ones] * 41)]
  np.testing.assert_allclose(steps[:11], np.linspace(0, 0.5, 11), atol=1e-5)
  assert (np.diff(steps[10:]) < 0).all()
  np.testing.assert_allclose(steps[40], 0.05, rtol=1e-4)


def test_matrices_decay_and_vectors_do_not():
  config = loop.TrainingConfig(9, 1, 0.5, warmup_steps=0, weight_decay=0.2)
  params = {'matrix': jnp.full((2, 2), 3.0), 'vector': jnp.full(2, 3.0)}
  zeros = jax.tree.map(jnp.zeros_like, params)
  (added,) = _updates(config, params, [zeros])
  np.testing.assert_allclose(added['matrix'], -0.5 * 0.2 * 3.0, rtol=1e-5)
  np.testing.assert_array_equal(added['vector'], 0)


def test_large_gradients_are_clipped():
  """After a gradient of the largest norm, a larger one does no more."""
  config = loop.TrainingConfig(9, 1, 0.5, warmup_steps=0, clip_norm=5.0)
  params = {'x': jnp.zeros(2)}
  gradient = {'x': jnp.array([3.0, 4.0])}
  large = {'x': 1e4 * gradient['x']}
  half = {'x': 0.5 * gradient['x']}
  first, clipped, halved = (
    list(_updates(config, params, [gradient, second]))[-1]['x']
    for second in (gradient, large, half)
  )
  np.testing.assert_allclose(clipped, first, rtol=1e-5)
  assert (np.abs(halved - first) > 1e-3).all()


def test_training_stops_in_time_and_goes_on(tmp_path):
  """It takes one step, then none, and in the end those of a run at once."""
  config = dataclasses.replace(_CONFIG, steps=50, checkpoint_every=20)
  rows, steps = _rows(), lambda: _steps(tmp_path / 'stopped')
  fit = lambda seconds: loop.fit(
    _loss, _params(), None, rows, config, str(tmp_path / 'stopped'), seconds
  )
  first = fit(0.0)
  assert steps() == 1
  jax.tree.map(np.testing.assert_array_equal, fit(0.0), first)
  assert steps() == 1
  last = fit(60.0)
  assert steps() == 50
  whole = _fit(tmp_path / 'whole', config=config)
  jax.tree.map(np.testing.assert_array_equal, last, whole)


def _steps(workdir):
  return len((workdir / 'metrics.jsonl').read_text('utf-8').splitlines())


if __name__ == '__main__':
  print(json.dumps(_children(json.loads(sys.argv[1]))))
