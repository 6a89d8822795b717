"""Layouts of JSONL files with prompts, as public data sets have them.

A layout is recognized by its keys. Each is a function in `LAYOUTS`, from the
object of a line to the fields of an `Example`; to read another data set, add
one.
"""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

Row = Mapping[str, Any]
# What a message of a chat says, by its role.
_ROLES = 'user', 'assistant'
# The answer to a question whose passage does not answer it, as in SQuAD 2.0.
UNANSWERABLE = 'unanswerable'


class Layout(NamedTuple):
  """Names the keys of a layout, and converts its rows.

  Attributes:
    keys: keys that all rows have. A row has the first layout of `LAYOUTS` all
      of whose keys it has.
    convert: returns the fields of an example; those without a value are left
      out. Raises `ValueError` if a value has another type.
    source: a public data set of this layout, for the docs.
  """

  keys: tuple[str, ...]
  convert: Callable[[Row], dict[str, Any]]
  source: str


def _pair(prompt: str, response: str, source: str) -> Layout:
  """Returns the layout of a prompt and a response with other names."""
  return Layout(
    (prompt, response),
    lambda row: {'prompt': row[prompt], 'response': row[response]},
    source,
  )


def _prompt(row: Row) -> dict[str, Any]:
  fields = {'prompt': row['prompt']}
  if 'response' in row:
    fields['response'] = row['response']
  if 'turns' in row:
    fields['follow_ups'] = _turns(row)['follow_ups']
  return fields


def _turns(row: Row) -> dict[str, Any]:
  turns = row['turns']
  if not isinstance(turns, list) or not turns:
    raise ValueError(f"'turns' must be a list of prompts, got {turns!r}.")
  return {'prompt': turns[0], 'follow_ups': tuple(turns[1:])}


def _messages(row: Row) -> dict[str, Any]:
  """Returns the user's messages as turns, and the first answer."""
  messages = row['messages']
  if not isinstance(messages, list) or not messages:
    raise ValueError(f"'messages' must be a list, got {messages!r}.")
  for i, message in enumerate(messages):
    role = message.get('role') if isinstance(message, dict) else None
    if role != _ROLES[i % 2] or 'content' not in message:
      raise ValueError(
        "'messages' must have a 'content' each and alternate between the roles "
        f'user and assistant, got the role {role!r} in message {i + 1}.'
      )
  texts = [message['content'] for message in messages]
  fields = {'prompt': texts[0], 'follow_ups': tuple(texts[2::2])}
  return fields | ({'response': texts[1]} if len(texts) > 1 else {})


def _instruction(row: Row) -> dict[str, Any]:
  """Returns the instruction, followed by its input if there is one."""
  prompt = _paragraphs(row, 'instruction', 'input', required='instruction')
  return {'prompt': prompt, 'response': row['output']}


def _question(key: str, source: str) -> Layout:
  """Returns the layout of questions whose answers have the key `key`.

  Questions may have a passage, `context`, which comes first. Several accepted
  answers become the lines of the response, as `evaluation.exact_match` reads
  them.
  """
  return Layout(
    ('question', key),
    lambda row: {
      'prompt': _paragraphs(row, 'context', 'question', required='question'),
      'response': _accepted(row[key]),
    },
    source,
  )


def _paragraphs(row: Row, *keys: str, required: str) -> str:
  """Returns the texts of those keys that a row has, between blank lines."""
  texts = [row[key] for key in keys if key == required or row.get(key)]
  for text in texts:
    if not isinstance(text, str):
      names = ' and '.join(map(repr, keys))
      raise ValueError(f'{names} must be strings, got {type(text).__name__}.')
  return '\n\n'.join(texts)


def _accepted(answers: Any) -> Any:
  """Returns accepted answers as lines, and anything but a list as it is."""
  if isinstance(answers, dict):
    if 'text' in answers:  # SQuAD.
      answers = answers['text']
    else:  # TriviaQA.
      aliases = answers.get('aliases') or []
      if not isinstance(aliases, list):
        name = type(aliases).__name__
        raise ValueError(f"'aliases' must be a list, got {name}.")
      answers = [answers.get('value'), *aliases]
  if not isinstance(answers, list):
    return answers
  for answer in answers:
    if not isinstance(answer, str):
      raise ValueError(f'answers must be strings, got {type(answer).__name__}.')
  lines = dict.fromkeys(' '.join(answer.split()) for answer in answers)
  return '\n'.join(lines) or UNANSWERABLE


def _translation(row: Row) -> dict[str, Any]:
  """Returns the texts of the first two languages, in the order of the line."""
  texts = row['translation']
  if not isinstance(texts, dict) or len(texts) < 2:
    raise ValueError(
      f"'translation' must have the texts of two languages, got {texts!r}."
    )
  (source, prompt), (target, response) = list(texts.items())[:2]
  return {
    'prompt': prompt,
    'response': response,
    'domain': f'translation_{source}-{target}',
  }


LAYOUTS: dict[str, Layout] = {
  'prompt': Layout(('prompt',), _prompt, 'the files of this project'),
  'turns': Layout(('turns',), _turns, 'MT-Bench, Spec-Bench, SPEED-Bench'),
  'messages': Layout(('messages',), _messages, 'chats'),
  'instruction': Layout(('instruction', 'output'), _instruction, 'Alpaca'),
  'translation': Layout(('translation',), _translation, 'WMT'),
  'news': _pair('article', 'highlights', 'CNN/DailyMail'),
  'summary': _pair('document', 'summary', 'XSum'),
  'question': _question('answer', 'GSM8K, Natural Questions, TriviaQA'),
  'questions': _question('answers', 'SQuAD, WebQuestions'),
  'program': _pair('text', 'code', 'MBPP'),
}


def convert(row: Row) -> dict[str, Any]:
  """Returns the fields of the example of a row.

  Args:
    row: the object of a line. Its `domain` or, without one, its `category`
      replaces the domain of the layout.

  Raises:
    ValueError: the row has no known layout, or a value has another type.
  """
  for layout in LAYOUTS.values():
    if all(key in row for key in layout.keys):
      fields = layout.convert(row)
      break
  else:
    keys = ', '.join(
      ' and '.join(map(repr, layout.keys)) for layout in LAYOUTS.values()
    )
    raise ValueError(
      f'must be an object with the keys of one layout out of {keys}, got '
      f'{sorted(row)}.'
    )
  domain = row.get('domain', row.get('category'))
  return fields if domain is None else fields | {'domain': domain}
