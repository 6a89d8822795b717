"""Decodes every prompt set with every method, and makes rows of the records."""

from collections.abc import Callable
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

# Fields that may differ from the last run in the same workdir: the log names
# everything that a record depends on.
MAY_CHANGE = ('arms', 'bandits', 'num_seeds', 'paper', 'prompts', 'methods')
# The method that all others are timed against.
REFERENCE = 'none'


class Decoded(NamedTuple):
  """The records of one method on one prompt set, over all seeds."""

  method: methods_lib.Method
  prompts: prompts_lib.PromptSet
  records: list[runner.Record]  # one per job, seed after seed
  is_greedy: bool = False  # and timed against greedy plain decoding


class Setup(NamedTuple):
  """The models, methods and prompts of a config."""

  family: families.Family
  methods: list[methods_lib.Method]
  prompt_sets: list[prompts_lib.PromptSet]


def prepare(config: Any) -> Setup:
  """Reads a config and loads its models.

  Raises:
    ValueError: something in the config is wrong.
  """
  # Names are checked before a model is loaded, which may take long.
  methods = methods_lib.parse_all(config, prompts_lib.drafter_names(config))
  family = prompts_lib.load_family(config)
  checks.check_range('num_seeds', config.get('num_seeds', 1), 1)
  checks.check_range('max_new_tokens', config.max_new_tokens, 1)
  setup = Setup(family, methods, prompts_lib.build(config, family))
  build_methods(setup, config.max_length)  # Errors come before decoding.
  return setup


def prepare_entries(config: Any, entries: Mapping[str, Any]) -> Setup:
  """Reads a config whose methods are spread over several fields.

  Args:
    config: the config of the experiment; it need not have `prompts`.
    entries: what `methods.parse` takes, by its location in the config.

  Returns:
    The setup, with one method per entry.
  """
  names = prompts_lib.drafter_names(config)
  methods = [
    methods_lib.parse(config, entry, names, location)
    for location, entry in entries.items()
  ]
  family = prompts_lib.load_family(config)
  prompt_sets = prompts_lib.build(config, family) if 'prompts' in config else []
  setup = Setup(family, methods, prompt_sets)
  build_methods(setup, config.max_length)
  return setup


def build_methods(
  setup: Setup, max_length: int
) -> list[methods_lib.CompiledMethod]:
  """Builds the decoder of each method; nothing is compiled.

  Rewards and bandits that depend on the costs of rounds receive costs of 1.
  """
  costs = functools.partial(_unknown_costs, setup.family, max_length)
  return [
    methods_lib.build(method, setup.family, max_length, costs)
    for method in setup.methods
  ]


def check_shapes(
  compiled_method: methods_lib.CompiledMethod, batch_size: int
) -> None:
  """Traces the prefill and one round of a decoder; nothing is compiled.

  Raises:
    TypeError: a round changes the shapes of the state, so that it cannot be
      repeated.
  """
  decoder = compiled_method.decoder
  state = decoder.trace_init(batch_size).out_info
  next_state, _ = jax.eval_shape(decoder.round_fn, decoder.params, state)
  shapes = [
    jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), tree)
    for tree in (state, next_state)
  ]
  if shapes[0] != shapes[1]:
    raise TypeError(f'A round turns {shapes[0]} into {shapes[1]}.')


def check_labels(setup: Setup, *labels: str) -> None:
  """Raises `ValueError` if no method has one of the labels."""
  for label in labels:
    if label not in [method.label for method in setup.methods]:
      raise ValueError(f'methods must include one with the label {label!r}.')


def check_labels_differ(setup: Setup) -> None:
  """Raises `ValueError` if two methods have the same label."""
  labels = [method.label for method in setup.methods]
  for method in setup.methods:
    if labels.count(method.label) > 1:
      raise ValueError(
        'methods must have different labels here, got two with the label '
        f'{method.label!r}.'
      )


def decode(
  config: Any, workdir: workdirs.Workdir, setup: Setup, **options: Any
) -> list[Decoded]:
  """Decodes every prompt set with every method; resumes from the log.

  With `config.repeats`, timings of each method are interleaved with plain
  decoding.

  Args:
    config: the config of the experiment.
    workdir: the folder of the log.
    setup: from `prepare`.
    **options: fields of `runner.Options`. With `stop_at_deadline`, methods
      without time are missing from the result.
  """
  texts = [job.turns[0] for job in setup.prompt_sets[0].jobs]
  costs = costs_lib.cost_function(config, workdir, setup.family, texts)
  num_seeds = config.get('num_seeds', 1)
  runs, decoded = [], []
  for method in setup.methods:
    build_method = functools.partial(
      methods_lib.build, method, setup.family, config.max_length, costs
    )
    build_method()  # Before any run, as this may read or measure costs.
    for prompts in setup.prompt_sets:
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
  options = clocks(config, setup.family) | options
  records_by_run = runner.decode(workdir, runs, runner.Options(**options))
  for i, records in enumerate(records_by_run):
    decoded[i // num_seeds].records.extend(records)
  return [
    result
    for result in decoded
    if len(result.records) == num_seeds * len(result.prompts.jobs)
  ]


def _is_greedy(config: Any, method: methods_lib.Method) -> bool:
  """Returns whether outputs must equal those of plain decoding."""
  if method.sampling.temperature or not config.get('repeats', 0):
    return False
  plain = reference(config)
  return (method.sampling, method.target) == (plain.sampling, plain.target)


def reference(config: Any) -> methods_lib.Method:
  """Returns plain decoding with the config's sampling."""
  return methods_lib.parse(config, REFERENCE, (), 'reference')


def clocks(config: Any, family: families.Family) -> dict[str, Any]:
  """Returns the options of `runner.Options` that time methods, if any."""
  if not config.get('repeats', 0):
    return {}
  build_method = functools.partial(
    methods_lib.build, reference(config), family, config.max_length
  )
  return {'repeats': config.repeats, 'reference': build_method}


def run_settings(
  config: Any, method: methods_lib.Method, prompts: prompts_lib.PromptSet
) -> dict[str, Any]:
  """Returns everything that a method's records on a prompt set depend on."""
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
  """Returns one row per method and prompt set, and per domain if requested.

  Where a greedy method is timed against plain decoding, `same_outputs` counts
  the answers whose tokens all equal those of plain decoding.
  """
  table = []
  for method, prompts, records, is_greedy in decoded:
    for domain in ['all', *(prompts.kinds if by_domain else ())]:
      selected = select_domain(records, domain)
      row = {'prompts': prompts.label, 'domain': domain, 'method': method.label}
      estimated = estimates(selected)
      row |= method.columns | _summary(selected, estimated)
      row[paper.PAIRED] = estimated
      if is_greedy:
        row['same_outputs'] = sum(not record['differ'] for record in selected)
      table.append(row)
  return table


def select_domain(
  records: Sequence[runner.Record], domain: str
) -> list[runner.Record]:
  """Returns the records of one domain, or all records for 'all'."""
  return [r for r in records if domain in ('all', r['label'])]


def summary(records: Sequence[runner.Record]) -> dict[str, Any]:
  """Returns statistics of records; errors are over prompts, seeds pooled.

  Errors of times are over batches, whose rows are timed together.

  `block_efficiency` is emitted tokens per target call, and
  `predicted_efficiency` what it would be if every draft token were accepted
  with the probability of the first, which is `first_acceptance`. For timed
  records, `speed_up` is tokens per second over those of plain decoding on the
  same prompts, `latency` is the time of the decode loop over that of plain
  decoding, and `total_latency` the same with prefill.
  """
  return _summary(records, estimates(records))


def _summary(
  records: Sequence[runner.Record],
  estimated: Mapping[str, metrics.Estimate],
) -> dict[str, Any]:
  """Returns the `summary` of records whose estimates are known."""
  sums = functools.partial(by_prompt, records)
  efficiency = estimated['block_efficiency']
  row = {
    'decoded': len(records),
    'tokens': int(sums('emitted').sum()),
    'block_efficiency': efficiency.value,
    'block_efficiency_error': efficiency.error,
    'predicted_efficiency': predicted_efficiency(records),
    'num_catch_up_tokens': int(sums('num_catch_up_tokens').sum()),
    **_first_acceptance(records),
    'rejection_rate': rejection_rate(records),
    'acceptance_by_depth': acceptance_by_depth(records),
  }
  if 'seconds' in records[0]:
    by_batch = functools.partial(_sums, records, 'batch')
    row |= _timings(by_batch, estimated['speed_up'])
  return row


def estimates(records: Sequence[runner.Record]) -> dict[str, metrics.Estimate]:
  """Returns columns of `summary` as estimates, which keep paired deviations."""
  sums = functools.partial(by_prompt, records)
  estimated = {
    'block_efficiency': metrics.estimate(sums('emitted'), sums('rounds'))
  }
  if 'seconds' in records[0]:
    by_batch = functools.partial(_sums, records, 'batch')
    speed, plain_speed = (
      metrics.estimate(by_batch(f'{side}emitted'), by_batch(f'{side}seconds'))
      for side in ('', 'reference_')
    )
    estimated['speed_up'] = speed.over(plain_speed)
  return estimated


def _timings(
  sums: Callable[[str], np.ndarray], speed_up: metrics.Estimate
) -> dict[str, Any]:
  """Returns speeds, also over those of plain decoding on the same prompts."""
  seconds, plain_seconds = sums('seconds'), sums('reference_seconds')
  rate, _ = metrics.ratio(sums('emitted'), seconds)
  plain_rate, _ = metrics.ratio(sums('reference_emitted'), plain_seconds)
  latency, latency_error = metrics.ratio(seconds, plain_seconds)
  total_latency, _ = metrics.ratio(
    seconds + sums('prefill'), plain_seconds + sums('reference_prefill')
  )
  return {
    'tokens_per_second': rate,
    'plain_tokens_per_second': plain_rate,
    'speed_up': speed_up.value,
    'speed_up_error': speed_up.error,
    'latency': latency,
    'latency_error': latency_error,
    'total_latency': total_latency,
  }


def by_prompt(records: Sequence[runner.Record], name: str) -> np.ndarray:
  """Returns one field summed over the records of each prompt, `[P]`.

  Prompts are in the order of their numbers, however they were batched. Fields
  with one number per depth give `[P, depth]`.
  """
  return _sums(records, 'job', name)


def _sums(records: Sequence[runner.Record], key: str, name: str) -> np.ndarray:
  """Returns one field summed over the records with the same key."""
  sums: dict[int, Any] = {}
  for record in records:
    sums[record[key]] = sums.get(record[key], 0.0) + np.array(record[name])
  return np.array([sums[item] for item in sorted(sums)])


def predicted_efficiency(records: Sequence[runner.Record]) -> float | None:
  """Predicts tokens per round from how often the first draft token is kept.

  This is Equation (1) of Leviathan et al. (2023), averaged over the depths
  that were drafted: every draft token is accepted with one probability,
  whatever its text and depth. Measured values are higher where texts differ
  from each other, and lower where deep draft tokens are accepted less often or
  the last round is cut short.
  """
  accepted, drafted = (
    np.sum([record[name] for record in records], axis=0)
    for name in ('accepted', 'drafted')
  )
  if not drafted.size or not drafted[0]:
    return None
  rounds = sum(record['rounds'] for record in records)
  probabilities = (accepted[0] / drafted[0]) ** np.arange(1, len(drafted) + 1)
  return float(1 + drafted @ probabilities / rounds)


def _first_acceptance(
  records: Sequence[runner.Record],
) -> dict[str, float | None]:
  """Returns the share of first draft tokens that were kept, and its error."""
  name = 'first_acceptance'
  accepted, drafted = (
    by_prompt(records, side)[:, :1].sum(1) for side in ('accepted', 'drafted')
  )
  if not drafted.any():
    return {name: None, f'{name}_error': None}
  share, error = metrics.ratio(accepted, drafted)
  return {name: share, f'{name}_error': error}


def rejection_rate(records: Sequence[runner.Record]) -> float | None:
  """Returns the share of rejected tokens among those that were tested."""
  accepted, tested = (
    np.sum([record[name] for record in records], axis=0)
    for name in ('accepted', 'tested')
  )
  if not tested.size or not tested[0]:
    return None
  return float(1 - accepted.sum() / tested.sum())


def acceptance_by_depth(records: Sequence[runner.Record]) -> str:
  """Returns the share of tested draft tokens that were kept, per depth."""
  counts = (
    [record[name] for record in records] for name in ('accepted', 'tested')
  )
  kept, _ = metrics.acceptance(*counts)
  return ' '.join(f'{share:.2f}' for share in kept[np.isfinite(kept)])


def _carries_over(config: Any, method: methods_lib.Method) -> bool:
  """Returns whether the bandit's state is passed from batch to batch."""
  return bool(config.get('carry_over', False)) and len(method.arms) > 1


def _unknown_costs(
  family: families.Family, max_length: int, method: methods_lib.Method
) -> dict[str, list[float]]:
  """Returns costs of 1, in place of a table that is not measured yet."""
  compiled_method = methods_lib.build(
    methods_lib.fix_arm(method), family, max_length
  )
  arms = compiled_method.decoder.round_fn.arms
  ones = [1.0] * len(arms)
  depths = [arm.drafter.topology.depth for arm in arms]
  return {'costs': ones, 'depths': depths, 'catch_up_costs': ones}
