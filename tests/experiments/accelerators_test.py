"""What compilers say of rounds, in tables."""

from experiments import accelerators


def _row(way, round_ms=None, device='h100'):
  row = {'device': device, 'way': way}
  return row if round_ms is None else row | {'round_ms': round_ms}


def test_speed_ups_are_of_bytes_and_block_efficiencies():
  rows = [_row('none', 10.0), _row('a:4', 12.5), _row('b:4', 20.0)]
  plain, a, b = accelerators._predicted(rows, {'none': 1.0, 'a:4': 2.5})
  assert plain['tokens_per_second'] == 100.0 and plain['speed_up'] == 1.0
  assert a['tokens_per_second'] == 200.0 and a['speed_up'] == 2.0
  assert 'speed_up' not in b  # Nobody has measured it.
  assert list(accelerators.figures(rows)) == ['speed_up']
  assert not accelerators.figures([b])


def test_rows_of_a_device_without_a_bandwidth_are_not_predicted():
  (row,) = accelerators._predicted([_row('none', device='cpu')], {'none': 1.0})
  assert 'tokens_per_second' not in row
