"""The training loop: AdamW, a progress bar, metrics on disk, exact resume."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import json
import math
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from orbax import checkpoint as ocp
import tqdm

from specjax import base
from specjax import checks
from specjax import json_files
from specjax.data import lines
from specjax.data import packing
from specjax.models import checkpoint

# File with the metrics of each step, in the workdir.
METRICS = 'metrics.jsonl'
# File with the settings of the run, in the folder of the checkpoints.
_SETTINGS = 'settings.json'
# Number of changes that an error lists; another width changes all shapes.
_MAX_CHANGES = 6


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
  """Length and learning rate of a training run.

  Attributes:
    steps: number of optimizer steps.
    batch_size: rows per step.
    learning_rate: peak of the schedule: a linear warm-up, then a cosine down to
      a tenth.
    warmup_steps: number of steps until the peak.
    weight_decay: weight decay of matrices; vectors are not decayed.
    clip_norm: maximum global norm of a gradient.
    checkpoint_every: steps between checkpoints.
    seed: seed of the order of the rows, and of random numbers in a loss.
  """

  steps: int
  batch_size: int
  learning_rate: float
  warmup_steps: int = 100
  weight_decay: float = 0.1
  clip_norm: float = 1.0
  checkpoint_every: int = 100
  seed: int = 0

  def __post_init__(self) -> None:
    for name in ('steps', 'batch_size', 'checkpoint_every'):
      checks.check_integers(name, getattr(self, name), 1)
    for name in ('learning_rate', 'clip_norm'):
      if not getattr(self, name) > 0:
        raise ValueError(f'{name} must be > 0, got {getattr(self, name)}.')
    for name in ('weight_decay', 'seed'):
      if not getattr(self, name) >= 0:
        raise ValueError(f'{name} must be >= 0, got {getattr(self, name)}.')
    if not 0 <= self.warmup_steps < self.steps:
      raise ValueError(
        f'warmup_steps must lie in [0, steps), got {self.warmup_steps}.'
      )

  @classmethod
  def for_epochs(
    cls,
    num_rows: int,
    *,
    epochs: int,
    batch_size: int,
    warmup: float,
    **fields: Any,
  ) -> 'TrainingConfig':
    """Returns the config of whole passes over the rows.

    Args:
      num_rows: number of all rows.
      epochs: number of passes; rows that do not fill a batch are left out.
      batch_size: rows per step.
      warmup: share of the steps until the peak of the learning rate.
      **fields: the other fields.

    Raises:
      ValueError: See the class; or `epochs`, `batch_size` or `warmup` is out of
        range.
    """
    if type(epochs) is not int or epochs < 1:
      raise ValueError(f'epochs must be an integer >= 1, got {epochs}.')
    checks.check_integers('batch_size', batch_size, 1, num_rows)
    if not 0 <= warmup < 1:
      raise ValueError(f'warmup must lie in [0, 1), got {warmup}.')
    steps = epochs * (num_rows // batch_size)
    return cls(steps, batch_size, warmup_steps=int(warmup * steps), **fields)


def optimizer(config: TrainingConfig) -> optax.GradientTransformation:
  """Builds AdamW with clipping, warm-up and cosine decay."""
  schedule = optax.warmup_cosine_decay_schedule(
    0.0,
    config.learning_rate,
    config.warmup_steps,
    config.steps,
    end_value=0.1 * config.learning_rate,
  )
  return optax.chain(
    optax.clip_by_global_norm(config.clip_norm),
    optax.adamw(
      schedule,
      b2=0.98,
      weight_decay=config.weight_decay,
      mask=lambda params: jax.tree.map(lambda x: x.ndim > 1, params),
    ),
  )


def fit(
  loss_fn: Any,
  params: base.Params,
  frozen: base.Params,
  rows: packing.AnyBatch,
  config: TrainingConfig,
  workdir: str,
  seconds: float = math.inf,
) -> base.Params:
  """Trains until `config.steps`, from the last checkpoint if there is one.

  A run that is killed at any moment and repeated ends with the same parameters,
  and the same lines in `metrics.jsonl`, as an uninterrupted one: batches are a
  function of the step, and metrics past the last checkpoint are written again.

  The config, and the names and shapes of the parameters, are stored with the
  checkpoints and must not change when a run is resumed. This includes `steps`,
  because the learning rate of every step depends on it.

  Args:
    loss_fn: `(params, frozen, batch, key) -> (loss, metrics)`.
    params: initial parameters, float32.
    frozen: parameters that are not trained, or None.
    rows: all training rows.
    config: length and learning rate.
    workdir: folder of checkpoints and metrics.
    seconds: time after which training stops, but not before its first step. The
      same call resumes; learning rates do not depend on it.

  Returns:
    The trained parameters.

  Raises:
    ValueError: there are checkpoints with other settings, or the last one
      cannot be read.
  """
  transform = optimizer(config)
  # A copy, because the step donates its state.
  params = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)
  state = {'params': params, 'optimizer': transform.init(params)}
  # Both raise errors before files are written.
  packing.batch_at(rows, 0, config.batch_size, config.seed)
  settings = _settings(config, params)
  _check_settings(os.path.join(str(workdir), 'checkpoints'), settings)

  manager = _open(os.path.join(workdir, 'checkpoints'), settings)
  start = manager.latest_step() or 0
  if start:
    state = _restore(manager, start, state)
  step_fn = functools.partial(
    jax.jit(_make_step(loss_fn, transform, config.seed), donate_argnums=0),
    frozen=frozen,
  )
  metrics_path = os.path.join(workdir, METRICS)
  state = _train(
    step_fn, state, start, rows, config, manager, metrics_path, seconds
  )
  manager.close()
  return state['params']


def _train(
  step_fn: Callable[..., Any],
  state: base.Params,
  start: int,
  rows: packing.AnyBatch,
  config: TrainingConfig,
  manager: ocp.CheckpointManager,
  metrics_path: str,
  seconds: float,
) -> base.Params:
  """Trains until the last step or the end of the time.

  Args:
    step_fn: `(state, *, batch, step) -> (state, metrics)`.
    state: parameters and state of the optimizer.
    start: index of the first step.
    rows: See `fit`.
    config: See `fit`.
    manager: manager of the checkpoints.
    metrics_path: file of the metrics.
    seconds: See `fit`.

  Returns:
    The last state.
  """
  start_time = time.monotonic()
  lines.keep_while(metrics_path, lambda row: row['step'] <= start)
  with (
    open(metrics_path, 'a', encoding='utf-8', buffering=1) as file,
    tqdm.tqdm(
      total=config.steps,
      initial=start,
      unit='step',
      mininterval=1.0,
      disable=None,  # Where the output is no terminal.
    ) as bar,
  ):
    for step in range(start, config.steps):
      if step and time.monotonic() - start_time >= seconds:
        break
      step_time = time.perf_counter()
      batch = packing.batch_at(rows, step, config.batch_size, config.seed)
      state, metrics = step_fn(state, batch=batch, step=np.int32(step))
      metrics = {name: float(value) for name, value in metrics.items()}
      speed = packing.num_tokens(batch) / (time.perf_counter() - step_time)
      row = {'step': step + 1, **metrics, 'tokens_per_second': round(speed)}
      file.write(json.dumps(row) + '\n')
      bar.set_postfix(
        loss=f'{metrics["loss"]:.3f}', tok_s=f'{speed:.0f}', refresh=False
      )
      bar.update()
      is_out_of_time = time.monotonic() - start_time >= seconds
      is_last = is_out_of_time or step + 1 == config.steps
      if (step + 1) % config.checkpoint_every == 0 or is_last:
        manager.save(step + 1, args=ocp.args.StandardSave(state))
      if is_last:
        break
  return state


def _make_step(
  loss_fn: Any, transform: optax.GradientTransformation, seed: int
) -> Callable[..., Any]:
  """Returns `(state, frozen, batch, step) -> (state, metrics)`."""

  def take_step(
    state: base.Params, frozen: base.Params, batch: Any, step: jax.Array
  ) -> tuple[base.Params, dict[str, jax.Array]]:
    batch = jax.tree.map(jnp.asarray, batch)
    key = jax.random.fold_in(jax.random.key(seed), step)
    gradients, metrics = jax.grad(loss_fn, has_aux=True)(
      state['params'], frozen, batch, key
    )
    # Optax promotes types implicitly.
    with jax.numpy_dtype_promotion('standard'):
      updates, optimizer_state = transform.update(
        gradients, state['optimizer'], state['params']
      )
    metrics['gradient_norm'] = optax.tree.norm(gradients)
    params = optax.apply_updates(state['params'], updates)
    return {'params': params, 'optimizer': optimizer_state}, metrics

  return take_step


def _settings(config: TrainingConfig, params: base.Params) -> dict[str, Any]:
  """Returns the settings that must not change when training is resumed."""
  return {
    'training': dataclasses.asdict(config),
    'parameters': {
      name: list(leaf.shape)
      for name, leaf in checkpoint.flatten(params).items()
    },
  }


def _check_settings(folder: str, settings: dict[str, Any]) -> None:
  """Raises `ValueError` if a folder has checkpoints with other settings."""
  path = os.path.join(folder, _SETTINGS)
  if not os.path.exists(path):
    return
  old = json_files.load(path)
  changes = [
    change
    for part, new in settings.items()
    for change in _changes(old[part], new)
  ]
  if len(changes) > _MAX_CHANGES:
    num_more = len(changes) - _MAX_CHANGES
    changes = [*changes[:_MAX_CHANGES], f'and {num_more} more']
  if changes:
    raise ValueError(
      f'{folder} holds checkpoints with other settings: {"; ".join(changes)}. '
      'Use another workdir, or delete this folder.'
    )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
  """Yields a description of each field that differs."""
  reasons = {'steps': ' (all learning rates depend on it)'}
  for name in dict.fromkeys([*old, *new]):
    was, now = (fields.get(name, 'missing') for fields in (old, new))
    if was != now:
      yield f'{name} was {was} and is {now}{reasons.get(name, "")}'


def _open(folder: str, settings: dict[str, Any]) -> ocp.CheckpointManager:
  """Opens a folder of checkpoints, and writes the settings if it is new."""
  os.makedirs(folder, exist_ok=True)
  path = os.path.join(folder, _SETTINGS)
  if not os.path.exists(path):
    with open(f'{path}.part', 'w', encoding='utf-8') as file:
      json.dump(settings, file, indent=1)
    os.replace(f'{path}.part', path)  # An interruption leaves no partial file.
  return ocp.CheckpointManager(
    os.path.abspath(folder),
    options=ocp.CheckpointManagerOptions(
      max_to_keep=2, enable_async_checkpointing=False
    ),
  )


def _restore(
  manager: ocp.CheckpointManager, step: int, state: base.Params
) -> base.Params:
  """Reads a checkpoint with the shapes of `state`."""
  abstract = jax.eval_shape(lambda: state)
  try:
    return manager.restore(step, args=ocp.args.StandardRestore(abstract))
  except Exception as error:  # orbax and its storage raise many kinds.
    folder = os.path.join(manager.directory, str(step))
    raise ValueError(
      f'The checkpoint {folder} is truncated, corrupt or of another model; '
      f'without it, training resumes from the one before: {error}'
    ) from error
