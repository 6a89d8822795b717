"""Tests that heads of SmolLM2 emit its tokens in fewer rounds."""

import pytest

from specjax import families
from specjax import metrics
from specjax import trees
from tests import memory
from tests.families import smollm2

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module', name='family')
def _family():
  """SmolLM2 with four of its heads; its parameters take half a gigabyte."""
  assert smollm2.path().is_file()
  memory.drop_programs()
  family = families.load('smollm2/heads')
  names = 'eagle', 'eagle3', 'medusa', 'math'
  return family._replace(
    drafters={name: family.drafters[name] for name in names}
  )


@pytest.fixture(scope='module', name='plain')
def _plain(family):
  """Tokens of plain greedy decoding."""
  texts = smollm2.prompts(family, smollm2.ROWS)
  return [result.tokens for result in smollm2.greedy(family, None, texts)]


@pytest.mark.parametrize(
  ('name', 'tree', 'efficiency'),
  [
    ('eagle', trees.TREES['eagle'](), 1.7),
    ('eagle3', None, 1.4),
    ('medusa', None, 1.2),
  ],
)
def test_heads_emit_the_targets_tokens(family, plain, name, tree, efficiency):
  """The block efficiency is above `efficiency`."""
  assert smollm2.shares_the_embedding(family, name)
  texts = smollm2.prompts(family, smollm2.ROWS)
  results = smollm2.greedy(family, name, texts, tree=tree)
  assert [result.tokens for result in results] == plain
  assert metrics.block_efficiency(results)[0] > efficiency


def test_a_specialized_head_is_better_in_its_domain(family):
  texts = [item.prompt for item in family.prompts if item.domain == 'math']
  special, general = (
    metrics.block_efficiency(
      smollm2.greedy(family, name, texts[: smollm2.ROWS])
    )[0]
    for name in ('math', 'eagle')
  )
  assert special > general


def test_files_of_the_heads_are_small():
  """They take 40 MB in total, without the parameters of their target."""
  files = (smollm2.FOLDER / 'heads').glob('*.safetensors')
  assert sum(path.stat().st_size for path in files) < 40e6
