# Each command sets up what it needs: `make demo` the package alone, all others what develops and tests it too.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
LEAN := .venv/lean
READY := .venv/ready
BYTECODE := .venv/bytecode
# One more than there are cores: many tests wait for processes that they have started.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
TESTS := $(BIN)/pytest -n $(WORKERS) --dist loadgroup

# Some containers set it; every process would then compile torch and lightning again, for seven seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test coverage kill fuzz sanitize docs wheel lint format clean

demo: $(LEAN)
	$(BIN)/event2vec demo

test: $(BYTECODE)
	$(TESTS)

# The same tests, and which lines and branches of the package they never reach. CI runs this; it takes a little longer.
# With its own report, pytest-cov would analyse every file twice.
coverage: $(BYTECODE)
	$(TESTS) --cov --cov-report= --cov-fail-under=0
	$(BIN)/coverage report --show-missing --skip-covered

# 200 times kill -9, in about half an hour: the same command must then end with the same bytes.
kill: $(READY)
	$(BIN)/python tests/kill.py

# Damaged files for every reader, for MINUTES on JOBS cores; exit code 1 where one escapes. Not part of `make test`.
MINUTES ?= 5
JOBS ?= 2
fuzz: $(READY)
	$(BIN)/python -m fuzz --minutes $(MINUTES) --jobs $(JOBS)

# The compiled attention under the address and undefined-behaviour sanitizers, on random input.
CC ?= cc
sanitize:
	mkdir -p build
	$(CC) -g -O1 -Wall -Wextra -Werror -ffp-contract=fast -fsanitize=address,undefined -fno-sanitize-recover=all \
		tests/sanitize_attention.c -o build/sanitize_attention -lm -lpthread
	build/sanitize_attention 1000

# The documentation site, in build/site; a warning or a broken link fails.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# A source archive, a wheel that is built from it, and the runtime's wheel, in dist/: each must be whole. docs/release.md goes on.
wheel: $(READY)
	$(PIP) build
	rm -rf dist runtime/build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --wheel --outdir dist runtime
	$(BIN)/python tests/packaged.py dist/*

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build dist *.egg-info

# Installed again only when what is to be installed has changed. Python compiles what is used, when it is: most is not.
COMPILED := event2vec/clustering/compiled_engine.c event2vec/model/compiled_attention.c event2vec/model/compiled_attention_kernel.h event2vec/model/compiled_rows.h event2vec/model/compiled_times.h event2vec/model/compiled_places.h event2vec/model/compiled_neighbourhood.h event2vec/model/compiled_block.h
INSTALLED := pyproject.toml constraints.txt $(COMPILED)
# The C code is compiled beside the largest download. What it installs then is what pip finds as event2vec: it never looks for it elsewhere.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "event2vec needs Python 3.11 or later; name one with: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	@set -e; $(PIP) --no-deps -e . & ours=$$!; $(PIP) torch || { kill $$ours; exit 1; }; wait $$ours
	$(PIP) 'event2vec$(1)'
endef

$(LEAN): $(INSTALLED)
	$(call install,)
	@touch $(LEAN)

$(READY): $(INSTALLED)
	$(call install,[dev])
	@touch $(LEAN) $(READY)

# One process compiles what tests import; otherwise each of the workers would compile all of it. What fails here fails in the tests.
$(BYTECODE): $(READY)
	@$(BIN)/pytest --collect-only -q >/dev/null || true
	@touch $(BYTECODE)
