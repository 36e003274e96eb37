# Two commands for a fresh machine: `make sweep` and `make test`. Everything else is for people who work on accelsweep.

PYTHON ?= python3
VENV ?= .venv
CLAIMS_MINUTES ?= 30
DEVICE ?= cuda
GPU_OPTIONS ?=
PACK ?= dist/gpu
MINUTES ?= 10
RUNS ?= 10000
SEEDS ?= 0-199
WHERE ?= local
RUN := $(VENV)/bin
PYTEST := $(RUN)/python -m pytest
TEST_WORKERS ?= 4
BESIDE = -n $(TEST_WORKERS) --dist loadgroup
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help setup package sweep claims ui check audit lock format test test-fast test-long storm system example example-report fuzz soak simulations projection gpu gpu-pack container pictures docs wheel wheel-elsewhere clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## create .venv with the pinned set and all that development needs

package: $(VENV)/.package ## create .venv with accelsweep and the pinned packages that it needs, and no more

# install.py leaves the packages uncompiled: Python compiles a module when it is first imported. That only pays off if
# Python may store the result; otherwise every process would compile torch again.
unexport PYTHONDONTWRITEBYTECODE

$(VENV)/.package: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "accelsweep needs Python 3.11 or later; $$($(PYTHON) --version) found. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV): a virtual environment and the pinned packages, once"
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	@$(RUN)/python install.py -e .
	@touch $@
	@echo "$(VENV) is ready"

$(VENV)/.installed: $(VENV)/.package
	@echo "adding to $(VENV) what development needs"
	@$(RUN)/python install.py -e '.[dev]'
	@touch $@

sweep: package ## measure the quickstart on this machine, to a report and a filled MLflow store
	@$(RUN)/accelsweep run experiment=quickstart

claims: package ## put well-known claims to the test on this machine: CLAIMS_MINUTES (30) at most, to reports/claims
	@$(RUN)/accelsweep claims --minutes $(CLAIMS_MINUTES)

ui: package ## browse the results in MLflow's UI
	@$(RUN)/accelsweep ui

check: setup ## formatting, lint, types, layers, security, workflow lint
	@$(RUN)/ruff format --check .
	@$(RUN)/ruff check .
	@$(RUN)/mypy
	@$(RUN)/mypy --config-file tests/thin_worker.ini
	@$(RUN)/lint-imports
	@$(RUN)/bandit --quiet --configfile pyproject.toml --recursive src
	@$(RUN)/snakefmt --check Snakefile workflows
	@$(RUN)/python tests/lint_workflow.py

audit: ## look the pinned set up among the known vulnerabilities (needs the network and pipx)
	@pipx run --spec pip-audit==2.10.1 pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

lock: setup ## write requirements.lock anew: the pinned set for Linux on x86-64, each file with its hash (needs the network)
	@$(RUN)/uv pip compile pyproject.toml --extra dev --constraint constraints.txt --generate-hashes \
	  --python-version 3.11.5 --python-platform x86_64-manylinux_2_28 --no-annotate --quiet \
	  --custom-compile-command 'make lock' --output-file requirements.lock

format: setup ## put every file into the agreed form
	@$(RUN)/ruff format .
	@$(RUN)/ruff check --fix .
	@$(RUN)/snakefmt Snakefile workflows

test-fast: setup ## the inner loop: what starts nothing real and is neither heavy nor exhaustive
	@$(PYTEST) $(BESIDE) -m 'not (real or browser or slurm or grid_engine or timing or exhaustive or heavy or long)'

system: ## install the Debian packages that the real parts of the tests need, where that is possible
	@tests/install-system.sh

test: setup system ## all tests, real parts included: first side by side, then those that time something
	@beside=0; alone=0; \
	$(PYTEST) $(BESIDE) -m 'not timing and not long' || beside=$$?; \
	$(PYTEST) -m 'timing and not long' $$(grep -rl --include='test_*.py' 'mark\.timing' tests) || alone=$$?; \
	exit $$((beside > alone ? beside : alone))

test-long: setup system ## hours: half of the tests on a real Slurm, each recipe, storms, the site
	@$(PYTEST) -m long

storm: setup system ## draw faults over real sweeps: SEEDS (0-199), one case each, WHERE=local or slurm; prints how commands ended, and what was tried and survived
	@STORM_SEEDS=$(SEEDS) $(PYTEST) -m 'storm and $(if $(filter slurm,$(WHERE)),,not )slurm' tests/faults/storm

example: setup ## measure reports/examples anew, and take the pictures of them: some minutes on a machine that does nothing else
	@$(RUN)/python reports/examples/example.py measure
	@$(MAKE) --no-print-directory pictures

example-report: setup ## write the examples' reports again from their records, after a change of the report
	@$(RUN)/python reports/examples/example.py rebuild

fuzz: setup ## read files that were made to harm for MINUTES (10), and count what becomes of them
	@$(RUN)/python benchmarks/fuzz.py --minutes $(MINUTES)

soak: setup ## RUNS (10000) tiny runs in one sweep, with kills in between: curves and judgement to docs/evidence
	@$(RUN)/python benchmarks/soak.py --runs $(RUNS)

simulations: setup ## simulate sweeps and fleets through the code of our statistics: tables to docs/evidence
	@$(RUN)/python benchmarks/coverage.py > docs/evidence/simulated-sweeps.md
	@$(RUN)/python benchmarks/fleet.py > docs/evidence/simulated-fleets.md

projection: setup ## fit the projections to published rates, and print how wrong they are on unseen devices
	@$(RUN)/python benchmarks/projection.py --write

gpu: setup ## accept a device within 14 minutes: DEVICE (cuda; simulated or cpu at small scale), evidence to docs/evidence
	@$(RUN)/python benchmarks/gpu --device $(DEVICE) $(GPU_OPTIONS)

gpu-pack: setup ## pack the acceptance for a bare machine with a torch image into PACK (dist/gpu), and print how to start it
	@$(RUN)/python benchmarks/gpu/pack.py $(PACK)

container: ## build the image of the Containerfile, and run doctor and a small quickstart in it (podman; tests/container.sh)
	@tests/container.sh

pictures: setup system ## take the screenshots of the documentation again, which show the shipped quickstart, in a real browser
	@ACCELSWEEP_SCREENSHOTS=docs/images $(PYTEST) -m browser tests/browser

docs: setup ## build the documentation's site into site/; every link and every generated page is checked
	@NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict
	@echo "documentation: site/index.html"

wheel: setup ## build the wheel into dist/
	@$(RUN)/python -m build --wheel --no-isolation

wheel-elsewhere: wheel ## install the wheel outside the checkout, plan with it, and list what it brings (needs pipx; tests/wheel.sh)
	@PYTHON=$(PYTHON) tests/wheel.sh

clean: ## remove what make created (never sweeps/, reports/ or the MLflow store)
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache dist build site
