"""What a prompt teaches before the first round: who agrees with the target.

The target reads the prompt anyway. What it says of the prompt's last tokens,
beside what the drafters say, is a first lesson for a bandit, which then knows
something of every arm without having played it.
"""

from collections.abc import Callable
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib
from specjax.decoding import evidence
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib


@base.component
def make_lesson(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  bandit: base.Bandit,
  reward: base.Reward,
  sampling: sampling_lib.Sampling,
  num_tokens: int,
  *,
  per_row: bool = False,
  memories: Sequence[int] | None = None,
) -> Callable[..., state_lib.DecodeState]:
  """Builds the step that reads the last tokens of the prompts.

  What every arm would have earned there is one `update_all` of the bandit.

  Args:
    target: the model to sample from.
    arms: the ways to play a round.
    bandit: the rule that picks among them.
    reward: what a round would have been worth.
    sampling: how the target's tokens are drawn.
    num_tokens: `P`, how many tokens at most.
    per_row: every row has a bandit of its own.
    memories: which of `state.drafters` is each arm's; its own, by default.

  Returns:
    `(params, state, lengths[B]) -> state`: the state has read all but the last
    tokens of the prompts, at most `P`, and then all of them.
  """
  _check(target, arms, bandit, reward, num_tokens)
  memories = state_lib.resolve_memories(arms, memories)
  owners = state_lib.owners(arms, memories)
  depths = np.array([arm.drafter.topology.depth for arm in arms], np.int32)
  index = np.arange(num_tokens)

  def lesson(params, state, lengths):
    start = state.lengths
    at = start[:, None] - 1 + index
    tokens = jnp.take_along_axis(state.tokens, at, axis=1, mode='clip')
    extension = target.extend(params.target, state.target, tokens)
    path = jnp.broadcast_to(index, tokens.shape)
    num = lengths - start
    state = state.replace(
      lengths=lengths,
      done=lengths >= state.limits,
      target=target.keep(state.target, extension.block, path, num),
    )
    laws = sampling_lib.laws(extension.logits, sampling)
    wanted = np.ones((len(owners), len(start)), bool)
    state, _, overlaps = round_lib.read(
      arms, owners, params, state, wanted, base.Committed(start, laws)
    )
    overlaps = jax.tree.map(lambda *each: jnp.stack(each, axis=1), *overlaps)
    known = jnp.broadcast_to(
      (index < num[:, None])[:, None], overlaps.sampled.shape
    )
    history = evidence.remember(state.history, overlaps, known)
    rewards = evidence.rewards(
      reward,
      _nothing(start, depths),
      overlaps,
      known,
      history,
      depths,
      memories,
    )
    return state.replace(
      history=history,
      bandit=round_lib.learn_all(
        bandit, per_row, state.bandit, num > 0, rewards
      ),
    )

  return lesson


def _check(target, arms, bandit, reward, num_tokens):
  base.check_range('prompt_tokens', num_tokens, 0)
  if bandit is None or reward is None:
    raise ValueError(
      f'prompt_tokens={num_tokens} needs a bandit and a reward to learn from.'
    )
  for wrong, why in (
    (target.start_id is not None, 'an encoder-decoder, which encodes prompts'),
    (any(arm.goal is not None for arm in arms), 'goals other than the target'),
    (any(arm.drafter.lags for arm in arms), 'an ensemble'),
  ):
    if wrong:
      raise ValueError(f'prompt_tokens must be 0 with {why}, got {num_tokens}.')


def _nothing(lengths, depths):
  """The feedback of no round; what arms would have earned takes its place."""
  zeros = jnp.zeros_like(lengths)
  nothing = zeros.astype(jnp.float32)
  return base.Feedback(
    arm=zeros,
    emitted=nothing,
    overlap=nothing,
    agreement=nothing,
    fidelity=nothing + 1,
    depth=zeros,
    max_depth=int(depths.max()),
    caught_up=zeros,
  )
