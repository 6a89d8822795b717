"""Verifiers: how much of a draft tree is kept."""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from specjax import base
from specjax import couplings
from specjax import registry
from specjax.verifiers.batch import Batch
from specjax.verifiers.block import Block
from specjax.verifiers.cactus import Cactus
from specjax.verifiers.lossy import Lossy
from specjax.verifiers.over_acceptance import OverAcceptance
from specjax.verifiers.traversal import Traversal
from specjax.verifiers.walks import Distinct
from specjax.verifiers.walks import Ensemble
from specjax.verifiers.walks import TreeWalk

__all__ = [
  'Batch',
  'Block',
  'Cactus',
  'Distinct',
  'Ensemble',
  'Lossy',
  'OverAcceptance',
  'Traversal',
  'TreeWalk',
  'VERIFIERS',
  'default',
  'factories',
  'resolve',
]

VERIFIERS: dict[str, Callable[..., base.Verifier]] = {
  'batch': Batch,
  'block': Block,
  'cactus': Cactus,
  'distinct': Distinct,
  'ensemble': Ensemble,
  'lossy': Lossy,
  'over_acceptance': OverAcceptance,
  'traversal': Traversal,
  'tree_walk': TreeWalk,
}

_FACTORIES = collections.ChainMap[str, Any](
  VERIFIERS, couplings.COUPLINGS, couplings.DISTINCT_COUPLINGS
)


def default(
  temperature: float,
  num_drafts: int = 1,
  siblings: base.Siblings = base.Siblings.IID,
) -> str:
  """Returns the name of the verifier that is used if none is given.

  The tree walk with the coupling `greedy` at temperature 0, else with `maximal`
  for one chain and with `otm` for more; `ensemble` for siblings that `otm` does
  not accept.
  """
  if not temperature:
    return 'greedy'
  if not couplings.OTM().accepts(siblings):
    return 'ensemble'
  return 'maximal' if num_drafts <= 1 else 'otm'


def factories() -> Mapping[str, Callable[..., base.Verifier | base.Coupling]]:
  """Returns the classes of all that `resolve` accepts, by name.

  They are those of `VERIFIERS`, `COUPLINGS` and `DISTINCT_COUPLINGS`.
  """
  return _FACTORIES


def resolve(
  verifier: str | base.Verifier | base.Coupling,
) -> base.Verifier:
  """Returns a verifier, from a name or from a coupling.

  Args:
    verifier: a verifier; a coupling, which stands for the tree walk with it; or
      a name of `factories`, which stands for either without arguments.

  Raises:
    ValueError: there is no such verifier.
  """
  if isinstance(verifier, str):
    verifier = registry.lookup(factories(), 'verifier', verifier)()
  if isinstance(verifier, base.Coupling):
    return TreeWalk(verifier)
  if not isinstance(verifier, base.Verifier):
    raise ValueError(
      f'verifier must be a Verifier, a Coupling or a name, got {verifier!r}.'
    )
  return verifier
