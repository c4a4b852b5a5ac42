divert(-1)
The macros of the Argonne package (PARMACS), as the sources of SPLASH-2 use them, on Kumi's shared memory:

  m4 kumi.m4 program.C > program.c
  cc -no-pie program.c $(pkg-config --cflags --libs kumi) -lm
  kumi run -n P ./program -pP

The functions behind them are in kumi_parmacs.h, which says what is supported.

SPDX-License-Identifier: Apache-2.0 OR MIT

define(NEWPROC,)

define(MAIN_ENV, `
#define KUMI_PARMACS_MAIN
#include <kumi_parmacs.h>
')
define(EXTERN_ENV, `
#include <kumi_parmacs.h>
')
define(ENV, `;')

define(MAIN_INITENV, `{kumi_parmacs_begin();}')
define(MAIN_END, `{kumi_parmacs_end(); exit(0);}')

# CREATE(function) starts one process, CREATE(function, P) P - 1 of them and calls the function itself.
define(CREATE, `ifelse(`$2', `', `{kumi_parmacs_create($1);}', `{
	long kumi_parmacs_i;
	for (kumi_parmacs_i = 1; kumi_parmacs_i < ($2); kumi_parmacs_i++)
		kumi_parmacs_create($1);
	$1();
}')')
define(WAIT_FOR_END, `{kumi_parmacs_join();}')

define(G_MALLOC, `kumi_parmacs_allocate($1);')
define(G_MALLOC_F, `kumi_parmacs_allocate($1)')
define(G_FREE, `{;}')
define(NU_MALLOC, `kumi_parmacs_allocate($1);')
define(NU_MALLOC_F, `kumi_parmacs_allocate($1)')
define(NU_FREE, `{;}')
define(SET_HOME, `{;}')

define(BARDEC, `kumi_parmacs_barrier_variable $1;')
define(BARINIT, `{($1) = 0;}')
define(BARRIER, `{kumi_parmacs_barrier(ifelse(`$2', `', `-1', `(long)($2)'));}')
define(BARINCLUDE, `{;}')
define(BAREXCLUDE, `{;}')

define(LOCKDEC, `kumi_parmacs_number_variable $1;')
define(LOCKINIT, `{($1) = kumi_parmacs_number();}')
define(LOCK, `{kumi_parmacs_lock($1);}')
define(UNLOCK, `{kumi_parmacs_unlock($1);}')

define(NLOCKDEC, `LOCKDEC($1)')
define(NLOCKINIT, `LOCKINIT($1)')
define(NLOCK, `LOCK($1)')
define(NUNLOCK, `UNLOCK($1)')

define(ALOCKDEC, `kumi_parmacs_number_variable $1[$2];')
define(ALOCKINIT, `{
	long kumi_parmacs_i;
	for (kumi_parmacs_i = 0; kumi_parmacs_i < (long)($2); kumi_parmacs_i++)
		($1)[kumi_parmacs_i] = kumi_parmacs_number();
}')
define(ALOCK, `{kumi_parmacs_lock(($1)[$2]);}')
define(AULOCK, `{kumi_parmacs_unlock(($1)[$2]);}')
define(AUNLOCK, `AULOCK($1, $2)')
define(AGETL, `(($1)[$2])')

define(GSDEC, `kumi_parmacs_subscripts $1;')
define(GSINIT, `{kumi_parmacs_subscripts_begin(&($1));}')
define(GETSUB, `{($2) = kumi_parmacs_next_subscript(&($1), (long)($3), (long)($4));}')
define(NU_GSDEC, `GSDEC($1)')
define(NU_GSINIT, `GSINIT($1)')
define(NU_GETSUB, `GETSUB($1, $2, $3, $4)')

define(PAUSEDEC, `kumi_parmacs_number_variable $1;')
define(PAUSEINIT, `{($1) = kumi_parmacs_number();}')
define(SETPAUSE, `{kumi_parmacs_set($1);}')
define(CLEARPAUSE, `{kumi_parmacs_clear($1);}')
define(WAITPAUSE, `{kumi_parmacs_wait($1);}')
define(EVENT, `{;}')
define(PAUSE, `{;}')

define(CLOCK, `{($1) = kumi_parmacs_microseconds();}')

define(AUG_ON, ` ')
define(AUG_OFF, ` ')
define(TRACE_ON, ` ')
define(TRACE_OFF, ` ')
define(REF_TRACE_ON, ` ')
define(REF_TRACE_OFF, ` ')
define(DYN_TRACE_ON, `;')
define(DYN_TRACE_OFF, `;')
define(DYN_REF_TRACE_ON, `;')
define(DYN_REF_TRACE_OFF, `;')
define(DYN_SIM_ON, `;')
define(DYN_SIM_OFF, `;')
define(DYN_SCHED_ON, `;')
define(DYN_SCHED_OFF, `;')
define(AUG_SET_LOLIMIT, `;')
define(AUG_SET_HILIMIT, `;')

divert(0)dnl
