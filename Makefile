# Needs make and Python 3.11 to 3.13, nothing else. `make help` lists the targets.

PYTHON ?= python3
SUPPORTED_PYTHONS := 3.11 3.12 3.13
# Resolves the lock file; pinned so that two people get the same file.
UV_VERSION := 0.13.8
# Looks up known holes; pinned, so that a week's new finding is one in what is looked at.
PIP_AUDIT_VERSION := 2.10.1

# Other releases than those of the lock, in an environment beside: make test TENSORFLOW=2.20.0
RELEASES := $(addprefix tensorflow==,$(TENSORFLOW)) $(addprefix keras==,$(KERAS))
VENV := .venv$(addprefix -tensorflow-,$(TENSORFLOW))$(addprefix -keras-,$(KERAS))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
VERSION := $(or $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' \
	2>/dev/null),missing)
# A stamp is written last, so an interrupted installation is never taken for a
# finished one. Its name holds the version: another PYTHON makes another .venv.
LOCKED := $(VENV)/.locked-$(VERSION)
INSTALLED := $(VENV)/.installed-$(VERSION)

.DELETE_ON_ERROR:
.PHONY: help demo test versions test-slow test-campaigns verdicts bench bench-fidelity bench-samples docs readme lint check lock audit build release clean check-python

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(INSTALLED)  ## analyze a training script: does its split over two devices pay?
	$(BIN)/advisor analyze sample_models/train_deepconn.py

# Tests start processes by the thousand: what all of them import is compiled once, wherever this is
# set, as in many containers.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest
# Three files at a time, since some wait (two where steps are timed); what a file's tests share is
# made once, by one process.
SIDE_BY_SIDE := -n3 --dist=loadfile --no-loadscope-reorder

test: $(INSTALLED)  ## run the tests, except the slow ones; .pytest_cache/times.xml has their times
	$(PYTEST) $(SIDE_BY_SIDE) --junitxml=.pytest_cache/times.xml

versions: $(INSTALLED)  ## run the tests and write their row into docs/reference/versions.md; TESTS names some
	$(BIN)/python tests/tested_versions.py $(SIDE_BY_SIDE) $(TESTS)

test-slow: $(INSTALLED)  ## run the slow tests only, without those of campaigns and verdicts
	$(PYTEST) $(SIDE_BY_SIDE) -n2 -m slow

test-campaigns: $(INSTALLED)  ## run what draws cases, five times as many, and samples of campaigns
	$(PYTEST) -m "campaign or hypothesis" --hypothesis-profile=nightly

verdicts: $(INSTALLED)  ## run four models whose verdicts are known, on two workers, about 2 minutes
	$(PYTEST) -m verdict tests/verdicts

bench: $(INSTALLED)  ## measure the figures of docs/reference/figures.md, about 10 minutes
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/tracing.py
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/graph_size.py
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/costs.py

# Recordings are kept, and those of earlier calls count no more: each has a folder of its own.
RECORDINGS := recordings/$(shell date +%Y%m%d-%H%M%S)
bench-fidelity: $(INSTALLED)  ## predicted against measured, 24 models drawn anew (docs/explanation/cost-model.md), about an hour
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/record_runs.py $(RECORDINGS) --fresh 24

bench-samples: $(INSTALLED)  ## predicted against measured on the samples, about 12 minutes
	PYTHONPATH=tests $(BIN)/python tests/benchmarks/record_runs.py $(RECORDINGS) $(notdir $(basename $(wildcard sample_models/*.py)))

# Hours long in all; each call goes on where the last one stopped, after 55 minutes at the latest.
# For example: make campaign-broken-runs CAMPAIGN="--sample 20"
campaign-%: $(INSTALLED)
	PYTHONPATH=tests:tests/tf:tests/benchmarks $(BIN)/python tests/campaigns/$(subst -,_,$*).py $(CAMPAIGN)

# Not --quiet, which hides the warnings that strict mode counts.
docs: $(INSTALLED)  ## write JSON Schemas and the tables of docs/reference/contracts.md, build the site into site/
	$(BIN)/python tests/contract_schemas.py
	$(BIN)/python tests/contracts_page.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

readme: $(INSTALLED)  ## make the outputs and pictures of README.md anew, about 2 minutes
	$(BIN)/python tests/readme_page.py

lint: $(INSTALLED)  ## check style, types, import contracts, prose, and that the package has not grown
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/prose.py
	$(BIN)/python tests/benchmarks/package_size.py --limits tests/package_limits.toml

check: $(INSTALLED)  ## check the sample models' placements against placements.lock.json
	$(BIN)/advisor check

build: $(INSTALLED)  ## build the wheel and the source archive into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build

release: $(INSTALLED)  ## cut a release of the version that stands here, or make release TO=0.3.0
	rm -rf dist
	$(BIN)/python tests/release.py $(TO)

# Existing pins stay unless pyproject.toml forbids them; `make lock UV_FLAGS=--upgrade`
# takes the newest versions.
lock: check-python  ## resolve requirements.lock anew from pyproject.toml
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(PYTHON) -m venv "$$tmp" && \
	"$$tmp/bin/python" -m pip --disable-pip-version-check install --quiet uv==$(UV_VERSION) && \
	"$$tmp/bin/uv" --no-config pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --group dev --group docs $(UV_FLAGS) \
		pyproject.toml --output-file requirements.lock

audit: $(INSTALLED)  ## look for known holes in requirements.lock, and for licences that are not taken
	$(BIN)/python -m pytest tests/test_licences.py
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(PYTHON) -m venv "$$tmp" && \
	"$$tmp/bin/python" -m pip --disable-pip-version-check install --quiet \
		pip-audit==$(PIP_AUDIT_VERSION) && \
	"$$tmp/bin/pip-audit" --disable-pip --require-hashes --requirement requirements.lock

clean:  ## remove the environment and everything built
	rm -rf $(VENV) dist site advisor-out screenshots
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

check-python:
	@case " $(SUPPORTED_PYTHONS) " in *" $(VERSION) "*) ;; *) \
		echo "placement-advisor needs Python 3.11 to 3.13; $(PYTHON) is $(VERSION)." >&2; \
		echo "Name another one, for example: make demo PYTHON=python3.12" >&2; exit 1;; esac

INSTALL_LOCKED = $(PIP) install --quiet --require-hashes --requirement requirements.lock
define INSTALL_CHOSEN
	printf '%s\n' $(RELEASES) > $(VENV)/releases.txt
	$(PIP) install --quiet uv==$(UV_VERSION)
	$(BIN)/uv --no-config pip install --quiet --python $(BIN)/python \
		--constraint $(VENV)/releases.txt --requirement pyproject.toml --group dev --group docs
endef

$(LOCKED): requirements.lock | check-python
	@echo "Installing TensorFlow and the rest into $(VENV); this takes some minutes the first time."
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(if $(strip $(RELEASES)),$(INSTALL_CHOSEN),$(INSTALL_LOCKED))
	touch $@

# The lock is resolved apart from pyproject.toml; `pip check` tells when it is out of date.
$(INSTALLED): pyproject.toml $(LOCKED)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(PIP) check
	touch $@
