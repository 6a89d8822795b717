"""Sets of prompts, as a config names them: gathered, rephrased, in turns."""

import itertools
import os
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments import evaluate
from experiments import rephrase
from specjax import checks
from specjax import families
from specjax import registry
from specjax.data import examples as examples_lib

_DEFAULTS = {'domains': (), 'rephrase': False, 'turns': 1, 'longer_than': 0}


class Job(NamedTuple):
  """A session to decode: one prompt, or some in turns."""

  label: str  # its domain; of several turns, 'one + other'
  turns: list[list[int]]  # prompt tokens of each


def entries(config: Any) -> dict[str, dict[str, Any]]:
  """Returns `config.sets` with all fields filled in, by label.

  A set has
    domains: names as in `examples.of_domain`, which label its jobs; none stands
      for all domains, each on its own.
    rephrase: whether prompts are put in other words.
    turns: prompts of a session, each of another domain. Each is read alone, as
      the prompts of training were; what a bandit has learnt goes on.
    longer_than: tokens that every prompt has more than.

  Raises:
    ValueError: a field is unknown, or `domains` is no tuple of names.
  """
  result = {}
  for label, fields in config.sets.items():
    for name in fields:
      registry.lookup(_DEFAULTS, f'field of sets.{label}', name)
    entry = _DEFAULTS | dict(fields.items())
    if isinstance(entry['domains'], str):
      raise ValueError(
        f'domains of sets.{label} must be a tuple of names, got '
        f'{entry["domains"]!r}.'
      )
    result[label] = entry
  return result


def fields(config: Any, label: str) -> dict[str, Any]:
  """Returns what a set's results depend on: the config, and the set's entry.

  The entry of what is in no other set is the file that it is from.
  """
  entry = entries(config).get(label)
  if entry is None and label == _file_label(config):
    entry = {'file': config.prompts_file}
  return dict(config.items()) | (entry or {})


def build(config: Any, family: families.Family) -> dict[str, list[Job]]:
  """Returns the jobs of each set, shuffled.

  The sets are those of `config.sets`, else one of the eval files or of the
  family's own prompts; and that of `config.prompts_file`.

  Raises:
    ValueError: an entry of `config.sets` is wrong, two sets have one label, or
      nothing of a set fits.
  """
  examples = evaluate.chosen_examples(config, family)
  sets = {
    label: _sessions(config, family, examples, label, entry)
    for label, entry in entries(config).items()
  }
  if not sets:
    own = evaluate.chosen_prompts(config, family)
    sets['eval' if config.data_dir else 'family'] = _single(own)
  if config.prompts_file:
    label = _file_label(config)
    if label in sets:
      raise ValueError(f'prompts_file must not be called {label!r}, too.')
    more = examples_lib.read(config.prompts_file)
    sets[label] = _single(evaluate.fitting(config, family.tokenizer, more))
  for label, jobs in sets.items():
    if not jobs:
      raise ValueError(
        f'Nothing of {label} fits: max_length={config.max_length} must hold '
        f'prompts and {config.max_new_tokens} new tokens of each turn.'
      )
  return {label: _shuffled(jobs, config.seed) for label, jobs in sets.items()}


def training(
  config: Any, family: families.Family, domains: list[str]
) -> tuple[list[list[int]], list[int]]:
  """Returns prompts of the train files, and for each the index of its domain.

  Args:
    config: with `data_dir`, and `router_prompts` of each domain at most.
    family: whose tokenizer is used.
    domains: names as in `examples.of_domain`.
  """
  examples = examples_lib.read_split(config.data_dir, 'train')
  examples = _shuffled(examples, config.seed)
  prompts, labels = [], []
  for i, domain in enumerate(domains):
    chosen = _gather(examples, domain)[: config.router_prompts]
    prompts += [family.tokenizer.encode_prompt(prompt) for prompt in chosen]
    labels += [i] * len(chosen)
  return prompts, labels


def _file_label(config):
  return os.path.basename(config.prompts_file).split('.')[0]


def _sessions(config, family, examples, label, entry):
  """The jobs of an entry, as many of each label."""
  named = entry['domains'] or [example.domain for example in examples]
  domains = sorted(set(named))
  checks.check_range(f'turns of sets.{label}', entry['turns'], 1, len(domains))
  size = lambda prompt: len(family.tokenizer.encode_prompt(prompt))
  prompts = {
    domain: [
      prompt
      for prompt in _gather(examples, domain)
      if size(prompt) > entry['longer_than']
    ]
    for domain in domains
  }
  if entry['rephrase']:
    prompts = {
      domain: [rephrase.rephrase(each, i) for i, each in enumerate(mine)]
      for domain, mine in prompts.items()
    }
  jobs = evaluate.fitting_turns(
    config, family.tokenizer, _in_company(prompts, entry['turns'])
  )
  return [Job(*job) for job in jobs]


def _in_company(prompts, turns):
  """Joins prompts of different domains; each begins in its turn."""
  for names in itertools.combinations(prompts, turns):
    for i, texts in enumerate(zip(*(prompts[name] for name in names))):
      first = i % turns
      yield ' + '.join(names), texts[first:] + texts[:first]


def _gather(examples, domain):
  """The prompts of a domain, those of its parts by turns."""
  parts = {}
  for example in examples_lib.of_domain(examples, domain):
    parts.setdefault(example.domain, []).append(example.prompt)
  groups = itertools.zip_longest(*parts.values())
  return [prompt for group in groups for prompt in group if prompt is not None]


def _single(jobs):
  return [Job(domain, [tokens]) for domain, tokens in jobs]


def _shuffled(items, seed):
  """In an order that does not depend on what other sets there are."""
  return [items[i] for i in np.random.default_rng(seed).permutation(len(items))]
