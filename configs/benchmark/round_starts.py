r"""Acceptance of draft tokens where rounds begin, and at all tokens of a text.

python -m experiments.main --config=configs/benchmark/round_starts.py:smollm2 \
    --config.data_dir=DATA --workdir=runs/round_starts-smollm2
python -m experiments.main --config=configs/benchmark/round_starts.py:mini \
    --config.data_dir=DATA --workdir=runs/round_starts-mini

Every drafter predicts each token of the target's own text from the text before
it, as heads do in training. Rounds with chains of four tokens begin where the
last draft failed, so that their first tokens are accepted less often: those of
SmolLM2's EAGLE head 0.440 ± 0.018 of the time at temperature 0, and 0.489 ±
0.020 at all tokens of the same texts.
"""

from configs.benchmark import losses

VARIANTS = losses.VARIANTS

_ARMS = {
  'smollm2': ('feature_head(eagle)', 'feature_head(eagle3)', 'small'),
  'mini': ('feature_head(eagle)', 'medium', 'small'),
}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = losses.get_config(family)
  for name in ('paper', 'drafters', 'sources', 'methods'):
    del config[name]
  config.experiment = 'benchmark.round_starts'
  config.arms = _ARMS[family]
  config.length = losses.LENGTH
  config.columns = (
    losses.TEMPERATURE,
    'domain',
    'method',
    'first_acceptance',
    'acceptance_everywhere',
    'acceptance_at_starts',
    'acceptance_elsewhere',
    'same_decisions',
  )
  return config
