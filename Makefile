# Two commands do everything, from a fresh clone on a fresh Debian or Ubuntu machine:
#   make quickstart   build a real TensorFlow 2.8 image and run cudnn-verify inside it
#   make test         run the tests
# Whatever they need and do not find, they install: `make setup` says what.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CELLS ?= *bullseye*
PYTEST_OPTIONS ?=
PYTEST ?= $(BIN)/pytest $(PYTEST_OPTIONS)
# Each worker begins with one half: what a module prepares for its tests is prepared once.
WORKERS := -q -n 2 --dist worksteal

.PHONY: help setup engine quickstart test test-fast test-unit test-slow fuzz faults kills facts sound-installs suites exports link-proof repositories repositories-import own-systems colab-month outdated-images dstack test-kubernetes dispatch-scenarios docs image release test-docker test-long test-nightly test-wheels gpu bench lint lint-workflows golden clean

help:  ## what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/rtbuild: pyproject.toml scripts/ensure-python
	scripts/ensure-python $(PYTHON) $(VENV)
	@touch $@

engine:  ## make sure of a Docker Engine with BuildKit, buildx and the containerd image store
	scripts/ensure-engine

setup: $(BIN)/rtbuild engine  ## everything that building and testing needs on this machine
	scripts/ensure-tools

quickstart: setup  ## build TensorFlow 2.8.4 with CUDA 11 and cuDNN 8, and verify the image
	$(BIN)/rtbuild build matrices/tf28.yaml --select '$(CELLS)'
	@echo
	docker run --rm $$($(BIN)/rtbuild list matrices/tf28.yaml --select '$(CELLS)' --format image) cudnn-verify || test $$? -eq 10

test: setup lint  ## lint, unit tests, a real engine and a real registry
	@# The part on an engine waits much, and the fast part fills what it leaves: each one's output comes whole.
	+$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-fast test-docker

test-fast: $(BIN)/rtbuild
	$(PYTEST) $(WORKERS) -m 'not docker and not wheels and not long and not slow'

test-unit: $(BIN)/rtbuild  ## the fast part: no engine, no network
	$(PYTEST) $(WORKERS) -m 'not docker and not wheels and not long and not slow' tests/unit

fuzz: $(BIN)/rtbuild  ## a million generated inputs over all readers of what comes from outside; an hour
	RTBUILD_FUZZ=1000000 $(PYTEST) -q tests/unit/test_fuzz.py

facts: $(BIN)/rtbuild  ## every row of the facts against its wheels, read again; reads 19 GB, keeps nothing; an hour and a half
	$(BIN)/rtbuild facts refresh --verify --budget 32768
	$(PYTEST) -q tests/nightly/test_requirements_exist.py

faults: $(BIN)/rtbuild  ## each library of a real cuDNN and its toolkit broken in each way, and named; half an hour
	RTBUILD_EVERY_FAULT=1 $(PYTEST) -q -n 2 tests/faults/test_faults_each_library.py

sound-installs: $(BIN)/rtbuild  ## the probe beside each minor release of three years; downloads 200 GB, keeps none of it
	$(PYTEST) -q -s tests/nightly/test_sound_installs.py

suites: $(BIN)/rtbuild  ## the suites' judge over real frameworks on the CPU, right results and faults; downloads 3 GB once
	RTBUILD_EVERY_SUITE=1 $(PYTEST) -q -s -m wheels tests/faults/test_suites_frameworks.py

link-proof: $(BIN)/rtbuild  ## the link proof beside the real loader: 30 installs, 22 sets of each; and of each lock here; downloads 12 GB, keeps none; an hour
	$(PYTEST) -q -s tests/nightly/test_link_proof.py tests/nightly/test_locks_load.py

exports: $(BIN)/rtbuild  ## each form of export for four cells, installed by its own tool, and the probe beside the image; 60 GB of downloads, keeps none; an hour
	$(PYTEST) -q -s tests/nightly/test_exports.py

repositories: $(BIN)/rtbuild  ## what people bring: requirements of forty public repositories of ten years; half an hour
	$(PYTEST) -q -s tests/nightly/test_repositories.py

repositories-import: setup  ## eleven of them built, and in each image what the repository's sources import; 10 GB of disk at a time, an hour or two
	$(PYTEST) -q -s tests/nightly/test_repositories_import.py

own-systems: $(BIN)/rtbuild  ## the product and a part of its tests under Debian 12's and 13's own Python, on Debian, as root; ten minutes
	$(PYTEST) -q -s tests/nightly/test_own_systems.py

colab-month: setup  ## Colab's newest whole month, built, started and compared, and each month locked; 51 GB of disk, an hour
	$(PYTEST) -q -s tests/nightly/test_colab_dates.py tests/nightly/test_colab_month.py

outdated-images: setup  ## `outdated` of twenty published images in half a minute, with the lists and pages of today
	$(PYTEST) -q -s tests/nightly/test_outdated_images.py

dstack: $(BIN)/rtbuild  ## the scripts for rented cards, beside the newest dstack's own models; a minute, nothing is rented
	$(PYTEST) -q tests/nightly/test_dstack.py

test-kubernetes: setup  ## dispatch on a real API server of Kubernetes 1.20, kubelets a stand-in: 24 tasks and 15 faults; root, on Debian, builds it once
	$(PYTEST) -q tests/nightly/test_dispatch_kubernetes.py --durations 9

dispatch-scenarios: setup  ## 40 faults of a cluster on a real Slurm, and a table of what was lost, vanished, ran twice; root, on Debian, an hour
	scripts/ensure-tools faketime
	$(PYTEST) -q -s tests/nightly/test_dispatch_scenarios.py

kills: setup  ## kill -9 at 50 random moments of builds and publications, and what the next run finds; five minutes
	$(BIN)/python tests/kills.py /var/tmp/rtbuild-kills

test-slow: setup  ## faults of the probe on doubles of a driver, each option of each command, escapes from the sandbox, fuzzing; ten minutes
	$(PYTEST) $(WORKERS) -m 'slow and not docker and not wheels and not long' --durations 15

test-docker: setup  ## the part that needs an engine or a registry
	$(PYTEST) -q -m 'docker and not wheels and not long' --durations 15

test-long: setup  ## publication, evidence, several machines, plain docker build, Colab in a browser, engines that die
	scripts/ensure-tools chromium
	$(PYTEST) -q -m 'long and not nightly' --durations 25

test-nightly: setup  ## the longest stories: a Slurm that loses jobs, kill -9 at every write of a publication, compilers from nothing
	$(PYTEST) -q -m nightly --durations 25

test-wheels: setup  ## the probe against real cuDNN and real frameworks with faults; downloads about 8 GB once
	$(PYTEST) -q -m 'wheels and not nightly' --durations 15

gpu: $(BIN)/rtbuild  ## the probe on this machine's card: frameworks, faults, a report to commit; exit 5 without one
	$(BIN)/python tests/gpu/run.py

bench: setup  ## what builds cost beside plain docker build, into docs/benchmarks.md: root, an hour, 20 GB
	$(BIN)/python -m benchmarks.builds

docs: $(BIN)/rtbuild  ## these documents and the catalogue as one static site, in site/; fails on a dead link
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs site/docs
	$(BIN)/rtbuild catalogue --output site

image: setup  ## an image of rtbuild, made by rtbuild from the wheel of this checkout
	VENV=$(VENV) scripts/image-of-rtbuild

release: setup  ## the distributions of this commit in dist/, tried in fresh environments, with sums; docs/release.md
	VENV=$(VENV) scripts/release

lint: $(BIN)/rtbuild  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-workflows: $(BIN)/rtbuild  ## zizmor, shellcheck and our own rules; actionlint where it is installed
	$(BIN)/zizmor --offline --no-progress .github/workflows
	$(PYTEST) -q tests/unit/test_workflows.py

golden: $(BIN)/rtbuild  ## rewrite the golden files; the diff is the review
	$(PYTEST) -q -m 'not docker and not wheels' --update-golden

clean:  ## remove what building and testing left in this folder
	rm -rf $(VENV) .venv-system results recipes site .mypy_cache .pytest_cache .ruff_cache .hypothesis
