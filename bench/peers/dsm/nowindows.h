/* What a system of shared memory does not have of kumi.h: windows.  The versions with puts and gets are linked, and refuse
 * to run. */
#ifndef NOWINDOWS_H
#define NOWINDOWS_H

#include <kumi.h>
#include <kumi_dsm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int no_windows(void)
{
	fprintf(stderr, "this peer has no windows\n");
	exit(1);
}

int kumi_window_create(size_t bytes, kumi_window **window)
{
	(void)bytes, (void)window;
	return no_windows();
}

int kumi_window_free(kumi_window *window)
{
	(void)window;
	return no_windows();
}

void *kumi_window_base(kumi_window *window)
{
	(void)window;
	no_windows();
	return NULL;
}

int kumi_window_get(kumi_window *window, int rank, size_t offset, size_t bytes, void *data)
{
	(void)window, (void)rank, (void)offset, (void)bytes, (void)data;
	return no_windows();
}

int kumi_window_put(kumi_window *window, int rank, size_t offset, const void *data, size_t bytes)
{
	(void)window, (void)rank, (void)offset, (void)bytes, (void)data;
	return no_windows();
}

int kumi_window_put_notify(kumi_window *window, int rank, size_t offset, const void *data, size_t bytes, uint32_t counter)
{
	(void)window, (void)rank, (void)offset, (void)bytes, (void)data, (void)counter;
	return no_windows();
}

int kumi_window_wait_notify(kumi_window *window, uint32_t counter, uint64_t count, uint64_t *value)
{
	(void)window, (void)counter, (void)count, (void)value;
	return no_windows();
}

int kumi_flush(int to)
{
	(void)to;
	return no_windows();
}

const char *kumi_error_string(int code)
{
	(void)code;
	return "the peer has failed";
}

const char *kumi_error_detail(void)
{
	return "";
}

/* There are no counters of that kind. */
int kumi_dsm_statistics(const char *name, uint64_t *value)
{
	(void)name;
	*value = 0;
	return KUMI_OK;
}

kumi_dsm_home kumi_dsm_blocks(void)
{
	kumi_dsm_home home = { KUMI_DSM_BLOCKS, 0, 0 };
	return home;
}

kumi_dsm_home kumi_dsm_round_robin(uint32_t block_pages, int first_rank)
{
	kumi_dsm_home home = { KUMI_DSM_ROUND_ROBIN, block_pages, first_rank };
	return home;
}

kumi_dsm_home kumi_dsm_at(int rank)
{
	kumi_dsm_home home = { KUMI_DSM_AT, 0, rank };
	return home;
}

kumi_dsm_home kumi_dsm_first_touch(void)
{
	kumi_dsm_home home = { KUMI_DSM_FIRST_TOUCH, 0, 0 };
	return home;
}

#endif
