"""Goal distributions: what is sampled instead of the target."""

from collections.abc import Callable

from specjax import base
from specjax.goals.deferral import bild
from specjax.goals.deferral import chow
from specjax.goals.deferral import chow_log
from specjax.goals.deferral import diff
from specjax.goals.deferral import diff_log
from specjax.goals.deferral import opt
from specjax.goals.deferral import opt_log
from specjax.goals.lossless import target
from specjax.goals.lossy import lossy
from specjax.goals.mixture import mixture
from specjax.goals.token import token_v1
from specjax.goals.token import token_v2
from specjax.goals.token import token_v3

__all__ = [
  'GOALS',
  'bild',
  'chow',
  'chow_log',
  'diff',
  'diff_log',
  'lossy',
  'mixture',
  'opt',
  'opt_log',
  'target',
  'token_v1',
  'token_v2',
  'token_v3',
]

GOALS: dict[str, Callable[..., base.Goal]] = {
  'bild': bild,
  'chow': chow,
  'chow_log': chow_log,
  'diff': diff,
  'diff_log': diff_log,
  'lossy': lossy,
  'mixture': mixture,
  'opt': opt,
  'opt_log': opt_log,
  'target': target,
  'token_v1': token_v1,
  'token_v2': token_v2,
  'token_v3': token_v3,
}
