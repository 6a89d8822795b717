"""A round of the loop against its parts, with features, and with more arms.

A plain round is also compared with one read of the target's weights, the least
that it can take where they come from memory: the ratio's inverse is the share
of the machine's bandwidth at which plain decoding reads them.

Every ratio is of medians over repeats in which both sides take turns, so that a
drift of the machine's speed cancels.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import arms as arms_lib
from experiments.common import compare
from experiments.common import components
from experiments.common import costs
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from specjax import base
from specjax import components as components_lib
from specjax import decoding
from specjax.decoding import timing
from specjax.drafters import wrapper

MAY_CHANGE = ('arm', 'arms')


def prepare(config):
  """Returns plain decoding, the arm, the bandit over several, and prompts."""
  several = {'bandit': 'ucb_spec'}
  return compare.of_entries(
    config, {'none': 'none', 'arm': config.arm, 'arms': several}
  )


def run(config, workdir):
  """Returns a row for each comparison: `round_ms` over `other_ms`."""
  family, (plain, alone, several), prompt_sets = prepare(config)
  bench = _Bench(config, family, [job.turns[0] for job in prompt_sets[0].jobs])
  parts = [
    ('a round over one read of its weights', plain, bench.weights),
    ('a round over its model calls', plain, bench.model_calls),
    ('a round over its model calls', alone, bench.model_calls),
  ]
  if not bench.decoder(alone).round_fn.arms[0].drafter.taps:
    part = 'a round with features over one without'
    parts.append((part, alone, bench.features))
  part = 'a round of several arms over one of one'
  parts.append((part, several, bench.several))
  for _, method, _ in parts:  # All are tried before any is timed.
    bench.decoder(method)
  names = 'batch_size', 'max_length', 'rounds', 'repeats', 'family'
  shared = {name: config[name] for name in names}
  units = [
    {'part': name, **method.settings, **shared} for name, method, _ in parts
  ]

  def compute(part):
    _, method, measured = part
    jax.clear_caches()  # Many programs have more memory maps than Linux allows.
    return {'rows': [_row(*compared) for compared in measured(method)]}

  outcomes = log.resume(workdir, units, compute, 'comparisons', parts)
  return [
    {'part': unit['part'], 'batch_size': config.batch_size} | row
    for unit, outcome in zip(units, outcomes)
    for row in outcome['rows']
  ]


def _row(arm, seconds, other, num_bytes=None):
  """A comparison, and the bandwidth at which so many bytes were read."""
  row = {
    'arm': str(arm),
    'round_ms': 1e3 * float(seconds),
    'other_ms': 1e3 * float(other),
    'ratio': float(seconds / other),
  }
  if num_bytes is not None:
    row['gigabytes_per_second'] = num_bytes / float(other) / 1e9
  return row


@components_lib.component
class _WithTaps(wrapper.DrafterWrapper):
  """A drafter that also requires the target's last hidden states."""

  drafter: base.Drafter

  taps = (-1,)


class _Bench:
  """Times the rounds of a method and the reference that they are divided by."""

  def __init__(self, config, family, prompts):
    self.config, self.family = config, family
    self.batch = costs.batch(prompts, config.batch_size)
    # Tokens that fit behind the prompts.
    self.room = config.max_length - max(map(len, self.batch))

  def weights(self, method):
    """Compares a plain round with one read of as many bytes as its weights.

    What is read is one array of float32, which is summed.
    """
    num_bytes = _bytes_read(self.family.target)
    array = jnp.ones(num_bytes // 4, jnp.float32)
    total = jax.jit(jnp.sum)
    sums = lambda: [total(array) for _ in range(self.config.rounds)]
    each = self._medians(self._rounds(self.decoder(method)), lambda: sums)
    return [(method.label, *each, num_bytes)]

  def model_calls(self, method):
    """Compares a round with its model calls, each model's timed alone."""
    decoder = self.decoder(method)
    state = decoder.init(self.batch, self.room)
    drafter = decoder.round_fn.arms[0].drafter
    length = drafter.topology.depth
    if drafter.topology.num_nodes != length:
      raise ValueError(f'arm must draft a chain, got {method.label}.')
    # The target's logits are all used.
    target = self.family.target
    call = _calls_of_model(target.model, [length + 1], slice(None))
    calls = [self._repeated(call, target.params, state.target)]
    name = arms_lib.model_of(method.arms[0], method.place)
    if name is not None:
      model = self.family.drafters[name]
      call = _calls_of_drafter(model.model, drafter)
      calls.append(self._repeated(call, model.params, state.drafters[0]))
    whole, *each = self._medians(self._rounds(decoder), *calls)
    return [(method.label, whole, sum(each))]

  def features(self, method):
    """Compares a drafter that asks for the target's features with itself."""
    without = self.decoder(method)
    arm = without.round_fn.arms[0]
    asking = arm._replace(drafter=_WithTaps(arm.drafter))
    target, params = without.round_fn.target, without.params
    decoder = decoding.Decoder(
      target,
      params.target,
      [(asking, params.drafters[0])],
      sampling=method.sampling,
      max_length=self.config.max_length,
    )
    each = self._medians(self._rounds(decoder), self._rounds(without))
    return [(method.label, *each)]

  def several(self, method):
    """Compares rounds of a bandit with those of its arms alone.

    Of one that sticks to each arm in turn, and of one that learns, whose rounds
    are compared with those of its arms in the shares in which it plays them.
    """
    alone = [self.decoder(each) for each in methods_lib.alone(method)]
    among = [
      self.decoder(
        method._replace(bandit=components.parse(f'fixed(arm={i})', ''))
      )
      for i in range(len(alone))
    ]
    learning = self.decoder(method)
    seconds = self._medians(*map(self._rounds, [*alone, *among, learning]))
    own, each = seconds[: len(alone)], seconds[len(alone) : -1]
    _, infos = decoding.trace(
      learning.round_fn,
      learning.params,
      learning.init(self.batch, self.room),
      self.config.rounds,
    )
    played = np.bincount(infos.arm[:, 0], minlength=len(alone))
    mixed = played @ own / played.sum()
    return [*zip(method.arms, each, own), (method.label, seconds[-1], mixed)]

  def decoder(self, method):
    """Builds the decoder of a method."""
    return methods_lib.build(
      method, self.family, self.config.max_length
    ).decoder

  def _rounds(self, decoder):
    return timing.prepare_rounds(
      decoder, self.batch, self.room, self.config.rounds
    )

  def _medians(self, *runs):
    """Seconds of a round of each."""
    config = self.config
    label = f'rounds, batch size {config.batch_size}'
    seconds = measure.in_turns(runs, config.repeats, label)
    return np.median(seconds, axis=0) / config.rounds

  def _repeated(self, call, params, cache):
    """The preparation of a round's calls of one model, many times over.

    `call` is `(params, cache, token[B, 1]) -> token`; each waits for the one
    before, as it does in a decode.
    """
    num = self.config.rounds

    @jax.jit
    def repeat(params, cache, token):
      step = lambda token, _: (call(params, cache, token), None)
      return jax.lax.scan(step, token, length=num)[0]

    start = jnp.zeros((len(self.batch), 1), jnp.int32)
    return lambda: lambda: repeat(params, cache, start)


def _calls_of_drafter(model, drafter):
  """The calls of a model with which a drafter draws a chain."""
  length = drafter.topology.depth
  if isinstance(model, base.ParallelHead):
    return _call_of_heads(model)
  if isinstance(model, base.FeatureHead):
    # What its cache lacks, and its own outputs behind.
    widths = [drafter.slot.name.tail] + [1] * (length - 1)
    return _calls_of_head(model, widths)
  # The first draft step reads two tokens, the others one; of logits that nobody
  # reads there are none, only the last are used.
  return _calls_of_model(model, [2] + [1] * (length - 1), slice(-1, None))


def _calls_of_model(model, widths, used):
  def call(params, cache, token):
    at, pending = _moved(cache, token), None
    for width in widths:
      tokens = jnp.broadcast_to(token, (len(token), width))
      output = model.extend(params, at, tokens, pending_kv=pending)
      pending = output.pending_kv
      token = _next_token(output.logits[:, used])
    return token

  return call


def _calls_of_head(head, widths):
  def call(params, cache, token):
    at, pending = _moved(cache, token), None
    inputs = head.fuse(params, _features(head, token, widths[0]))
    for width in widths:
      tokens = jnp.broadcast_to(token, (len(token), width))
      outputs, pending = head.extend(
        params, at, tokens, inputs, pending_kv=pending
      )
      inputs = outputs[:, -1:]
      token = _next_token(head.predict(params, inputs))
    return token

  return call


def _call_of_heads(heads):
  def call(params, cache, token):
    del cache  # They have none.
    logits = heads.predict(params, _features(heads, token, 1))
    return _next_token(logits[:, 0])

  return call


def _features(head, token, num):
  """Features of `num` tokens, which change with the token."""
  shape = len(token), num, head.feature_size
  each = jnp.broadcast_to(token[..., None], shape).astype(jnp.float32)
  return (each,) * len(head.taps)


def _moved(cache, token):
  """Where the rows stand changes with the token, so that no mask is hoisted."""
  return cache.replace(lengths=cache.lengths + token[:, 0])


def _next_token(logits):
  """A token that waits for logits `[B, T, V]`: 0."""
  return (logits.max(axis=(1, 2)) > 1e9).astype(jnp.int32)[:, None]


def _bytes_read(model):
  """Bytes of weights that a call of one token reads, each of them once."""
  # An encoder has read its source, and of a table alone one row is read.
  unread = {'encoder', *(() if model.config.tie_embeddings else ['embedding'])}
  read = [each for name, each in model.params.items() if name not in unread]
  return sum(leaf.nbytes for leaf in jax.tree.leaves(read))
