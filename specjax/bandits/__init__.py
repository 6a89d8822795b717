"""Bandits: which arm plays the next round."""

from specjax.bandits import fixed

BANDITS = {
  'fixed': fixed.fixed,
}
