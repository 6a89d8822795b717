"""What a teacher computed once teaches as the teacher itself does."""

import functools
import shutil

import jax
import numpy as np
import pytest
from scipy import special

from specjax.data import packing
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.training import losses
from specjax.training import teacher

_CONFIG = config_lib.TransformerConfig(
  vocab_size=20,
  num_layers=2,
  d_model=16,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  d_ff=24,
)
_KEY = jax.random.key(0)
_MODEL = adapters.Transformer(_CONFIG)


@functools.cache
def _params(seed=0):
  params = flax_modules.init_params(jax.random.key(seed), _CONFIG)
  return jax.tree.map(
    lambda x: 12 * x if x.ndim > 1 else x, jax.device_get(params)
  )


def _rows(seed=0):
  draw = np.random.default_rng(seed)
  sequences = [(draw.integers(20, size=n).tolist(), 2) for n in range(4, 12)]
  return packing.pack(sequences, row_length=12, seed=0)


def _teach(folder, rows=None, **options):
  rows = _rows() if rows is None else rows
  return teacher.teach(_MODEL, _params(), rows, str(folder), **options)


def test_a_whole_draft_vocabulary_is_taught_as_by_the_teacher(tmp_path):
  rows, draft = _rows(), _params(1)
  direct = jax.jit(losses.distillation(*2 * [adapters.teacher_forced(_CONFIG)]))
  expected, metrics = direct(draft, _params(), rows, _KEY)
  narrow, params = cutting.narrow_head(_CONFIG, _params(), range(20))
  taught = losses.taught(
    lambda params, fixed, batch: adapters.packed_logits(_MODEL, params, batch),
    adapters.head_logits(narrow),
  )
  got, loss_metrics = jax.jit(taught)(
    draft, (None, params), _teach(tmp_path), _KEY
  )
  np.testing.assert_allclose(got, expected, rtol=2e-3)
  np.testing.assert_allclose(
    loss_metrics['acceptance'], metrics['acceptance'], rtol=2e-3
  )


def test_tokens_outside_of_the_draft_vocabulary_are_out_of_reach(tmp_path):
  tokens = np.arange(0, 20, 2)
  config, params = cutting.narrow_head(_CONFIG, _params(), tokens)
  head = adapters.head_logits(config)
  model = adapters.Transformer(config)

  def draft(params, fixed, batch):
    features = adapters.read_packed(model, params, batch).features[-1]
    return head(params, features)

  batch = _teach(tmp_path)
  loss_fn = jax.jit(losses.taught(draft, head))
  _, metrics = loss_fn(params, (None, params), batch, _KEY)
  logits = jax.jit(adapters.packed_logits, static_argnums=0)
  target = special.softmax(logits(_MODEL, _params(), _rows()), axis=-1)
  draft_probs = np.zeros_like(target)
  draft_probs[..., tokens] = target[..., tokens] / target[..., tokens].sum(
    -1, keepdims=True
  )
  overlap = (np.minimum(target, draft_probs).sum(-1) * batch.weights).sum()
  np.testing.assert_allclose(
    metrics['acceptance'], overlap / batch.weights.sum(), rtol=2e-3
  )


def test_an_interrupted_teacher_goes_on_where_it_stopped(tmp_path, monkeypatch):
  whole = _teach(tmp_path / 'whole', batch_size=1)
  read, calls = teacher._read, []

  def interrupted(stop, *args):
    calls.append(args)
    if len(calls) == stop:
      raise KeyboardInterrupt
    return read(*args)

  monkeypatch.setattr(teacher, '_read', functools.partial(interrupted, 3))
  with pytest.raises(KeyboardInterrupt):
    _teach(tmp_path / 'part', batch_size=1)
  resumed = _teach(tmp_path / 'part', batch_size=1)
  assert len(calls) == len(_rows().tokens) + 1
  for got, expected in zip(resumed, whole):
    np.testing.assert_array_equal(got, expected)


def test_a_teacher_stops_in_time_and_goes_on(tmp_path, monkeypatch):
  whole = _teach(tmp_path / 'whole', batch_size=1)
  read, times = teacher._read, []

  def slow(*args):
    times.append(10.0)
    return read(*args)

  monkeypatch.setattr(teacher, '_read', slow)
  monkeypatch.setattr(teacher.time, 'monotonic', lambda: sum(times))
  stopped = functools.partial(_teach, tmp_path / 'part', batch_size=1)
  assert stopped(seconds=-1.0) is None and not times
  assert stopped(seconds=15.0) is None and len(times) == 2
  resumed = stopped()
  assert len(times) == len(_rows().tokens)
  for got, expected in zip(resumed, whole):
    np.testing.assert_array_equal(got, expected)
  # All is done: no time is needed.
  assert stopped(seconds=-1.0) is not None


def test_a_folder_of_other_rows_or_of_another_teacher_is_refused(tmp_path):
  """Also if only the norm of the other teacher differs."""
  _teach(tmp_path)
  message = 'for other rows, of another teacher'
  with pytest.raises(ValueError, match=message):
    _teach(tmp_path, _rows(seed=1))
  scaled = jax.tree.map(lambda x: x * 1.5, _params()['final_norm'])
  params = _params() | {'final_norm': scaled}
  with pytest.raises(ValueError, match=message):
    teacher.teach(_MODEL, params, _rows(), str(tmp_path))


def test_what_float16_cannot_hold_is_refused(tmp_path):
  """Rather than taught as infinity."""
  large = jax.tree.map(lambda x: x * 1e6, _params()['final_norm'])
  params = _params() | {'final_norm': large}
  with pytest.raises(ValueError, match='must be finite and at most 65,504'):
    teacher.teach(_MODEL, params, _rows(), str(tmp_path))


def test_a_disk_that_is_too_small_is_refused_before_work(tmp_path, monkeypatch):
  """Rows of 12 tokens of 16 features take 40 bytes a token."""
  needed = _rows().tokens.size * 40
  usage = shutil.disk_usage(tmp_path)
  few = lambda free: lambda folder: usage._replace(free=free)
  monkeypatch.setattr(shutil, 'disk_usage', few(needed - 1))
  with pytest.raises(ValueError, match='teacher need 0.000 GB, but the disk'):
    _teach(tmp_path)
  assert not list(tmp_path.glob('*.npy'))
  monkeypatch.setattr(shutil, 'disk_usage', few(needed))
  _teach(tmp_path)


@pytest.mark.parametrize('num_done', [0, 256, 1024])
def test_what_is_on_disk_needs_no_room(num_done, tmp_path, monkeypatch):
  """But what a file lacks does: it has its whole size from the start."""
  kind, path = (np.float32, (1024, 1024)), str(tmp_path / 'features.npy')
  array = np.lib.format.open_memmap(path, 'w+', *kind)
  array[:num_done] = 1.0
  array.flush()
  usage, lacking = shutil.disk_usage(tmp_path), (1024 - num_done) * 4096
  leave = lambda free: monkeypatch.setattr(
    shutil, 'disk_usage', lambda folder: usage._replace(free=free)
  )
  leave(lacking + 65536)
  teacher._check_disk(tmp_path, {path: kind})
  leave(lacking - 65536)
  with pytest.raises(ValueError, match='but the disk of'):
    teacher._check_disk(tmp_path, {path: kind})


def test_a_disk_that_has_become_full_is_refused(tmp_path, monkeypatch):
  """A mapped file that the disk has no room for ends the process."""
  monkeypatch.setattr(teacher, '_BLOCK', 0)
  _teach(tmp_path)
  usage = shutil.disk_usage(tmp_path)._replace(free=0)
  monkeypatch.setattr(shutil, 'disk_usage', lambda folder: usage)
  with pytest.raises(ValueError, match='but the disk of'):
    _teach(tmp_path)
