// Conversion of C++ values to typed arguments; a part of kumi_grpc.hpp.
#ifndef KUMI_GRPC_ARGUMENT_HPP
#define KUMI_GRPC_ARGUMENT_HPP

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../kumi_grpc_arguments.h"
#include "error.hpp"

namespace kumi::grpc {

// The parameter's default; for a result: it is not wanted.
struct defaulted_t {};
inline constexpr defaulted_t defaulted{};

// Memory order of an array.
enum class order { c = GRPC_ORDER_C_NP, fortran = GRPC_ORDER_FORTRAN_NP };

// An array with dimensions.
template <class T>
struct shaped_array {
    T *data;
    std::vector<std::uint64_t> dims;
    order lies;
};

// Gives an array dimensions: shaped(v, {rows, columns}, order::fortran). It must have as many elements. The library compares
// the dimensions with the routine's, and converts the array if its memory order differs.
template <class Array>
auto shaped(Array &array, std::vector<std::uint64_t> dims, order lies = order::c)
{
    using element = std::remove_pointer_t<decltype(array.data())>;
    std::uint64_t count = 1;
    for (const std::uint64_t size : dims) {
        count *= size;
    }
    if (count != array.size()) {
        throw std::invalid_argument("an array of " + std::to_string(array.size()) + " elements has no such shape");
    }
    return shaped_array<element>{array.data(), std::move(dims), lies};
}

namespace detail {

template <class T>
inline constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <class T>
inline constexpr bool is_number = (std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, float> ||
                                  std::is_same_v<T, double> || is_complex<T>;

// The number of a type in kumi_grpc_arguments.h.
template <class T>
constexpr int element_of()
{
    static_assert(is_number<T>, "kumi: no routine takes arrays or numbers of this type");
    if constexpr (std::is_integral_v<T>) {
        const int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return (std::is_signed_v<T> ? KUMI_GRPC_INT8 : KUMI_GRPC_UINT8) + width;
    } else if constexpr (std::is_same_v<T, float>) {
        return KUMI_GRPC_FLOAT;
    } else if constexpr (std::is_same_v<T, double>) {
        return KUMI_GRPC_DOUBLE;
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
        return KUMI_GRPC_FLOAT_COMPLEX;
    } else {
        return KUMI_GRPC_DOUBLE_COMPLEX;
    }
}

template <class T>
void *address(T *data)
{
    // A const value is an input only.
    return const_cast<void *>(static_cast<const void *>(data));
}

template <class T>
kumi_grpc_argument array_of(T *data, std::size_t count, bool writable)
{
    kumi_grpc_argument raw{};
    raw.what = KUMI_GRPC_ARRAY;
    raw.element = element_of<std::remove_const_t<T>>();
    raw.writable = writable && !std::is_const_v<T>;
    raw.data = address(data);
    raw.count = count;
    return raw;
}

inline kumi_grpc_argument text_of(std::string_view text)
{
    kumi_grpc_argument raw{};
    raw.what = KUMI_GRPC_TEXT;
    raw.data = address(text.data());
    raw.count = text.size();
    return raw;
}

extern "C" inline void kumi_grpc_assign(void *target, const char *text, std::size_t length)
{
    static_cast<std::string *>(target)->assign(text, length);
}

// `A` is the type deduced for a forwarding reference: it distinguishes variables from temporaries.
template <class A, class = void>
struct argument {
    static_assert(sizeof(A) == 0, "kumi: no routine takes an argument of this type");
};

template <class A>
using bare = std::remove_cv_t<std::remove_reference_t<A>>;

// A variable that may be written to.
template <class A>
inline constexpr bool is_variable = std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>;

template <class A>
struct argument<A, std::enable_if_t<std::is_same_v<bare<A>, defaulted_t>>> {
    const defaulted_t &value;
    kumi_grpc_argument raw() const { return kumi_grpc_argument{}; }
};

template <class A>
struct argument<A, std::enable_if_t<is_number<bare<A>>>> {
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        kumi_grpc_argument raw = array_of(&value, 1, is_variable<A>);
        raw.what = KUMI_GRPC_NUMBER;
        return raw;
    }
};

template <class A>
struct argument<A, std::enable_if_t<std::is_same_v<bare<A>, std::string>>> {
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        kumi_grpc_argument raw = text_of(value);
        // The text moves when it grows, and the variable stays.
        raw.source = &value;
        raw.source_bytes = sizeof value;
        if constexpr (is_variable<A>) {
            raw.take = kumi_grpc_assign;
            raw.taker = &value;
        }
        return raw;
    }
};

// Texts that are only sent: literals, pointers to them, views.
template <class A>
inline constexpr bool is_text = !std::is_same_v<bare<A>, std::string> && std::is_convertible_v<A, std::string_view>;

template <class A>
struct argument<A, std::enable_if_t<is_text<A>>> {
    std::remove_reference_t<A> &value;
    kumi_grpc_argument raw() const { return text_of(std::string_view(value)); }
};

// Arrays of C, of any number of dimensions.
template <class A>
struct argument<A, std::enable_if_t<std::is_array_v<std::remove_reference_t<A>> && !is_text<A>>> {
    using array = std::remove_reference_t<A>;
    using element = std::remove_all_extents_t<array>;
    array &value;
    std::array<std::uint64_t, std::rank_v<array>> dims = sizes(std::make_index_sequence<std::rank_v<array>>());

    template <std::size_t... Index>
    static std::array<std::uint64_t, std::rank_v<array>> sizes(std::index_sequence<Index...>)
    {
        return {std::extent_v<array, Index>...};
    }

    kumi_grpc_argument raw() const
    {
        // Of the first element: the elements of an array are contiguous.
        kumi_grpc_argument raw = array_of(reinterpret_cast<element *>(&value), sizeof(array) / sizeof(element), is_variable<A>);
        raw.order = GRPC_ORDER_C_NP;
        raw.dims = dims.data();
        // One dimension counts as none: a vector may stand for a matrix in the routine's memory order.
        raw.dimensions = dims.size() > 1 ? dims.size() : 0;
        return raw;
    }
};

template <class T>
struct is_shaped : std::false_type {};
template <class T>
struct is_shaped<shaped_array<T>> : std::true_type {};

template <class A>
struct argument<A, std::enable_if_t<is_shaped<bare<A>>::value>> {
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        std::size_t count = 1;
        for (const std::uint64_t size : value.dims) {
            count *= size;
        }
        kumi_grpc_argument raw = array_of(value.data, count, true);
        raw.order = static_cast<int>(value.lies);
        raw.dims = value.dims.data();
        raw.dimensions = value.dims.size();
        return raw;
    }
};

template <class A, class = void>
struct has_elements : std::false_type {};
template <class A>
struct has_elements<A, std::void_t<decltype(std::declval<A &>().data()), decltype(std::declval<A &>().size())>>
    : std::true_type {};

// Containers and views: anything with data() and size(). A temporary view may be written to, a temporary container not.
template <class A>
struct argument<A, std::enable_if_t<has_elements<bare<A>>::value && !std::is_same_v<bare<A>, std::string> && !is_text<A> &&
                                    !is_shaped<bare<A>>::value>> {
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        // A const object with non-const elements is a view.
        using element = std::remove_pointer_t<decltype(std::declval<const bare<A> &>().data())>;
        constexpr bool is_view = !std::is_const_v<element>;
        return array_of(value.data(), value.size(), std::is_lvalue_reference_v<A> || is_view);
    }
};

// Begins a call with these arguments by means of `begin`.
template <class Begin, class... Arguments>
void start(const Begin &begin, const grpc_session_attr_t_np &attributes, Arguments &&...arguments)
{
    const std::tuple<argument<Arguments>...> typed(argument<Arguments>{arguments}...);
    const auto raw = std::apply(
        [](const auto &...one) { return std::array<kumi_grpc_argument, sizeof...(Arguments)>{one.raw()...}; }, typed);
    check(begin(raw.data(), raw.size(), &attributes));
}

} // namespace detail
} // namespace kumi::grpc

#endif
