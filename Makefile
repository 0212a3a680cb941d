# Both commands set up all that they need: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test kill fuzz lint format clean

demo: $(READY)
	$(BIN)/event2vec demo

test: $(READY)
	$(BIN)/pytest -n auto

# 200 times kill -9, in about half an hour: the same command must then end with the same bytes.
kill: $(READY)
	$(BIN)/python tests/kill.py

# Damaged files for every reader, for MINUTES on JOBS cores; exit code 1 where one escapes. Not part of `make test`.
MINUTES ?= 5
JOBS ?= 2
fuzz: $(READY)
	$(BIN)/python -m fuzz --minutes $(MINUTES) --jobs $(JOBS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv build *.egg-info

# Installed again only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt event2vec/clustering/compiled_engine.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "event2vec needs Python 3.11 or later; name one with: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
