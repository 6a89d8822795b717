"""Compares plain and speculative decoding in a table, two plots and a text."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from matplotlib import figure as figure_lib
import numpy as np

from experiments.common import compare
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import round_parts
from experiments.common import runner
from experiments.common import terminal
from experiments.common import workdirs
from specjax import drawings
from specjax import metrics

# Target calls that are timed together, and how often they are timed.
_NUM_CALLS = 32
_REPEATS = 7


def prepare(config):
  """Returns the methods and prompts; `shown_method` must be one of them."""
  setup = compare.prepare(config)
  compare.check_labels(setup, compare.REFERENCE, config.shown_method)
  return setup


def run(config, workdir):
  """Decodes prompts from all domains with several methods; shows one text.

  `speed_up_here` is tokens per second over those of plain decoding on this
  machine. `speed_up_if_memory_bound` is the speed-up where a model call takes
  as long as reading the model's weights; see `round_parts`.
  """
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup)
  rows = compare.rows(decoded)
  for row, result in zip(rows, decoded):
    row['acceptance'], row['acceptance_error'] = _acceptance(result.records)
    row |= _speed_ups(config, setup, row, result)
  (shown_row,) = (row for row in rows if row['method'] == config.shown_method)
  shown_row |= _target_call(config, workdir, setup)
  shown_row |= _shown_text(config, setup)
  _print(shown_row)
  return rows


def explain(rows: Sequence[dict[str, Any]]) -> str:
  """Returns the measurement that explains both columns of speed-ups."""
  (row,) = (row for row in rows if 'target_call_ratio' in row)
  return (
    f'Here, a target call for {row["target_call_tokens"]} tokens takes '
    f'{row["target_call_ratio"]:.1f} times as long as a call for 1; on '
    'hardware bound by memory, it takes 1.0 times as long.'
  )


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, figure_lib.Figure]:
  """Draws acceptance by position, and the text with its tokens' origins."""
  positions = [
    {'method': row['method'], 'position': i + 1, 'acceptance': a, 'error': e}
    for row in rows
    for i, (a, e) in enumerate(zip(row['acceptance'], row['acceptance_error']))
  ]
  acceptance = plots.lines(
    positions,
    'position',
    'acceptance',
    'method',
    error='error',
    xlabel='position in the draft',
    ylabel='accepted, if all earlier tokens are',
  )
  (axes,) = acceptance.axes
  axes.set_title('Acceptance of draft tokens')
  axes.set_ylim(0, 1)
  axes.xaxis.get_major_locator().set_params(integer=True)
  (row,) = (row for row in rows if 'shown' in row)
  title = f'Prompt: {row["shown_prompt"]}\n{_counts(row)}, {row["method"]}'
  text = drawings.text(row['shown'], title)
  return {'acceptance': acceptance, 'text': text}


def _acceptance(
  records: Sequence[runner.Record],
) -> tuple[list[float], list[float]]:
  """Returns acceptance rates by position in the draft, and their errors."""
  rates, errors = metrics.acceptance(
    [record['accepted'] for record in records],
    [record['tested'] for record in records],
  )
  is_reached = ~np.isnan(rates)
  return rates[is_reached].tolist(), errors[is_reached].tolist()


def _speed_ups(
  config: Any,
  setup: compare.Setup,
  row: dict[str, Any],
  result: compare.Decoded,
) -> dict[str, float]:
  """Returns the speed-ups of a method: here, and if calls are memory-bound."""
  decoder = _decoder(config, setup, result.method)
  pulls = np.sum([record['pulls'] for record in result.records], axis=0)
  calls = 1 + round_parts.draft_cost(decoder, pulls)
  return {
    'speed_up_if_memory_bound': row['block_efficiency'] / calls,
    'speed_up_if_memory_bound_error': row['block_efficiency_error'] / calls,
    'speed_up_here': row['speed_up'],
    'speed_up_here_error': row['speed_up_error'],
  }


def _target_call(
  config: Any, workdir: workdirs.Workdir, setup: compare.Setup
) -> dict[str, Any]:
  """Measures target calls with the shown method's draft and without one."""
  drafted, plain = (
    _decoder(config, setup, _method(setup, label))
    for label in (config.shown_method, compare.REFERENCE)
  )
  prompts = [setup.prompt_sets[0].jobs[0].turns[0]]

  def compute(unit: log.Unit) -> dict[str, Any]:
    del unit
    ratio = round_parts.target_call_ratio(
      drafted, plain, prompts, _NUM_CALLS, _REPEATS
    )
    return {'target_call_ratio': ratio}

  settings = _method(setup, config.shown_method).settings
  unit = measure.unit({'target call': settings, 'prompt': prompts[0]})
  (outcome,) = log.resume(workdir, [unit], compute, 'target calls')
  num_nodes = drafted.round_fn.arms[0].drafter.topology.num_nodes
  return outcome | {'target_call_tokens': num_nodes + 1}


def _shown_text(config: Any, setup: compare.Setup) -> dict[str, Any]:
  """Returns a prompt, and its greedy continuation with the tokens' origins."""
  method = _method(setup, config.shown_method)
  tokenizer = setup.family.tokenizer
  sampling = dataclasses.replace(method.sampling, temperature=0.0)
  decoder = _decoder(config, setup, method._replace(sampling=sampling))
  rounds = list(
    decoder.stream(
      tokenizer.encode_prompt(config.shown_prompt),
      config.max_new_tokens,
      seed=config.seed,
    )
  )
  pieces = [piece for chunk in rounds for piece in chunk]
  texts = tokenizer.pieces([piece.token for piece in pieces])
  origins = [piece.origin for piece in pieces]
  return {
    'shown_prompt': config.shown_prompt,
    'shown': list(zip(texts, origins)),
    'shown_target_calls': len(rounds),
  }


def _method(setup: compare.Setup, label: str) -> methods_lib.Method:
  """Returns the method with a label."""
  (method,) = (method for method in setup.methods if method.label == label)
  return method


def _decoder(
  config: Any, setup: compare.Setup, method: methods_lib.Method
) -> Any:
  """Builds the decoder of a method."""
  return methods_lib.build(method, setup.family, config.max_length).decoder


def _counts(row: dict[str, Any]) -> str:
  """Returns the number of tokens and of target calls of the shown text."""
  return (
    f'{len(row["shown"])} tokens in {row["shown_target_calls"]} target calls'
  )


def _print(row: dict[str, Any]) -> None:
  """Prints the text, colored by origin."""
  print(f'\n> {row["shown_prompt"]}\n')
  print(''.join(terminal.paint(*piece) for piece in row['shown']))
  print(f'\n[{row["method"]}: {_counts(row)}; {terminal.legend()} tokens]\n')
