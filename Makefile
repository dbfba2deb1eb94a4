# Two commands need nothing else: `make demo` and `make test`. Each makes its own virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TRITONS ?= 3.8.0 3.7.1 3.6.0
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test asan fuzz corpus tritons lint manifests gate bench page clean

# A part of the shipped kernels, so that it takes a minute or two; `make gate` does all of them.
DEMO := --only 'cp_gather*' --only 'insert_*' --only '*NUM_SPLITS=4,*'

demo: $(VENV)/demo.stamp
	$(BIN)/aotkern build --target gfx942 --target gfx950 $(DEMO) --name demo --out out --jobs $(JOBS)
	$(BIN)/aotkern audit --policy audits/demo.toml --jobs $(JOBS)
	@echo "shown: these variants are byte for byte those of the committed manifests, and each gave the reference's numbers"
	@echo "in every case of the numerics audit, executed by an emulator; docs/numerics.md lists what that leaves open"

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n $(JOBS)

# The C extension under the address and undefined behaviour sanitizers: its tests, among them hostile calls and threads.
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g
asan: $(VENV)/test.stamp
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 AOTKERN_TEST_CFLAGS="$(SANITIZERS)" PYTHONMALLOC=malloc \
	$(BIN)/python -m pytest -n 0 tests/loader/test_native.py tests/loader/test_native_state.py tests/loader/test_native_hostile.py

# Programs that are made up, by the thousand: what is served against what the JIT makes. Then every parser against made-up
# input, for so many seconds of processor time; that prints the table of SECURITY.md. A seed of its own each time.
CASES ?= 1500
SECONDS ?= 300
SEED ?= $(shell date +%s)
fuzz: $(VENV)/test.stamp
	AOTKERN_FUZZ_CASES=$(CASES) AOTKERN_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -n $(JOBS) tests/fuzz
	$(BIN)/python -m tests.fuzz.parsers --seconds $(SECONDS) --seed $(SEED)

# Building for, and serving, programs that bring another tested version of Triton: a virtual environment for each.
tritons: $(TRITONS:%=.venv-triton-%/tested)

.venv-triton-%/tested: FORCE
	test -d $(@D) || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps triton==$*
	$(@D)/bin/python -m pytest -n $(JOBS) tests/triton_bridge tests/fuzz tests/build/test_builder.py

FORCE:

lint: $(VENV)/test.stamp
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

# Every kernel configuration of the emulator's corpus on both targets; prints the table of docs/emulator.md.
corpus: $(VENV)/test.stamp
	$(BIN)/python -m tests.emulator.corpus --jobs $(JOBS)

# The release gate: every variant against audits/policy.toml; its reports lie beside the bundles. Variants that the local
# store has, for this very compiler and source, are not compiled again; `make gate ANEW=--no-cache` compiles all of them.
gate: $(VENV)/test.stamp
	$(BIN)/aotkern build --target gfx942 --target gfx950 --out out $(ANEW) --jobs $(JOBS)
	$(BIN)/aotkern audit --jobs $(JOBS) --report out/gate.html --report out/gate.md --report out/gate.xml --report out/gate.sarif

# Accept today's machine code as the new baseline; the git diff shows which variants moved.
manifests: $(VENV)/demo.stamp
	$(BIN)/python -m aotkern build --target gfx942 --target gfx950 --out out --jobs $(JOBS)
	$(BIN)/python -m aotkern manifest out/aotkern.gfx942.aotk --out manifests/gfx942.json
	$(BIN)/python -m aotkern manifest out/aotkern.gfx950.aotk --out manifests/gfx950.json

# Everything that this machine can measure; a new result is accepted by `make bench RESULTS=audits/benchmarks page`.
RESULTS ?= out/benchmarks
bench: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks --json-dir $(RESULTS)

page: $(VENV)/demo.stamp
	$(BIN)/python -m benchmarks --page

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[build,emulator]'
	touch $@

$(VENV)/test.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	touch $@ $(VENV)/demo.stamp

clean:
	rm -rf $(VENV) .venv-triton-* out build dist *.egg-info
