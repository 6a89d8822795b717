"""Arms as configs write them: a drafter, its tree, a verifier and a goal.

In short, `DRAFTER[:TREE][/VERIFIER][~GOAL]`, each of them a component as in
`experiments.common.components`; in full, a dictionary:

    'medium:4'                one chain of 4 tokens, drafted by the model medium
    'medium:8x4/otm'          8 chains of 4
    'medium:3.2.1/kseq'       a prefix tree: 3 children, 2 of each, 1 of each
    'prompt_lookup(max_ngram=5):16'
    'small:5~opt(0.2)'        a speculative cascade
    'none'                    plain decoding

    {'drafter': {'name': 'autoregressive', 'model': 'medium'},
     'tree': ('chain', 4), 'verifier': 'otm', 'goal': {'name': 'opt', ...}}

A model of the family that stands for a drafter is that of `autoregressive`.
Without a verifier, it is `verifiers.default`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import re
from typing import Any
from typing import NamedTuple

from experiments.common import components
from specjax import base
from specjax import drafters
from specjax import families
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.data import datastore

# Parts of an arm, and what stands before each of them in the short form.
PARTS = {'drafter': '', 'tree': ':', 'verifier': '/', 'goal': '~'}
_TREE = re.compile(r'(\d+)(?:x(\d+)|((?:\.\d+)+))?')
# The option of a drafter that names the file of its parameters.
_PARAMS = 'params'


class Arm(NamedTuple):
  """An arm as it was written, taken apart; hashable."""

  drafter: components.Spec
  tree: components.Spec | None = None
  verifier: components.Spec | None = None
  goal: components.Spec | None = None

  def __str__(self) -> str:
    drafter = dict(self.drafter.options)
    name = str(self.drafter)
    if self.drafter == components.Spec(
      'autoregressive', (), (('model', drafter.get('model')),)
    ):
      name = drafter['model']
    parts = [name, self.tree and _short(self.tree), self.verifier, self.goal]
    return ''.join(
      f'{mark}{part}' for mark, part in zip(PARTS.values(), parts) if part
    )


class Pool(NamedTuple):
  """What arms are built of."""

  models: Mapping[str, families.Model]  # by name, 'target' among them
  sampling: sampling_lib.Sampling


def parse(entry: Any, models: Sequence[str], place: str) -> Arm:
  """Takes an arm apart.

  Args:
    entry: the short form, or a dictionary of `PARTS`.
    models: names of the family's, which may stand for a drafter.
    place: where the entry stands in the config, for errors.

  Raises:
    ValueError: it has another form.
  """
  if isinstance(entry, Arm):
    return entry
  if isinstance(entry, str):
    entry, place = _split(entry), f'{place} {entry!r}'
  if not hasattr(entry, 'items') or 'drafter' not in entry:
    raise ValueError(
      f"{place} must be an arm such as 'medium:4', or a dictionary of "
      f'{", ".join(PARTS)}, got {entry!r}.'
    )
  for name in entry:
    if name not in PARTS:
      raise ValueError(
        f'{place}: Unknown part {name!r} of an arm. Known: {", ".join(PARTS)}.'
      )
  parts = {name: entry[name] for name in entry if entry[name] is not None}
  specs = {
    name: components.parse(_tree(part) if name == 'tree' else part, place)
    for name, part in parts.items()
  }
  specs['drafter'] = _drafter(specs['drafter'], models, place)
  return Arm(**specs)


def build(arm: Arm, pool: Pool, place: str) -> tuple[base.Arm, base.Params]:
  """Builds an arm, with its drafter's parameters.

  Args:
    arm: from `parse`.
    pool: models and how tokens are drawn.
    place: where it stands in the config, for errors.

  Raises:
    ValueError: a part is refused; the sentence begins with the place.
  """
  tree = arm.tree and components.build(trees.Topology, arm.tree, place)
  drafter, params = _build_drafter(arm, tree, pool, place)
  verifier = arm.verifier or _default(arm, tree, pool)
  goal = arm.goal and components.build(base.Goal, arm.goal, place)
  built = components.build(base.Verifier, verifier, place)
  return base.Arm(drafter, built, goal), params


def label(arm: Arm) -> str:
  """Returns what tables call an arm: without the file of its parameters."""
  options = tuple(each for each in arm.drafter.options if each[0] != _PARAMS)
  return str(arm._replace(drafter=arm.drafter._replace(options=options)))


def numbers(arm: Arm) -> tuple[float, ...]:
  """Returns what may differ in arms of one compiled program.

  That is the numbers of goal, verifier and stop rule, in order.
  """
  found: list[float] = []
  with_numbers(arm, lambda value: found.append(value) or value)
  return tuple(found)


def with_numbers(arm: Arm, change: Callable[[Any], Any]) -> Arm:
  """Returns the arm with each of its `numbers` changed.

  `...` stands for a number that is not known yet.
  """
  goal, verifier = (
    part and _changed(part, change) for part in (arm.goal, arm.verifier)
  )
  options = tuple(
    (name, _changed(value, change) if name == 'stop' else value)
    for name, value in arm.drafter.options
  )
  drafter = arm.drafter._replace(options=options)
  return arm._replace(drafter=drafter, verifier=verifier, goal=goal)


def _changed(value, change):
  """A spec, a tuple or a value, with each number in it changed."""
  if isinstance(value, components.Spec):
    return value._replace(
      args=_changed(value.args, change),
      options=tuple((name, _changed(x, change)) for name, x in value.options),
    )
  if isinstance(value, tuple):
    return tuple(_changed(each, change) for each in value)
  return change(value) if isinstance(value, float) or value is ... else value


def _split(text):
  """The parts of the short form; marks inside of brackets are none."""
  parts, name, depth = {'drafter': ''}, 'drafter', 0
  marks = {mark: part for part, mark in PARTS.items() if mark}
  for letter in text:
    depth += (letter in '([{') - (letter in ')]}')
    part = marks.get(letter) if not depth else None
    if part and part not in parts:
      name, parts[part] = part, ''
    else:
      parts[name] += letter
  return parts


def _tree(entry):
  """A tree; a number or `KxL` stand for chains, `K.M.N` for a prefix tree."""
  found = _TREE.fullmatch(str(entry))
  if not found:
    return entry
  first, length, rest = found.groups()
  if rest:
    factors = tuple(map(int, f'{first}{rest}'.split('.')))
    return ('prefix_tree', factors)
  if length:
    return ('chains', int(first), int(length))
  return ('chain', int(first))


def _short(tree):
  """A tree as in the short form, if it has one."""
  args = tree.args if not tree.options else ()
  if tree.name == 'chain' and len(args) == 1:
    return str(args[0])
  if tree.name == 'chains' and len(args) == 2:
    return f'{args[0]}x{args[1]}'
  if tree.name == 'prefix_tree' and len(args) == 1 and len(args[0]) > 1:
    return '.'.join(map(str, args[0]))
  return str(tree)


def _drafter(spec, models, place):
  """The drafter; the name of a model stands for `autoregressive` of it."""
  if spec.name in drafters.DRAFTERS:
    return spec
  if spec.name in models and not spec.args:
    return components.Spec(
      'autoregressive', (), (('model', spec.name), *spec.options)
    )
  known = ', '.join([*models, *sorted(drafters.DRAFTERS)])
  raise ValueError(f'{place}: Unknown drafter {spec.name!r}. Known: {known}.')


def _build_drafter(arm, tree, pool, place):
  """The drafter and its parameters; those of its models come with them."""
  options = dict(arm.drafter.options)
  path = options.pop(_PARAMS, None)
  spec = arm.drafter._replace(options=tuple(options.items()))
  factory = components.find(base.Drafter, spec, place)
  params: list[Any] = [] if path is None else [datastore.load(path)]
  several: list[Any] = []

  def model(name):
    name = name if name is not None else ''
    chosen = registry.lookup(pool.models, 'model', name)
    params.append(chosen.params)
    return chosen.functions

  def members(names):
    each = [
      _build_drafter(
        arm._replace(
          drafter=_drafter(components.parse(name, place), pool.models, place),
          goal=None,
        ),
        tree,
        pool,
        place,
      )
      for name in names or ()
    ]
    several.extend(member for _, member in each)
    return tuple(member for member, _ in each)

  given = {
    base.LanguageModel: model,
    Sequence[base.Drafter]: members,
    'sampling': lambda value: value or pool.sampling,
    **_given_tree(factory, arm, tree, place),
  }
  if 'bonus_probs' in components.parameters(factory):
    # A goal needs the draft's distribution at the bonus position, too.
    given['bonus_probs'] = lambda value: (
      arm.goal is not None if value is None else value
    )
  drafter = components.build(base.Drafter, spec, place, given)
  if several:
    return drafter, tuple(several)
  return drafter, params[0] if params else None


def _given_tree(factory, arm, tree, place):
  """What a factory learns of the tree: itself, or its length and its chains."""
  names = components.parameters(factory)
  passes_on = any(
    each.annotation == Sequence[base.Drafter] for each in names.values()
  )
  shaped = {'topology', 'draft_length'} & set(names)
  if tree is None:
    if 'topology' in shaped:
      raise ValueError(
        f"{place}: {arm.drafter.name} needs a tree, as in '{arm.drafter}:4'."
      )
    return {}
  if not shaped and not passes_on:
    raise ValueError(f'{place}: {arm.drafter.name} takes no tree.')
  given = {'topology': lambda value: tree}
  if 'draft_length' in shaped:
    width = tree.num_nodes // max(tree.depth, 1)
    if tree != trees.chains(max(width, 1), max(tree.depth, 1)):
      raise ValueError(
        f'{place}: {arm.drafter.name} takes chains of 1 or more tokens, as '
        f"'8' and '4x8', got {_short(arm.tree)}."
      )
    given['draft_length'] = lambda value: tree.depth
    given['num_drafts'] = lambda value: width
  return given


def _default(arm, tree, pool):
  """The verifier, where none is named."""
  # What goals give at temperature 0 may still be drawn from.
  temperature = 1.0 if arm.goal is not None else pool.sampling.temperature
  names = components.parameters(drafters.DRAFTERS[arm.drafter.name])
  kinds = {each.annotation for each in names.values()}
  if Sequence[base.Drafter] in kinds and temperature:
    return components.Spec('ensemble')  # Siblings differ in distribution.
  several = tree is not None and tree.num_nodes > tree.depth
  return components.Spec(verifiers.default(temperature, 1 + several))
