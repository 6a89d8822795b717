"""Chat templates: render the turns of a conversation as one text."""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import json
from typing import Any

from jinja2 import exceptions
from jinja2 import ext
from jinja2 import nodes
from jinja2 import sandbox

Message = Mapping[str, str]  # with 'role' and 'content'


class Template:
  """A Jinja chat template of a HuggingFace checkpoint.

  It comes with downloaded weights, so that it runs in a sandbox.

  Attributes:
    source: the template's text.
    special_tokens: strings that it can use as variables, such as
      `{'bos_token': '<s>'}`.
  """

  def __init__(
    self, source: str, special_tokens: Mapping[str, str] | None = None
  ):
    """Parses a template.

    Args:
      source: the template's text.
      special_tokens: strings that it can use as variables, by name.

    Raises:
      ValueError: it does not parse.
    """
    self.source = source
    self.special_tokens = dict(special_tokens or {})
    try:
      self._template = _environment().from_string(source)
    except exceptions.TemplateError as error:
      raise ValueError(f'The chat template does not parse: {error}.') from error

  def render(
    self,
    messages: Sequence[Message],
    add_generation_prompt: bool = True,
    system: str = '',
  ) -> str:
    """Returns a conversation as one text.

    Args:
      messages: its turns, with a 'role', such as 'system', 'user' or
        'assistant', and a 'content'.
      add_generation_prompt: whether to add the beginning of an answer.
      system: the system prompt if the messages have none. If it is empty, the
        template decides.

    Raises:
      ValueError: there is no message, one lacks its role or content, or the
        template raises an error, as some do for unknown roles.
    """
    turns = [_checked_copy(message) for message in messages]
    if not turns:
      raise ValueError('messages must hold at least one turn, got none.')
    if system and turns[0]['role'] != 'system':
      turns.insert(0, {'role': 'system', 'content': system})
    try:
      return self._template.render(
        messages=turns,
        tools=None,
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **self.special_tokens,
      )
    except Exception as error:  # A template may do anything.
      raise ValueError(
        f'The chat template refuses these messages: {error}.'
      ) from error


class _Generation(ext.Extension):
  """Ignores the tags around an assistant's text, which are for training."""

  tags = {'generation'}

  def parse(self, parser: Any) -> nodes.Node:
    """Returns the nodes between the tags."""
    line = next(parser.stream).lineno
    body = parser.parse_statements(('name:endgeneration',), drop_needle=True)
    return nodes.Scope(body, lineno=line)


def _environment() -> sandbox.ImmutableSandboxedEnvironment:
  """Returns an environment with the settings of transformers."""
  environment = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[_Generation, ext.loopcontrols],
  )
  environment.filters['tojson'] = _to_json
  environment.globals['raise_exception'] = _raise
  environment.globals['strftime_now'] = _now
  return environment


def _to_json(
  value: Any,
  ensure_ascii: bool = False,
  indent: int | None = None,
  separators: tuple[str, str] | None = None,
  sort_keys: bool = False,
) -> str:
  """Returns a value as JSON; unlike Jinja's filter, without HTML escapes."""
  return json.dumps(
    value,
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    sort_keys=sort_keys,
  )


def _raise(message: str) -> None:
  """Raises an error, for templates."""
  raise exceptions.TemplateError(message)


def _now(layout: str) -> str:
  """Returns the current time, for templates."""
  return datetime.datetime.now().strftime(layout)


def _checked_copy(message: Any) -> dict[str, str]:
  """Returns a copy of a message; raises if its role or content is missing."""
  fields = message if isinstance(message, Mapping) else {}
  if not all(isinstance(fields.get(n), str) for n in ('role', 'content')):
    raise ValueError(
      f"A message must have strings as 'role' and 'content', got {message!r}."
    )
  return dict(message)
