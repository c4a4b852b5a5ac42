/*
 * kumi/window.hpp - windows and completions.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_WINDOW_HPP
#define KUMI_WINDOW_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <kumi.hpp>

namespace kumi {

/* ------------------------------------------------------------------------
 * Completions
 * ------------------------------------------------------------------------ */

/* Counts the puts of this rank that were given it and are in place.  Waiting for
 * it orders what follows behind these puts, and behind no others.  Throws error
 * KUMI_ERR_REFUSED once for each target that has refused some. */
class completion {
public:
	explicit completion(context &job) : alive_(job.alive_)
	{
		detail::check(kumi_completion_create(&handle_),
		              "kumi_completion_create");
	}

	~completion()
	{
		if (!alive_.expired() && kumi_completion_free(handle_) != KUMI_OK)
			std::fprintf(stderr, "kumi: kumi_completion_free: %s\n",
			             kumi_error_detail());
	}

	completion(const completion &) = delete;
	completion &operator=(const completion &) = delete;

	completion(completion &&other) noexcept { swap(other); }
	/* What this completion was ends with `other`. */
	completion &operator=(completion &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* How many puts are in place. */
	std::uint64_t done() const
	{
		std::uint64_t count = 0;
		detail::check(kumi_completion_done(handle_, &count),
		              "kumi_completion_done");
		return count;
	}

	/* Waits until at least so many are; the result is how many are.
	 * Throws error KUMI_ERR_LENGTH if there are fewer. */
	std::uint64_t wait(std::uint64_t at_least) const
	{
		std::uint64_t count = 0;
		detail::check(kumi_completion_wait(handle_, at_least, &count),
		              "kumi_completion_wait");
		return count;
	}

	/* Waits for all that were given it. */
	void wait_all() const
	{
		detail::check(kumi_completion_wait_all(handle_),
		              "kumi_completion_wait_all");
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_completion *handle() const noexcept { return handle_; }

private:
	void swap(completion &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(alive_, other.alive_);
	}

	kumi_completion *handle_ = nullptr;
	std::weak_ptr<const bool> alive_;
};

/* What is to follow when a put is in place: the target's counter `notify` goes
 * up by 1, and the caller's completion. */
struct after {
	int notify = KUMI_NO_NOTIFY;
	const completion *done = nullptr;
};

/* `count` blocks of `length` elements, the first at `offset`, each next one
 * `stride` elements further on: a column of a matrix, for example. */
struct blocks {
	std::size_t offset;
	std::size_t stride;
	std::size_t length;
	std::size_t count;

	/* Throws unless all blocks together have so many elements. */
	void require(std::size_t elements, const char *function) const
	{
		bool fits = length == 0 || count <= SIZE_MAX / length;
		detail::require(fits && length * count == elements, function,
		                "there must be as many elements as the blocks "
		                "have together");
	}
};

/* Not for programs. */
namespace detail {

inline kumi_completion *handle(const after &then, const char *function)
{
	if (then.done == nullptr)
		return nullptr;
	/* Null is none to C, but there should be one. */
	if (then.done->handle() == nullptr)
		throw error(KUMI_ERR_COMPLETION, function,
		            "the completion was moved to another object");
	return then.done->handle();
}

/* The same bytes as another type. */
template <class To, class From>
To bits(const From &from) noexcept
{
	static_assert(sizeof(To) == sizeof(From));
	To to;
	std::memcpy(&to, &from, sizeof to);
	return to;
}

/* What runs for a signal whose handler is a Handler. */
template <class Handler>
struct handler {
	static void run(void *argument, int source, const void *data,
	                std::size_t length) noexcept
	{
		auto *bytes = static_cast<const unsigned char *>(data);
		(*static_cast<Handler *>(argument))(
		    source, span<const unsigned char>(bytes, length));
	}
};

} // namespace detail

/* ------------------------------------------------------------------------
 * Windows
 * ------------------------------------------------------------------------ */

/* A window of elements of type T.  It frees its piece when it ends: make sure
 * first (context::barrier) that no other rank still uses it. */
template <class T>
class window {
	static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
	                  !std::is_const_v<T> && alignof(T) <= 8,
	              "kumi: elements of windows must be trivially copyable, not "
	              "pointers, and aligned to at most 8 bytes");

public:
	/* Collective: this rank's piece has `elements` elements, all bits
	 * zero. */
	window(context &job, std::size_t elements) : alive_(job.alive_)
	{
		detail::check(kumi_window_create(detail::scaled<T>(elements),
		                                 &handle_),
		              "kumi_window_create");
		piece_ = span<T>(static_cast<T *>(kumi_window_base(handle_)),
		                 elements);
		here_ = std::make_shared<const bool>(true);
	}

	~window()
	{
		if (release() == KUMI_OK)
			return;
		std::fprintf(stderr, "kumi: kumi_window_free: %s\n",
		             kumi_error_detail());
		/* The ports are still there and may call their handlers, so
		 * these are never freed. */
		static_cast<void>(new auto(std::move(ports_)));
	}

	window(const window &) = delete;
	window &operator=(const window &) = delete;

	window(window &&other) noexcept { swap(other); }
	/* What this window was ends with `other`. */
	window &operator=(window &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Frees the piece before the destructor would, which cannot throw.
	 * After an error the window is as it was. */
	void free() { detail::check(release(), "kumi_window_free"); }

	/* This rank's piece: see kumi_window_base() for when to read it. */
	span<T> piece() const noexcept { return piece_; }
	T *data() const noexcept { return piece_.data(); }
	std::size_t size() const noexcept { return piece_.size(); }
	T *begin() const noexcept { return piece_.begin(); }
	T *end() const noexcept { return piece_.end(); }
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

	/* The same as put(), and what is to follow when it is in place. */
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

	/* Copies data, which has the elements of all blocks one behind the
	 * other, to these blocks of rank `to`'s elements.
	 * Throws error KUMI_ERR_LENGTH if it has not so many. */
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
	 * Throws error KUMI_ERR_LENGTH if it has not so many. */
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

	/* Copies data to the elements from `offset` on of several ranks, a
	 * range of int, and waits until all have it. */
	template <class Ranks, class R>
	void multicast(const Ranks &ranks, std::size_t offset, const R &data,
	               int notify = KUMI_NO_NOTIFY)
	{
		auto members = detail::view(ranks);
		static_assert(
		    detail::same<int, std::remove_reference_t<
		                          decltype(*members.data())>>,
		    "kumi: ranks are of type int");
		auto what = elements(data);
		detail::check(kumi_window_multicast(
		                  handle_, members.data(), members.size(),
		                  detail::scaled<T>(offset), what.data(),
		                  detail::bytes(what), notify),
		              "kumi_window_multicast");
	}

	/* Atomic operations on rank `to`'s element `offset`: each is one step
	 * and returns what was there.  fetch_ functions are for integers of 4
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

	/* Stores `value` if what is there is `expected`. */
	T compare_swap(int to, std::size_t offset, T expected, T value)
	{
		return atomic(kumi_window_compare_swap,
		              kumi_window_compare_swap_u32,
		              "kumi_window_compare_swap", to, offset, expected,
		              value);
	}

	/* How many puts with this notification have arrived. */
	std::uint64_t notified(unsigned notify) const
	{
		std::uint64_t count = 0;
		detail::check(kumi_window_notified(handle_, notify, &count),
		              "kumi_window_notified");
		return count;
	}

	/* Waits until at least so many have arrived; the result is how many. */
	std::uint64_t wait_notify(unsigned notify, std::uint64_t at_least) const
	{
		std::uint64_t count = 0;
		detail::check(kumi_window_wait_notify(handle_, notify, at_least,
		                                      &count),
		              "kumi_window_wait_notify");
		return count;
	}

	/* Appends data, one object or a range of any types, as one record to
	 * the FIFO at byte `offset` of rank `to`'s piece; waits while it is
	 * full.  (A FIFO is made by a kumi::fifo.) */
	template <class R>
	void append(int to, std::size_t offset, const R &data)
	{
		auto what = detail::view(data);
		detail::check(kumi_fifo_append(handle_, to, offset, what.data(),
		                               detail::bytes(what)),
		              "kumi_fifo_append");
	}

	/* The same without waiting for room: whether there was some. */
	template <class R>
	[[nodiscard]] bool try_append(int to, std::size_t offset, const R &data)
	{
		auto what = detail::view(data);
		int appended = 0;
		detail::check(kumi_fifo_try_append(handle_, to, offset,
		                                   what.data(),
		                                   detail::bytes(what),
		                                   &appended),
		              "kumi_fifo_try_append");
		return appended != 0;
	}

	/* Makes a signal port at byte `offset` of this rank's piece:
	 * `handler(source, data)`, with an int and a span of bytes, runs for
	 * each signal on a thread of the port.  Functions of this library throw
	 * in it.  An exception that leaves it ends the program (std::terminate).
	 * The port ends with remove_signal() or with the window. */
	template <class Handler>
	void on_signal(std::size_t offset, std::size_t capacity, Handler handler)
	{
		using call = detail::handler<Handler>;
		auto held = std::make_shared<Handler>(std::move(handler));
		ports_.reserve(ports_.size() + 1);
		detail::check(kumi_signal_handle(handle_, offset, capacity,
		                                 call::run, held.get()),
		              "kumi_signal_handle");
		ports_.emplace_back(offset, std::move(held));
	}

	/* Takes a signal port away, waiting for a handler that runs. */
	void remove_signal(std::size_t offset)
	{
		detail::check(kumi_signal_remove(handle_, offset),
		              "kumi_signal_remove");
		for (std::size_t i = 0; i < ports_.size(); i++)
			if (ports_[i].first == offset) {
				std::swap(ports_[i], ports_.back());
				ports_.pop_back();
				return;
			}
	}

	/* Sends a signal, with data as in append(), to the port at byte
	 * `offset` of rank `to`'s piece; waits while the port is full. */
	template <class R>
	void signal(int to, std::size_t offset, const R &data)
	{
		auto what = detail::view(data);
		detail::check(kumi_signal_send(handle_, to, offset, what.data(),
		                               detail::bytes(what)),
		              "kumi_signal_send");
	}

	/* The same without waiting for room: whether there was some. */
	template <class R>
	[[nodiscard]] bool try_signal(int to, std::size_t offset, const R &data)
	{
		auto what = detail::view(data);
		int sent = 0;
		detail::check(kumi_signal_try_send(handle_, to, offset,
		                                   what.data(),
		                                   detail::bytes(what), &sent),
		              "kumi_signal_try_send");
		return sent != 0;
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_window *handle() const noexcept { return handle_; }

private:
	friend class fifo;

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

	/* kumi_finalize() frees what is left: after it nothing is. */
	int release() noexcept
	{
		int code = alive_.expired() ? int(KUMI_OK)
		                            : kumi_window_free(handle_);
		if (code != KUMI_OK)
			return code;
		handle_ = nullptr;
		piece_ = span<T>();
		/* No handler runs any more. */
		ports_.clear();
		here_.reset();
		return code;
	}

	void swap(window &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(piece_, other.piece_);
		std::swap(alive_, other.alive_);
		std::swap(ports_, other.ports_);
		std::swap(here_, other.here_);
	}

	kumi_window *handle_ = nullptr;
	span<T> piece_;
	std::weak_ptr<const bool> alive_;
	/* FIFOs see by it whether they are still there. */
	std::shared_ptr<const bool> here_;
	/* The signal ports: where they are, and their handlers. */
	std::vector<std::pair<std::size_t, std::shared_ptr<void>>> ports_;
};

} // namespace kumi

#endif /* KUMI_WINDOW_HPP */
