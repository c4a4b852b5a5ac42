// Arrays that stay at a server, and what routines print; a part of kumi_grpc.hpp.
#ifndef KUMI_GRPC_HELD_HPP
#define KUMI_GRPC_HELD_HPP

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "argument.hpp"
#include "error.hpp"

namespace kumi::grpc {

namespace detail {

// What the library makes and frees.
template <class Thing, grpc_error_t (*release)(Thing *)>
struct releases {
    void operator()(Thing *thing) const noexcept { static_cast<void>(release(thing)); }
};

template <class Thing, grpc_error_t (*create)(Thing **)>
Thing *created()
{
    Thing *thing = nullptr;
    check(create(&thing));
    return thing;
}

} // namespace detail

// Stands for an array at a server. As an argument of a call it is a result that stays there, or an input that does not travel.
//
//     kumi::grpc::held_array ab;
//     dmmul.call(n, a, b, ab);
//     dmmul.call(n, ab, c, d);
//     std::vector<double> here = ab.fetch<double>();
//
// All calls that use it must be by handles of one server, or of one metaserver: calls that read it then run at its server, or throw
// held_lost. The server drops the array at the end of this object.
class held_array {
public:
    // Holds nothing.
    held_array() : array_(detail::created<grpc_held_array_t_np, grpc_held_array_create_np>()) {}

    // Sends an array, anything with data() and size(), to the server of a handle, which then holds it in this order. Later calls
    // compare its length only. Not by handles of a metaserver.
    template <class Handle, class Array>
    void put(const Handle &at, const Array &array)
    {
        using element = std::remove_cv_t<std::remove_pointer_t<decltype(array.data())>>;
        static_assert(detail::is_number<element>, "kumi: no routine takes arrays of this type");
        check(grpc_held_array_put_np(array_.get(), at.get(), array.data(), array.size() * sizeof(element)));
    }

    // Its length in bytes.
    std::size_t bytes() const
    {
        std::size_t bytes = 0;
        check(grpc_held_array_bytes_np(array_.get(), &bytes));
        return bytes;
    }

    // A copy of its elements, in the memory order of the routine that made it.
    template <class T>
    std::vector<T> fetch() const
    {
        static_assert(detail::is_number<T>, "kumi: no routine makes arrays of this type");
        std::vector<T> elements(bytes() / sizeof(T));
        check(grpc_held_array_fetch_np(array_.get(), elements.data(), elements.size() * sizeof(T)));
        return elements;
    }

    // For the functions of grpc.h.
    grpc_held_array_t_np *get() const noexcept { return array_.get(); }

private:
    std::unique_ptr<grpc_held_array_t_np, detail::releases<grpc_held_array_t_np, grpc_held_array_release_np>> array_;
};

// What the routines of calls have printed.
struct printed {
    std::string text;
    // Something is missing: a server passes on 1 MiB of each call, and 4 MiB are kept.
    bool is_cut;
};

// Receives what routines print: handle.output(), object.output().
class output {
public:
    output() : output_(detail::created<grpc_output_t_np, grpc_output_create_np>()) {}

    // Takes what has come since the last time. One thread at a time takes from a receiver: the next one frees what this one copies.
    printed take()
    {
        const char *bytes = nullptr;
        std::size_t length = 0;
        int is_cut = 0;
        check(grpc_output_take_np(output_.get(), &bytes, &length, &is_cut));
        return {std::string(bytes, length), is_cut != 0};
    }

    // For the functions of grpc.h.
    grpc_output_t_np *get() const noexcept { return output_.get(); }

private:
    std::unique_ptr<grpc_output_t_np, detail::releases<grpc_output_t_np, grpc_output_destruct_np>> output_;
};

namespace detail {

template <class A>
struct argument<A, std::enable_if_t<std::is_same_v<bare<A>, held_array>>> {
    static_assert(std::is_lvalue_reference_v<A>, "kumi: a held array that is a temporary goes before anybody can use it");
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        kumi_grpc_argument raw{};
        raw.what = KUMI_GRPC_HELD;
        raw.writable = is_variable<A>;
        raw.data = value.get();
        return raw;
    }
};

} // namespace detail
} // namespace kumi::grpc

#endif
