// Callbacks: functions of the program that routines call; a part of kumi_grpc.hpp.
#ifndef KUMI_GRPC_FUNCTION_HPP
#define KUMI_GRPC_FUNCTION_HPP

#include <exception>

#include "argument.hpp"

namespace kumi::grpc::detail {

// The number in kumi_grpc_arguments.h for the type of a callback's argument.
template <class T>
constexpr std::uint64_t passed_as()
{
    if constexpr (std::is_pointer_v<T>) {
        using one = std::remove_cv_t<std::remove_pointer_t<T>>;
        // For texts, of signed or unsigned characters.
        constexpr int element = std::is_same_v<one, char> ? static_cast<int>(KUMI_GRPC_INT8) : element_of<one>();
        return static_cast<std::uint64_t>(element) + KUMI_GRPC_ADDRESS;
    } else {
        static_assert(is_number<T> && !is_complex<T>, "kumi: functions that routines call take numbers by value or by address");
        return static_cast<std::uint64_t>(element_of<T>());
    }
}

// The function that gets these arguments, directly or with its own address before them.
template <class F, class... Args>
struct signature {
    static constexpr std::array<std::uint64_t, sizeof...(Args)> types{passed_as<Args>()...};

    // No exception may leave the callback into C code.
    static void called(void *function, Args... args) noexcept
    {
        try {
            (*static_cast<F *>(function))(args...);
        } catch (const std::exception &error) {
            static_cast<void>(grpc_callback_failed_np(error.what()));
        } catch (...) {
            static_cast<void>(grpc_callback_failed_np(nullptr));
        }
    }
};

template <class F, class Method>
struct method_of {};
template <class F, class C, class... Args>
struct method_of<F, void (C::*)(Args...)> : signature<F, Args...> {};
template <class F, class C, class... Args>
struct method_of<F, void (C::*)(Args...) const> : signature<F, Args...> {};
template <class F, class C, class... Args>
struct method_of<F, void (C::*)(Args...) noexcept> : signature<F, Args...> {};
template <class F, class C, class... Args>
struct method_of<F, void (C::*)(Args...) const noexcept> : signature<F, Args...> {};

template <class F>
struct plain : std::false_type {};
template <class... Args>
struct plain<void(Args...)> : std::true_type {
    using of = signature<void (*)(Args...), Args...>;
};
template <class... Args>
struct plain<void (*)(Args...)> : plain<void(Args...)> {};
template <class... Args>
struct plain<void(Args...) noexcept> : plain<void(Args...)> {};
template <class... Args>
struct plain<void (*)(Args...) noexcept> : plain<void(Args...)> {};

template <class A, class = void>
struct is_object : std::false_type {};
template <class A>
struct is_object<A, std::void_t<decltype(&A::operator())>> : std::true_type {};

// Otherwise the argument of async() would be destroyed while the routine may still call it.
template <class A>
inline constexpr bool goes_too_early = is_object<bare<A>>::value && !std::is_lvalue_reference_v<A>;

// Functions and pointers to them.
template <class A>
struct argument<A, std::enable_if_t<plain<bare<A>>::value>> {
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        using of = typename plain<bare<A>>::of;
        kumi_grpc_argument raw{};
        raw.what = KUMI_GRPC_FUNCTION;
        raw.data = reinterpret_cast<void *>(+value);
        raw.dims = of::types.data();
        raw.dimensions = of::types.size();
        return raw;
    }
};

// Lambdas, std::function, and other objects with one call operator.
template <class A>
struct argument<A, std::enable_if_t<is_object<bare<A>>::value>> {
    std::remove_reference_t<A> &value;

    kumi_grpc_argument raw() const
    {
        using of = method_of<std::remove_reference_t<A>, decltype(&bare<A>::operator())>;
        kumi_grpc_argument raw{};
        raw.what = KUMI_GRPC_FUNCTION;
        raw.data = reinterpret_cast<void *>(&of::called);
        raw.count = 1;
        raw.taker = address(&value);
        raw.dims = of::types.data();
        raw.dimensions = of::types.size();
        return raw;
    }
};

} // namespace kumi::grpc::detail

#endif
