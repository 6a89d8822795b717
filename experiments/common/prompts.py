"""Builds the prompt sets of a config: sources, domains, sessions.

`config.prompts` has one entry per prompt set, by label. All fields are
optional:

    from          'family' for the family's held-out prompts, 'data' for the
                  eval files of `data_dir`, or a JSONL file in one of the
                  layouts of `data.layouts`, whose bad lines are reported and
                  skipped. Defaults to 'data' if `data_dir` is set, and to
                  'family' otherwise.
    domains       names as in `examples.select_domain`, which label the prompts.
                  Defaults to all domains, each with its own label.
    per_domain    the maximum number of prompts per domain. Defaults to the
                  config's `prompts_per_domain`.
    limit         the maximum number of prompts of all domains together.
    longer_than   only prompts with more than this number of tokens are used.
    template      a text with one '{}', the place of a prompt, such as
                  'Summarize: {}'.
    rephrase      whether prompts are paraphrased, by templates.
    turns         the number of prompts in a session, each from another domain.
                  A bandit keeps its state within a session.
    conversation  whether the turns of a session form one conversation. By
                  default, each turn is a prompt by itself. With `turns` 1, a
                  conversation has the turns of one line of the file.
"""

import ast
import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import itertools
import os
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.common import configs
from experiments.common import rephrase
from specjax import checks
from specjax import families
from specjax import meshes
from specjax.data import examples as examples_lib
from specjax.data import tokenizer as tokenizer_lib

_DEFAULTS = {
  'source': '',
  'domains': (),
  'per_domain': 0,
  'limit': 0,
  'longer_than': 0,
  'template': '{}',
  'rephrase': False,
  'turns': 1,
  'conversation': False,
}
# A placeholder for an answer that is not generated yet.
_ANSWER = 'Yes.'


# Labels and the examples of their turns.
_Sessions = Iterable[tuple[str, Sequence[Any]]]


class Job(NamedTuple):
  """What one row decodes: a prompt, or the turns of a session.

  Attributes:
    label: the domain, or 'one + other' for turns from several domains.
    turns: the prompt tokens of each turn. In a conversation, later turns begin
      with the stop token of the previous answer.
    reference: the expected answer of the first turn.
    number: determines the row's randomness, together with the seed; defaults to
      the position of the job.
    conversation: whether the turns form one conversation.
  """

  label: str
  turns: list[list[int]]
  reference: str = ''
  number: int | None = None
  conversation: bool = False


class PromptSet(NamedTuple):
  """Prompts under one label, and everything that they depend on."""

  label: str
  jobs: list[Job]
  settings: dict[str, Any]  # JSON

  @property
  def kinds(self) -> list[str]:
    """Returns the labels of its prompts, in the order of the domains."""
    names = list(self.settings.get('domains', ()))
    order = lambda label: [
      names.index(name) for name in label.split(' + ') if name in names
    ]
    labels = {job.label for job in self.jobs}
    return sorted(labels, key=lambda label: (order(label), label))


def load_family(config: Any) -> families.Family:
  """Loads `config.family` with the config's chat, dtype and mesh settings.

  Args:
    config: may have these fields: `chat`, whether prompts use the family's chat
      template (by default if there is one); `system`, a system prompt;
      `drafters`, paths of further drafters by name; `vocabulary`, whether
      drafters may have other tokenizers, see `families.join`; `dtype`, the type
      of the models' computations, such as 'bfloat16' ('' for the type of their
      files); `mesh`, the numbers of devices that divide a batch's rows (`data`)
      and a model's heads (`model`); and `sources`, see `check_sources`.
  """
  check_sources(config)
  options = dict(config.get('mesh') or {})
  options['dtype'] = config.get('dtype') or None
  options['drafters'] = drafter_paths(config)
  options['vocabulary'] = config.get('vocabulary', 'shared')
  sizes = options.pop('data', 1), options.pop('model', 1)
  if sizes != (1, 1):
    options['mesh'] = meshes.make(*sizes)
  family = families.load(config.family, **options)
  chat = config.get('chat'), config.get('system', '')
  return family._replace(tokenizer=family.tokenizer.with_prompts(*chat))


def check_sources(config: Any) -> None:
  """Checks that files which come from elsewhere are where a config has them.

  Args:
    config: may have `sources`, pairs of a path and where its files come from.
      Only paths that are used as the family, as a drafter or as a prompt set
      count, since flags may name others.

  Raises:
    ValueError: files are missing; the error names all of them.
  """
  used = [config.family, *(drafter_paths(config) or {}).values()]
  used += [
    entry.get('source', '') for entry in config.get('prompts', {}).values()
  ]
  missing = [
    f'{path} ({source})'
    for path, source in config.get('sources', ())
    if path in used and not os.path.exists(os.path.expanduser(path))
  ]
  if missing:
    raise ValueError(
      'Put these files there, or name others by flags such as '
      f'--config.family: {"; ".join(missing)}.'
    )


def drafter_names(config: Any) -> list[str]:
  """Returns the names of the drafters of `load_family`, without loading any."""
  check_sources(config)
  return families.drafter_names(config.family, drafter_paths(config))


def drafter_paths(config: Any) -> dict[str, Any] | None:
  """Returns `config.drafters`, or None if it is not set.

  A flag sets it to the text of a dictionary, whose names may contain dots.

  Raises:
    ValueError: it is not a dictionary.
  """
  value = config.get('drafters', '')
  if value == '':
    return None
  if isinstance(value, str):
    with contextlib.suppress(SyntaxError, ValueError):
      value = ast.literal_eval(value)
  if not hasattr(value, 'items'):
    raise ValueError(
      "drafters must be a dictionary such as {'draft': 'FOLDER'}, got "
      f'{value!r}.'
    )
  return dict(value.items())


def build(config: Any, family: families.Family) -> list[PromptSet]:
  """Returns the prompt sets of `config.prompts`, shuffled by `config.seed`."""
  if not config.prompts:
    raise ValueError('prompts must hold at least one prompt set, got none.')
  prompt_sets = []
  for label, fields in config.prompts.items():
    entry = _entry(config, label, fields)
    jobs = _shuffled(_jobs(config, family, label, entry), config.seed)
    chosen = enumerate(jobs[: entry['limit'] or None])
    jobs = [job._replace(number=number) for number, job in chosen]
    if config.batch_size > 1:  # Prompts with similar lengths share a batch.
      jobs.sort(key=lambda job: sum(map(len, job.turns)))
    names = 'family', 'data_dir', 'max_new_tokens', 'max_length', 'seed'
    settings = entry | {name: config.get(name, '') for name in names}
    prompt_sets.append(PromptSet(label, jobs, settings))
  return prompt_sets


def read(config: Any, source: str, family: families.Family) -> list[Any]:
  """Returns examples of a source: 'family', 'data' or a JSONL file."""
  source = source or ('data' if config.get('data_dir') else 'family')
  if source == 'data':
    return examples_lib.read_split(config.data_dir, 'eval')
  if source == 'family':
    if not family.prompts:
      raise ValueError('The family has no held-out prompts: set data_dir.')
    return family.prompts
  source = os.path.expanduser(source)
  if not os.path.isfile(source):
    raise ValueError(
      f"prompts must be from 'family', 'data' or a JSONL file, got {source!r}."
    )
  errors: list[ValueError] = []
  examples = examples_lib.read_by_line(source, errors.append)
  for number, example in examples.items():
    if not example.prompt:
      errors.append(
        ValueError(f'{source}, line {number}: prompt must not be empty.')
      )
  examples = [example for example in examples.values() if example.prompt]
  if errors and not examples:
    raise errors[0]
  for error in errors:
    print(f'Left out: {error}')
  return examples


def training(
  config: Any, family: families.Family, domains: Sequence[str], most: int
) -> tuple[list[list[int]], list[int]]:
  """Returns prompts from the train files, and the index of each one's domain.

  There are at most `most` prompts per domain.
  """
  examples = examples_lib.read_split(config.data_dir, 'train')
  examples = _shuffled(examples, config.seed)
  prompts, labels = [], []
  for i, domain in enumerate(domains):
    texts = [example.prompt for example in _gather(examples, domain)[:most]]
    prompts += [family.tokenizer.encode_prompt(text) for text in texts]
    labels += [i] * len(texts)
  return prompts, labels


def _entry(config: Any, label: str, fields: Any) -> dict[str, Any]:
  """Returns all fields of a prompt set, with defaults."""
  configs.check_known(fields, _DEFAULTS, f'prompts.{label}: Unknown field')
  entry = _DEFAULTS | dict(fields.items())
  if isinstance(entry['domains'], str):
    raise ValueError(
      f'domains of prompts.{label} must be a tuple of names, got '
      f'{entry["domains"]!r}.'
    )
  entry['per_domain'] = entry['per_domain'] or config.prompts_per_domain
  checks.check_range(f'per_domain of prompts.{label}', entry['per_domain'], 1)
  return entry


def _jobs(
  config: Any, family: families.Family, label: str, entry: dict[str, Any]
) -> list[Job]:
  """Returns the sessions that fit, up to the requested number per label."""
  examples = read(config, entry['source'], family)
  domains = entry['domains'] or [example.domain for example in examples]
  domains = list(dict.fromkeys(domains))
  field = f'turns of prompts.{label}'
  checks.check_range(field, entry['turns'], 1, len(domains))
  if entry['template'].count('{}') != 1:
    raise ValueError(
      f"template of prompts.{label} must contain '{{}}' once, got "
      f'{entry["template"]!r}.'
    )
  if entry['conversation']:
    if family.tokenizer.template is None:
      raise ValueError(
        f'conversation of prompts.{label} needs a family with a chat template.'
      )
  encode = family.tokenizer.encode_prompt
  by_domain = {}
  for domain in domains:
    selected = _gather(examples, domain)
    if entry['longer_than']:
      least = entry['longer_than']
      selected = [e for e in selected if len(encode(e.prompt)) > least]
    selected = [
      e._replace(prompt=entry['template'].replace('{}', e.prompt))
      for e in selected
    ]
    if entry['rephrase']:
      texts = [rephrase.rephrase(e.prompt, i) for i, e in enumerate(selected)]
      selected = [e._replace(prompt=t) for e, t in zip(selected, texts)]
    by_domain[domain] = selected
  if entry['conversation'] and entry['turns'] == 1:
    sessions = _own_sessions(by_domain, label)
  else:
    sessions = _sessions(by_domain, entry['turns'])
  if entry['conversation']:
    jobs = _conversations(family.tokenizer, sessions)
  else:
    jobs = _separate_turns(encode, sessions)
  jobs = list(_fitting(config, jobs, entry['per_domain']))
  if not jobs:
    raise ValueError(
      f'No prompt of prompts.{label} fits: max_length={config.max_length} must '
      f'hold prompts and {config.max_new_tokens} new tokens per turn.'
    )
  return jobs


def _fitting(config: Any, jobs: Iterable[Job], most: int) -> Iterator[Job]:
  """Yields jobs that fit into the buffer, at most `most` per label."""
  counts: collections.Counter[str] = collections.Counter()
  for job in jobs:
    sizes = [len(turn) + config.max_new_tokens for turn in job.turns]
    size = sum(sizes) if job.conversation else max(sizes)
    if counts[job.label] < most and size <= config.max_length:
      counts[job.label] += 1
      yield job


def _separate_turns(
  encode: Callable[[str], list[int]], sessions: _Sessions
) -> Iterator[Job]:
  """Yields jobs whose turns are prompts by themselves."""
  for label, examples in sessions:
    turns = [encode(example.prompt) for example in examples]
    yield Job(label, turns, examples[0].response)


def _conversations(
  tokenizer: tokenizer_lib.Tokenizer, sessions: _Sessions
) -> Iterator[Job]:
  """Yields jobs whose turns continue one conversation."""
  for label, examples in sessions:
    first, *later_texts = (example.prompt for example in examples)
    turns = [tokenizer.encode_prompt(first)]
    turns += [_later_turn(tokenizer, first, text) for text in later_texts]
    yield Job(label, turns, examples[0].response, conversation=True)


def _later_turn(
  tokenizer: tokenizer_lib.Tokenizer, first: str, text: str
) -> list[int]:
  """Returns the tokens between the end of an answer and the next answer."""
  messages = [
    {'role': 'user', 'content': first},
    {'role': 'assistant', 'content': _ANSWER},
    {'role': 'user', 'content': text},
  ]
  whole = tokenizer.render(messages)
  prefix = tokenizer.render(messages[:1]) + _ANSWER
  if not whole.startswith(prefix):
    raise ValueError(
      'conversation needs a chat template that repeats past turns unchanged.'
    )
  return tokenizer.encode_after(prefix, whole[len(prefix) :])


def _sessions(by_domain: dict[str, list[Any]], turns: int) -> _Sessions:
  """Joins prompts from different domains, of which a different one is first."""
  for names in itertools.combinations(by_domain, turns):
    for i, examples in enumerate(zip(*(by_domain[name] for name in names))):
      first = i % turns
      yield ' + '.join(names), examples[first:] + examples[:first]


def _own_sessions(by_domain: dict[str, list[Any]], label: str) -> _Sessions:
  """Returns the examples that have several turns, as sessions.

  Raises:
    ValueError: none has.
  """
  sessions = [
    (domain, [example, *(example._replace(prompt=t) for t in later)])
    for domain, examples in by_domain.items()
    for example in examples
    if (later := example.follow_ups)
  ]
  if not sessions:
    raise ValueError(
      f'conversation of prompts.{label} needs lines with several turns, or '
      '`turns` of at least 2, got neither.'
    )
  return sessions


def _gather(examples: Sequence[Any], domain: str) -> list[Any]:
  """Returns the examples of a domain; its subdomains are interleaved."""
  parts: dict[str, list[Any]] = {}
  for example in examples_lib.select_domain(examples, domain):
    parts.setdefault(example.domain, []).append(example)
  groups = itertools.zip_longest(*parts.values())
  return [example for group in groups for example in group if example]


def _shuffled(items: Sequence[Any], seed: int) -> list[Any]:
  """Shuffles a prompt set independently of other prompt sets."""
  return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]
