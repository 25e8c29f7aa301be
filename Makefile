# The front door: `make help` lists what it can do.
PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= dev
WORKERS ?= 2
# Random mixtures behind docs/accuracy.md.
SEEDS   ?= 200
# What an offline installation holds, and for which Pythons beside our own (3.12 3.13).
NODE_EXTRAS  ?= sign
MORE_PYTHONS ?=
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNNABLE := $(VENV)/.runnable

.DEFAULT_GOAL := help
.PHONY: help venv run test test-slow test-real test-alone test-all check format bench chaos accuracy wheel wheelhouse single docs man clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make .venv with everything development needs

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@ $(RUNNABLE)

$(RUNNABLE):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[inspect]'
	@touch $@

run: $(RUNNABLE) ## Record this machine for 30 s, then bundle, verify and inspect it
	rm -rf demo-archive demo-bundle.tar demo-page.html
	$(BIN)/vmsonar daemon --archive demo-archive --interval 1s --for 30s
	$(BIN)/vmsonar bundle --archive demo-archive -o demo-bundle.tar
	$(BIN)/vmsonar verify demo-bundle.tar
	$(BIN)/vmsonar inspect demo-bundle.tar
	$(BIN)/vmsonar inspect demo-bundle.tar --html demo-page.html

test: venv ## Run the quick tests in two processes; a missing part is skipped with a reason
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not (real or slow or alone or chaos)'

test-slow: venv ## Run the slow tests in two processes
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'slow and not (real or alone or chaos)'

test-real: venv ## Run the tests with real engines, brokers and guests in two processes, each part in one of them
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'real and not (alone or chaos)'

test-alone: venv ## Run the tests that need the machine for themselves, one after the other
	$(BIN)/python -m pytest -m 'alone and not chaos'

test-all: ## Run all four: each test once, but for make chaos
	$(MAKE) test
	$(MAKE) test-slow
	$(MAKE) test-real
	$(MAKE) test-alone

check: venv ## Format, lint, types and import arrows
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-cache
	@test ! -e inspect/__init__.py || { echo 'inspect/__init__.py would shadow the standard library: remove it'; exit 1; }

format: venv ## Format the code
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

bench: venv ## Measure, print a table and JSON
	$(BIN)/python -m bench

chaos: venv ## The long forms of the fault tests
	$(BIN)/python -m pytest -m chaos

accuracy: venv ## Measure every figure against the kernel's own accounts, as root, and write docs/accuracy.md
	$(BIN)/python -m tests.accuracy docs/accuracy.md --seeds $(SEEDS)

wheel: venv ## Build the wheel, install it alone into an empty environment and run it
	rm -rf build/wheel dist && $(PYTHON) -m venv build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	build/wheel/bin/python -m pip install --quiet --disable-pip-version-check dist/vmsonar-*.whl
	VMSONAR_WHEEL=build/wheel $(BIN)/python -m pytest -q tests/wheel

wheelhouse: venv ## Build an offline installation: wheels with their hashes, in wheelhouse/
	rm -rf wheelhouse
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir wheelhouse '.[$(NODE_EXTRAS)]' pip
	set -e; for version in $(MORE_PYTHONS); do $(BIN)/python -m pip download --quiet --disable-pip-version-check \
	  --dest wheelhouse --find-links wheelhouse --only-binary :all: --python-version $$version \
	  "$$(echo wheelhouse/vmsonar-*.whl)[$(NODE_EXTRAS)]"; done
	$(BIN)/python cloud-init/pin.py wheelhouse

single: wheelhouse ## Build one file that installs all of it: sudo python3 dist/vmsonar-….pyz
	$(BIN)/python cloud-init/single.py wheelhouse dist
	cd dist && sha256sum vmsonar-*.pyz

docs: venv ## Generate the reference pages, the JSON Schema and the examples in cloud-init/
	$(BIN)/python -m vmsonar_archive.format.reference docs
	$(BIN)/python -m vmsonar.config.reference docs
	$(BIN)/python cloud-init/examples.py cloud-init
	$(BIN)/python docs/reference.py docs

man: venv ## Write the man pages to build/man, from the same help as --help
	$(BIN)/python docs/manual.py build/man

clean: ## Remove what make made
	rm -rf $(VENV) dist build wheelhouse demo-archive demo-*.tar demo-*.html
