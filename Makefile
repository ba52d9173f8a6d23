# Every target sets up what it needs in .venv, with uv where it is installed, else with venv and pip.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
UV := $(shell command -v uv 2>/dev/null)
PIP = $(if $(UV),$(UV) pip install --quiet --python $(1)/bin/python,$(1)/bin/python -m pip install --quiet --disable-pip-version-check)
SOURCES := pyproject.toml setup.py
# Tests start hundreds of processes: each would compile anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test verify lint docs dist bare bench clean

demo: .venv/core.stamp  # the main job: a double pendulum swings up
	.venv/bin/fphys run swing-up

check: lint  # and the tests that a change touches
	.venv/bin/pytest -n 2 --dist worksteal -m "not alone" $$(.venv/bin/python -m tests.touched)

test: lint  # reduced sizes
	.venv/bin/pytest -n 2 --dist worksteal -m "not alone"
	.venv/bin/pytest -m alone $$(grep -rl --include='test_*.py' 'mark\.alone' tests)

verify: lint .venv/browser.stamp  # full sizes
	FPHYS_FULL=1 .venv/bin/pytest --timeout=7200

lint: .venv/test.stamp
	.venv/bin/ruff check .
	.venv/bin/pyright

bare: .venv-bare/tools.stamp  # everything that needs no extra
	FPHYS_BARE=1 .venv-bare/bin/pytest

docs: .venv/docs.stamp  # the site, in build/site; a warning or a broken link is an error
	.venv/bin/python -m sphinx -q -W --keep-going -E -c docs -b html . build/site
	.venv/bin/python docs/check_links.py build/site

dist: .venv-dist/tools.stamp  # a release, in dist/: the source, and a wheel built from it, checked by twine
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist .
	.venv-dist/bin/python -m twine check --strict dist/*

bench: .venv/core.stamp
	.venv/bin/fphys bench

clean:  # the environments stay: remove .venv and .venv-bare to start afresh
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis $${XDG_CACHE_HOME:-$$HOME/.cache}/fphys/tests

# Installed again only when $(SOURCES) change.
%/core.stamp: $(SOURCES) | %/bin/python
	@echo "installing fphys into $*"
	$(call PIP,$*) -e .
	@touch $@

.venv/test.stamp: $(SOURCES) | .venv/bin/python
	@echo "installing fphys and what its tests need into .venv"
	$(call PIP,.venv) -e ".[test,torch,genesis,onnx,docs,view,meshes,ray]"
	$(call PIP,.venv) --no-deps ovphysx==0.7.0.74035321 ovstage==0.3.0.1791986420
	@touch .venv/core.stamp $@

.venv/docs.stamp: $(SOURCES) | .venv/bin/python
	@echo "installing fphys and what its site needs into .venv"
	$(call PIP,.venv) -e ".[docs]"
	@touch .venv/core.stamp $@

.venv/browser.stamp: $(SOURCES) | .venv/bin/python
	$(call PIP,.venv) -e ".[browser]"
	@touch $@

.venv-bare/tools.stamp: .venv-bare/core.stamp
	$(call PIP,.venv-bare) "pytest>=9.0" "pytest-timeout>=2.4" "hypothesis>=6.130" "setuptools>=77"
	@touch $@

.venv-dist/tools.stamp: | .venv-dist/bin/python
	$(call PIP,.venv-dist) "build>=1.2" "twine>=6.0"
	@touch $@

.PRECIOUS: %/core.stamp %/bin/python
%/bin/python:
	@test -n "$(PYTHON)" || { echo "fphys needs Python 3.11 or newer: install it, or make PYTHON=/path/to/python" >&2; exit 1; }
	$(if $(UV),$(UV) venv --quiet --python "$(PYTHON)" $*,"$(PYTHON)" -m venv $*)
