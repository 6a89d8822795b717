"""Verifiers: how much of a draft tree is kept."""

from collections.abc import Callable
import functools

from specjax import base
from specjax import couplings
from specjax import registry
from specjax.verifiers.batch import batch
from specjax.verifiers.block import block
from specjax.verifiers.lossy import lossy
from specjax.verifiers.over_acceptance import over_acceptance
from specjax.verifiers.walks import TreeWalk
from specjax.verifiers.walks import distinct
from specjax.verifiers.walks import ensemble
from specjax.verifiers.walks import tree_walk

__all__ = [
  'TreeWalk',
  'VERIFIERS',
  'batch',
  'block',
  'default',
  'distinct',
  'factories',
  'ensemble',
  'lossy',
  'over_acceptance',
  'resolve',
  'tree_walk',
]

VERIFIERS: dict[str, Callable[..., base.Verifier]] = {
  'batch': batch,
  'block': block,
  'distinct': distinct,
  'ensemble': ensemble,
  'lossy': lossy,
  'over_acceptance': over_acceptance,
  'tree_walk': tree_walk,
}


def default(
  temperature: float, num_drafts: int = 1, own_probs: bool = False
) -> str:
  """Returns the name of the verifier that is used if none is asked for.

  The tree walk with the coupling `greedy` at temperature 0, else with `maximal`
  for one chain and with `otm` for more; `ensemble` for drafters of `own_probs`.
  """
  if not temperature:
    return 'greedy'
  if own_probs:
    return 'ensemble'
  return 'maximal' if num_drafts <= 1 else 'otm'


def factories() -> dict[str, Callable[..., base.Verifier]]:
  """Returns what all names stand for, by name.

  They are those of `VERIFIERS`, and those of `COUPLINGS` and
  `DISTINCT_COUPLINGS` for the tree walk with that coupling.
  """
  walks = {
    name: functools.partial(walk, name)
    for walk, names in (
      (tree_walk, couplings.COUPLINGS),
      (distinct, couplings.DISTINCT_COUPLINGS),
    )
    for name in names
  }
  return walks | VERIFIERS


def resolve(verifier: str | base.Verifier) -> base.Verifier:
  """Returns a verifier, or the one that a name stands for.

  Args:
    verifier: itself, or a name of `factories`.
  """
  if not isinstance(verifier, str):
    return verifier
  return registry.lookup(factories(), 'verifier', verifier)()
