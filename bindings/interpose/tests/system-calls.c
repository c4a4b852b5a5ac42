/* System calls on shared memory: rank 0 reads a file into it, the last rank writes
 * it out again; both in every way that there is.  With -DWITH_JIA on libjia,
 * otherwise on libkumi.  Usage: system-calls FOLDER */
#define _GNU_SOURCE
#ifdef WITH_JIA
#include <jia.h>
#else
#include <kumi_dsm.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* An odd length over many pages, and an odd address in one. */
enum { LENGTH = 300001, OFFSET = 4097 + 12, WAYS = 7, DATAGRAM = 30001 };

static int rank, ranks;
static unsigned char *shared;
static unsigned char expected[LENGTH];
static char name[4096];

#define NEED(condition)                                                       \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "rank %d line %d: %s (%s)\n", rank,   \
			        __LINE__, #condition, strerror(errno));       \
			exit(1);                                              \
		}                                                             \
	} while (0)

#ifdef WITH_JIA
static void start(int argc, char **argv)
{
	jia_init(argc, argv);
	rank = jiapid;
	ranks = jiahosts;
	/* Each page at another host. */
	shared = (unsigned char *)jia_alloc3(2 * LENGTH, 4096, 0);
}

static void barrier(void)
{
	jia_barrier();
}

static void end(void)
{
	jia_exit();
}
#else
static void start(int argc, char **argv)
{
	void *place = NULL;

	(void)argc;
	(void)argv;
	NEED(kumi_init_threads(KUMI_THREAD_MULTIPLE) == KUMI_OK);
	NEED(kumi_dsm_start() == KUMI_OK);
	rank = kumi_rank();
	ranks = kumi_size();
	NEED(kumi_dsm_allocate(2 * LENGTH, kumi_dsm_round_robin(1, 0), &place) ==
	     KUMI_OK);
	shared = place;
}

static void barrier(void)
{
	NEED(kumi_dsm_barrier() == KUMI_OK);
}

static void end(void)
{
	NEED(kumi_finalize() == KUMI_OK);
}
#endif

/* One writer at the other end of a pipe or socket, or one reader. */
struct other {
	int descriptor;
	unsigned char bytes[LENGTH];
};

static void *fill(void *argument)
{
	struct other *other = argument;
	size_t done = 0;

	while (done < LENGTH) {
		ssize_t more = write(other->descriptor, expected + done,
		                     LENGTH - done < 777 ? LENGTH - done : 777);
		NEED(more > 0);
		done += (size_t)more;
	}
	close(other->descriptor);
	return NULL;
}

static void *drain(void *argument)
{
	struct other *other = argument;
	size_t done = 0;
	ssize_t more;

	while ((more = read(other->descriptor, other->bytes + done,
	                    LENGTH - done)) > 0)
		done += (size_t)more;
	NEED(more == 0 || done == LENGTH);
	return NULL;
}

/* All bytes from a stream that gives fewer at once, until its end. */
static void read_all(int descriptor, unsigned char *place, int with_recv)
{
	size_t done = 0;

	while (done < LENGTH) {
		size_t left = LENGTH - done;
		ssize_t more = with_recv
		                       ? recv(descriptor, place + done, left, 0)
		                       : read(descriptor, place + done, left);
		NEED(more > 0);
		done += (size_t)more;
	}
}

static void write_all(int descriptor, const unsigned char *place, int with_send)
{
	size_t done = 0;

	while (done < LENGTH) {
		size_t left = LENGTH - done;
		ssize_t more = with_send
		                       ? send(descriptor, place + done, left, 0)
		                       : write(descriptor, place + done, left);
		NEED(more > 0);
		done += (size_t)more;
	}
}

static void from_stream(unsigned char *place, int socket)
{
	static struct other other;
	pthread_t thread;
	int ends[2];

	NEED((socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) ==
	     0);
	other.descriptor = ends[1];
	NEED(pthread_create(&thread, NULL, fill, &other) == 0);
	read_all(ends[0], place, socket);
	NEED(pthread_join(thread, NULL) == 0);
	close(ends[0]);
}

static void to_stream(const unsigned char *place, int socket)
{
	static struct other other;
	pthread_t thread;
	int ends[2];

	NEED((socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) ==
	     0);
	memset(other.bytes, 0, LENGTH);
	other.descriptor = ends[0];
	NEED(pthread_create(&thread, NULL, drain, &other) == 0);
	write_all(ends[1], place, socket);
	close(ends[1]);
	NEED(pthread_join(thread, NULL) == 0);
	NEED(memcmp(other.bytes, expected, LENGTH) == 0);
	close(ends[0]);
}

/* A datagram that meets a missing page is lost, if nobody brings it first. */
static void datagram(unsigned char *place, int with_header)
{
	int ends[2];
	struct iovec out = {expected, DATAGRAM};
	struct iovec in[2] = {{place, 5001}, {place + 5001, DATAGRAM}};
	struct msghdr header = {.msg_iov = &out, .msg_iovlen = 1};

	NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	NEED(sendmsg(ends[1], &header, 0) == DATAGRAM);
	header.msg_iov = in;
	header.msg_iovlen = 2;
	if (with_header)
		NEED(recvmsg(ends[0], &header, 0) == DATAGRAM);
	else
		NEED(recvfrom(ends[0], place, LENGTH, 0, NULL, NULL) == DATAGRAM);
	NEED(sendto(ends[1], place, DATAGRAM, 0, NULL, 0) == DATAGRAM);
	close(ends[0]);
	close(ends[1]);
}

static void from_file(unsigned char *place, int way)
{
	int file = open(name, O_RDONLY);
	struct iovec parts[3] = {{place, 1},
	                         {place + 1, 100000},
	                         {place + 100001, LENGTH}};
	FILE *stream;

	NEED(file >= 0);
	switch (way) {
	case 0: /* Whole, although the file is shorter than what is asked for. */
		NEED(read(file, place, LENGTH + 9) == LENGTH);
		break;
	case 1:
		NEED(pread(file, place + 7, LENGTH, 7) == LENGTH - 7);
		NEED(pread64(file, place, 7, 0) == 7);
		break;
	case 2:
		NEED(readv(file, parts, 3) == LENGTH);
		break;
	case 3:
		stream = fdopen(file, "r");
		NEED(fread(place, 1000, 301, stream) == 300);
		NEED(feof(stream) && !ferror(stream));
		fclose(stream);
		return;
	case 4:
	case 5:
		from_stream(place, way == 5);
		break;
	case 6:
		datagram(place, 0);
		datagram(place + LENGTH / 2, 1);
		memcpy(place, expected, LENGTH);
		break;
	}
	close(file);
}

static void to_file(const unsigned char *place, int way)
{
	char out[4200];
	static unsigned char back[LENGTH + 1];
	struct iovec parts[2] = {{(void *)place, 99},
	                         {(void *)(place + 99), LENGTH - 99}};
	int file;
	FILE *stream;

	snprintf(out, sizeof out, "%s.%d", name, way);
	file = open(out, O_RDWR | O_CREAT | O_TRUNC, 0600);
	NEED(file >= 0);
	switch (way) {
	case 1:
		NEED(pwrite(file, place + 7, LENGTH - 7, 7) == LENGTH - 7);
		NEED(pwrite64(file, place, 7, 0) == 7);
		break;
	case 2:
		NEED(writev(file, parts, 2) == LENGTH);
		break;
	case 3:
		stream = fdopen(dup(file), "w");
		NEED(fwrite(place, 1, LENGTH, stream) == LENGTH);
		NEED(fclose(stream) == 0);
		break;
	case 4:
	case 5:
		to_stream(place, way == 5);
		/* fall through */
	default:
		NEED(write(file, place, LENGTH) == LENGTH);
	}
	NEED(pread(file, back, LENGTH + 1, 0) == LENGTH);
	NEED(memcmp(back, expected, LENGTH) == 0);
	close(file);
}

int main(int argc, char **argv)
{
	void *volatile nothing = (void *)8;

	NEED(argc == 2);
	start(argc, argv);
	for (int i = 0; i < LENGTH; i++)
		expected[i] = (unsigned char)(i * 7 + i / 256 + 1);
	snprintf(name, sizeof name, "%s/in", argv[1]);
	if (rank == 0) {
		int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		NEED(write(file, expected, LENGTH) == LENGTH);
		close(file);
	}
	for (int way = 0; way < WAYS; way++) {
		unsigned char *place = shared + OFFSET + way;

		barrier();
		if (rank == 0)
			from_file(place, way);
		barrier();
		if (rank == ranks - 1)
			to_file(place, way);
		barrier();
		/* All pages go out of sight, and are others'. */
		for (int i = rank; i < LENGTH; i += ranks)
			place[i] = 0;
	}
	/* What is no memory at all stays an error. */
	errno = 0;
	NEED(write(1, nothing, 1) == -1 && errno == EFAULT);
	if (rank == 0)
		puts("system calls hold");
	end();
	return 0;
}
