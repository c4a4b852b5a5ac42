// Calls of routines on servers from C++17. Headers only, over grpc.h; link with -lkumi_grpc.
//
//     kumi::grpc::library grpc;                       // the servers of KUMI_CALL_SERVER
//     std::vector<double> a(n * n), b(n * n), c(n * n);
//     kumi::grpc::call("dmmul", n, a, b, c);
//
//     kumi::grpc::handle dmmul("dmmul");
//     kumi::grpc::future later = dmmul.async(n, a, b, c);
//     later.get();
//
//     kumi::grpc::object counter("counter");          // of a class, whose state stays at the server
//     counter.call("add", 3);
//
// Arguments are those of all parameters but work arrays, in their order. Types, sizes and shapes are compared with the routine's
// description before anything is sent:
//   - numbers, std::complex among them. A variable takes what comes back, and then must have the routine's type; what is sent only may
//     have any type that holds the value.
//   - arrays: whatever has data() and size() (std::vector, std::array, spans), and arrays of C, also of several dimensions, of
//     the routine's type. Flat ones lie as the routine has them; shaped() gives one dimensions and an order, from which it is
//     converted.
//   - texts: string literals, std::string_view, std::string. A std::string that is a variable takes what comes back.
//   - functions that the routine calls: functions, lambdas, std::function, which return nothing and take numbers by value and
//     addresses, as grpc.h says. What they throw ends the call (callback_error).
//   - files: texts that are paths. A std::string is not written to; the file is.
//   - kumi::grpc::defaulted: the parameter's default; for a number or text that comes back: it is not wanted.
// What is passed must live, and what comes back must be left alone, until the call is over: until call() returns, or get(), wait() or
// cancel() of the future, or its destructor, which cancels.
#ifndef KUMI_GRPC_HPP
#define KUMI_GRPC_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kumi_grpc/argument.hpp"
#include "kumi_grpc/error.hpp"
#include "kumi_grpc/function.hpp"

namespace kumi::grpc {

// The library's start and end: while one lives calls can be made.
class library {
public:
    // The server of KUMI_CALL_SERVER, or 127.0.0.1:7070.
    library() { check(grpc_initialize(nullptr)); }

    // As the file says, see grpc_initialize.
    explicit library(const std::string &configuration) { check(grpc_initialize(configuration.c_str())); }

    library(const library &) = delete;
    library &operator=(const library &) = delete;

    // Cancels what is under way.
    ~library() { static_cast<void>(grpc_finalize()); }
};

// A call that was begun.
class future {
public:
    future() = default;
    future(future &&other) noexcept : session_(std::exchange(other.session_, GRPC_SESSIONID_VOID)) {}

    future &operator=(future &&other) noexcept
    {
        if (this != &other) {
            drop();
            session_ = std::exchange(other.session_, GRPC_SESSIONID_VOID);
        }
        return *this;
    }

    // Cancels the call if nobody has waited for it: what it would write to may go.
    ~future() { drop(); }

    // Whether there is a call whose end was not told.
    bool valid() const noexcept { return session_ != GRPC_SESSIONID_VOID; }

    // Its number, for the functions of grpc.h.
    grpc_sessionid_t session() const noexcept { return session_; }

    // Whether it is over; does not wait.
    bool ready() const
    {
        const grpc_error_t code = grpc_probe(session_);
        return code != GRPC_NOT_COMPLETED && (check(code), true);
    }

    // Waits for its end. Throws what became of it. It is told once: valid() is false then.
    void get()
    {
        const grpc_sessionid_t session = std::exchange(session_, GRPC_SESSIONID_VOID);
        check(grpc_wait(session));
    }

    // Ends it. Throws nothing that became of it.
    void cancel()
    {
        const grpc_sessionid_t session = std::exchange(session_, GRPC_SESSIONID_VOID);
        check(grpc_cancel(session));
        static_cast<void>(grpc_wait(session));
    }

private:
    friend class handle;
    friend class object;
    explicit future(grpc_sessionid_t session) noexcept : session_(session) {}

    void drop() noexcept
    {
        if (valid() && grpc_cancel(session_) == GRPC_NO_ERROR) {
            static_cast<void>(grpc_wait(session_));
        }
        session_ = GRPC_SESSIONID_VOID;
    }

    grpc_sessionid_t session_ = GRPC_SESSIONID_VOID;
};

// Waits until one of them is over, and gives its index: the first, if several are. It is told by its get() then. Without one that
// is valid: the number of futures.
inline std::size_t wait_any(const std::vector<future> &futures)
{
    std::vector<grpc_sessionid_t> sessions;
    for (const future &one : futures) {
        sessions.push_back(one.session());
    }
    for (int pause = 20; ; pause = pause < 2000 ? 2 * pause : 2000) {
        grpc_sessionid_t over = GRPC_SESSIONID_VOID;
        const grpc_error_t code = grpc_probe_or(sessions.data(), sessions.size(), &over);
        bool any = false;
        for (std::size_t index = 0; index < sessions.size(); index++) {
            if (over != GRPC_SESSIONID_VOID && sessions[index] == over) {
                return index;
            }
            any = any || sessions[index] != GRPC_SESSIONID_VOID;
        }
        if (!any) {
            return futures.size();
        }
        if (code != GRPC_NONE_COMPLETED) {
            check(code);
        }
        detail::pause(pause);
    }
}

namespace detail {

// Owns a handle of grpc.h, which must stay where it is.
template <class Handle, grpc_error_t (*destruct)(Handle *)>
struct destructs {
    void operator()(Handle *handle) const noexcept
    {
        static_cast<void>(destruct(handle));
        delete handle;
    }
};
template <class Handle, grpc_error_t (*destruct)(Handle *)>
using owned = std::unique_ptr<Handle, destructs<Handle, destruct>>;

// A handle that `make` has made at its place.
template <class Handle, class Make>
Handle *made(const Make &make)
{
    auto place = std::make_unique<Handle>();
    check(make(place.get()));
    return place.release();
}

// Has `begin` begin a call with these arguments.
template <class Begin, class... Arguments>
void start(const Begin &begin, std::chrono::milliseconds limit, int priority, Arguments &&...arguments)
{
    const std::tuple<argument<Arguments>...> typed(argument<Arguments>{arguments}...);
    const auto raw = std::apply(
        [](const auto &...one) { return std::array<kumi_grpc_argument, sizeof...(Arguments)>{one.raw()...}; }, typed);
    grpc_session_attr_t_np attributes{};
    attributes.gsa_timeout_ms = static_cast<int>(limit.count());
    attributes.gsa_priority = priority;
    check(begin(raw.data(), raw.size(), &attributes));
}

template <class... Arguments>
constexpr void all_live()
{
    static_assert(!(... || goes_too_early<Arguments>),
                  "kumi: a function that is a temporary does not live until the call is over; give it a name");
}

} // namespace detail

// A routine at a server. When it goes, calls that were begun go on.
class handle {
public:
    // At the first of the configured servers that has it.
    explicit handle(const std::string &routine)
        : handle_(detail::made<grpc_function_handle_t>(
              [&](grpc_function_handle_t *place) { return grpc_function_handle_default(place, routine.c_str()); }))
    {
    }

    // At the server HOST:PORT or unix:PATH.
    handle(const std::string &server, const std::string &routine)
        : handle_(detail::made<grpc_function_handle_t>([&](grpc_function_handle_t *place) {
              return grpc_function_handle_init(place, server.c_str(), routine.c_str());
          }))
    {
    }

    // How long each call from now on may take; 0: as the configuration says.
    void limit(std::chrono::milliseconds time) { limit_ = time; }

    // Which of the user's calls through a metaserver that wait comes first: 0 to 9.
    void priority(int first) { priority_ = first; }

    // Calls, and waits for the end.
    template <class... Arguments>
    void call(Arguments &&...arguments)
    {
        start(0, nullptr, std::forward<Arguments>(arguments)...);
    }

    // Begins a call; returns when the arguments are sent.
    template <class... Arguments>
    future async(Arguments &&...arguments)
    {
        detail::all_live<Arguments...>();
        grpc_sessionid_t session = GRPC_SESSIONID_VOID;
        start(1, &session, std::forward<Arguments>(arguments)...);
        return future(session);
    }

    // For the functions of grpc.h.
    grpc_function_handle_t *get() const noexcept { return handle_.get(); }

private:
    template <class... Arguments>
    void start(int is_session, grpc_sessionid_t *session, Arguments &&...arguments)
    {
        const auto begin = [&](const kumi_grpc_argument *raw, std::size_t count, const grpc_session_attr_t_np *attributes) {
            return kumi_grpc_call_arguments(handle_.get(), raw, count, is_session, session, attributes);
        };
        detail::start(begin, limit_, priority_, std::forward<Arguments>(arguments)...);
    }

    detail::owned<grpc_function_handle_t, grpc_function_handle_destruct> handle_;
    std::chrono::milliseconds limit_{0};
    int priority_ = 0;
};

// An object of a class, whose state stays at a server from call to call. Calls on it run one after the other, as they were
// begun. It ends when this has gone and calls that were begun are over; also when a method crashes, is cancelled or takes too
// long while it runs: calls throw object_lost then.
class object {
public:
    // At the first of the configured servers that can make one; waits until it is there.
    explicit object(const std::string &of_class)
        : handle_(detail::made<grpc_object_handle_t_np>(
              [&](grpc_object_handle_t_np *place) { return grpc_object_handle_default_np(place, of_class.c_str()); }))
    {
    }

    // At the server HOST:PORT or unix:PATH, or where that metaserver chooses.
    object(const std::string &server, const std::string &of_class)
        : handle_(detail::made<grpc_object_handle_t_np>([&](grpc_object_handle_t_np *place) {
              return grpc_object_handle_init_np(place, server.c_str(), of_class.c_str());
          }))
    {
    }

    // How long each call from now on may take; 0: as the configuration says. One that is stopped while it runs ends the object.
    void limit(std::chrono::milliseconds time) { limit_ = time; }

    // Whether it is there, as far as can be seen without waiting.
    bool ready() const
    {
        const grpc_error_t code = grpc_object_handle_is_ready_np(handle_.get());
        return code != GRPC_OBJECT_LOST_NP && (check(code), true);
    }

    // Calls a method, and waits for the end.
    template <class... Arguments>
    void call(const std::string &method, Arguments &&...arguments)
    {
        start(method, 0, nullptr, std::forward<Arguments>(arguments)...);
    }

    // Begins a call of a method; returns when the arguments are sent.
    template <class... Arguments>
    future async(const std::string &method, Arguments &&...arguments)
    {
        detail::all_live<Arguments...>();
        grpc_sessionid_t session = GRPC_SESSIONID_VOID;
        start(method, 1, &session, std::forward<Arguments>(arguments)...);
        return future(session);
    }

    // For the functions of grpc.h.
    grpc_object_handle_t_np *get() const noexcept { return handle_.get(); }

private:
    template <class... Arguments>
    void start(const std::string &method, int is_session, grpc_sessionid_t *session, Arguments &&...arguments)
    {
        const auto begin = [&](const kumi_grpc_argument *raw, std::size_t count, const grpc_session_attr_t_np *attributes) {
            return kumi_grpc_invoke_arguments(handle_.get(), method.c_str(), raw, count, is_session, session, attributes);
        };
        detail::start(begin, limit_, 0, std::forward<Arguments>(arguments)...);
    }

    detail::owned<grpc_object_handle_t_np, grpc_object_handle_destruct_np> handle_;
    std::chrono::milliseconds limit_{0};
};

// Calls a routine at the first of the configured servers that has it.
template <class... Arguments>
void call(const std::string &routine, Arguments &&...arguments)
{
    handle(routine).call(std::forward<Arguments>(arguments)...);
}

} // namespace kumi::grpc

#endif
