# `make train` and `make test` do all their own set-up: a .venv beside this file, filled once and reused while
# pyproject.toml and constraints.txt stay as they are.
PYTHON ?= python3
VENV := .venv
# Processes that run tests.
JOBS ?= 2
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRACKERS_VENV := .venv-trackers
TRACKERS_READY := $(TRACKERS_VENV)/.ready
# One small model on two cores: spinning OpenMP threads would cost more than they give.
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export TRL_EXPERIMENTAL_SILENCE ?= 1
export NO_MKDOCS_2_WARNING ?= 1

.PHONY: train test lint audit docs browser nightly evidence-smoke chaos fuzz guards soak clean verl-smoke verl-quick processes vllm-smoke environments verifiers openenv inspect trackers trl-suite
train: $(READY)
	$(BIN)/gear train $(ARGS)

test: $(READY) lint docs browser $(TRACKERS_READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not apart" $(ARGS)
	@echo "Not part of make test, each in an environment of its own: make environments (verifiers, OpenEnv, reasoning-gym, inspect_ai), processes, verl-smoke, vllm-smoke."

# The report's tests drive a real browser. CI installs one; elsewhere they run if there is one, and say so if not.
browser:
ifneq ($(CI),)
	command -v chromedriver >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver fonts-dejavu-core >/dev/null; }
endif

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# Licences of the pinned packages; their known vulnerabilities too, where pip-audit is installed and reaches its database.
audit: $(READY)
	$(BIN)/python tests/helpers/audit.py

# The site, in build/site. Any warning is an error: a broken link, a page outside the navigation, a docstring that cannot be read.
docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet

# Every method to its end on the embedded task: about a minute and a half each.
nightly: $(READY)
	set -e; for m in $$($(BIN)/gear methods --json | $(BIN)/python -c 'import json,sys; print(*[m["name"] for m in json.load(sys.stdin)])'); do \
	  $(BIN)/gear train --credit $$m --out runs/nightly/$$m; done

# That the tables of docs/evidence.md can be made: two steps of a part of one. It shows no result.
evidence-smoke: $(READY)
	$(BIN)/python benchmarks/evidence.py controls --smoke --workers 2 --out build/evidence-smoke

# What was done to break it: docs/reliability.md. `make chaos ARGS=--short` takes a minute, the whole hours on two cores.
chaos fuzz soak: $(READY)
	$(BIN)/python tests/chaos/$@.py $(ARGS)

guards: $(READY)
	$(BIN)/python tests/chaos/guards_proven.py $(ARGS)

# vLLM itself, on a CPU, in an environment of its own (3.7 GB): docs/vllm.md says what it is made of. Not part of `make test`.
VLLM_VENV := .venv-vllm
vllm-smoke:
	test -x $(VLLM_VENV)/bin/python || { echo "no $(VLLM_VENV): docs/vllm.md says how it is made"; exit 2; }
	for part in interface script train; do $(VLLM_VENV)/bin/python tests/vllm_smoke/smoke.py $$part || exit 1; done

# TRL's own tests of its trainer, with ours in its place: TRL=a checkout of TRL, CREDIT=gear, grpo, or trl for TRL's own. Their models come
# from the Hub. docs/trl_tests.md says what came of it. Not part of `make test`.
CREDIT ?= gear
trl-suite: $(READY)
	test -f "$(TRL)/tests/test_grpo_trainer.py" || { echo "TRL=$(TRL) is no checkout of TRL: make trl-suite TRL=path/to/trl"; exit 2; }
	HF_HUB_OFFLINE=0 CREDIT=$(CREDIT) PYTHONPATH=tests/trl_suite:$$PYTHONPATH $(BIN)/python -m pytest -q -p our_trainer \
	  -c /dev/null --rootdir $(TRL) $(TRL)/tests/test_grpo_trainer.py $(ARGS)

# DeepSpeed ZeRO-2 and ZeRO-3 with TRL, two processes on a CPU: as one process, and killed and resumed by `gear train` (DDP, too). Six
# minutes on two idle cores. deepspeed lies in a small environment on top of the usual one. Not part of `make test`.
ZERO_VENV := .venv-zero
ZERO_READY := $(ZERO_VENV)/.ready
SITE := import sysconfig; print(sysconfig.get_path("purelib"))
processes: $(ZERO_READY)
	$(ZERO_VENV)/bin/python -m pytest -o addopts=-q -rP tests/engines/test_zero.py $(ARGS)
	$(BIN)/python -m pytest -o addopts=-q -m apart tests/engines/test_processes.py

$(ZERO_READY): $(READY) constraints-zero.txt
	test -x $(ZERO_VENV)/bin/python || $(PYTHON) -m venv $(ZERO_VENV)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" > "$$($(ZERO_VENV)/bin/python -c '$(SITE)')/base.pth"
	DS_BUILD_OPS=0 $(ZERO_VENV)/bin/python -m pip install -q -c constraints-zero.txt deepspeed
	touch $@

# The tables in wandb and trackio, part of `make test`. They lie in a small environment on top of the usual one (100 MB): TRL imports
# them wherever it finds them, and trackio asks for an older pillow.
trackers: $(TRACKERS_READY)
	$(BIN)/python -m pytest tests/training/test_tracker_table.py

$(TRACKERS_READY): $(READY) constraints-trackers.txt
	test -x $(TRACKERS_VENV)/bin/python || $(PYTHON) -m venv $(TRACKERS_VENV)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" > "$$($(TRACKERS_VENV)/bin/python -c '$(SITE)')/base.pth"
	$(TRACKERS_VENV)/bin/python -m pip install -q -c constraints-trackers.txt --no-deps trackio
	$(TRACKERS_VENV)/bin/python -m pip install -q -c constraints-trackers.txt wandb brotli gradio-client orjson python-multipart starlette uvicorn
	touch $@

# Environments and traces of others, with their own packages: each is trained on with GEAR, and round trips and types are those
# of the package. verifiers with tinker and OpenEnv lie in small environments on top of the usual one: they do not go together.
# Two minutes on two idle cores, once installed. Not part of `make test`.
environments: verifiers openenv inspect
	$(BIN)/python -m pytest -o addopts=-q -rP tests/tasks/test_reasoning_gym_trained.py $(ARGS)

VERIFIERS_VENV := .venv-verifiers
VERIFIERS_READY := $(VERIFIERS_VENV)/.ready
verifiers: $(VERIFIERS_READY)
	$(VERIFIERS_VENV)/bin/python -m pytest -o addopts=-q -rP tests/verifiers tests/engines/test_tinker.py $(ARGS)

$(VERIFIERS_READY): $(READY) constraints-verifiers.txt
	test -x $(VERIFIERS_VENV)/bin/python || $(PYTHON) -m venv $(VERIFIERS_VENV)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" > "$$($(VERIFIERS_VENV)/bin/python -c '$(SITE)')/base.pth"
	$(VERIFIERS_VENV)/bin/python -m pip install -q -c constraints-verifiers.txt verifiers tinker nltk python-dotenv websockets
	$(VERIFIERS_VENV)/bin/python -m pip install -q -c constraints-verifiers.txt --no-deps textarena  # without chess, which is GPL
	rm -rf $(VERIFIERS_VENV)/source && mkdir $(VERIFIERS_VENV)/source  # verifiers' own small environments are in its source only
	$(VERIFIERS_VENV)/bin/python -m pip download -q --no-deps --no-binary verifiers -c constraints-verifiers.txt -d $(VERIFIERS_VENV)/source verifiers
	tar xzf $(VERIFIERS_VENV)/source/verifiers-*.tar.gz -C $(VERIFIERS_VENV)/source --strip-components=1
	touch $@

OPENENV_VENV := .venv-openenv
OPENENV_READY := $(OPENENV_VENV)/.ready
openenv: $(OPENENV_READY)
	$(OPENENV_VENV)/bin/python -m pytest -o addopts=-q -rP tests/openenv $(ARGS)

$(OPENENV_READY): $(READY) constraints-openenv.txt
	test -x $(OPENENV_VENV)/bin/python || $(PYTHON) -m venv $(OPENENV_VENV)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" > "$$($(OPENENV_VENV)/bin/python -c '$(SITE)')/base.pth"
	$(OPENENV_VENV)/bin/python -m pip install -q -c constraints-openenv.txt --no-deps openenv
	$(OPENENV_VENV)/bin/python -m pip install -q -c constraints-openenv.txt fastmcp fastapi uvicorn websockets httpx openai tomli tomli-w
	touch $@

# A log that inspect_ai writes, in an environment of its own (300 MB), opened by `gear report` in the usual one.
INSPECT_VENV := .venv-inspect
INSPECT_READY := $(INSPECT_VENV)/.ready
inspect: $(READY) $(INSPECT_READY)
	$(BIN)/python -m pytest -o addopts=-q -rP tests/report/test_report_inspect.py $(ARGS)

$(INSPECT_READY): constraints-inspect.txt
	test -x $(INSPECT_VENV)/bin/python || $(PYTHON) -m venv $(INSPECT_VENV)
	$(INSPECT_VENV)/bin/python -m pip install -q -c constraints-inspect.txt inspect_ai
	touch $@

# verl on Ray has an environment of its own (1.9 GB) and runs on a CPU. On two idle cores each of its eight starts takes one to
# three minutes, a step about three seconds; the whole takes half an hour, less with ARGS='--steps 30'. Not part of `make test`.
VERL_VENV := .venv-verl
VERL_READY := $(VERL_VENV)/.ready
verl-smoke: $(VERL_READY) verl-quick
	$(VERL_VENV)/bin/python tests/verl/check_signals.py
	set -e; for kind in sync ema base; do $(VERL_VENV)/bin/python tests/verl/check_signals.py --workers 2 --teacher $$kind; done
	$(VERL_VENV)/bin/python tests/verl/smoke.py $(ARGS)

# The short form: what verl's private parts must be, and how bad input is refused. verl starts no cluster.
verl-quick: $(VERL_READY)
	$(VERL_VENV)/bin/python -m pytest -o addopts=-q -o pythonpath="tests/helpers src" tests/verl tests/engines/test_verl_parts.py
	$(VERL_VENV)/bin/python tests/verl/smoke.py --only bad_input

$(VERL_READY): pyproject.toml constraints-verl.txt
	test -x $(VERL_VENV)/bin/python || $(PYTHON) -m venv $(VERL_VENV)
	$(VERL_VENV)/bin/python -m pip install -q -c constraints-verl.txt torch
	$(VERL_VENV)/bin/python -m pip install -q -c constraints-verl.txt -e '.[verl]' pytest pytest-timeout
	touch $@

clean:
	rm -rf $(VERL_VENV) $(ZERO_VENV) $(VERIFIERS_VENV) $(OPENENV_VENV) $(INSPECT_VENV) $(TRACKERS_VENV) $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gear-rl needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[trl,math,report,dev]'
	$(BIN)/python -m pip install -q --no-deps bfcl-eval==2025.8.6  # the official judge; its own pins would downgrade numpy
	touch $@
