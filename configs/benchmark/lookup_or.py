r"""Lookup where the match is long enough, and a head of SmolLM2 elsewhere.

python -m experiments.main \
    --config=configs/benchmark/lookup_or.py:DATA/spec_bench.jsonl \
    --config.data_dir=DATA --workdir=runs/lookup_or

Prompts are decoded one at a time, interleaved with plain decoding. `lookup_or`
looks up in a round whose match has at least `min_match` tokens (SAM-Decoding,
Hu et al. 2024); elsewhere, the head `eagle` drafts two tokens, or nothing is
drafted. `goodput` selects among these thresholds and plain decoding, by the
measured cost of their rounds and by how often their drafts are accepted.
`lin_ucb` selects in each round among plain decoding, a lookup and the head, by
the length of the match and the share of the last draft that was accepted.

On two cores of an AMD EPYC without AVX-512, at temperature 0 and on 48 prompts
of six domains, a lookup or the head is 1.30 ± 0.05 times as fast as plain
decoding, and from 1.12 (qa) to 1.78 (translation) by domain; on 16 first turns
of Spec-Bench, 1.14 ± 0.07, and 1.01 ± 0.09 on those of MT-Bench. A lookup or
nothing is 1.26 ± 0.04 times as fast, and nowhere slower; only lookups 1.16 ±
0.04, and only the head 0.96 ± 0.02 times. `goodput` reaches 1.21 ± 0.04,
`lin_ucb` 1.18 ± 0.04, and the oracle, which decodes each prompt with its
fastest arm, 1.34 ± 0.05; neither bandit beats the fixed threshold.
"""

import pathlib

import ml_collections

from configs.benchmark import smollm2

VARIANTS = ('',)  # The argument is a file.

_LOOKUP = 'prompt_lookup(max_ngram=6)'
_HEAD = 'feature_head(eagle):2'
# Arms by whether the head drafts where no match is long enough.
_WITH_HEAD, _ALONE = (
  tuple(f'lookup_or({_LOOKUP}, {other}min_match={num}):4' for num in (2, 4))
  for other in (f'{_HEAD!r}, ', '')
)


def get_config(file=''):
  """Returns the config.

  Args:
    file: a JSONL file with further prompts, or ''.
  """
  name = pathlib.Path(file).stem
  file_prompts = {name: {'source': file, 'limit': 16}} if file else {}
  return ml_collections.ConfigDict(
    {
      'experiment': 'arm_selection',
      'family': 'smollm2/heads',
      'data_dir': '',  # Its eval files; the shipped prompts by default.
      'prompts': {'eval': {'domains': smollm2.DOMAINS}, **file_prompts},
      'prompts_per_domain': 8,
      'by_domain': True,
      'arms': ('none', 'prompt_lookup:4', _HEAD, _WITH_HEAD[0], _ALONE[0]),
      'bandits': (
        {
          'bandit': 'goodput',
          'arms': ('none', _HEAD, *_WITH_HEAD, *_ALONE),
          'label': 'goodput',
        },
        {
          'bandit': 'lin_ucb(alpha=0.1)',
          'reward': 'throughput',
          'arms': ('none', 'prompt_lookup:4', _HEAD),
          'label': 'lin_ucb',
        },
      ),
      'cost_rounds': 16,  # Rounds that are timed together.
      'cost_repeats': 3,  # How often they are timed.
      'oracle': 'seconds',  # What it minimizes per token.
      'batch_size': 1,
      'repeats': 1,  # Timings, interleaved with plain decoding.
      'sampling': {'temperature': 0.0},
      'max_new_tokens': 64,
      'max_length': 512,
      'seed': 0,
      'columns': (
        'prompts',
        'domain',
        'method',
        'block_efficiency',
        'block_efficiency_error',
        'tokens_per_second',
        'speed_up',
        'speed_up_error',
        'pulls',
        'same_outputs',
      ),
    }
  )
