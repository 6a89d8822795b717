"""Of `configs/train/`, and of configs in no folder."""

from specjax.testing import toys

_RECIPE = {
  'steps': 2,
  'feature_weight': 1.0,
  'token_weight': 0.1,
  'noise': 0.1,
}
_HEADS = {'eagle': _RECIPE, 'eagle3': _RECIPE, 'medusa': {}}
# Which heads each config trains.
_TRAINED = {'all': tuple(_HEADS), **{kind: (kind,) for kind in _HEADS}}

VARIANTS = {
  'accelerators': (None, 'models', 'heads', 'run'),
  'evaluate': (None, 'smollm2', 'mini/heads'),
  **{f'train/heads/{name}': ('smollm2', 'mini') for name in _TRAINED},
  'train/heads/specialist': ('code', 'math'),
  'train/responses': (None, 'short', 'long'),
}
CHANGES = {
  'accelerators': {
    'devices': ('cpu',),
    'targets': ('tiny',),
    'shapes': {'tiny': {'vocab_size': 64, **toys.TINY}},
    'batch_sizes': (2,),
    'drafters': {
      'others': {
        'draft': toys.TINY,
        'eagle': {'kind': 'eagle', 'head_size': 16},
      },
    },
    'ways': ('none', 'feature_head(eagle):2', 'draft:2x2/otm'),
    'max_length': 64,
    'plan': True,
    'acceptance': 0.7,
    'sampling': {'temperature': 1.0},
    'run': True,
    'rounds': 2,
    'repeats': 1,
    'measured': {'files': (), 'rows': ()},
  },
  'chat': {
    'family': '{family}/chat',
    'arms': ('small:2',),
    'turns': ('what is it?', '/new', 'count to two', 'and then?'),
  },
  'decode': {'prompt': 'what is it?'},
  'quickstart': {
    'ways': ('none', 'medium:2'),
    'shown_way': 'medium:2',
  },
  'evaluate': {'ways': ('small:2',)},
  'train/distill': {
    'drafters': {'cut': {'layers': (0,), 'head_size': 64}},
    'num_texts': {'all': 4},
  },
  'train/heads/specialist': {
    'heads': {
      'own': {
        'start': '{family}/plain/heads/eagle.safetensors',
        'recipe': _RECIPE,
      }
    },
    'num_texts': {'code': 2},
  },
  **{
    f'train/heads/{name}': {
      'heads': {
        f'{kind}_first': {
          'kind': kind,
          'options': {'head_size': 64},
          'recipe': _HEADS[kind],
        }
        for kind in kinds
      }
      | {
        kind: {'start': f'{kind}_first', 'recipe': _HEADS[kind]}
        for kind in kinds
      },
      'num_texts': {'all': 4},
    }
    for name, kinds in _TRAINED.items()
  },
}
FILES = {
  **{
    f'train/heads/{name}': tuple(f'{kind}.safetensors' for kind in kinds)
    for name, kinds in _TRAINED.items()
  },
  'train/heads/specialist': ('own.safetensors',),
  'train/distill': ('cut.safetensors',),
  'train/datastore': ('datastore.safetensors',),
  'train/responses': ('responses.jsonl',),
  'train/tokenizer': ('tokenizer.json',),
}
NO_ROWS = {
  'train/responses': 'responses of a target',
  'train/tokenizer': 'a tokenizer',
}
