"""Compares plain and speculative decoding in a table, two plots and a text."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import methods
from experiments.common import plots
from experiments.common import runner
from experiments.common import terminal
from specjax import metrics


def prepare(config):
  """Returns the methods and prompts; `shown_method` must be one of them."""
  setup = compare.prepare(config)
  compare.check_labels(setup, config.shown_method)
  return setup


def run(config, workdir):
  """Decodes prompts from all domains with several methods; shows one text."""
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup)
  rows = compare.rows(decoded)
  for row, result in zip(rows, decoded):
    row['acceptance'], row['acceptance_error'] = _acceptance(result.records)
  (shown_row,) = (row for row in rows if row['method'] == config.shown_method)
  shown_row |= _shown_text(config, setup)
  _print(shown_row)
  return rows


def figures(rows):
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
    ylabel='acceptance rate, if reached',
  )
  (axes,) = acceptance.axes
  axes.set_title('Acceptance of draft tokens')
  axes.set_ylim(0, 1)
  axes.xaxis.get_major_locator().set_params(integer=True)
  (pieces,) = (row['shown'] for row in rows if 'shown' in row)
  text = plots.text(pieces, 'A greedy text, and the origins of its tokens')
  return {'acceptance': acceptance, 'text': text}


def _acceptance(
  records: Sequence[runner.Record],
) -> tuple[list[float], list[float]]:
  """Returns acceptance rates by position in the draft, and their errors."""
  rates, errors = metrics.acceptance(
    [record['accepted'] for record in records],
    [record['drafted'] for record in records],
  )
  is_reached = ~np.isnan(rates)
  return rates[is_reached].tolist(), errors[is_reached].tolist()


def _shown_text(config: Any, setup: compare.Setup) -> dict[str, Any]:
  """Returns a prompt, and its greedy continuation with the tokens' origins."""
  (method,) = (
    method for method in setup.methods if method.label == config.shown_method
  )
  tokenizer = setup.family.tokenizer
  sampling = dataclasses.replace(method.sampling, temperature=0.0)
  compiled_method = methods.build(
    method._replace(sampling=sampling), setup.family, config.max_length
  )
  prompt = setup.family.prompts[config.shown_prompt].prompt
  pieces = [
    piece
    for chunk in compiled_method.decoder.stream(
      tokenizer.encode_prompt(prompt), config.max_new_tokens, seed=config.seed
    )
    for piece in chunk
  ]
  texts = tokenizer.pieces([piece.token for piece in pieces])
  origins = [piece.origin for piece in pieces]
  return {'shown_prompt': prompt, 'shown': list(zip(texts, origins))}


def _print(row: dict[str, Any]) -> None:
  """Prints the text, colored by origin."""
  print(f'\nA greedy text by {row["method"]} ({terminal.legend()} tokens):\n')
  print(f'{row["shown_prompt"]}\n')
  print(''.join(terminal.paint(*piece) for piece in row['shown']) + '\n')
