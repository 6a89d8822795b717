"""Ratios within one process: the loop against its parts, itself and a peer.

Every ratio is of medians over repeats in which both sides take turns, so that
a drift of the machine's speed cancels.
"""

import functools
import importlib.util
import itertools
import os

import jax
import jax.numpy as jnp
import numpy as np

from experiments import arms as arms_lib
from experiments import batches
from experiments import costs
from experiments import peer
from experiments import results
import specjax
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers


def run(config, workdir):
  """Writes a row for every comparison, with the device's name."""
  if config.peer and not importlib.util.find_spec('transformers'):
    raise ValueError(
      "The comparison needs transformers: pip install -e '.[benchmark]', or "
      'set --config.peer=False.'
    )
  results.start(workdir)
  family = families.load(config.family)
  device = results.device()
  rows = []
  table = _costs(config.costs, config, family)
  path = os.path.join(workdir, 'costs.json')
  results.save(path, table)
  print(f'What a round of each arm costs: {path}\n')
  parts = [_rounds, _features, _arms, _speed_ups]
  parts += [_peer] * bool(config.peer)
  for part in parts:
    for row in part(config, family):
      rows.append(row | {'device': device})
      results.log(workdir, rows[-1])
    jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  results.write(workdir, rows)


def _prompts(family, num):
  tokens = [family.tokenizer.encode_prompt(e.prompt) for e in family.prompts]
  spread = tokens[:: max(1, len(tokens) // num)]
  return list(itertools.islice(itertools.cycle(spread), num))


# A round against its model calls.


def _rounds(config, family):
  """The time of a round over that of its model calls, each timed alone."""
  for batch_size in config.batch_sizes:
    for drafter in (None, config.drafter):
      yield _round_row(config, family, drafter, batch_size)


def _round_row(config, family, drafter, batch_size):
  length = config.draft_length if drafter else 0
  num = config.rounds
  decoder = families.decoder(
    family,
    drafter,
    draft_length=config.draft_length,
    sampling=sampling_lib.Sampling(0.0),
    max_length=config.max_length,
  )
  prompts = _prompts(family, batch_size)
  room = config.max_length - max(map(len, prompts))
  rounds = costs.rounds(decoder, prompts, room, num, config.repeats)
  state = decoder.init(prompts, room)
  # The target's logits are all used, of a draft step only the last ones.
  everything = lambda logits: logits
  calls = [_calls(family.target, state.target, [length + 1], num, everything)]
  if drafter:
    # The first draft step reads two tokens, the others one.
    steps = [2] + [1] * (length - 1)
    last = lambda logits: logits[:, -1:]
    model = family.drafters[drafter]
    calls.append(_calls(model, state.drafters[0], steps, num, last))
  label = f'round, batch {batch_size}, {length} drafted'
  whole, *each = results.medians(config.repeats, [rounds, *calls], label) / num
  return {
    'benchmark': 'round',
    'batch_size': batch_size,
    'draft_length': length,
    'round_ms': 1e3 * whole,
    'model_calls_ms': 1e3 * sum(each),
    'ratio': whole / sum(each),
  }


def _calls(model, cache, widths, num, used):
  """A function that makes a round's calls of one model, `num` times over.

  Logits that nobody reads are not computed, so `used` gives those that are.
  """
  extend = model.functions.extend

  @jax.jit
  def repeat(params, cache, tokens):
    def body(token, _):
      pending = None
      for width in widths:
        tokens = jnp.broadcast_to(token, (token.shape[0], width))
        # Where the rows stand changes too, so that no mask is hoisted.
        at = cache.replace(lengths=cache.lengths + token[:, 0])
        extension = extend(params, at, tokens, pending=pending)
        pending = extension.pending
        # The next call waits for this one, as it does in a decode.
        largest = used(extension.logits).max(axis=(1, 2))
        token = (largest > 1e9).astype(jnp.int32)[:, None]
      return token, None

    return jax.lax.scan(body, tokens, length=num)[0]

  start = jnp.zeros((cache.lengths.shape[0], 1), jnp.int32)
  return lambda: jax.block_until_ready(repeat(model.params, cache, start))


# With the target's features against without.


def _features(config, family):
  """A round whose drafter asks for the target's features over one without."""
  model, sampling = family.drafters[config.drafter], sampling_lib.Sampling(0.0)
  without = drafters.DRAFTERS['autoregressive'](
    model.functions, trees.chain(config.draft_length), sampling
  )
  decoders = [
    specjax.Decoder(
      family.target.functions,
      family.target.params,
      [(base.Arm(drafter, verifiers.resolve('greedy')), model.params)],
      sampling=sampling,
      max_length=config.max_length,
    )
    for drafter in (without, without._replace(taps=(-1,)))
  ]
  for batch_size in config.batch_sizes:
    prompts = _prompts(family, batch_size)
    room = config.max_length - max(map(len, prompts))
    own, asked = results.medians(
      config.repeats,
      [
        costs.rounds(each, prompts, room, config.rounds, config.repeats)
        for each in decoders
      ],
      f'features, batch {batch_size}',
    )
    yield {
      'benchmark': 'features',
      'batch_size': batch_size,
      'round_ms': 1e3 * asked / config.rounds,
      'own_round_ms': 1e3 * own / config.rounds,
      'ratio': asked / own,
    }


# Several arms against one.


def _costs(table, config, family):
  """The cost table that rewards of throughput are computed with."""
  return [
    row
    for batch_size in table.batch_sizes
    for row in costs.measure(
      family,
      arms_lib.specs(table.arms),
      batch_size,
      _prompts(family, batch_size),
      temperature=table.temperature,
      max_length=config.max_length,
      num_rounds=config.rounds,
      repeats=config.repeats,
    )
  ]


def _arms(config, family):
  """A round with several arms over the chosen arm's own round.

  Of a bandit that sticks to each arm in turn, and of UCBSpec, whose rounds are
  compared with those that its arms would take alone, in the same shares.
  """
  sampling = sampling_lib.Sampling(0.0)
  arms = arms_lib.build(family, config.arms, sampling)
  names = [spec.name for spec in arms_lib.specs(config.arms)]
  num, repeats = config.rounds, config.repeats
  for batch_size in config.batch_sizes:
    prompts = _prompts(family, batch_size)
    room = config.max_length - max(map(len, prompts))
    decoder = functools.partial(
      arms_lib.decoder, family, sampling=sampling, max_length=config.max_length
    )
    alone = [decoder([arm], 'fixed') for arm in arms]
    among = [decoder(arms, f'fixed:arm={i}') for i in range(len(arms))]
    learning = decoder(arms, 'ucb_spec')
    seconds = results.medians(
      repeats,
      [
        costs.rounds(each, prompts, room, num, repeats)
        for each in (*alone, *among, learning)
      ],
      f'{len(arms)} arms, batch {batch_size}',
    )
    own, each = seconds[: len(arms)], seconds[len(arms) : -1]
    _, infos = decoding.trace(
      learning.round_fn, learning.params, learning.init(prompts, room), num
    )
    shares = np.bincount(infos.arm[:, 0], minlength=len(arms)) / num
    for name, among_ms, alone_ms in zip(
      [*names, 'ucb_spec'], [*each, seconds[-1]], [*own, shares @ own]
    ):
      yield {
        'benchmark': f'{len(arms)} arms',
        'batch_size': batch_size,
        'drafter': name,
        'round_ms': 1e3 * among_ms / num,
        'own_round_ms': 1e3 * alone_ms / num,
        'ratio': among_ms / alone_ms,
      }


# Speculative against plain decoding.


def _speed_ups(config, family):
  """Tokens per second of every drafter and length, over plain decoding."""
  ways = [(None, 0)] + [
    (drafter, length)
    for drafter in family.drafters
    for length in config.draft_lengths
  ]
  for temperature in config.temperatures:
    for batch_size in config.batch_sizes:
      functions = [
        _decode_all(config, family, drafter, length, temperature, batch_size)
        for drafter, length in ways
      ]
      outputs = [function() for function in functions]
      label = f'decode, batch {batch_size}, temperature {temperature}'
      seconds = results.medians(config.repeats, functions, label)
      tokens = [sum(len(o.tokens) for o in output) for output in outputs]
      speeds = np.array(tokens) / seconds
      for (drafter, length), speed, output in zip(ways, speeds, outputs):
        yield {
          'benchmark': 'decode',
          'batch_size': batch_size,
          'temperature': temperature,
          'drafter': drafter or 'none',
          'draft_length': length,
          'block_efficiency': metrics.block_efficiency(output)[0],
          'tokens_per_second': float(speed),
          'ratio': float(speed / speeds[0]),
        }


def _decode_all(config, family, drafter, length, temperature, batch_size):
  decoder = families.decoder(
    family,
    drafter,
    draft_length=length or 1,
    sampling=sampling_lib.Sampling(temperature),
    max_length=config.max_length,
  )
  prompts = _prompts(family, config.num_prompts)
  return lambda: list(
    batches.decode(
      decoder, prompts, config.max_new_tokens, batch_size, progress=False
    )
  )


# The same weights in another implementation.


def _peer(config, family):
  """Tokens per second over those of HuggingFace transformers, batch 1."""
  prompts = _prompts(family, config.num_prompts)
  for drafter in (None, config.drafter):
    ours = _decode_all(config, family, drafter, config.draft_length, 0.0, 1)
    theirs = functools.partial(
      peer.generate,
      peer.load(family, None),
      drafter and peer.load(family, drafter),
      prompts,
      config.max_new_tokens,
      config.draft_length,
      family.tokenizer.end_id,
    )
    our_tokens = [output.tokens for output in ours()]
    their_tokens = theirs()
    label = 'assisted generation' if drafter else 'generate'
    seconds = results.medians(config.repeats, [ours, theirs], label)
    speeds = np.array(
      [
        sum(map(len, our_tokens)) / seconds[0],
        sum(map(len, their_tokens)) / seconds[1],
      ]
    )
    yield {
      'benchmark': f'transformers, {label}',
      'batch_size': 1,
      'drafter': drafter or 'none',
      'draft_length': config.draft_length if drafter else 0,
      'tokens_per_second': float(speeds[0]),
      'peer_tokens_per_second': float(speeds[1]),
      'same_outputs': sum(a == b for a, b in zip(our_tokens, their_tokens)),
      'ratio': float(speeds[0] / speeds[1]),
    }
