"""Checks of verifiers, lossless or not."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax import verifiers
from specjax.testing import building
from specjax.testing import values

# Trees that the library's verifiers accept in addition to chains.
TOPOLOGIES: dict[building.Constructor, Sequence[trees.Topology]] = {
  **dict.fromkeys(
    building.library_entries(verifiers.VERIFIERS),
    (trees.chains(2, 2), trees.prefix_tree((2, 2))),
  ),
  verifiers.Batch: (trees.chains(2, 2),),
}

# Sizes of the trees from `random_trees`.
NUM_TREES, VOCAB_SIZE = 64, 5


def check_verifier(
  verifier_class: building.Constructor,
  /,
  topologies: Sequence[trees.Topology] | None = None,
  **options: Any,
) -> None:
  """Checks a class of verifiers.

  It must verify chains and the given topologies; it may refuse all other trees,
  in a sentence that names the tree. The kept nodes must be a path of valid
  nodes down from the root, and the tokens must spell it. Equal arguments must
  make equal verifiers. For the distribution, see `check_lossless`.

  Args:
    verifier_class: the class; it need not be in a table.
    topologies: trees that it accepts in addition to chains; it must refuse all
      other trees. By default, those of the library's verifiers are known, and
      other verifiers may accept or refuse any tree.
    **options: arguments of the verifier.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(verifier_class):
    building.check_documented(verifier_class)
    arguments = building.arguments(verifier_class, {}, options)
    if topologies is None:
      topologies = TOPOLOGIES.get(verifier_class)
    values.check_component(verifier_class, arguments)
    _check(verifier_class(**arguments), topologies)


def _check(
  verifier: base.Verifier, topologies: Sequence[trees.Topology] | None
) -> None:
  """Checks a verifier."""
  accepted = [trees.chain(0), trees.chain(2), *(topologies or [])]
  candidates = [*accepted, trees.chains(2, 2), trees.prefix_tree((2, 2))]
  keys, verified = jax.random.split(jax.random.key(0), NUM_TREES), []
  verify = jax.jit(jax.vmap(verifier))
  for topology in dict.fromkeys(candidates):
    case = random_trees(topology)
    try:
      outcome = jax.eval_shape(verify, keys, *case)
    except ValueError as error:
      _check_refusal(topology, topology in accepted, str(error))
      continue
    building.require(
      topologies is None or topology in accepted,
      f'{topology} must be refused, or be in topologies.',
    )
    _check_types(topology, outcome)
    verified.append(case)
  for case in verified:
    _check_outcome(case[0], jax.device_get(verify(keys, *case)))


def _check_refusal(
  topology: trees.Topology, must_accept: bool, message: str
) -> None:
  """Checks that a refusal is allowed, and that its error names the tree."""
  building.require(
    not must_accept, f'{topology} must be accepted, got: {message}'
  )
  end = f'got a tree with parents {topology.parents}.'
  building.require(
    message.endswith(end),
    f'A refusal must be a sentence, "... {end}", got: {message}',
  )


def random_trees(topology: trees.Topology) -> tuple[base.DraftTree, jax.Array]:
  """Returns random trees, with a tenth of the nodes invalid, and target_probs.

  Args:
    topology: topology of the trees.
  """
  num, rng = topology.num_nodes, np.random.default_rng(4)
  shape = NUM_TREES, num + 1
  draft, target = rng.dirichlet(np.ones(VOCAB_SIZE), size=(2, *shape))
  parents = np.array(topology.parents, np.int32) + 1
  tree = base.DraftTree(
    tokens=jnp.asarray(
      rng.integers(VOCAB_SIZE, size=(NUM_TREES, num)), jnp.int32
    ),
    topology=topology,
    valid=jnp.asarray(rng.random((NUM_TREES, num)) < 0.9),
    probs=jnp.asarray(draft[:, parents], jnp.float32),
  )
  return tree, jnp.asarray(target, jnp.float32)


def _check_types(topology: trees.Topology, outcome: base.Outcome) -> None:
  """Checks shapes and types of outcomes."""
  shapes = (topology.depth,), (), (topology.depth + 1,)
  for leaf, shape in zip(outcome, shapes, strict=True):
    building.require(
      building.is_like(leaf, (NUM_TREES, *shape), jnp.int32),
      f'All fields of an outcome must match the depth, {shape} int32 for one '
      f'row, got {building.abstract(leaf)} for {NUM_TREES} rows.',
    )


def _check_outcome(tree: base.DraftTree, outcome: base.Outcome) -> None:
  """Checks that paths are valid nodes, and that their tokens are emitted."""
  topology = tree.topology
  assert isinstance(topology, trees.Topology)
  tokens, valid = np.asarray(tree.tokens), np.asarray(tree.valid)
  for row, (path, num, emitted) in enumerate(zip(*outcome)):
    building.require(
      0 <= num <= topology.depth,
      f'num_accepted must lie in [0, {topology.depth}], the depth, got {num}.',
    )
    is_inside = (0 <= emitted) & (emitted < VOCAB_SIZE)
    building.require(
      is_inside[: num + 1].all(), 'Emitted tokens must be in the vocabulary.'
    )
    for level, node in enumerate(path[:num]):
      nodes = np.flatnonzero(topology.mask[node + 1])[1:] - 1
      building.require(
        valid[row, nodes].all(), 'All accepted nodes must be valid.'
      )
      building.require(
        tokens[row, nodes].tolist() == emitted[: level + 1].tolist(),
        'The tokens of the accepted path must be emitted.',
      )
