// Exceptions of calls; a part of kumi_grpc.hpp.
#ifndef KUMI_GRPC_ERROR_HPP
#define KUMI_GRPC_ERROR_HPP

#include <stdexcept>
#include <string>

#include "../grpc.h"

namespace kumi::grpc {

// A failure, with the exact code of grpc.h.
class error : public std::runtime_error {
public:
    error(grpc_error_t code, const std::string &text) : std::runtime_error(text), code_(code) {}
    grpc_error_t code() const noexcept { return code_; }

private:
    grpc_error_t code_;
};

// Arguments do not fit the description, and nothing was sent; or a transaction is over.
class argument_error : public error {
    using error::error;
};
// There is no such routine; the text names the nearest.
class routine_not_found : public error {
    using error::error;
};
// No server can be reached, or the connection was lost: then the call may have run.
class connection_error : public error {
    using error::error;
};
// The server refused the call: it is busy, denies access, lacks the library, or the call is too large; see code().
class refused_error : public error {
    using error::error;
};
// The routine crashed.
class crashed_error : public error {
    using error::error;
};
// The routine returned a failure status; arrays and the status are in place.
class status_error : public error {
    using error::error;
};
// A callback failed; the text has the reason.
class callback_error : public error {
    using error::error;
};
// A file cannot be read or written, here or at the server.
class file_error : public error {
    using error::error;
};
// A Python routine raised an exception; the text describes it.
class raised_error : public error {
    using error::error;
};
// The object no longer exists; the method has not run.
class object_lost : public error {
    using error::error;
};
// The server does not have a held array any more. The call has not run, unless a metaserver chose that server, and it went while the
// call may have run.
class held_lost : public error {
    using error::error;
};
// This call of a transaction did not run: a call failed that makes what it reads.
class not_run : public error {
    using error::error;
};
class timed_out : public error {
    using error::error;
};
class cancelled : public error {
    using error::error;
};

// Throws this thread's last error.
[[noreturn]] inline void raise(grpc_error_t code)
{
    const grpc_error_t last = grpc_last_error_get_np();
    const grpc_error_t exact = last == GRPC_NO_ERROR ? code : last;
    const std::string text = std::string(grpc_error_string(exact)) + ": " + grpc_last_error_text_np();
    switch (exact) {
    case GRPC_INVALID_ARGUMENT_NP:
    case GRPC_INVALID_TRANSACTION_NP:
        throw argument_error(exact, text);
    case GRPC_FUNCTION_NOT_FOUND:
        throw routine_not_found(exact, text);
    case GRPC_SERVER_NOT_FOUND:
    case GRPC_COMMUNICATION_FAILED:
        throw connection_error(exact, text);
    case GRPC_RPC_REFUSED:
    case GRPC_BUSY_NP:
    case GRPC_TOO_LARGE_NP:
    case GRPC_NOT_PERMITTED_NP:
    case GRPC_EXPIRED_NP:
    case GRPC_NOT_RUNNABLE_NP:
    case GRPC_HELD_FULL_NP:
        throw refused_error(exact, text);
    case GRPC_CRASHED_NP:
        throw crashed_error(exact, text);
    case GRPC_STATUS_NP:
        throw status_error(exact, text);
    case GRPC_CALLBACK_FAILED_NP:
        throw callback_error(exact, text);
    case GRPC_FILE_NP:
        throw file_error(exact, text);
    case GRPC_RAISED_NP:
        throw raised_error(exact, text);
    case GRPC_OBJECT_LOST_NP:
        throw object_lost(exact, text);
    case GRPC_HELD_LOST_NP:
        throw held_lost(exact, text);
    case GRPC_NOT_RUN_NP:
        throw not_run(exact, text);
    case GRPC_TIMEOUT_NP:
        throw timed_out(exact, text);
    case GRPC_CANCELED_NP:
        throw cancelled(exact, text);
    default:
        throw error(exact, text);
    }
}

// Throws unless the code is GRPC_NO_ERROR.
inline void check(grpc_error_t code)
{
    if (code != GRPC_NO_ERROR) {
        raise(code);
    }
}

} // namespace kumi::grpc

#endif
