"""Metrics of text: values of their libraries, cases by hand, bad input."""

import inspect
import itertools
import subprocess
import sys

import numpy as np
import pytest
from rouge_score import rouge_scorer
from sacrebleu import metrics as sacrebleu

from specjax import evaluation
from specjax import registry
from specjax.evaluation import scoring

_REFERENCES = [
  "The cats were sleeping on the mat, weren't they?",
  'A dog barks at the running cats all night long.',
  'Yes.',
  'He paid $3,000 for 12 old chairs.',
]
_PREDICTIONS = [
  'The cat was sleeping on the mat.',
  'Now a dog barked at the running cat all night long, they say.',
  'Yes.',
  '',
]
_CHINESE = ['我今天去学校上课。'], ['今天我去学校上课了。']


def _scores(name, predictions, references, **options):
  return evaluation.METRICS[name](**options)(predictions, references)


@pytest.mark.parametrize(
  ('tokenize', 'texts'),
  [
    ('13a', (_PREDICTIONS, _REFERENCES)),
    ('none', (_PREDICTIONS, _REFERENCES)),
    ('13a', (['a cat', 'no'], ['a cat', 'yes'])),  # Without 4 words in a row.
    ('zh', _CHINESE),
    ('char', _CHINESE),
  ],
)
def test_bleu_is_that_of_the_library(tokenize, texts):
  """Of the corpus, and of each sentence with effective order."""
  predictions, references = texts
  got = _scores('bleu', predictions, references, tokenize=tokenize)
  corpus = sacrebleu.BLEU(tokenize=tokenize)
  expected = corpus.corpus_score(predictions, [references]).score
  assert got.total == pytest.approx(expected, abs=1e-9)
  sentence = sacrebleu.BLEU(tokenize=tokenize, effective_order=True)
  expected = [
    sentence.sentence_score(prediction, [reference]).score
    for prediction, reference in zip(predictions, references)
  ]
  np.testing.assert_allclose(got.examples, expected, atol=1e-9)
  assert max(expected) > 1


def test_the_default_of_bleu_is_not_any_tokenisation():
  """Or the test above would say nothing of `tokenize`."""
  default = _scores('bleu', _PREDICTIONS, _REFERENCES)
  for tokenize, same in [('13a', True), ('none', False), ('char', False)]:
    other = _scores('bleu', _PREDICTIONS, _REFERENCES, tokenize=tokenize)
    assert (default.total == other.total) == same


@pytest.mark.parametrize('use_stemmer', [True, False])
@pytest.mark.parametrize('name', ['rouge1', 'rouge2', 'rougeL'])
def test_rouge_is_the_f_measure_of_the_library(name, use_stemmer):
  """Precision and recall differ: a swap or another of the three would show."""
  got = _scores(name, _PREDICTIONS, _REFERENCES, use_stemmer=use_stemmer)
  scorer = rouge_scorer.RougeScorer([name], use_stemmer=use_stemmer)
  expected = [
    100 * scorer.score(reference, prediction)[name].fmeasure
    for prediction, reference in zip(_PREDICTIONS, _REFERENCES)
  ]
  np.testing.assert_allclose(got.examples, expected, atol=1e-9)
  assert got.total == pytest.approx(np.mean(expected))


def test_rouge_stems_by_default():
  stemmed = _scores('rouge1', ['cats barked'], ['cat barking'])
  assert stemmed.total == pytest.approx(100)
  assert _scores('rouge1', ['cats'], ['cat'], use_stemmer=False).total == 0


@pytest.mark.parametrize(
  ('prediction', 'reference', 'right'),
  [
    ('The Beatles!', 'beatles', True),
    ('  an  old\tman ', 'Old man.', True),
    ('1388', '1,388', True),
    ('theatre', 'atre', False),  # Articles are words.
    ('Theatre', 'the atre', False),
    ('Writer, Poet', 'Writer', False),
    ('', 'Writer', False),
    ('Ergänzungsschulen', 'ergänzungsschulen', True),
    ('a+', 'A+', True),  # What normalises to nothing.
    ('', 'A+', False),
    ('the', '---', False),
    ('A', 'The', False),
    ('(A).', 'A', True),
    ('A+', 'A', False),
    ('A poet', 'Writer\nPoet', True),  # Accepted answers are lines.
    ('writer poet', 'Writer\nPoet', False),
    ('', 'Writer\n\nPoet', False),
  ],
)
def test_exact_match_by_hand(prediction, reference, right):
  got = _scores('exact_match', [prediction], [reference])
  assert got.total == got.examples[0] == 100 * right


@pytest.mark.parametrize(
  ('prediction', 'right'),
  [
    ('It was the Old Man, who else?', True),
    ('It was an older man.', False),
    ('He was a bold man.', False),  # Whole words.
    ('The old mane was cut.', False),
    ('old-fashioned man', False),
    ('Man, old', False),
    ('Some fellow', True),
    ('', False),
  ],
)
def test_an_answer_may_stand_anywhere(prediction, right):
  texts = [prediction], ['The old man\nfellow']
  assert _scores('exact_match', *texts, anywhere=True).total == 100 * right
  assert _scores('exact_match', *texts).total == 0


@pytest.mark.parametrize(
  ('prediction', 'reference', 'right'),
  [
    ('The answer is A.', 'A', True),
    ('The answer is B.', 'A', False),
    ('She had an A+, he says.', 'A+', True),
    ('She had an A.', 'A+', False),
  ],
)
def test_an_answer_may_be_an_article(prediction, reference, right):
  texts = [prediction], [reference]
  assert _scores('exact_match', *texts, anywhere=True).total == 100 * right


@pytest.mark.parametrize(
  ('prediction', 'reference', 'right'),
  [
    ('40+30=<<40+30=70>>70 coins\n#### 70', 'so\n#### 70', True),
    ('#### 70\nQuestion: 1 + 1?\n#### 2', '#### 70', True),  # It ran on.
    ('#### 7\n70', '#### 70', False),
    ('It is 3, so the answer is 70.', '#### 70', True),
    ('70 of 3', '#### 70', False),
    ('It costs $8,000.', '#### 8000', True),
    ('#### $8000.00', '#### 8,000', True),
    ('5 is all. ####', '#### 5', True),  # Nothing stands behind the mark.
    ('#### -3', '#### -3', True),
    ('#### Step 1\nSo it is 42.', '#### 42', True),  # A heading.
    (r'\boxed{1{,}000}', '#### 1,000', True),
    ('it falls by −$3', '#### -3', True),
    ('#### 3', '#### -3', False),
    ('10-3', '#### 3', True),  # A difference, or a range.
    ('.5', '#### 0.50', True),
    ('1,2', '#### 2', True),  # Not a comma between thousands.
    ('8,0000', '#### 80000', False),
    ('2.50.', '#### 2.5', True),
    ('2.5', '#### 25', False),
    ('9' * 5000, '#### 9', False),
    ('none', '#### 0', False),
    ('', '#### 0', False),
  ],
)
def test_final_number_by_hand(prediction, reference, right):
  got = _scores('final_number', [prediction], [reference])
  assert got.total == got.examples[0] == 100 * right


@pytest.mark.parametrize('name', evaluation.METRICS)
def test_a_perfect_prediction_has_100_percent_and_totals_are_of_all(name):
  """The unit is one everywhere."""
  texts = ['He paid 3 for all of the chairs.', 'She sold 12 of them at noon.']
  perfect = _scores(name, texts, texts)
  assert perfect.total == pytest.approx(100)
  np.testing.assert_allclose(perfect.examples, [100, 100])
  half = _scores(name, [texts[0], 'no'], texts)
  assert 0 < half.total < 100 and half.examples[1] == 0


@pytest.mark.parametrize('name', ['bleu', 'final_number', 'rouge2'])
def test_standard_errors_are_those_of_all_resamples(name):
  """Of 3 examples there are 27 resamples, scored from their texts.

  With 8,000 of them drawn, a standard deviation has a relative error of about
  1%. Drawing 2 or 4 examples instead of 3 is off by more than 10%, and so is
  the mean of `each` instead of corpus BLEU.
  """
  texts = [
    ('It was 1 of the old men at sea.', 'It was 1 of the old men at the sea.'),
    ('So 2 dogs and cats play', 'So 3 dogs and 4 cats play here all day long'),
    ('The rain fell for 7 days.', 'The rain has been falling for 7 days.'),
  ]
  metric = evaluation.METRICS[name]()
  totals = [
    metric(*zip(*resample)).total
    for resample in itertools.product(texts, repeat=3)
  ]
  args = metric, *zip(*texts)
  got = scoring.standard_error(*args, seed=0, resamples=8000)
  assert got == pytest.approx(np.std(totals), rel=0.05)
  again = [
    scoring.standard_error(*args, seed=s, resamples=9) for s in (0, 0, 1)
  ]
  assert again[0] == again[1] != again[2]
  if name == 'bleu':
    mean_of_each = np.std(metric(*zip(*texts)).examples) / 3**0.5
    assert mean_of_each != pytest.approx(np.std(totals), rel=0.1)


@pytest.mark.parametrize('name', evaluation.METRICS)
@pytest.mark.parametrize(
  ('predictions', 'references', 'message'),
  [
    (
      ['1'],
      ['1', '2'],
      r'predictions must have as many entries as references \(2\)',
    ),
    ([], [], 'predictions must not be empty'),
    (['1', '1'], ['1', ' \n'], r'references\[1\] must not be blank'),
    ([None], ['1'], r'predictions\[0\] must be a string, got None'),
    ('1', ['1'], "predictions must be a list of strings, got '1'"),
  ],
)
def test_bad_texts_are_refused(name, predictions, references, message):
  metric = evaluation.METRICS[name]()
  with pytest.raises(ValueError, match=message):
    metric(predictions, references)
  with pytest.raises(ValueError, match=message):
    scoring.standard_error(metric, predictions, references, seed=0)


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (lambda: registry.lookup(evaluation.METRICS, 'metric', 'rouge'), 'rougeL'),
    (lambda: _scores('bleu', ['a'], ['a'], tokenize='14'), "13a.*got '14'"),
    (lambda: _scores('bleu', ['a'], ['a'], tokenize=None), 'got None'),
    (
      lambda: _scores('final_number', ['1'], ['one']),
      "references must contain numbers, got 'one'",
    ),
    (lambda: _standard_error(['1'], 9), 'number of predictions must be >= 2'),
    (lambda: _standard_error(['1', '2'], 1), 'resamples must be >= 2, got 1'),
  ],
)
def test_bad_options_are_refused(call, message):
  with pytest.raises(ValueError, match=message):
    call()


def _standard_error(texts, resamples):
  metric = evaluation.METRICS['exact_match']()
  return scoring.standard_error(metric, texts, texts, 0, resamples)


@pytest.mark.parametrize(
  ('name', 'module'),
  [('bleu', 'sacrebleu.metrics'), ('rouge1', 'rouge_score.rouge_scorer')],
)
def test_a_missing_package_is_told_by_the_factory(name, module, monkeypatch):
  monkeypatch.setitem(sys.modules, module, None)
  package = module.split('.')[0]
  message = f"'{name}' needs .*{package}: pip install 'specjax\\[evaluation\\]'"
  with pytest.raises(ValueError, match=message):
    evaluation.METRICS[name]()


def test_other_metrics_do_without_the_packages():
  """In a process of its own, where nothing has imported them yet."""
  code = inspect.cleandoc("""
    import sys
    sys.modules['sacrebleu'] = sys.modules['rouge_score'] = None
    from specjax import evaluation
    for name in ('exact_match', 'final_number'):
      assert evaluation.METRICS[name]()(['1'], ['1']).total == 100
  """)
  subprocess.run([sys.executable, '-c', code], check=True)
