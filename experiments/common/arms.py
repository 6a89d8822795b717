"""Parses and builds the arms of a config: drafter, tree, verifier and goal.

An arm is a string `DRAFTER[:TREE][/VERIFIER][~GOAL]`, where each part is a
call, as in `experiments.common.calls`:

    'medium:4'                one chain of 4 tokens from the model `medium`
    'medium:8x4/otm'          8 chains of 4 tokens
    'medium:3.2.1/kseq'       a prefix tree with 3, 2 and 1 children per node
    'prompt_lookup(max_ngram=5):16'
    'small:5~opt(0.2)'        a speculative cascade
    'feature_head(eagle):5'   a chain from the head `eagle`
    'feature_head(eagle):eagle'
    'medusa(heads):4'
    'rescored(heads, small, weight=0.3):4'
    'block_head(dflash):4'
    'dynamic_tree(eagle, num_nodes=30)'
    'lookup_or(suffix, "small:2", min_match=4):8'  'small' has its own tree
    'early_exit(target, num_layers=6):4'
    'none'                    plain decoding

Spaces around separators are ignored. In place of a drafter, the name of a model
of the family means `autoregressive` with that model. The verifier defaults to
`verifiers.default`.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import re
from typing import Any
from typing import NamedTuple

from experiments.common import calls
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

# Parts of an arm, and the separator before each of them.
_PARTS = {'drafter': '', 'tree': ':', 'verifier': '/', 'goal': '~'}
_TREE = re.compile(r'(\d+)(?:x(\d+)|((?:\.\d+)+))?')
_TREE_FORMS = '4 (one chain), 8x4 (8 chains of 4), 3.2.1 (a prefix tree)'
# The option of a drafter that names its parameter file.
_PARAMS = 'params'
# Names of the models that drafters take, by the annotation of the parameter.
_NOUNS: dict[Any, str] = {
  base.LanguageModel: 'model',
  base.FeatureHead: 'head on features',
  base.ParallelHead: 'set of parallel heads',
  base.BlockHead: 'block head',
}
_DRAFTER_TYPES = base.Drafter, Sequence[base.Drafter]


class Arm(NamedTuple):
  """An arm, parsed but not built; hashable."""

  drafter: calls.Call
  tree: calls.Call | None = None
  verifier: calls.Call | None = None
  goal: calls.Call | None = None

  def __str__(self) -> str:
    drafter = self.drafter
    model = dict(drafter.options).get('model')
    if drafter == calls.Call('autoregressive', (), (('model', model),)):
      drafter = model
    parts = [drafter, self.tree and _short(self.tree), *self[2:]]
    return ''.join(
      f'{mark}{part}' for mark, part in zip(_PARTS.values(), parts) if part
    )


class Pool(NamedTuple):
  """The models and the sampling that arms are built with."""

  models: Mapping[str, families.Model | models.Head]  # including 'target'
  sampling: sampling_lib.Sampling


def parse(entry: Any, models: Sequence[str], location: str) -> Arm:
  """Parses an arm and checks everything that needs no model.

  Args:
    entry: an arm as at the top of this file; an `Arm` is returned as it is.
    models: names of models that may be used as drafters.
    location: in the config, for error messages.

  Raises:
    ValueError: the arm is invalid.
  """
  if isinstance(entry, Arm):
    return entry
  if not isinstance(entry, str):
    raise ValueError(
      f"{location} must be an arm such as 'medium:4', got {entry!r}."
    )
  context = f'{location} {entry!r}'
  texts = _split(entry)
  drafter = calls.parse(texts.pop('drafter'), f'{context}: drafter')
  parts = {
    name: _tree(text, context)
    if name == 'tree'
    else calls.parse(text, f'{context}: {name}')
    for name, text in texts.items()
  }
  arm = Arm(_drafter(drafter, models, context), **parts)
  _check(arm, models, location)
  return arm


def build(arm: Arm, pool: Pool, location: str) -> tuple[base.Arm, base.Params]:
  """Builds an arm, with its drafter's parameters."""
  tree = arm.tree and components.build(trees.Topology, arm.tree, location)
  drafter, params = _build_drafter(arm, tree, pool, location)
  verifier = arm.verifier or _default(arm, drafter, pool)
  goal = arm.goal and components.build(base.Goal, arm.goal, location)
  built = components.build(base.Verifier, verifier, location)
  return base.Arm(drafter, built, goal), params


def draft_models(arm: Arm, location: str) -> list[str]:
  """Returns the names of the models and heads that an arm drafts with."""
  factory = components.find(base.Drafter, arm.drafter, location)
  options = components.bind(factory, arm.drafter, location)
  return [
    options[name]
    for name, parameter in components.parameters(factory).items()
    if parameter.annotation in _NOUNS and name in options
  ]


def label(arm: Arm) -> str:
  """Returns the label of an arm in tables: without its parameter file."""
  options = tuple(o for o in arm.drafter.options if o[0] != _PARAMS)
  return str(arm._replace(drafter=arm.drafter._replace(options=options)))


def _split(text: str) -> dict[str, str]:
  """Splits an arm at separators that are not inside brackets."""
  parts, name, depth = {'drafter': ''}, 'drafter', 0
  separators = {mark: part for part, mark in _PARTS.items() if mark}
  for letter in text:
    depth += (letter in '([{') - (letter in ')]}')
    part = separators.get(letter) if not depth else None
    if part and part not in parts:
      name, parts[part] = part, ''
    else:
      parts[name] += letter
  return {name: part.strip() for name, part in parts.items()}


def _tree(text: str, context: str) -> calls.Call:
  """Parses a tree; `L` or `KxL` mean chains, and `K.M.N` a prefix tree."""
  match = _TREE.fullmatch(text)
  if match:
    first, length, deeper_levels = match.groups()
    if deeper_levels:
      levels = tuple(map(int, text.split('.')))
      return calls.Call('prefix_tree', (levels,))
    if length:
      return calls.Call('chains', (int(first), int(length)))
    return calls.Call('chain', (int(first),))
  try:
    return components.parse(trees.Topology, text, context)
  except ValueError:
    known = ', '.join([_TREE_FORMS, *sorted(trees.TREES)])
    raise ValueError(
      f'{context}: Unknown tree {text!r}. Known: {known}.'
    ) from None


def _short(tree: calls.Call) -> str:
  """Formats a tree in the short form, if it has one."""
  args = tree.args if not tree.options else ()
  if tree.name == 'chain' and len(args) == 1:
    return str(args[0])
  if tree.name == 'chains' and len(args) == 2:
    return f'{args[0]}x{args[1]}'
  if tree.name == 'prefix_tree' and len(args) == 1 and len(args[0]) > 1:
    return '.'.join(map(str, args[0]))
  return str(tree)


def _drafter(
  call: calls.Call, models: Iterable[str], location: str
) -> calls.Call:
  """Returns the drafter; a model's name means `autoregressive` with it."""
  if call.name in drafters.DRAFTERS:
    return call
  known = [*(() if call.args else models), *sorted(drafters.DRAFTERS)]
  configs.check_known([call.name], known, f'{location}: Unknown drafter')
  options = ('model', call.name), *call.options
  return calls.Call('autoregressive', (), options)


def _check(arm: Arm, models: Sequence[str], location: str) -> None:
  """Raises `ValueError` for errors that do not depend on the models."""
  tree = arm.tree and components.build(trees.Topology, arm.tree, location)
  for kind, part in ((base.Goal, arm.goal), (base.Verifier, arm.verifier)):
    if part is not None:
      components.build(kind, part, location)
  _check_drafter(arm, tree, models, location)


def _check_drafter(
  arm: Arm,
  tree: trees.Topology | None,
  models: Sequence[str],
  location: str,
) -> None:
  """Checks a drafter and the drafters that it is composed of."""
  call, _ = _without_params(arm.drafter)
  factory = components.find(base.Drafter, call, location)
  _tree_providers(factory, arm, tree, location)
  options = components.bind(factory, call, location)
  for name, parameter in components.parameters(factory).items():
    value, kind = options.get(name), parameter.annotation
    if kind in _NOUNS:
      _check_model(kind, value, models, f'{location}: {call.name}')
    elif kind in _DRAFTER_TYPES and value is not None:
      entries = (value,) if kind is base.Drafter else value
      for inner, inner_tree in _inner_arms(
        arm, tree, entries, models, location
      ):
        _check_drafter(inner, inner_tree, models, location)


def _check_model(
  kind: Any, name: str | None, models: Iterable[str], location: str
) -> None:
  """Raises `ValueError` if a family has no such model or head."""
  noun = _NOUNS[kind]
  if name is None:
    raise ValueError(
      f'{location} needs the name of a {noun}, which is not set.'
    )
  known = dict.fromkeys([*models, 'target'])
  if name in known:
    return
  names = ', '.join(known)
  if kind is base.LanguageModel:
    raise ValueError(f'{location}: Unknown {noun} {name!r}. Known: {names}.')
  raise ValueError(
    f'{location}: The family has no {noun} {name!r}, only {names}; '
    f'{_families_with_heads()}'
  )


def _families_with_heads() -> str:
  return f'the families with heads are {", ".join(families.with_heads())}.'


def _without_params(
  call: calls.Call,
) -> tuple[calls.Call, str | None]:
  """Splits a drafter into itself and its parameter file, if it has one."""
  options = dict(call.options)
  path = options.pop(_PARAMS, None)
  return call._replace(options=tuple(options.items())), path


def _build_drafter(
  arm: Arm, tree: trees.Topology | None, pool: Pool, location: str
) -> tuple[base.Drafter, base.Params]:
  """Builds a drafter, with its parameters or those of its models."""
  call, path = _without_params(arm.drafter)
  factory = components.find(base.Drafter, call, location)
  options = components.bind(factory, call, location)
  params: Any = None if path is None else datastore.load(path)
  parts: dict[str, Any] = {}  # Models and drafters that it is composed of.
  kinds = [
    parameter.annotation
    for parameter in components.parameters(factory).values()
    if parameter.annotation in (*_NOUNS, *_DRAFTER_TYPES)
  ]
  has_one_part = len(kinds) == 1 and kinds[0] in (*_NOUNS, base.Drafter)
  # Several drafters are judged without the goal.
  goal = arm.goal if has_one_part else None
  part_params: list[base.Params] = []
  for name, parameter in components.parameters(factory).items():
    kind, value = parameter.annotation, options.get(name)
    if kind in _NOUNS:
      model = _find_model(arm, kind, value, pool, location)
      parts[name] = model.model
      part_params.append(model.params)
    elif kind in _DRAFTER_TYPES and value is not None:
      entries = (value,) if kind is base.Drafter else value
      members = [
        _build_drafter(inner, inner_tree, pool, location)
        for inner, inner_tree in _inner_arms(
          arm._replace(goal=goal), tree, entries, pool.models, location
        )
      ]
      part_params += [member_params for _, member_params in members]
      built = tuple(drafter for drafter, _ in members)
      parts[name] = built[0] if kind is base.Drafter else built
    elif kind is base.Drafter:
      part_params.append(None)  # A default drafter takes none.
  if part_params:
    params = part_params[0] if has_one_part else tuple(part_params)
  providers: dict[Any, Callable[[Any], Any]] = {
    **{name: lambda _, value=value: value for name, value in parts.items()},
    'sampling': lambda value: value or pool.sampling,
    'vocab_size': lambda value: value or pool.models['target'].model.vocab_size,
    **_tree_providers(factory, arm, tree, location),
  }
  if 'bonus_probs' in components.parameters(factory):
    # A goal also needs the draft's distribution at the bonus position.
    providers['bonus_probs'] = lambda value: (
      arm.goal is not None if value is None else value
    )
  return components.build(base.Drafter, call, location, providers), params


def _inner_arms(
  arm: Arm,
  tree: trees.Topology | None,
  entries: Iterable[Any],
  models: Iterable[str],
  location: str,
) -> list[tuple[Arm, trees.Topology | None]]:
  """Returns the drafters that a drafter is composed of, with their trees.

  An entry that names no tree, as in 'small:2', has the tree of the arm.
  """
  arms = []
  for entry in entries:
    texts = _split(entry) if isinstance(entry, str) else {'drafter': entry}
    configs.check_known(
      texts, ('drafter', 'tree'), f'{location}: A drafter inside of another'
    )
    call = _drafter(calls.parse(texts['drafter'], location), models, location)
    inner = arm._replace(drafter=call)
    if 'tree' in texts:
      inner = inner._replace(tree=_tree(texts['tree'], location))
      tree_of_entry = components.build(trees.Topology, inner.tree, location)
      arms.append((inner, tree_of_entry))
    else:
      arms.append((inner, tree))
  return arms


def _find_model(
  arm: Arm, kind: Any, name: str | None, pool: Pool, location: str
) -> families.Model | models.Head:
  """Returns the model or head that an arm drafts with.

  Raises:
    ValueError: the family has no model of this name and kind.
  """
  _check_model(kind, name, pool.models, f'{location}: {arm.drafter.name}')
  model = pool.models[name]
  if not isinstance(model.model, kind):
    raise ValueError(
      f'{location}: {arm.drafter.name} takes a {_NOUNS[kind]}, but {name!r} '
      f'is a {_noun(model.model)}. {_names_of_kind(kind, pool)}'
    )
  return model


def _noun(model: Any) -> str:
  """Returns the name of a model's kind for error messages."""
  return next(noun for kind, noun in _NOUNS.items() if isinstance(model, kind))


def _names_of_kind(kind: Any, pool: Pool) -> str:
  """Returns a sentence that lists the models or heads of one kind."""
  names = [n for n, m in pool.models.items() if isinstance(m.model, kind)]
  if names:
    return f'The family has {", ".join(names)} of that kind.'
  missing = f'The family has no {_NOUNS[kind]}'
  if kind is base.LanguageModel:
    return f'{missing}.'
  return f'{missing}; {_families_with_heads()}'


def _tree_providers(
  factory: components.Factory,
  arm: Arm,
  tree: trees.Topology | None,
  location: str,
) -> dict[str, Callable[[Any], Any]]:
  """Returns providers of the tree, or of its length and number of chains."""
  names = components.parameters(factory)
  context = f'{location}: {arm._replace(tree=None, verifier=None, goal=None)}'
  if tree is None:
    if 'topology' in names:
      with_tree = arm._replace(tree=calls.Call('chain', (4,)))
      raise ValueError(f"{context} needs a tree, as in '{with_tree}'.")
    return {}
  providers: dict[str, Callable[[Any], Any]] = {'topology': lambda value: tree}
  if 'draft_length' in names:
    width = tree.num_nodes // max(tree.depth, 1)
    if tree != trees.chains(max(width, 1), max(tree.depth, 1)):
      raise ValueError(
        f"{context} takes chains of 1 or more tokens, such as '8' and '4x8', "
        f'got {_short(arm.tree)}.'
      )
    providers['draft_length'] = lambda value: tree.depth
    providers['num_drafts'] = lambda value: width
  elif 'topology' not in names and not _is_composed(factory):
    raise ValueError(f'{context} takes no tree.')
  return providers


def _is_composed(factory: components.Factory) -> bool:
  """Returns whether a drafter is composed of other drafters."""
  parameters = components.parameters(factory).values()
  return any(p.annotation in _DRAFTER_TYPES for p in parameters)


def _default(arm: Arm, drafter: base.Drafter, pool: Pool) -> calls.Call:
  """Returns the verifier of an arm that names none."""
  # A goal distribution may be random even at temperature 0.
  temperature = 1.0 if arm.goal is not None else pool.sampling.temperature
  name = verifiers.default(
    temperature, drafter.topology.width, drafter.siblings
  )
  return calls.Call(name)
