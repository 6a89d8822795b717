"""What notebooks use of the experiments' common modules."""

import matplotlib
from matplotlib import pyplot as plt
import pytest

from experiments.common import drawings
from experiments.common import methods
from experiments.common import plots
from specjax import families
from specjax import trees
from specjax.testing import toys

matplotlib.use('Agg')


@pytest.fixture(autouse=True)
def _close():
  yield
  plt.close('all')


def test_a_method_is_built_without_a_config(tmp_path):
  toys.write_family(tmp_path, {'small': 0.3})
  family = families.load(str(tmp_path))
  first, second = (
    methods.build_entry(family, f'small:3~lossy({alpha})', max_length=64)
    for alpha in (0.0, 0.5)
  )
  assert first.program == second.program
  assert first.decoder.round_fn != second.decoder.round_fn
  greedy = methods.decoder(family, 'small:3', sampling={'temperature': 0.0})
  assert greedy.round_fn.sampling.temperature == 0
  with pytest.raises(ValueError, match="^the method 'tiny:3': Unknown drafter"):
    methods.decoder(family, 'tiny:3')


def test_a_tree_is_drawn_with_what_its_round_emitted():
  """Two of three branches agree with the text at first, one of them twice."""
  topology = trees.chains(3, 2)
  names = ['a', 'b', 'a', 'c', 'd', 'e']
  figure = drawings.tree(
    topology, names, [True, False, True, True, False, False], ['a', 'c', '!']
  )
  (axes,) = figure.axes
  texts = [text.get_text() for text in axes.texts]
  assert texts == [*names, 'prompt', 'emitted', 'a', 'c', '!']
  colour = lambda text: text.get_bbox_patch().get_facecolor()
  expected = [matplotlib.colors.to_rgba(c) for c in plots.ORIGINS.values()]
  accepted, corrected, bonus, sampled = expected
  assert colour(axes.texts[0]) == colour(axes.texts[-2]) == accepted
  assert colour(axes.texts[1]) == sampled
  assert colour(axes.texts[-1]) == bonus
  shorter = drawings.tree(topology, names, [False] * 6, ['!']).axes[0]
  assert colour(shorter.texts[-1]) == corrected


def test_rounds_are_as_long_as_what_they_emitted():
  _, axes = plt.subplots()
  drawings.rounds(axes, [0, 1, 0], [2, 5, 1], ['one', 'other'])
  bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
  assert bars == [(0, 2), (2, 5), (7, 1)]
  assert [bar.get_y() + 0.4 for bar in axes.patches] == [0, 1, 0]


def test_the_colours_of_a_text_are_those_asked_for():
  figure = plots.text(
    [('a', 'x'), ('b', 'y')], '', colors={'x': 'C0', 'y': 'C1'}
  )
  colours = [patch.get_facecolor() for patch in figure.axes[0].patches]
  assert colours == [matplotlib.colors.to_rgba(c) for c in ('C0', 'C1')]


def test_no_two_nodes_of_a_tree_stand_in_one_place():
  """Orders leaves vertically like their parents, whatever their depth."""
  topology = trees.Topology((-1, -1, -1, 0, 0, 2, 2, 5))
  axes = drawings.tree(topology, list('abcdefgh'), [False] * 8, ['!']).axes[0]
  node_positions = {text.get_text(): text.get_position() for text in axes.texts}
  assert len(set(node_positions.values())) == len(node_positions)
  leaves = sorted('bdegh', key=lambda name: node_positions[name][1])
  assert leaves == ['d', 'e', 'b', 'h', 'g']
