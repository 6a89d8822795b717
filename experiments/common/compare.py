"""Every method on every set of prompts: runs of a config, records and rows."""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from experiments.common import costs as costs_lib
from experiments.common import methods as methods_lib
from experiments.common import paper
from experiments.common import prompts as prompts_lib
from experiments.common import runner
from experiments.common import workdirs
from specjax import checks
from specjax import families
from specjax import metrics

# Fields that another run in the same workdir may have changed: its runs say
# themselves what they are of.
MAY_CHANGE = ('arms', 'bandits', 'num_seeds', 'paper', 'prompts', 'methods')
# What methods are timed against.
REFERENCE = 'none'


class Decoded(NamedTuple):
  """One method on one set of prompts, with all seeds."""

  method: methods_lib.Method
  prompts: prompts_lib.PromptSet
  records: list[runner.Record]  # of each job, seed after seed
  greedy: bool = False  # as plain decoding is, with which it took turns


class Plan(NamedTuple):
  """What a config asks for."""

  family: families.Family
  methods: list[methods_lib.Method]
  prompt_sets: list[prompts_lib.PromptSet]


def plan(config: Any) -> Plan:
  """Reads the config; whatever is wrong is refused here."""
  # Names are checked before a model is loaded, which may take long.
  methods = methods_lib.parse_all(config, prompts_lib.drafter_names(config))
  family = prompts_lib.load_family(config)
  checks.check_range('num_seeds', config.get('num_seeds', 1), 1)
  checks.check_range('max_new_tokens', config.max_new_tokens, 1)
  planned = Plan(family, methods, prompts_lib.build(config, family))
  build_methods(planned, config.max_length)  # Errors come before decoding.
  return planned


def of_entries(config: Any, entries: Mapping[str, Any]) -> Plan:
  """Returns the methods of entries that a config spreads over its fields.

  Args:
    config: of the experiment; it need not have `prompts`.
    entries: what `methods.parse` takes, by where it stands in the config.
  """
  names = prompts_lib.drafter_names(config)
  methods = [
    methods_lib.parse(config, entry, names, place)
    for place, entry in entries.items()
  ]
  family = prompts_lib.load_family(config)
  prompt_sets = prompts_lib.build(config, family) if 'prompts' in config else []
  planned = Plan(family, methods, prompt_sets)
  build_methods(planned, config.max_length)
  return planned


def build_methods(
  planned: Plan, max_length: int
) -> list[methods_lib.CompiledMethod]:
  """Builds the decoder of each method; nothing is compiled.

  Rewards and bandits that depend on what rounds take are given costs of 1.
  """
  costs = functools.partial(_unknown_costs, planned.family, max_length)
  return [
    methods_lib.build(method, planned.family, max_length, costs)
    for method in planned.methods
  ]


def check_shapes(
  compiled_method: methods_lib.CompiledMethod, batch_size: int
) -> None:
  """Traces the prefill and one round of a decoder; nothing is compiled.

  Raises:
    TypeError: a round returns a state of other shapes than it was given, so
      that it cannot be repeated.
  """
  decoder = compiled_method.decoder
  state = decoder.trace_init(batch_size).out_info
  after, _ = jax.eval_shape(decoder.round_fn, decoder.params, state)
  shapes = [
    jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), each)
    for each in (state, after)
  ]
  if shapes[0] != shapes[1]:
    raise TypeError(f'A round turns {shapes[0]} into {shapes[1]}.')


def check_labels(made: Plan, *labels: str) -> None:
  """Refuses a plan without a method of each label."""
  for label in labels:
    if label not in [method.label for method in made.methods]:
      raise ValueError(f'methods must have one that is labelled {label!r}.')


def decode(
  config: Any, workdir: workdirs.Workdir, made: Plan, **options: Any
) -> list[Decoded]:
  """Decodes every method on every set; goes on where it stopped.

  `options` are those of `runner.Options`; with `config.repeats`, methods are
  timed in turns with plain decoding. With `in_time`, those that there was no
  time for are left out.
  """
  texts = [job.turns[0] for job in made.prompt_sets[0].jobs]
  costs = costs_lib.of(config, workdir, made.family, texts)
  num_seeds = config.get('num_seeds', 1)
  runs, decoded = [], []
  for method in made.methods:
    build_method = functools.partial(
      methods_lib.build, method, made.family, config.max_length, costs
    )
    build_method()  # Before any run, as this may read or measure costs.
    for prompts in made.prompt_sets:
      decoded.append(Decoded(method, prompts, [], _is_greedy(config, method)))
      runs += [
        runner.Run(
          run_settings(config, method, prompts),
          build_method,
          prompts.jobs,
          config.max_new_tokens,
          config.batch_size,
          config.seed + seed,
          carry_over=_carries_over(config, method),
        )
        for seed in range(num_seeds)
      ]
  options = clocks(config, made.family) | options
  found = runner.decode(workdir, runs, runner.Options(**options))
  for i, records in enumerate(found):
    decoded[i // num_seeds].records.extend(records)
  return [
    each
    for each in decoded
    if len(each.records) == num_seeds * len(each.prompts.jobs)
  ]


def _is_greedy(config, method):
  """Whether a method should say what plain decoding says beside it."""
  if method.sampling.temperature or not config.get('repeats', 0):
    return False
  plain = _reference(config)
  return (method.sampling, method.target) == (plain.sampling, plain.target)


def _reference(config):
  """Plain decoding, as the config's methods are sampled."""
  return methods_lib.parse(config, REFERENCE, (), 'reference')


def clocks(config: Any, family: families.Family) -> dict[str, Any]:
  """Returns options of `runner.Options`: methods are timed with `repeats`."""
  if not config.get('repeats', 0):
    return {}
  build_method = functools.partial(
    methods_lib.build, _reference(config), family, config.max_length
  )
  return {'repeats': config.repeats, 'reference': build_method}


def run_settings(
  config: Any, method: methods_lib.Method, prompts: prompts_lib.PromptSet
) -> dict[str, Any]:
  """Returns all that the records of a method on a set depend on."""
  names = 'batch_size', 'max_length', 'repeats'
  return {
    'method': method.settings,
    'prompts': prompts.settings,
    'carry_over': _carries_over(config, method),
    **{name: config.get(name, 0) for name in names},
  }


def rows(
  decoded: Sequence[Decoded], by_domain: bool = False
) -> list[dict[str, Any]]:
  """Returns a row for each method and set, and for each domain if asked for.

  Of methods that took turns with plain decoding, and are greedy as it is,
  `same_outputs` says how often all tokens are those of plain decoding.
  """
  table = []
  for method, prompts, records, greedy in decoded:
    for domain in ['all', *(prompts.kinds if by_domain else ())]:
      own = of_domain(records, domain)
      row = {'prompts': prompts.label, 'domain': domain, 'method': method.label}
      found = estimates(own)
      row |= method.columns | _summary(own, found) | {paper.PAIRED: found}
      if greedy:
        row['same_outputs'] = sum(not record['differ'] for record in own)
      table.append(row)
  return table


def of_domain(
  records: Sequence[runner.Record], domain: str
) -> list[runner.Record]:
  """Returns the records of a row's domain, which may be 'all'."""
  return [each for each in records if domain in ('all', each['label'])]


def summary(records: Sequence[runner.Record]) -> dict[str, Any]:
  """Returns what some records show; errors are over prompts, seeds pooled.

  `block_efficiency` is emitted tokens per target call, `predicted_efficiency`
  what it would be if all drafts were kept as often as the first of a round.
  Where there were clocks, `speed_up` is tokens a second over those of plain
  decoding of the same prompts, `latency` the loop's time over its time, and
  `total_latency` counts the reading of prompts, too.
  """
  return _summary(records, estimates(records))


def _summary(records, found):
  """What `summary` returns, of its estimates."""
  sums = functools.partial(by_prompt, records)
  efficiency = found['block_efficiency']
  row = {
    'decoded': len(records),
    'tokens': int(sums('emitted').sum()),
    'block_efficiency': efficiency.value,
    'block_efficiency_error': efficiency.error,
    'predicted_efficiency': predicted_efficiency(records),
    'num_catch_up_tokens': int(sums('num_catch_up_tokens').sum()),
    'rejection_rate': rejection_rate(records),
    'acceptance_by_depth': acceptance_by_depth(records),
  }
  if 'seconds' in records[0]:
    row |= _clocked(sums, found['speed_up'])
  return row


def estimates(records: Sequence[runner.Record]) -> dict[str, metrics.Estimate]:
  """Returns columns of `summary` with what each prompt adds to their errors."""
  sums = functools.partial(by_prompt, records)
  found = {
    'block_efficiency': metrics.estimate(sums('emitted'), sums('rounds'))
  }
  if 'seconds' in records[0]:
    own, plain = (
      metrics.estimate(sums(f'{of}emitted'), sums(f'{of}seconds'))
      for of in ('', 'reference_')
    )
    found['speed_up'] = own.over(plain)
  return found


def _clocked(sums, speed_up):
  """Speeds, over those of plain decoding of the same prompts."""
  own, other = sums('seconds'), sums('reference_seconds')
  rates = (sums('emitted'), own), (sums('reference_emitted'), other)
  latency, latency_error = metrics.ratio(own, other)
  total = own + sums('reading'), other + sums('reference_reading')
  return {
    'tokens_per_second': metrics.ratio(*rates[0])[0],
    'plain_tokens_per_second': metrics.ratio(*rates[1])[0],
    'speed_up': speed_up.value,
    'speed_up_error': speed_up.error,
    'latency': latency,
    'latency_error': latency_error,
    'total_latency': metrics.ratio(*total)[0],
  }


def by_prompt(records: Sequence[runner.Record], name: str) -> np.ndarray:
  """Returns `[P]` a number of each prompt, summed over its records.

  Prompts are in the order of their numbers, however they were batched.
  """
  sums: dict[int, float] = {}
  for record in records:
    sums[record['job']] = sums.get(record['job'], 0.0) + record[name]
  return np.array([sums[job] for job in sorted(sums)])


def predicted_efficiency(records: Sequence[runner.Record]) -> float | None:
  """Returns tokens a round that follow from how often a first draft is kept.

  As if each draft were kept with that one chance, whatever its text and depth:
  Leviathan et al. (2023), Equation (1), of the mean over the depths that were
  drafted. What is measured is more where texts differ from each other, and
  less where deep drafts are kept less often, or the last round is cut short.
  """
  accepted, drafted = (
    np.sum([record[name] for record in records], axis=0)
    for name in ('accepted', 'drafted')
  )
  if not drafted.size or not drafted[0]:
    return None
  rounds = sum(record['rounds'] for record in records)
  chances = (accepted[0] / drafted[0]) ** np.arange(1, len(drafted) + 1)
  return float(1 + drafted @ chances / rounds)


def rejection_rate(records: Sequence[runner.Record]) -> float | None:
  """Returns the share of drafts that were reached and not kept."""
  accepted, drafted = (
    np.sum([record[name] for record in records], axis=0)
    for name in ('accepted', 'drafted')
  )
  if not drafted.size or not drafted[0]:
    return None
  reached = np.minimum(drafted, np.append(np.inf, accepted[:-1]))
  return float(1 - accepted.sum() / reached.sum())


def acceptance_by_depth(records: Sequence[runner.Record]) -> str:
  """Returns the share of drafts of each depth that were kept, if reached."""
  counts = (
    [each[name] for each in records] for name in ('accepted', 'drafted')
  )
  kept, _ = metrics.acceptance(*counts)
  return ' '.join(f'{each:.2f}' for each in kept[np.isfinite(kept)])


def _carries_over(config, method):
  """Whether what a bandit has learnt goes on from batch to batch."""
  return bool(config.get('carry_over', False)) and len(method.arms) > 1


def _unknown_costs(family, max_length, method):
  """Stands for a cost table that is not measured yet."""
  fixed = methods_lib.build(methods_lib.fixed(method), family, max_length)
  arms = fixed.decoder.round_fn.arms
  ones = [1.0] * len(arms)
  depths = [arm.drafter.topology.depth for arm in arms]
  return {'costs': ones, 'depths': depths, 'catch_up_costs': ones}
