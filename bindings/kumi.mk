# What the Makefiles of the bindings and of the examples have in common: they set HERE, their own folder,
# and include it.  It works from any folder, also outside of the checkout (`make -f`).
#
#   PROFILE=release    the build of this checkout that is used; CARGO_TARGET_DIR, LIB and OUT name other
#                      folders for the builds, the library and what is made here
#   KUMI=installed     uses the kumi that pkg-config finds
#   PREFIX=/usr/local  where `make install` puts things, below DESTDIR
#
# It gives KUMI_CFLAGS and KUMI_LIBS, for Fortran KUMI_FFLAGS and KUMI_FLIBS, and LIBRARY, which must be
# there before a program is linked.

.DEFAULT_GOAL := all

ROOT := $(abspath $(HERE)/../..)
CARGO_TARGET_DIR ?= $(ROOT)/target
PROFILE ?= release
LIB ?= $(CARGO_TARGET_DIR)/$(PROFILE)
OUT ?= $(LIB)
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' $(ROOT)/Cargo.toml | head -n 1)
SONAME := libkumi.so.0

# The loader finds new libraries once its list is made anew, which only root can do.
ldconfig := PATH="$$PATH:/usr/sbin:/sbin" ldconfig
refresh = test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || $(ldconfig)
# announce SONAME: says how programs find an installed library, unless the loader does.
announce = { test -z "$(DESTDIR)" && $(ldconfig) -p | grep -qF "=> $(LIBDIR)/$(1)"; } || \
	echo "Programs find $(1) in $(LIBDIR) once root has run ldconfig (and that folder is" \
	  "in /etc/ld.so.conf), or with LD_LIBRARY_PATH=$(LIBDIR), or when they are linked with -Wl,-rpath,$(LIBDIR)."

# make's own default is f77.
ifeq ($(origin FC),default)
  FC := gfortran
endif

ifeq ($(KUMI),installed)
  KUMI_CFLAGS = $(shell pkg-config --cflags kumi)
  KUMI_LIBS = $(shell pkg-config --libs kumi)
  KUMI_FFLAGS = $(shell pkg-config --cflags kumi-fortran)
  KUMI_FLIBS = $(shell pkg-config --libs kumi-fortran)
  LIBRARY =
else
  KUMI_CFLAGS = -I$(ROOT)/bindings/c/include -I$(ROOT)/bindings/cpp/include
  # The library is found beside the program, and at the place of the build by copies of the program
  # elsewhere on this machine.
  KUMI_LIBS = -L$(LIB) -lkumi -Wl,-rpath,'$$ORIGIN' -Wl,-rpath,$(LIB)
  KUMI_FFLAGS = -I$(LIB)/kumi-fortran
  KUMI_FLIBS = -L$(LIB) -lkumi_fortran $(KUMI_LIBS)
  LIBRARY = $(LIB)/$(SONAME)
endif
KUMI_HEADERS := $(wildcard $(ROOT)/bindings/c/include/*.h) \
  $(wildcard $(ROOT)/bindings/cpp/include/*.hpp $(ROOT)/bindings/cpp/include/kumi/*.hpp)

$(LIB)/$(SONAME): $(LIB)/libkumi.so
	ln -sf libkumi.so $@
