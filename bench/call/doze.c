/* Work of which only the time matters: a sleep stands for a processor of one's own. */
#include <errno.h>
#include <time.h>

void doze(double seconds)
{
    struct timespec left = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}
