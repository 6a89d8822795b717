"""Ways to decode, as configs write them, and the decoders that they stand for.

A way is an arm, as in `experiments.common.arms`, or a dictionary:

    {'arm': 'small:5~opt(0.2)', 'label': 'opt', 'columns': {'alpha': 0.2}}
    {'bandit': 'ucb1(beta=0.01)', 'reward': 'block_divergence'}
    {'arm': 'none', 'target': 'small'}              the small model alone
    {'arm': 'none', 'sampling': {'min_p': 0.1}}

A bandit chooses among `arms`, by default those of the config. What a way does
not say is as the config has it.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import types
from typing import Any
from typing import NamedTuple

import jax
import ml_collections

from experiments.common import arms as arms_lib
from experiments.common import components
from experiments.common import configs
from specjax import base
from specjax import decoding
from specjax import families
from specjax import sampling as sampling_lib
from specjax.decoding import timing

# What configs may have for all of their ways, and what holds otherwise.
_DEFAULTS = {
  'reward': 'emitted',
  'feedback': 'bandit',
  'warm_start': 0,
  'per_row': False,
  'target': 'target',
}
# Of these, what only matters where there is a choice.
_CHOOSING = ('feedback', 'warm_start', 'per_row')
_FIELDS = ('label', 'columns', 'arm', 'arms', 'bandit', 'sampling', *_DEFAULTS)
_SAMPLING = [each.name for each in dataclasses.fields(sampling_lib.Sampling)]
# A bandit's choice of a single arm.
_FIXED = components.Spec('fixed')


class Way(NamedTuple):
  """A way to decode, as it was written."""

  label: str
  columns: dict[str, Any]  # of its rows, beside the label
  arms: tuple[arms_lib.Arm, ...]
  bandit: components.Spec
  reward: components.Spec
  feedback: str
  warm_start: int
  per_row: bool
  target: str
  sampling: sampling_lib.Sampling
  place: str  # in the config, for errors

  @property
  def settings(self) -> dict[str, Any]:
    """All that its outputs depend on, as JSON."""
    settings = {
      'arms': [str(arm) for arm in self.arms],
      'bandit': str(self.bandit),
      'reward': str(self.reward),
      'target': self.target,
      **{name: getattr(self, name) for name in _CHOOSING},
      **dataclasses.asdict(self.sampling),
    }
    if len(self.arms) == 1:  # Nobody chooses.
      for name in ('bandit', 'reward', *_CHOOSING):
        del settings[name]
    return settings


class Player(NamedTuple):
  """A way with its decoder."""

  way: Way
  decoder: decoding.Decoder
  bandit_state: Any  # of a new bandit

  @property
  def program(self) -> Any:
    """What its programs are compiled for: all of the round but its numbers."""
    return jax.tree.structure(self.decoder.round_fn), self.way.warm_start

  def decode(self, state: decoding.DecodeState) -> decoding.DecodeState:
    """Plays to the end; the state is donated."""
    return decoding.decode(self.decoder.round_fn, self.decoder.params, state)

  def trace(
    self,
    state: decoding.DecodeState,
    num_rounds: int,
    record: Callable[[base.RoundInfo], Any],
  ) -> tuple[decoding.DecodeState, Any]:
    """Plays and records rounds, as `decoding.trace`; the state is donated."""
    decoder = self.decoder
    return decoding.trace(
      decoder.round_fn, decoder.params, state, num_rounds, record
    )


def parse(config: Any, entry: Any, models: Sequence[str], place: str) -> Way:
  """Takes an arm or a dictionary of a way apart; see `arms.parse`."""
  fields = dict(entry.items()) if hasattr(entry, 'items') else {'arm': entry}
  if 'drafter' in fields and 'arm' not in fields:
    fields['arm'] = {n: fields.pop(n) for n in arms_lib.PARTS if n in fields}
  configs.check_known(fields, _FIELDS, f'{place}: Unknown field', ' of a way')
  said = {
    name: fields.get(name, config.get(name, default))
    for name, default in _DEFAULTS.items()
  }
  said['reward'] = components.parse(said['reward'], f'{place}.reward')
  sampling = _sampling(config.sampling, fields.get('sampling', {}), place)
  if ('arm' in fields) == ('bandit' in fields):
    raise ValueError(f'{place} must have an arm or a bandit, got {entry!r}.')
  if 'arm' in fields:
    arms = (arms_lib.parse(fields['arm'], models, place),)
    bandit, label = _FIXED, arms_lib.label(arms[0])
  else:
    arms = tuple(
      arms_lib.parse(each, models, f'{place}.arms[{i}]')
      for i, each in enumerate(fields.get('arms', config.get('arms', ())))
    )
    if not arms:
      raise ValueError(
        f'{place}: a bandit needs arms, and the config has none.'
      )
    bandit = components.parse(fields['bandit'], f'{place}.bandit')
    components.find(base.Bandit, bandit, f'{place}.bandit')
    components.find(base.Reward, said['reward'], f'{place}.reward')
    label = _bandit_label(bandit, fields)
  columns = dict(fields.get('columns', {}))
  label = fields.get('label', label)
  return Way(
    label, columns, arms, bandit, sampling=sampling, place=place, **said
  )


def entry(config: Any) -> dict[str, Any]:
  """Returns the one way of a config: its only arm, or a bandit over several.

  Returns:
    What `parse` takes, by where it stands in the config.

  Raises:
    ValueError: there are several arms, but nobody who chooses.
  """
  if config.bandit:
    return {'config': {'bandit': config.bandit}}
  if len(config.arms) == 1:
    return {'config.arms[0]': config.arms[0]}
  raise ValueError(
    f"bandit must be one such as 'ucb1', which selects among the "
    f'{len(config.arms)} arms, got none.'
  )


def fixed(way: Way) -> Way:
  """Returns the way that plays always one of all arms, its bandit's state."""
  own = {name: _DEFAULTS[name] for name in _CHOOSING}
  return way._replace(bandit=_FIXED, **own)


def alone(way: Way) -> list[Way]:
  """Returns a way for each of a bandit's arms, which is that arm alone."""
  return [
    fixed(way)._replace(label=arms_lib.label(arm), arms=(arm,))
    for arm in way.arms
  ]


def parse_all(config: Any, models: Sequence[str]) -> list[Way]:
  """Returns the ways of `config.ways`, then a bandit for each `config.bandits`.

  An entry of `bandits` is a bandit, or a way with one. Two ways that would be
  the same row of a table are refused.
  """
  is_way = lambda entry: hasattr(entry, 'items') and 'bandit' in entry
  bandits = [
    entry if is_way(entry) else {'bandit': entry}
    for entry in config.get('bandits', ())
  ]
  made = [
    parse(config, entry, models, f'{field}[{i}]')
    for field, entries in (
      ('ways', config.get('ways', ())),
      ('bandits', bandits),
    )
    for i, entry in enumerate(entries)
  ]
  if not made:
    raise ValueError('ways must hold at least one way to decode, got none.')
  seen: dict[str, str] = {}
  for way in made:
    name = f'{way.label} {way.columns or ""}'.strip()
    if name in seen:
      raise ValueError(
        f'{way.place} must differ from {seen[name]} in its label or columns, '
        f'both are {name!r}.'
      )
    seen[name] = way.place
  return made


def build(
  way: Way,
  family: families.Family,
  max_length: int,
  costs: Callable[[Way], Mapping[str, Sequence[float]]] | None = None,
) -> Player:
  """Builds the decoder of a way; nothing is compiled yet.

  A row has up to `max_length` tokens, prompt included. `costs` gives what the
  reward 'throughput' is computed with, by the names of its parameters, and is
  called if a reward or a bandit asks.
  """
  models = {'target': family.target, **family.drafters}
  pool = arms_lib.Pool(models, way.sampling)
  configs.check_known([way.target], models, f'{way.place}: Unknown target')
  target = models[way.target]
  arms = [arms_lib.build(arm, pool, way.place) for arm in way.arms]
  told = functools.cache(lambda: costs(way) if costs else {})
  given = {
    'num_arms': lambda value: len(arms),
    'kinds': lambda value: value or timing.level_kinds(arms),
    **_of_costs(way.bandit, told),
  }
  place = f'{way.place}.bandit'
  bandit = components.build(base.Bandit, way.bandit, place, given)
  reward = {}
  if way.bandit != _FIXED:
    place, given = f'{way.place}.reward', _of_costs(way.reward, told)
    reward['reward'] = components.build(base.Reward, way.reward, place, given)
  decoder = decoding.Decoder(
    target.functions,
    target.params,
    arms,
    bandit=bandit,
    sampling=way.sampling,
    stop_tokens=family.tokenizer.stop_tokens,
    max_length=max_length,
    per_row=way.per_row,
    feedback=way.feedback,
    warm_start=way.warm_start,
    **reward,
  )
  return Player(way, decoder, bandit.init())


def _of_costs(spec, told):
  """What is told of costs; nothing, if the component has its own."""
  names = 'costs', 'depths', 'catch_up_costs', 'reading_costs'
  if set(names) & set(dict(spec.options)):
    return {name: lambda value: value for name in names}
  return {name: lambda value, name=name: told().get(name) for name in names}


def player(
  family: families.Family,
  entry: Any,
  *,
  sampling: Mapping[str, Any] = types.MappingProxyType({}),
  max_length: int = 256,
) -> Player:
  """Builds one way without a config, as notebooks do.

  `entry` is an arm or a dictionary of a way, `sampling` has fields of
  `Sampling`, and `max_length` is of the longest row, prompt included.
  """
  config = ml_collections.ConfigDict({'sampling': dict(sampling)})
  way = parse(config, entry, list(family.drafters), 'the way')
  return build(way, family, max_length)


def decoder(
  family: families.Family, entry: Any, **options: Any
) -> decoding.Decoder:
  """Returns the decoder of `player`."""
  return player(family, entry, **options).decoder


def _sampling(shared, own, place):
  """How the tokens of a way are drawn."""
  fields = dict(shared.items()) | dict(own.items())
  place = f'{place}.sampling'
  configs.check_known(fields, _SAMPLING, f'{place}: Unknown field')
  fields['top_k'] = fields.get('top_k') or None
  return sampling_lib.Sampling(**fields)


def _bandit_label(bandit, fields):
  """What tables call a bandit that has no label."""
  own = _DEFAULTS | fields
  reward = components.parse(own['reward'], 'reward')
  parts = [
    bandit,
    'reward' in fields and reward,
    own['feedback'] != 'bandit' and f'{own["feedback"]} feedback',
    own['warm_start'] and f'warm start {own["warm_start"]}',
    own['per_row'] and 'per row',
  ]
  return ', '.join(str(part) for part in parts if part)
