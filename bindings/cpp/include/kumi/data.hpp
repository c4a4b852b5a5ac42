/*
 * kumi/data.hpp - errors and data without the job: exceptions, kumi::span,
 * element types.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_DATA_HPP
#define KUMI_DATA_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <kumi.h>

namespace kumi {

/* ------------------------------------------------------------------------
 * Errors
 * ------------------------------------------------------------------------ */

/* A failed call; what() names the function and describes the error. */
class error : public std::runtime_error {
public:
	error(int code, const char *function, const std::string &detail)
	    : std::runtime_error(std::string(function) + ": " + detail),
	      code_(static_cast<kumi_error>(code))
	{
	}

	/* The number that kumi.h gives to this kind of failure. */
	kumi_error code() const noexcept { return code_; }

private:
	kumi_error code_;
};

/* KUMI_ERR_TRUNCATED: a message was longer than the buffer, and is lost; or a
 * record of a FIFO was, and stays there. */
class truncated : public error {
public:
	truncated(const char *function, std::size_t bytes)
	    : error(KUMI_ERR_TRUNCATED, function, kumi_error_detail()),
	      bytes_(bytes)
	{
	}

	/* The length in bytes that the buffer should have had. */
	std::size_t bytes() const noexcept { return bytes_; }

private:
	std::size_t bytes_;
};

/* ------------------------------------------------------------------------
 * Data
 * ------------------------------------------------------------------------ */

/* `size` contiguous elements that another object owns (std::span, which C++17
 * does not have). */
template <class T>
class span {
public:
	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t size) noexcept
	    : data_(data), size_(size)
	{
	}

	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	constexpr T &operator[](std::size_t i) const { return data_[i]; }

	/* `count` elements from number `first` on.
	 * Throws std::out_of_range if there are not so many. */
	constexpr span subspan(std::size_t first, std::size_t count) const
	{
		if (first > size_ || count > size_ - first)
			throw std::out_of_range("kumi::span::subspan");
		return span(data_ + first, count);
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

/* Operations of reductions, as in kumi.h. */
enum class op : int {
	sum = KUMI_SUM,
	product = KUMI_PRODUCT,
	min = KUMI_MIN,
	max = KUMI_MAX,
	bit_and = KUMI_BITAND,
	bit_or = KUMI_BITOR,
	bit_xor = KUMI_BITXOR
};

/* Whether reductions work on T: integers but bool, float and double. */
template <class T>
inline constexpr bool is_number =
    (std::is_integral_v<T> && !std::is_same_v<std::remove_cv_t<T>, bool> &&
     sizeof(T) <= 8) ||
    std::is_same_v<std::remove_cv_t<T>, float> ||
    std::is_same_v<std::remove_cv_t<T>, double>;

/* The kumi_type of a T for which is_number holds. */
template <class T>
constexpr kumi_type type_of() noexcept
{
	static_assert(is_number<T>, "kumi: not a type of kumi_type");
	if constexpr (std::is_floating_point_v<T>)
		return sizeof(T) == 4 ? KUMI_F32 : KUMI_F64;
	else if constexpr (std::is_signed_v<T>)
		return sizeof(T) == 1   ? KUMI_I8
		       : sizeof(T) == 2 ? KUMI_I16
		       : sizeof(T) == 4 ? KUMI_I32
		                        : KUMI_I64;
	else
		return sizeof(T) == 1   ? KUMI_U8
		       : sizeof(T) == 2 ? KUMI_U16
		       : sizeof(T) == 4 ? KUMI_U32
		                        : KUMI_U64;
}

/* Not for programs. */
namespace detail {

inline void check(int code, const char *function)
{
	if (code < KUMI_OK)
		throw error(code, function, kumi_error_detail());
}

/* For destructors, which report an error instead of throwing it.  True if there
 * was none.  In a child of the rank there is nothing to free. */
inline bool freed(int code, const char *function) noexcept
{
	if (code == KUMI_OK || code == KUMI_ERR_FORKED)
		return true;
	std::fprintf(stderr, "kumi: %s: %s\n", function, kumi_error_detail());
	return false;
}

inline void require(bool holds, const char *function, const char *what)
{
	if (!holds)
		throw error(KUMI_ERR_LENGTH, function, what);
}

template <class R, class = void>
struct is_range : std::false_type {};

template <class R>
struct is_range<R, std::void_t<decltype(std::data(std::declval<R &>())),
                               decltype(std::size(std::declval<R &>()))>>
    : std::true_type {};

template <class R>
inline constexpr bool range = is_range<std::remove_reference_t<R>>::value;

/* The elements of a range, or the one object. */
template <class R>
auto view(R &thing) noexcept
{
	if constexpr (range<R>) {
		using T = std::remove_pointer_t<decltype(std::data(thing))>;
		static_assert(std::is_trivially_copyable_v<T> &&
		                  !std::is_pointer_v<T>,
		              "kumi: elements must be trivially copyable and "
		              "not pointers");
		return span<T>(std::data(thing), std::size(thing));
	} else {
		static_assert(std::is_trivially_copyable_v<R> &&
		                  !std::is_pointer_v<R>,
		              "kumi: data must be trivially copyable and not a "
		              "pointer; for memory use kumi::span");
		return span<R>(std::addressof(thing), 1);
	}
}

/* The same, to be written to. */
template <class R>
auto target(R &thing) noexcept
{
	auto whole = view(thing);
	static_assert(!std::is_const_v<std::remove_reference_t<
	                  decltype(*whole.data())>>,
	              "kumi: this is constant and cannot be received into");
	return whole;
}

/* An output argument: a temporary object would be lost, a temporary span is
 * fine. */
template <class R>
inline constexpr bool is_output = range<R> || std::is_lvalue_reference_v<R>;

template <class T>
std::size_t bytes(span<T> data) noexcept
{
	return data.size() * sizeof(T);
}

/* Element type for functions that only move data: the type itself, or bytes. */
template <class T>
struct moved {
	static constexpr kumi_type type()
	{
		if constexpr (is_number<T>)
			return type_of<T>();
		else
			return KUMI_U8;
	}
	static constexpr std::size_t units = is_number<T> ? 1 : sizeof(T);
};

/* Elements as bytes; a number beyond all memory stays so, and is refused. */
template <class T>
constexpr std::size_t scaled(std::size_t elements) noexcept
{
	return elements > SIZE_MAX / sizeof(T) ? SIZE_MAX
	                                       : elements * sizeof(T);
}

template <class T, class U>
inline constexpr bool same =
    std::is_same_v<std::remove_cv_t<T>, std::remove_cv_t<U>>;

} // namespace detail

} // namespace kumi

#endif /* KUMI_DATA_HPP */
