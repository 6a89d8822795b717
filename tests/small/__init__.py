"""How small each config is made for a test that runs it.

A module for each folder of `configs/`, with any of

    VARIANTS  what `get_config` is asked for, where it takes an argument
    CHANGES   fields of one config, beside those that all of them have
    FILES     what a run leaves beside rows
    NO_ROWS   configs that leave no rows, and what they are for instead
"""

import importlib
import pathlib
import pkgutil


def gathered(name):
  """One of the tables, of all folders; keys are config paths without `.py`."""
  table = {}
  for module in pkgutil.iter_modules([str(pathlib.Path(__file__).parent)]):
    each = importlib.import_module(f'tests.small.{module.name}')
    table |= getattr(each, name, {})
  return table
