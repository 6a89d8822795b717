"""Drawings show each token on the color of its origin."""

import matplotlib
from matplotlib import pyplot as plt
import pytest

from specjax import drawings
from specjax import trees

matplotlib.use('Agg')


@pytest.fixture(autouse=True)
def _close():
  yield
  plt.close('all')


def test_tree_is_drawn_with_the_tokens_that_its_round_emitted():
  """Two of three branches agree with the text at first, one of them twice."""
  topology = trees.chains(3, 2)
  tokens = ['a', 'b', 'a', 'c', 'd', 'e']
  figure = drawings.tree(
    topology, tokens, [True, False, True, True, False, False], ['a', 'c', '!']
  )
  (axes,) = figure.axes
  texts = [text.get_text() for text in axes.texts]
  assert texts == [*tokens, 'prompt', 'emitted', 'a', 'c', '!']
  color = lambda text: text.get_bbox_patch().get_facecolor()
  expected = map(matplotlib.colors.to_rgba, drawings.ORIGIN_COLORS.values())
  accepted, corrected, bonus, sampled = expected
  assert color(axes.texts[0]) == color(axes.texts[-2]) == accepted
  assert color(axes.texts[1]) == sampled
  assert color(axes.texts[-1]) == bonus
  shorter = drawings.tree(topology, tokens, [False] * 6, ['!']).axes[0]
  assert color(shorter.texts[-1]) == corrected


def test_no_two_nodes_of_a_tree_overlap():
  """Orders leaves vertically like their parents, whatever their depth."""
  topology = trees.Topology((-1, -1, -1, 0, 0, 2, 2, 5))
  axes = drawings.tree(topology, list('abcdefgh'), [False] * 8, ['!']).axes[0]
  node_positions = {text.get_text(): text.get_position() for text in axes.texts}
  assert len(set(node_positions.values())) == len(node_positions)
  leaves = sorted('bdegh', key=lambda name: node_positions[name][1])
  assert leaves == ['d', 'e', 'b', 'h', 'g']


def test_letters_of_a_text_have_the_colors_of_their_tokens():
  pieces = [('ab', 'x'), ('', 'z'), ('\nc', 'y')]
  colors = {'x': 'C0', 'y': 'C1', 'z': 'C2'}
  figure = drawings.text(pieces, 'A title', colors=colors)
  (axes,) = figure.axes
  letters = [(text.get_text(), *text.get_position()) for text in axes.texts]
  assert letters == [('a', 0.5, 0.5), ('b', 1.5, 0.5), ('c', 0.5, 1.5)]
  shades = [patch.get_facecolor() for patch in axes.patches]
  assert shades == [matplotlib.colors.to_rgba(c) for c in ('C0', 'C0', 'C1')]
  (legend,) = figure.legends
  assert [text.get_text() for text in legend.texts] == ['x', 'y']


def test_long_lines_and_titles_are_wrapped():
  figure = drawings.text([('a' * 50, 'bonus')], 'many words ' * 8, width=45)
  (axes,) = figure.axes
  assert axes.texts[-1].get_position() == (4.5, 1.5)
  assert max(map(len, axes.get_title(loc='left').split('\n'))) <= 45
