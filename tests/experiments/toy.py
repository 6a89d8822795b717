"""One toy family for all tests of experiments, and what is done with it.

All decode with the sizes of `SIZES`, so that equal methods are one program,
which is compiled once. Tables are proved on records made by hand, which take
the place of decoding; see `simulate`.
"""

import functools
import json
import pathlib

import jax
import ml_collections
import numpy as np

from experiments import main
from experiments.common import compare
from experiments.common import configs
from experiments.common import log
from experiments.common import results
from experiments.common import workdirs
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
  """Loads a config and replaces some of its fields.

  Args:
    name: the path in `configs`, without `.py`.
    family: the folder of a family; None for a config without a family.
    changes: the new values of fields, each of which is replaced as a whole.
    argument: the argument of `get_config`.
  """
  path = f'{CONFIGS / name}.py'
  loaded_config = configs.load(f'{path}:{argument}' if argument else path)
  with loaded_config.ignore_type():  # A sweep may be a dictionary, or none.
    paths = {'family': str(family)} if family is not None else {}
    for field, value in (paths | changes).items():
      loaded_config[field] = value
  return loaded_config


def run(config, workdir):
  """Runs an experiment in this process; returns its rows, as they are kept."""
  main.run(config, workdir)
  return results.read(workdir)['rows']


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(model, params, tokens):
  logits = model.extend(params, None, tokens).logits[0]
  return jax.nn.log_softmax(logits)


def log_probs(model, prompt, response):
  """Returns `[T, V]` log-probabilities at a response, without a KV cache.

  Args:
    model: a model of a family.
    prompt: the tokens of the prompt.
    response: the tokens of the response. Prompt and response together have at
      most `max_length` tokens.
  """
  tokens = np.zeros((1, SIZES['max_length']), np.int32)
  tokens[0, : len(prompt) + len(response)] = [*prompt, *response]
  result = _log_probs(model.model, model.params, tokens)
  first = len(prompt) - 1
  return np.asarray(result, np.float64)[first : first + len(response)]


def units(workdir):
  """The lines of a log."""
  lines = (workdir / log.FILE).read_text().splitlines()
  return [json.loads(line) for line in lines]


def torn_workdir(workdir, folder, keep=-1):
  """Writes a workdir whose run was killed while it wrote a line of its log."""
  folder.mkdir()
  lines = (workdir / log.FILE).read_text().splitlines(keepends=True)
  (folder / log.FILE).write_text(''.join(lines[:keep]) + lines[keep][:-20])
  return folder


def without_clocks(rows):
  """Rows without what is measured with a clock."""
  return [
    {k: v for k, v in row.items() if not any(word in k for word in _CLOCKS)}
    for row in rows
  ]


def record(**fields):
  """Returns a record like the runner's, with 12 tokens in 12 plain rounds.

  It is alone in its batch.
  """
  defaults = {
    'batch': fields.get('job', 0),
    'emitted': 12,
    'rounds': 12,
    'draft_calls': 0,
  }
  defaults |= {'num_catch_up_tokens': 0, 'accepted': [], 'drafted': []}
  return defaults | {'tested': [], 'pulls': [12]} | fields


def simulate(monkeypatch, fields):
  """Replaces `compare.decode` by records made by hand; returns all of them.

  Args:
    monkeypatch: the fixture of the test.
    fields: `(method, job) -> dict`, which overrides fields of `record`.
  """
  decoded = []

  def decode(config, workdir, setup, **options):
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
      for method in setup.methods
      for prompts in setup.prompt_sets
    ]
    decoded.extend(calls)
    return calls

  monkeypatch.setattr(compare, 'decode', decode)
  return decoded


def write_costs(workdir, family, arms, device=None, **changes):
  """Writes a cost table, as a run of `benchmark.costs` leaves it.

  Args:
    workdir: where to; its path is returned.
    family: the folder of the family.
    arms: depths by arm: a round takes a second more than the depth.
    device: on which it was measured; by default, this one.
    **changes: of all rows.
  """
  row = {'family': str(family), 'batch_size': SIZES['batch_size']}
  row |= {'temperature': 0.0, 'max_length': SIZES['max_length']}
  row |= {'catch_up_ms': 500.0, 'prompt_ms': 3000.0}
  rows = [
    {'arm': arm, **row, 'depth': n, 'round_ms': 1e3 * (1 + n), **changes}
    for arm, n in arms.items()
  ]
  run = workdirs.Workdir(workdir, ml_collections.ConfigDict())
  results.write(run, 'benchmark.costs', '', rows)
  path = workdir / results.FILE
  if device:
    content = json.loads(path.read_text())
    results.save_json(str(path), content | {'device': device})
  return str(workdir)
