"""Decodes with a family's models in HuggingFace transformers."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import tempfile
from typing import Any
import warnings

import numpy as np

from experiments.common import arms as arms_lib
from experiments.common import calls
from experiments.common import components
from experiments.common import methods as methods_lib
from specjax import drafters
from specjax import families
from specjax import models
from specjax import sampling as sampling_lib


class Peer:
  """Decodes with the methods that transformers has, one prompt at a time.

  Attributes:
    label: its name in tables.
  """

  label = 'transformers'

  def __init__(self, config: Any, family: families.Family):
    """Loads the target; `config` has `max_new_tokens` and `seed`."""
    self._config, self._family = config, family
    self._target = load(family, family.target)
    self._calls = 0
    self._target.register_forward_pre_hook(self._count)
    self._drafter = functools.cache(
      lambda name: load(family, family.drafters[name])
    )

  def generator(
    self, method: methods_lib.Method
  ) -> Callable[[Sequence[int], int], tuple[list[int], int]] | None:
    """Returns a function that decodes with a method, or None without one.

    The function takes a prompt and its number, and returns the tokens,
    including a stop token, and the number of target calls, of which the first
    one prefills the prompt.
    """
    assistance = _assistance(method)
    if assistance is None:
      return None
    options, model, length = assistance
    if model is not None:
      options['assistant_model'] = drafter = self._drafter(model)
    options |= _sampling(method.sampling)

    def generate(prompt, number):
      if model is not None:
        generation_config = drafter.generation_config
        generation_config.num_assistant_tokens = length
        generation_config.num_assistant_tokens_schedule = 'constant'
        generation_config.assistant_confidence_threshold = 0.0
      return self._generate(prompt, number, options)

    return generate

  def _generate(
    self, prompt: Sequence[int], number: int, options: dict[str, Any]
  ) -> tuple[list[int], int]:
    import torch

    torch.manual_seed(self._config.seed + number)
    self._calls = 0
    tokens = torch.tensor([list(prompt)])
    with torch.no_grad(), warnings.catch_warnings():
      warnings.simplefilter('ignore')
      output = self._target.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=self._config.max_new_tokens,
        eos_token_id=list(self._family.tokenizer.stop_tokens),
        **options,
      )
    return output[0, len(prompt) :].tolist(), self._calls

  def _count(self, *_: Any) -> None:
    self._calls += 1


def load(family: families.Family, model: families.Model) -> Any:
  """Returns a transformers model with the weights of a model of the family.

  A head with a reduced vocabulary stays reduced.
  """
  import transformers

  whole, head_rows = _with_whole_head(model)
  stop_tokens = family.tokenizer.stop_tokens
  with tempfile.TemporaryDirectory() as folder:
    models.save(models.Checkpoint(*whole, stop_tokens=stop_tokens), folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
  if head_rows is not None:
    kernel = np.asarray(model.params['head']['kernel'], np.float32)
    loaded.set_output_embeddings(_reduced_head(kernel, head_rows))
  return loaded


def _with_whole_head(
  model: families.Model,
) -> tuple[families.Model, np.ndarray | None]:
  """Replaces a reduced head by the embedding; also returns the head's rows."""
  if model.config.head_size is None:
    return model, None
  params = dict(model.params)
  del params['head']
  head_rows = np.asarray(params.pop('head_rows'))
  config = dataclasses.replace(
    model.config, head_size=None, tie_embeddings=True
  )
  return model._replace(config=config, params=params), head_rows


def _reduced_head(kernel: np.ndarray, head_rows: np.ndarray) -> Any:
  """Returns a torch layer that gives missing tokens the probability 0."""
  import torch

  (tokens,) = np.nonzero(head_rows >= 0)
  kernel = torch.tensor(kernel[:, head_rows[tokens]])
  head = torch.nn.Linear(*kernel.shape, bias=False)
  head.weight = torch.nn.Parameter(kernel.T.contiguous(), requires_grad=False)
  tokens = torch.tensor(tokens)

  def spread(layer, inputs, logits):
    del layer, inputs
    shape = *logits.shape[:-1], len(head_rows)
    return logits.new_full(shape, -torch.inf).index_copy(-1, tokens, logits)

  head.register_forward_hook(spread)
  return head


def _assistance(
  method: methods_lib.Method,
) -> tuple[dict[str, Any], str | None, int] | None:
  """Returns options of `generate`, a drafter's name and a length; or None."""
  arm, *more_arms = method.arms
  drafter, tree = arm.drafter, arm.tree
  plain = arms_lib.Arm(drafter, tree)
  if more_arms or arm != plain or method.target != 'target':
    return None
  if tree is None:
    return ({}, None, 0) if drafter == calls.Call('none') else None
  if tree.name != 'chain' or drafter.args:
    return None
  (length,), options = tree.args, dict(drafter.options)
  if drafter.name == 'prompt_lookup' and set(options) <= {'max_ngram'}:
    factory = drafters.PromptLookup
    ngram = components.parameters(factory)['max_ngram'].default
    return (
      {
        'prompt_lookup_num_tokens': length,
        'max_matching_ngram_size': options.get('max_ngram', ngram),
      },
      None,
      length,
    )
  if drafter.name == 'autoregressive' and set(options) == {'model'}:
    return {}, options['model'], length
  return None


def _sampling(sampling: sampling_lib.Sampling) -> dict[str, Any]:
  """Returns options of `generate` for the same sampling."""
  if sampling.temperature == 0:
    return {'do_sample': False}
  return {
    'do_sample': True,
    'temperature': sampling.temperature,
    'top_k': sampling.top_k or 0,
    'top_p': sampling.top_p,
    'min_p': sampling.min_p or None,
  }
