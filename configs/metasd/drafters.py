r"""Specialized drafters, bandits and routers: MetaSD's main tables.

python -m experiments.main --config=configs/metasd/drafters.py \
    --config.data_dir=DATA --workdir=runs/metasd_drafters

These are Tables 3 and 7 (in domain), 12 (paraphrased), 6 (router) and 11
(out of domain). All drafters have the same size, so that the paper's ratios of
speed-ups are compared with our ratios of block efficiencies; --config.repeats=3
also measures speed-ups. In domain, ucb1 emits 3.29 ± 0.13 tokens per target
call with BD and 2.96 ± 0.15 with BE, over all five domains.
"""

import ml_collections

from experiments.common import paper
from specjax import registry

DOMAINS = ('code', 'translation', 'summarization', 'qa', 'math')
_CHAIN, HEAD = '{}:5', 'feature_head({}):5'
ARMS = tuple(map(_CHAIN.format, DOMAINS))
# One tree with the drafts of all drafters.
DRAFT_ALL = {
  'arm': f'ensemble([{", ".join(DOMAINS)}]):5',
  'label': 'draft-all:5',
}

# Sizes for SmolLM2.
SIZES = {
  'prompts_per_domain': 8,
  'batch_size': 8,
  'max_new_tokens': 64,
  'max_length': 448,
}

UNIFORM = 'uniform'
EXP3 = {'bandit': 'exp3(gamma=0.4)', 'label': 'exp3, BD'}
HALVING = {'bandit': 'sequential_halving', 'label': 'sequential_halving, BD'}
PETC = {'bandit': 'petc(budget=15)', 'label': 'petc, BD'}
UCB = {'bandit': 'ucb1(beta=0.01)', 'label': 'ucb1, BD'}
UCB_BE = {
  'bandit': 'ucb1(beta=0.01)',
  'reward': 'accepted_fraction',
  'label': 'ucb1, BE',
}
DISCOUNTED = {
  'bandit': 'discounted_ucb(beta=0.01)',
  'label': 'discounted_ucb, BD',
}
WINDOW = {
  'bandit': 'sliding_window_ucb(beta=0.01)',
  'label': 'sliding_window_ucb, BD',
}
HEDGE = {'bandit': 'hedge', 'feedback': 'full', 'label': 'hedge, BD'}


def from_prompt(method):
  """Returns the method with a bandit that also learns from the prompt."""
  return method | {
    'warm_start': 32,
    'label': f'{method["label"]}, from the prompt',
  }


def shared(**fields):
  """Returns a config with the fields that this folder's configs share."""
  return ml_collections.ConfigDict(
    {
      'family': 'mini/specialists',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 24,
      'arms': ARMS,
      'reward': 'block_divergence',
      'sampling': {'temperature': 0.0},
      'batch_size': 1,
      'repeats': 0,  # Timings, interleaved with plain decoding.
      'max_new_tokens': 128,
      'max_length': 512,
      'seed': 0,
    }
    | fields
  )


def get_config(which='mini'):
  """Returns the config for 'mini', or for chains from 'smollm2' heads."""
  variant = registry.lookup(_VARIANTS, 'family', which)
  arm, general = variant['arm'], variant['general']
  return shared(
    arms=tuple(map(arm.format, DOMAINS)),
    experiment='arm_selection',
    by_domain=True,
    baseline=general,  # The method that all are compared with.
    prompts={
      'in domain': {'domains': DOMAINS},
      'paraphrased': {'domains': DOMAINS, 'rephrase': True},
      'out of domain': {'domains': variant['unseen']},
    },
    methods=(  # Methods that are no arms of the bandits.
      general,
      'prompt_lookup:5',
      'suffix:5',
      'lookahead',
      *variant['methods'],
    ),
    bandits=(
      UNIFORM,
      EXP3,
      HALVING,
      PETC,
      UCB,
      from_prompt(UCB),
      UCB_BE,
      DISCOUNTED,
      WINDOW,
      HEDGE,
      from_prompt(HEDGE),
    ),
    router=True,
    router_prompts=512,  # Its training prompts per domain.
    carry_over=False,  # Whether bandits keep their state between prompts.
    paper=_tables(arm, general, variant['halves']),
    pivot=PIVOT,
    **variant['fields'],
  )


_VARIANTS = {
  'mini': {
    'arm': _CHAIN,  # The arm for one domain.
    'general': _CHAIN.format('all'),  # The arm for all domains.
    'unseen': ('instruct', 'lm', 'shakespeare'),  # Without a specialist.
    'methods': (DRAFT_ALL,),  # Further methods.
    'halves': ('chains',),  # Of Tables 6 and 11.
    'fields': {'family': 'mini/specialists'},
  },
  'smollm2': {
    'arm': HEAD,
    'general': HEAD.format('eagle'),
    'unseen': ('instruct',),
    'methods': (),
    'halves': ('Eagle', 'chains'),
    # Bandits select per row, as with batch size 1.
    'fields': {'family': 'smollm2/heads', 'per_row': True, **SIZES},
  },
}
VARIANTS = tuple(_VARIANTS)


# A table with a line per method and a column per domain.
PIVOT = {
  'down': ('prompts', 'method'),
  'across': 'domain',
  'value': 'block_efficiency',
}


def speed_ups(
  table, where, methods, ratios=(), measured='block_efficiency', drafters=None
):
  """Returns a table of speed-ups of domains and methods.

  Its ratios are compared with our ratios of `measured`, and the ratios of its
  means with ours over all domains.

  Args:
    table: the number of the table.
    where: columns that our rows must have.
    methods: our methods, by the paper's.
    ratios: pairs of our methods, where '{}' is the domain.
    measured: the column that our ratios are computed from.
    drafters: in Table 7, 'chains' or 'Eagle'.
  """
  numbers = paper.read(f'metasd/table_{table}', method=methods)
  if drafters is not None:
    numbers = numbers[numbers.pop('drafters') == drafters]
  result = paper.table(
    f'MetaSD, Table {table}',
    'speed_up',
    numbers,
    where,
    ratios,
    measured=measured,
  )
  sums = {name: sum(g) for name, g in numbers.groupby('method')['number']}
  every = where | {'domain': 'all'}
  means = tuple(
    (
      f'{above} over {below}, all',
      every | {'method': above},
      every | {'method': below},
      sums[above] / sums[below],
    )
    for above, below in ratios
    if numbers['domain'].nunique() > 1 and '{}' not in above + below
  )
  return result | {'claims': means + result['claims']}


def specialists(arm, domains=DOMAINS):
  """Returns the arms of specialists, by the paper's names."""
  return {domain: arm.format(domain) for domain in domains}


def ratios(arm, general):
  """Returns ratios: specialist over general drafter, and UCB over both."""
  return (arm, general), (_BD, arm), (_BD, general)


def _columns(prompts, method, domain='all'):
  return {'prompts': prompts, 'domain': domain, 'method': method}


_BD, _BE = UCB['label'], UCB_BE['label']
# Our methods, by the paper's.
BANDITS = {
  'random': UNIFORM,
  'EXP3': EXP3['label'],
  'SH': HALVING['label'],
  'UCB': _BD,
}
REWARDS = {'UCB': _BD, 'UCB (BE)': _BE}


def _tables(arm, general, halves):
  """Returns all tables; a row shows the number of the last one with it."""
  methods = specialists(arm) | {'OFA': general}
  baselines = {'PLD': 'prompt_lookup:5', 'Lookahead': 'lookahead'}
  all_methods = methods | baselines | BANDITS
  compared = ratios(arm, general)
  others = tuple((_BD, BANDITS[name]) for name in ('EXP3', 'SH', 'random'))
  in_domain, paraphrased = (
    {'prompts': name} for name in ('in domain', 'paraphrased')
  )
  return (
    speed_ups(7, in_domain, REWARDS, ((_BD, _BE),), drafters='chains'),
    speed_ups(3, in_domain, all_methods, (*compared, *others)),
    speed_ups(12, paraphrased, methods | {'UCB': _BD}, compared),
    *(_unseen_domains(6, half, 'router', 'router') for half in halves),
    *(_unseen_domains(11, half, 'OFA', general) for half in halves),
    *map(_unseen_specialists, halves),
  )


_UNSEEN = '{}, compared with our out of domain'


def _unseen_domains(number, half, paper_method, method):
  """Returns UCB over another method; Table 6 has the better of two routers.

  Our prompts out of domain differ from the paper's.

  Args:
    number: the number of the table.
    half: its drafters, 'chains' or 'Eagle'.
    paper_method: the other method, as in the paper.
    method: our label of the other method.
  """
  numbers = paper.read(
    f'metasd/table_{number}', method={'UCB': _BD, paper_method: method}
  )
  numbers = numbers[numbers.pop('drafters') == half]
  speed = numbers.set_index(['prompts', 'method'])['number']
  has_prompts = numbers['prompts'].isin(['in domain', 'paraphrased'])
  result = paper.table(
    _source(number, half),
    'speed_up',
    numbers[has_prompts].assign(domain='all'),
    measured='block_efficiency',
  )
  claims = []
  for prompts in numbers['prompts'].unique():
    name, place = prompts, prompts
    if prompts not in set(numbers['prompts'][has_prompts]):
      name = _UNSEEN.format(prompts)
      place = 'out of domain'
    claims.append(
      (
        f'{_BD} over {method}, {name}',
        _columns(place, _BD),
        _columns(place, method),
        float(speed[prompts, _BD] / speed[prompts, method]),
      )
    )
  return result | {'claims': tuple(claims)}


def _unseen_specialists(half):
  """Returns UCB over the best specialist, for the prompts of Table 11."""
  numbers = paper.read('metasd/table_11')
  numbers = numbers[numbers['drafters'] == half]
  claims = []
  for prompts, rows in numbers.groupby('prompts', sort=False):
    speed = rows.set_index('method')['number']
    claims.append(
      (
        f'{_BD} over the best specialist, {_UNSEEN.format(prompts)}',
        _columns('out of domain', _BD),
        None,
        float(speed['UCB'] / speed[list(DOMAINS)].max()),
      )
    )
  return {
    'source': _source(11, half),
    'field': 'over_best',
    'rows': (),
    'claims': tuple(claims),
  }


def _source(number, half):
  """Returns the source of the drafters of a table; most tables have chains."""
  return f'MetaSD, Table {number}' + (', Eagle' if half == 'Eagle' else '')
