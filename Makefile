# Every target sets up what it needs; a second run starts at once.
.DEFAULT_GOAL := help
SHELL := /bin/bash
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# Build environments have their constraints from the one variable or the other, by pip's age.
PINNED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
MEMBERS := libs/pyproject.toml $(wildcard services/*/pyproject.toml)

.PHONY: help setup demo test test-vm soak sanity cluster check format generate bench clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## the virtual environment and the Debian packages that tests need

$(STAMP): requirements-dev.txt constraints.txt debian-packages.txt scripts/debian-packages scripts/virtual-environment $(MEMBERS)
	@scripts/debian-packages
	@scripts/virtual-environment $(VENV)
	@echo "installing Python packages into $(VENV) ..."
	@$(PINNED) $(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

demo: $(STAMP) ## claims become volumes, pods write and read them, all goes again
	@$(BIN)/bitts demo $(ARGS)

test: $(STAMP) ## every test, the service tests also on Kubernetes itself. ARGS chooses some
	@$(if $(ARGS),$(BIN)/python -m pytest $(ARGS),scripts/test)

test-vm: $(STAMP) ## what this kernel cannot run, under Debian's kernel in an emulator. ARGS chooses some
	@scripts/test-vm $(ARGS)

soak: $(STAMP) ## over an hour: churn with kills, a million malformed requests, 1,000 configurations, garbage
	@BITTS_CHURN=600 BITTS_FUZZ=1000000 BITTS_MATRIX=1000 BITTS_EXAMPLES=20000 BITTS_MACHINE=50 \
	  $(BIN)/python -m pytest --timeout=7200 \
	  tests/net/test_churn.py tests/net/test_fuzz.py tests/net/test_differential.py \
	  tests/unit/net/test_decoders.py tests/service/test_local_driver_machine.py $(ARGS)

cluster: $(STAMP) ## build Kubernetes from source, once (minutes); `bitts up --kubernetes` starts it
	@$(BIN)/python -m devcluster.kubernetes

sanity: $(STAMP) ## upstream's csi-sanity on local-driver: make sanity [BACKEND=image]
	@$(BIN)/python -m pytest tests/service/test_sanity.py -k "$(or $(BACKEND),csi_sanity)" $(ARGS)

check: $(STAMP) ## format, lint, types, import contracts, sizes
	@scripts/check

format: $(STAMP) ## rewrite the sources in the one format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

generate: ## compile libs/proto into the generated packages
	@scripts/virtual-environment $(VENV)-generate
	@$(PINNED) $(VENV)-generate/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-generate.txt
	@$(VENV)-generate/bin/python scripts/generate.py

bench: $(STAMP) ## a benchmark: make bench NAME=provision [CLUSTER=kubernetes] [ARGS=--peer]
	@PYTHONPATH=tests $(BIN)/python -m bench.$(or $(NAME),provision) $(if $(CLUSTER),--cluster=$(CLUSTER)) $(ARGS)

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) $(VENV)-generate .mypy_cache .ruff_cache .pytest_cache .hypothesis
