# What one types. Cargo does the work; this file knows the order.
#
#   make demo         build, bring up a cluster here, time-share EP, CG and IS on it, print the table
#   make test         everything continuous integration runs
#   make build        release build of everything, examples in C included
#   make bench        all figures, each beside its peer; ends with the goals that are missed
#   make bench-transport  the figures of the transport only
#   make bench-peers  install the peers that are distribution packages

export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/local/sbin:/usr/sbin:/sbin
CARGO ?= cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
PROFILE ?= release
# The folder that cargo gives a profile's output.
BIN = $(TARGET)/$(PROFILE)

.PHONY: all build c demo test lint bench bench-transport bench-peers bench-build setup clean

all: build

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace --locked
	@$(MAKE) --no-print-directory c PROFILE=release

# libkumi with its kumi.pc, and the C examples, linked with the libkumi.so of the same profile, in
# the folder where it lies.
c: setup
	@$(CARGO) build --quiet --locked --package kumi-c $(if $(filter release,$(PROFILE)),--release)
	@$(MAKE) --no-print-directory -C bindings/c pc PROFILE=$(PROFILE) CARGO_TARGET_DIR=$(TARGET)
	@$(MAKE) --no-print-directory -C examples/c PROFILE=$(PROFILE) LIB=$(BIN) OUT=$(BIN)

demo: build
	@$(TARGET)/release/kumi demo

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The whole-system tests run the binaries of this build, in the profile that the tests have anyway.
test: lint
	$(CARGO) build --workspace --locked
	@$(MAKE) --no-print-directory c PROFILE=debug
	@$(MAKE) --no-print-directory -C examples/c check PROFILE=debug LIB=$(TARGET)/debug OUT=$(TARGET)/debug
	KUMI_BIN_DIR=$(TARGET)/debug $(CARGO) test --workspace --locked --no-fail-fast

bench-build: build
	@$(MAKE) --no-print-directory -C bench/peers OUT=$(TARGET)/bench/peers

bench: bench-build
	@$(TARGET)/release/kumi-bench all --peers $(TARGET)/bench/peers --out $(TARGET)/bench

bench-transport: bench-build
	@$(TARGET)/release/kumi-bench put bulk rate footprint flood --peers $(TARGET)/bench/peers --out $(TARGET)/bench

bench-peers:
	@scripts/setup peers

clean:
	$(CARGO) clean
