"""The decode loop: a round, its carry, three drivers and a host's interface."""

from specjax.decoding.decoder import Decoder
from specjax.decoding.drivers import decode
from specjax.decoding.drivers import stream
from specjax.decoding.drivers import throughput_learner
from specjax.decoding.drivers import trace
from specjax.decoding.results import Piece
from specjax.decoding.results import Result
from specjax.decoding.results import pieces
from specjax.decoding.round import Round
from specjax.decoding.round import make_round
from specjax.decoding.speculative import speculative
from specjax.decoding.state import Counters
from specjax.decoding.state import DecodeState
from specjax.decoding.state import Params
from specjax.decoding.state import init

__all__ = [
  'Counters',
  'DecodeState',
  'Decoder',
  'Params',
  'Piece',
  'Result',
  'Round',
  'decode',
  'init',
  'make_round',
  'pieces',
  'speculative',
  'stream',
  'throughput_learner',
  'trace',
]
