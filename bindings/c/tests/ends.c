/* Handles that were freed, and children of a rank: a user's program in a job of
 * one rank. Exit code 0 if all is as documented. */
#include <kumi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

/* One of each, in a window of 4096 bytes. */
struct things {
	kumi_window *window;
	kumi_fifo *fifo;
	kumi_completion *completion;
};

static struct things make(void)
{
	struct things made = { NULL, NULL, NULL };

	EXPECT(kumi_window_create(4096, &made.window) == KUMI_OK);
	EXPECT(kumi_fifo_create(made.window, 0, 64, 0, &made.fifo) == KUMI_OK);
	EXPECT(kumi_completion_create(&made.completion) == KUMI_OK);
	return made;
}

/* Every way to use them fails so. */
static void refused(struct things things, int window, int fifo, int completion)
{
	char buffer[8] = "";
	uint64_t count = 0;
	int found = 0;
	kumi_fifo *made = NULL;

	EXPECT(kumi_window_base(things.window) == NULL);
	EXPECT(kumi_window_put(things.window, 0, 0, "x", 1) == window);
	EXPECT(kumi_window_get(things.window, 0, 0, 1, buffer) == window);
	EXPECT(kumi_fifo_create(things.window, 0, 64, 0, &made) == window);
	EXPECT(kumi_window_free(things.window) == window);
	EXPECT(kumi_fifo_try_pop(things.fifo, buffer, 8, &found, NULL, NULL) ==
	       fifo);
	EXPECT(kumi_fifo_free(things.fifo) == fifo);
	EXPECT(kumi_completion_done(things.completion, &count) == completion);
	EXPECT(kumi_window_put_with(things.window, 0, 0, "x", 1, 0,
	                            things.completion) == window);
	EXPECT(kumi_completion_free(things.completion) == completion);
	EXPECT(buffer[0] == '\0' && made == NULL);
}

/* What was made since does not take their place. */
static void handles(void)
{
	struct things old = make(), new;

	EXPECT(kumi_window_free(old.window) == KUMI_OK);
	EXPECT(kumi_completion_free(old.completion) == KUMI_OK);
	for (int turn = 0; turn < 20; turn++) {
		new = make();
		refused(old, KUMI_ERR_WINDOW, KUMI_ERR_FIFO,
		        KUMI_ERR_COMPLETION);
		EXPECT(kumi_fifo_append(new.window, 0, 0, "x", 1) == KUMI_OK);
		EXPECT(kumi_fifo_free(new.fifo) == KUMI_OK);
		EXPECT(kumi_window_free(new.window) == KUMI_OK);
		EXPECT(kumi_completion_free(new.completion) == KUMI_OK);
	}
	/* One of another kind is none either. */
	new = make();
	EXPECT(kumi_fifo_free((kumi_fifo *)new.window) == KUMI_ERR_FIFO);
	EXPECT(kumi_window_free((kumi_window *)new.completion) ==
	       KUMI_ERR_WINDOW);
	EXPECT(kumi_finalize() == KUMI_OK);
	/* Nor is that of an earlier job. */
	EXPECT(kumi_init() == KUMI_OK);
	old = new;
	new = make();
	refused(old, KUMI_ERR_WINDOW, KUMI_ERR_FIFO, KUMI_ERR_COMPLETION);
	EXPECT(kumi_window_free(new.window) == KUMI_OK);
	EXPECT(kumi_completion_free(new.completion) == KUMI_OK);
}

/* A child that uses everything and ends as programs do. */
static void *child(void *argument)
{
	struct things *things = argument;
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		int code = KUMI_ERR_FORKED;

		EXPECT(kumi_init() == code && kumi_rank() == code);
		EXPECT(kumi_barrier() == code && kumi_job() == 0);
		refused(*things, code, code, code);
		EXPECT(kumi_signal_remove(things->window, 1024) == code);
		EXPECT(kumi_finalize() == code);
		exit(failures > 0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
	return NULL;
}

static void hear(void *argument, int source, const void *data, size_t length)
{
	EXPECT(source == 0 && length == 2);
	EXPECT(write(*(int *)argument, data, length) == 2);
}

static void forks(void)
{
	struct things things = make();
	pthread_t thread;
	char buffer[8] = "";
	int ends[2], source = 9;

	EXPECT(pipe(ends) == 0);
	EXPECT(kumi_signal_handle(things.window, 1024, 64, hear, &ends[1]) ==
	       KUMI_OK);
	EXPECT(kumi_window_put(things.window, 0, 2048, "kept", 5) == KUMI_OK);
	EXPECT(kumi_fifo_append(things.window, 0, 0, "record", 7) == KUMI_OK);
	child(&things);
	EXPECT(pthread_create(&thread, NULL, child, &things) == 0);
	EXPECT(pthread_join(thread, NULL) == 0);
	/* Nothing is missing here. */
	EXPECT(kumi_window_get(things.window, 0, 2048, 5, buffer) == KUMI_OK);
	EXPECT(strcmp(buffer, "kept") == 0);
	EXPECT(strcmp((char *)kumi_window_base(things.window) + 2048, "kept") ==
	       0);
	EXPECT(kumi_fifo_pop(things.fifo, buffer, 8, NULL, &source) == KUMI_OK);
	EXPECT(strcmp(buffer, "record") == 0 && source == 0);
	EXPECT(kumi_signal_send(things.window, 0, 1024, "s", 2) == KUMI_OK);
	EXPECT(read(ends[0], buffer, 8) == 2 && strcmp(buffer, "s") == 0);
	EXPECT(kumi_window_put_with(things.window, 0, 0, "x", 1, 0,
	                            things.completion) == KUMI_OK);
	EXPECT(kumi_completion_wait_all(things.completion) == KUMI_OK);
	EXPECT(kumi_window_free(things.window) == KUMI_OK);
}

/* One that was made before is as free as any process. */
static void early_child(void)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		EXPECT(kumi_init() == KUMI_OK && kumi_finalize() == KUMI_OK);
		_exit(failures > 0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
	early_child();
	EXPECT(kumi_init() == KUMI_OK);
	handles();
	forks();
	EXPECT(kumi_finalize() == KUMI_OK);
	early_child();
	return failures > 0;
}
