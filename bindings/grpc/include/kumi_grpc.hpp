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
// Pass one argument for each parameter, in their order, but none for work arrays. The library compares types, sizes and
// shapes with the routine's description before it sends anything:
// - Numbers, including std::complex. Results need a variable of the routine's type; inputs may have any type that holds the
//   value.
// - Arrays: anything with data() and size() (std::vector, std::array, spans), and C arrays, also of several dimensions, of
//   the routine's type. Flat ones have the routine's memory order; shaped() gives one dimensions and an order, and converts
//   it.
// - Texts: string literals, std::string_view, std::string. Results need a std::string variable.
// - Callbacks: functions, lambdas, std::function. They return nothing and take numbers by value, and addresses, as in
//   grpc.h. An exception in a callback ends the call (callback_error).
// - Files: texts that are paths. The file is written, not the std::string.
// - kumi::grpc::held_array: an array that is at the server, or stays there.
// - kumi::grpc::defaulted: the parameter's default; for a number or text as a result: it is not wanted.
// - kumi::grpc::intermediate: an array of a kumi::grpc::transaction.
// Arguments must live until the call is over, and results must not be touched before. A call is over when call() returns, when
// get(), wait() or cancel() of the future returns, or when the future's destructor has cancelled it.
#ifndef KUMI_GRPC_HPP
#define KUMI_GRPC_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kumi_grpc/argument.hpp"
#include "kumi_grpc/context.hpp"
#include "kumi_grpc/error.hpp"
#include "kumi_grpc/function.hpp"
#include "kumi_grpc/held.hpp"
#include "kumi_grpc/transaction.hpp"

namespace kumi::grpc {

// Initialises the library and ends it: calls are possible while one of these lives.
class library {
public:
    // The server of KUMI_CALL_SERVER, or 127.0.0.1:7070.
    library() { check(grpc_initialize(nullptr)); }

    // With a configuration file, see grpc_initialize.
    explicit library(const std::string &configuration) { check(grpc_initialize(configuration.c_str())); }

    library(const library &) = delete;
    library &operator=(const library &) = delete;

    // Cancels calls in progress.
    ~library() { static_cast<void>(grpc_finalize()); }
};

// A call in progress.
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

    // Cancels the call if it was not waited for, because its results may be destroyed now.
    ~future() { drop(); }

    // Whether there is a call whose end was not reported.
    bool valid() const noexcept { return session_ != GRPC_SESSIONID_VOID; }

    // Its number, for the functions of grpc.h.
    grpc_sessionid_t session() const noexcept { return session_; }

    // Whether it is over; does not wait.
    bool ready() const
    {
        const grpc_error_t code = grpc_probe(session_);
        return code != GRPC_NOT_COMPLETED && (check(code), true);
    }

    // Waits for the end, and throws if the call failed. The end is reported once: afterwards valid() is false.
    void get()
    {
        const grpc_sessionid_t session = std::exchange(session_, GRPC_SESSIONID_VOID);
        check(grpc_wait(session));
    }

    // Cancels the call. A failure of the call is not thrown.
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

// Waits until one of the calls is over, and returns its index, the first of several; get() then reports the end. If no
// future is valid, returns the number of futures.
inline std::size_t wait_any(const std::vector<future> &futures)
{
    std::vector<grpc_sessionid_t> sessions;
    for (const future &one : futures) {
        if (one.valid()) {
            sessions.push_back(one.session());
        }
    }
    if (sessions.empty()) {
        return futures.size();
    }
    grpc_sessionid_t over = GRPC_SESSIONID_VOID;
    check(kumi_grpc_wait_over(sessions.data(), sessions.size(), &over));
    std::size_t index = 0;
    while (futures[index].session() != over) {
        index++;
    }
    return index;
}

// Threads, and bytes of memory, for which a call or an object asks; 0: as many as the server gives. A server that does not give that
// much refuses (refused_error, GRPC_TOO_LARGE_NP).
struct resources {
    int threads = 0;
    std::uint64_t memory = 0;
};

namespace detail {

// Owns a handle of grpc.h, which must stay at its address.
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

// A handle that `make` creates at its place.
template <class Handle, class Make>
Handle *made(const Make &make)
{
    auto place = std::make_unique<Handle>();
    check(make(place.get()));
    return place.release();
}

// Makes an object that asks for threads and memory. Without a server: at the first that can.
inline grpc_error_t make_object(grpc_object_handle_t_np *place, const char *server, const std::string &of_class,
                                const resources &asked)
{
    grpc_handle_attr_t_np attributes;
    check(grpc_handle_attr_initialize_np(&attributes));
    const std::unique_ptr<grpc_handle_attr_t_np, releases<grpc_handle_attr_t_np, grpc_handle_attr_destruct_np>> owner(&attributes);
    if (server != nullptr) {
        check(grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_HOSTNAME, server));
    }
    check(grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_FUNCNAME, of_class.c_str()));
    check(grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_THREADS_NP, &asked.threads));
    check(grpc_handle_attr_set_np(&attributes, GRPC_HANDLE_ATTR_MEMORY_NP, &asked.memory));
    return grpc_object_handle_init_with_attr_np(place, &attributes);
}

template <class... Arguments>
constexpr void all_live()
{
    static_assert(!(... || goes_too_early<Arguments>),
                  "kumi: a function that is a temporary does not live until the call is over; give it a name");
}

} // namespace detail

// A routine at a server. Calls in progress go on after its end.
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

    // Sets the time limit of later calls; 0: that of the configuration.
    void limit(std::chrono::milliseconds time) { attributes_.gsa_timeout_ms = static_cast<int>(time.count()); }

    // Sets the priority among the user's calls that wait at a metaserver: 0 to 9, 9 comes first.
    void priority(int first) { attributes_.gsa_priority = first; }

    // Later calls ask for these.
    void resources(const kumi::grpc::resources &asked)
    {
        attributes_.gsa_threads = asked.threads;
        attributes_.gsa_memory = asked.memory;
    }

    // Later calls give what their routines print to this receiver.
    void output(const kumi::grpc::output &receiver) { check(grpc_function_handle_output_np(handle_.get(), receiver.get())); }

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
    const grpc_session_attr_t_np &attributes() const noexcept { return attributes_; }

private:
    template <class... Arguments>
    void start(int is_session, grpc_sessionid_t *session, Arguments &&...arguments)
    {
        const auto begin = [&](const kumi_grpc_argument *raw, std::size_t count, const grpc_session_attr_t_np *attributes) {
            return kumi_grpc_call_arguments(handle_.get(), raw, count, is_session, session, attributes);
        };
        detail::start(begin, attributes_, std::forward<Arguments>(arguments)...);
    }

    detail::owned<grpc_function_handle_t, grpc_function_handle_destruct> handle_;
    grpc_session_attr_t_np attributes_{};
};

// An object of a class, whose state stays at a server from call to call. Calls on it run one after the other, in the order
// in which they began. It ends after its destruction with its last call. It also ends when a running method crashes, is
// cancelled or exceeds its time limit; later calls throw object_lost.
class object {
public:
    // At the first configured server that can make one; waits until it exists.
    explicit object(const std::string &of_class)
        : handle_(detail::made<grpc_object_handle_t_np>(
              [&](grpc_object_handle_t_np *place) { return grpc_object_handle_default_np(place, of_class.c_str()); }))
    {
    }

    // At the server HOST:PORT or unix:PATH, or at a server that this metaserver chooses.
    object(const std::string &server, const std::string &of_class)
        : handle_(detail::made<grpc_object_handle_t_np>([&](grpc_object_handle_t_np *place) {
              return grpc_object_handle_init_np(place, server.c_str(), of_class.c_str());
          }))
    {
    }

    // The same with threads and memory, which all calls on it have.
    object(const std::string &of_class, const resources &asked)
        : handle_(detail::made<grpc_object_handle_t_np>(
              [&](grpc_object_handle_t_np *place) { return detail::make_object(place, nullptr, of_class, asked); }))
    {
    }
    object(const std::string &server, const std::string &of_class, const resources &asked)
        : handle_(detail::made<grpc_object_handle_t_np>(
              [&](grpc_object_handle_t_np *place) { return detail::make_object(place, server.c_str(), of_class, asked); }))
    {
    }

    // Sets the time limit of later calls; 0: that of the configuration. A running call that exceeds it ends the object.
    void limit(std::chrono::milliseconds time) { attributes_.gsa_timeout_ms = static_cast<int>(time.count()); }

    // Later calls give what their methods print to this receiver.
    void output(const kumi::grpc::output &receiver) { check(grpc_object_handle_output_np(handle_.get(), receiver.get())); }

    // Whether the object exists, as far as the library knows without waiting.
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
        detail::start(begin, attributes_, std::forward<Arguments>(arguments)...);
    }

    detail::owned<grpc_object_handle_t_np, grpc_object_handle_destruct_np> handle_;
    grpc_session_attr_t_np attributes_{};
};

// Calls a routine at the first of the configured servers that has it.
template <class... Arguments>
void call(const std::string &routine, Arguments &&...arguments)
{
    handle(routine).call(std::forward<Arguments>(arguments)...);
}

} // namespace kumi::grpc

#endif
