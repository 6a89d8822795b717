"""Sets of prompts, as configs name them: gathered, rephrased, in turns.

`config.prompts` has an entry for each set, by label; all fields are optional:

    from          'family', its own held-out prompts; 'data', the eval files of
                  `data_dir`; or a JSONL file. By default, 'data' if there is a
                  `data_dir`, else 'family'.
    domains       names as in `examples.select_domain`, which label the prompts;
                  none stands for all domains, each on its own.
    per_domain    how many of each, at most; by default, as in the config.
    limit         how many of all, at most.
    longer_than   tokens that every prompt has more than.
    rephrase      whether prompts are put in other words.
    turns         prompts of a session, each of another domain. What a bandit
                  has learnt goes on from one to the next.
    conversation  whether these are turns of one conversation, each of which is
                  read behind what was said before; by default, alone.
"""

import collections
from collections.abc import Sequence
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

_DEFAULTS = {
  'from': '',
  'domains': (),
  'per_domain': 0,
  'limit': 0,
  'longer_than': 0,
  'rephrase': False,
  'turns': 1,
  'conversation': False,
}
# Stands for what is not said yet.
_ANSWER = 'Yes.'


class Job(NamedTuple):
  """What is decoded for one row: a prompt, or a session of some in turns."""

  label: str  # its domain; of several turns, 'one + other'
  # Prompt tokens of each; of a conversation, what stands behind an answer,
  # beginning with the end of that.
  turns: list[list[int]]
  reference: str = ''  # what the first should be answered
  # Its randomness comes from this and the seed; by default, its place.
  number: int | None = None
  conversation: bool = False  # whether turns are read behind each other


class PromptSet(NamedTuple):
  """Prompts under one label, and all that they depend on."""

  label: str
  jobs: list[Job]
  settings: dict[str, Any]  # JSON

  @property
  def kinds(self) -> list[str]:
    """Labels of its prompts, in the order in which domains are named."""
    names = list(self.settings.get('domains', ()))
    place = lambda label: [
      names.index(name) for name in label.split(' + ') if name in names
    ]
    found = {job.label for job in self.jobs}
    return sorted(found, key=lambda label: (place(label), label))


def load_family(config: Any) -> families.Family:
  """Returns `config.family`, which writes prompts as the config says.

  `config.chat` is whether they go through the family's chat template, which
  they do by default if there is one; `config.system` is a system prompt.
  `config.drafters` holds the paths of more drafters, by name.
  `config.dtype` is what models are computed in, such as 'bfloat16'; empty for
  that of their files. `config.mesh` is how many devices divide a batch's rows
  (`data`) and a model's heads (`model`).
  """
  options = dict(config.get('mesh') or {})
  options['dtype'] = config.get('dtype') or None
  options['drafters'] = _drafters(config)
  sizes = options.pop('data', 1), options.pop('model', 1)
  if sizes != (1, 1):
    options['mesh'] = meshes.make(*sizes)
  family = families.load(config.family, **options)
  asked = config.get('chat'), config.get('system', '')
  return family._replace(tokenizer=family.tokenizer.with_prompts(*asked))


def drafter_names(config: Any) -> list[str]:
  """Returns the names of the drafters of `load_family`, without loading any."""
  return families.drafter_names(config.family, _drafters(config))


def _drafters(config):
  return configs.dictionary(config, 'drafters', {'draft': 'FOLDER'})


def build(config: Any, family: families.Family) -> list[PromptSet]:
  """Returns the sets of `config.prompts`, shuffled by `config.seed`."""
  if not config.prompts:
    raise ValueError('prompts must hold at least one set, got none.')
  prompt_sets = []
  for label, fields in config.prompts.items():
    entry = _entry(config, label, fields)
    jobs = _shuffled(_jobs(config, family, label, entry), config.seed)
    chosen = enumerate(jobs[: entry['limit'] or None])
    jobs = [job._replace(number=number) for number, job in chosen]
    if config.batch_size > 1:  # Prompts of similar length share a batch.
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
      raise ValueError('The family has no prompts of its own: set data_dir.')
    return family.prompts
  source = os.path.expanduser(source)
  if not os.path.isfile(source):
    raise ValueError(
      f"prompts must be from 'family', 'data' or a JSONL file, got {source!r}."
    )
  examples = examples_lib.read_by_line(source)
  for number, example in examples.items():
    if not example.prompt:
      raise ValueError(f'{source}, line {number}: prompt must not be empty.')
  return list(examples.values())


def training(
  config: Any, family: families.Family, domains: Sequence[str], most: int
) -> tuple[list[list[int]], list[int]]:
  """Returns prompts of the train files, and for each the index of its domain.

  There are at most `most` of each domain.
  """
  examples = examples_lib.read_split(config.data_dir, 'train')
  examples = _shuffled(examples, config.seed)
  prompts, labels = [], []
  for i, domain in enumerate(domains):
    chosen = [each.prompt for each in _gather(examples, domain)[:most]]
    prompts += [family.tokenizer.encode_prompt(prompt) for prompt in chosen]
    labels += [i] * len(chosen)
  return prompts, labels


def _entry(config, label, fields):
  """All fields of a set."""
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


def _jobs(config, family, label, entry):
  """Sessions that fit, as many of each label as asked for."""
  examples = read(config, entry['from'], family)
  named = entry['domains'] or [example.domain for example in examples]
  domains = list(dict.fromkeys(named))
  what = f'turns of prompts.{label}'
  checks.check_range(what, entry['turns'], 1, len(domains))
  if entry['conversation']:
    checks.check_range(what, entry['turns'], 2)
    if family.tokenizer.template is None:
      raise ValueError(
        f'conversation of prompts.{label} needs a family with a chat template.'
      )
  encode = family.tokenizer.encode_prompt
  chosen = {}
  for domain in domains:
    mine = _gather(examples, domain)
    if entry['longer_than']:
      mine = [e for e in mine if len(encode(e.prompt)) > entry['longer_than']]
    if entry['rephrase']:
      said = [rephrase.rephrase(e.prompt, i) for i, e in enumerate(mine)]
      mine = [e._replace(prompt=text) for e, text in zip(mine, said)]
    chosen[domain] = mine
  sessions = _in_company(chosen, entry['turns'])
  if entry['conversation']:
    sessions = _conversations(family.tokenizer, sessions)
  else:
    sessions = _alone(encode, sessions)
  jobs = list(_fitting(config, sessions, entry['per_domain']))
  if not jobs:
    raise ValueError(
      f'Nothing of prompts.{label} fits: max_length={config.max_length} must '
      f'hold prompts and {config.max_new_tokens} new tokens of each turn.'
    )
  return jobs


def _fitting(config, jobs, most):
  """Yields the jobs that fit into the buffer, so many of each label."""
  counts = collections.Counter()
  for job in jobs:
    needed = [len(turn) + config.max_new_tokens for turn in job.turns]
    size = sum(needed) if job.conversation else max(needed)
    if counts[job.label] < most and size <= config.max_length:
      counts[job.label] += 1
      yield job


def _alone(encode, sessions):
  """Yields jobs whose prompts are read alone."""
  for label, examples in sessions:
    turns = [encode(example.prompt) for example in examples]
    yield Job(label, turns, examples[0].response)


def _conversations(tokenizer, sessions):
  """Yields jobs whose prompts are read behind what was said before."""
  for label, examples in sessions:
    first, *others = (example.prompt for example in examples)
    turns = [tokenizer.encode_prompt(first)]
    turns += [_behind_an_answer(tokenizer, first, text) for text in others]
    yield Job(label, turns, examples[0].response, conversation=True)


def _behind_an_answer(tokenizer, first, text):
  """Tokens from the end of an answer to the beginning of the next one."""
  said = [
    {'role': 'user', 'content': first},
    {'role': 'assistant', 'content': _ANSWER},
    {'role': 'user', 'content': text},
  ]
  whole = tokenizer.render(said)
  before = tokenizer.render(said[:1]) + _ANSWER
  if not whole.startswith(before):
    raise ValueError(
      'conversation needs a chat template that writes the past as it was.'
    )
  return tokenizer.encode_after(before, whole[len(before) :])


def _in_company(chosen, turns):
  """Joins prompts of different domains; each begins in its turn."""
  for names in itertools.combinations(chosen, turns):
    for i, examples in enumerate(zip(*(chosen[name] for name in names))):
      first = i % turns
      yield ' + '.join(names), examples[first:] + examples[:first]


def _gather(examples, domain):
  """The examples of a domain, those of its parts by turns."""
  parts: dict[str, list[Any]] = {}
  for example in examples_lib.select_domain(examples, domain):
    parts.setdefault(example.domain, []).append(example)
  groups = itertools.zip_longest(*parts.values())
  return [each for group in groups for each in group if each is not None]


def _shuffled(items, seed):
  """In an order that does not depend on what other sets there are."""
  return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]
