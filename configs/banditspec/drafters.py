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
every round, emits 3.85 ± 0.14.
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
    path.name.split('.')[0]: {'source': str(path), 'limit': 0}
    for path in paths
    if path not in stores
  }
  return ml_collections.ConfigDict(
    {
      'experiment': 'arm_selection',
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
        {'bandit': 'ucb_spec_released', 'reward': 'throughput'},
        'exp3_spec',
        'ucb1',
        'kl_ucb',
        'thompson',
        'epsilon_greedy',
        *_HEDGES,
      ),
      'reward': 'emitted',
      # For 'throughput': a workdir of configs/benchmark/costs.py with the same
      # family, batch_size and max_length.
      'costs': '',
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


def _tables(best):
  """Returns the paper's tables, where Eagle-2 corresponds to our arm `best`.

  The claims of the first table are the headline; a row shows the number of the
  last table that contains it.
  """
  # Vanilla is plain decoding.
  methods = {
    **{'vanilla': 'none', 'PLD': 'prompt_lookup:16', 'Rest': _RETRIEVAL},
    **{'suffix tree': 'suffix:4x8', 'Eagle-2': best},
    **{'EXP3Spec': 'exp3_spec', 'UCBSpec': 'ucb_spec'},
  }
  numbers = paper.read('banditspec/tables_1_3_4', method=methods)
  places = [
    (*place, group)
    for place, group in numbers.groupby(['table', 'prompts'], sort=False)
  ]
  return tuple(
    _table(best, *place, field, measured)
    for place, field, measured in (
      *((x, 'tokens_per_second', 'speed_up') for x in places),
      *((x, 'block_efficiency', 'block_efficiency') for x in places[::-1]),
    )
  )


def _table(best, source, theirs, numbers, field, measured):
  prompts, domain = _PROMPTS[theirs]
  ratios = [('ucb_spec', best)]
  if field == 'tokens_per_second' and source.startswith('Table 1'):
    ratios.append(('ucb_spec', 'exp3_spec'))
  return paper.table(
    f'BanditSpec, {source}, {theirs}, {field.replace("_", " ")}',
    field,
    numbers[['method', field]].assign(domain=domain),
    {'prompts': prompts},
    ratios,
    field,
    measured=measured,
  )
