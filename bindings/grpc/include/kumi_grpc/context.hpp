// The call in which a thread makes calls: its deadline and its trace; a part of kumi_grpc.hpp.
#ifndef KUMI_GRPC_CONTEXT_HPP
#define KUMI_GRPC_CONTEXT_HPP

#include <chrono>
#include <cmath>
#include <optional>
#include <string>

#include "error.hpp"

namespace kumi::grpc {

// What is left of the call for which this thread runs a function, or this process a routine. Zero: it is over. Nothing: there is no
// such call, or no limit. Calls that are made there end within that time.
inline std::optional<std::chrono::duration<double>> remaining()
{
    double seconds = 0;
    check(grpc_remaining_np(&seconds));
    if (std::isinf(seconds)) {
        return std::nullopt;
    }
    return std::chrono::duration<double>(seconds);
}

// Calls that this thread begins while it lives are in this trace: the `traceparent` of W3C Trace Context. Afterwards they are where
// they were before.
//
//     const kumi::grpc::traced here(traceparent);
//     dmmul.call(n, a, b, c);
class [[nodiscard]] traced {
public:
    explicit traced(const std::string &traceparent)
    {
        check(grpc_traceparent_get_np(before_, sizeof before_));
        check(grpc_traceparent_set_np(traceparent.c_str()));
    }

    traced(const traced &) = delete;
    traced &operator=(const traced &) = delete;

    ~traced() { static_cast<void>(grpc_traceparent_set_np(before_[0] == 0 ? nullptr : before_)); }

private:
    char before_[GRPC_TRACEPARENT_SIZE_NP];
};

} // namespace kumi::grpc

#endif
