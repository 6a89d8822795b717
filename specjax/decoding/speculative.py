"""A decoder of one draft model or head, the common case."""

from typing import Any

from specjax import base
from specjax import checks
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import decoder


def speculative(
  target: base.LanguageModel,
  target_params: base.Params,
  draft: base.LanguageModel | base.FeatureHead | base.ParallelHead | None,
  draft_params: base.Params = None,
  *,
  draft_length: int = 4,
  num_drafts: int = 1,
  tree: trees.Topology | None = None,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  verifier: str | base.Verifier | base.Coupling | None = None,
  goal: base.Goal | None = None,
  **options: Any,
) -> decoder.Decoder:
  """Builds a decoder with one drafter of static trees: chains, by default.

  Args:
    target: the model to sample from.
    target_params: its parameters.
    draft: the small model, of the same vocabulary, or a head on the target's
      features; None decodes plainly.
    draft_params: its parameters.
    draft_length: tokens of each chain, at least 1.
    num_drafts: chains drafted a round, at least 1.
    tree: what is drafted instead of chains.
    sampling: how draft and target tokens are drawn.
    verifier: a verifier, a coupling or a name, as in `verifiers.resolve`; by
      default that of `verifiers.default`.
    goal: what is sampled instead of the target, such as one of `GOALS`; the
      drafter is then asked for its probabilities at the bonus position, too.
    **options: of `Decoder`.

  Raises:
    ValueError: the vocabularies differ, or a number is out of range.
  """
  checks.check_range('draft_length', draft_length, 1)
  checks.check_range('num_drafts', num_drafts, 1)
  if tree is None:
    tree = trees.chains(num_drafts, draft_length)
  drafter = _drafter(draft, tree, sampling, goal)
  if verifier is None:
    # At temperature 0, a goal may be no one-hot distribution.
    temperature = sampling.temperature if goal is None else 1.0
    verifier = verifiers.default(temperature, tree.width, drafter.own_probs)
  arm = base.Arm(drafter, verifiers.resolve(verifier), goal)
  return decoder.Decoder(
    target, target_params, [(arm, draft_params)], sampling=sampling, **options
  )


def _drafter(draft, tree, sampling, goal):
  """A drafter of any model or head."""
  options = {} if goal is None else {'bonus_probs': True}
  if draft is None:
    return drafters.DRAFTERS['none']()
  if isinstance(draft, base.ParallelHead):
    return drafters.DRAFTERS['medusa'](draft, tree, sampling, **options)
  kind = 'autoregressive'
  if isinstance(draft, base.FeatureHead):
    kind = 'feature_head'
  return drafters.DRAFTERS[kind](draft, tree, sampling, **options)
