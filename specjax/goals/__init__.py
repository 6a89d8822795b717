"""Goal distributions: what is sampled instead of the target."""

from collections.abc import Callable

from specjax import base
from specjax.goals.deferral import Bild
from specjax.goals.deferral import Chow
from specjax.goals.deferral import ChowLog
from specjax.goals.deferral import Diff
from specjax.goals.deferral import DiffLog
from specjax.goals.deferral import Opt
from specjax.goals.deferral import OptLog
from specjax.goals.lossless import Target
from specjax.goals.lossy import Lossy
from specjax.goals.mixture import Mixture
from specjax.goals.token import TokenV1
from specjax.goals.token import TokenV2
from specjax.goals.token import TokenV3
from specjax.goals.token import TopK
from specjax.goals.token import Typical

__all__ = [
  'Bild',
  'Chow',
  'ChowLog',
  'Diff',
  'DiffLog',
  'GOALS',
  'Lossy',
  'Mixture',
  'Opt',
  'OptLog',
  'Target',
  'TokenV1',
  'TokenV2',
  'TokenV3',
  'TopK',
  'Typical',
]

GOALS: dict[str, Callable[..., base.Goal]] = {
  'bild': Bild,
  'chow': Chow,
  'chow_log': ChowLog,
  'diff': Diff,
  'diff_log': DiffLog,
  'lossy': Lossy,
  'mixture': Mixture,
  'opt': Opt,
  'opt_log': OptLog,
  'target': Target,
  'token_v1': TokenV1,
  'token_v2': TokenV2,
  'token_v3': TokenV3,
  'top_k': TopK,
  'typical': Typical,
}
