"""specjax: a modular JAX/Flax library for speculative decoding.

A component is a class, such as `specjax.couplings.OTM`. Each package has a
table from the names in configs to classes, such as `specjax.COUPLINGS['otm']`.
"""

from specjax import bandits
from specjax import base
from specjax import couplings
from specjax import decoding
from specjax import drafters
from specjax import goals
from specjax import models
from specjax import rewards
from specjax import trees
from specjax import verifiers
from specjax.bandits import BANDITS
from specjax.base import Arm
from specjax.base import Bandit
from specjax.base import Context
from specjax.base import Coupling
from specjax.base import Drafter
from specjax.base import DraftTree
from specjax.base import Flags
from specjax.base import Goal
from specjax.base import LanguageModel
from specjax.base import ModelOutput
from specjax.base import Outcome
from specjax.base import Probs
from specjax.base import RawProbs
from specjax.base import Reward
from specjax.base import RoundInfo
from specjax.base import Siblings
from specjax.base import Verifier
from specjax.couplings import COUPLINGS
from specjax.decoding import CostTable
from specjax.decoding import Decoder
from specjax.decoding import decode
from specjax.decoding import make_round
from specjax.decoding import measure_costs
from specjax.decoding import speculative
from specjax.decoding import stream
from specjax.decoding import trace
from specjax.drafters import DRAFTERS
from specjax.goals import GOALS
from specjax.models import MODELS
from specjax.rewards import REWARDS
from specjax.sampling import Sampling
from specjax.trees import Topology
from specjax.verifiers import VERIFIERS

__all__ = [
  'Arm',
  'BANDITS',
  'Bandit',
  'COUPLINGS',
  'Context',
  'CostTable',
  'Coupling',
  'DRAFTERS',
  'Decoder',
  'DraftTree',
  'Drafter',
  'Flags',
  'GOALS',
  'Goal',
  'LanguageModel',
  'MODELS',
  'ModelOutput',
  'Outcome',
  'Probs',
  'REWARDS',
  'RawProbs',
  'Reward',
  'RoundInfo',
  'Sampling',
  'Siblings',
  'Topology',
  'VERIFIERS',
  'Verifier',
  'bandits',
  'base',
  'couplings',
  'decode',
  'decoding',
  'drafters',
  'goals',
  'make_round',
  'measure_costs',
  'models',
  'rewards',
  'speculative',
  'stream',
  'trace',
  'trees',
  'verifiers',
]

__version__ = '0.1.0'
