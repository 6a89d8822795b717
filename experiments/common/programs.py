"""Keeps compiled programs on disk, and drops them from memory if needed."""

import os
import pathlib

import jax

# Programs that compile faster than this many seconds are not kept.
_SECONDS = 0.1


def keep(folder: str = '') -> None:
  """Keeps compiled programs on disk, and reuses those that are there.

  Child processes do the same. The environment variable
  `JAX_COMPILATION_CACHE_DIR` overrides the folder; if it is empty, no program
  is kept.

  Args:
    folder: where programs are kept; defaults to a folder in the user's cache.
  """
  if not folder:
    home = os.path.join(os.path.expanduser('~'), '.cache')
    home = os.environ.get('XDG_CACHE_HOME') or home
    folder = os.path.join(home, 'specjax', 'programs')
  folder = os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', folder)
  least = os.environ.setdefault(
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', str(_SECONDS)
  )
  # JAX has read its environment already.
  jax.config.update('jax_compilation_cache_dir', folder or None)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', float(least))


def drop(limit: int = 15_000) -> bool:
  """Drops compiled programs if the process has more than `limit` memory maps.

  Linux allows 65,530 maps, but SmolLM2's programs with 20,000 take 9 GB.

  Returns:
    Whether programs were dropped.
  """
  maps = pathlib.Path('/proc/self/maps')
  many = maps.exists() and maps.read_bytes().count(b'\n') > limit
  if many:
    jax.clear_caches()
  return many
