"""Layouts of public data sets, in files of the same form."""

import json

import pytest

from specjax.data import examples
from specjax.data import layouts

# By layout: rows, and their examples.
_ROWS = {
  'prompt': (
    {'prompt': 'a', 'turns': ['a', 'b'], 'domain': 'x', 'category': 'y'},
    examples.Example('x', 'a', '', ('b',)),
  ),
  'turns': (
    {'question_id': 81, 'category': 'writing', 'turns': ['a', 'b', 'c']},
    examples.Example('writing', 'a', '', ('b', 'c')),
  ),
  'messages': (
    {
      'messages': [
        {'role': 'user', 'content': 'a'},
        {'role': 'assistant', 'content': 'b'},
        {'role': 'user', 'content': 'c'},
      ]
    },
    examples.Example('file', 'a', 'b', ('c',)),
  ),
  'instruction': (
    {'instruction': 'a', 'input': 'b', 'output': 'c'},
    examples.Example('file', 'a\n\nb', 'c'),
  ),
  'translation': (
    {'translation': {'de': 'ja', 'en': 'yes'}},
    examples.Example('translation_de-en', 'ja', 'yes'),
  ),
  'news': (
    {'id': '0', 'article': 'a', 'highlights': 'b'},
    examples.Example('file', 'a', 'b'),
  ),
  'summary': (
    {'id': '0', 'document': 'a', 'summary': 'b'},
    examples.Example('file', 'a', 'b'),
  ),
  'question': (
    {'question': 'a', 'answer': 'b #### 3'},
    examples.Example('file', 'a', 'b #### 3'),
  ),
  'questions': (
    {'context': 'a', 'question': 'b', 'answers': {'text': ['c', 'd\ne', 'c']}},
    examples.Example('file', 'a\n\nb', 'c\nd e'),
  ),
  'program': (
    {'task_id': 1, 'text': 'a', 'code': 'b', 'test_list': ['c']},
    examples.Example('file', 'a', 'b'),
  ),
}


@pytest.mark.parametrize('name', layouts.LAYOUTS)
def test_rows_of_a_layout_are_read_and_written_back(name, tmp_path):
  row, expected = _ROWS[name]
  path, copy = tmp_path / 'file.jsonl', tmp_path / 'copy.jsonl'
  path.write_text(json.dumps(row) + '\n')
  assert examples.read(path) == [expected]
  examples.write(copy, [expected])
  assert examples.read(copy) == [expected]


@pytest.mark.parametrize(
  ('answers', 'response'),
  [
    ({'answer': ['b', 'c']}, 'b\nc'),  # Natural Questions.
    ({'answer': {'value': 'b', 'aliases': ['c', 'b']}}, 'b\nc'),  # TriviaQA.
    ({'answer': {'value': 'b', 'aliases': None}}, 'b'),
    ({'answers': ['b']}, 'b'),  # WebQuestions.
    ({'answers': {'text': [], 'answer_start': []}}, 'unanswerable'),
  ],
)
def test_accepted_answers_are_lines(answers, response, tmp_path):
  path = tmp_path / 'file.jsonl'
  path.write_text(json.dumps({'question': 'a'} | answers))
  assert examples.read(path) == [examples.Example('file', 'a', response)]


@pytest.mark.parametrize(
  ('row', 'reason'),
  [
    ({'article': 'a'}, "one layout out of 'prompt', .*got \\['article'\\]"),
    ({'turns': 'a'}, "'turns' must be a list of prompts, got 'a'"),
    ({'turns': []}, r"'turns' must be a list of prompts, got \[\]"),
    ({'turns': ['a', 3]}, "'turns' must be a string, got int"),
    ({'messages': 'a'}, "'messages' must be a list, got 'a'"),
    (
      {'messages': [{'role': 'system', 'content': 'a'}]},
      "got the role 'system' in message 1",
    ),
    ({'messages': [{'role': 'user'}]}, "'messages' must have a 'content' each"),
    (
      {'instruction': 'a', 'input': ['b'], 'output': 'c'},
      "'instruction' and 'input' must be strings, got list",
    ),
    ({'translation': {'de': 'ja'}}, "'translation' must have the texts of two"),
    ({'question': 'a', 'answer': 3}, "'response' must be a string, got int"),
    ({'question': 'a', 'answers': [3]}, 'answers must be strings, got int'),
    (
      {'question': ['a'], 'answer': 'b'},
      "'question' must be strings, got list",
    ),
  ],
)
def test_a_row_of_no_layout_is_named_with_its_line(row, reason, tmp_path):
  path = tmp_path / 'file.jsonl'
  path.write_text('{"prompt": "fine"}\n' + json.dumps(row))
  with pytest.raises(ValueError, match=f'file.jsonl, line 2: .*{reason}'):
    examples.read(path)
