"""Compares a round with its model calls, with taps, and with several arms.

A plain round is also compared with one read of the target's weights, its lower
bound if they come from memory: the inverse of the ratio is the share of the
machine's bandwidth that plain decoding reaches.

Every ratio is a ratio of medians over interleaved repeats, so that a drift of
the machine's speed cancels.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import arms as arms_lib
from experiments.common import calls
from experiments.common import compare
from experiments.common import costs
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from specjax import base
from specjax import components as components_lib
from specjax import decoding
from specjax import drafters
from specjax import families
from specjax.decoding import timing
from specjax.drafters import wrapper

MAY_CHANGE = ('arm', 'arms')


def prepare(config):
  """Returns plain decoding, a single arm, a bandit over arms, and prompts."""
  several = {'bandit': 'ucb_spec'}
  return compare.prepare_entries(
    config, {'none': 'none', 'arm': config.arm, 'arms': several}
  )


def run(config, workdir):
  """Returns a row per comparison: `round_ms` over `other_ms`."""
  family, (plain, single, several), prompt_sets = prepare(config)
  bench = _Bench(config, family, [job.turns[0] for job in prompt_sets[0].jobs])
  parts = [
    ('round over one read of the weights', plain, bench.weights),
    ('round over its model calls', plain, bench.model_calls),
    ('round over its model calls', single, bench.model_calls),
  ]
  if not bench.decoder(single).round_fn.arms[0].drafter.taps:
    part = 'round with hidden-state taps over one without'
    parts.append((part, single, bench.taps))
  part = 'round with several arms over one with a single arm'
  parts.append((part, several, bench.several))
  for _, method, _ in parts:  # Errors come before the first timing.
    bench.decoder(method)
  names = 'batch_size', 'max_length', 'rounds', 'repeats', 'family'
  shared = measure.unit({name: config[name] for name in names})
  units = [
    {'part': name, **method.settings, **shared} for name, method, _ in parts
  ]

  def compute(part):
    _, method, compare_rounds = part
    jax.clear_caches()  # Many programs exceed Linux's limit of memory maps.
    return {'rows': [_row(*result) for result in compare_rounds(method)]}

  outcomes = log.resume(workdir, units, compute, 'comparisons', parts)
  return [
    {'part': unit['part'], 'batch_size': config.batch_size} | row
    for unit, outcome in zip(units, outcomes)
    for row in outcome['rows']
  ]


def _row(
  arm: Any, seconds: float, other: float, num_bytes: int | None = None
) -> dict[str, Any]:
  """Returns a comparison, with the bandwidth of reading `num_bytes`."""
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
    # Tokens that fit after the prompts.
    self.room = config.max_length - max(map(len, self.batch))

  def weights(self, method):
    """Compares a plain round with one read of as many bytes as its weights.

    The read is a sum over a float32 array.
    """
    num_bytes = _bytes_read(self.family.target)
    array = jnp.ones(num_bytes // 4, jnp.float32)
    total = jax.jit(jnp.sum)
    sums = lambda: [total(array) for _ in range(self.config.rounds)]
    medians = self._medians(self._rounds(self.decoder(method)), lambda: sums)
    return [(method.label, *medians, num_bytes)]

  def model_calls(self, method):
    """Compares a round with its model calls, timed separately per model."""
    decoder = self.decoder(method)
    state = decoder.init(self.batch, self.room)
    drafter = decoder.round_fn.arms[0].drafter
    length = drafter.topology.depth
    if drafter.topology.num_nodes != length:
      raise ValueError(f'arm must draft a chain, got {method.label}.')
    # All of the target's logits are used.
    target = self.family.target
    call = _model_calls(target.model, [length + 1], slice(None))
    calls = [self._repeated(call, decoder.params.target, state.target)]
    names = arms_lib.draft_models(method.arms[0], method.location)
    params = decoder.params.drafters[0]
    for name, part in zip(names, params if len(names) > 1 else [params]):
      call = _drafter_calls(self.family.drafters[name].model, drafter)
      calls.append(self._repeated(call, part, state.drafters[0]))
    round_, *model_calls = self._medians(self._rounds(decoder), *calls)
    return [(method.label, round_, sum(model_calls))]

  def taps(self, method):
    """Compares a drafter with itself plus a tap of hidden states."""
    without = self.decoder(method)
    arm = without.round_fn.arms[0]
    tapped = arm._replace(drafter=_WithTaps(arm.drafter))
    target, params = without.round_fn.target, without.params
    decoder = decoding.Decoder(
      target,
      params.target,
      [(tapped, params.drafters[0])],
      sampling=method.sampling,
      max_length=self.config.max_length,
    )
    medians = self._medians(self._rounds(decoder), self._rounds(without))
    return [(method.label, *medians)]

  def several(self, method):
    """Compares rounds of a decoder with all arms and decoders with single arms.

    There is one comparison per arm, with a bandit that always selects it, and
    one with the given bandit, whose rounds are compared with the mean over its
    arms, weighted by how often it selects them.
    """
    single_arms = methods_lib.single_arms(method)
    alone = [self.decoder(single_arm) for single_arm in single_arms]
    among = [
      self.decoder(
        method._replace(
          bandit=calls.Call('fixed', (), (('arm', i),)), warm_start=0
        )
      )
      for i in range(len(alone))
    ]
    learning = self.decoder(method)
    seconds = self._medians(*map(self._rounds, [*alone, *among, learning]))
    alone_seconds, among_seconds = np.split(seconds[:-1], 2)
    _, infos = decoding.trace(
      learning.round_fn,
      learning.params,
      learning.init(self.batch, self.room),
      self.config.rounds,
    )
    pulls = np.bincount(infos.arm[:, 0], minlength=len(alone))
    mean = pulls @ alone_seconds / pulls.sum()
    return [
      *zip(method.arms, among_seconds, alone_seconds),
      (method.label, seconds[-1], mean),
    ]

  def decoder(self, method):
    """Builds the decoder of a method."""
    return methods_lib.build(
      method, self.family, self.config.max_length
    ).decoder

  def _rounds(self, decoder: decoding.Decoder) -> timing.Prepare:
    return timing.prepare_rounds(
      decoder, self.batch, self.room, self.config.rounds
    )

  def _medians(self, *runs: timing.Prepare) -> np.ndarray:
    """Returns the median seconds per round of interleaved runs."""
    config = self.config
    label = f'rounds, batch size {config.batch_size}'
    seconds = measure.interleave(runs, config.repeats, label)
    return np.median(seconds, axis=0) / config.rounds

  def _repeated(
    self, call: Callable[..., jax.Array], params: Any, cache: Any
  ) -> timing.Prepare:
    """Prepares repeated calls of one model.

    Args:
      call: `(params, cache, token[B, 1]) -> token`; each call waits for the one
        before, as it does in a decode.
      params: the model's parameters.
      cache: the model's KV cache.
    """
    num = self.config.rounds

    @jax.jit
    def repeat(params, cache, token):
      step = lambda token, _: (call(params, cache, token), None)
      return jax.lax.scan(step, token, length=num)[0]

    start = jnp.zeros((len(self.batch), 1), jnp.int32)
    return lambda: lambda: repeat(params, cache, start)


def _drafter_calls(
  model: Any, drafter: base.Drafter
) -> Callable[..., jax.Array]:
  """Returns the model calls with which a drafter draws a chain."""
  length = drafter.topology.depth
  if isinstance(model, base.ParallelHead):
    return _parallel_head_call(model)
  if isinstance(model, base.BlockHead):
    return _block_head_call(model, length)
  if isinstance(drafter, drafters.Parallel):
    # The tokens that its cache lacks, and mask tokens.
    return _model_calls(model, [2 + length - 1], slice(1, None))
  if isinstance(model, base.FeatureHead):
    # First the tokens that its cache lacks, then its outputs one by one.
    widths = [drafter.slot.name.tail] + [1] * (length - 1)
    return _feature_head_calls(model, widths)
  # The first draft step reads two tokens, the others one; only the last logits
  # are computed.
  return _model_calls(model, [2] + [1] * (length - 1), slice(-1, None))


def _model_calls(
  model: base.LanguageModel, widths: list[int], used: slice
) -> Callable[..., jax.Array]:
  def call(params, cache, token):
    shifted_cache, pending = _moved(cache, token), None
    for width in widths:
      tokens = jnp.broadcast_to(token, (len(token), width))
      output = model.extend(params, shifted_cache, tokens, pending_kv=pending)
      pending = output.pending_kv
      token = _next_token(output.logits[:, used])
    return token

  return call


def _feature_head_calls(
  head: base.FeatureHead, widths: list[int]
) -> Callable[..., jax.Array]:
  def call(params, cache, token):
    shifted_cache, pending = _moved(cache, token), None
    inputs = head.fuse(params, _features(head, token, widths[0]))
    for width in widths:
      tokens = jnp.broadcast_to(token, (len(token), width))
      outputs, pending = head.extend(
        params, shifted_cache, tokens, inputs, pending_kv=pending
      )
      inputs = outputs[:, -1:]
      token = _next_token(head.predict(params, inputs))
    return token

  return call


def _parallel_head_call(heads: base.ParallelHead) -> Callable[..., jax.Array]:
  def call(params, cache, token):
    del cache  # Parallel heads have none.
    logits = heads.predict(params, _features(heads, token, 1))
    return _next_token(logits[:, 0])

  return call


def _block_head_call(
  head: base.BlockHead, length: int
) -> Callable[..., jax.Array]:
  size, num = length + head.first_output, length + 1

  def call(params, cache, token):
    shifted_cache = _moved(cache, token)
    positions = shifted_cache.lengths[:, None] + np.arange(num + size)[None]
    features = _features(head, token, num)
    outputs, _ = head.extend(
      params,
      shifted_cache,
      jnp.broadcast_to(token, (len(token), size)),
      pending_kv=head.encode(params, features, positions[:, :num]),
      positions=positions[:, num:],
      mask=np.ones((size, num + size), bool),
    )
    return _next_token(head.predict(params, outputs[:, head.first_output :]))

  return call


def _features(head: Any, token: jax.Array, num: int) -> tuple[jax.Array, ...]:
  """Returns hidden states of `num` tokens, which depend on the token."""
  shape = len(token), num, head.feature_size
  hidden_states = jnp.broadcast_to(token[..., None], shape)
  return (hidden_states.astype(jnp.float32),) * len(head.taps)


def _moved(cache: Any, token: jax.Array) -> Any:
  """Makes rows' lengths depend on the token, so that no mask is hoisted."""
  return cache.replace(lengths=cache.lengths + token[:, 0])


def _next_token(logits: jax.Array) -> jax.Array:
  """Returns the token 0, `[B, 1]`, which depends on logits `[B, T, V]`."""
  return (logits.max(axis=(1, 2)) > 1e9).astype(jnp.int32)[:, None]


def _bytes_read(model: families.Model) -> int:
  """Returns the bytes of weights that a call with one token reads."""
  # An encoder runs once per prompt, and only one row of an embedding is read.
  unread = {'encoder', *(() if model.config.tie_embeddings else ['embedding'])}
  read = [tree for name, tree in model.params.items() if name not in unread]
  return sum(leaf.nbytes for leaf in jax.tree.leaves(read))
