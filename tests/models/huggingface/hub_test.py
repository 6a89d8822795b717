"""Repositories on the Hub: in a cache, and from a server on this host."""

import contextlib
import functools
import http.server
import json
import sys
import threading

from huggingface_hub import constants
import jax
import numpy as np
import pytest

from specjax import families
from specjax import models
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models.huggingface import hub

_CONFIG = config_lib.TransformerConfig(
  vocab_size=13,
  num_layers=2,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
)
_COMMIT = '0123456789abcdef0123456789abcdef01234567'


@pytest.fixture(scope='module', name='files')
def _files(tmp_path_factory):
  """Returns the files of a small model, by name."""
  params = flax_modules.init_params(jax.random.key(0), _CONFIG)
  folder = tmp_path_factory.mktemp('model')
  model = adapters.Transformer(_CONFIG)
  models.save(models.Checkpoint(_CONFIG, model, params), folder)
  return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(name='cache')
def _cache(tmp_path, monkeypatch):
  """Returns the folder of an empty cache, for a process that is offline."""
  monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
  return tmp_path / 'hub'


def _add(cache, name, files, revision='main'):
  """Writes a repository to a cache, in the layout of huggingface_hub."""
  repository = cache / f'models--{name.replace("/", "--")}'
  snapshot = repository / 'snapshots' / _COMMIT
  snapshot.mkdir(parents=True, exist_ok=True)
  (repository / 'refs').mkdir(exist_ok=True)
  (repository / 'refs' / revision).write_text(_COMMIT)
  for file, content in files.items():
    (snapshot / file).write_bytes(content)
  return snapshot


@contextlib.contextmanager
def _server(respond, monkeypatch):
  """Serves `respond(path)`: status, headers, body; yields requested paths."""
  paths = []

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      paths.append(self.path)
      status, headers, body = respond(self.path)
      self.send_response(status)
      for key, value in {**headers, 'Content-Length': len(body)}.items():
        self.send_header(key, str(value))
      self.end_headers()
      if self.command == 'GET':
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *args):
      del args

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  url = f'http://127.0.0.1:{server.server_port}'
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
  monkeypatch.setattr(constants, 'ENDPOINT', url)
  template = constants.HUGGINGFACE_CO_URL_TEMPLATE
  path = template.partition('://')[2].partition('/')[2]
  monkeypatch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', f'{url}/{path}')
  try:
    yield paths
  finally:
    server.shutdown()
    thread.join()
    server.server_close()


def _respond(files, path):
  """Returns the response of a Hub that has one repository."""
  if '/api/' in path:
    siblings = [{'rfilename': name} for name in files]
    info = {'id': 'team/model', 'sha': _COMMIT, 'siblings': siblings}
    tree = [
      {'type': 'file', 'path': name, 'oid': name, 'size': len(content)}
      for name, content in files.items()
    ]
    body = json.dumps(tree if '/tree/' in path else info).encode()
    return 200, {'Content-Type': 'application/json'}, body
  name = path.rpartition('/')[2]
  headers = {'ETag': f'"{name}"', 'X-Repo-Commit': _COMMIT}
  return 200, headers, files[name]


def test_a_repository_in_the_cache_is_loaded_offline(files, cache):
  snapshot = _add(cache, 'team/model', files)
  loaded = models.load('team/model')
  expected = models.load(snapshot)
  jax.tree.map(np.testing.assert_array_equal, loaded.params, expected.params)
  assert models.read_config('team/model') == expected.config
  assert not families.drafter_names('team/model')
  _add(cache, 'team/model', files, 'v2')
  assert models.load('team/model@v2').config == expected.config


def test_a_path_is_preferred_to_a_repository(files, cache, monkeypatch):
  _add(cache, 'team/model', files)
  folder = cache.parent / 'team' / 'model'
  folder.mkdir(parents=True)
  monkeypatch.chdir(cache.parent)
  assert hub.local_path('team/model') == 'team/model'
  for path in ('', 'model', 'a/b/c', './a/b', '/a/b', 'a/b.gguf'):
    assert hub.local_path(path) == path


def test_the_files_that_are_read_are_fetched(files, cache, monkeypatch):
  copies = 'consolidated.safetensors', 'pytorch_model.bin', 'onnx/config.json'
  served = files | dict.fromkeys(copies, b'')
  with _server(functools.partial(_respond, served), monkeypatch) as paths:
    loaded = models.load('team/model')
    assert loaded.config == _CONFIG
  fetched = {path.rpartition('/')[2] for path in paths if '/api/' not in path}
  assert fetched == set(files)
  # A second call, without network, finds the same files.
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
  assert models.load('team/model').config == _CONFIG
  assert cache.exists()


def test_names_of_drafters_need_no_weights(files, cache, monkeypatch):
  respond = functools.partial(_respond, files)
  with _server(respond, monkeypatch) as paths:
    assert families.drafter_names('team/model') == []
  assert {path.rpartition('/')[2] for path in paths} == {'config.json'}
  assert cache.exists()


@pytest.mark.parametrize(
  ('status', 'code', 'message'),
  [
    (403, 'GatedRepo', 'team/model is gated; accept its conditions on https'),
    (401, 'RepoNotFound', 'no repository team/model on the Hugging Face Hub'),
    (404, 'RevisionNotFound', 'team/model has no revision v1'),
    (404, 'EntryNotFound', 'team/model has no config.json; a GGUF file'),
  ],
)
def test_errors_of_the_hub_say_what_to_do(
  status, code, message, cache, monkeypatch
):
  headers = {'X-Error-Code': code}
  if code == 'EntryNotFound':
    headers['X-Repo-Commit'] = _COMMIT
  with (
    _server(lambda path: (status, headers, b''), monkeypatch),
    pytest.raises(ValueError, match=f'Cannot load team/model@v1: .*{message}'),
  ):
    models.load('team/model@v1')


@pytest.mark.parametrize(
  ('missing', 'message'),
  [
    ('/api/', 'team/model has no safetensors files, or they could not be'),
    ('.safetensors', 'team/model is not in the cache of the Hugging Face Hub'),
  ],
)
def test_a_failure_after_the_config_is_reported(
  missing, message, files, cache, monkeypatch
):
  def respond(path):
    return (400, {}, b'') if missing in path else _respond(files, path)

  with (
    _server(respond, monkeypatch),
    pytest.raises(ValueError, match=message),
  ):
    models.load('team/model')
  assert cache.exists()


def test_a_cache_that_cannot_be_written_is_reported(files, cache, monkeypatch):
  cache.write_text('not a folder')
  with (
    _server(functools.partial(_respond, files), monkeypatch),
    pytest.raises(ValueError, match='fetching team/model from the Hugging Fa'),
  ):
    models.load('team/model')


def test_a_quantized_repository_is_refused_before_its_weights(files, cache):
  fields = json.loads(files['config.json'])
  fields['quantization_config'] = {'quant_method': 'gptq', 'bits': 4}
  _add(cache, 'team/model', {'config.json': json.dumps(fields).encode()})
  with pytest.raises(ValueError, match='the weights of team/model are quanti'):
    models.load('team/model')


def test_offline_a_missing_repository_names_the_command(cache):
  del cache
  with pytest.raises(ValueError, match='run hf download team/model'):
    models.load('team/model')
  with pytest.raises(ValueError, match='run hf download team/model'):
    families.load('mini', drafters={'other': 'team/model'})
  with pytest.raises(ValueError, match='Unknown family'):
    families.load('mini/unknown')


def test_without_the_package_the_extra_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
  with pytest.raises(ValueError, match=r"pip install 'specjax\[hub\]'"):
    models.load('team/model')
