"""A decoder of one draft model, the common case."""

from typing import Any

from specjax import base
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import decoder


def speculative(
  target: base.LanguageModel,
  target_params: base.Params,
  draft: base.LanguageModel | None,
  draft_params: base.Params = None,
  *,
  draft_length: int = 4,
  num_drafts: int = 1,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  verifier: str | base.Verifier | None = None,
  goal: base.Goal | None = None,
  **options: Any,
) -> decoder.Decoder:
  """Builds a decoder with one drafter of one or more i.i.d. chains.

  Args:
    target: the model to sample from.
    target_params: its parameters.
    draft: the small model, of the same vocabulary; None decodes plainly.
    draft_params: its parameters.
    draft_length: tokens of each chain, at least 1.
    num_drafts: chains drafted a round, at least 1.
    sampling: how draft and target tokens are drawn.
    verifier: one, or a name as in `verifiers.resolve`; by default that of
      `verifiers.default`.
    goal: what is sampled instead of the target, such as one of `GOALS`; the
      drafter is then asked for its probabilities at the bonus position, too.
    **options: of `Decoder`.

  Raises:
    ValueError: the vocabularies differ, or a number is out of range.
  """
  if verifier is None:
    # At temperature 0, a goal may be no one-hot distribution.
    temperature = sampling.temperature if goal is None else 1.0
    verifier = verifiers.default(temperature, num_drafts)
  if draft is None:
    drafter = drafters.DRAFTERS['none']()
  else:
    for name, value in (
      ('draft_length', draft_length),
      ('num_drafts', num_drafts),
    ):
      if value < 1:
        raise ValueError(f'{name} must be >= 1, got {value}.')
    drafter = drafters.DRAFTERS['autoregressive'](
      draft,
      trees.chains(num_drafts, draft_length),
      sampling,
      bonus_probs=goal is not None,
    )
  arm = base.Arm(drafter, verifiers.resolve(verifier), goal)
  return decoder.Decoder(
    target, target_params, [(arm, draft_params)], sampling=sampling, **options
  )
