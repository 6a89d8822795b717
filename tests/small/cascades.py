"""The cascades' configs, made small."""

from tests import small

_TASKS = 'translation', 'summarization'
_SMOLLM2 = 'smollm2_summarization', 'smollm2_qa'
_ALONE = (
  {'arm': 'none', 'label': 'target'},
  {'arm': 'none', 'target': 'small', 'label': 'draft'},
)
_LINE = (
  {'arm': 'small:2/lossy(0.5)', 'label': 'lossy', 'columns': {'alpha': 0.5}},
  {'arm': 'small:2~opt(0.2)', 'label': 'opt', 'columns': {'alpha': 0.2}},
)
_FRONTIER = {
  'ways': (*_ALONE, {'arm': 'small:2', 'label': 'lossless'}, *_LINE),
  'prompts_per_domain': 4,
}

VARIANTS = {
  'cascades/all': ('full', 'small'),
  'cascades/calibrate': _TASKS,
  'cascades/decoder_only': (
    *(*_TASKS, 'qa', 'math', *_SMOLLM2, 'smollm2_math'),
  ),
  'cascades/draft_lengths': (*_TASKS, *_SMOLLM2),
  'cascades/frontier': (*_TASKS, *_SMOLLM2, 'heads_summarization'),
  'cascades/rule_bandit': _TASKS,
  'cascades/temperatures': (*_TASKS, *_SMOLLM2),
  'cascades/variants': ('bild', 'lossy', 'token', 'smollm2_token'),
}
CHANGES = {
  'cascades/all': small.SUITE,
  'cascades/calibrate': _FRONTIER | {'dev_prompts': 2},
  'cascades/decoder_only': _FRONTIER,
  'cascades/draft_lengths': _FRONTIER
  | {
    'ways': (
      *_ALONE,
      *({**way, 'columns': {'draft_length': 2}} for way in _LINE),
    )
  },
  'cascades/frontier': _FRONTIER,
  'cascades/rule_bandit': {
    'arms': ('small:2', 'small:1~opt(0.2)'),
    'bandits': ('ucb1',),
    'weights': (0.2,),
    'prompts_per_domain': 2,
  },
  'cascades/temperatures': _FRONTIER
  | {'sweep': "{'sampling.temperature': (0.0,)}"},
  'cascades/variants': _FRONTIER,
}
FILES = {
  'cascades/all': ('docs/results/theory.md',),
  'cascades/calibrate': ('choice.json', 'dev.png'),
}
NO_ROWS = {'cascades/all': FILES['cascades/all']}
