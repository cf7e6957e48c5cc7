# Everything runs inside .venv, which the first target that needs it creates.
PYTHON ?= python3
# Set, it would have every program that a test starts compile hundreds of modules anew.
unexport PYTHONDONTWRITEBYTECODE
# A release has the time of its commit.
unexport SOURCE_DATE_EPOCH
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Installs a file of requirements/: exactly those versions, each checked against its hashes.
INSTALL = $(if $(shell command -v uv),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check) --require-hashes --requirement
READY_E2E := $(VENV)/.ready-e2e
READY_DOCS := $(VENV)/.ready-docs
READY_BROWSER := $(VENV)/.ready-browser

.PHONY: demo test integration check check-code check-types check-texts docs figures fuzz fuzz-first hostile e2e e2e-older vm suites browser page bench soak lock sbom release base since changelog clean

demo: $(READY)
	$(BIN)/koord demo --report demo-report.html

test: $(READY)
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not integration"

# Whole programs, kills, growth, hostile strings of every object, each call of a plugin that raises: some minutes.
integration: $(READY)
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m integration

check: check-code check-types check-texts

check-code: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.names_check

check-types: $(READY)
	$(BIN)/mypy

check-texts: $(READY)
	$(BIN)/python -m tests.prose_check
	$(BIN)/python -m tests.sources_check
	$(BIN)/python -m tests.pages_check

# The documentation site, in build/site: every warning is an error. Where node is, its search is asked.
docs: $(READY_DOCS)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	$(BIN)/python -m tests.search_check

# The experiments of examples/experiments/, in build/figures: minutes.  OPENB is a folder with
# Alibaba's CSV files (docs/how-to/run-an-experiment.md): with it, those of FGD's paper too, which
# take hours; SEEDS="42 43" draws less of them.
OPENB ?=
SEEDS ?=
FIGURES := small colocation gangs
PUBLISHED := fgd-default fgd-gpu-sharing fgd-multi-gpu fgd-gpu-models fgd-without-gpus
figures: $(READY)
	for name in $(FIGURES); do $(BIN)/koord experiment examples/experiments/$$name.yaml -o build/figures/$$name || exit 1; done
ifneq ($(OPENB),)
	mkdir -p build/figures/definitions
	ln -sfn "$(abspath $(OPENB))" build/figures/definitions/openb
	for name in $(PUBLISHED); do \
	  sed -e '' $(if $(SEEDS),-e 's/^seeds: .*/seeds: [$(shell echo $(SEEDS) | tr " " ",")]/') examples/experiments/$$name.yaml > build/figures/definitions/$$name.yaml && \
	  $(BIN)/koord experiment build/figures/definitions/$$name.yaml -o build/figures/$$name || exit 1; done
else
	@echo "figures of FGD: left out; OPENB=FOLDER names Alibaba's CSV files"
endif

# Random mixed worlds through the whole scheduler, for so many seconds, and every property test with
# new examples. Each run takes seeds of its own; SEED repeats one.
FUZZ_SECONDS ?= 180
DEVICE_WORLDS ?= 150 # of devices and claims; about a minute
SEED ?= $(shell date +%s)
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.fuzz.devices --worlds $(DEVICE_WORLDS) --seed $(SEED)
	$(BIN)/python -m pytest -q -n auto -m hypothesis --hypothesis-profile=explore --hypothesis-seed=$(SEED)

# The first worlds of make fuzz, the same at each run and on any machine.
fuzz-first: $(READY)
	$(BIN)/python -m tests.fuzz --seed 0 --count 80 --seconds 900

# Attacks on the programs as users run them: tests/hostile/README.md.  Less than five minutes.
hostile: $(READY_E2E)
	$(BIN)/python -m pytest -q tests/hostile -n 2 --dist loadfile

# On a real Kubernetes control plane, etcd too. It is built once, in some minutes, with the go of PATH or
# /usr/local/go; or KUBEBUILDER_ASSETS names a folder that has kube-apiserver, etcd and kubectl.
# Three workers, each with a control plane of its own: most of the time servers are waited for.
# tests/e2e/host measures the machine, so nothing runs beside it.
e2e: $(READY_E2E)
	status=0; \
	$(BIN)/python -m pytest -q tests/e2e --ignore=tests/e2e/host -n 3 || status=1; \
	$(BIN)/python -m pytest -q tests/e2e/host --junitxml=build/e2e-host.xml || status=1; \
	exit $$status

# A part of them on the release before: KUBERNETES_VERSION names one whose go.mod is in
# tests/e2e/controlplane/kubernetes. It is built once, as above. Decisions and claims as
# kube-scheduler's, contracts, the chart, webhooks, admission, the descheduler, the node agent: less
# than eight minutes. build/e2e-VERSION.xml is for tests/e2e/compatibility.py.
KUBERNETES_VERSION ?= 1.35
OLDER := stock contract test_install.py descheduler/test_low_node_load.py koordlet/test_koordlet.py \
  $(addprefix session/test_,claims.py gangs.py manager.py placing.py quota_admission.py validation.py) \
  $(addprefix suites/test_,workloads.py device_taint_rules.py kubernetes_predicates.py koordinator_devices.py)
e2e-older: $(READY_E2E)
	KUBERNETES_VERSION=$(KUBERNETES_VERSION) $(BIN)/python -m pytest -q -n 2 --junitxml=build/e2e-$(KUBERNETES_VERSION).xml $(addprefix tests/e2e/,$(OLDER))

# The node agent on cgroup v2, with a real kubelet and containerd in a virtual machine: QEMU and kernel
# are Debian's, downloaded once.  Two minutes with KVM, a quarter of an hour with an emulated CPU.
vm: $(READY_E2E)
	$(BIN)/python -m pytest -q tests/vm

# The originals' own suites, run against ours: tests/originals/README.md.  An hour, and building them
# takes some minutes, once.  KOORDINATOR is a checkout of the original, whose suite is only there.
KOORDINATOR ?=
suites: $(READY_E2E)
	$(BIN)/python -m tests.originals kubernetes
	$(BIN)/python -m tests.originals claims
ifneq ($(KOORDINATOR),)
	$(BIN)/python -m tests.originals koordinator --checkout $(KOORDINATOR)
	$(BIN)/python -m tests.originals devices --checkout $(KOORDINATOR)
else
	@echo "suite of Koordinator: left out; KOORDINATOR=FOLDER names a checkout of it"
endif

# The dashboard in a real browser: the Chromium of PATH, or KOORD_CHROMIUM.  SCREENSHOTS=docs/images
# draws those of the documentation anew.
browser: $(READY_BROWSER)
	$(BIN)/python -m pytest -q tests/browser

# The page of the dashboard, bundled from frontend/; the bundle is committed.  Needs node.
page:
	cd frontend && npm ci --ignore-scripts && npm run build

bench: $(READY_E2E)
	$(BIN)/python -m benchmarks

# Hours: SCALE=0.01 takes minutes.  Exits 1 if memory grows with what has come and gone.
SCALE ?= 1
soak: $(READY)
	$(BIN)/python -m tests.soak --scale $(SCALE)

$(READY): pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit("python3 >= 3.11 is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(READY_E2E): $(READY) requirements/e2e.txt
	$(INSTALL) requirements/e2e.txt
	@touch $@

$(READY_DOCS): $(READY) requirements/docs.txt
	$(INSTALL) requirements/docs.txt
	@touch $@

$(READY_BROWSER): $(READY) requirements/browser.txt
	$(INSTALL) requirements/browser.txt
	@touch $@

# Resolves pyproject.toml into requirements/*.txt. Versions stay as they are where they can;
# UPGRADE=--upgrade takes the newest ones, UPGRADE="--upgrade-package numpy" those of one package.
UPGRADE ?=
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock"
lock: $(READY)
	$(INSTALL) requirements/release.txt
	$(COMPILE) $(UPGRADE) pyproject.toml --all-extras --group dev --group build --group e2e --group browser --group docs --group release --output-file requirements/all.txt
	$(COMPILE) pyproject.toml --extra cri --extra hook-server --extra pod-resources --extra tracing --constraint requirements/all.txt --output-file requirements/image.txt
	$(COMPILE) pyproject.toml --group dev --group build --constraint requirements/all.txt --output-file requirements/dev.txt
	for group in build e2e browser docs release; do \
	  $(COMPILE) --group $$group --constraint requirements/all.txt --output-file requirements/$$group.txt || exit 1; done

# Writes the software bill of materials (CycloneDX) of the image's packages: Python's, and Debian's of
# its base unless BASE is set.
ARCHITECTURE ?= amd64
BASE ?=
sbom: $(READY)
	$(INSTALL) requirements/release.txt
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml --mc-type application --of JSON --output-file dist/koordinator.cdx.json requirements/image.txt
	$(if $(BASE),,$(BIN)/python -m release.bill dist/koordinator.cdx.json --architecture $(ARCHITECTURE))

# Writes wheel, source distribution, OCI layouts of the image and of the charts to dist/; equal commits
# give equal bytes.  REPOSITORY_URL is what links of the README name.  The image's base are the Debian
# packages that release/base.txt pins, or BASE: LAYOUT@sha256:DIGEST of an image with Python 3.13, as
# skopeo copy docker://… oci:LAYOUT makes it, or scratch.  MIRROR is a mirror of Debian.
MIRROR ?= https://deb.debian.org
REPOSITORY_URL ?=
release: sbom
	@test -n "$(REPOSITORY_URL)" || { echo "REPOSITORY_URL is required, such as https://example.com/koordinator"; exit 2; }
	$(BIN)/python -m release --repository-url "$(REPOSITORY_URL)" --sbom dist/koordinator.cdx.json --base "$(BASE)" --architecture $(ARCHITECTURE) --mirror "$(MIRROR)"

# Pins the base's packages: writes their newest versions to release/base.txt.  gpgv checks Debian's
# signatures with its KEYS (package debian-archive-keyring).
KEYS ?= /usr/share/keyrings/debian-archive-keyring.gpg
base: $(READY)
	$(BIN)/python -m release.debian --mirror "$(MIRROR)" --keys "$(KEYS)"

# Moves changes/*.md into CHANGELOG.md, for the release that VERSION names.
changelog: $(READY)
	$(INSTALL) requirements/release.txt
	$(BIN)/towncrier build --yes --version $(VERSION)
	$(BIN)/python -m docs.since --release $(VERSION)

# Records new names of the reference in docs/since/names.json.  UPSTREAM is a folder with clones of
# the repositories that docs/since/__main__.py names: names of theirs get their releases.
UPSTREAM ?=
since: $(READY)
	$(BIN)/python -m docs.since $(if $(UPSTREAM),--upstream "$(UPSTREAM)")

clean:
	rm -rf $(VENV) build dist demo-report.html .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
