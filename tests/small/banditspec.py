"""BanditSpec's configs, made small."""

from tests import small

_STORE = '{family}/store/datastore.safetensors'
_HEDGE = {'bandit': 'hedge', 'catch_up': 'always', 'label': 'hedge'}

VARIANTS = {
  'banditspec/all': ('full', 'small'),
  'banditspec/drafters': ('',),
  'banditspec/experts': ('mini', 'heads'),
  'banditspec/heads': ('',),
  'banditspec/lengths': ('mini', 'heads'),
  'banditspec/memory': ('',),
}
CHANGES = {
  'banditspec/all': small.SUITE,
  'banditspec/drafters': {
    'prompts': {'eval': {'domains': ('code',)}},
    'arms': ('medium:2', f"retrieval(params='{_STORE}'):2"),
    'bandits': ('ucb_spec', _HEDGE),
  },
  'banditspec/experts': {
    'prompts': {'eval': {'domains': ('code',)}},
    'arms': ('medium:2', 'small:2'),
    'ways': (),
    'bandits': (_HEDGE,),
  },
  'banditspec/heads': {
    'family': '{family}/plain/heads',
    'prompts': {'eval': {'domains': ('code',)}},
    'arms': ('dynamic_tree(eagle, num_nodes=4, depth=2)', 'prompt_lookup:2'),
    'bandits': ('ucb_spec',),
    'max_length': 64,
  },
  'banditspec/lengths': {
    'arms': ('none', 'medium:2'),
    'bandits': ('ucb_spec',),
    'sweep': {'batch_size': (2,)},
  },
  'banditspec/memory': {
    'arms': ('medium:2', 'prompt_lookup:2'),
    'bandits': ({'bandit': 'ucb_spec', 'label': 'ucb_spec, drafters'},),
    'baseline': 'medium:2',
    'sweep': {'batch_size': (2,)},
  },
  'banditspec/regret': {
    'bandits': ('ucb_spec', 'exp3_spec'),
    'lengths': (60,),
    'trace_rounds': 20,
  },
}
FILES = {'banditspec/all': ('docs/results/theory.md',)}
NO_ROWS = FILES
