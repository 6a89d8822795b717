"""Times the parts of a round: drafting, the target's call, and verification.

A speed-up is block efficiency over the time of a round in rounds of plain
decoding. The parts show why it is smaller than where calls are bound by reading
weights: there, the target's call takes as long for a whole draft as for a
single token, and verification takes no time.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import measure
from specjax import decoding
from specjax import padding
from specjax.compilation import programs
from specjax.decoding import round as round_lib
from specjax.decoding import timing


class RoundParts(NamedTuple):
  """Seconds of a round of all rows, and of its parts.

  Attributes:
    total: the whole round.
    draft: the drafter's calls.
    target: the target's call with all draft tokens, and the probabilities.
    verification: the walk of the verifier.
  """

  total: float
  draft: float
  target: float
  verification: float

  @property
  def remainder(self) -> float:
    """All other steps: caches, bookkeeping, and the bandit.

    Parts are timed separately, so that it is negative if the compiler overlaps
    them in the whole round.
    """
    return self.total - self.draft - self.target - self.verification


def measure_parts(
  decoders: Sequence[decoding.Decoder],
  prompts: Sequence[Sequence[int]],
  num_rounds: int,
  repeats: int,
) -> list[RoundParts]:
  """Returns the median seconds of a round and its parts, for each decoder.

  All of them are interleaved, so that a drift of the machine's speed cancels in
  their ratios.

  Args:
    decoders: decoders with a single arm each.
    prompts: the prompts of a batch.
    num_rounds: number of rounds that are timed together.
    repeats: how often everything is timed.
  """
  prepared = [
    call
    for decoder in decoders
    for call in (
      timing.prepare_rounds(
        decoder, prompts, _room(decoder, prompts), num_rounds
      ),
      *_prepare_steps(decoder, prompts, num_rounds).values(),
    )
  ]
  seconds = measure.interleave(prepared, repeats, 'parts of rounds')
  medians = np.median(seconds, axis=0) / num_rounds
  return [RoundParts(*parts) for parts in medians.reshape(-1, 4).tolist()]


def target_call_ratio(
  decoder: decoding.Decoder,
  plain: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  num_calls: int,
  repeats: int,
) -> float:
  """Returns the time of a target call with a draft over one with a token.

  Args:
    decoder: a decoder with a single arm, whose draft is scored.
    plain: plain decoding, which scores the last token.
    prompts: the prompts of a batch.
    num_calls: number of calls that are timed together.
    repeats: how often both are timed, interleaved.
  """
  prepared = [
    _prepare_steps(drafting, prompts, num_calls)['target']
    for drafting in (decoder, plain)
  ]
  seconds = measure.interleave(prepared, repeats, 'target calls')
  drafted, single = np.median(seconds, axis=0)
  return float(drafted / single)


def draft_cost(decoder: decoding.Decoder, pulls: Sequence[float]) -> float:
  """Returns the weights read by drafting over those of a target call.

  It is `length * size of the draft / size of the target` for a chain.

  Args:
    decoder: the decoder.
    pulls: `[A]` rounds of each arm.
  """
  arms = zip(decoder.round_fn.arms, decoder.params.drafters)
  num_bytes = [
    arm.drafter.num_calls * programs.weight_bytes(params)
    for arm, params in arms
  ]
  mean = float(np.average(num_bytes, weights=pulls))
  return mean / programs.weight_bytes(decoder.params.target)


def _room(decoder: decoding.Decoder, prompts: Sequence[Sequence[int]]) -> int:
  """Returns how many tokens fit after the prompts."""
  return decoder.max_length - max(map(len, prompts))


class _Inputs(NamedTuple):
  """What the steps of a round read."""

  params: decoding.Params
  state: decoding.DecodeState
  choice: round_lib.Choice
  drafts: Any = None
  scores: Any = None


def _prepare_steps(
  decoder: decoding.Decoder, prompts: Sequence[Sequence[int]], num_calls: int
) -> dict[str, timing.Prepare]:
  """Prepares repeated calls of the steps of a round, after prefill.

  Each step takes `[B]` zeros, which follow from the outputs of its previous
  call, and on which its outputs depend, so that the compiler cannot move it out
  of the loop.
  """
  round_fn, fold = decoder.round_fn, jax.vmap(jax.random.fold_in)

  def draft(inputs: _Inputs, zeros: jax.Array) -> Any:
    state, choice = inputs.state, inputs.choice
    state = state.replace(lengths=state.lengths + zeros)
    choice = choice._replace(draft_keys=fold(choice.draft_keys, zeros))
    return round_lib.draft(round_fn, inputs.params, state, choice, (0,))

  def score(inputs: _Inputs, zeros: jax.Array) -> Any:
    state = inputs.state
    state = state.replace(lengths=state.lengths + zeros)
    return round_lib.score(
      round_fn, inputs.params, state, inputs.choice, inputs.drafts
    )

  def verify(inputs: _Inputs, zeros: jax.Array) -> Any:
    choice, scores = inputs.choice, inputs.scores
    choice = choice._replace(verify_keys=fold(choice.verify_keys, zeros))
    add = lambda leaf: leaf + zeros[:, None, None].astype(leaf.dtype)
    scores = scores._replace(probs=jax.tree.map(add, scores.probs))
    return round_lib.verify(round_fn, choice, inputs.drafts, scores)

  state = timing.begin(decoder, prompts, _room(decoder, prompts))
  zeros = jnp.zeros(len(prompts), jnp.int32)
  selected = jax.jit(round_lib.select)(round_fn, state)
  inputs = _Inputs(decoder.params, *selected)
  inputs = inputs._replace(drafts=jax.jit(draft)(inputs, zeros))
  inputs = inputs._replace(scores=jax.jit(score)(inputs, zeros))
  steps = {
    'draft': (draft, lambda drafts: _is_unknown(drafts[0].tree.tokens)),
    'target': (score, lambda scores: ~scores.output.finite),
    'verify': (verify, lambda result: _is_unknown(result.outcome.tokens)),
  }
  return {
    name: _repeated(*step, inputs, zeros, num_calls)
    for name, step in steps.items()
  }


def _is_unknown(tokens: jax.Array) -> jax.Array:
  """Returns `[B]` whether a token is in no vocabulary, which never happens."""
  return (tokens == jnp.iinfo(tokens.dtype).max).any(axis=1)


def _repeated(
  step: Callable[[_Inputs, jax.Array], Any],
  is_invalid: Callable[[Any], jax.Array],
  inputs: _Inputs,
  zeros: jax.Array,
  num_calls: int,
) -> timing.Prepare:
  """Prepares calls of a step, each of which waits for the one before.

  Args:
    step: takes the inputs and zeros.
    is_invalid: from the outputs of a step, returns `[B]` false, which the
      compiler cannot predict.
    inputs: the inputs of the step.
    zeros: `[B]` int32.
    num_calls: number of calls.
  """

  @jax.jit
  def repeat(inputs: _Inputs, zeros: jax.Array) -> Any:
    def call(carry: Any, _: None) -> tuple[Any, None]:
      outputs = step(inputs, carry[0])
      # All outputs are carried, so that all are computed.
      return (is_invalid(outputs).astype(jnp.int32), outputs), None

    outputs = padding.zeros(jax.eval_shape(step, inputs, zeros))
    return jax.lax.scan(call, (zeros, outputs), length=num_calls)[0]

  return lambda: lambda: repeat(inputs, zeros)
