"""Decodes with a family's GGUF file in llama.cpp, with quantized weights."""

from collections.abc import Callable
from collections.abc import Sequence
import itertools
import os
from typing import Any

from experiments.common import arms as arms_lib
from experiments.common import calls
from experiments.common import methods as methods_lib
from specjax import families
from specjax.families import packages

_PLAIN = (arms_lib.Arm(calls.Call('none')),)


class Peer:
  """Decodes without drafts, one prompt at a time.

  Attributes:
    label: its name in tables, with the type of the file's weights.
  """

  def __init__(self, config: Any, family: families.Family):
    """Loads the file of `config.family`.

    Raises:
      ValueError: the family is not a GGUF file.
    """
    import gguf
    import llama_cpp

    threads = os.cpu_count()
    self._config, self._stops = config, set(family.tokenizer.stop_tokens)
    self._model = llama_cpp.Llama(
      _path(config.family),
      n_ctx=config.max_length,
      n_threads=threads,
      n_threads_batch=threads,
      verbose=False,
    )
    kind = gguf.LlamaFileType(int(self._model.metadata['general.file_type']))
    self.label = f'llama.cpp ({kind.name.removeprefix("MOSTLY_")})'

  def generator(
    self, method: methods_lib.Method
  ) -> Callable[[Sequence[int], int], tuple[list[int], int]] | None:
    """Returns a function that decodes with a method, or None without one.

    The function takes a prompt and its number, and returns the tokens,
    including a stop token, and the number of model calls.
    """
    if method.arms != _PLAIN or method.target != 'target':
      return None
    sampling = method.sampling
    options = {
      'temp': sampling.temperature,
      'top_k': sampling.top_k or 0,
      'top_p': sampling.top_p,
      'min_p': sampling.min_p,
      'repeat_penalty': 1.0,
    }

    def generate(prompt, number):
      self._model.reset()  # Prompts are prefilled from the start.
      self._model.set_seed(self._config.seed + number)
      tokens = []
      stream = self._model.generate(list(prompt), **options)
      for token in itertools.islice(stream, self._config.max_new_tokens):
        tokens.append(token)
        if token in self._stops:
          break
      return tokens, len(tokens)

    return generate


def _path(family: str) -> str:
  """Returns the GGUF file of a family."""
  if family in packages.PACKAGES:
    return str(packages.find(family))
  if not family.endswith('.gguf'):
    raise ValueError(
      f"family must be a GGUF file for the peer 'llama.cpp', got {family!r}."
    )
  return family
