"""Verifiers: how much of a draft tree is kept."""

from specjax.verifiers import tree_walk

VERIFIERS = {
  'tree_walk': tree_walk.tree_walk,
}
