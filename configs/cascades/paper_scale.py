r"""Speculative cascades at the paper's scale: T5 v1.1 and Gemma 2.

python -m experiments.main --config=configs/cascades/paper_scale.py:t5_wmt \
    --workdir=runs/cascades_t5_wmt

Variants and lengths are those of Narasimhan et al. (2024), Section 6 and
Appendix E: `:t5_wmt`, `:t5_xsum` and `:t5_cnn_dm` with T5 small and large that
were fine-tuned on the task, temperature 1, 5 draft tokens, and timings on 500
examples with 3 repeats; `:gemma_wmt`, `:gemma_cnn_dm`, `:gemma_gsm8k`,
`:gemma_mbpp`, `:gemma_squad`, `:gemma_web_questions`,
`:gemma_natural_questions` and `:gemma_trivia_qa` with Gemma 2 2B and 27B, one
draft token, and 1,000 prompts without timings. An error lists the weights and
data that are missing. The paper's few-shot prompts are not printed; `template`
has an instruction. Programs of MBPP are not executed: they are compared with
the reference. Questions of SQuAD 2.0 that its passage does not answer have the
answer 'unanswerable'.
"""

from configs.cascades import frontier
from specjax import registry
from specjax.data import layouts

_HUB = 'https://huggingface.co'
_SUMMARIZE = 'summarize: {}'
# By data set: file, its source, metric, and tokens of prompts and answers.
_DATA = {
  'wmt': {
    'file': 'data/wmt14_en-de.jsonl',
    'source': f'{_HUB}/datasets/wmt/wmt14, de-en, with English first, as JSONL',
    'metric': 'bleu',
  },
  'xsum': {
    'file': 'data/xsum.jsonl',
    'source': f'{_HUB}/datasets/EdinburghNLP/xsum, as JSONL',
    'metric': 'rouge2',
  },
  'cnn_dm': {
    'file': 'data/cnn_dailymail.jsonl',
    'source': f'{_HUB}/datasets/abisee/cnn_dailymail, 3.0.0, as JSONL',
    'metric': 'rouge2',
  },
  'gsm8k': {
    'file': 'data/gsm8k.jsonl',
    'source': f'{_HUB}/datasets/openai/gsm8k, main, as JSONL',
    'metric': 'final_number',
  },
  'mbpp': {
    'file': 'data/mbpp.jsonl',
    'source': 'mbpp.jsonl of https://github.com/google-research',
    'metric': 'bleu',
  },
  'squad': {
    'file': 'data/squad_v2.jsonl',
    'source': f'{_HUB}/datasets/rajpurkar/squad_v2, as JSONL',
    'metric': 'exact_match',
  },
  'web_questions': {
    'file': 'data/web_questions.jsonl',
    'source': f'{_HUB}/datasets/stanfordnlp/web_questions, as JSONL',
    'metric': 'exact_match',
  },
  'natural_questions': {
    'file': 'data/nq_open.jsonl',
    'source': f'{_HUB}/datasets/google-research-datasets/nq_open, as JSONL',
    'metric': 'exact_match',
  },
  'trivia_qa': {
    'file': 'data/trivia_qa.jsonl',
    'source': f'{_HUB}/datasets/mandarjoshi/trivia_qa, rc.nocontext, as JSONL',
    'metric': 'exact_match',
  },
}
_T5 = 'a T5 v1.1 {} that was fine-tuned on the task, as a HuggingFace folder'
_GEMMA = f'{_HUB}/google/gemma-2-{{}}-it'
_ANSWER = 'Answer in a few words: {}'
_ANSWER_IF_POSSIBLE = (
  f'Answer in a few words, or "{layouts.UNANSWERABLE}": {{}}'
)
# By task: models, data set, template, tokens of prompts and of answers.
_TASKS = {
  't5_wmt': ('t5', 'translate English to German: {}', 80, 80),
  't5_xsum': ('t5', _SUMMARIZE, 1024, 64),
  't5_cnn_dm': ('t5', _SUMMARIZE, 2048, 128),
  'gemma_wmt': ('gemma', 'Translate from English to German: {}', 512, 80),
  'gemma_cnn_dm': ('gemma', 'Summarize in three sentences: {}', 2048, 128),
  'gemma_gsm8k': ('gemma', 'Solve step by step: {}', 1024, 320),
  'gemma_mbpp': ('gemma', 'Write a Python function. {}', 1024, 320),
  'gemma_squad': ('gemma', _ANSWER_IF_POSSIBLE, 1024, 5),
  'gemma_web_questions': ('gemma', _ANSWER, 128, 5),
  'gemma_natural_questions': ('gemma', _ANSWER, 128, 5),
  'gemma_trivia_qa': ('gemma', _ANSWER, 128, 5),
}

VARIANTS = tuple(_TASKS)
SMOKE = frontier.SMOKE | {'repeats': 0}


def get_config(task='t5_wmt'):
  """Returns the config of a task."""
  kind, template, prompt_tokens, answer_tokens = registry.lookup(
    _TASKS, 'task', task
  )
  name = task.removeprefix(f'{kind}_')
  data = _DATA[name]
  is_t5 = kind == 't5'
  sizes = ('large', 'small') if is_t5 else ('27b', '2b')
  folders = [
    f'weights/t5_{name}_{size}' if is_t5 else f'weights/gemma2_{size}'
    for size in sizes
  ]
  source = _T5 if is_t5 else _GEMMA
  fields = {
    'family': folders[0],
    'prompts': {
      name: {
        'source': data['file'],
        'template': template,
        'limit': 500 if is_t5 else 1000,
      }
    },
    'metric': data['metric'],
    'max_new_tokens': answer_tokens,
    'max_length': prompt_tokens + answer_tokens,
  }
  config = frontier.shared(task, {task: fields})
  config.drafters = {'small': folders[1]}
  config.sources = (
    *((folder, source.format(size)) for folder, size in zip(folders, sizes)),
    (data['file'], data['source']),
  )
  config.prompts_per_domain = 1000
  config.dtype = 'bfloat16'
  config.methods = (
    *frontier.plain(),
    *frontier.drafted(frontier.RULES, length=5 if is_t5 else 1),
  )
  config.repeats = 3 if is_t5 else 0
  config.batch_size = 1 if is_t5 else 8
  if not is_t5:
    config.columns = frontier.UNTIMED
  return config
