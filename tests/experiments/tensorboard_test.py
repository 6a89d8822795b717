"""Files of TensorBoard, read by the definition of their records."""

import json
import struct

import pytest
from tensorboardX.proto import event_pb2

from experiments import tensorboard


def _scalars(folder):
  """Returns the scalars of a folder's only file, by name and step."""
  (path,) = folder.glob('events.out.tfevents.*')
  data, scalars = path.read_bytes(), {}
  while data:
    # The length, its checksum, the event, and the checksum of the event.
    (length,) = struct.unpack('<Q', data[:8])
    event = event_pb2.Event.FromString(data[12 : 12 + length])
    data = data[16 + length :]
    for value in event.summary.value:
      scalars[value.tag, event.step] = value.simple_value
  return scalars


def _line(step, loss):
  return json.dumps({'step': step, 'loss': loss}) + '\n'


def test_scalars_are_the_metrics_of_all_models(tmp_path):
  """A second call replaces those of the first; a line may be half written."""
  for name in ('teacher', 'student'):
    (tmp_path / name).mkdir()
  student = tmp_path / 'student' / 'metrics.jsonl'
  (tmp_path / 'teacher' / 'metrics.jsonl').write_text(_line(1, 0.5))
  student.write_text(_line(1, 2.0) + _line(2, 1.5) + _line(3, 1.25)[:7])
  folders = tensorboard.write(str(tmp_path))
  assert [folder.parent.name for folder in folders] == ['student', 'teacher']
  assert _scalars(folders[0]) == {('loss', 1): 2.0, ('loss', 2): 1.5}
  assert _scalars(folders[1]) == {('loss', 1): 0.5}
  student.write_text(_line(1, 2.0) + _line(2, 1.5) + _line(3, 1.25))
  tensorboard.write(str(tmp_path))
  assert _scalars(folders[0])['loss', 3] == 1.25


@pytest.mark.parametrize('line', ['{"loss": 1.0}\n', 'spoilt\n'])
def test_a_spoilt_line_names_its_file(tmp_path, line):
  (tmp_path / 'metrics.jsonl').write_text(_line(1, 0.5) + line)
  with pytest.raises(ValueError, match='Cannot read .*metrics.jsonl: '):
    tensorboard.write(str(tmp_path))


def test_a_folder_without_metrics_raises(tmp_path):
  with pytest.raises(ValueError, match='must contain metrics.jsonl, got '):
    tensorboard.write(str(tmp_path))
