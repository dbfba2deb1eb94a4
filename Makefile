# Two commands need nothing else: `make demo` and `make test`. Each makes its own virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test lint manifests identity gate bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/python -m aotkern build --target gfx942 --target gfx950 --out out --jobs $(JOBS)
	$(BIN)/python -m aotkern verify out/aotkern.gfx942.aotk out/aotkern.gfx950.aotk
	$(BIN)/python -m aotkern audit identity --target gfx942 --bundle out/aotkern.gfx942.aotk --baseline manifests/gfx942.json
	$(BIN)/python -m aotkern audit identity --target gfx950 --bundle out/aotkern.gfx950.aotk --baseline manifests/gfx950.json

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n $(JOBS)

lint: $(VENV)/test.stamp
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# What CI proves on every change: today's sources give the committed machine code. Nothing is taken from a cache.
identity: $(VENV)/test.stamp
	$(BIN)/python -m aotkern build --target gfx942 --target gfx950 --out out --no-cache --jobs $(JOBS)
	$(BIN)/python -m aotkern verify out/aotkern.gfx942.aotk out/aotkern.gfx950.aotk
	$(BIN)/python -m aotkern audit identity --target gfx942 --bundle out/aotkern.gfx942.aotk --baseline manifests/gfx942.json
	$(BIN)/python -m aotkern audit identity --target gfx950 --bundle out/aotkern.gfx950.aotk --baseline manifests/gfx950.json

# The whole gate of audits/policy.toml over today's build, with its reports beside the bundles.
gate: $(VENV)/test.stamp
	$(BIN)/python -m aotkern build --target gfx942 --target gfx950 --out out --no-cache --jobs $(JOBS)
	$(BIN)/python -m aotkern audit --jobs $(JOBS) --report out/gate.html --report out/gate.md --report out/gate.xml --report out/gate.sarif

# Accept today's machine code as the new baseline; the git diff shows which variants moved.
manifests: $(VENV)/demo.stamp
	$(BIN)/python -m aotkern build --target gfx942 --target gfx950 --out out --jobs $(JOBS)
	$(BIN)/python -m aotkern manifest out/aotkern.gfx942.aotk --out manifests/gfx942.json
	$(BIN)/python -m aotkern manifest out/aotkern.gfx950.aotk --out manifests/gfx950.json

bench: $(VENV)/demo.stamp
	$(BIN)/python benchmarks/build.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[build]'
	touch $@

$(VENV)/test.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	touch $@ $(VENV)/demo.stamp

clean:
	rm -rf $(VENV) out build dist *.egg-info
