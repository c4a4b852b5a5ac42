/*
 * kumi/window.hpp - windows.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_WINDOW_HPP
#define KUMI_WINDOW_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <kumi.hpp>

namespace kumi {

/* ------------------------------------------------------------------------
 * Windows
 * ------------------------------------------------------------------------ */

/* A window of elements of type T.  It frees its piece when it ends: make sure
 * first (context::barrier) that no other rank still uses it. */
template <class T>
class window : public window_base {
	static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
	                  !std::is_const_v<T> && alignof(T) <= 8,
	              "kumi: elements of windows must be trivially copyable, not "
	              "pointers, and aligned to at most 8 bytes");

public:
	/* Collective: this rank's piece has `elements` elements, all bits
	 * zero.  The others have only `rights` to it. */
	window(context &job, std::size_t elements,
	       unsigned rights = KUMI_RIGHT_ALL)
	    : window_base(job.alive_)
	{
		detail::check(kumi_window_create_with(
		                  detail::scaled<T>(elements), rights, &handle_),
		              "kumi_window_create_with");
		piece_ = span<T>(static_cast<T *>(kumi_window_base(handle_)),
		                 elements);
	}

	/* Collective, beside any other window(): this rank's piece is `memory`,
	 * a range of T (std::array, std::vector, kumi::span), as it is.  It must
	 * outlive the window and keep its size and address until then: declare it
	 * before the window.  For atomic operations it is aligned to 8, for FIFOs
	 * to KUMI_FIFO_ALIGNMENT.  A destructor that cannot free such a window
	 * (while a request uses the memory, say) ends the program
	 * (std::terminate): others would write to memory that is gone. */
	template <class R, class = std::enable_if_t<detail::range<R>>>
	window(context &job, R &&memory, unsigned rights = KUMI_RIGHT_ALL)
	    : window_base(job.alive_)
	{
		static_assert(detail::outlives<R>,
		              "kumi: the memory of a window must outlive it");
		elements(memory);
		span<T> own = detail::target(memory);
		detail::check(kumi_window_register(own.data(), detail::bytes(own),
		                                   rights, &handle_),
		              "kumi_window_register");
		piece_ = own;
		registered_ = true;
	}

	window(const window &) = delete;
	window &operator=(const window &) = delete;

	window(window &&other) noexcept { swap(other); }
	/* The previous window of this object ends with `other`. */
	window &operator=(window &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Frees the piece before the destructor would, which cannot throw.
	 * An error leaves the window unchanged. */
	void free()
	{
		detail::check(release(), "kumi_window_free");
		piece_ = span<T>();
	}

	/* This rank's piece: see kumi_window_base() for when to read it.  After
	 * the end of the job it is empty; [] does not check that. */
	span<T> piece() const noexcept { return ended() ? span<T>() : piece_; }
	T *data() const noexcept { return piece().data(); }
	std::size_t size() const noexcept { return piece().size(); }
	T *begin() const noexcept { return piece().begin(); }
	T *end() const noexcept { return piece().end(); }
	T &operator[](std::size_t i) const { return piece_[i]; }

	/* Copies data, one T or a range of them, to rank `to`'s elements from
	 * `offset` on. */
	template <class R>
	void put(int to, std::size_t offset, const R &data)
	{
		auto what = elements(data);
		detail::check(kumi_window_put(handle_, to,
		                              detail::scaled<T>(offset),
		                              what.data(), detail::bytes(what)),
		              "kumi_window_put");
	}

	/* The same, then rank `to`'s counter `notify` goes up by 1. */
	template <class R>
	void put_notify(int to, std::size_t offset, const R &data,
	                unsigned notify)
	{
		auto what = elements(data);
		detail::check(kumi_window_put_notify(
		                  handle_, to, detail::scaled<T>(offset),
		                  what.data(), detail::bytes(what), notify),
		              "kumi_window_put_notify");
	}

	/* The same as put(), with counters that go up when it is in place. */
	template <class R>
	void put(int to, std::size_t offset, const R &data, const after &then)
	{
		auto what = elements(data);
		detail::check(kumi_window_put_with(
		                  handle_, to, detail::scaled<T>(offset),
		                  what.data(), detail::bytes(what), then.notify,
		                  detail::handle(then, "kumi_window_put_with")),
		              "kumi_window_put_with");
	}

	/* Fills `into`, one T or a range of them, from rank `from`'s elements
	 * from `offset` on. */
	template <class R>
	void get(int from, std::size_t offset, R &&into) const
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto where = detail::target(into);
		static_assert(
		    detail::same<T, std::remove_reference_t<
		                        decltype(*where.data())>>,
		    "kumi: the window has elements of another type");
		detail::check(kumi_window_get(handle_, from,
		                              detail::scaled<T>(offset),
		                              detail::bytes(where), where.data()),
		              "kumi_window_get");
	}

	/* Rank `from`'s element `offset`. */
	T get(int from, std::size_t offset) const
	{
		T value{};
		get(from, offset, value);
		return value;
	}

	/* Copies data, which has the elements of all blocks one after the
	 * other, to these blocks of rank `to`'s elements.
	 * Throws error KUMI_ERR_LENGTH if the numbers of elements differ. */
	template <class R>
	void put_strided(int to, const blocks &where, const R &data,
	                 const after &then = {})
	{
		auto what = elements(data);
		where.require(what.size(), "kumi_window_put_strided");
		detail::check(
		    kumi_window_put_strided(
		        handle_, to, detail::scaled<T>(where.offset),
		        detail::scaled<T>(where.stride),
		        detail::scaled<T>(where.length), where.count,
		        what.data(), then.notify,
		        detail::handle(then, "kumi_window_put_strided")),
		    "kumi_window_put_strided");
	}

	/* Fills `into`, a range, from these blocks of rank `from`'s elements.
	 * Throws error KUMI_ERR_LENGTH if the numbers of elements differ. */
	template <class R>
	void get_strided(int from, const blocks &where, R &&into) const
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		elements(into);
		auto place = detail::target(into);
		where.require(place.size(), "kumi_window_get_strided");
		detail::check(kumi_window_get_strided(
		                  handle_, from, detail::scaled<T>(where.offset),
		                  detail::scaled<T>(where.stride),
		                  detail::scaled<T>(where.length), where.count,
		                  place.data()),
		              "kumi_window_get_strided");
	}

	/* Copies data to any number of pieces of rank `to`'s elements, each
	 * filled before the next, in any order, of any lengths.  They may overlap:
	 * the last one's elements remain.
	 * Throws error KUMI_ERR_LENGTH if the numbers of elements differ. */
	template <class R>
	void put_list(int to, const std::vector<kumi::piece> &pieces,
	              const R &data, const after &then = {})
	{
		put_buffers(to, pieces, {detail::buffer(elements(data))}, then,
		            "kumi_window_put_list");
	}

	/* The same from several ranges, which are taken one after the other:
	 * `data` is a range of ranges.  Ends of ranges and of pieces need not
	 * coincide. */
	template <class Rs>
	void put_lists(int to, const std::vector<kumi::piece> &pieces,
	               const Rs &data, const after &then = {})
	{
		std::vector<kumi_buffer> buffers;
		for (const auto &one : data)
			buffers.push_back(detail::buffer(elements(one)));
		put_buffers(to, pieces, buffers, then, "kumi_window_put_lists");
	}

	/* The reverse: fills `into`, one T or a range of them, from these pieces
	 * of rank `from`'s elements, one after the other.
	 * Throws error KUMI_ERR_LENGTH if the numbers of elements differ. */
	template <class R>
	void get_list(int from, const std::vector<kumi::piece> &pieces,
	              R &&into) const
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		elements(into);
		get_buffers(from, pieces, {detail::buffer(detail::target(into))},
		            "kumi_window_get_list");
	}

	/* The same into several ranges, which are filled one after the other.
	 * Throws error KUMI_ERR_LENGTH also if two of them overlap. */
	template <class Rs>
	void get_lists(int from, const std::vector<kumi::piece> &pieces,
	               Rs &&into) const
	{
		static_assert(detail::is_output<Rs>, "kumi: give a variable");
		std::vector<kumi_buffer> buffers;
		for (auto &one : into) {
			elements(one);
			buffers.push_back(detail::buffer(detail::target(one)));
		}
		get_buffers(from, pieces, buffers, "kumi_window_get_lists");
	}

	/* Copies data to the elements from `offset` on of several ranks, a
	 * range of int, and waits until all have it. */
	template <class Ranks, class R>
	void multicast(const Ranks &ranks, std::size_t offset, const R &data,
	               int notify = KUMI_NO_NOTIFY)
	{
		auto members = numbers(ranks);
		auto what = elements(data);
		detail::check(kumi_window_multicast(
		                  handle_, members.data(), members.size(),
		                  detail::scaled<T>(offset), what.data(),
		                  detail::bytes(what), notify),
		              "kumi_window_multicast");
	}

	/* Atomic operations on rank `to`'s element `offset`: each is one step
	 * and returns the old value.  fetch_ functions are for integers of 4
	 * and 8 bytes and wrap around; swap and compare_swap are for all
	 * elements of these sizes, and compare their bytes. */
	T fetch_add(int to, std::size_t offset, T operand)
	{
		return fetch(kumi_window_fetch_add, kumi_window_fetch_add_u32,
		             "kumi_window_fetch_add", to, offset, operand);
	}

	T fetch_and(int to, std::size_t offset, T operand)
	{
		return fetch(kumi_window_fetch_and, kumi_window_fetch_and_u32,
		             "kumi_window_fetch_and", to, offset, operand);
	}

	T fetch_or(int to, std::size_t offset, T operand)
	{
		return fetch(kumi_window_fetch_or, kumi_window_fetch_or_u32,
		             "kumi_window_fetch_or", to, offset, operand);
	}

	T fetch_xor(int to, std::size_t offset, T operand)
	{
		return fetch(kumi_window_fetch_xor, kumi_window_fetch_xor_u32,
		             "kumi_window_fetch_xor", to, offset, operand);
	}

	/* Stores `value`. */
	T swap(int to, std::size_t offset, T value)
	{
		return atomic(kumi_window_swap, kumi_window_swap_u32,
		              "kumi_window_swap", to, offset, value);
	}

	/* Stores `value` if the old value is `expected`. */
	T compare_swap(int to, std::size_t offset, T expected, T value)
	{
		return atomic(kumi_window_compare_swap,
		              kumi_window_compare_swap_u32,
		              "kumi_window_compare_swap", to, offset, expected,
		              value);
	}

	/* Starts put() and returns at once: the request has ended when the data
	 * is in place, or already when it may change.  `data` must outlive the
	 * request. */
	template <class R>
	request iput(int to, std::size_t offset, R &&data,
	             int notify = KUMI_NO_NOTIFY, put_end end = put_end::placed)
	{
		request started(alive_);
		put_request(to, offset, std::forward<R>(data), notify, end,
		            nullptr, &started.handle_);
		return started;
	}

	/* The same with a report in place of a request. */
	template <class R>
	void iput(int to, std::size_t offset, R &&data, const report &where,
	          int notify = KUMI_NO_NOTIFY, put_end end = put_end::placed)
	{
		kumi_report told = detail::described(where, "kumi_window_iput");
		put_request(to, offset, std::forward<R>(data), notify, end, &told,
		            nullptr);
	}

	/* Starts get() into `into`, one T or a range of them, which must outlive
	 * the request. */
	template <class R>
	request iget(int from, std::size_t offset, R &&into) const
	{
		request started(alive_);
		get_request(from, offset, std::forward<R>(into), nullptr,
		            &started.handle_);
		return started;
	}

	/* The same with a report in place of a request. */
	template <class R>
	void iget(int from, std::size_t offset, R &&into,
	          const report &where) const
	{
		kumi_report told = detail::described(where, "kumi_window_iget");
		get_request(from, offset, std::forward<R>(into), &told, nullptr);
	}

	/* Starts a get of `count` elements into memory of the future. */
	future<std::vector<T>> iget_vector(int from, std::size_t offset,
	                                   std::size_t count) const
	{
		static_assert(!std::is_same_v<T, bool>,
		              "kumi: a vector of bool has no elements in memory");
		std::vector<T> elements(count);
		request started(alive_);
		get_request(from, offset, span<T>(elements.data(), count), nullptr,
		            &started.handle_);
		return future<std::vector<T>>(std::move(started),
		                              std::move(elements));
	}

	/* Start atomic operations; the future has the old value. */
	future<T> ifetch_add(int to, std::size_t offset, T operand)
	{
		return ifetch(to, offset, KUMI_FETCH_ADD, operand);
	}

	future<T> ifetch_and(int to, std::size_t offset, T operand)
	{
		return ifetch(to, offset, KUMI_FETCH_AND, operand);
	}

	future<T> ifetch_or(int to, std::size_t offset, T operand)
	{
		return ifetch(to, offset, KUMI_FETCH_OR, operand);
	}

	future<T> ifetch_xor(int to, std::size_t offset, T operand)
	{
		return ifetch(to, offset, KUMI_FETCH_XOR, operand);
	}

	future<T> iswap(int to, std::size_t offset, T value)
	{
		return iatomic(to, offset, KUMI_SWAP, value, T{});
	}

	future<T> icompare_swap(int to, std::size_t offset, T expected, T value)
	{
		return iatomic(to, offset, KUMI_COMPARE_SWAP, expected, value);
	}

private:
	template <class R>
	void put_request(int to, std::size_t offset, R &&data, int notify,
	                 put_end end, const kumi_report *told,
	                 kumi_request *handle)
	{
		static_assert(detail::outlives<R>,
		              "kumi: the data of a request must outlive it");
		auto what = elements(data);
		detail::check(kumi_window_iput(
		                  handle_, to, detail::scaled<T>(offset),
		                  what.data(), detail::bytes(what), notify,
		                  static_cast<int>(end), told, handle),
		              "kumi_window_iput");
	}

	template <class R>
	void get_request(int from, std::size_t offset, R &&into,
	                 const kumi_report *told, kumi_request *handle) const
	{
		static_assert(detail::outlives<R>,
		              "kumi: the memory of a request must outlive it");
		elements(into);
		auto where = detail::target(into);
		detail::check(kumi_window_iget(handle_, from,
		                               detail::scaled<T>(offset),
		                               detail::bytes(where),
		                               where.data(), told, handle),
		              "kumi_window_iget");
	}

	future<T> ifetch(int to, std::size_t offset, kumi_atomic operation,
	                 T operand)
	{
		static_assert(is_number<T> && std::is_integral_v<T>,
		              "kumi: this operation is for integers");
		return iatomic(to, offset, operation, operand, T{});
	}

	future<T> iatomic(int to, std::size_t offset, kumi_atomic operation,
	                  T operand, T value)
	{
		static_assert(sizeof(T) == 4 || sizeof(T) == 8,
		              "kumi: atomic operations are for elements of 4 and "
		              "8 bytes");
		using word = std::conditional_t<sizeof(T) == 4, std::uint32_t,
		                                std::uint64_t>;
		request started(alive_);
		int code = 0;
		if constexpr (sizeof(T) == 4)
			code = kumi_window_iatomic_u32(
			    handle_, to, detail::scaled<T>(offset), operation,
			    detail::bits<word>(operand), detail::bits<word>(value),
			    nullptr, &started.handle_);
		else
			code = kumi_window_iatomic(
			    handle_, to, detail::scaled<T>(offset), operation,
			    detail::bits<word>(operand), detail::bits<word>(value),
			    nullptr, &started.handle_);
		detail::check(code, "kumi_window_iatomic");
		return future<T>(std::move(started));
	}

	template <class R>
	static auto elements(const R &data) noexcept
	{
		auto what = detail::view(data);
		static_assert(
		    detail::same<T,
		                 std::remove_reference_t<decltype(*what.data())>>,
		    "kumi: the window has elements of another type");
		return what;
	}

	void put_buffers(int to, const std::vector<kumi::piece> &pieces,
	                 const std::vector<kumi_buffer> &buffers,
	                 const after &then, const char *function)
	{
		std::vector<kumi_piece> places = detail::scaled<T>(pieces);
		detail::check(kumi_window_put_lists(
		                  handle_, to, places.data(), places.size(),
		                  buffers.data(), buffers.size(), then.notify,
		                  detail::handle(then, function)),
		              function);
	}

	void get_buffers(int from, const std::vector<kumi::piece> &pieces,
	                 const std::vector<kumi_buffer> &buffers,
	                 const char *function) const
	{
		std::vector<kumi_piece> places = detail::scaled<T>(pieces);
		detail::check(kumi_window_get_lists(handle_, from, places.data(),
		                                    places.size(),
		                                    buffers.data(),
		                                    buffers.size()),
		              function);
	}

	template <class Long, class Short>
	T fetch(Long wide, Short narrow, const char *function, int to,
	        std::size_t offset, T operand)
	{
		static_assert(is_number<T> && std::is_integral_v<T>,
		              "kumi: this operation is for integers");
		return atomic(wide, narrow, function, to, offset, operand);
	}

	/* Calls the function for T's size with T's bytes. */
	template <class Long, class Short, class... Operands>
	T atomic(Long wide, Short narrow, const char *function, int to,
	         std::size_t offset, Operands... operands)
	{
		static_assert(sizeof(T) == 4 || sizeof(T) == 8,
		              "kumi: atomic operations are for elements of 4 and "
		              "8 bytes");
		using word = std::conditional_t<sizeof(T) == 4, std::uint32_t,
		                                std::uint64_t>;
		word old = 0;
		int code = 0;
		if constexpr (sizeof(T) == 4)
			code = narrow(handle_, to, detail::scaled<T>(offset),
			              detail::bits<word>(operands)..., &old);
		else
			code = wide(handle_, to, detail::scaled<T>(offset),
			            detail::bits<word>(operands)..., &old);
		detail::check(code, function);
		return detail::bits<T>(old);
	}

	void swap(window &other) noexcept
	{
		window_base::swap(other);
		std::swap(piece_, other.piece_);
	}

	span<T> piece_;
};

} // namespace kumi

#endif /* KUMI_WINDOW_HPP */
