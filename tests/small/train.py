"""Of `configs/train/`, and of configs in no folder."""

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
}
FILES = {
  'train/datastore': ('datastore.safetensors',),
  'train/responses': ('responses.jsonl',),
  'train/tokenizer': ('tokenizer.json',),
}
NO_ROWS = {
  'train/responses': 'responses of a target',
  'train/tokenizer': 'a tokenizer',
}
