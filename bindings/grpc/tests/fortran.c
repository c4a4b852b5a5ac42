/* Runs the tests of Fortran with a server. */
#include <signal.h>
#include <stdlib.h>

#include "server.h"

void all_of_fortran(void);

int main(void)
{
    struct server server;
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    all_of_fortran();
    server_end(&server, SIGTERM);
    return 0;
}
