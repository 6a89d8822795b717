"""Checkpoints of others: a directory or a file in, a model and its text out."""

import os
from typing import NamedTuple

import jax

from specjax import base
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import config as config_lib


class Checkpoint(NamedTuple):
  """A language model with its parameters, and how text becomes its tokens.

  Attributes:
    config: the architecture.
    functions: the model.
    params: its parameters, as a nested dict.
    tokenizer: None where the directory has none.
    chat_template: Jinja source of the prompts of a chat, or None.
    stop_tokens: ids at which a text ends.
  """

  config: config_lib.Config
  functions: base.LanguageModel
  params: base.Params
  tokenizer: tokenizer_lib.Tokenizer | None
  chat_template: str | None
  stop_tokens: tuple[int, ...]


def load(
  path: str | os.PathLike[str],
  *,
  dtype: jax.typing.DTypeLike | None = None,
  cache: str | os.PathLike[str] | None = None,
) -> Checkpoint:
  """Reads a checkpoint.

  Args:
    path: a directory as HuggingFace writes it.
    dtype: of parameters and computations; None keeps the file's.
    cache: folder in which what was converted is kept for the next time.

  Raises:
    ValueError: a file is missing, corrupt or not supported.
  """
  del dtype, cache
  raise ValueError(f'Checkpoints cannot be read yet, got {path}.')
