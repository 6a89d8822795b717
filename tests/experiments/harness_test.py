"""Tasks of lm-evaluation-harness in local files."""

import json
import sys
import textwrap

import numpy as np
import pytest

from tests import extras

lm_eval = extras.load('lm_eval')

from lm_eval import tasks  # noqa: E402
from lm_eval.api import instance  # noqa: E402

from experiments import harness  # noqa: E402
from experiments import harness_scores  # noqa: E402
from experiments.tasks import agreement  # noqa: E402
from specjax import families  # noqa: E402
from tests.experiments import toy  # noqa: E402

_SIZES = {'batch_size': 2, 'max_length': 64, 'max_new_tokens': 8}
_TASK = """
  task: toy_{kind}
  dataset_path: json
  dataset_kwargs: {{data_files: {{test: {path}}}}}
  test_split: test
  output_type: {kind}
  doc_to_text: "{{{{prompt}}}}"
  doc_to_target: "{{{{response}}}}"
  {options}
  metric_list:
    - {{metric: {metric}, aggregation: mean, higher_is_better: true}}
"""
_UNTIL = 'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 8}'


def _requests(kind, *args):
  return [instance.Instance(kind, {}, pair, i) for i, pair in enumerate(args)]


def _texts(model, contexts, **options):
  pairs = [(context, options) for context in contexts]
  return model.generate_until(_requests('generate_until', *pairs))


@pytest.fixture(scope='module', name='plain')
def _plain(family):
  return harness.SpecjaxLM(str(family), **_SIZES)


def _evaluate(folder, model_args, kind, **options):
  task = f'toy_{kind}'
  result = lm_eval.simple_evaluate(
    'specjax',
    {**model_args, **_SIZES},
    tasks=[task],
    task_manager=tasks.TaskManager(
      include_path=str(folder), include_defaults=False
    ),
    bootstrap_iters=0,
    **options,
  )
  responses = [s['filtered_resps'] for s in result['samples'][task]]
  return result['results'][task], responses


@pytest.fixture(scope='module', name='task_folder')
def _task_folder(family, plain, tmp_path_factory):
  """Tasks of two questions, the first of which the model answers right."""
  folder = tmp_path_factory.mktemp('tasks')
  contexts = ['a b a b', 'count']
  (answer, _) = _texts(plain, contexts, until=['\n\n'])
  lines = [
    {'prompt': context, 'response': response}
    for context, response in zip(contexts, (answer, 'no such answer'))
  ]
  path = folder / 'toy.jsonl'
  path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  for kind, metric, options in (
    ('generate_until', 'exact_match', _UNTIL),
    ('loglikelihood', 'acc', ''),
  ):
    text = _TASK.format(kind=kind, path=path, metric=metric, options=options)
    (folder / f'{kind}.yaml').write_text(textwrap.dedent(text))
  return folder


@pytest.mark.parametrize(
  'method', ['small:3', 'far:2x2/otm', 'prompt_lookup:4']
)
def test_plain_and_speculative_decoding_have_equal_scores(
  family, task_folder, method
):
  outcomes = [
    _evaluate(task_folder, {'family': str(family), **args}, 'generate_until')
    for args in ({}, {'method': method})
  ]
  assert outcomes[0] == outcomes[1]
  assert outcomes[0][0]['exact_match,none'] == 0.5


def test_likelihoods_are_those_of_the_target(family, task_folder):
  arguments = {'family': str(family), 'method': 'far:4'}
  scores, responses = _evaluate(task_folder, arguments, 'loglikelihood')
  loaded = families.load(family)
  lines = (task_folder / 'toy.jsonl').read_text().splitlines()
  all_greedy = []
  for line, ((nats, is_greedy),) in zip(map(json.loads, lines), responses):
    prompt = loaded.tokenizer.encode_prompt(line['prompt'])
    answer = loaded.tokenizer.encode(line['response'])
    rows = toy.log_probs(loaded.target, prompt, answer)
    expected = sum(row[token] for row, token in zip(rows, answer))
    assert nats == pytest.approx(expected, rel=1e-4)
    all_greedy.append((rows.argmax(axis=1) == answer).all())
    assert is_greedy == all_greedy[-1]
  assert scores['acc,none'] == np.mean(all_greedy)


def test_greedy_continuations_are_found(plain):
  (text,) = _texts(plain, ['a b a b'], max_gen_toks=4)
  pairs = [('a b a b', text), ('a b a b', 'zq')]
  (_, first), (_, second) = plain.loglikelihood(
    _requests('loglikelihood', *pairs)
  )
  assert first and not second


def test_contexts_that_are_too_long_lose_their_first_tokens(plain, family):
  loaded = families.load(family)
  context = ' '.join(['a b'] * 100)
  answer = loaded.tokenizer.encode_after(context, ' b')
  tokens = loaded.tokenizer.encode_prompt(context)
  assert len(tokens) > _SIZES['max_length']
  kept = tokens[len(answer) - _SIZES['max_length'] :]
  rows = toy.log_probs(loaded.target, kept, answer)
  expected = sum(row[token] for row, token in zip(rows, answer))
  requests = _requests('loglikelihood', (context, ' b'))
  ((nats, _),) = plain.loglikelihood(requests)
  assert nats == pytest.approx(expected, rel=1e-4)
  with pytest.raises(ValueError, match='max_length must exceed the'):
    plain.loglikelihood(_requests('loglikelihood', ('a', ' b' * 100)))


def test_windows_score_each_token_once(plain, family):
  """A text of one window, an empty one, and one of several windows."""
  loaded = families.load(family)
  texts = ['a b', '', 'what is it? ' * 40]
  short, empty, long = plain.loglikelihood_rolling(
    _requests('loglikelihood_rolling', *[(text,) for text in texts])
  )
  end = loaded.tokenizer.end_id
  tokens = [end, *loaded.tokenizer.encode(texts[0])]
  rows = toy.log_probs(loaded.target, tokens[:1], tokens[1:])
  expected = sum(row[token] for row, token in zip(rows, tokens[1:]))
  assert short == pytest.approx(expected, rel=1e-4)
  assert empty == 0
  tokens = [end, *loaded.tokenizer.encode(texts[2])]
  width, expected = _SIZES['max_length'] - 1, 0.0
  assert len(tokens) > 2 * width
  for i in range(1, len(tokens)):
    # The window of token `i`: the first one, or the last tokens before it.
    start = 0 if i <= width else i - width
    is_first = i <= width
    if is_first:
      rows = toy.log_probs(loaded.target, tokens[:1], tokens[1 : width + 1])
      expected += rows[i - 1][tokens[i]]
    else:
      last = min(-(-i // width) * width, len(tokens) - 1)
      start = last - width
      window = tokens[start : last + 1]
      rows = toy.log_probs(loaded.target, window[:1], window[1:])
      expected += rows[i - start - 1][tokens[i]]
  assert long == pytest.approx(expected, rel=1e-4)


def test_requests_are_sampled_independently(plain, family):
  options = {'do_sample': True, 'temperature': 1.0, 'top_k': 20}
  texts = _texts(plain, ['count'] * 4, **options)
  assert len(set(texts)) > 1
  assert _texts(plain, ['count'] * 4, **options) == texts
  assert _texts(plain, ['count'] * 2, **options) == texts[:2]
  other = harness.SpecjaxLM(str(family), seed=1, **_SIZES)
  assert _texts(other, ['count'] * 4, **options) != texts


def test_stop_strings_end_a_text(plain):
  (text,) = _texts(plain, ['a b a b'])
  middle = len(text) // 2
  stop = text[middle : middle + 2]
  expected = text[: text.index(stop)]
  assert _texts(plain, ['a b a b'], until=stop) == [expected]
  assert _texts(plain, ['a b a b'], until=['', 'none', stop]) == [expected]


def test_the_first_tokens_of_long_contexts_are_left_out(plain):
  (text,) = _texts(plain, ['count ' * 100])
  assert text == _texts(plain, ['x y z' + 'count ' * 100])[0]


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ({'method': 'huge:4'}, "Unknown drafter 'huge'"),
    ({'batch_size': 'auto'}, "batch_size must be a number, got 'auto'"),
    ({'max_new_tokens': 64, 'max_length': 64}, r'max_new_tokens must lie in'),
    ({'device': 'cuda'}, "device must not be set, got 'cuda'"),
    ({'device': 'cuda:0', 'max_batch_size': 2}, 'max_batch_size must not be'),
  ],
)
def test_wrong_arguments_are_found_before_models_are_loaded(
  family, arguments, message, monkeypatch
):
  monkeypatch.setattr(families, 'load', None)
  with pytest.raises(ValueError, match=message):
    harness.SpecjaxLM(str(family), **arguments)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'num_beams': 4}, "Unknown generation option 'num_beams'"),
    ({'max_gen_toks': 64}, r'max_gen_toks must lie in \[1, 63\], got 64'),
  ],
)
def test_wrong_options_of_a_task_are_found(plain, options, message):
  with pytest.raises(ValueError, match=message):
    _texts(plain, ['count'], **options)


# Scores of several methods.


_LOSSY = {'arm': 'far:3/over_acceptance(1.0)', 'label': 'lossy'}
_METHODS = {
  'tasks': ('toy_generate_until',),
  'methods': ('none', 'far:3', _LOSSY | {'columns': {'alpha': 1.0}}),
  'sampling': {'temperature': 0.0},
  'sweep': '',
}


def _config(family, task_folder, **changes):
  fields = {**_SIZES, **_METHODS, 'task_folder': str(task_folder), **changes}
  return toy.config('harness_scores', family, fields)


def test_scores_are_next_to_rejections(family, task_folder, tmp_path):
  """A rule that keeps every draft rejects none and loses the right answer."""
  rows = toy.run(_config(family, task_folder), tmp_path)
  assert [row['method'] for row in rows] == ['none', 'far:3', 'lossy']
  assert {row['metric'] for row in rows} == {'exact_match'}
  assert [row['same_outputs'] for row in rows] == [2, 2, 0]
  assert [row['score'] for row in rows] == [0.5, 0.5, 0.0]
  # The standard error of the mean of 0 and 1.
  assert [row['score_error'] for row in rows] == [0.5, 0.5, 0.0]
  assert rows[0]['rejection_rate'] is None and rows[2]['rejection_rate'] == 0
  outcome = toy.units(tmp_path)[1]['outcome']
  accepted, tested = (
    np.sum([record[name] for record in outcome['records']], axis=0)
    for name in ('accepted', 'tested')
  )
  rate = 1 - accepted.sum() / tested.sum()
  assert rows[1]['rejection_rate'] == pytest.approx(rate)
  assert rate > 0


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('toy', 'must be names of single tasks of .*, got .toy.'),
    ('toy_loglikelihood', 'must generate texts .*, got .toy_loglikelihood.'),
  ],
)
def test_wrong_tasks_are_found(family, task_folder, tmp_path, name, message):
  config = _config(family, task_folder, tasks=(name,))
  with pytest.raises(ValueError, match=f'^tasks {message}'):
    toy.run(config, tmp_path)


def test_a_harness_that_is_not_installed_raises(
  family, task_folder, tmp_path, monkeypatch
):
  monkeypatch.setitem(sys.modules, 'lm_eval', None)
  with pytest.raises(ValueError, match=r"pip install 'specjax\[lm-eval\]'"):
    toy.run(_config(family, task_folder), tmp_path)


# The task of agreement.


def test_texts_of_the_target_are_the_references_of_agreement(family, plain):
  folder = harness_scores.__file__.replace('harness_scores.py', 'tasks')
  (task,) = harness.load_tasks(
    ('agreement',), folder, {'family': str(family)}
  ).values()
  docs = list(task.eval_docs)
  prompts = [example.prompt for example in families.load(family).prompts]
  assert [doc['prompt'] for doc in docs] == prompts
  texts = _texts(plain, prompts, max_gen_toks=32)
  assert [doc['response'] for doc in docs] == texts


@pytest.mark.parametrize(
  ('text', 'share'),
  [('a b c', 1.0), ('a b d', 0.5), ('a b', 0.5), ('a b c d', 0.75), ('', 0.0)],
)
def test_a_common_prefix_ends_at_the_first_other_word(text, share):
  """The reference has three words and an end."""
  scores = agreement.score({'response': 'a b c'}, [text])
  assert scores == {'common_prefix': share, 'exact_match': text == 'a b c'}
