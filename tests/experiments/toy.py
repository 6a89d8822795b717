"""One toy family for all tests of experiments, and what is done with it.

All decode with the sizes of `SIZES`, so that equal methods are one program,
which is compiled once. Tables are proved on records made by hand, which take
the place of decoding; see `simulate`.
"""

import functools
import json
import pathlib

import jax
import numpy as np

from experiments import main
from experiments.common import compare
from experiments.common import configs
from experiments.common import log
from experiments.common import results
from specjax.data import examples as examples_lib
from specjax.testing import toys

CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'
SIZES = {'batch_size': 2, 'max_new_tokens': 8, 'max_length': 64}
# How far each drafter is from the target, by name.
DRAFTERS = {'small': 0.2, 'near': 0.0, 'far': 0.9, 'code': 0.2, 'math': 0.3}
# The family's prompts, and those of the files in its folder, by domain.
PROMPTS = [('one', 'count'), ('one', 'a b a b a b'), ('two', 'what is it?')]
DATA = {
  'code': ['def f', 'a b a b a b', 'import os', 'class A'],
  'math': ['1 + 1', '2 + 2 is more', 'x', 'count'],
  'talk': ['guten tag', 'bonjour'],
  'asks': ['one', 'a b a b', 'what is it?', 'x y', 'count', 'two', 'go', 'so'],
}
# What is measured by clocks differs from run to run.
_CLOCKS = 'second', 'speed', 'latency', '_ms', 'over_best', 'over_hindsight'


def write(folder):
  """Writes the family, its prompts, and eval and train files of all domains."""
  toys.write_family(folder, DRAFTERS)
  examples = [examples_lib.Example(*pair, 'yes, 7') for pair in PROMPTS]
  examples_lib.write(folder / 'prompts.jsonl', examples)
  for domain, texts in DATA.items():
    examples = [examples_lib.Example(domain, text, 'yes, 7') for text in texts]
    for split in ('eval', 'train'):
      examples_lib.write(folder / f'{domain}.{split}.jsonl', examples)


def config(name, family, changes, argument=''):
  """A config by its path without `.py`; fields are replaced as a whole.

  Args:
    name: the path in `configs`.
    family: a folder; None for a config without a family.
    changes: fields.
    argument: what `get_config` is asked for.
  """
  path = f'{CONFIGS / name}.py'
  loaded = configs.load(f'{path}:{argument}' if argument else path)
  with loaded.ignore_type():  # A sweep may be a dictionary, or none.
    paths = {'family': str(family)} if family is not None else {}
    for field, value in (paths | changes).items():
      loaded[field] = value
  return loaded


def run(config, workdir):
  """Runs an experiment in this process; returns its rows, as they are kept."""
  main.run(config, workdir)
  return results.read(workdir)['rows']


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(model, params, tokens):
  logits = model.extend(params, None, tokens).logits[0]
  return jax.nn.log_softmax(logits)


def log_probs(model, prompt, response):
  """`[T, V]` float64 of the response, without a cache: an oracle.

  Args:
    model: of a family.
    prompt: tokens.
    response: tokens; both are as many as `max_length` at most.
  """
  tokens = np.zeros((1, SIZES['max_length']), np.int32)
  tokens[0, : len(prompt) + len(response)] = [*prompt, *response]
  found = _log_probs(model.model, model.params, tokens)
  first = len(prompt) - 1
  return np.asarray(found, np.float64)[first : first + len(response)]


def units(workdir):
  """The lines of a log."""
  lines = (workdir / log.FILE).read_text().splitlines()
  return [json.loads(line) for line in lines]


def torn(workdir, into, keep=-1):
  """A workdir whose run was killed while it wrote a line of its log."""
  into.mkdir()
  lines = (workdir / log.FILE).read_text().splitlines(keepends=True)
  (into / log.FILE).write_text(''.join(lines[:keep]) + lines[keep][:-20])
  return into


def without_clocks(rows):
  """Rows without what is measured with a clock."""
  return [
    {k: v for k, v in row.items() if not any(word in k for word in _CLOCKS)}
    for row in rows
  ]


def record(**fields):
  """A record as the runner makes them, of 12 tokens and 12 plain rounds."""
  plain = {'emitted': 12, 'rounds': 12, 'draft_calls': 0}
  plain |= {'num_catch_up_tokens': 0, 'accepted': [], 'drafted': []}
  return plain | {'pulls': [12]} | fields


def simulate(monkeypatch, fields):
  """Has `compare.decode` return records made by hand; returns all of them.

  Args:
    monkeypatch: of the test.
    fields: `(method, job) -> dict` of a record, beside those of `record`.
  """
  decoded = []

  def decode(config, workdir, made, **options):
    del workdir, options
    calls = [
      compare.Decoded(
        method,
        prompts,
        [
          record(job=i, label=job.label) | fields(method, job)
          for _ in range(config.get('num_seeds', 1))
          for i, job in enumerate(prompts.jobs)
        ],
      )
      for method in made.methods
      for prompts in made.prompt_sets
    ]
    decoded.extend(calls)
    return calls

  monkeypatch.setattr(compare, 'decode', decode)
  return decoded


def write_costs(workdir, arms, device=None, **changes):
  """Writes a cost table, as a run of `benchmark.costs` leaves it.

  Args:
    workdir: where to; its path is returned.
    arms: depths by arm: a round takes a second more than the depth.
    device: on which it was measured; by default, this one.
    **changes: of all rows.
  """
  row = {'batch_size': 2, 'temperature': 0.0}
  row |= {'catch_up_ms': 500.0, 'prompt_ms': 3000.0}
  rows = [
    {'arm': arm, **row, 'depth': n, 'round_ms': 1e3 * (1 + n), **changes}
    for arm, n in arms.items()
  ]
  workdir.mkdir(exist_ok=True)
  results.write(workdir, 'benchmark.costs', '', rows)
  path = workdir / results.FILE
  if device:
    content = json.loads(path.read_text())
    results.save_json(str(path), content | {'device': device})
  return str(workdir)
