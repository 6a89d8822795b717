"""Verifiers: how much of a draft tree is kept."""

import functools

from specjax import base
from specjax import couplings
from specjax import registry
from specjax.verifiers import batch
from specjax.verifiers import block
from specjax.verifiers import lossy
from specjax.verifiers import over_acceptance
from specjax.verifiers import tree_walk

VERIFIERS = {
  'batch': batch.batch,
  'block': block.block,
  'ensemble': tree_walk.ensemble,
  'lossy': lossy.lossy,
  'over_acceptance': over_acceptance.over_acceptance,
  'tree_walk': tree_walk.tree_walk,
}


def default(temperature: float, num_drafts: int = 1) -> str:
  """Returns the name of the verifier that is used if none is asked for.

  The tree walk with the coupling `greedy` at temperature 0, else with `maximal`
  for one chain and with `otm` for more.
  """
  if not temperature:
    return 'greedy'
  return 'maximal' if num_drafts == 1 else 'otm'


def resolve(verifier: str | base.Verifier) -> base.Verifier:
  """Returns a verifier, or the one that a name stands for.

  Args:
    verifier: itself, a name of `VERIFIERS`, or one of `COUPLINGS` for the tree
      walk with that coupling.
  """
  if not isinstance(verifier, str):
    return verifier
  walks = {
    name: functools.partial(tree_walk.tree_walk, name)
    for name in couplings.COUPLINGS
  }
  return registry.lookup(walks | VERIFIERS, 'verifier', verifier)()
