/* A user's program against kumi.h. RUST_STATUS_SIZE and the like come from the
 * Rust side. Without an argument it runs what works outside a job, with "alone"
 * everything in a job of one rank. Exit code 0 if all is as documented. */
#include <kumi.h>

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "expect.h"

_Static_assert(sizeof(kumi_status) == RUST_STATUS_SIZE, "kumi_status: size");
_Static_assert(offsetof(kumi_status, tag) == RUST_STATUS_TAG, "tag");
_Static_assert(offsetof(kumi_status, length) == RUST_STATUS_LENGTH, "length");
/* Enumerations are passed where Rust expects an int. */
_Static_assert(sizeof(kumi_type) == sizeof(int), "kumi_type");
_Static_assert(sizeof(kumi_op) == sizeof(int), "kumi_op");
_Static_assert(sizeof(kumi_error) == sizeof(int), "kumi_error");
_Static_assert(sizeof(size_t) == RUST_USIZE, "size_t");
_Static_assert(KUMI_FIFO_OVERHEAD == RUST_FIFO_OVERHEAD, "overhead");
_Static_assert(KUMI_FIFO_ALIGNMENT == RUST_FIFO_ALIGNMENT, "alignment");
_Static_assert(KUMI_RIGHT_ALL == (KUMI_RIGHT_WRITE | KUMI_RIGHT_READ |
                                  KUMI_RIGHT_ATOMIC), "rights");
_Static_assert(sizeof(kumi_signal_handler) == RUST_HANDLER, "handler");

static void outside(void)
{
	char version[32];
	kumi_window *window = NULL;
	int32_t value = 7;

	EXPECT(strcmp(kumi_error_detail(), "") == 0);
	snprintf(version, sizeof version, "%d.%d.%d", KUMI_VERSION_MAJOR,
	         KUMI_VERSION_MINOR, KUMI_VERSION_PATCH);
	EXPECT(strcmp(kumi_version(), version) == 0);
	EXPECT(kumi_error_report(7, "my own", 2) == 7);
	EXPECT(strcmp(kumi_error_detail(), "my") == 0);
	EXPECT(strcmp(kumi_error_string(KUMI_OK), "success") == 0);
	EXPECT(strstr(kumi_error_string(1), "unknown") != NULL);
	EXPECT(strstr(kumi_error_string(INT_MIN), "unknown") != NULL);
	EXPECT(kumi_rank() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_size() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_node() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_cluster_nodes() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_node_load(0) < 0 && kumi_rank_runs(0) == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_job() == 0);
	EXPECT(kumi_time() < 0.0);
	EXPECT(kumi_finalize() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_barrier() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_message_send(0, 0, &value, sizeof value) ==
	       KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_window_create(8, &window) == KUMI_ERR_NOT_INITIALISED);
	EXPECT(window == NULL);
	EXPECT(kumi_window_base(NULL) == NULL);
	EXPECT(kumi_allreduce(&value, &value, 1, KUMI_I32, KUMI_SUM) ==
	       KUMI_ERR_NOT_INITIALISED);
	EXPECT(strlen(kumi_error_detail()) > 0);
}

static void not_launched(void)
{
	EXPECT(kumi_init() == KUMI_ERR_NOT_LAUNCHED);
	EXPECT(strstr(kumi_error_detail(), "kumi run") != NULL);
	/* A failed attempt leaves no trace. */
	EXPECT(kumi_init() == KUMI_ERR_NOT_LAUNCHED);
	EXPECT(kumi_rank() == KUMI_ERR_NOT_INITIALISED);
}

static void *other_thread(void *unused)
{
	(void)unused;
	EXPECT(kumi_rank() == KUMI_ERR_WRONG_THREAD);
	EXPECT(kumi_init() == KUMI_ERR_ALREADY_INITIALISED);
	EXPECT(kumi_finalize() == KUMI_ERR_WRONG_THREAD);
	EXPECT(kumi_time() < 0.0);
	return NULL;
}

static void threads(void)
{
	pthread_t thread;

	EXPECT(pthread_create(&thread, NULL, other_thread, NULL) == 0);
	EXPECT(pthread_join(thread, NULL) == 0);
}

static void messages(void)
{
	char buffer[16] = "";
	kumi_status status = { 0 };
	int found = 1;

	EXPECT(kumi_message_probe(KUMI_ANY_SOURCE, KUMI_ANY_TAG, &found,
	                          NULL) == KUMI_OK);
	EXPECT(found == 0);
	EXPECT(kumi_message_send(0, 5, "hello", 6) == KUMI_OK);
	EXPECT(kumi_message_probe(0, 5, &found, &status) == KUMI_OK);
	EXPECT(found == 1 && status.length == 6 && status.tag == 5);
	EXPECT(kumi_message_recv(KUMI_ANY_SOURCE, KUMI_ANY_TAG, buffer,
	                         sizeof buffer, &status) == KUMI_OK);
	EXPECT(strcmp(buffer, "hello") == 0);
	EXPECT(status.source == 0 && status.tag == 5 && status.length == 6);
	EXPECT(kumi_message_sendrecv(0, 1, "abc", 4, 0, 1, buffer, 4, NULL) ==
	       KUMI_OK);
	EXPECT(strcmp(buffer, "abc") == 0);
	EXPECT(kumi_message_send(0, 0, NULL, 0) == KUMI_OK);
	EXPECT(kumi_message_recv(0, 0, NULL, 0, &status) == KUMI_OK);
	EXPECT(status.length == 0);
	EXPECT(kumi_progress() == KUMI_OK);
	EXPECT(kumi_flush(0) == KUMI_OK && kumi_flush(KUMI_ALL) == KUMI_OK);
}

static void bad_messages(void)
{
	char buffer[4];
	kumi_status status = { 0 };
	int found = 0;

	EXPECT(kumi_message_send(1, 0, "x", 1) == KUMI_ERR_RANK);
	EXPECT(kumi_message_send(-1, 0, "x", 1) == KUMI_ERR_RANK);
	EXPECT(kumi_message_send(0, -2, "x", 1) == KUMI_ERR_TAG);
	EXPECT(kumi_message_send(0, 0, NULL, 1) == KUMI_ERR_NULL);
	EXPECT(kumi_message_send(0, 0, "x", SIZE_MAX) == KUMI_ERR_LENGTH);
	EXPECT(kumi_message_recv(-2, 0, buffer, 4, NULL) == KUMI_ERR_RANK);
	EXPECT(kumi_message_recv(0, -2, buffer, 4, NULL) == KUMI_ERR_TAG);
	EXPECT(kumi_message_recv(0, 0, NULL, 4, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_message_probe(0, 0, NULL, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_message_sendrecv(0, 0, buffer, 4, 0, 0, buffer + 2, 2,
	                             NULL) == KUMI_ERR_LENGTH);
	EXPECT(kumi_flush(-2) == KUMI_ERR_RANK);
	EXPECT(kumi_flush(1) == KUMI_ERR_RANK);
	/* Too long for the buffer: told how long, and gone. */
	EXPECT(kumi_message_send(0, 3, "longer", 7) == KUMI_OK);
	EXPECT(kumi_message_recv(0, 3, buffer, 4, &status) ==
	       KUMI_ERR_TRUNCATED);
	EXPECT(status.length == 7);
	EXPECT(kumi_message_probe(0, 3, &found, NULL) == KUMI_OK && !found);
}

static void windows(void)
{
	kumi_window *window = NULL;
	uint64_t old = 9, count = 9;
	char buffer[8];
	char *base;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK && window != NULL);
	base = kumi_window_base(window);
	EXPECT(base != NULL && (uintptr_t)base % 8 == 0);
	for (int i = 0; i < 64; i++)
		EXPECT(base[i] == 0);
	EXPECT(kumi_window_put(window, 0, 60, "abcd", 4) == KUMI_OK);
	EXPECT(memcmp(base + 60, "abcd", 4) == 0);
	EXPECT(kumi_window_put_notify(window, 0, 8, "12345678", 8, 63) ==
	       KUMI_OK);
	EXPECT(kumi_window_wait_notify(window, 63, 1, &count) == KUMI_OK);
	EXPECT(count == 1);
	EXPECT(kumi_window_notified(window, 0, &count) == KUMI_OK && count == 0);
	EXPECT(kumi_window_get(window, 0, 8, 8, buffer) == KUMI_OK);
	EXPECT(memcmp(buffer, "12345678", 8) == 0);
	EXPECT(kumi_window_fetch_add(window, 0, 16, UINT64_MAX, &old) ==
	       KUMI_OK && old == 0);
	EXPECT(kumi_window_fetch_add(window, 0, 16, 3, NULL) == KUMI_OK);
	EXPECT(kumi_window_fetch_add(window, 0, 16, 0, &old) == KUMI_OK);
	EXPECT(old == 2);

	EXPECT(kumi_window_put(window, 0, 61, "abcd", 4) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_put(window, 0, SIZE_MAX, "a", 1) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_put(window, 1, 0, "a", 1) == KUMI_ERR_RANK);
	EXPECT(kumi_window_put(window, 0, 0, NULL, 1) == KUMI_ERR_NULL);
	EXPECT(kumi_window_put_notify(window, 0, 0, "a", 1, KUMI_NOTIFY_COUNT) ==
	       KUMI_ERR_NOTIFY);
	EXPECT(kumi_window_wait_notify(window, 64, 0, NULL) == KUMI_ERR_NOTIFY);
	EXPECT(kumi_window_get(window, 0, 64, 1, buffer) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_fetch_add(window, 0, 4, 1, NULL) ==
	       KUMI_ERR_ALIGNMENT);
	EXPECT(kumi_window_fetch_add(window, 0, 64, 1, NULL) ==
	       KUMI_ERR_BOUNDS);

	EXPECT(kumi_window_free(NULL) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_ERR_WINDOW);
	EXPECT(kumi_window_put(window, 0, 0, "a", 1) == KUMI_ERR_WINDOW);
	EXPECT(kumi_window_base(window) == NULL);
	EXPECT(kumi_window_base((kumi_window *)buffer) == NULL);
	EXPECT(kumi_window_create(8, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_window_create(SIZE_MAX, &window) < KUMI_OK);
	/* Left for kumi_finalize(). */
	EXPECT(kumi_window_create(0, &window) == KUMI_OK);
}

static void registered(void)
{
	kumi_window *window = NULL, *second = NULL;
	_Alignas(64) char memory[1024] = "as it was";
	uint64_t old = 7;
	kumi_fifo *fifo = NULL;
	char buffer[16];
	unsigned reader = KUMI_RIGHT_READ;

	EXPECT(kumi_window_register(memory, sizeof memory, KUMI_RIGHT_ALL,
	                            &window) == KUMI_OK);
	EXPECT(kumi_window_base(window) == memory);
	EXPECT(kumi_window_get(window, 0, 0, 10, buffer) == KUMI_OK);
	EXPECT(strcmp(buffer, "as it was") == 0);
	EXPECT(kumi_window_put_notify(window, 0, 3, "can be", 6, 1) == KUMI_OK);
	EXPECT(strcmp(memory, "as can be") == 0);
	EXPECT(kumi_window_fetch_add(window, 0, 16, 5, &old) == KUMI_OK);
	EXPECT(old == 0 && memory[16] + memory[23] == 5);
	EXPECT(kumi_window_put(window, 0, 1020, "abcde", 5) ==
	       KUMI_ERR_BOUNDS);
	EXPECT(kumi_fifo_create(window, 64, 64, 0, &fifo) == KUMI_OK);
	EXPECT(kumi_fifo_append(window, 0, 64, "record", 7) == KUMI_OK);
	EXPECT(kumi_fifo_pop(fifo, buffer, sizeof buffer, NULL, NULL) ==
	       KUMI_OK);
	EXPECT(strcmp(buffer, "record") == 0);
	/* At an odd place, and with one right only. */
	EXPECT(kumi_window_register(memory + 513, 64, reader, &second) ==
	       KUMI_OK);
	EXPECT(kumi_window_put(second, 0, 0, "x", 1) == KUMI_ERR_RIGHT);
	EXPECT(kumi_window_fetch_add(second, 0, 0, 1, NULL) == KUMI_ERR_RIGHT);
	EXPECT(kumi_window_get(second, 0, 63, 1, buffer) == KUMI_OK);
	EXPECT(kumi_fifo_create(second, 0, 16, 0, &fifo) < KUMI_OK);
	EXPECT(kumi_window_free(second) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	EXPECT(strcmp(memory, "as can be") == 0);
	EXPECT(kumi_window_register(memory + 1, 64, KUMI_RIGHT_ALL, &window) ==
	       KUMI_ERR_MEMORY);
	EXPECT(strstr(kumi_error_detail(), "multiple of 8") != NULL);
	EXPECT(kumi_window_register(NULL, 1, reader, &window) ==
	       KUMI_ERR_MEMORY);
	EXPECT(kumi_window_register(memory, 8, 8, &window) == KUMI_ERR_RIGHT);
	EXPECT(kumi_window_register(memory, 8, reader, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_window_create_with(64, 8, &window) == KUMI_ERR_RIGHT);
	EXPECT(kumi_window_create_with(64, KUMI_RIGHT_WRITE | KUMI_RIGHT_ATOMIC,
	                               &window) == KUMI_OK);
	EXPECT(kumi_window_get(window, 0, 0, 1, buffer) == KUMI_ERR_RIGHT);
	EXPECT(kumi_window_swap(window, 0, 0, 7, NULL) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

static void fifos(void)
{
	kumi_window *window = NULL;
	kumi_fifo *fifo = NULL, *second = NULL;
	size_t most = 0, length = 0;
	uint64_t count = 9;
	int source = 9, found = 9, appended = 9;
	char buffer[64];

	EXPECT(kumi_fifo_max_record(&most) == KUMI_OK && most >= 256);
	EXPECT(kumi_window_create(4096, &window) == KUMI_OK);
	EXPECT(kumi_fifo_create(window, 64, 32, 7, &fifo) == KUMI_OK);
	EXPECT(kumi_fifo_try_pop(fifo, buffer, 64, &found, &length, &source) ==
	       KUMI_OK && found == 0 && length == 0 && source == 9);
	EXPECT(kumi_fifo_append(window, 0, 64, "hello", 6) == KUMI_OK);
	EXPECT(kumi_fifo_try_append(window, 0, 64, NULL, 0, &appended) ==
	       KUMI_OK && appended == 1);
	EXPECT(kumi_fifo_try_append(window, 0, 64, "x", 1, &appended) ==
	       KUMI_OK && appended == 0);
	EXPECT(kumi_fifo_append(window, 0, 64, "x", 1) == KUMI_ERR_FULL);
	EXPECT(kumi_window_notified(window, 7, &count) == KUMI_OK && count == 2);
	EXPECT(kumi_fifo_pop(fifo, buffer, 5, &length, &source) ==
	       KUMI_ERR_TRUNCATED && length == 6 && source == 9);
	EXPECT(kumi_fifo_pop(fifo, buffer, 64, &length, &source) == KUMI_OK);
	EXPECT(length == 6 && source == 0 && strcmp(buffer, "hello") == 0);
	EXPECT(kumi_fifo_try_pop(fifo, NULL, 0, &found, NULL, NULL) ==
	       KUMI_OK && found == 1);

	EXPECT(kumi_fifo_append(window, 0, 64, buffer, 25) == KUMI_ERR_LENGTH);
	EXPECT(kumi_fifo_append(window, 0, 128, "x", 1) == KUMI_ERR_FIFO);
	EXPECT(kumi_fifo_append(window, 1, 64, "x", 1) == KUMI_ERR_RANK);
	EXPECT(kumi_fifo_append(window, 0, 64, NULL, 1) == KUMI_ERR_NULL);
	EXPECT(kumi_fifo_append(window, 0, 64, "x", SIZE_MAX) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_signal_send(window, 0, 64, "x", 1) == KUMI_ERR_FIFO);
	EXPECT(kumi_fifo_create(window, 320, 64, 0, &second) == KUMI_ERR_FIFO);
	EXPECT(kumi_fifo_create(window, 4032, 64, 0, &second) ==
	       KUMI_ERR_BOUNDS);
	EXPECT(kumi_fifo_create(window, 1024, 64, 64, &second) ==
	       KUMI_ERR_NOTIFY);
	EXPECT(kumi_fifo_create(window, 1024, 64, 0, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_fifo_create(NULL, 1024, 64, 0, &second) == KUMI_ERR_WINDOW);
	EXPECT(second == NULL);
	memset((char *)kumi_window_base(window) + 64 + 64, 0xff, 8);
	EXPECT(kumi_fifo_append(window, 0, 64, "x", 1) == KUMI_ERR_DAMAGED);

	EXPECT(kumi_fifo_free(NULL) == KUMI_OK);
	EXPECT(kumi_fifo_free(fifo) == KUMI_OK);
	EXPECT(kumi_fifo_free(fifo) == KUMI_ERR_FIFO);
	EXPECT(kumi_fifo_try_pop(fifo, buffer, 64, &found, NULL, NULL) ==
	       KUMI_ERR_FIFO);
	/* Freed with its window, and another one by kumi_finalize(). */
	EXPECT(kumi_fifo_create(window, 0, 64, 0, &fifo) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	EXPECT(kumi_fifo_free(fifo) == KUMI_ERR_FIFO);
	EXPECT(kumi_window_create(4096, &window) == KUMI_OK);
	EXPECT(kumi_fifo_create(window, 0, 64, 0, &fifo) == KUMI_OK);
}

struct heard {
	pthread_mutex_t lock;
	pthread_cond_t more;
	int count;
	int code;
	size_t length;
	char text[16];
};

static void hear(void *argument, int source, const void *data, size_t length)
{
	struct heard *heard = argument;

	pthread_mutex_lock(&heard->lock);
	heard->count += source == 0;
	heard->code = kumi_barrier();
	heard->length = length;
	memcpy(heard->text, data, length);
	pthread_cond_signal(&heard->more);
	pthread_mutex_unlock(&heard->lock);
}

static void signals(void)
{
	struct heard heard = { PTHREAD_MUTEX_INITIALIZER,
		               PTHREAD_COND_INITIALIZER, 0, 0, 0, "" };
	kumi_window *window = NULL;
	int sent = 9;

	EXPECT(kumi_window_create(4096, &window) == KUMI_OK);
	EXPECT(kumi_signal_handle(window, 0, 64, NULL, &heard) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_signal_handle(window, 8, 64, hear, &heard) ==
	       KUMI_ERR_FIFO);
	EXPECT(kumi_signal_handle(window, 128, 64, hear, &heard) == KUMI_OK);
	EXPECT(kumi_signal_send(window, 0, 128, "one", 4) == KUMI_OK);
	pthread_mutex_lock(&heard.lock);
	while (heard.count < 1)
		pthread_cond_wait(&heard.more, &heard.lock);
	EXPECT(heard.code == KUMI_ERR_WRONG_THREAD);
	EXPECT(heard.length == 4 && strcmp(heard.text, "one") == 0);
	pthread_mutex_unlock(&heard.lock);
	EXPECT(kumi_signal_try_send(window, 0, 128, "two", 4, &sent) ==
	       KUMI_OK && sent == 1);
	EXPECT(kumi_signal_try_send(window, 0, 128, "two", 4, NULL) ==
	       KUMI_ERR_NULL);
	pthread_mutex_lock(&heard.lock);
	while (heard.count < 2)
		pthread_cond_wait(&heard.more, &heard.lock);
	EXPECT(heard.length == 4 && strcmp(heard.text, "two") == 0);
	pthread_mutex_unlock(&heard.lock);
	EXPECT(kumi_fifo_append(window, 0, 128, "x", 1) == KUMI_ERR_FIFO);
	EXPECT(kumi_signal_remove(window, 64) == KUMI_ERR_FIFO);
	EXPECT(kumi_signal_remove(window, 128) == KUMI_OK);
	EXPECT(kumi_signal_send(window, 0, 128, "x", 1) == KUMI_ERR_FIFO);
	/* Left for kumi_finalize(). */
	EXPECT(kumi_signal_handle(window, 128, 64, hear, &heard) == KUMI_OK);
}

static void atomics(void)
{
	kumi_window *window = NULL;
	uint64_t wide = 9;
	uint32_t narrow = 9;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	EXPECT(kumi_window_swap(window, 0, 8, 12, &wide) == KUMI_OK);
	EXPECT(wide == 0);
	EXPECT(kumi_window_fetch_and(window, 0, 8, 6, &wide) == KUMI_OK);
	EXPECT(wide == 12);
	EXPECT(kumi_window_fetch_or(window, 0, 8, 3, &wide) == KUMI_OK);
	EXPECT(wide == 4);
	EXPECT(kumi_window_fetch_xor(window, 0, 8, 5, NULL) == KUMI_OK);
	EXPECT(kumi_window_compare_swap(window, 0, 8, 2, UINT64_MAX, &wide) ==
	       KUMI_OK);
	EXPECT(wide == 2);
	EXPECT(kumi_window_compare_swap(window, 0, 8, 2, 0, &wide) == KUMI_OK);
	EXPECT(wide == UINT64_MAX);
	EXPECT(kumi_window_swap_u32(window, 0, 20, 12, &narrow) == KUMI_OK);
	EXPECT(narrow == 0);
	EXPECT(kumi_window_fetch_and_u32(window, 0, 20, 6, &narrow) == KUMI_OK);
	EXPECT(narrow == 12);
	EXPECT(kumi_window_fetch_or_u32(window, 0, 20, 3, &narrow) == KUMI_OK);
	EXPECT(narrow == 4);
	EXPECT(kumi_window_fetch_xor_u32(window, 0, 20, 5, NULL) == KUMI_OK);
	EXPECT(kumi_window_compare_swap_u32(window, 0, 20, 2, UINT32_MAX,
	                                    &narrow) == KUMI_OK);
	EXPECT(narrow == 2);
	EXPECT(kumi_window_fetch_add_u32(window, 0, 20, 2, &narrow) == KUMI_OK);
	EXPECT(narrow == UINT32_MAX);
	EXPECT(kumi_window_fetch_add(window, 0, 16, 0, &wide) == KUMI_OK);
	EXPECT(wide == (uint64_t)1 << 32);
	EXPECT(kumi_window_swap_u32(window, 0, 18, 1, &narrow) ==
	       KUMI_ERR_ALIGNMENT);
	EXPECT(kumi_window_swap(window, 0, 20, 1, &wide) == KUMI_ERR_ALIGNMENT);
	EXPECT(kumi_window_swap_u32(window, 0, 64, 1, NULL) ==
	       KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_swap(window, 1, 0, 1, NULL) == KUMI_ERR_RANK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	EXPECT(kumi_window_swap(window, 0, 0, 1, NULL) == KUMI_ERR_WINDOW);
}

static void completions(void)
{
	kumi_window *window = NULL;
	kumi_completion *completion = NULL;
	uint64_t count = 9;
	char *base;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	EXPECT(kumi_completion_create(&completion) == KUMI_OK);
	EXPECT(kumi_completion_done(completion, &count) == KUMI_OK && count == 0);
	base = kumi_window_base(window);
	EXPECT(kumi_window_put_with(window, 0, 3, "abc", 3, 5, completion) ==
	       KUMI_OK);
	EXPECT(kumi_completion_wait(completion, 1, &count) == KUMI_OK);
	EXPECT(count == 1 && memcmp(base + 3, "abc", 3) == 0);
	EXPECT(kumi_window_wait_notify(window, 5, 1, NULL) == KUMI_OK);
	EXPECT(kumi_window_put_with(window, 0, 0, "x", 1, KUMI_NO_NOTIFY,
	                            NULL) == KUMI_OK);
	EXPECT(kumi_completion_wait_all(completion) == KUMI_OK);
	EXPECT(kumi_completion_wait(completion, 2, NULL) == KUMI_ERR_LENGTH);
	EXPECT(kumi_window_put_with(window, 0, 62, "abc", 3, KUMI_NO_NOTIFY,
	                            completion) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_put_with(window, 0, 0, "x", 1, 64, completion) ==
	       KUMI_ERR_NOTIFY);
	EXPECT(kumi_window_put_with(window, 0, 0, "x", 1, -2, completion) ==
	       KUMI_ERR_NOTIFY);
	EXPECT(kumi_completion_done(completion, &count) == KUMI_OK && count == 1);
	EXPECT(kumi_completion_done(completion, NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_completion_free(NULL) == KUMI_OK);
	EXPECT(kumi_completion_free(completion) == KUMI_OK);
	EXPECT(kumi_completion_free(completion) == KUMI_ERR_COMPLETION);
	EXPECT(kumi_completion_wait(NULL, 0, NULL) == KUMI_ERR_COMPLETION);
	EXPECT(kumi_window_put_with(window, 0, 0, "x", 1, 0, completion) ==
	       KUMI_ERR_COMPLETION);
	EXPECT(kumi_completion_create(NULL) == KUMI_ERR_NULL);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	/* Left for kumi_finalize(). */
	EXPECT(kumi_completion_create(&completion) == KUMI_OK);
}

static void strided(void)
{
	kumi_window *window = NULL;
	char buffer[9] = "";
	char *base;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	base = kumi_window_base(window);
	EXPECT(kumi_window_put_strided(window, 0, 1, 10, 2, 4, "aabbccdd", 0,
	                               NULL) == KUMI_OK);
	EXPECT(memcmp(base, "\0aa\0", 4) == 0);
	EXPECT(memcmp(base + 30, "\0dd\0", 4) == 0);
	EXPECT(kumi_window_wait_notify(window, 0, 1, NULL) == KUMI_OK);
	EXPECT(kumi_window_get_strided(window, 0, 11, 10, 2, 3, buffer) ==
	       KUMI_OK);
	EXPECT(strcmp(buffer, "bbccdd") == 0);
	EXPECT(kumi_window_put_strided(window, 0, 0, 9, 2, 8, "aabbccddeeffgghh",
	                               0, NULL) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_put_strided(window, 0, 0, 1, 2, 4, "aabbccdd", 0,
	                               NULL) == KUMI_ERR_LENGTH);
	EXPECT(kumi_window_put_strided(window, 0, 0, 8, SIZE_MAX, 2, buffer, 0,
	                               NULL) == KUMI_ERR_LENGTH);
	EXPECT(kumi_window_get_strided(window, 0, 0, SIZE_MAX / 2, 2, 4,
	                               buffer) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_get_strided(window, 0, 0, 8, 2, 2, NULL) ==
	       KUMI_ERR_NULL);
	EXPECT(memcmp(base, "\0aa\0", 4) == 0 && base[9] == 0);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

static void multicast(void)
{
	kumi_window *window = NULL;
	int twice[] = { 0, 0 }, strange[] = { 0, 1 }, negative[] = { -1 };
	uint64_t count = 9;
	char *base;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	base = kumi_window_base(window);
	EXPECT(kumi_window_multicast(window, twice, 2, 7, "abc", 3, 1) ==
	       KUMI_OK);
	EXPECT(memcmp(base + 6, "\0abc\0", 5) == 0);
	EXPECT(kumi_window_notified(window, 1, &count) == KUMI_OK && count == 1);
	EXPECT(kumi_window_multicast(window, NULL, 0, 0, "x", 1,
	                             KUMI_NO_NOTIFY) == KUMI_OK);
	EXPECT(kumi_window_multicast(window, strange, 2, 0, "x", 1,
	                             KUMI_NO_NOTIFY) == KUMI_ERR_RANK);
	EXPECT(kumi_window_multicast(window, negative, 1, 0, "x", 1,
	                             KUMI_NO_NOTIFY) == KUMI_ERR_RANK);
	EXPECT(kumi_window_multicast(window, twice, 2, 63, "xy", 2,
	                             KUMI_NO_NOTIFY) == KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_multicast(window, twice, 2, 0, "x", 1, 64) ==
	       KUMI_ERR_NOTIFY);
	EXPECT(kumi_window_multicast(window, NULL, 1, 0, "x", 1, 0) ==
	       KUMI_ERR_NULL);
	EXPECT(base[0] == 0 && base[63] == 0);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

static void collectives(void)
{
	double values[20], sums[20] = { 0 };
	int16_t small[3] = { 1, -2, 3 }, smaller[3] = { 0 };
	size_t counts[1] = { 3 }, wrong[1] = { 2 };

	for (int i = 0; i < 20; i++)
		values[i] = i;
	EXPECT(kumi_barrier() == KUMI_OK);
	EXPECT(kumi_broadcast(0, values, 20, KUMI_F64) == KUMI_OK);
	EXPECT(kumi_allreduce(values, sums, 20, KUMI_F64, KUMI_SUM) == KUMI_OK);
	EXPECT(memcmp(values, sums, sizeof sums) == 0);
	EXPECT(kumi_allreduce(sums, sums, 3, KUMI_F64, KUMI_MAX) == KUMI_OK);
	EXPECT(sums[2] == 2.0);
	EXPECT(kumi_reduce(0, small, smaller, 3, KUMI_I16, KUMI_BITXOR) ==
	       KUMI_OK);
	EXPECT(memcmp(small, smaller, sizeof small) == 0);
	memset(smaller, 0, sizeof smaller);
	EXPECT(kumi_gather(0, small, smaller, 3, KUMI_I16) == KUMI_OK);
	EXPECT(memcmp(small, smaller, sizeof small) == 0);
	memset(smaller, 0, sizeof smaller);
	EXPECT(kumi_alltoall(small, smaller, 3, KUMI_I16) == KUMI_OK);
	EXPECT(memcmp(small, smaller, sizeof small) == 0);
	memset(smaller, 0, sizeof smaller);
	EXPECT(kumi_alltoallv(small, counts, smaller, counts, KUMI_I16) ==
	       KUMI_OK);
	EXPECT(memcmp(small, smaller, sizeof small) == 0);
	EXPECT(kumi_allreduce(NULL, NULL, 0, KUMI_U8, KUMI_SUM) == KUMI_OK);

	EXPECT(kumi_broadcast(1, values, 1, KUMI_F64) == KUMI_ERR_RANK);
	EXPECT(kumi_broadcast(0, NULL, 1, KUMI_F64) == KUMI_ERR_NULL);
	EXPECT(kumi_broadcast(0, values, 1, (kumi_type)0) == KUMI_ERR_TYPE);
	EXPECT(kumi_broadcast(0, values, SIZE_MAX / 4, KUMI_F64) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_broadcast(0, (char *)values + 1, 1, KUMI_F64) ==
	       KUMI_ERR_ALIGNMENT);
	EXPECT(kumi_allreduce(values, sums, 1, KUMI_F64, (kumi_op)99) ==
	       KUMI_ERR_OPERATION);
	EXPECT(kumi_allreduce(values, sums, 1, KUMI_F64, KUMI_BITOR) ==
	       KUMI_ERR_OPERATION);
	EXPECT(kumi_allreduce(values, NULL, 1, KUMI_F64, KUMI_SUM) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_gather(0, small, small, 3, KUMI_I16) == KUMI_ERR_LENGTH);
	EXPECT(kumi_alltoallv(small, NULL, smaller, counts, KUMI_I16) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_alltoallv(small, counts, smaller, wrong, KUMI_I16) ==
	       KUMI_ERR_LENGTH);
}

static void alone(void)
{
	double begin;

	EXPECT(kumi_init() == KUMI_OK);
	EXPECT(kumi_init() == KUMI_ERR_ALREADY_INITIALISED);
	EXPECT(kumi_rank() == 0 && kumi_size() == 1 && kumi_node() >= 0);
	/* No daemon: nothing is disclosed, and nobody is stopped. */
	EXPECT(kumi_cluster_nodes() == 0 && kumi_rank_runs(0) == 1);
	EXPECT(kumi_node_load(0) < 0 && kumi_node_memory(0) < 0);
	EXPECT(kumi_node_network(0) < 0 && kumi_node_age(0) < 0);
	EXPECT(kumi_rank_runs(1) == KUMI_ERR_RANK && kumi_rank_runs(-1) == KUMI_ERR_RANK);
	begin = kumi_time();
	EXPECT(begin >= 0.0 && kumi_time() >= begin);
	threads();
	messages();
	bad_messages();
	windows();
	registered();
	fifos();
	signals();
	atomics();
	completions();
	strided();
	multicast();
	collectives();
	EXPECT(kumi_finalize() == KUMI_OK);
	EXPECT(kumi_finalize() == KUMI_ERR_NOT_INITIALISED);
	EXPECT(kumi_rank() == KUMI_ERR_NOT_INITIALISED);
}

int main(int argc, char **argv)
{
	outside();
	if (argc > 1 && strcmp(argv[1], "alone") == 0)
		alone();
	else
		not_launched();
	return failures > 0;
}
