"""Checks of arms: whether they fit the target, the bandit and one another."""

from collections.abc import Sequence

from specjax import base
from specjax import checks
from specjax import sampling as sampling_lib
from specjax.goals import apply as goal_lib

# What a bandit learns from: the reward of the selected arm, or of all arms.
_FEEDBACK = ('bandit', 'full')


def check_pairs(arms: Sequence[tuple[base.Arm, base.Params]]) -> None:
  """Raises `ValueError` unless arms come with their parameters."""
  for i, pair in enumerate(arms):
    if (
      not isinstance(pair, tuple | list)
      or len(pair) != 2
      or not isinstance(pair[0], base.Arm)
    ):
      raise ValueError(
        'arms must be pairs of an Arm and the parameters of its drafter, got '
        f'{type(pair).__name__} (arm {i}).'
      )
  check_drafters([arm for arm, _ in arms])


def check_drafters(arms: Sequence[base.Arm]) -> None:
  """Raises `ValueError` unless all arms have drafters."""
  for i, arm in enumerate(arms):
    if not isinstance(arm.drafter, base.Drafter):
      raise ValueError(
        'drafter must be a Drafter, such as those of DRAFTERS, got '
        f'{type(arm.drafter).__name__} (arm {i}).'
      )


def check_bandit(
  arms: Sequence[base.Arm], bandit: base.Bandit, feedback: str
) -> None:
  """Raises `ValueError` unless a bandit can select among the arms."""
  if not arms:
    raise ValueError('arms must hold at least one arm, got none.')
  if not isinstance(bandit, base.Bandit):
    raise ValueError(
      f'bandit must be a Bandit, such as those of BANDITS, got {bandit!r}.'
    )
  if bandit.num_arms != len(arms):
    raise ValueError(
      f'bandit must select among the {len(arms)} arms of the round, got one '
      f'with num_arms={bandit.num_arms}.'
    )
  _check_depths('bandit', bandit.arm_depths, arms)
  if feedback not in _FEEDBACK:
    raise ValueError(f'feedback must be one of {_FEEDBACK}, got {feedback!r}.')
  if bandit.needs_all_rewards and feedback != 'full':
    raise ValueError(
      f"{type(bandit).__name__} needs feedback 'full', since it learns the "
      f'rewards of all arms, got {feedback!r}.'
    )


def check_reward(
  arms: Sequence[base.Arm], reward: base.Reward | None, feedback: str
) -> None:
  """Raises `ValueError` unless a reward is one for rounds of the arms."""
  if reward is None:
    if feedback == 'full':
      raise ValueError(
        "feedback 'full' needs a reward, since measured time is known for the "
        'selected arm only, got None.'
      )
    return
  if not isinstance(reward, base.Reward):
    raise ValueError(
      f'reward must be a Reward, such as those of REWARDS, got {reward!r}.'
    )
  _check_depths('reward', reward.arm_depths, arms)


def _check_depths(
  name: str, depths: Sequence[int] | None, arms: Sequence[base.Arm]
) -> None:
  """Raises `ValueError` if a table has other depths than the arms' trees."""
  if depths is None or not checks.is_known(depths):
    return
  given = tuple(map(int, depths))
  expected = tuple(arm.drafter.topology.depth for arm in arms)
  if given != expected:
    raise ValueError(
      f"{name} must have the depths of the arms' trees, {expected}, got "
      f'{given}.'
    )


def check_arms(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  feedback: str,
  sampling: sampling_lib.Sampling,
) -> None:
  """Raises `ValueError` unless arms fit the target and their own verifiers."""
  for i, arm in enumerate(arms):
    if not isinstance(arm.verifier, base.Verifier):
      raise ValueError(
        'verifier must be a Verifier, such as those of VERIFIERS, got '
        f'{arm.verifier!r} (arm {i}).'
      )
    goal_lib.check(arm.goal, target.vocab_size)
    if arm.drafter.vocab_size not in (None, target.vocab_size):
      raise ValueError(
        'Draft and target must share a vocabulary, got vocab_size '
        f'{arm.drafter.vocab_size} and {target.vocab_size} (arm {i}).'
      )
    if sampling.shared_noise:
      _check_shared_noise(i, arm, feedback)
    if not sampling.chooses or _samples_goal(arm, target.vocab_size):
      _check_verifier(i, arm)
    if feedback == 'full':
      _check_full_feedback(i, arm)


def _check_shared_noise(i: int, arm: base.Arm, feedback: str) -> None:
  """Raises `ValueError` if an arm does not fit a target with shared noise."""
  if arm.goal is not None:
    raise ValueError(
      'shared_noise needs arms whose goal is the target, since the text would '
      f'depend on the drafter, got another goal (arm {i}).'
    )
  if not arm.verifier.is_lossless:
    raise ValueError(
      'shared_noise needs lossless verifiers, since the text would depend on '
      f'the drafter, got {arm.verifier} (arm {i}).'
    )
  if feedback == 'full':
    raise ValueError(
      "shared_noise needs feedback 'bandit', since estimates of acceptance are "
      "those of independent draws, got 'full'."
    )


def _samples_goal(arm: base.Arm, vocab_size: int) -> bool:
  """Returns whether an arm's tokens are drawn even if the target is greedy."""
  return arm.goal is not None and not goal_lib.is_one_hot(
    arm.goal, vocab_size, arm.drafter.greedy
  )


def _check_verifier(i: int, arm: base.Arm) -> None:
  """Raises `ValueError` unless a verifier is exact where tokens are drawn."""
  verifier, drafter = arm.verifier, arm.drafter
  if verifier.is_greedy:
    raise ValueError(
      "The verifier 'greedy' picks the most likely token, which is exact only "
      'at temperature 0 and for a goal that is one-hot there; elsewhere use '
      f"another one, such as 'maximal' or 'otm' (arm {i})."
    )
  if verifier.accepts(drafter.siblings) or drafter.topology.width <= 1:
    return
  if not verifier.accepts(base.Siblings.IID):
    raise ValueError(
      f'The verifier {verifier} needs siblings drawn without replacement, all '
      f'different, got a drafter whose siblings may repeat (arm {i}).'
    )
  raise ValueError(
    'Siblings are drawn from different distributions, which needs a verifier '
    f"that takes them, such as 'ensemble', got another one (arm {i})."
  )


def _check_full_feedback(i: int, arm: base.Arm) -> None:
  """Raises `ValueError` if an arm's reward cannot be estimated."""
  if not arm.drafter.can_estimate:
    raise ValueError(
      "feedback 'full' needs drafters that can estimate how likely their "
      f'drafts are accepted, got one that cannot (arm {i}).'
    )
  if arm.drafter.has_stop_rule:
    raise ValueError(
      "feedback 'full' needs drafters without a stop rule, since estimates are "
      f'those of whole drafts, got one with a stop rule (arm {i}).'
    )
  if arm.goal is not None:
    raise ValueError(
      "feedback 'full' needs arms whose goal is the target, since text of "
      'another distribution does not show what the other arms would have '
      f'emitted, got another goal (arm {i}).'
    )
  if not arm.verifier.is_lossless:
    raise ValueError(
      "feedback 'full' needs lossless verifiers, since estimates are those of "
      f'lossless decoding, got {arm.verifier} (arm {i}).'
    )
