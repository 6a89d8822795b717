"""What training says of how acceptance grows."""

import json

import numpy as np
import pytest

from experiments.common import limits
from experiments.train import growth
from specjax.training import loop


def test_growth_tells_what_a_doubling_of_tokens_adds(tmp_path):
  """Of the first epoch alone, in windows that lie within an epoch."""
  steps = 250
  grown = 0.05 * np.log2(np.arange(steps) + 1)
  grown[100:] += 0.3  # What was read before is known by heart.
  grown[:10] = 0  # Where learning begins.
  with open(tmp_path / 'metrics.jsonl', 'w', encoding='utf-8') as file:
    for step, value in enumerate(grown):
      line = {'step': step + 1, 'acceptance_1': value, 'acceptance_2': 0.5}
      file.write(json.dumps(line) + '\n')
  training = loop.TrainingConfig(steps, batch_size=2, learning_rate=0.1)
  trained = growth.Trained(str(tmp_path), training)
  rows = growth.rows({'head': trained}, 200, 512)
  *windows, doubled = rows
  assert doubled['per_doubling'] == pytest.approx(0.05)
  assert windows[0]['tokens'] == 10 * 2 * 512
  assert windows[-1]['tokens'] == steps * 2 * 512
  # Whoever goes on has read the text before.
  on = trained._replace(previous=trained, is_new=False)
  further = growth.rows({'on': on}, 200, 512)
  assert len(further) == len(windows)
  assert further[-1]['tokens'] == 2 * steps * 2 * 512
  assert [row['epoch'] for row in windows] == [1] * 10 + [2] * 10 + [3] * 5
  assert windows[10]['acceptance_1'] > windows[9]['acceptance_1'] + 0.3
  assert all(row['acceptance_2'] == 0.5 for row in windows)
  assert list(growth.figures(rows)) == ['growth']


def test_models_share_the_time_of_a_process(tmp_path, monkeypatch):
  """One that has begun may go on at the deadline, if only to be written."""
  begun, new = tmp_path / 'begun', tmp_path / 'new'
  begun.mkdir()
  (begun / 'metrics.jsonl').write_text('{"step": 1, "acceptance": 0.5}\n')
  assert growth.seconds(str(new), 3) == float('inf')
  monkeypatch.setattr(limits, 'remaining_seconds', lambda: 60.0)
  assert growth.seconds(str(new), 3) == 20
  monkeypatch.setattr(limits, 'remaining_seconds', lambda: -60.0)
  assert growth.seconds(str(new), 3) is None
  assert growth.seconds(str(begun), 3) < 0
  training = loop.TrainingConfig(2, 1, 0.1, warmup_steps=0)
  assert not growth.is_complete(growth.Trained(str(begun), training))
