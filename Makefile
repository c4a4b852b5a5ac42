# What one types. Cargo does the work; this file knows the order.
#
#   make demo         build, bring up a cluster here, time-share EP, CG and IS on it, print the table
#   make test         everything continuous integration runs
#   make dsm          the examples of memory that all ranks share
#   make grpc         calls of routines from C, C++ and Fortran: libkumi_grpc and its example
#   make jia          shared memory for programs that were written for JIAJIA: libjia
#   make ofi          the provider of libfabric, by which stock MPI uses channels: libkumi-fi.so
#   make python       the Python package: a wheel in target/python, tested in target/python/venv
#   make wheel        the Python package alone: a wheel in target/python, built with maturin and nothing else
#   make java         the Java client of routines: a jar in target/java, with its tests; needs what make build makes
#   make build        release build of everything, examples in C, C++ and Fortran included
#   make docs         the documentation as a book in target/book; installs mdBook in target/tools if there is none
#   make page         the page of `kumi web`, from its TypeScript; needs Node.js
#   make reference    write the generated parts of docs/reference anew, from the code
#   make simulations  write the simulated tables of docs/guide anew, for some minutes
#   make man          manual pages in target/man, scripts for shells in target/completions
#   make deb          packages for Debian and Ubuntu in target/deb
#   make install      what make build has built, and what make man makes, below PREFIX=/usr/local [DESTDIR=...]
#   make bench        all figures, each beside its peer; ends with the goals that are missed
#   make bench-transport  the figures of the transport only
#   make bench-dsm    the figures of shared memory only; SCALED=yes for today's sizes; SRC=DIR with the sources of
#                     ArgoDSM (DIR/argodsm, with its submodules) and M-JIAJIA (DIR/jiajia) compares with them
#   make bench-mpi    the figures of stock MPI programs only
#   make bench-client-build  what a client of routines compiles (SRC=DIR: beside an earlier checkout)
#   make test-mpi     stock MPI programs on all libraries and sizes, for hours; make test runs a part
#   make test-hosts   two virtual machines with the packages; the administrator's guide typed in them; needs root and qemu
#   make mpi          the libraries that the tests of MPI programs run on beside the distribution's: Open MPI 5, MPICH 5, mpi4py
#   make bench-call   calls of routines, beside raw TCP, Ray, Dask and Arrow Flight, with all of the next line
#   make bench-call-sites, bench-call-density, bench-call-crowd, bench-call-adapters
#   make bench-engines a notebook's cell, beside ipyparallel and mpi4py.futures
#                     calls over limited paths, uneven work on 8 servers, 10,000 calls that wait, to Dask and Ray
#   make bench-peers  install the peers that are distribution packages
#   make properties   the property tests with cases that no run has had, many more of them
#   make flaky        all test programs again and again in random order, alone and beside busy processes
#   make mutants      a sample of small changes to the code of core/: does a test notice each? An hour; CRATE=, SAMPLE=, SEED=
#   make miri         tests of core/, kumi-net and kumi-mem in an interpreter that finds undefined behaviour; PACKAGE=mem SEEDS=8
#   make test-upgrade SRC=DIR  a cluster is upgraded from the checkout DIR of the version before, daemon after daemon, and back
#   make test-heads  heads and members of etcd die at random for ten minutes (KUMI_HEADS_SECONDS, KUMI_HEADS_SEED)
#   make soak         all operations mixed while packets are lost, for some minutes
#   make fuzz         each fuzz target for a minute; needs the nightly toolchain and cargo-fuzz

export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/local/sbin:/usr/sbin:/sbin
# What the build of PyO3 needs to know of Python, without asking an interpreter: where cargo and maturin
# tell it differently, each builds it again after the other.
export PYO3_CONFIG_FILE := $(CURDIR)/bindings/python/pyo3-config.txt
# Builds tell it of themselves, so that figures name what was measured.
export KUMI_COMMIT := $(or $(shell git -C $(CURDIR) describe --always --abbrev=12 --dirty=+changes --exclude '*' 2>/dev/null),unknown)
# Traces that are not the project's to give away: the tests that need them say that they are skipped where there are none.
export KUMI_TRACES ?= $(wildcard $(CURDIR)/../shared/data)
CARGO ?= cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
PROFILE ?= release
# The folder that cargo gives a profile's output.
BIN = $(TARGET)/$(PROFILE)
# What one target alone needs of cargo. With BUILT=yes the whole workspace has been built: cargo would build much of it
# once more for a few packages, because what these share with others then has fewer features.
some = $(if $(BUILT),@true,@$(CARGO) build --quiet --locked $(addprefix --package ,$(1)) $(if $(filter release,$(PROFILE)),--release))

MDBOOK_VERSION := 0.5.4
PREFIX ?= /usr/local

# Folders with tests of a language; `make test` has built what they test.
LANGUAGE_FOLDERS := runtime/web/page bindings/grpc bindings/ofi bindings/cpp bindings/fortran examples/c examples/dsm examples/cpp examples/fortran examples/grpc

.PHONY: languages $(LANGUAGE_FOLDERS) all page docs reference simulations man deb test-hosts test-upgrade install build c jia ofi dsm cpp fortran grpc routines python wheel java demo test test-programs lint bench bench-transport bench-dsm bench-mpi bench-client-build mpi test-mpi test-heads bench-peers bench-build bench-reality bench-call bench-call-adapters bench-call-sites bench-call-density bench-call-crowd bench-engines properties flaky mutants miri soak fuzz setup clean

all: build

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace --locked
	@$(MAKE) --no-print-directory c jia ofi dsm cpp fortran grpc routines PROFILE=release BUILT=yes

# libkumi with its kumi.pc, and the C examples, linked with the libkumi.so of the same profile, in
# the folder where it lies.
c: setup
	$(call some,kumi-c)
	@$(MAKE) --no-print-directory -C bindings/c pc PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)
	@$(MAKE) --no-print-directory -C examples/c PROFILE=$(PROFILE) LIB=$(BIN) OUT=$(BIN)

# libjia with its jia.pc.
jia: setup
	$(call some,kumi-jia)
	@$(MAKE) --no-print-directory -C bindings/jia pc PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)

# The provider of libfabric under the name and in the folder where its loader looks.
ofi: setup
	$(call some,kumi-ofi)
	@$(MAKE) --no-print-directory -C bindings/ofi library PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)

# The examples of shared memory, beside the C examples.
dsm: c
	@$(MAKE) --no-print-directory -C examples/dsm LIB=$(BIN) OUT=$(BIN)

# The C++ examples and the tests of kumi.hpp, beside the C examples.
cpp: c
	@$(MAKE) --no-print-directory -C examples/cpp LIB=$(BIN) OUT=$(BIN)
	@$(MAKE) --no-print-directory -C bindings/cpp LIB=$(BIN) OUT=$(BIN)

# The module kumi, its tests and the Fortran examples.
fortran: c
	@$(MAKE) --no-print-directory -C bindings/fortran LIB=$(BIN) OUT=$(BIN)
	@$(MAKE) --no-print-directory -C examples/fortran LIB=$(BIN) OUT=$(BIN)

# The routines of examples/call and of the demonstrations that are shipped, as executables for `kumi call serve`.
routines: setup
	$(call some,kumi kumi-call kumi-slot)
	@$(BIN)/kumi call build --out $(BIN)/routines runtime/call/interfaces/demo.idl examples/call/*.idl

# libkumi_grpc with its kumi-grpc.pc and the module kumi_grpc, and the example.
grpc: setup
	$(call some,kumi-grpc)
	@$(MAKE) --no-print-directory -C bindings/grpc pc library PROFILE=$(PROFILE) LIB=$(BIN) OUT=$(BIN)
	@$(MAKE) --no-print-directory -C examples/grpc LIB=$(BIN) OUT=$(BIN)

# Without them the tests of MPI programs say that they are skipped.
# All MPI programs on all libraries, ranks and nodes; `make test` runs a part of them.
test-mpi: test-programs
	@KUMI_BIN_DIR=$(TARGET)/debug KUMI_MPI_TESTS=all $(CARGO) test --locked -p kumi-tests --test mpi_open_mpi --test mpi_open_mpi_5 --test mpi_mpich --test mpi_network --test mpi4py

mpi: setup
	@$(MAKE) --no-print-directory -C tests/mpi libraries CARGO_TARGET_DIR=$(TARGET)

python: setup
	@$(MAKE) --no-print-directory -C bindings/python check PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)

wheel: setup
	@$(MAKE) --no-print-directory -C bindings/python wheel PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)

# Its tests and example call a server of the same profile.
java: setup
	@scripts/setup java
	$(call some,kumi kumi-call)
	@$(MAKE) --no-print-directory -C bindings/java check PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)

# Only what the demonstration runs: the command, the daemon and four programs. Nothing of it is built again by `make build`.
demo: setup
	@echo "demo: building the command, the daemon and four programs; about four minutes on two cores, once"
	$(CARGO) build --release --locked --package kumi --package kumi-node --package kumi-c --package kumi-examples \
	  --lib --bin kumi --bin kumid --bin ep --bin lockstep
	@$(MAKE) --no-print-directory -C examples/c PROFILE=release LIB=$(TARGET)/release OUT=$(TARGET)/release
	@$(TARGET)/release/kumi demo

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@for stores in "" etcd sqlite; do \
	  $(CARGO) clippy --quiet --package kumi-call-meta --all-targets --locked --no-default-features --features "$$stores" -- -D warnings || exit 1; \
	done

# The whole-system tests run the binaries of this build, in the profile that the tests have anyway.
# What incremental builds keep is 7 GB for all programs, and a whole run builds everything once.
test: export CARGO_INCREMENTAL ?= 0
test: export KUMI_SKIPS = $(TARGET)/skipped-tests
test: lint
	@rm -f $(KUMI_SKIPS)
	@$(MAKE) --no-print-directory test-programs
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target languages PROFILE=debug BUILT=yes
	@scripts/prose --check
	$(CARGO) test --workspace --locked --no-fail-fast --doc
	$(CARGO) test --package kumi-call-client --locked --no-default-features --lib
	@KUMI_BIN_DIR=$(TARGET)/debug KUMI_PYTHON=$(TARGET)/python/venv/bin/python scripts/run-tests

# Two virtual machines with the packages, and what the guide says an administrator types. Needs root and qemu; takes an
# hour and more where the machines are emulated. Not part of `make test`.
test-hosts: deb
	@tests/hosts/run $(TARGET)/deb $(BIN) $(TARGET)/hosts

# What the test programs run: all binaries, and the examples in C, C++ and Fortran.
test-programs: setup
	$(CARGO) build --workspace --all-targets --locked
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target c jia ofi dsm cpp fortran grpc PROFILE=debug BUILT=yes
	@$(MAKE) --no-print-directory mpi

# The tests of each language against this build, side by side: the long ones come first.
languages: python java $(LANGUAGE_FOLDERS)

$(LANGUAGE_FOLDERS):
	@$(MAKE) --no-print-directory -C $@ check PROFILE=$(PROFILE) LIB=$(BIN) OUT=$(BIN)

# The test programs RUNS times in random order, then BUSY_RUNS times beside two busy processes. What failed is named, with
# how often; the busy runs come whether or not a quiet one failed.
flaky: test-programs
	@code=0; export KUMI_BIN_DIR=$(TARGET)/debug; \
	scripts/run-tests --shuffle --runs $(or $(RUNS),20) || code=1; \
	scripts/run-tests --shuffle --runs $(or $(BUSY_RUNS),5) --busy 2 || code=1; exit $$code

# `make test` does without mdBook: tools/docs has checks of its own. Warnings are failures here.
docs:
	@command -v mdbook >/dev/null 2>&1 || test -x $(TARGET)/tools/bin/mdbook || \
	  $(CARGO) install --quiet --locked --root $(TARGET)/tools mdbook@$(MDBOOK_VERSION)
	@PATH=$(TARGET)/tools/bin:$$PATH mdbook build --dest-dir $(TARGET)/book docs 2> $(TARGET)/book.log; code=$$?; \
	  cat $(TARGET)/book.log; test $$code = 0 && ! grep -qE 'WARN|ERROR' $(TARGET)/book.log
	@echo "the book is $(TARGET)/book/index.html"

# Part of the sources, so that everything else does without Node.js.
page:
	@$(MAKE) --no-print-directory -C runtime/web/page

# Packages for the distribution of this machine, in target/deb.
deb: build man
	@packaging/deb/build $(BIN) $(TARGET)/man $(TARGET)/completions $(TARGET)/deb

reference:
	@$(CARGO) run --quiet --locked --package kumi-docs -- reference

# The tables of docs/guide that simulations make; all but those of seconds are made by no test.
simulations:
	@$(CARGO) run --quiet --release --locked --package kumi-docs -- simulations

man:
	@$(CARGO) run --quiet --locked --package kumi-docs -- man $(TARGET)/man
	@$(CARGO) run --quiet --locked --package kumi-docs -- completions $(TARGET)/completions

# Nothing is built here: often this runs as root, whose files cargo could not replace later. The libraries have
# installations of their own, in bindings/.
install:
	@test -x $(BIN)/kumi -a -f $(TARGET)/man/kumi.1 || { echo "run make build man first" >&2; exit 1; }
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/kumi/fabric share/man/man1 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d)
	install -m 755 $(BIN)/fabric/libkumi-fi.so $(DESTDIR)$(PREFIX)/lib/kumi/fabric/
	install -m 755 $(addprefix $(BIN)/,kumi kumid kumi-call-slot kumi-pmi-server) $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(TARGET)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 $(TARGET)/completions/kumi.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kumi
	install -m 644 $(TARGET)/completions/_kumi $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kumi
	install -m 644 $(TARGET)/completions/kumi.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kumi.fish

# SRC is a checkout of the version before, for example made by `git worktree add`.
test-upgrade:
	@tests/upgrade/run --src $(SRC)

test-heads:
	@$(CARGO) test --quiet --locked --package kumi-node --test heads -- --ignored --nocapture

bench-build: build
	@$(MAKE) --no-print-directory -C bench/peers OUT=$(TARGET)/bench/peers
	@$(MAKE) --no-print-directory -C bench/peers/dsm OUT=$(TARGET)/bench/peers \
	  $(if $(SRC),ARGO=$(abspath $(SRC))/argodsm JIA=$(abspath $(SRC))/jiajia)

bench: bench-build
	@$(TARGET)/release/kumi-bench all --peers $(TARGET)/bench/peers --out $(TARGET)/bench

bench-transport: bench-build
	@$(TARGET)/release/kumi-bench put bulk xdp rate pages gets encryption handler footprint flood settle --peers $(TARGET)/bench/peers --out $(TARGET)/bench

bench-dsm: bench-build
	@$(TARGET)/release/kumi-bench shared shared-programs shared-acks shared-handler shared-peers $(if $(SCALED),--scaled) --peers $(TARGET)/bench/peers --out $(TARGET)/bench

# SRC is a checkout from before the crates of calls were divided.
bench-client-build:
	@bench/client-build $(if $(SRC),--src $(abspath $(SRC)))

bench-mpi: bench-build
	@$(TARGET)/release/kumi-bench mpi --peers $(TARGET)/bench/peers --out $(TARGET)/bench

# The list of jobs of docs/guide/simulating.md, simulated and run on 64 nodes of this machine: 3 minutes.
bench-reality: build
	@$(TARGET)/release/kumi-bench-reality --json $(TARGET)/bench/reality.json

# Calls of routines, beside raw TCP, Ray, Dask and Arrow Flight: these are installed in an environment of their own. Over
# paths of limited rate and uneven work beside their simulation; with many clients; through a server to Dask and Ray. Paths
# of limited rate need root, for network namespaces.
bench-call: BENCHMARKS = call call-sites call-density call-crowd call-adapters
bench-call-adapters bench-call-sites bench-call-density bench-call-crowd: BENCHMARKS = $(@:bench-%=%)
bench-call bench-call-adapters bench-call-sites bench-call-density bench-call-crowd: bench-build $(TARGET)/bench/venv/.ready
	@$(MAKE) --no-print-directory -C bindings/python installed PROFILE=release CARGO_TARGET_DIR=$(TARGET)
	@$(TARGET)/bench/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --force-reinstall $(TARGET)/python/kumi-*.whl
	@$(TARGET)/release/kumi-bench $(BENCHMARKS) --peers $(TARGET)/bench/peers --out $(TARGET)/bench \
	  --python $(TARGET)/bench/venv/bin/python

$(TARGET)/bench/venv/.ready: bench/call/requirements.txt
	python3 -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# A notebook's cell, beside ipyparallel and mpi4py.futures, in an environment of their own.
bench-engines: bench-build $(TARGET)/bench/engines-venv/.ready
	@$(MAKE) --no-print-directory -C bindings/python installed PROFILE=release CARGO_TARGET_DIR=$(TARGET)
	@$(TARGET)/bench/engines-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  --force-reinstall $(TARGET)/python/kumi-*.whl
	@$(TARGET)/release/kumi-bench engines --peers $(TARGET)/bench/peers --out $(TARGET)/bench \
	  --python $(TARGET)/bench/engines-venv/bin/python

$(TARGET)/bench/engines-venv/.ready: bench/engines/requirements.txt
	python3 -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

bench-peers:
	@scripts/setup peers

# The properties on other cases than those of `make test`, which are the same in every run.
properties: setup
	PROPTEST_CASES=$(or $(CASES),20000) PROPTEST_RNG_SEED=$$(od -An -N7 -tu8 /dev/urandom | tr -d ' ') \
	  $(CARGO) test --locked --no-fail-fast $(addprefix --package kumi-,proto sched rpc broker control idl sim coherence)

# Mutants of a crate are tested by its own tests only, in a copy below target/mutants.
mutants: setup
	@scripts/mutants $(if $(CRATE),--crate $(CRATE)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

# Needs the nightly toolchain with Miri; everything else needs the stable one only.
miri:
	@scripts/miri $(if $(PACKAGE),--package $(PACKAGE)) $(if $(SEEDS),--seeds $(SEEDS))

# In `make test` the same is short.
soak: setup
	$(CARGO) build --workspace --locked
	@$(MAKE) --no-print-directory c cpp fortran PROFILE=debug BUILT=yes
	KUMI_BIN_DIR=$(TARGET)/debug KUMI_SOAK_RUNS=$(or $(RUNS),10) \
	  $(CARGO) test --package kumi-tests --locked --test soak -- --nocapture

# In `make test` the same functions get inputs from seeds.
fuzz:
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { echo "make fuzz needs a nightly toolchain (rustup toolchain install nightly) and cargo-fuzz (cargo install cargo-fuzz)" >&2; exit 1; }
	@for target in $$($(CARGO) +nightly fuzz list); do \
	  echo "== $$target"; \
	  $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(or $(SECONDS),60) || exit 1; \
	done

clean:
	$(CARGO) clean
