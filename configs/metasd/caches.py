r"""When a drafter reads what others committed: MetaSD's Table 13.

python -m experiments.main --config=configs/metasd/caches.py \
    --config.data_dir=DATA --workdir=runs/metasd_caches

Lazily, all of it; after every round; or sinks and a window at most, as in
StreamingLLM. `num_catch_up_tokens` counts the tokens that drafters read behind
others. All five domains, with --config.prompts_per_domain=12:

             block efficiency  num_catch_up_tokens  tokens/s (one core)
ucb1 lazy    3.22 ± 0.20       975                  808
ucb1 always  3.22 ± 0.20       12251                592
ucb1 window  3.22 ± 0.20       975                  893
uniform lazy, always, window: 2.22 ± 0.13; 8796, 12356 and 8792 tokens

Answers of this length hardly ever leave a window of 64 tokens.
"""

from configs.metasd import drafters


def get_config():
  config = drafters.get_config()
  config.others = ()
  config.bandits = tuple(
    f'{bandit}@{catch_up}'
    for bandit in ('ucb1:beta=0.01/block_divergence', 'uniform')
    for catch_up in ('lazy', 'always', 'window')
  )
  config.prompts_per_domain = 24
  return config
