/* Stands for work: a sleeping call takes its time without a processor. */
#include <errno.h>
#include <time.h>

void sleep_seconds(double seconds)
{
    struct timespec left = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}
