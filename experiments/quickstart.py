"""One table, two pictures and one text: plain against speculative decoding."""

import dataclasses

import numpy as np

from experiments.common import compare
from experiments.common import methods
from experiments.common import plots
from experiments.common import terminal
from specjax import metrics


def prepare(config):
  """Returns the methods and prompts; `shown_method` must be one of them."""
  prepared = compare.plan(config)
  compare.check_labels(prepared, config.shown_method)
  return prepared


def run(config, workdir):
  """Decodes prompts from all domains with several methods; shows one text."""
  made = prepare(config)
  decoded = compare.decode(config, workdir, made)
  rows = compare.rows(decoded)
  for row, each in zip(rows, decoded):
    row['acceptance'], row['acceptance_error'] = _acceptance(each.records)
  (shown,) = (row for row in rows if row['method'] == config.shown_method)
  shown |= _shown(config, made)
  _print(shown)
  return rows


def figures(rows):
  """Draws acceptance by position, and the text with its tokens' origins."""
  runs = [
    {'method': row['method'], 'position': i + 1, 'acceptance': a, 'error': e}
    for row in rows
    for i, (a, e) in enumerate(zip(row['acceptance'], row['acceptance_error']))
  ]
  acceptance = plots.lines(
    runs,
    'position',
    'acceptance',
    'method',
    error='error',
    xlabel='position in the draft',
    ylabel='accepted, where reached',
  )
  (axes,) = acceptance.axes
  axes.set_title('How often a drafted token is kept')
  axes.set_ylim(0, 1)
  axes.xaxis.get_major_locator().set_params(integer=True)
  (pieces,) = (row['shown'] for row in rows if 'shown' in row)
  text = plots.text(pieces, 'A greedy text, and where its tokens are from')
  return {'acceptance': acceptance, 'text': text}


def _acceptance(records):
  """Shares of drafts that were kept, by position, and their errors."""
  pair = metrics.acceptance(
    [record['accepted'] for record in records],
    [record['drafted'] for record in records],
  )
  return tuple(column[~np.isnan(pair[0])].tolist() for column in pair)


def _shown(config, made):
  """A prompt, and its greedy continuation token by token with their origins."""
  (method,) = (
    method for method in made.methods if method.label == config.shown_method
  )
  tokenizer = made.family.tokenizer
  sampling = dataclasses.replace(method.sampling, temperature=0.0)
  compiled_method = methods.build(
    method._replace(sampling=sampling), made.family, config.max_length
  )
  prompt = made.family.prompts[config.shown_prompt].prompt
  pieces = [
    piece
    for each in compiled_method.decoder.stream(
      tokenizer.encode_prompt(prompt), config.max_new_tokens, seed=config.seed
    )
    for piece in each
  ]
  texts = tokenizer.pieces([piece.token for piece in pieces])
  origins = [piece.origin for piece in pieces]
  return {'shown_prompt': prompt, 'shown': list(zip(texts, origins))}


def _print(row):
  """Prints the text, coloured by origin."""
  print(f'\nA greedy text by {row["method"]} ({terminal.legend()} tokens):\n')
  print(f'{row["shown_prompt"]}\n')
  print(''.join(terminal.paint(*each) for each in row['shown']) + '\n')
