"""Evaluation: how good texts are, and how likely a model finds them."""

from specjax.evaluation import bleu
from specjax.evaluation import exact_match
from specjax.evaluation import final_number
from specjax.evaluation import rouge

# `factory(...) -> scoring.Metric`; all scores are in percent.
METRICS = {
  'bleu': bleu.bleu,
  'exact_match': exact_match.exact_match,
  'final_number': final_number.final_number,
  'rouge1': rouge.rouge1,
  'rouge2': rouge.rouge2,
  'rougeL': rouge.rouge_l,
}
