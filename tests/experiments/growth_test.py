"""What training says of how acceptance grows."""

import json

import numpy as np
import pytest

from experiments.common import limits
from experiments.train import growth
from specjax.training import loop


def test_growth_tells_what_a_doubling_of_tokens_adds(tmp_path):
  """Uses only the first epoch, and windows that lie within one epoch."""
  steps = 250
  acceptance = 0.05 * np.log2(np.arange(steps) + 1)
  acceptance[100:] += 0.3  # The texts of the first epoch are memorized.
  acceptance[:10] = 0  # Learning has just begun.
  with open(tmp_path / 'metrics.jsonl', 'w', encoding='utf-8') as file:
    for step, value in enumerate(acceptance):
      line = {'step': step + 1, 'acceptance_1': value, 'acceptance_2': 0.5}
      file.write(json.dumps(line) + '\n')
  training = loop.TrainingConfig(steps, batch_size=2, learning_rate=0.1)
  trained_run = growth.Trained(str(tmp_path), training)
  rows = growth.rows({'head': trained_run}, 200, 512)
  *windows, doubling_row = rows
  assert doubling_row['per_doubling'] == pytest.approx(0.05)
  assert windows[0]['tokens'] == 10 * 2 * 512
  assert windows[-1]['tokens'] == steps * 2 * 512
  # A continued run has seen the text before.
  continued_run = trained_run._replace(previous=trained_run, is_new=False)
  continued_rows = growth.rows({'on': continued_run}, 200, 512)
  assert len(continued_rows) == len(windows)
  assert continued_rows[-1]['tokens'] == 2 * steps * 2 * 512
  assert [row['epoch'] for row in windows] == [1] * 10 + [2] * 10 + [3] * 5
  assert windows[10]['acceptance_1'] > windows[9]['acceptance_1'] + 0.3
  assert all(row['acceptance_2'] == 0.5 for row in windows)
  assert list(growth.figures(rows)) == ['growth']


def test_models_share_the_time_of_a_process(tmp_path, monkeypatch):
  """Lets a run that has begun pass the deadline, if only to be written."""
  begun_dir, new_dir = tmp_path / 'begun', tmp_path / 'new'
  begun_dir.mkdir()
  (begun_dir / 'metrics.jsonl').write_text('{"step": 1, "acceptance": 0.5}\n')
  assert growth.seconds(str(new_dir), 1 / 3) == float('inf')
  monkeypatch.setattr(limits, 'remaining_seconds', lambda: 60.0)
  assert growth.seconds(str(new_dir), 1 / 3) == 20
  monkeypatch.setattr(limits, 'remaining_seconds', lambda: -60.0)
  assert growth.seconds(str(new_dir), 1 / 3) is None
  assert growth.seconds(str(begun_dir), 1 / 3) < 0
  training = loop.TrainingConfig(2, 1, 0.1, warmup_steps=0)
  assert not growth.is_complete(growth.Trained(str(begun_dir), training))
