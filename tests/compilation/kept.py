"""Keeps reports on programs compiled for absent devices, with the programs.

JAX's own cache does not help here: it cannot load a program for a device that
is not there, and would compile it in every run.
"""

import hashlib
import os
import pathlib
import pickle
import tempfile

from specjax import compilation
from specjax import decoding
from specjax.compilation import devices
from tests import program_cache

_SOURCES = sorted(pathlib.Path(compilation.__file__).parent.glob('*.py'))


def compile_decode(
  decoder: decoding.Decoder, device: compilation.Device, batch_size: int = 1
) -> compilation.Program:
  """Returns `compilation.compile_decode`, compiled once per program.

  A kept report is used only for the same program (StableHLO), device,
  compiler, and source of `specjax.compilation`.
  """
  file = _file(decoder, device, batch_size)
  if file is not None and file.exists():
    try:
      return pickle.loads(file.read_bytes())
    except (EOFError, pickle.UnpicklingError):
      pass  # The file is damaged and is written again below.
  program = compilation.compile_decode(decoder, device, batch_size=batch_size)
  if file is not None:
    # Another worker never sees a file that is half written.
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as written:
      pickle.dump(program, written)
    os.replace(written.name, file)
  return program


def _file(
  decoder: decoding.Decoder, device: compilation.Device, batch_size: int
) -> pathlib.Path | None:
  """Returns where the report is kept; None without a usable cache folder."""
  folder = program_cache.folder()
  if folder is None or program_cache.problem(folder):
    return None
  params, state = compilation.check_fits(decoder, device, batch_size=batch_size)
  traced = decoding.decode.trace(decoder.round_fn, params, state)
  lowered = traced.lower(lowering_platforms=(device.platform,))
  compiler = devices.jax_devices(device)[0].client.platform_version
  parts = [lowered.as_text(), repr(device), compiler]
  parts += [path.read_text(encoding='utf-8') for path in _SOURCES]
  key = hashlib.sha256('\0'.join(parts).encode()).hexdigest()
  return folder / f'report-{key}'
