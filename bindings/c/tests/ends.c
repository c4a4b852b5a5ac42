/* Handles that were freed: a user's program in a job of one rank. Exit code 0 if all is as documented. */
#include <kumi.h>

#include <stdint.h>

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

int main(void)
{
	EXPECT(kumi_init() == KUMI_OK);
	handles();
	EXPECT(kumi_finalize() == KUMI_OK);
	return failures > 0;
}
