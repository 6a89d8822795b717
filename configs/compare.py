r"""Compares any methods of any family on the shipped prompts.

python -m experiments.main --config=configs/compare.py --workdir=runs/compare \
    --config.methods="('none', 'medium:4', 'medium:8x4/kseq')"
python -m experiments.main --config=configs/compare.py \
    --workdir=runs/compare_heads --config.family=smollm2/heads \
    --config.methods="('none', 'feature_head(eagle):4')"
python -m experiments.main --config=configs/compare.py --workdir=runs/bandits \
    --config.arms="('medium:4', 'prompt_lookup:8')" \
    --config.bandits="('ucb_spec', 'exp3_spec')"

Your own components are imported by --config.imports="('mine',)", for a file
mine.py in this folder that adds them to the tables of specjax. --config.repeats
times each method, interleaved with plain decoding. Other prompts come from
--config.data_dir, or from a JSONL file by --config.prompts.all.source.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'compare',
      'family': 'mini',  # Or a folder of a family or of HuggingFace.
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {'source': ''}},
      'prompts_per_domain': 2,
      'by_domain': False,  # Whether each domain has a row.
      'methods': ('none', 'medium:4', 'prompt_lookup:4'),
      'arms': ('medium:4', 'small:2', 'prompt_lookup:4'),  # For the bandits.
      'bandits': (),
      'reward': 'emitted',  # The reward of the bandits.
      'feedback': 'bandit',  # Or 'full': the rewards of all arms.
      'warm_start': 0,  # Prompt tokens that bandits learn from.
      'per_row': False,  # Whether each row has its own bandit.
      'sampling': {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0, 'min_p': 0.0},
      'num_seeds': 1,
      'batch_size': 1,
      'repeats': 0,  # Timings, interleaved with plain decoding.
      'max_new_tokens': 64,
      'max_length': 256,
      'seed': 0,
      'columns': (
        'domain',
        'method',
        'block_efficiency',
        'predicted_efficiency',
        'speed_up',
      ),
    }
  )
