# Every command sets up what it needs in .venv. `make` alone prints this list.
.DEFAULT_GOAL := help
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CLASSES := .venv/spark.jsa
AIRFLOW := .venv-airflow/.ready
COMPILED := .venv/.compiled
DOCS := .venv-docs/.ready
UV := 0.13.8
# for days of few rows Spark takes a quarter of its time to write and compile code; `make proof` has it do so
NO_CODEGEN := -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN
TESTS = $(call IN_MEMORY,8000000) SPARK_SUBMIT_OPTS="$(NO_CODEGEN)" $(BIN)/python -m pytest -m "not proof and not ui" \
	-o tmp_path_retention_policy=failed
PROOFS = $(call IN_MEMORY,8000000) $(BIN)/python -m pytest -m "not ui and not hosts" --hypothesis-profile=explore \
	-o tmp_path_retention_policy=failed
# Many tests wait, for beats and other programs. A test that failed beside three others is said to have failed,
# and runs once more alone: on a machine that is slow for a minute a real server answers late. What fails again,
# fails.
RUN = $(1) -n 4 --dist loadfile --no-loadscope-reorder $(ARGS) || { [ $$? = 1 ] && \
	echo "what failed beside three others runs again alone:" && $(1) --last-failed; }
# the files of the tests, where memory has these kB for them and may hold programs: on a disk tests wait for
# most of their time, and flushing costs a third of the processor's
IN_MEMORY = $(shell ! grep -qs ' /dev/shm .*noexec' /proc/mounts && \
	[ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt $(1) ] 2>/dev/null && \
	echo PYTEST_DEBUG_TEMPROOT=/dev/shm TMPDIR=/dev/shm)
# the tests that notice when the insides of others change
INSIDES = tests/asyncio_core tests/jobs/clients/http tests/jobs/task/lookup/test_answers_in_doubt.py \
	tests/jobs/task/test_stopping.py tests/jobs/task/test_worker_daemon.py tests/jobs/task/test_functions_that_do_not_end.py \
	tests/jobs/run/keys/test_day_keys.py tests/jobs/run/engines tests/jobs/run/test_enrich.py tests/jobs/input \
	tests/jobs/tables/delta tests/jobs/process/test_days_on_a_store.py \
	tests/data_quality/test_slow_imports.py tests/data_quality/test_day.py tests/orchestration
export GX_ANALYTICS_ENABLED := false
export DAGSTER_DISABLE_TELEMETRY := 1
unexport PYTHONDONTWRITEBYTECODE # each of the many Pythons would compile every module anew
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: java prepare lock notebook promises docs wheel help setup demo ui airflow quick short test proof coverage newest hosts simulate test-ui bench bench-flink check format reference clean
help: ## print this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## only set up .venv
	@echo "ready: source $(BIN)/activate"

demo: $(CLASSES) ## three real days of flights: data, services, Spark through Dagster, checks, published table, report
	@$(BIN)/python -m demo $(ARGS)

ui: $(CLASSES) ## Dagster, the lookup service and the reports on the demo's data, until Ctrl-C
	@$(BIN)/python -m demo.ui

airflow: $(CLASSES) $(AIRFLOW) ## Airflow, the lookup service and the reports on the demo's data, until Ctrl-C
	@$(BIN)/python -m demo.airflow

quick: $(READY) ## lint, types, and the short tests that start no Spark, process or server
	@$(MAKE) --no-print-directory -j2 check short

short:
	$(call IN_MEMORY,1000000) $(BIN)/python -m pytest -q -n 2 --quick --hypothesis-profile=quick \
		-o tmp_path_retention_policy=failed $(ARGS)

prepare: $(AIRFLOW) $(COMPILED)

test: ## the tests, one proof per promise (at most 12 minutes on 2 cores)
	@$(MAKE) --no-print-directory -j3 prepare
	@$(call RUN,$(TESTS))

proof: $(CLASSES) $(AIRFLOW) ## everything the tests can show, the long ones too
	@$(call RUN,$(PROOFS))
	$(BIN)/python -m tests.asyncio_core.plant_faults
	$(MAKE) --no-print-directory docs coverage ARGS=
	$(BIN)/mypy --python-executable .venv-airflow/bin/python orchestration/airflow/tidegate_airflow.py

simulate: $(READY) ## nights of the real code under every fault: SEED=14 TRACE=1, SEEDS=1000, SEEDS=5000:6000 or HOURS=2; ARGS=--publishing
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(HOURS),--hours $(HOURS)) $(if $(TRACE),--trace) $(ARGS)

coverage: $(READY) ## how many lines the short tests run, at least 78 of 100
	@test -d .coverage-tool || $(BIN)/uv pip install -q --no-deps --target .coverage-tool coverage==7.17.5
	$(call IN_MEMORY,1000000) PYTHONPATH=.coverage-tool $(BIN)/python -m coverage run \
		--source=asyncio_core,jobs,data_quality,orchestration,tidegate \
		-m pytest -q --quick --hypothesis-profile=quick $(ARGS)
	PYTHONPATH=.coverage-tool $(BIN)/python -m coverage report --skip-covered --fail-under=78

newest: $(CLASSES) ## the tests of the insides of other libraries (docs/adr/0023) on the newest aiohttp, deltalake, great-expectations, pyspark, dagster
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv-newest
	$(BIN)/uv pip install -q --python .venv-newest/bin/python --overrides tools/newest.txt -e ".[dev]"
	@# dagster-dg-cli, which only tests need, holds dagster back
	$(BIN)/uv pip install -q --python .venv-newest/bin/python dagster dagster-webserver \
		$(foreach name,dagster dagster-webserver dagster-graphql dagster-pipes dagster-shared,-P $(name))
	PYSPARK_PYTHON=$(CURDIR)/.venv-newest/bin/python .venv-newest/bin/python -m pytest -q -n 2 --dist loadfile \
		-m "not proof and not ui" $(or $(ARGS),$(INSIDES))

hosts: $(CLASSES) ## days on five hosts in namespaces: power cuts, partitions, wrong clocks (root; Debian: iproute2 iptables gcc)
	$(BIN)/python -m pytest -m hosts -s tests/hosts $(ARGS)

test-ui: $(CLASSES) $(DOCS) ## Dagster's pages and the reports in headless Chromium (Debian: apt-get install chromium)
	$(BIN)/python -m pytest -m ui $(ARGS)

bench: $(CLASSES) ## speed and memory of the core, the bridge and the ledger beside the usual alternatives (an hour)
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/bridge.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/memory.py

bench-flink: java $(READY) ## Flink 2.3 itself on the same work, beside it; fetches its jars (330 MB) into .flink, needs javac
	@test -d .flink/pyflink || $(BIN)/uv pip install -q --no-deps --target .flink apache-flink-libraries==2.3.0
	$(BIN)/python benchmarks/flink_beside.py $(ARGS)

check: $(READY) ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY) ## let ruff lay out the code
	$(BIN)/ruff format

reference: $(READY) ## write docs/reference.md anew, from the declarations
	@$(BIN)/python -m tools.reference

notebook: $(READY) ## run docs/frames.ipynb, and write the outputs of its cells
	@$(BIN)/python -m tools.notebook

promises: $(READY) ## write docs/promises.md anew, from the names of the tests
	@$(BIN)/python -m tools.promises

docs: $(DOCS) ## build the site of the documents into site/; every link and heading is checked
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build -q --strict
	@echo "read it, with search: $(BIN)/python -m http.server -b 127.0.0.1 -d site"

wheel: $(READY) ## build dist/*.whl, and test it in environments of its own
	@rm -rf dist
	$(BIN)/uv build -q --wheel --no-build-isolation --python $(BIN)/python -o dist
	WHEEL=$$(ls dist/*.whl) $(BIN)/python -m pytest -q tests/package -m "not ranges" $(ARGS)

lock: $(BIN)/uv ## pin anew what pyproject.toml asks for, with hashes and without an address
	$(BIN)/uv pip compile -q pyproject.toml --extra dev --universal --no-strip-extras --generate-hashes \
		--no-emit-index-url --no-header -o requirements.txt
	$(BIN)/uv pip compile -q --group pyproject.toml:airflow --universal --no-strip-extras --generate-hashes \
		--no-emit-index-url --no-header -o requirements-airflow.txt
	$(BIN)/uv pip compile -q --group pyproject.toml:docs --universal --no-strip-extras --generate-hashes \
		--no-emit-index-url --no-header -o requirements-docs.txt

clean: ## remove what the demo and the tests made (data/); .venv stays
	rm -rf data

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Set PYTHON=python3.11, say.")'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV)

$(READY): requirements.txt pyproject.toml $(BIN)/uv
	@echo "setting up .venv (about a minute, 1.4 GB)"
	@$(BIN)/uv pip sync -q --require-hashes --python $(BIN)/python requirements.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

$(AIRFLOW): requirements-airflow.txt $(READY)
	@echo "setting up .venv-airflow (half a minute, 220 MB)"
	@$(PYTHON) -m venv .venv-airflow
	@$(BIN)/uv pip sync -q --require-hashes --python .venv-airflow/bin/python requirements-airflow.txt
	@touch $@

# one process compiles what the workers would each compile; what cannot be collected, the tests report
$(COMPILED): $(READY)
	@$(BIN)/python -m pytest -q --collect-only -m "not proof and not ui" >/dev/null || true
	@touch $@

$(DOCS): requirements-docs.txt $(BIN)/uv
	@$(PYTHON) -m venv .venv-docs
	@$(BIN)/uv pip sync -q --require-hashes --python .venv-docs/bin/python requirements-docs.txt
	@touch $@

$(CLASSES): $(READY) | java
	@echo "archiving Spark's classes, so that its programs start faster (a minute, 180 MB)"
	@$(BIN)/python -m tools.class_archive
	@touch $@

java:
	@major=$$($${JAVA_HOME:+$$JAVA_HOME/bin/}java -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p'); \
	[ "$${major:-0}" -ge 17 ] || { echo "Java 17 or newer is needed and was not found: install it (Debian:" \
		"apt-get install openjdk-17-jre-headless) or set JAVA_HOME." >&2; exit 1; }
