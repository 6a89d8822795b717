"""What the prompt shows a bandit before the first round: a warm start.

The target reads the prompt anyway. Its probabilities at the prompt's last
tokens, beside those of the drafters, show how likely drafts are accepted there.
"""

import dataclasses

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import sampling as sampling_lib
from specjax.decoding import estimates
from specjax.decoding import learning
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib
from specjax.decoding import turns


@dataclasses.dataclass(frozen=True)
class WarmStart:
  """The step that reads the last tokens of the prompts; a value, like `Round`.

  Attributes:
    plan: the round that comes behind.
    num_tokens: `P`, how many tokens it reads at most.
  """

  plan: round_lib.Round
  num_tokens: int

  def __post_init__(self):
    _check(self.plan, self.num_tokens)

  def __call__(
    self,
    params: state_lib.Params,
    state: state_lib.DecodeState,
    lengths: jax.Array,
  ) -> state_lib.DecodeState:
    """Updates the bandit with what every arm would have earned there.

    Args:
      params: of all models.
      state: which has read all but the last tokens of the prompts, at most `P`.
      lengths: `[B]` of the whole prompts.

    Returns:
      The state, which has read all of them.
    """
    plan, start = self.plan, state.lengths
    assert plan.reward is not None  # As was checked.
    state, logits = turns.read_on(plan, params, state, lengths, self.num_tokens)
    probs = sampling_lib.both_probs(logits, plan.sampling)
    rows = jnp.ones((len(plan.slots.owners), len(start)), bool)
    state, _, chances = round_lib.estimate(
      plan, params, state, rows, base.TargetProbs(start, probs)
    )
    acceptance = jax.tree.map(lambda *each: jnp.stack(each, axis=1), *chances)
    num_read = lengths - start
    known = jnp.arange(self.num_tokens)[None] < num_read[:, None]
    known = jnp.broadcast_to(known[:, None], acceptance.processed.shape)
    history = estimates.remember(state.history, acceptance, known)
    rewards = estimates.rewards(
      plan.reward,
      _no_round(start, state.counters.accepted.shape[1]),
      acceptance,
      known,
      history,
      plan.arms,
      plan.slots.of_arms,
    )
    bandit = learning.update_all(
      plan.bandit, plan.per_row, state.bandit, num_read > 0, rewards
    )
    return state.replace(history=history, bandit=bandit)


def _check(plan: round_lib.Round, num_tokens):
  checks.check_range('warm_start', num_tokens, 1)
  if plan.reward is None:
    raise ValueError(
      f'warm_start={num_tokens} needs a reward to learn from, got none.'
    )
  for wrong, why in (
    (plan.target.start_id is not None, 'an encoder-decoder, which encodes'),
    (any(arm.goal is not None for arm in plan.arms), 'goals but the target'),
    (
      any(arm.drafter.estimate is None for arm in plan.arms),
      'drafters that cannot estimate how likely their drafts are accepted',
    ),
  ):
    if wrong:
      raise ValueError(f'warm_start must be 0 with {why}, got {num_tokens}.')


def _no_round(lengths, depth):
  """The report of no round; what arms would have earned takes its place."""
  zeros = jnp.zeros_like(lengths)
  nothing = zeros.astype(jnp.float32)
  return base.RoundInfo(
    arm=zeros,
    live=zeros == 0,
    tokens=jnp.zeros((len(lengths), depth + 1), jnp.int32),
    num_emitted=zeros,
    num_accepted=zeros,
    depth=zeros,
    tree_depth=zeros,
    acceptance=nothing,
    raw_acceptance=nothing,
    fidelity=nothing + 1,
    num_catch_up_tokens=zeros,
  )
