"""A head on the target's features that drafts level by level: EAGLE.

What it has computed of drafted tokens, with its own outputs in place of
features, is thrown away: accepted ones are read again with the target's (EAGLE,
Li et al. 2024).
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp

from specjax import base
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import committed
from specjax.drafters import growth
from specjax.drafters import pairs


@registry.component(example={'bonus_probs': True})
def feature_head(
  head: base.FeatureHead,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  bonus_probs: bool = False,
  stop: base.Stop | None = None,
  chunk: int = committed.CHUNK,
) -> base.Drafter:
  """Builds a drafter of static trees, whose siblings are all different.

  They are drawn without replacement: where there are some, the drafter has
  `own_probs`. At temperature 0 they are the most likely tokens, and only
  `raw_probs` are there. A prompt of one token gets no draft in the first round,
  as nothing is known of it yet.

  Args:
    head: on the target's features.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; the same as the target's, usually.
    bonus_probs: compute also the probabilities at the bonus positions, for one
      more call of the head.
    stop: where not to draft on, one of `STOPS`, as of `autoregressive`.
    chunk: pairs a call with which a head that was not played catches up.

  Returns:
    The drafter; its state is the head's cache.
  """
  distinct = topology.width > 1
  plan = _Plan(
    pairs.reading(head, topology.depth, chunk),
    growth.Growth(
      topology,
      sampling,
      growth.read_depth(topology, bonus_probs),
      bonus_probs,
      stop,
      distinct,
      inner=True,
    ),
  )
  reading = plan.reading
  return base.Drafter(
    topology=topology,
    init=functools.partial(pairs.init, reading),
    draft=functools.partial(_draft, plan),
    commit=functools.partial(pairs.commit, reading),
    catch_up=pairs.catch_up(reading),
    estimate=functools.partial(
      pairs.estimate, reading, sampling, growth.num_chosen(plan.growth)
    ),
    slot=base.StateSlot(reading, 0),
    taps=head.taps,
    feature_size=head.feature_size,
    num_calls=1 + plan.growth.read_depth,
    vocab_size=head.vocab_size,
    partial=stop is not None,
    own_probs=distinct and sampling.temperature > 0,
    distinct=distinct,
    greedy=not sampling.temperature,
    max_length=head.max_length,
  )


class _Plan(NamedTuple):
  """What is read, and what is drafted."""

  reading: pairs.Reading
  growth: growth.Growth


def _draft(plan: _Plan, keys, params, cache, context):
  """Reads the tail; the output of its last pair is behind the root."""
  num = pairs.num_pairs(context)
  depth = plan.growth.topology.depth
  tail = pairs.read_tail(plan.reading, depth, params, cache, context)
  root = _predict(plan, params, tail.behind)
  read = functools.partial(_read_level, plan, params, cache, num, tail.seen)
  tree, _ = growth.grow(plan.growth, read, keys, root, tail.pending, num > 0)
  return tree, tail.pending


def _predict(plan: _Plan, params, outputs):
  logits = plan.reading.head.predict(params, outputs)
  return growth.predict(plan.growth, logits, outputs)


def _read_level(plan: _Plan, params, cache, num, seen, depth, tokens, at,
                pending):  # fmt: skip
  """Reads the nodes of a level, each with the output that it was drawn from."""
  positions = jnp.broadcast_to(num[:, None] + depth, tokens.shape)
  outputs, pending = plan.reading.head.extend(
    params,
    cache,
    tokens,
    at.outputs,
    pending_kv=pending,
    positions=positions,
    mask=growth.level_mask(plan.growth, depth, seen),
  )
  return _predict(plan, params, outputs), pending
