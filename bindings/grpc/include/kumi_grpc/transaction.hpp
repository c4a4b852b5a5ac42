// Transactions: calls that are recorded and then run together; a part of kumi_grpc.hpp.
#ifndef KUMI_GRPC_TRANSACTION_HPP
#define KUMI_GRPC_TRANSACTION_HPP

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "argument.hpp"
#include "error.hpp"
#include "function.hpp"
#include "held.hpp"

namespace kumi::grpc {

// An array that one call of a transaction makes and later ones read. It stays at the servers, and goes with the transaction.
class intermediate {
public:
    // For the functions of grpc.h.
    grpc_intermediate_t_np *get() const noexcept { return array_; }

private:
    friend class transaction;
    explicit intermediate(grpc_intermediate_t_np *array) noexcept : array_(array) {}

    grpc_intermediate_t_np *array_;
};

namespace detail {

template <class A>
struct argument<A, std::enable_if_t<std::is_same_v<bare<A>, intermediate>>> {
    const intermediate &value;

    kumi_grpc_argument raw() const
    {
        kumi_grpc_argument raw{};
        raw.what = KUMI_GRPC_HELD;
        raw.writable = 1;
        raw.data = value.get();
        return raw;
    }
};

template <class A, class = void>
struct is_container : std::false_type {};
// The elements of a container are as const as it is; those of a view are not.
template <class A>
struct is_container<A, std::enable_if_t<has_elements<A>::value && !std::is_same_v<A, std::string> &&
                                        !std::is_const_v<std::remove_pointer_t<decltype(std::declval<A &>().data())>> &&
                                        std::is_const_v<std::remove_pointer_t<decltype(std::declval<const A &>().data())>>>>
    : std::true_type {};

// Its memory would be gone when the call runs.
template <class A>
inline constexpr bool is_gone_at_end = !std::is_lvalue_reference_v<A> && is_container<bare<A>>::value;

} // namespace detail

// Records calls, and runs them together on several servers. Calls that do not depend on each other run at the same time. Arrays go
// straight from server to server; which call comes after which follows from them.
//
//     kumi::grpc::transaction t;
//     const kumi::grpc::intermediate ab = t.array();
//     t.call(dmmul, n, a, b, ab);
//     t.call(dmmul, n, ab, c, d);
//     t.end();
//
// Arrays, and variables for results, are lent until end() has returned or the transaction is gone: declare them before it. One that
// goes without an end runs nothing. Numbers and texts that calls give are in place when end() has returned.
class transaction {
public:
    // At the servers, or the metaserver, of the configuration.
    transaction() : transaction_(begun(nullptr)) {}

    // At these servers, addresses with commas between them, or at this metaserver.
    explicit transaction(const std::string &servers) : transaction_(begun(servers.c_str())) {}

    // Sets the priority of its calls at a metaserver: 0 to 9, 9 comes first.
    void priority(int first) { check(grpc_transaction_priority_np(transaction_.get(), first)); }

    // An array that stays at the servers.
    intermediate array()
    {
        grpc_intermediate_t_np *made = nullptr;
        check(grpc_transaction_intermediate_np(transaction_.get(), &made));
        return intermediate(made);
    }

    // Records a call with a handle of one of the servers; returns its number. If it throws, nothing is recorded. Types, sizes and
    // shapes of arrays are compared by end(). Of what is set at the handle, the time limit holds.
    template <class Handle, class... Arguments>
    int call(const Handle &routine, Arguments &&...arguments)
    {
        static_assert(!(... || detail::is_gone_at_end<Arguments>),
                      "kumi: an array that is a temporary does not live until the transaction ends; give it a name");
        int number = -1;
        const auto record = [&](const kumi_grpc_argument *raw, std::size_t count, const grpc_session_attr_t_np *attributes) {
            return kumi_grpc_transaction_call_arguments(transaction_.get(), &number, routine.get(), raw, count, attributes);
        };
        detail::start(record, routine.attributes(), std::forward<Arguments>(arguments)...);
        return number;
    }

    // Runs the calls and waits. Throws what the first of those that failed ended with; the text names all of them.
    void end() { check(grpc_transaction_end_np(transaction_.get())); }

    // Throws what this call ended with: not_run if a call before it failed. GRPC_NOT_COMPLETED: the transaction has not ended.
    void get(int call) const
    {
        const grpc_error_t code = grpc_transaction_get_error_np(transaction_.get(), call);
        if (code == GRPC_NOT_COMPLETED) {
            throw error(code, "GRPC_NOT_COMPLETED: the transaction has not ended");
        }
        check(code);
    }

    // Gives it up: before its end nothing runs; while another thread is in end(), its calls are cancelled.
    void abandon() { check(grpc_transaction_abandon_np(transaction_.get())); }

    // For the functions of grpc.h.
    grpc_transaction_t_np *get() const noexcept { return transaction_.get(); }

private:
    static grpc_transaction_t_np *begun(const char *servers)
    {
        grpc_transaction_t_np *made = nullptr;
        check(grpc_transaction_begin_np(&made, servers));
        return made;
    }

    std::unique_ptr<grpc_transaction_t_np, detail::releases<grpc_transaction_t_np, grpc_transaction_destruct_np>> transaction_;
};

} // namespace kumi::grpc

#endif
