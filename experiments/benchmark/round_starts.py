"""Measures how much harder drafts are at the beginnings of rounds.

A round begins after a token that the drafter has not predicted, or after the
last level of its tree. There, the first draft token is accepted less often than
at other tokens of the same texts.
"""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import runner
from specjax import checks
from specjax import metrics

# Fields of `RoundInfo` that are recorded for each round.
_FIELDS = 'num_emitted', 'num_accepted', 'rewards'
# The other arm's rewards are the acceptance of its first token.
_ALL_REWARDS = {
  'bandit': 'fixed',
  'feedback': 'full',
  'reward': 'accepted_fraction',
}


def prepare(config):
  """Returns two methods for each drafter, and the prompts.

  The first method is plain decoding, during which the drafter estimates how
  likely its first token would have been accepted at each token. The second one
  drafts `config.length` tokens in each round.
  """
  checks.check_range('length', config.length, 1)
  checks.check_range('num_seeds', config.num_seeds, 1, 1)
  entries = {}
  for i, drafter in enumerate(config.arms):
    arms = ('none', f'{drafter}:1'), (f'{drafter}:{config.length}', 'none')
    for kind, pair in zip(('plain', 'drafted'), arms):
      entry = {'arms': pair, 'label': drafter, **_ALL_REWARDS}
      entries[f'arms[{i}], {kind}'] = entry
  return compare.prepare_entries(config, entries)


def run(config, workdir):
  """Returns a row per drafter, prompt set and domain.

  `first_acceptance` is the acceptance of the first draft token of rounds, and
  `acceptance_everywhere` that of a draft of one token at every token of plain
  decoding's text. At temperature 0, both texts are the same. Then
  `acceptance_at_starts` and `acceptance_elsewhere` are of plain decoding, at
  the tokens with which rounds begin and at the others, and `same_decisions` is
  the share of rounds whose first token was accepted as plain decoding says.
  """
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup, fields=_FIELDS)
  num_sets, rows = len(setup.prompt_sets), []
  # Both methods of a drafter follow each other, each with all prompt sets.
  for first in range(0, len(decoded), 2 * num_sets):
    for plain, drafted in zip(
      decoded[first : first + num_sets],
      decoded[first + num_sets : first + 2 * num_sets],
    ):
      for domain in ['all', *plain.prompts.kinds]:
        records = [
          compare.select_domain(result.records, domain)
          for result in (plain, drafted)
        ]
        rows.append(
          {
            'prompts': plain.prompts.label,
            'domain': domain,
            'method': plain.method.label,
            **acceptance_row(
              *records, is_greedy=not config.sampling.temperature
            ),
          }
        )
  return rows


def acceptance_row(
  plain: Sequence[runner.Record],
  drafted: Sequence[runner.Record],
  is_greedy: bool,
) -> dict[str, Any]:
  """Returns the columns of the same prompts, decoded with both methods."""
  every = {record['job']: acceptance(record) for record in plain}
  row = compare.summary(drafted)
  row |= _mean('acceptance_everywhere', every.values())
  if not is_greedy:
    return row
  starts, others, same = [], [], []
  for record in drafted:
    text, at = every[record['job']], first_tokens(record)
    is_within = at < len(text)  # Texts may differ after a tie.
    at = at[is_within]
    is_accepted = np.array(record['num_accepted'])[is_within] > 0
    starts.append(text[at])
    others.append(np.delete(text, at))
    same.append((text[at] > 0.5) == is_accepted)
  row |= _mean('acceptance_at_starts', starts)
  row |= _mean('acceptance_elsewhere', others)
  return row | {'same_decisions': float(np.concatenate(same).mean())}


def _mean(name: str, values: Iterable[np.ndarray]) -> dict[str, float]:
  """Returns the mean of all values, one array per prompt, and its error."""
  arrays = list(values)
  mean, error = metrics.ratio([a.sum() for a in arrays], list(map(len, arrays)))
  return {name: mean, f'{name}_error': error}


def acceptance(record: runner.Record) -> np.ndarray:
  """Returns the acceptance at each token that plain decoding emitted."""
  return np.array(record['rewards'])[:, 1]


def first_tokens(record: runner.Record) -> np.ndarray:
  """Returns the indices of the tokens with which the rounds begin."""
  emitted = np.array(record['num_emitted'], int)
  return np.cumsum(emitted) - emitted
