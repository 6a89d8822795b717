"""Heads of a real language model: what it says, in fewer rounds."""

import pytest

from specjax import families
from specjax import metrics
from specjax import trees
from tests import memory
from tests.families import smollm2

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module', name='family')
def _family():
  """Its target in float32 takes half a gigabyte; other heads are let go."""
  assert smollm2.path().is_file()
  memory.drop_programs()
  family = families.load('smollm2/heads')
  names = 'eagle', 'eagle3', 'medusa', 'math'
  return family._replace(
    drafters={name: family.drafters[name] for name in names}
  )


@pytest.fixture(scope='module', name='said')
def _said(family):
  texts = smollm2.prompts(family, smollm2.ROWS)
  return [each.tokens for each in smollm2.greedy(family, None, texts)]


@pytest.mark.parametrize(
  ('name', 'tree', 'efficiency'),
  [
    ('eagle', trees.TREES['eagle'](), 1.7),
    ('eagle3', None, 1.4),
    ('medusa', None, 1.2),
  ],
)
def test_heads_say_what_the_target_says(family, said, name, tree, efficiency):
  """With a block efficiency that is above `efficiency`."""
  assert smollm2.shares_the_embedding(family, name)
  texts = smollm2.prompts(family, smollm2.ROWS)
  results = smollm2.greedy(family, name, texts, tree=tree)
  assert [each.tokens for each in results] == said
  assert metrics.block_efficiency(results)[0] > efficiency


def test_a_specialised_head_knows_its_domain_better(family):
  texts = [each.prompt for each in family.prompts if each.domain == 'math']
  own, general = (
    metrics.block_efficiency(
      smollm2.greedy(family, name, texts[: smollm2.ROWS])
    )[0]
    for name in ('math', 'eagle')
  )
  assert own > general


def test_files_of_its_heads_are_small():
  """40 MB in all, without what is their target's."""
  files = (smollm2.FOLDER / 'heads').glob('*.safetensors')
  assert sum(path.stat().st_size for path in files) < 40e6
