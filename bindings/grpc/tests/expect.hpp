// What the tests of C++ have in common.
#ifndef EXPECT_HPP
#define EXPECT_HPP

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kumi_grpc.hpp"

#define EXPECT(condition)                                                                                                    \
    do {                                                                                                                     \
        if (!(condition)) {                                                                                                  \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            std::exit(1);                                                                                                    \
        }                                                                                                                    \
    } while (0)

// That something throws an error of this type, of this code, whose text has this in it.
template <class Error, class Body>
void throws(grpc_error_t code, const char *text, Body body)
{
    try {
        body();
    } catch (const Error &error) {
        if (error.code() == code && std::string(error.what()).find(text) != std::string::npos) {
            return;
        }
        std::fprintf(stderr, "%d: %s\n", error.code(), error.what());
        std::exit(1);
    }
    std::fprintf(stderr, "nothing was thrown where %s was expected\n", text);
    std::exit(1);
}

#endif
