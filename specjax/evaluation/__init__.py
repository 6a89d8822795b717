"""Evaluation: metrics of generated texts, and likelihoods under a model."""

from collections.abc import Callable

from specjax.evaluation import scoring
from specjax.evaluation.bleu import bleu
from specjax.evaluation.exact_match import exact_match
from specjax.evaluation.final_number import final_number
from specjax.evaluation.rouge import rouge1
from specjax.evaluation.rouge import rouge2
from specjax.evaluation.rouge import rouge_l as rougeL

__all__ = [
  'METRICS',
  'bleu',
  'exact_match',
  'final_number',
  'rouge1',
  'rouge2',
  'rougeL',
]

# Functions that build metrics, whose scores are in percent.
METRICS: dict[str, Callable[..., scoring.Metric]] = {
  'bleu': bleu,
  'exact_match': exact_match,
  'final_number': final_number,
  'rouge1': rouge1,
  'rouge2': rouge2,
  'rougeL': rougeL,
}
