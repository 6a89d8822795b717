"""One table, two pictures and one text: plain against speculative decoding."""

import dataclasses

import numpy as np

from experiments.common import compare
from experiments.common import plots
from experiments.common import terminal
from experiments.common import ways
from specjax import metrics


def prepare(config):
  """Returns the ways and prompts; `shown_way` must be one of them."""
  prepared = compare.plan(config)
  compare.check_labels(prepared, config.shown_way)
  return prepared


def run(config, workdir):
  """Decodes some prompts of every domain in several ways, and shows a text."""
  made = prepare(config)
  decoded = compare.decode(config, workdir, made)
  rows = compare.rows(decoded)
  for row, each in zip(rows, decoded):
    row['acceptance'], row['acceptance_error'] = _acceptance(each.records)
  (shown,) = (row for row in rows if row['way'] == config.shown_way)
  shown |= _shown(config, made)
  _print(shown)
  return rows


def figures(rows):
  """Draws acceptance by position, and the text with its tokens' origins."""
  points = [
    {'way': row['way'], 'position': i + 1, 'acceptance': a, 'error': e}
    for row in rows
    for i, (a, e) in enumerate(zip(row['acceptance'], row['acceptance_error']))
  ]
  acceptance = plots.lines(
    points,
    'position',
    'acceptance',
    'way',
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
  (way,) = (way for way in made.ways if way.label == config.shown_way)
  tokenizer = made.family.tokenizer
  sampling = dataclasses.replace(way.sampling, temperature=0.0)
  player = ways.build(
    way._replace(sampling=sampling), made.family, config.max_length
  )
  prompt = made.family.prompts[config.shown_prompt].prompt
  pieces = [
    piece
    for each in player.decoder.stream(
      tokenizer.encode_prompt(prompt), config.max_new_tokens, seed=config.seed
    )
    for piece in each
  ]
  texts = tokenizer.pieces([piece.token for piece in pieces])
  origins = [piece.origin for piece in pieces]
  return {'shown_prompt': prompt, 'shown': list(zip(texts, origins))}


def _print(row):
  """Prints the text, coloured by origin."""
  print(f'\nA greedy text by {row["way"]} ({terminal.legend()} tokens):\n')
  print(f'{row["shown_prompt"]}\n')
  print(''.join(terminal.paint(*each) for each in row['shown']) + '\n')
