"""Arms by name: what drafter, draft length and number of drafts stand for."""

import ast
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from specjax import bandits
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import families
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.data import datastore as datastore_lib


class Spec(NamedTuple):
  """An arm as a config states it: two or three entries of a tuple."""

  drafter: str  # 'none', one of the family's or one that looks up
  draft_length: int
  num_drafts: int = 1

  @property
  def name(self) -> str:
    """What tables and plots call the arm."""
    if not self.draft_length:
      return self.drafter
    times = f'{self.num_drafts}x' if self.num_drafts > 1 else ''
    return f'{self.drafter} {times}{self.draft_length}'


def specs(entries: Iterable[Sequence[Any]]) -> list[Spec]:
  """Returns the arms of a config."""
  return [Spec(*entry) for entry in entries]


def lengths(drafter: str, draft_lengths: Iterable[int]) -> list[Spec]:
  """Returns an arm for each draft length of one drafter; 0 drafts nothing."""
  return [Spec(drafter if n else 'none', n) for n in draft_lengths]


def build(
  family: families.Family,
  entries: Iterable[Sequence[Any]],
  sampling: sampling_lib.Sampling,
  datastore: str = '',
) -> list[tuple[base.Arm, base.Params]]:
  """Builds arms with their drafters' parameters.

  Args:
    family: whose models the arms are for.
    entries: of `Spec` each; beside `family.drafters` there are 'none' (of
      length 0), 'prompt_lookup', 'retrieval' and 'suffix'.
    sampling: how tokens are drawn.
    datastore: file of the corpus; 'retrieval' needs one, 'suffix' does without.
  """
  store = datastore_lib.load(datastore) if datastore else None
  result = []
  for spec in specs(entries):
    drafter, params = _drafter(family, spec, sampling, store)
    verifier = verifiers.default(sampling.temperature, spec.num_drafts)
    result.append((base.Arm(drafter, verifiers.resolve(verifier)), params))
  return result


def decoder(
  family: families.Family,
  arms: Sequence[tuple[base.Arm, base.Params]],
  bandit: str,
  sampling: sampling_lib.Sampling,
  **options,
) -> decoding.Decoder:
  """Builds a decoder of several arms that stops at the family's end marker.

  Args:
    family: from `families.load`.
    arms: from `build`.
    bandit: a name of `BANDITS`, with options behind a colon, such as
      'hedge:discount=0.9'. For 'hedge', all drafters are kept current.
    sampling: how tokens are drawn.
    **options: of `decoding.Decoder`.
  """
  name, _, rest = bandit.partition(':')
  pairs = [pair.split('=') for pair in rest.split(',') if rest]
  if any(len(pair) != 2 for pair in pairs):
    raise ValueError(
      f"A bandit must be 'name' or 'name:option=value,...', got {bandit!r}."
    )
  bandit_options = {key: ast.literal_eval(value) for key, value in pairs}
  make_bandit = base.lookup(bandits.BANDITS, 'bandit', name)
  return decoding.Decoder(
    family.target.functions,
    family.target.params,
    arms,
    bandit=make_bandit(len(arms), **bandit_options),
    catch_up='always' if name == 'hedge' else 'lazy',
    sampling=sampling,
    stop_tokens=[family.tokenizer.end_id],
    **options,
  )


def _drafter(family, spec, sampling, store):
  table, (name, length, num) = drafters.DRAFTERS, spec
  if name == 'none':
    if length:
      raise ValueError(f'draft_length of none must be 0, got {length}.')
    return table['none'](), None
  if length < 1:
    raise ValueError(f'draft_length of {name} must be >= 1, got {length}.')
  if name in family.drafters:
    model = family.drafters[name]
    shape = trees.chains(num, length)
    drafter = table['autoregressive'](model.functions, shape, sampling)
    return drafter, model.params
  if name == 'prompt_lookup':
    return table['prompt_lookup'](length, num), None
  if name == 'suffix':
    return table['suffix'](length, num), store
  if name == 'retrieval':
    if store is None:
      raise ValueError('retrieval needs a datastore: see configs/datastore.py.')
    return table['retrieval'](trees.chains(num, length)), store
  known = [*family.drafters, 'none', 'prompt_lookup', 'retrieval', 'suffix']
  raise ValueError(f'Unknown drafter {name!r}. Known: {", ".join(known)}.')
