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
from specjax import registry
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.data import datastore as datastore_lib

# When drafters that were not played read: before they are played again, all of
# it; after every round; before they are played again, at most a window.
CATCH_UPS = ('lazy', 'always', 'window')


class Spec(NamedTuple):
  """An arm as a config states it: two or three entries of a tuple."""

  # 'none', one of the family's or one that looks up; a tuple of names is the
  # ensemble of them, which all draft.
  drafter: str | tuple[str, ...]
  draft_length: int
  num_drafts: int = 1

  @property
  def name(self) -> str:
    """What tables and plots call the arm."""
    drafter = 'draft-all' if self.is_ensemble else self.drafter
    if not self.draft_length:
      return drafter
    times = f'{self.num_drafts}x' if self.num_drafts > 1 else ''
    return f'{drafter} {times}{self.draft_length}'

  @property
  def is_ensemble(self) -> bool:
    """Whether several drafters draft side by side."""
    return not isinstance(self.drafter, str)


class Choice(NamedTuple):
  """A bandit as a config states it, taken apart; see `parse`."""

  bandit: str  # a name of BANDITS
  options: dict[str, Any]
  reward: str  # a name of REWARDS; '' if the entry names none
  catch_up: str  # one of CATCH_UPS
  warm_start: int  # that it learns from before the first round


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
  catch_up: str = 'lazy',
) -> list[tuple[base.Arm, base.Params]]:
  """Builds arms with their drafters' parameters.

  Args:
    family: whose models the arms are for.
    entries: of `Spec` each; beside `family.drafters` there are 'none' (of
      length 0), 'prompt_lookup', 'retrieval' and 'suffix', and tuples of names.
    sampling: how tokens are drawn.
    datastore: file of the corpus; 'retrieval' needs one, 'suffix' does without.
    catch_up: one of `CATCH_UPS`.
  """
  store = datastore_lib.load(datastore) if datastore else None
  result = []
  for spec in specs(entries):
    drafter, params = _drafter(family, spec, sampling, store, catch_up)
    verifier = verifiers.default(sampling.temperature, spec.num_drafts)
    if spec.is_ensemble and sampling.temperature:
      verifier = 'ensemble'  # Siblings differ in distribution.
    result.append((base.Arm(drafter, verifiers.resolve(verifier)), params))
  return result


def parse(entry: str) -> Choice:
  """Takes a bandit's entry apart.

  It is 'name[:option=value,...][/reward][@catch_up][+warm_start]'; for
  'hedge', catch_up is 'always' by default.

  Raises:
    ValueError: it has another form, or a name is unknown.
  """
  rest, _, warm_start = entry.partition('+')
  rest, _, catch_up = rest.partition('@')
  rest, slash, reward = rest.partition('/')
  name, _, rest = rest.partition(':')
  pairs = [pair.split('=') for pair in rest.split(',') if rest]
  wrong = any(len(pair) != 2 for pair in pairs) or (slash and not reward)
  if wrong or not (warm_start or '0').isdigit():
    raise ValueError(
      "A bandit must be 'name[:option=value,...][/reward][@catch_up]"
      f"[+warm_start]', got {entry!r}."
    )
  registry.lookup(bandits.BANDITS, 'bandit', name)
  if reward:
    registry.lookup(rewards.REWARDS, 'reward', reward)
  catch_up = catch_up or ('always' if name == 'hedge' else 'lazy')
  if catch_up not in CATCH_UPS:
    raise ValueError(f'catch_up must be one of {CATCH_UPS}, got {catch_up!r}.')
  options = {key: ast.literal_eval(value) for key, value in pairs}
  return Choice(name, options, reward, catch_up, int(warm_start or 0))


def reward_name(config: Any, bandit: str) -> str:
  """Returns the name of what a bandit learns from, its own or the config's."""
  return parse(bandit).reward or config.reward


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
    arms: from `build`, with the `catch_up` of the bandit.
    bandit: a name of `BANDITS`, with what `parse` allows behind it, such as
      'hedge:discount=0.9'.
    sampling: how tokens are drawn.
    **options: of `decoding.Decoder`; a `reward` comes before that of `bandit`.
  """
  choice = parse(bandit)
  if choice.reward and 'reward' not in options:
    options['reward'] = rewards.REWARDS[choice.reward]()
  return decoding.Decoder(
    family.target.functions,
    family.target.params,
    arms,
    bandit=bandits.BANDITS[choice.bandit](len(arms), **choice.options),
    catch_up='always' if choice.catch_up == 'always' else 'lazy',
    warm_start=choice.warm_start,
    sampling=sampling,
    stop_tokens=[family.tokenizer.end_id],
    **options,
  )


def _drafter(family, spec, sampling, store, catch_up):
  table, (name, length, num) = drafters.DRAFTERS, spec
  if spec.is_ensemble:
    members = [Spec(each, length, num) for each in name]
    built = [
      _drafter(family, each, sampling, store, catch_up) for each in members
    ]
    each, params = zip(*built)
    return table['ensemble'](each), params
  if name == 'none':
    if length:
      raise ValueError(f'draft_length of none must be 0, got {length}.')
    return table['none'](), None
  if length < 1:
    raise ValueError(f'draft_length of {name} must be >= 1, got {length}.')
  if name in family.drafters:
    model = family.drafters[name]
    shape = trees.chains(num, length)
    kind = 'windowed' if catch_up == 'window' else 'autoregressive'
    return table[kind](model.functions, shape, sampling), model.params
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
