r"""Selecting drafters by bandits: BanditSpec's Tables 1, 3 and 4.

python -m experiments.main --config=configs/train/datastore.py \
    --config.data_dir=DATA --workdir=runs/datastore
STORE=runs/datastore/datastore.safetensors
python -m experiments.main \
    --config=configs/banditspec/drafters.py:$STORE,DATA/spec_bench.jsonl \
    --config.data_dir=DATA --workdir=runs/banditspec_drafters

Without files there is no retrieval, and without data the prompts are the
family's held-out prompts. The paper's numbers, for 8B models, are shown next to
ours; its best drafter, Eagle-2, corresponds to `large:4`. Ratios of tokens per
second come from timings that are interleaved with plain decoding.

UCBSpec emits 3.23 ± 0.11 tokens per target call on Spec-Bench, and the best
single arm 3.06 ± 0.08. Hedge with a discount, which learns from all arms in
every round, emits 3.86 ± 0.14.
"""

import pathlib

import ml_collections

from experiments.common import paper

_OTHERS = ('prompt_lookup:16', 'suffix:4x8')
_RETRIEVAL = 'retrieval:4x4'
_HEDGES = tuple(
  {'bandit': bandit, 'feedback': 'full', 'label': bandit}
  for bandit in ('hedge', 'hedge(discount=0.8)')
)
_COLUMNS = (
  'prompts',
  'domain',
  'method',
  'block_efficiency',
  'block_efficiency_error',
  'best_arm',
  'over_best',
  'over_best_error',
  'speed_up',
  'speed_up_error',
  'pulls',
  'paper',
  'paper_source',
)

VARIANTS = ('',)  # Arguments are files.


def get_config(files=''):
  """Returns the config.

  Args:
    files: paths joined by commas: a datastore for retrieval, and JSONL files,
      each of which becomes a prompt set.
  """
  return family_config('mini', ('large:4', 'medium:4'), files)


def family_config(family, models, files):
  """Returns the config for a family; the first model corresponds to Eagle-2."""
  paths = [pathlib.Path(file) for file in files.split(',') if file]
  stores = [path for path in paths if path.suffix == '.safetensors']
  prompt_sets = {
    path.name.split('.')[0]: {'from': str(path), 'limit': 0}
    for path in paths
    if path not in stores
  }
  return ml_collections.ConfigDict(
    {
      'experiment': 'banditspec.drafters',
      'family': family,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'eval': {'limit': 0}, **prompt_sets},
      'prompts_per_domain': 20,
      'by_domain': True,
      'arms': (  # The first arm is likely the best.
        *models,
        *_OTHERS,
        *(f"retrieval(params='{store}'):4x4" for store in stores),
      ),
      'methods': ('none',),  # Further methods that are no arms of bandits.
      'bandits': (
        'uniform',
        'ucb_spec',
        'exp3_spec',
        'ucb1',
        'kl_ucb',
        'thompson',
        'epsilon_greedy',
        *_HEDGES,
      ),
      'reward': 'emitted',
      'costs': '',  # For 'throughput': a workdir of configs/benchmark/costs.py.
      'carry_over': False,  # Whether bandits keep their state between prompts.
      'batch_size': 1,
      'repeats': 1,  # Timings, interleaved with plain decoding; or 0.
      'max_new_tokens': 128,
      'max_length': 512,
      'sampling': {'temperature': 0.0},
      'seed': 0,
      'paper': _tables(models[0]),
      'columns': _COLUMNS,
    }
  )


# Our prompt sets and domains, by the paper's.
_SPEC_BENCH, _ALPACA, _CODE_EDITOR = 'Spec-Bench', 'Alpaca', 'CodeEditorBench'
_PROMPTS = {
  _SPEC_BENCH: ('spec_bench', 'all'),
  _ALPACA: ('eval', 'instruct'),
  _CODE_EDITOR: ('eval', 'code'),
}
# Emitted tokens per target call, and tokens per second, for the last methods.
_NUMBERS = {
  ('Table 1, LLaMA3-8B', _SPEC_BENCH): (
    *((1.00, 35.73), (1.46, 43.96), (1.29, 40.67), (1.83, 55.10)),
    *((3.94, 98.15), (3.65, 102.10), (3.98, 105.72)),
  ),
  ('Table 1, LLaMA3-8B', _ALPACA): (
    *((1.00, 35.92), (1.53, 53.06), (1.48, 52.40), (1.71, 64.02)),
    *((4.04, 110.00), (4.23, 120.38), (4.35, 125.78)),
  ),
  ('Table 1, LLaMA3-8B', _CODE_EDITOR): (
    *((1.00, 36.32), (2.13, 82.61), (1.33, 51.32), (2.30, 90.21)),
    *((4.79, 128.76), (4.36, 137.29), (4.83, 138.27)),
  ),
  ('Table 1, Qwen2-7B', _SPEC_BENCH): (
    *((1.00, 38.71), (1.55, 52.44), (1.31, 46.42), (1.96, 68.42)),
    *((3.64, 97.82), (3.76, 107.36), (4.13, 112.33)),
  ),
  ('Table 1, Qwen2-7B', _ALPACA): (
    *((1.00, 39.32), (1.42, 58.41), (1.47, 59.01), (1.46, 62.60)),
    *((3.61, 104.43), (3.83, 113.90), (3.93, 114.20)),
  ),
  ('Table 1, Qwen2-7B', _CODE_EDITOR): (
    *((1.00, 39.30), (1.89, 64.56), (1.31, 53.79), (2.18, 85.75)),
    *((4.88, 138.58), (4.90, 160.41), (4.92, 161.35)),
  ),
  ('Table 3, LLaMA-2-13B', _SPEC_BENCH): (
    *((4.35, 91.94), (4.05, 95.52), (4.43, 97.16)),
  ),
  ('Table 3, LLaMA-2-13B', _ALPACA): (
    *((4.32, 96.59), (4.32, 99.64), (4.36, 102.29)),
  ),
  ('Table 3, LLaMA-2-13B', _CODE_EDITOR): (
    *((5.19, 107.57), (5.22, 115.65), (5.27, 113.97)),
  ),
  ('Table 4, LLaMA3-8B, RTX 4090', _SPEC_BENCH): (
    *((4.14, 97.01), (3.95, 102.24), (4.16, 107.38)),
  ),
  ('Table 4, Qwen2-7B, RTX 4090', _SPEC_BENCH): (
    *((3.65, 94.16), (3.96, 111.74), (4.17, 112.21)),
  ),
}


def _tables(best):
  """Returns the paper's tables, where Eagle-2 corresponds to our arm `best`.

  The claims of the first table are the headline; a row shows the number of the
  last table that contains it.
  """
  return (
    *(
      _table(
        best,
        *place,
        'tokens_per_second',
        tuple(speed for _, speed in numbers),
        measured='speed_up',
      )
      for place, numbers in _NUMBERS.items()
    ),
    *(
      _table(
        best, *place, 'block_efficiency', tuple(mean for mean, _ in numbers)
      )
      for place, numbers in reversed(_NUMBERS.items())
    ),
  )


def _table(best, source, theirs, field, numbers, **options):
  prompts, domain = _PROMPTS[theirs]
  ratios = [('ucb_spec', best)]
  if field == 'tokens_per_second' and source.startswith('Table 1'):
    ratios.append(('ucb_spec', 'exp3_spec'))
  # They correspond to Vanilla, PLD, Rest, Suffix Tree, Eagle-2, EXP3Spec and
  # UCBSpec.
  methods = (
    *('none', 'prompt_lookup:16', _RETRIEVAL, 'suffix:4x8'),
    *(best, 'exp3_spec', 'ucb_spec'),
  )
  return paper.grid(
    f'BanditSpec, {source}, {theirs}, {field.replace("_", " ")}',
    field,
    'domain',
    'method',
    methods[-len(numbers) :],
    {domain: numbers},
    {'prompts': prompts},
    ratios,
    **options,
  )
