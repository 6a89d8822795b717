"""The decode loop: one round, its state, four drivers and a host interface."""

from specjax.decoding.decoder import Decoder
from specjax.decoding.decoder import speculative
from specjax.decoding.drivers import decode
from specjax.decoding.drivers import stream
from specjax.decoding.drivers import throughput_learner
from specjax.decoding.drivers import trace
from specjax.decoding.results import Piece
from specjax.decoding.results import Result
from specjax.decoding.results import check_flags
from specjax.decoding.results import pieces
from specjax.decoding.round import Round
from specjax.decoding.round import make_round
from specjax.decoding.state import Counters
from specjax.decoding.state import DecodeState
from specjax.decoding.state import Params
from specjax.decoding.timing import CostTable
from specjax.decoding.timing import measure_costs

__all__ = [
  'CostTable',
  'Counters',
  'DecodeState',
  'Decoder',
  'Params',
  'Piece',
  'Result',
  'Round',
  'check_flags',
  'decode',
  'make_round',
  'measure_costs',
  'pieces',
  'speculative',
  'stream',
  'throughput_learner',
  'trace',
]
