"""One table, one plot and one text: plain against speculative decoding."""

import os

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import batches
from experiments import evaluate
from experiments import results
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib

_COLOURS = {
  'accepted': '\033[32m',
  'corrected': '\033[31m',
  'bonus': '\033[36m',
  'sampled': '',
}


def run(config, workdir):
  """Decodes some prompts of every domain in several ways, one at a time."""
  results.start(workdir)
  family = families.load(config.family)
  sampling = sampling_lib.Sampling(**config.sampling)
  prompts = evaluate.first_of_each(family.prompts, config.prompts_per_domain)
  ways = [(None, 0), *((config.drafter, n) for n in config.draft_lengths)]
  decoders = {
    (drafter, length): families.decoder(
      family, drafter, draft_length=length or 1, sampling=sampling
    )
    for drafter, length in ways
  }
  rows, acceptance = [], {}
  for way in tqdm.tqdm(ways, desc='ways to decode'):
    row, acceptance[way[1]] = _measure(family, decoders[way], prompts, config)
    names = {'drafter': way[0] or 'none', 'draft_length': way[1]}
    rows.append(names | row)
    plain = rows[0]['tokens_per_second']
    rows[-1]['speed_up'] = row['tokens_per_second'] / plain
    results.log(workdir, rows[-1])
  results.write(workdir, rows)
  path = os.path.join(workdir, 'acceptance.png')
  plot_acceptance(acceptance, path)
  print(f'\nAcceptance by position: {path}\n')
  _show(family, decoders[ways[-1]], prompts[config.shown_prompt], config)


def plot_acceptance(by_length: dict[int, np.ndarray], path: str) -> None:
  """Draws acceptance by position, a line for each draft length."""
  matplotlib.use('Agg')
  figure, axes = plt.subplots(figsize=(6, 3.6), layout='constrained')
  for length, shares in by_length.items():
    if length:
      axes.plot(
        np.arange(length) + 1, shares, marker='o', label=f'{length} drafted'
      )
  axes.set_xlabel('position in the draft')
  axes.set_ylabel('accepted, where reached')
  axes.xaxis.get_major_locator().set_params(integer=True)
  axes.set_ylim(0, 1)
  axes.grid(alpha=0.3)
  axes.legend()
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _measure(family, decoder, prompts, config):
  """Decodes every prompt alone; a first pass compiles and is not timed."""
  tokens = [family.tokenizer.encode_prompt(e.prompt) for e in prompts]

  def decode_all(max_new_tokens):
    return list(
      batches.decode(
        decoder, tokens, max_new_tokens, 1, seed=config.seed, progress=False
      )
    )

  decode_all(1)
  outputs, seconds = results.timed(decode_all, config.max_new_tokens)
  efficiency, error = metrics.block_efficiency(outputs)
  return {
    'block_efficiency': efficiency,
    'standard_error': error,
    'tokens_per_second': sum(len(o.tokens) for o in outputs) / seconds,
  }, metrics.acceptance_by_position(outputs)


def _show(family, decoder, example, config):
  """Prints one continuation as it is decoded, coloured by origin."""
  plain = bool(os.environ.get('NO_COLOR'))

  def paint(text, origin):
    return text if plain else f'{_COLOURS[origin]}{text}\033[0m'

  print('Legend: ' + ', '.join(paint(o, o) for o in list(_COLOURS)[:3]) + '\n')
  print(example.prompt + '\n')
  prompt = family.tokenizer.encode_prompt(example.prompt)
  pieces = [
    piece
    for each in decoder.stream(prompt, config.max_new_tokens, seed=config.seed)
    for piece in each
  ]
  texts = family.tokenizer.pieces([piece.token for piece in pieces])
  print(''.join(paint(t, p.origin) for t, p in zip(texts, pieces)))
