"""Methods, as configs write them, and the decoders that they stand for.

A method is an arm, as in `experiments.common.arms`, or a dictionary:

    {'arm': 'small:5~opt(0.2)', 'label': 'opt', 'columns': {'alpha': 0.2}}
    {'bandit': 'ucb1(beta=0.01)', 'reward': 'block_divergence'}
    {'arm': 'none', 'target': 'small'}              the small model alone
    {'arm': 'none', 'sampling': {'min_p': 0.1}}

A bandit chooses among `arms`, by default those of the config. What a method
does not say is as the config has it.
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

# What configs may have for all of their methods, and what holds otherwise.
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


class Method(NamedTuple):
  """A method, as it was written."""

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


class CompiledMethod(NamedTuple):
  """A method with its decoder."""

  method: Method
  decoder: decoding.Decoder
  bandit_state: Any  # of a new bandit

  @property
  def program(self) -> Any:
    """What its programs are compiled for: all of the round but its numbers."""
    return jax.tree.structure(self.decoder.round_fn), self.method.warm_start

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


def parse(config: Any, entry: Any, models: Sequence[str], place: str) -> Method:
  """Takes an arm or a dictionary of a method apart; see `arms.parse`."""
  fields = dict(entry.items()) if hasattr(entry, 'items') else {'arm': entry}
  if 'drafter' in fields and 'arm' not in fields:
    fields['arm'] = {n: fields.pop(n) for n in arms_lib.PARTS if n in fields}
  configs.check_known(
    fields, _FIELDS, f'{place}: Unknown field', ' of a method'
  )
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
  return Method(
    label, columns, arms, bandit, sampling=sampling, place=place, **said
  )


def entry(config: Any) -> dict[str, Any]:
  """Returns the one method of a config: its only arm, or a bandit over several.

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


def fixed(method: Method) -> Method:
  """Returns the method whose bandit state is the index of the fixed arm."""
  own = {name: _DEFAULTS[name] for name in _CHOOSING}
  return method._replace(bandit=_FIXED, **own)


def alone(method: Method) -> list[Method]:
  """Returns a method for each of a bandit's arms, which is that arm alone."""
  return [
    fixed(method)._replace(label=arms_lib.label(arm), arms=(arm,))
    for arm in method.arms
  ]


def parse_all(config: Any, models: Sequence[str]) -> list[Method]:
  """Returns the methods of `config.methods` and then of `config.bandits`.

  An entry of `bandits` is a bandit, or a method with one. Two methods that
  would be the same row of a table are refused.
  """
  is_method = lambda entry: hasattr(entry, 'items') and 'bandit' in entry
  bandits = [
    entry if is_method(entry) else {'bandit': entry}
    for entry in config.get('bandits', ())
  ]
  made = [
    parse(config, entry, models, f'{field}[{i}]')
    for field, entries in (
      ('methods', config.get('methods', ())),
      ('bandits', bandits),
    )
    for i, entry in enumerate(entries)
  ]
  if not made:
    raise ValueError('methods must hold at least one method, got none.')
  seen: dict[str, str] = {}
  for method in made:
    name = f'{method.label} {method.columns or ""}'.strip()
    if name in seen:
      raise ValueError(
        f'{method.place} must differ from {seen[name]} in its label or '
        'columns, '
        f'both are {name!r}.'
      )
    seen[name] = method.place
  return made


def build(
  method: Method,
  family: families.Family,
  max_length: int,
  costs: Callable[[Method], Mapping[str, Sequence[float]]] | None = None,
) -> CompiledMethod:
  """Builds the decoder of a method; nothing is compiled yet.

  A row has up to `max_length` tokens, prompt included. `costs` gives what the
  reward 'throughput' is computed with, by the names of its parameters, and is
  called if a reward or a bandit asks.
  """
  models = {'target': family.target, **family.drafters}
  pool = arms_lib.Pool(models, method.sampling)
  configs.check_known(
    [method.target], models, f'{method.place}: Unknown target'
  )
  target = models[method.target]
  arms = [arms_lib.build(arm, pool, method.place) for arm in method.arms]
  told = functools.cache(lambda: costs(method) if costs else {})
  given = {
    'num_arms': lambda value: len(arms),
    'kinds': lambda value: value or timing.level_kinds(arms),
    **_of_costs(method.bandit, told),
  }
  place = f'{method.place}.bandit'
  bandit = components.build(base.Bandit, method.bandit, place, given)
  reward = {}
  if method.bandit != _FIXED:
    place, given = f'{method.place}.reward', _of_costs(method.reward, told)
    reward['reward'] = components.build(
      base.Reward, method.reward, place, given
    )
  decoder = decoding.Decoder(
    target.model,
    target.params,
    arms,
    bandit=bandit,
    sampling=method.sampling,
    stop_tokens=family.tokenizer.stop_tokens,
    max_length=max_length,
    per_row=method.per_row,
    feedback=method.feedback,
    warm_start=method.warm_start,
    **reward,
  )
  return CompiledMethod(method, decoder, bandit.init())


def _of_costs(spec, told):
  """What is told of costs; nothing, if the component has its own."""
  names = 'costs', 'depths', 'catch_up_costs', 'prefill_costs'
  if set(names) & set(dict(spec.options)):
    return {name: lambda value: value for name in names}
  return {name: lambda value, name=name: told().get(name) for name in names}


def build_entry(
  family: families.Family,
  entry: Any,
  *,
  sampling: Mapping[str, Any] = types.MappingProxyType({}),
  max_length: int = 256,
) -> CompiledMethod:
  """Builds one method without a config, as notebooks do.

  `entry` is an arm or a dictionary of a method, `sampling` has fields of
  `Sampling`, and `max_length` is of the longest row, prompt included.
  """
  config = ml_collections.ConfigDict({'sampling': dict(sampling)})
  method = parse(config, entry, list(family.drafters), 'the method')
  return build(method, family, max_length)


def decoder(
  family: families.Family, entry: Any, **options: Any
) -> decoding.Decoder:
  """Returns the decoder of `build_entry`."""
  return build_entry(family, entry, **options).decoder


def _sampling(shared, own, place):
  """How the tokens of a method are drawn."""
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
