"""Arms as configs write them: a drafter, its tree, a verifier and a goal.

In short, `DRAFTER[:TREE][/VERIFIER][~GOAL]`, each of them a component as in
`experiments.common.components`; in full, a dictionary:

    'medium:4'                one chain of 4 tokens, drafted by the model medium
    'medium:8x4/otm'          8 chains of 4
    'medium:3.2.1/kseq'       a prefix tree: 3 children, 2 of each, 1 of each
    'prompt_lookup(max_ngram=5):16'
    'small:5~opt(0.2)'        a speculative cascade
    'feature_head(eagle):5'   by the head eagle; 'medusa(heads):4' likewise
    'feature_head(eagle):eagle'
    'dynamic_tree(eagle, num_nodes=30)'
    'early_exit(target, num_layers=6):4'
    'none'                    plain decoding

    {'drafter': {'name': 'autoregressive', 'model': 'medium'},
     'tree': ('chain', 4), 'verifier': 'otm', 'goal': {'name': 'opt', ...}}

Spaces around the marks do not count. A model of the family that stands for a
drafter is that of `autoregressive`. Without a verifier, it is
`verifiers.default`.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import re
from typing import Any
from typing import NamedTuple

from experiments.common import components
from experiments.common import configs
from specjax import base
from specjax import drafters
from specjax import families
from specjax import models
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.data import datastore

# Parts of an arm, and what stands before each of them in the short form.
PARTS = {'drafter': '', 'tree': ':', 'verifier': '/', 'goal': '~'}
_TREE = re.compile(r'(\d+)(?:x(\d+)|((?:\.\d+)+))?')
_TREE_FORMS = '4 (one chain), 8x4 (8 chains of 4), 3.2.1 (a prefix tree)'
# The option of a drafter that names the file of its parameters.
_PARAMS = 'params'
# What drafters are made of, by what their parameters are annotated with.
_NOUNS: dict[Any, str] = {
  base.LanguageModel: 'model',
  base.FeatureHead: 'head on features',
  base.ParallelHead: 'set of parallel heads',
}
_OF_DRAFTERS = base.Drafter, Sequence[base.Drafter]


class Arm(NamedTuple):
  """An arm as it was written, taken apart; hashable."""

  drafter: components.Spec
  tree: components.Spec | None = None
  verifier: components.Spec | None = None
  goal: components.Spec | None = None

  def __str__(self) -> str:
    drafter = self.drafter
    model = dict(drafter.options).get('model')
    if drafter == components.Spec('autoregressive', (), (('model', model),)):
      drafter = model
    parts = [drafter, self.tree and _short(self.tree), *self[2:]]
    return ''.join(
      f'{mark}{part}' for mark, part in zip(PARTS.values(), parts) if part
    )


class Pool(NamedTuple):
  """What arms are built of."""

  # By name, 'target' among them.
  models: Mapping[str, families.Model | models.Head]
  sampling: sampling_lib.Sampling


def parse(entry: Any, models: Sequence[str], place: str) -> Arm:
  """Takes an arm apart, and refuses all that is wrong without its models.

  Args:
    entry: as at the top of this file.
    models: names that may stand for a drafter.
    place: in the config, for errors.
  """
  if isinstance(entry, Arm):
    return entry
  at = place
  if isinstance(entry, str):
    entry, at = _split(entry), f'{place} {entry!r}'
  if not hasattr(entry, 'items') or 'drafter' not in entry:
    raise ValueError(
      f"{place} must be an arm such as 'medium:4', or a dictionary of "
      f'{", ".join(PARTS)}, got {entry!r}.'
    )
  configs.check_known(entry, PARTS, f'{at}: Unknown part', ' of an arm')
  parsers = {'tree': _tree}
  specs = {
    name: parsers.get(name, components.parse)(part, f'{at}: {name}')
    for name, part in entry.items()
    if part is not None
  }
  specs['drafter'] = _drafter(specs['drafter'], models, at)
  arm = Arm(**specs)
  _check(arm, models, place)
  return arm


def build(arm: Arm, pool: Pool, place: str) -> tuple[base.Arm, base.Params]:
  """Builds an arm, with its drafter's parameters."""
  tree = arm.tree and components.build(trees.Topology, arm.tree, place)
  drafter, params = _build_drafter(arm, tree, pool, place)
  verifier = arm.verifier or _default(arm, drafter, pool)
  goal = arm.goal and components.build(base.Goal, arm.goal, place)
  built = components.build(base.Verifier, verifier, place)
  return base.Arm(drafter, built, goal), params


def model_of(arm: Arm, place: str) -> str | None:
  """Returns the name of the model that an arm drafts with, if it has one."""
  factory = components.find(base.Drafter, arm.drafter, place)
  options = components.bind(factory, arm.drafter, place)
  for name, each in components.parameters(factory).items():
    if each.annotation in _NOUNS:
      return options.get(name)
  return None


def label(arm: Arm) -> str:
  """Returns what tables call an arm: without the file of its parameters."""
  options = tuple(each for each in arm.drafter.options if each[0] != _PARAMS)
  return str(arm._replace(drafter=arm.drafter._replace(options=options)))


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
  return {name: part.strip() for name, part in parts.items()}


def _tree(entry, place):
  """A tree; a number or `KxL` stand for chains, `K.M.N` for a prefix tree."""
  found = _TREE.fullmatch(str(entry))
  if found:
    first, length, rest = found.groups()
    if rest:
      levels = tuple(map(int, f'{first}{rest}'.split('.')))
      return components.Spec('prefix_tree', (levels,))
    if length:
      return components.Spec('chains', (int(first), int(length)))
    return components.Spec('chain', (int(first),))
  try:
    spec = components.parse(entry, place)
  except ValueError:
    spec = None
  if spec is None or spec.name not in trees.TREES:
    known = ', '.join([_TREE_FORMS, *sorted(trees.TREES)])
    place = place.removesuffix(': tree')
    raise ValueError(f'{place}: Unknown tree {entry!r}. Known: {known}.')
  return spec


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
  known = [*(() if spec.args else models), *sorted(drafters.DRAFTERS)]
  configs.check_known([spec.name], known, f'{place}: Unknown drafter')
  options = ('model', spec.name), *spec.options
  return components.Spec('autoregressive', (), options)


def _check(arm, models, place):
  """Refuses what is wrong with an arm, whatever its models are."""
  tree = arm.tree and components.build(trees.Topology, arm.tree, place)
  for kind, spec in ((base.Goal, arm.goal), (base.Verifier, arm.verifier)):
    if spec is not None:
      components.build(kind, spec, place)
  _check_drafter(arm, tree, models, place)


def _check_drafter(arm, tree, models, place):
  """As `_check`, of a drafter and of those that it is made of."""
  spec, _ = _without_params(arm.drafter)
  factory = components.find(base.Drafter, spec, place)
  _given_tree(factory, arm, tree, place)
  options = components.bind(factory, spec, place)
  for name, each in components.parameters(factory).items():
    value = options.get(name)
    if each.annotation in _NOUNS:
      _check_model(each.annotation, value, models, f'{place}: {spec.name}')
    elif each.annotation in _OF_DRAFTERS and value is not None:
      inner = (value,) if each.annotation is base.Drafter else value
      for drafter in inner:
        named = _drafter(components.parse(drafter, place), models, place)
        _check_drafter(arm._replace(drafter=named), tree, models, place)


def _check_model(kind, name, models, place):
  """Refuses the name of a model or a head that a family does not have."""
  noun = _NOUNS[kind]
  if name is None:
    raise ValueError(f'{place} needs the name of a {noun}, which is not set.')
  known = dict.fromkeys([*models, 'target'])
  if name in known:
    return
  names = ', '.join(known)
  if kind is base.LanguageModel:
    raise ValueError(f'{place}: Unknown {noun} {name!r}. Known: {names}.')
  raise ValueError(
    f'{place}: The family has no {noun} {name!r}, only {names}; '
    f'{_families_with_heads()}'
  )


def _families_with_heads():
  return f'the families with heads are {", ".join(families.with_heads())}.'


def _without_params(spec):
  """A drafter without the file of its parameters, and that file or None."""
  options = dict(spec.options)
  path = options.pop(_PARAMS, None)
  return spec._replace(options=tuple(options.items())), path


def _build_drafter(arm, tree, pool, place):
  """The drafter and its parameters; those of its models come with them."""
  spec, path = _without_params(arm.drafter)
  factory = components.find(base.Drafter, spec, place)
  params: list[Any] = [] if path is None else [datastore.load(path)]
  several: list[Any] = []

  def model(kind, name):
    _check_model(kind, name, pool.models, f'{place}: {arm.drafter.name}')
    chosen = pool.models[name]
    if not isinstance(chosen.model, kind):
      raise ValueError(
        f'{place}: {arm.drafter.name} takes a {_NOUNS[kind]}, but {name!r} is '
        f'a {_noun(chosen.model)}. {_of_kind(kind, pool)}'
      )
    params.append(chosen.params)
    return chosen.model

  def member(name, goal=None):
    named = _drafter(components.parse(name, place), pool.models, place)
    inner = arm._replace(drafter=named, goal=goal)
    return _build_drafter(inner, tree, pool, place)

  def inside(name):
    if name is None:
      return None
    drafter, own = member(name, arm.goal)
    params.append(own)
    return drafter

  def members(names):
    several.extend(map(member, names or ()))
    return tuple(drafter for drafter, _ in several)

  given = {
    **{kind: functools.partial(model, kind) for kind in _NOUNS},
    base.Drafter: inside,
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
    return drafter, tuple(params for _, params in several)
  return drafter, params[0] if params else None


def _noun(model: Any) -> str:
  """Returns what a model or a head is called in errors."""
  return next(noun for kind, noun in _NOUNS.items() if isinstance(model, kind))


def _of_kind(kind, pool):
  """A sentence on which models or heads of a kind there are."""
  names = [n for n, m in pool.models.items() if isinstance(m.model, kind)]
  if names:
    return f'The family has {", ".join(names)} of that kind.'
  missing = f'The family has no {_NOUNS[kind]}'
  if kind is base.LanguageModel:
    return f'{missing}.'
  return f'{missing}; {_families_with_heads()}'


def _given_tree(factory, arm, tree, place):
  """What a factory learns of the tree: itself, or its length and its chains."""
  names = components.parameters(factory)
  said = f'{place}: {arm._replace(tree=None, verifier=None, goal=None)}'
  if tree is None:
    if 'topology' in names:
      with_tree = arm._replace(tree=components.Spec('chain', (4,)))
      raise ValueError(f"{said} needs a tree, as in '{with_tree}'.")
    return {}
  given = {'topology': lambda value: tree}
  if 'draft_length' in names:
    width = tree.num_nodes // max(tree.depth, 1)
    if tree != trees.chains(max(width, 1), max(tree.depth, 1)):
      raise ValueError(
        f"{said} takes chains of 1 or more tokens, as '8' and '4x8', got "
        f'{_short(arm.tree)}.'
      )
    given['draft_length'] = lambda value: tree.depth
    given['num_drafts'] = lambda value: width
  elif 'topology' not in names and not _of_others(factory):
    raise ValueError(f'{said} takes no tree.')
  return given


def _of_others(factory):
  """Whether a drafter is made of another, or of several."""
  options = components.parameters(factory).values()
  return any(each.annotation in _OF_DRAFTERS for each in options)


def _default(arm, drafter, pool):
  """The verifier, where none is named."""
  # What goals give at temperature 0 may still be drawn from.
  temperature = 1.0 if arm.goal is not None else pool.sampling.temperature
  name = verifiers.default(
    temperature, drafter.topology.width, drafter.siblings
  )
  return components.Spec(name)
