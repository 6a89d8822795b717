"""Components that are complete, but needed by few.

The rule for inclusion is optax's: what is here is complete, tested and
documented like the rest of the library, but its interface may change in any
version, without a promise of stability. What many come to use moves out of
here; what nobody maintains is deleted.

The tables of the library name the entries of this package, so that a config or
a checkpoint finds them; nothing else depends on it.
"""

from specjax.contrib.encoder_decoder_config import EncoderDecoderConfig
from specjax.contrib.example_pairs import PairBatch

__all__ = ['EncoderDecoderConfig', 'PairBatch']
