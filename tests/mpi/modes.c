/* The four ways to send: standard, buffered, synchronous, ready; blocking, nonblocking, persistent. */
#include "check.h"

#define LENGTHS 7
static const int lengths[LENGTHS] = {0, 1, 63, 1025, 4097, 65537, 1000001};
#define MOST 1000001

enum mode { STANDARD, BUFFERED, SYNCHRONOUS, READY, MODES };
static const char *const names[MODES] = {"standard sends", "buffered sends", "synchronous sends", "ready sends"};

static void send_blocking(enum mode mode, const void *data, int length, int tag)
{
    if (mode == STANDARD)
        MPI_Send(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD);
    else if (mode == BUFFERED)
        MPI_Bsend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD);
    else if (mode == SYNCHRONOUS)
        MPI_Ssend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD);
    else
        MPI_Rsend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD);
}

static void send_nonblocking(enum mode mode, const void *data, int length, int tag, MPI_Request *request)
{
    if (mode == STANDARD)
        MPI_Isend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
    else if (mode == BUFFERED)
        MPI_Ibsend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
    else if (mode == SYNCHRONOUS)
        MPI_Issend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
    else
        MPI_Irsend(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
}

static void send_persistent(enum mode mode, const void *data, int length, int tag, MPI_Request *request)
{
    if (mode == STANDARD)
        MPI_Send_init(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
    else if (mode == BUFFERED)
        MPI_Bsend_init(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
    else if (mode == SYNCHRONOUS)
        MPI_Ssend_init(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
    else
        MPI_Rsend_init(data, length, MPI_BYTE, right, tag, MPI_COMM_WORLD, request);
}

/* Whether persistent buffered sends are started once only: Open MPI 4 sends the same contents the next time. */
static int once;

/* The receive is posted first, as ready sends need it and as blocking sends around a ring need it. */
static void exchange(enum mode mode, int length, int how)
{
    static char out[MOST], in[MOST];
    MPI_Request receive, send = MPI_REQUEST_NULL;
    MPI_Status status;
    int times = how != 2 || (mode == BUFFERED && once) ? 1 : 3;
    /* It may take the contents when it is made. */
    fill(out, (size_t)length, (uint64_t)(length + rank));
    if (how == 2)
        send_persistent(mode, out, length, how, &send);
    for (int time = 0; time < times; time++) {
        uint64_t id = (uint64_t)(length + time);
        MPI_Irecv(in, length, MPI_BYTE, left, how, MPI_COMM_WORLD, &receive);
        MPI_Barrier(MPI_COMM_WORLD);
        fill(out, (size_t)length, id + (uint64_t)rank);
        if (how == 0)
            send_blocking(mode, out, length, how);
        else if (how == 1)
            send_nonblocking(mode, out, length, how, &send);
        else
            MPI_Start(&send);
        MPI_Wait(&receive, &status);
        check_status(&status, left, how, length, names[mode]);
        check_content(in, (size_t)length, id + (uint64_t)left, names[mode]);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    if (how == 2)
        MPI_Request_free(&send);
}

static void all_modes(void)
{
    static char buffer[3 * (MOST + MPI_BSEND_OVERHEAD)];
    void *detached;
    int bytes;
    MPI_Buffer_attach(buffer, sizeof buffer);
    for (enum mode mode = STANDARD; mode < MODES; mode++) {
        for (int i = 0; i < LENGTHS; i++)
            for (int how = 0; how < 3; how++)
                exchange(mode, lengths[i], how);
        passed(names[mode]);
    }
    MPI_Buffer_detach(&detached, &bytes);
    CHECK(detached == buffer && bytes == (int)sizeof buffer, "another buffer is detached than was attached");
}

/* A synchronous send is not over before its receive is there, however often one asks. */
static void synchronous_waits(int length)
{
    static char out[MOST], in[MOST];
    MPI_Request send;
    int done, go = 1;
    MPI_Issend(out, length, MPI_BYTE, right, 11, MPI_COMM_WORLD, &send);
    for (int i = 0; i < 1000; i++) {
        MPI_Test(&send, &done, MPI_STATUS_IGNORE);
        CHECK(!done, "a synchronous send of %d bytes is over before its receive is posted", length);
    }
    /* The neighbour receives after it has heard that the send was still under way. */
    MPI_Sendrecv_replace(&go, 1, MPI_INT, right, 12, left, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(in, length, MPI_BYTE, left, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
}

/* A buffered send is over at once, even if nobody receives before the sender has gone on to something else. */
static void buffered_goes_on(void)
{
    static char buffer[8 * (65536 + MPI_BSEND_OVERHEAD)], data[65536], in[65536];
    void *detached;
    int bytes;
    MPI_Buffer_attach(buffer, sizeof buffer);
    for (int i = 0; i < 8; i++) {
        fill(data, sizeof data, (uint64_t)(rank * 8 + i));
        MPI_Bsend(data, sizeof data, MPI_BYTE, right, i, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 7; i >= 0; i--) {
        MPI_Recv(in, sizeof in, MPI_BYTE, left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_content(in, sizeof in, (uint64_t)(left * 8 + i), "buffered sends in reverse order");
    }
    MPI_Buffer_detach(&detached, &bytes);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    once = library_is("Open MPI v4.");
    if (once)
        left_out("persistent buffered sends started again");
    for (int round = 0; round < test.rounds; round++) {
        all_modes();
        for (int i = 0; i < LENGTHS; i++)
            synchronous_waits(lengths[i]);
        passed("a synchronous send waits for its receive");
        buffered_goes_on();
        passed("buffered sends end before their receives");
    }
    return finish();
}
