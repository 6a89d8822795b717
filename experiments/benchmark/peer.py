"""The same weights in another implementation: HuggingFace transformers."""

import functools
import importlib.util
import tempfile
import warnings

from experiments.common import log
from experiments.common import measure
from experiments.common import prompts as prompts_lib
from experiments.common import ways as ways_lib
from specjax import models

MAY_CHANGE = ('arm',)


def run(config, workdir):
  """Returns a row for plain decoding, and one for an arm, one prompt at a time.

  Raises:
    ValueError: transformers is not installed.
  """
  if not importlib.util.find_spec('transformers'):
    raise ValueError(
      "The comparison needs transformers: pip install -e '.[benchmark]'."
    )
  family = prompts_lib.load_family(config)
  drafters = list(family.drafters)
  ways = [
    ways_lib.parse(config, arm, drafters, 'arm') for arm in ('none', config.arm)
  ]
  ways = {way.label: way for way in ways}
  (prompts,) = prompts_lib.build(config, family)
  texts = [job.turns[0] for job in prompts.jobs]
  names = 'max_length', 'repeats'
  units = [
    {'arm': label, **way.settings, 'prompts': prompts.settings}
    | {name: config[name] for name in names}
    for label, way in ways.items()
  ]
  compute = lambda unit: _compare(config, family, ways[unit['arm']], texts)
  outcomes = log.resume(workdir, units, compute, 'comparisons')
  return [{'arm': label} | outcome for label, outcome in zip(ways, outcomes)]


def load(family, model):
  """Returns a model of transformers with the weights of one of the family."""
  import transformers

  stop_tokens = family.tokenizer.stop_tokens
  with tempfile.TemporaryDirectory() as folder:
    models.save(models.Checkpoint(*model, stop_tokens=stop_tokens), folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def generate(
  target, drafter, prompts, max_new_tokens, draft_length, stop_tokens
):
  """Generates greedily, one prompt at a time; assisted if given a drafter."""
  import torch

  options = {}
  if drafter is not None:
    drafter.generation_config.num_assistant_tokens = draft_length
    drafter.generation_config.num_assistant_tokens_schedule = 'constant'
    drafter.generation_config.assistant_confidence_threshold = 0.0
    options['assistant_model'] = drafter
  outputs = []
  for prompt in prompts:
    tokens = torch.tensor([list(prompt)])
    with torch.no_grad(), warnings.catch_warnings():
      warnings.simplefilter('ignore')
      output = target.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(stop_tokens),
        **options,
      )
    outputs.append(output[0, len(prompt) :].tolist())
  return outputs


def _compare(config, family, way, prompts):
  """Tokens per second over those of the other implementation, in turns."""
  decoder = ways_lib.build(way, family, config.max_length).decoder
  name = dict(way.arms[0].drafter.options).get('model')
  length = decoder.round_fn.arms[0].drafter.topology.depth
  ours = lambda: [
    decoder.decode([prompt], config.max_new_tokens)[0].tokens
    for prompt in prompts
  ]
  theirs = functools.partial(
    generate,
    load(family, family.target),
    name and load(family, family.drafters[name]),
    prompts,
    config.max_new_tokens,
    length,
    family.tokenizer.stop_tokens,
  )
  both = ours(), theirs()
  seconds = measure.medians([ours, theirs], config.repeats, way.label)
  speeds = [sum(map(len, o)) / s for o, s in zip(both, seconds)]
  return {
    'tokens_per_second': speeds[0],
    'peer_tokens_per_second': speeds[1],
    'same_outputs': sum(a == b for a, b in zip(*both)),
    'ratio': speeds[0] / speeds[1],
  }
