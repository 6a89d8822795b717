"""Components for special needs, without a promise of stability.

The rule for inclusion is optax's: components are complete, tested and
documented like the rest of the library, but their interface may change in any
version. Components that become popular move to the library; unmaintained ones
are deleted.

Tables of the library contain the components of this package, so that configs
and checkpoints can use them. Nothing else depends on it.
"""

from specjax.contrib.encoder_decoder_config import EncoderDecoderConfig
from specjax.contrib.example_pairs import PairBatch

__all__ = ['EncoderDecoderConfig', 'PairBatch']
