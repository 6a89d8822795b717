r"""Which drafter, chosen by a bandit in the loop: BanditSpec's Table 1.

python -m experiments.main --config=configs/datastore.py \
    --config.data_dir=DATA --workdir=runs/datastore
python -m experiments.main --config=configs/banditspec/drafters.py \
    --config.data_dir=DATA --config.prompts_file=DATA/spec_bench.jsonl \
    --config.datastore=runs/datastore/datastore.safetensors \
    --workdir=runs/banditspec_drafters

Block efficiency and tokens per second, mean and standard error, in 13 minutes
on two cores:

                    eval, 240 prompts  t/s   Spec-Bench, 83   t/s
none                1.00               830   1.00         805
large 4             3.01 ± 0.08        834   3.06 ± 0.08  922
medium 4            2.56 ± 0.07        1162  2.62 ± 0.09  1208
prompt_lookup 16    2.38 ± 0.09        1022  2.93 ± 0.13  1186
suffix 4x8          2.49 ± 0.08        509   2.70 ± 0.09  583
ucb_spec            2.99 ± 0.09        628   3.24 ± 0.11  729
thompson            2.93 ± 0.08        603   3.21 ± 0.12  639
hedge               3.50 ± 0.10        447   3.66 ± 0.13  491
hedge:discount=0.8  3.64 ± 0.11        483   3.92 ± 0.14  540

Of 17 kinds of prompts, the last is at 0.98 or more of the best arm in 15, at
0.94 ± 0.03 in translation_ja-en (answers of 10 tokens) and at 0.93 ± 0.04 in
translation_fr-en.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'bandits',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 20,
      'sets': {},  # By label, fields as in experiments/prompt_sets.py; or all.
      'prompts_file': '',  # More prompts, with domains, such as Spec-Bench.
      'datastore': '',  # From configs/datastore.py, for retrieval.
      'arms': (  # Drafter, draft length, drafts; begin with the likely best.
        ('large', 4),
        ('medium', 4),
        ('prompt_lookup', 16),
        ('retrieval', 4, 4),
        ('suffix', 8, 4),
      ),
      'others': (),  # More such, alone and no choice of the bandits.
      'bandits': (  # With options and more, as in experiments/arms.py.
        'uniform',
        'ucb_spec',
        'exp3_spec',
        'ucb1',
        'kl_ucb',
        'thompson',
        'epsilon_greedy',
        'hedge',
        'hedge:discount=0.8',
      ),
      'reward': 'emitted',  # A name of REWARDS.
      'costs': '',  # Of 'throughput': a costs.json with these arms.
      'cost_rounds': 32,  # Or measured now, from so many rounds,
      'cost_repeats': 5,  # so often.
      'router': False,  # If arms are named after domains of data_dir.
      'router_prompts': 512,  # That it learns from, of each domain.
      'carry_over': False,  # The bandit's state, from prompt to prompt.
      'max_new_tokens': 128,
      'max_length': 512,
      'temperature': 0.0,
      'seed': 0,
    }
  )
