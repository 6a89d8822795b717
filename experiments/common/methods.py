"""Parses the methods of a config and builds their decoders.

A method specifies one decoder: a single arm, or a bandit over several arms. In
a config it is an arm, as in `experiments.common.arms`, or a dictionary:

    {'arm': 'small:5~opt(0.2)', 'label': 'opt', 'columns': {'alpha': 0.2}}
    {'bandit': 'ucb1(beta=0.01)', 'reward': 'block_divergence'}
    {'bandit': bandits.UCB1(num_arms=2, beta=0.01), 'arms': (...)}
    {'arm': 'none', 'target': 'small'}     plain decoding with the model `small`
    {'arm': 'none', 'sampling': {'min_p': 0.1}}

A bandit selects among `arms`, which default to the arms of the config. Fields
that a method leaves out default to the config's fields of the same names, as
far as they matter: with a single arm nothing is learnt, and a bandit that does
not learn from rewards has no warm start.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax

from experiments.common import arms as arms_lib
from experiments.common import calls
from experiments.common import components
from experiments.common import configs
from specjax import base
from specjax import decoding
from specjax import families
from specjax import sampling as sampling_lib
from specjax.decoding import timing

# Fields that a config may set for all of its methods, and their defaults.
_DEFAULTS = {
  'reward': 'emitted',
  'feedback': 'bandit',
  'warm_start': 0,
  'per_row': False,
  'target': 'target',
}
# Those that matter only if a bandit selects among several arms.
_BANDIT_FIELDS = ('feedback', 'warm_start', 'per_row')
_FIELDS = ('label', 'columns', 'arm', 'arms', 'bandit', 'sampling', *_DEFAULTS)
_SAMPLING = [f.name for f in dataclasses.fields(sampling_lib.Sampling)]
_WITHOUT_BANDIT = {name: _DEFAULTS[name] for name in _BANDIT_FIELDS}
# The bandit of a method with a single arm.
_FIXED = calls.Call('fixed')


class Method(NamedTuple):
  """A method, parsed but not built."""

  label: str
  columns: dict[str, Any]  # further columns of its rows
  arms: tuple[arms_lib.Arm, ...]
  bandit: calls.Call | base.Bandit
  reward: calls.Call | base.Reward
  feedback: str
  warm_start: int
  per_row: bool
  target: str
  sampling: sampling_lib.Sampling
  location: str  # in the config, for error messages

  @property
  def settings(self) -> dict[str, Any]:
    """Returns everything that its outputs depend on, as JSON."""
    settings = {
      'arms': [str(arm) for arm in self.arms],
      'bandit': str(self.bandit),
      'reward': str(self.reward),
      'target': self.target,
      **{name: getattr(self, name) for name in _BANDIT_FIELDS},
      **dataclasses.asdict(self.sampling),
    }
    if len(self.arms) == 1:  # There is nothing to select.
      for name in ('bandit', 'reward', *_BANDIT_FIELDS):
        del settings[name]
    return settings


class CompiledMethod(NamedTuple):
  """A method with its decoder, which compiles when it is first called."""

  method: Method
  decoder: decoding.Decoder
  bandit_state: Any  # the bandit's initial state

  @property
  def program(self) -> Any:
    """Returns the static part of the round, which determines the programs."""
    return jax.tree.structure(self.decoder.round_fn), self.method.warm_start

  def decode(self, state: decoding.DecodeState) -> decoding.DecodeState:
    """Decodes until all rows are done; the state is donated."""
    return decoding.decode(self.decoder.round_fn, self.decoder.params, state)

  def trace(
    self,
    state: decoding.DecodeState,
    num_rounds: int,
    record: Callable[[base.RoundInfo], Any],
  ) -> tuple[decoding.DecodeState, Any]:
    """Runs and records rounds with `decoding.trace`; the state is donated."""
    decoder = self.decoder
    return decoding.trace(
      decoder.round_fn, decoder.params, state, num_rounds, record
    )


def parse(
  config: Any, entry: Any, models: Sequence[str], location: str
) -> Method:
  """Parses an arm or the dictionary of a method; see `arms.parse`."""
  fields = dict(entry.items()) if hasattr(entry, 'items') else {'arm': entry}
  configs.check_known(
    fields, _FIELDS, f'{location}: Unknown field', ' of a method'
  )
  shared = {
    name: fields.get(name, config.get(name, default))
    for name, default in _DEFAULTS.items()
  }
  shared['reward'] = components.parse(
    base.Reward, shared['reward'], f'{location}.reward'
  )
  sampling = _sampling(config.sampling, fields.get('sampling', {}), location)
  if ('arm' in fields) == ('bandit' in fields):
    raise ValueError(f'{location} must have an arm or a bandit, got {entry!r}.')
  if 'arm' in fields:
    arms = (arms_lib.parse(fields['arm'], models, location),)
    bandit, label = _FIXED, arms_lib.label(arms[0])
    shared |= _WITHOUT_BANDIT
  else:
    arms = tuple(
      arms_lib.parse(arm, models, f'{location}.arms[{i}]')
      for i, arm in enumerate(fields.get('arms', config.get('arms', ())))
    )
    if not arms:
      raise ValueError(
        f'{location}: a bandit needs arms, and the config has none.'
      )
    bandit = components.parse(
      base.Bandit, fields['bandit'], f'{location}.bandit'
    )
    label = _bandit_label(bandit, fields, shared['reward'])
    kind = bandit
    if isinstance(bandit, calls.Call):
      kind = components.find(base.Bandit, bandit, f'{location}.bandit')
    if 'warm_start' not in fields and not kind.learns_from_rewards:
      shared['warm_start'] = _DEFAULTS['warm_start']
  columns = dict(fields.get('columns', {}))
  label = fields.get('label', label)
  return Method(
    label, columns, arms, bandit, sampling=sampling, location=location, **shared
  )


def entry(config: Any) -> dict[str, Any]:
  """Returns the single method of a config: an arm, or a bandit over several.

  Returns:
    The entry that `parse` takes, by its location in the config.

  Raises:
    ValueError: there are several arms but no bandit.
  """
  if config.bandit:
    return {'config': {'bandit': config.bandit}}
  if len(config.arms) == 1:
    return {'config.arms[0]': config.arms[0]}
  raise ValueError(
    f"bandit must be one such as 'ucb1', which selects among the "
    f'{len(config.arms)} arms, got none.'
  )


def fix_arm(method: Method) -> Method:
  """Returns the method whose bandit state is the index of the fixed arm."""
  return method._replace(bandit=_FIXED, **_WITHOUT_BANDIT)


def single_arms(method: Method) -> list[Method]:
  """Returns one method per arm of a bandit, without the bandit."""
  return [
    fix_arm(method)._replace(label=arms_lib.label(arm), arms=(arm,))
    for arm in method.arms
  ]


def parse_all(config: Any, models: Sequence[str]) -> list[Method]:
  """Returns the methods of `config.methods` and then of `config.bandits`.

  An entry of `bandits` is a bandit, or the dictionary of a method with one.

  Raises:
    ValueError: there is no method, or two methods have the same label and
      columns, so that a table could not tell them apart.
  """
  has_bandit = lambda entry: hasattr(entry, 'items') and 'bandit' in entry
  bandits = [
    entry if has_bandit(entry) else {'bandit': entry}
    for entry in config.get('bandits', ())
  ]
  methods = [
    parse(config, entry, models, f'{field}[{i}]')
    for field, entries in (
      ('methods', config.get('methods', ())),
      ('bandits', bandits),
    )
    for i, entry in enumerate(entries)
  ]
  if not methods:
    raise ValueError('methods must hold at least one method, got none.')
  seen: dict[str, str] = {}
  for method in methods:
    name = f'{method.label} {method.columns or ""}'.strip()
    if name in seen:
      raise ValueError(
        f'{method.location} must differ from {seen[name]} in its label or '
        'columns, '
        f'both are {name!r}.'
      )
    seen[name] = method.location
  return methods


def build(
  method: Method,
  family: families.Family,
  max_length: int,
  costs: Callable[[Method], Mapping[str, Sequence[float]]] | None = None,
) -> CompiledMethod:
  """Builds the decoder of a method; nothing is compiled yet.

  Args:
    method: from `parse`.
    family: the target and the drafters.
    max_length: tokens of the longest row, including its prompt.
    costs: from a method, returns the arguments of the reward `Throughput`, by
      name. It is called only if a reward or a bandit requires them.
  """
  models = {'target': family.target, **family.drafters}
  pool = arms_lib.Pool(models, method.sampling)
  configs.check_known(
    [method.target], models, f'{method.location}: Unknown target'
  )
  target = models[method.target]
  arms = [arms_lib.build(arm, pool, method.location) for arm in method.arms]
  cached_costs = functools.cache(lambda: costs(method) if costs else {})
  providers = {
    'num_arms': lambda value: len(arms),
    'kinds': lambda value: value or timing.level_kinds(arms),
    **_cost_providers(method.bandit, cached_costs),
    'depths': lambda value: (
      value or tuple(arm.drafter.topology.depth for arm, _ in arms)
    ),
  }
  location = f'{method.location}.bandit'
  bandit = components.build(base.Bandit, method.bandit, location, providers)
  reward = {}
  if method.bandit != _FIXED:
    location = f'{method.location}.reward'
    providers = _cost_providers(method.reward, cached_costs)
    reward['reward'] = components.build(
      base.Reward, method.reward, location, providers
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


def _cost_providers(
  component: calls.Call | base.Bandit | base.Reward,
  cached_costs: Callable[[], Mapping[str, Sequence[float]]],
) -> dict[str, Callable[[Any], Any]]:
  """Returns providers of measured costs, unless the component sets its own."""
  options = component.options if isinstance(component, calls.Call) else ()
  names = 'costs', 'depths', 'catch_up_costs', 'prefill_costs'
  if set(names) & set(dict(options)):
    return {name: lambda value: value for name in names}
  return {
    name: lambda value, name=name: cached_costs().get(name) for name in names
  }


def _sampling(
  shared: Any, overrides: Any, location: str
) -> sampling_lib.Sampling:
  """Returns how the tokens of a method are sampled."""
  fields = dict(shared.items()) | dict(overrides.items())
  location = f'{location}.sampling'
  configs.check_known(fields, _SAMPLING, f'{location}: Unknown field')
  fields['top_k'] = fields.get('top_k') or None
  return sampling_lib.Sampling(**fields)


def _bandit_label(
  bandit: calls.Call | base.Bandit,
  fields: Mapping[str, Any],
  reward: calls.Call | base.Reward,
) -> str:
  """Returns the label of a bandit whose entry has none."""
  settings = {**_DEFAULTS, **fields}
  parts = [
    bandit,
    'reward' in fields and reward,
    settings['feedback'] != 'bandit' and f'{settings["feedback"]} feedback',
    settings['warm_start'] and f'warm start {settings["warm_start"]}',
    settings['per_row'] and 'per row',
  ]
  return ', '.join(str(part) for part in parts if part)
