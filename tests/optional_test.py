"""Errors of optional packages: missing ones, and ones that are broken."""

import pytest

from specjax import optional


def test_a_missing_package_names_its_extra():
  message = r"A file needs the package missing: .* 'specjax\[gguf\]'\.$"
  with pytest.raises(ValueError, match=message):
    optional.load('missing.part', 'gguf', 'A file')


def test_a_broken_package_names_the_cause(tmp_path, monkeypatch):
  (tmp_path / 'broken.py').write_text('import missing\n')
  monkeypatch.syspath_prepend(tmp_path)
  with pytest.raises(ValueError, match='broken: its import fails, No module'):
    optional.load('broken', 'gguf', 'A file')
