from pathlib import Path

import pytest
from making import written

from aotkern.build import sources
from aotkern.build.registry import SHIPPED, Source
from aotkern.errors import InputError, MissingToolError


def test_sources_are_those_given(tmp_path):
    source = written(tmp_path, "", "mine.py")
    assert sources.parse((str(source.path), "a.module")) == (source, Source("a.module"))
    with pytest.raises(InputError, match="nothing there"):
        sources.parse((str(tmp_path / "gone.py"),))


def test_without_any_they_are_the_shipped_ones(tmp_path, monkeypatch):
    package = tmp_path / SHIPPED
    written(package, "", "__init__.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert sources.parse(()) == (Source(SHIPPED, package),)


def test_shipped_kernels_that_are_not_installed_are_a_missing_tool(monkeypatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="aotkern_kernels is needed to build the shipped kernels"):
        sources.parse(())


@pytest.mark.parametrize(
    ("source", "label"),
    [(Source(SHIPPED, Path("/x")), "aotkern"), (Source("a.b.c"), "c"), (Source("mine", Path("/x")), "mine")],
)
def test_bundles_are_named_after_the_first_source(source, label):
    assert sources.label([source, Source("other")]) == label


def test_the_provenance_names_the_compressor(tmp_path):
    assert sources.compressor()["compressor"].startswith("zstd ")
