"""Compiled programs that outlive a process: a second run starts at once."""

import os

import jax

# Programs that compile faster than this are not worth a file.
_SECONDS = 0.1


def keep(folder: str = '') -> None:
  """Keeps compiled programs on disk, and uses those that are there.

  Processes that this one starts do, too. Where `JAX_COMPILATION_CACHE_DIR` is
  set, that is the folder; set to nothing, no program is kept.

  Args:
    folder: by default, one of the user's cache folder.
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
