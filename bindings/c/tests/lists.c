/* Lists of pieces, and records for the FIFOs and ports of many ranks: a user's
 * program in a job of one rank. RUST_PIECE_SIZE and the like come from the Rust
 * side. Exit code 0 if all is as documented. */
#include <kumi.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "expect.h"

_Static_assert(sizeof(kumi_piece) == RUST_PIECE_SIZE, "kumi_piece: size");
_Static_assert(offsetof(kumi_piece, length) == RUST_PIECE_LENGTH, "length");
_Static_assert(sizeof(kumi_buffer) == RUST_BUFFER_SIZE, "kumi_buffer: size");
_Static_assert(offsetof(kumi_buffer, length) == RUST_BUFFER_LENGTH, "length");

static void lists(void)
{
	kumi_window *window = NULL;
	kumi_completion *completion = NULL;
	kumi_piece pieces[] = { { 40, 3 }, { 7, 0 }, { 5, 2 }, { 41, 1 } };
	char text[] = "abcdef", buffer[7] = "", head[3] = "", tail[6] = "";
	kumi_buffer from[] = { { text, 1 }, { NULL, 0 }, { text + 1, 5 } };
	kumi_buffer into[] = { { head, 2 }, { tail, 4 } };
	uint64_t count = 9;
	char *base;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	EXPECT(kumi_completion_create(&completion) == KUMI_OK);
	base = kumi_window_base(window);
	EXPECT(kumi_window_put_list(window, 0, pieces, 4, text, 3, completion) ==
	       KUMI_OK);
	EXPECT(memcmp(base + 39, "\0afc\0", 5) == 0);
	EXPECT(memcmp(base + 4, "\0de\0", 4) == 0);
	EXPECT(kumi_window_notified(window, 3, &count) == KUMI_OK && count == 1);
	EXPECT(kumi_completion_wait(completion, 1, NULL) == KUMI_OK);
	EXPECT(kumi_window_get_list(window, 0, pieces, 4, buffer) == KUMI_OK);
	EXPECT(strcmp(buffer, "afcdef") == 0);
	memset(base, 0, 64);
	EXPECT(kumi_window_put_lists(window, 0, pieces, 4, from, 3,
	                             KUMI_NO_NOTIFY, NULL) == KUMI_OK);
	EXPECT(memcmp(base + 39, "\0afc\0", 5) == 0);
	EXPECT(kumi_window_get_lists(window, 0, pieces, 4, into, 2) == KUMI_OK);
	EXPECT(strcmp(head, "af") == 0 && strcmp(tail, "cdef") == 0);
	EXPECT(kumi_window_put_list(window, 0, NULL, 0, NULL, 3, NULL) ==
	       KUMI_OK);
	EXPECT(kumi_window_notified(window, 3, &count) == KUMI_OK && count == 2);
	EXPECT(kumi_completion_free(completion) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
}

static void wrong_lists(void)
{
	kumi_window *window = NULL;
	kumi_completion *completion = NULL;
	kumi_piece pieces[] = { { 40, 3 }, { 5, 3 } };
	kumi_piece wild[] = { { 0, 2 }, { 63, 2 } };
	kumi_piece endless[] = { { 0, SIZE_MAX }, { 0, 2 } };
	char text[] = "abcdef", buffer[7] = "";
	kumi_buffer two[] = { { text, 1 }, { text + 1, 5 } };
	kumi_buffer twice[] = { { buffer + 1, 3 }, { buffer, 3 } };
	char *base;

	EXPECT(kumi_window_create(64, &window) == KUMI_OK);
	EXPECT(kumi_completion_create(&completion) == KUMI_OK);
	base = kumi_window_base(window);
	EXPECT(kumi_window_put_list(window, 0, wild, 2, text, 3, completion) ==
	       KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_get_list(window, 0, wild, 2, buffer) ==
	       KUMI_ERR_BOUNDS);
	EXPECT(kumi_window_put_list(window, 0, endless, 2, text, 3, NULL) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_window_put_lists(window, 0, pieces, 2, two, 1, 3, NULL) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_window_get_lists(window, 0, pieces, 2, two, 1) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_window_get_lists(window, 0, pieces, 2, twice, 2) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_window_put_list(window, 0, NULL, 1, text, 3, NULL) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_window_put_list(window, 0, pieces, 1, NULL, 3, NULL) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_window_get_list(window, 0, pieces, 1, NULL) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_window_put_lists(window, 0, pieces, 2, NULL, 1, 3, NULL) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_window_put_list(window, 1, pieces, 1, text, 3, NULL) ==
	       KUMI_ERR_RANK);
	EXPECT(kumi_window_put_list(window, 0, pieces, 1, text, 64, NULL) ==
	       KUMI_ERR_NOTIFY);
	EXPECT(kumi_completion_free(completion) == KUMI_OK);
	EXPECT(kumi_window_put_list(window, 0, pieces, 1, text, 3, completion) ==
	       KUMI_ERR_COMPLETION);
	for (int i = 0; i < 64; i++)
		EXPECT(base[i] == 0);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	EXPECT(kumi_window_get_list(window, 0, pieces, 1, buffer) ==
	       KUMI_ERR_WINDOW);
}

struct heard {
	pthread_mutex_t lock;
	pthread_cond_t more;
	int count;
	char text[16];
};

static void hear(void *argument, int source, const void *data, size_t length)
{
	struct heard *heard = argument;

	pthread_mutex_lock(&heard->lock);
	heard->count += source == 0;
	memcpy(heard->text, data, length);
	pthread_cond_signal(&heard->more);
	pthread_mutex_unlock(&heard->lock);
}

static void records_for_many(void)
{
	struct heard heard = { PTHREAD_MUTEX_INITIALIZER,
		               PTHREAD_COND_INITIALIZER, 0, "" };
	kumi_window *window = NULL;
	kumi_fifo *fifo = NULL;
	int twice[] = { 0, 0 }, strange[] = { 0, 1 };
	int taken[2] = { 9, 9 }, found = 9;
	size_t length = 0;
	char buffer[64];

	EXPECT(kumi_window_create(4096, &window) == KUMI_OK);
	EXPECT(kumi_fifo_create(window, 64, 16, 7, &fifo) == KUMI_OK);
	EXPECT(kumi_fifo_multicast(window, twice, 2, 64, "one", 4) == KUMI_OK);
	EXPECT(kumi_fifo_try_multicast(window, twice, 2, 64, "two", 4, taken) ==
	       KUMI_OK && taken[0] == 0 && taken[1] == 0);
	EXPECT(kumi_fifo_multicast(window, twice, 2, 64, "two", 4) ==
	       KUMI_ERR_FULL);
	EXPECT(kumi_fifo_pop(fifo, buffer, 64, &length, NULL) == KUMI_OK);
	EXPECT(length == 4 && strcmp(buffer, "one") == 0);
	EXPECT(kumi_fifo_multicast(window, strange, 2, 64, "x", 1) ==
	       KUMI_ERR_RANK);
	EXPECT(kumi_fifo_multicast(window, twice, 2, 64, "x", SIZE_MAX) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_fifo_multicast(window, twice, 2, 64, buffer, 9) ==
	       KUMI_ERR_LENGTH);
	EXPECT(kumi_fifo_multicast(window, NULL, 1, 64, "x", 1) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_fifo_try_multicast(window, twice, 2, 64, "x", 1, NULL) ==
	       KUMI_ERR_NULL);
	EXPECT(kumi_fifo_multicast(window, twice, 2, 128, "x", 1) ==
	       KUMI_ERR_FIFO);
	EXPECT(kumi_signal_multicast(window, twice, 2, 64, "x", 1) ==
	       KUMI_ERR_FIFO);
	EXPECT(kumi_fifo_try_pop(fifo, buffer, 64, &found, NULL, NULL) ==
	       KUMI_OK && found == 0);
	EXPECT(kumi_fifo_try_multicast(window, twice, 2, 64, "x", 1, taken) ==
	       KUMI_OK && taken[0] == 1 && taken[1] == 1);

	EXPECT(kumi_signal_handle(window, 1024, 64, hear, &heard) == KUMI_OK);
	EXPECT(kumi_signal_multicast(window, twice, 2, 1024, "one", 4) ==
	       KUMI_OK);
	EXPECT(kumi_signal_try_multicast(window, twice, 1, 1024, "two", 4,
	                                 &found) == KUMI_OK && found == 1);
	pthread_mutex_lock(&heard.lock);
	while (heard.count < 2)
		pthread_cond_wait(&heard.more, &heard.lock);
	EXPECT(strcmp(heard.text, "two") == 0);
	pthread_mutex_unlock(&heard.lock);
	EXPECT(kumi_signal_remove(window, 1024) == KUMI_OK);
	EXPECT(kumi_window_free(window) == KUMI_OK);
	EXPECT(kumi_fifo_multicast(window, twice, 2, 64, "x", 1) ==
	       KUMI_ERR_WINDOW);
}

int main(void)
{
	EXPECT(kumi_init() == KUMI_OK);
	lists();
	wrong_lists();
	records_for_many();
	EXPECT(kumi_finalize() == KUMI_OK);
	return failures > 0;
}
