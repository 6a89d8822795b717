"""Of `configs/train/`, and of configs in no folder."""

_HEADS = 'eagle', 'eagle3', 'medusa'

VARIANTS = {
  'evaluate': (None, 'smollm2'),
  'train/responses': (None, 'short', 'long'),
}
CHANGES = {
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
  **{
    f'train/heads/{kind}': {
      'heads': {
        kind: {'kind': kind, 'options': {'head_size': 64}, 'recipe': {}}
      },
      'num_texts': {'all': 4},
    }
    for kind in _HEADS
  },
}
FILES = {
  **{f'train/heads/{kind}': (f'{kind}.safetensors',) for kind in _HEADS},
  'train/distill': ('cut.safetensors',),
  'train/datastore': ('datastore.safetensors',),
  'train/responses': ('responses.jsonl',),
  'train/tokenizer': ('tokenizer.json',),
}
NO_ROWS = {
  **{f'train/heads/{kind}': 'a head' for kind in _HEADS},
  'train/distill': 'a drafter',
  'train/responses': 'responses of a target',
  'train/tokenizer': 'a tokenizer',
}
