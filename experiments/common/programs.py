"""Compiled programs: kept on disk for later runs, dropped if they are many."""

import os
import pathlib

import jax

# Programs that compile faster than this are not worth a file.
_SECONDS = 0.1


def keep(folder: str = '') -> None:
  """Keeps compiled programs on disk, and uses those that are there.

  Processes that this one starts do, too. Where `JAX_COMPILATION_CACHE_DIR` is
  set, that is the folder; set to nothing, no program is kept. By default, it is
  one of the user's cache folder.
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
  """Drops compiled programs if the process has many pieces of memory mapped.

  It may have 65530 of them on Linux, but programs of SmolLM2 that map 20,000
  take 9 GB. Returns whether any were dropped.
  """
  maps = pathlib.Path('/proc/self/maps')
  many = maps.exists() and maps.read_bytes().count(b'\n') > limit
  if many:
    jax.clear_caches()
  return many
