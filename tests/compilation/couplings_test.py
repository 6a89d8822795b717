"""What couplings read and write, compiled for accelerators that are not there.

A scatter over the vocabulary goes one by one on a TPU: `otm` with one would
move a thousand times its two distributions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import couplings
from specjax.compilation import devices

BATCH_SIZE, VOCAB_SIZE, NUM_DRAFTS = 32, 32_000, 4


def moved(device, name):
  """Bytes that a coupling moves, over those of its two distributions."""
  (sharding,) = {
    jax.sharding.SingleDeviceSharding(jax_device)
    for jax_device in devices.jax_devices(device)
  }
  shape = lambda *dims, dtype=jnp.float32: jax.ShapeDtypeStruct(
    (BATCH_SIZE, *dims), dtype, sharding=sharding
  )
  sibling_probs = name in couplings.DISTINCT_COUPLINGS
  coupling = (couplings.COUPLINGS | couplings.DISTINCT_COUPLINGS)[name]()
  run = jax.jit(
    jax.vmap(lambda key, *args: coupling(jax.random.wrap_key_data(key), *args))
  )
  traced = run.trace(
    shape(2, dtype=jnp.uint32),
    shape(NUM_DRAFTS, dtype=jnp.int32),
    shape(NUM_DRAFTS, dtype=jnp.bool_),
    shape(*(NUM_DRAFTS,) * sibling_probs, VOCAB_SIZE),
    shape(VOCAB_SIZE),
  )
  lowered = traced.lower(lowering_platforms=(device.platform,))
  with devices.without_flags():
    cost = lowered.compile().cost_analysis()
  read = 2 * 4 * BATCH_SIZE * VOCAB_SIZE
  return np.float64(cost['bytes accessed']) / read


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'most'),
  [
    ('maximal', 12),
    ('kseq', 20),
    ('otm', 60),
    ('kseq_distinct', 78),
    ('otm_distinct', 178),
  ],
)
def test_couplings_go_over_the_vocabulary_few_times(find, name, most):
  assert moved(find('v5e:1x1'), name) <= most
