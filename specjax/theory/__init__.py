"""Exact expectations and bounds: rejections, acceptance, bias and regret."""

from specjax.theory import constant
from specjax.theory import pareto
from specjax.theory import regret
from specjax.theory.best_chains import best_accepted
from specjax.theory.best_chains import best_transport
from specjax.theory.best_tree import best_tree
from specjax.theory.best_tree import kept_tokens
from specjax.theory.bias import Ledger
from specjax.theory.bias import ledger
from specjax.theory.chains import RULES
from specjax.theory.chains import acceptance_by_depth
from specjax.theory.diagnosis import Diagnosis
from specjax.theory.diagnosis import diagnose
from specjax.theory.improvement import batch_improvement
from specjax.theory.rejections import batch_expected_rejections
from specjax.theory.rejections import expected_rejections
from specjax.theory.shared_noise import shared_noise_acceptance
from specjax.theory.simulation import simulate
from specjax.theory.spectr_gbv import spectr_gbv_acceptance
from specjax.theory.temperatures import TemperatureSums
from specjax.theory.temperatures import temperature_sums

__all__ = [
  'RULES',
  'Diagnosis',
  'Ledger',
  'TemperatureSums',
  'acceptance_by_depth',
  'batch_expected_rejections',
  'batch_improvement',
  'best_accepted',
  'best_transport',
  'best_tree',
  'constant',
  'diagnose',
  'expected_rejections',
  'kept_tokens',
  'ledger',
  'pareto',
  'regret',
  'shared_noise_acceptance',
  'simulate',
  'spectr_gbv_acceptance',
  'temperature_sums',
]
