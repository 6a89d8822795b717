"""Sizes of buffers that XLA neither pads nor copies."""

# On TPUs and GPUs, XLA pads and copies a KV cache in every round unless its
# number of slots is a multiple of this.
_TILE = 32


def round_up_slots(size: int) -> int:
  """Returns the number of slots of a KV cache that holds `size` tokens."""
  return -(-size // _TILE) * _TILE
