"""Compares deferral rules by their loss on reference texts, without sampling.

The rules of speculative cascades (Narasimhan et al. 2024) minimize the expected
loss of the goal distribution plus a multiple of its rejection probability; see
equations (3) and (7), and Lemmas 1 and 4. The expectation is over the true
distribution of the next token, of which reference texts are samples. At each of
their tokens, the loss and the rejection probability of every rule are closed
forms of the target's and the draft's distributions.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import arms as arms_lib
from experiments.common import compare
from experiments.common import components
from experiments.common import log
from experiments.common import methods as methods_lib
from experiments.common import plots
from specjax import base
from specjax import checks
from specjax import families
from specjax import trees
from specjax.data import examples as examples_lib
from specjax.theory import constant

MAY_CHANGE = ('num_resamples',)
# Labels of required methods: lossy decoding, which others are compared with;
# the rule that never defers; and the target. Every line has the last two as
# points, which rules reach at the limits of their thresholds.
LOSSY, DRAFT, LOSSLESS = frontier.LOSSY, frontier.DRAFT, frontier.LOSSLESS
_ENDS = DRAFT, LOSSLESS
# Losses and their labels in plots.
_LOSSES = {
  'loss_01': 'expected 0-1 loss',
  'log_loss': 'log loss, nats per token',
}
# What is summed over the tokens of a text.
_SUMS = *_LOSSES, 'rejection_rate'
_PANELS = ('sampling.temperature',)
# Drafters whose distributions follow from the text before a token.
_DRAFTERS = 'autoregressive', 'feature_head'

# The goal of an arm, and its verifier if that is one of `texts.LOSSY`, which
# have `token_probs`; else None.
_Rule = tuple[base.Goal | None, Any]
# Columns of a row, as `[R]` values in resamples.
_Values = dict[str, np.ndarray]
# From `[R]` rejection rates to tokens per round.
_Efficiency = Callable[[np.ndarray], np.ndarray]


class Text(NamedTuple):
  """A prompt and its reference response."""

  tokens: list[int]
  start: int  # index of the response's first token


class Setup(NamedTuple):
  """The models, methods and texts of a config.

  Attributes:
    family: the target and the drafters.
    methods: the methods, which have one draft model, target and sampling.
    rules: goals and lossy verifiers of the methods.
    draft: name of the draft model, or of the head.
    draft_length: draft tokens per round.
    texts: reference texts, by domain.
  """

  family: families.Family
  methods: list[methods_lib.Method]
  rules: list[_Rule]
  draft: str
  draft_length: int
  texts: dict[str, list[Text]]


def prepare(config):
  """Returns the methods and reference texts of a config.

  Raises:
    ValueError: a method or a field is invalid, or references are missing.
  """
  checks.check_range('num_resamples', config.num_resamples, 2)
  checks.check_range('texts_per_domain', config.texts_per_domain, 1)
  entries = {f'methods[{i}]': method for i, method in enumerate(config.methods)}
  setup = compare.prepare_entries(config, entries)
  compare.check_labels(setup, LOSSY, *_ENDS)
  draft, draft_length = _draft(setup)
  compiled = compare.build_methods(setup, config.max_length)
  return Setup(
    setup.family,
    setup.methods,
    [_rule(method) for method in compiled],
    draft,
    draft_length,
    _texts(config, setup.family),
  )


def run(config, workdir):
  """Returns a row per method, and summary rows of each line; see `rows`."""
  setup = prepare(config)
  settings = {
    'family': config.family,
    'draft': setup.draft,
    'methods': [method.settings for method in setup.methods],
  }
  units = [
    {'domain': domain, 'texts': references, **settings}
    for domain, references in setup.texts.items()
  ]
  compute = functools.partial(text_sums, setup)
  inputs = list(setup.texts.values())
  outcomes = list(log.resume(workdir, units, compute, 'domains', inputs))
  return rows(
    [{'method': m.label, **m.columns} for m in setup.methods],
    np.concatenate([outcome['num_tokens'] for outcome in outcomes]),
    # None, a loss that is infinite, becomes NaN.
    np.concatenate([np.array(o['sums'], float) for o in outcomes]),
    setup.draft_length,
    config.num_resamples,
    config.seed,
  )


def rows(
  points: Sequence[Mapping[str, Any]],
  num_tokens: np.ndarray,
  sums: np.ndarray,
  draft_length: int,
  num_resamples: int,
  seed: int,
) -> list[dict[str, Any]]:
  """Returns a row per point, and two summary rows of each line.

  Points with one label form a line, to which the draft and the target belong as
  well. Lines are piecewise linear, since a coin may select one of two points
  for each text. `loss_01_over_lossy` and `log_loss_over_lossy` are a point's
  losses minus those of lossy decoding's line at the same rejection rate.
  `tokens_per_round` is that of Leviathan et al. (2023), Equation (1), with the
  mean acceptance probability.

  In the summary, 'equal loss' is the point of a line with the fewest rejections
  whose expected 0-1 loss is at most the target's; `ratio_to_lossy` divides its
  tokens per round by those of lossy decoding's line. 'least loss' is the point
  with the least 0-1 loss, and `loss_01_over_target` is that loss minus the
  target's.

  Errors are standard deviations over resamples of texts, the same for all
  points, so that what texts have in common cancels. Those of the summary
  include the selection of points.

  Args:
    points: `A` points: labels as `method`, and further columns.
    num_tokens: `[N]` lengths of the texts.
    sums: `[N, A, 3]` sums over the tokens of each text: expected 0-1 loss, log
      loss in nats, and rejection probability.
    draft_length: draft tokens per round.
    num_resamples: resamples of the texts, at least 2.
    seed: seed of the resamples.
  """
  num_texts = len(num_tokens)
  counts = np.random.default_rng(seed).multinomial(
    num_texts, np.full(num_texts, 1 / num_texts), num_resamples
  )
  # The first resample has every text once: the estimate.
  counts = np.vstack([np.ones_like(counts[:1]), counts])
  means = np.einsum('rn,nac->car', counts, sums) / (counts @ num_tokens)
  lines = _Lines([point['method'] for point in points], *means)
  efficiency = lambda rejections: _tokens_per_round(rejections, draft_length)
  shared = {'texts': num_texts, 'tokens': int(num_tokens.sum())}
  table = [
    {**point, **shared, **_estimates(_point(lines, i, efficiency))}
    for i, point in enumerate(points)
  ]
  for label in dict.fromkeys(lines.labels):
    if label not in _ENDS:
      best = lines.best_point(label)
      parts: tuple[tuple[str, Mapping[str, Any], _Values], ...] = (
        ('equal loss', {}, _equal_loss(lines, label, efficiency)),
        ('least loss', points[best], _least_loss(lines, label, best)),
      )
      table += [
        {'part': part, **columns, 'method': label, **shared}
        | _estimates(values)
        for part, columns, values in parts
      ]
  return table


class _Lines(NamedTuple):
  """Means over tokens: of `A` points, in `R` resamples."""

  labels: list[str]  # [A]
  loss_01: np.ndarray  # [A, R]
  log_loss: np.ndarray  # [A, R]
  rejections: np.ndarray  # [A, R]

  @property
  def target_loss(self) -> np.ndarray:
    """`[R]` the target's 0-1 loss."""
    return self.loss_01[self.labels.index(LOSSLESS)]

  def members(self, label: str) -> list[int]:
    """Returns the indices of a line's points."""
    return [
      i for i, other in enumerate(self.labels) if other in (label, *_ENDS)
    ]

  def best_point(self, label: str) -> int:
    """Returns the index of a line's point with the least 0-1 loss."""
    members = self.members(label)
    return members[int(np.argmin(self.loss_01[members, 0]))]

  def at(
    self, rejections: np.ndarray, label: str, losses: np.ndarray
  ) -> np.ndarray:
    """Returns the losses of a line at rejection rates, `[R]`.

    They are NaN if the first rate, the estimate, is not on the line.

    Args:
      rejections: `[R]` rejection rates.
      label: the label of the line.
      losses: `[A, R]`, one of the two losses.
    """
    x, y = self._sorted(label, losses)
    if not x[0, 0] <= rejections[0] <= x[-1, 0]:
      return np.full(len(rejections), np.nan)
    return np.array([np.interp(*row) for row in zip(rejections, x.T, y.T)])

  def fewest_rejections(self, label: str) -> np.ndarray:
    """Returns where a line first reaches the target's 0-1 loss, `[R]`."""
    x, y = self._sorted(label, self.loss_01)
    fewest = np.empty_like(self.target_loss)
    for i, bar in enumerate(self.target_loss):
      # The target itself is on the line.
      first = int(np.argmax(y[:, i] <= bar))
      fewest[i] = x[first, i]
      if first:
        ends = slice(first - 1, first + 1)
        # Rejections are interpolated by losses, which fall.
        fewest[i] = np.interp(-bar, -y[ends, i], x[ends, i])
    return fewest

  def _sorted(
    self, label: str, losses: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns a line's rejections in ascending order, and its losses."""
    members = self.members(label)
    order = np.argsort(self.rejections[members], axis=0, kind='stable')
    sort = lambda values: np.take_along_axis(values[members], order, axis=0)
    return sort(self.rejections), sort(losses)


def _tokens_per_round(rejections: np.ndarray, draft_length: int) -> np.ndarray:
  """Returns `[R]` expected tokens per round at mean rejection rates."""
  acceptance = np.clip(1 - rejections, 0, 1)
  return np.array(
    [constant.block_efficiency(a, draft_length) for a in acceptance]
  )


def _point(lines: _Lines, index: int, efficiency: _Efficiency) -> _Values:
  """Returns the columns of a point."""
  rejections = lines.rejections[index]
  losses = {name: getattr(lines, name) for name in _LOSSES}
  values = {name: loss[index] for name, loss in losses.items()}
  values['rejection_rate'] = rejections
  values['tokens_per_round'] = efficiency(rejections)
  if lines.labels[index] not in (LOSSY, *_ENDS):
    for name, loss in losses.items():
      on_line = lines.at(rejections, LOSSY, loss)
      values[f'{name}_over_lossy'] = loss[index] - on_line
  return values


def _equal_loss(lines: _Lines, label: str, efficiency: _Efficiency) -> _Values:
  """Returns the columns of the point of a line at the target's loss."""
  rejections = lines.fewest_rejections(label)
  tokens = efficiency(rejections)
  lossy_tokens = efficiency(lines.fewest_rejections(LOSSY))
  return {
    'rejection_rate': rejections,
    'tokens_per_round': tokens,
    'ratio_to_lossy': tokens / lossy_tokens,
  }


def _least_loss(lines: _Lines, label: str, best: int) -> _Values:
  """Returns the columns of a line's best point, selected in each resample."""
  loss_01 = lines.loss_01[lines.members(label)].min(axis=0)
  return {
    'loss_01': loss_01,
    'loss_01_over_target': loss_01 - lines.target_loss,
    'rejection_rate': lines.rejections[best],
  }


def _estimates(values: _Values) -> dict[str, Any]:
  """Returns estimates and their errors; None where they are undefined."""
  row: dict[str, Any] = {}
  for name, resamples in values.items():
    is_defined = np.isfinite(resamples).all()
    row[name] = float(resamples[0]) if is_defined else None
    row[f'{name}_error'] = (
      float(np.std(resamples[1:], ddof=1)) if is_defined else None
    )
  return row


def _draft(setup: compare.Setup) -> tuple[str, int]:
  """Returns the name of the methods' model or head, and the draft length.

  Raises:
    ValueError: a method does not draft a chain with a model or a head, has a
      verifier other than those of `texts.LOSSY`, or differs from others in its
      draft, target or sampling.
  """
  found = set()
  for method in setup.methods:
    place, (arm, *more_arms) = method.location, method.arms
    call = arm.drafter
    if (
      more_arms
      or arm.tree is None
      or arm.tree.name != 'chain'
      or call.name not in _DRAFTERS
      or len(call.args) + len(call.options) > 1
    ):
      raise ValueError(
        f"{place} must draft a chain with a model or a head, such as 'small:5' "
        f"or 'feature_head(eagle):5', got {', '.join(map(str, method.arms))}."
      )
    if arm.verifier and not texts.is_lossy(arm):
      raise ValueError(
        f'{place} must have no verifier other than {", ".join(texts.LOSSY)}, '
        f'got {arm}.'
      )
    tree = components.build(trees.Topology, arm.tree, place)
    (name,) = arms_lib.draft_models(arm, place)
    found.add((name, tree.depth, method.target, method.sampling))
  if len(found) > 1:
    raise ValueError(
      'methods must share draft model, draft length, target and sampling, got '
      f'{len(found)} combinations.'
    )
  ((name, depth, *_),) = found
  return name, depth


def _texts(config: Any, family: families.Family) -> dict[str, list[Text]]:
  """Returns up to `config.texts_per_domain` reference texts of each domain.

  Tokens past `config.max_length` are left out, and so are examples without a
  response, prompts that leave no room for one, and prompts of one token, after
  which a head predicts nothing.
  """
  examples = examples_lib.read_split(config.data_dir, 'eval')
  rng = np.random.default_rng(config.seed)
  by_domain = {}
  for domain in config.domains:
    answered = [
      example
      for example in examples_lib.select_domain(examples, domain)
      if example.response
    ]
    if not answered:
      raise ValueError(
        'domains must have eval examples with responses in data_dir, got none '
        f'in {domain!r}.'
      )
    encoded = (
      family.tokenizer.encode_example(answered[i].prompt, answered[i].response)
      for i in rng.permutation(len(answered))
    )
    fitting = (
      Text(tokens[: config.max_length], start)
      for tokens, start in encoded
      if 1 < start < config.max_length
    )
    chosen = list(itertools.islice(fitting, config.texts_per_domain))
    if not chosen:
      raise ValueError(
        f'max_length must leave room for a response in {domain!r}, got '
        f'{config.max_length}.'
      )
    by_domain[domain] = chosen
  return by_domain


def _rule(compiled: methods_lib.CompiledMethod) -> _Rule:
  """Returns the goal and the lossy verifier of a method."""
  arm = compiled.decoder.round_fn.arms[0]
  is_lossy = texts.is_lossy(compiled.method.arms[0])
  return arm.goal, arm.verifier if is_lossy else None


def text_sums(setup: Setup, references: Sequence[Text]) -> dict[str, Any]:
  """Returns the lengths of texts, and the sums of each text and rule."""
  method = setup.methods[0]
  models = setup.family.models
  target = models[method.target]
  # Rules that differ only in their numbers share one loop.
  kinds: dict[Any, list[int]] = {}
  for i, rule in enumerate(setup.rules):
    kinds.setdefault(jax.tree.structure(rule), []).append(i)
  stack = lambda *leaves: jnp.asarray(leaves, jnp.float32)
  stacked = [
    jax.tree.map(stack, *(setup.rules[i] for i in indices))
    for indices in kinds.values()
  ]
  sums = np.empty((len(references), len(setup.rules), len(_SUMS)))
  num_tokens = []
  for row, (tokens, start) in zip(sums, references):
    arguments = method.sampling, tokens, start
    probs = [texts.response_probs(target, *arguments)]
    if setup.draft in models:
      probs.append(texts.response_probs(models[setup.draft], *arguments))
    else:
      head = setup.family.drafters[setup.draft]
      probs.append(texts.head_probs(head, target, *arguments))
    num = len(tokens) - start
    response = np.zeros(len(probs[0].raw), np.int32)
    response[:num] = tokens[start:]
    for kind, indices, rule in zip(kinds, kinds.values(), stacked):
      # Without a number, all rules of a kind are equal.
      compute = _sums_of_rules if kind.num_leaves else _sums_of_rule
      row[indices] = compute(rule, *probs, response, num)
    num_tokens.append(num)
  finite = np.where(np.isfinite(sums), sums.astype(object), None)
  return {'num_tokens': num_tokens, 'sums': finite.tolist()}


@jax.jit
def _sums_of_rule(
  rule: _Rule,
  target: base.Probs,
  draft: base.Probs,
  response: jax.Array,
  num_tokens: jax.Array,
) -> jax.Array:
  """Returns `[3]` sums over the tokens of a response.

  Args:
    rule: the rule.
    target: `[T, V]` the target's distributions at each token.
    draft: `[T, V]` the draft's distributions at each token.
    response: `[T]` int32, padded at the end.
    num_tokens: how many of these tokens are no padding.
  """
  token_probs = functools.partial(_token_probs, rule)
  probs, rejection = jax.vmap(token_probs)(target, draft)
  emitted = jnp.take_along_axis(probs, response[:, None], axis=1)[:, 0]
  terms = jnp.stack([1 - emitted, -jnp.log(emitted), rejection])
  is_token = jnp.arange(len(response)) < num_tokens
  return jnp.where(is_token[None], terms, 0.0).sum(axis=1)


@jax.jit
def _sums_of_rules(rules: _Rule, *arguments: Any) -> jax.Array:
  """Returns the `[n, 3]` sums of `n` rules, whose leaves are stacked."""
  return jax.lax.map(lambda rule: _sums_of_rule(rule, *arguments), rules)


def _token_probs(
  rule: _Rule, target: base.Probs, draft: base.Probs
) -> tuple[jax.Array, jax.Array]:
  """Returns `[V]` probabilities of an emitted token, and of a rejection."""
  goal, lossy = rule
  probs = target.processed
  if goal is not None:
    raw = base.RawProbs(target.raw, draft.raw)
    probs = goal(probs, draft.processed, raw)
  if lossy is not None:
    return lossy.token_probs(draft.processed, probs)
  return probs, jnp.maximum(probs - draft.processed, 0.0).sum()


def figures(rows):
  """Draws losses, and their differences from lossy decoding, by rejections."""
  points = [row for row in rows if 'part' not in row]

  def draw(points, y, ylabel, **options):
    return plots.lines(
      points,
      'rejection_rate',
      y,
      'method',
      panel=[name for name in _PANELS if name in points[0]],
      xlabel='rejection probability',
      ylabel=ylabel,
      **options,
    )

  drawn = {}
  for name, label in _LOSSES.items():
    if any(row.get(name) is not None for row in points):
      is_lossless = lambda row: row['method'] == LOSSLESS
      drawn[name] = draw(points, name, label, level=is_lossless)
    difference = f'{name}_over_lossy'
    compared = [row for row in points if row.get(difference) is not None]
    if compared:
      label = f'{label}, minus lossy decoding'
      error = f'{difference}_error'
      drawn[difference] = draw(compared, difference, label, error=error)
  return drawn
