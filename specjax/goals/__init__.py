"""Goal distributions: what is sampled instead of the target."""

from specjax.goals import deferral
from specjax.goals import lossy
from specjax.goals import mixture
from specjax.goals import target
from specjax.goals import token

GOALS = {
  'bild': deferral.bild,
  'chow': deferral.chow,
  'chow_log': deferral.chow_log,
  'diff': deferral.diff,
  'diff_log': deferral.diff_log,
  'lossy': lossy.lossy,
  'mixture': mixture.mixture,
  'opt': deferral.opt,
  'opt_log': deferral.opt_log,
  'target': target.target,
  'token_v1': token.token_v1,
  'token_v2': token.token_v2,
  'token_v3': token.token_v3,
}
