"""MetaSD's configs, made small."""

from tests import small

_ARMS = 'code:2', 'math:2'
_UCB = {'bandit': 'ucb1(beta=0.01)', 'label': 'ucb1, BD'}
_BATCHES = {'arms': _ARMS, 'ways': ('all:2',), 'bandits': (_UCB,)}
_DRAFTERS = _BATCHES | {'baseline': 'all:2'}

_ALL = 'mini', 'heads', 'smollm2'

VARIANTS = {
  'metasd/all': ('full', 'small'),
  'metasd/alignment': ('domains', 'languages', 'smollm2'),
  'metasd/sessions': ('mini', 'heads'),
  'metasd/answers': ('mini', 'smollm2'),
  'metasd/caches': ('mini', 'smollm2'),
  'metasd/drafters': ('mini', 'smollm2'),
  'metasd/specialist': ('all', 'code'),
  'metasd/specialists': ('', 'code'),
  'metasd/temperatures': _ALL,
  'metasd/two_tasks': ('domains', 'languages', 'smollm2'),
}
CHANGES = {
  'metasd/all': small.SUITE,
  'metasd/answers': _DRAFTERS | {'sweep': "{'max_new_tokens': (4, 8)}"},
  'metasd/alignment': {'arms': _ARMS, 'ways': _ARMS, 'bandits': (_UCB,)},
  'metasd/batches': _BATCHES | {'prompts_per_domain': 2},
  'metasd/caches': {
    'arms': _ARMS,
    'bandits': (
      _UCB | {'label': 'ucb1, lazy'},
      _UCB | {'arms': ('windowed(code):2',), 'label': 'ucb1, window'},
    ),
  },
  'metasd/draft_lengths': {
    'ways': tuple(
      {
        'arm': f'code:{length}',
        'columns': {'task': 'a', 'drafter': 'b', 'draft_length': length},
      }
      for length in (1, 2)
    )
  },
  'metasd/drafters': _DRAFTERS,
  'metasd/heads': {
    'family': '{family}/plain/heads',
    'arms': ('feature_head(code):2', 'feature_head(math):2'),
    'ways': ('feature_head(eagle):eagle', 'medusa(medusa):2'),
    'baseline': 'feature_head(eagle):eagle',
    'bandits': (_UCB,),
  },
  'metasd/languages': _DRAFTERS
  | {'arms': ('translation_ja-en:2', 'translation_de-en:2')},
  'metasd/memory': {
    'family': '{family}/plain/heads',
    'arms': ('feature_head(code):2', 'feature_head(math):2'),
    'bandits': ({'bandit': 'ucb1', 'label': 'ucb1 over five heads'},),
    'baseline': 'feature_head(code):2',
    'sweep': {'batch_size': (2,)},
  },
  'metasd/sessions': _DRAFTERS,
  'metasd/switching': {'bandits': ('petc', 'ucb1'), 'lengths': (20, 40)},
  'metasd/temperatures': _DRAFTERS,
  'metasd/two_tasks': _DRAFTERS
  | {'prompts': {'two tasks': {'domains': ('code', 'math'), 'turns': 2}}},
}
FILES = {
  'metasd/all': ('docs/results/theory.md',),
  'metasd/responses': ('responses.jsonl',),
}
NO_ROWS = {name: FILES[name] for name in ('metasd/all', 'metasd/responses')}
