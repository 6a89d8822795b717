"""The benchmark's configs, made small."""

_ONE = {'arm': 'medium:2'}

# They take one prompt at a time.
_PEER = {'batch_size': 1, 'ways': ('none', 'medium:2')}

VARIANTS = {
  'benchmark/heads': ('',),
  'benchmark/refill': ('mini', 'smollm2', 'stops'),
  'benchmark/rounds': ('mini', 'smollm2', 'heads'),
  'benchmark/smollm2': (None, 'medium:2'),
}
CHANGES = {
  'benchmark/costs': {
    'arms': ('none', 'medium:2'),
    'sweep': {'batch_size': (2,)},
  },
  'benchmark/heads': {
    'family': '{family}/plain/heads',
    'ways': ('none', 'feature_head(eagle):2', 'medusa(medusa):2'),
  },
  'benchmark/peer': _PEER,
  'benchmark/refill': {
    'prompts': {'all': {}},
    'ways': ('none', {'bandit': 'goodput', 'label': 'goodput'}),
    'arms': ('none', 'medium:2', 'medium:4'),
    'padded': ('none',),
    'cost_rounds': 2,
    'cost_repeats': 1,
    'sweep': "{'batch_size': (2,)}",
    'repeats': 2,
  },
  'benchmark/rounds': _ONE
  | {'arms': ('medium:2', 'none'), 'sweep': {'batch_size': (2,)}},
  'benchmark/trees': {
    'family': '{family}/plain/heads',
    'ways': ('none', 'dynamic_tree(eagle, num_nodes=4, depth=2)'),
  },
  # Toys are no GGUF files.
  'benchmark/smollm2': {
    'batch_size': 1,
    'max_length': 64,
    'peers': ('transformers',),
    'ways': ('none', 'medium:2', 'prompt_lookup:2'),
    'arms': ('medium:2', 'prompt_lookup:2'),
    'bandits': (
      {'bandit': 'ucb1', 'reward': 'throughput', 'arms': ('none', 'medium:2')},
    ),
    'sweep': "{'sampling.temperature': (1.0,)}",
  },
  'benchmark/speed': {
    'ways': ('none', 'medium:2'),
    'sweep': "{'sampling.temperature': (0.0, 1.0)}",
  },
}
