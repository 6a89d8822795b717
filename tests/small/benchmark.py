"""The benchmark's configs, made small."""

_ONE = {'arm': 'medium:2'}

CHANGES = {
  'benchmark/costs': {
    'arms': ('none', 'medium:2'),
    'sweep': {'batch_size': (2,)},
  },
  'benchmark/peer': _ONE,
  'benchmark/rounds': _ONE
  | {'arms': ('medium:2', 'none'), 'sweep': {'batch_size': (2,)}},
  'benchmark/speed': {
    'ways': ('none', 'medium:2'),
    'sweep': "{'sampling.temperature': (0.0, 1.0)}",
  },
}
