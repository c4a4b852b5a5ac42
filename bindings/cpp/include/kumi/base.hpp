/*
 * kumi/base.hpp - functions of windows of any elements: notifications, records
 * for FIFOs, signals.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_BASE_HPP
#define KUMI_BASE_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <kumi.hpp>

namespace kumi {

/* Not for programs. */
namespace detail {

/* The C handler of a signal whose handler is a Handler. */
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

/* A window without its elements; programs make a kumi::window. */
class window_base {
public:
	window_base(const window_base &) = delete;
	window_base &operator=(const window_base &) = delete;

	/* How many puts with this notification have arrived. */
	std::uint64_t notified(unsigned notify) const
	{
		std::uint64_t count = 0;
		detail::check(kumi_window_notified(handle_, notify, &count),
		              "kumi_window_notified");
		return count;
	}

	/* Waits until at least so many have arrived; returns their number. */
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
		record(kumi_fifo_append, "kumi_fifo_append", to, offset, data);
	}

	/* The same without waiting for room: whether there was some. */
	template <class R>
	[[nodiscard]] bool try_append(int to, std::size_t offset, const R &data)
	{
		return try_record(kumi_fifo_try_append, "kumi_fifo_try_append",
		                  to, offset, data);
	}

	/* Appends data as one record to the FIFOs that several ranks, a range of
	 * int, have at byte `offset` (each once), along a tree; waits until all
	 * have it. */
	template <class Ranks, class R>
	void multicast_append(const Ranks &ranks, std::size_t offset,
	                      const R &data)
	{
		records(kumi_fifo_multicast, "kumi_fifo_multicast", ranks,
		        offset, data);
	}

	/* The same without waiting for room: returns those of `ranks`, in their
	 * order, whose FIFO is full.  Nothing was appended there. */
	template <class Ranks, class R>
	[[nodiscard]] std::vector<int>
	try_multicast_append(const Ranks &ranks, std::size_t offset,
	                     const R &data)
	{
		return try_records(kumi_fifo_try_multicast,
		                   "kumi_fifo_try_multicast", ranks, offset,
		                   data);
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

	/* Removes a signal port after waiting for a running handler. */
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
		record(kumi_signal_send, "kumi_signal_send", to, offset, data);
	}

	/* The same without waiting for room: whether there was some. */
	template <class R>
	[[nodiscard]] bool try_signal(int to, std::size_t offset, const R &data)
	{
		return try_record(kumi_signal_try_send, "kumi_signal_try_send",
		                  to, offset, data);
	}

	/* Sends a signal to the ports that several ranks have at byte `offset`,
	 * as multicast_append() appends to FIFOs; does not wait for handlers. */
	template <class Ranks, class R>
	void multicast_signal(const Ranks &ranks, std::size_t offset,
	                      const R &data)
	{
		records(kumi_signal_multicast, "kumi_signal_multicast", ranks,
		        offset, data);
	}

	/* The same without waiting for room: returns those of `ranks`, in their
	 * order, whose port is full.  Nothing was sent there. */
	template <class Ranks, class R>
	[[nodiscard]] std::vector<int>
	try_multicast_signal(const Ranks &ranks, std::size_t offset,
	                     const R &data)
	{
		return try_records(kumi_signal_try_multicast,
		                   "kumi_signal_try_multicast", ranks, offset,
		                   data);
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_window *handle() const noexcept
	{
		return ended() ? nullptr : handle_;
	}

protected:
	window_base() noexcept = default;

	/* No window yet.  Everything that can run out of memory comes before. */
	explicit window_base(const std::shared_ptr<const bool> &alive)
	    : alive_(alive), here_(std::make_shared<const bool>(true))
	{
	}

	~window_base()
	{
		if (handle_ == nullptr ||
		    detail::freed(release(), "kumi_window_free"))
			return;
		if (registered_)
			std::terminate();
		/* The ports are still there and may call their handlers, so
		 * these are never freed. */
		static_cast<void>(new auto(std::move(ports_)));
	}

	template <class Ranks>
	static auto numbers(const Ranks &ranks) noexcept
	{
		auto members = detail::view(ranks);
		static_assert(
		    detail::same<int, std::remove_reference_t<
		                          decltype(*members.data())>>,
		    "kumi: ranks are of type int");
		return members;
	}

	/* kumi_finalize() frees all windows that are left. */
	bool ended() const noexcept { return alive_.expired(); }

	int release() noexcept
	{
		int code = ended() ? int(KUMI_OK) : kumi_window_free(handle_);
		if (code != KUMI_OK)
			return code;
		handle_ = nullptr;
		registered_ = false;
		/* No handler runs any more. */
		ports_.clear();
		here_.reset();
		return code;
	}

	void swap(window_base &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(registered_, other.registered_);
		std::swap(alive_, other.alive_);
		std::swap(ports_, other.ports_);
		std::swap(here_, other.here_);
	}

	kumi_window *handle_ = nullptr;
	/* The piece is the caller's memory. */
	bool registered_ = false;
	std::weak_ptr<const bool> alive_;
	/* Tells FIFOs whether they still exist. */
	std::shared_ptr<const bool> here_;
	/* The signal ports: offsets and handlers. */
	std::vector<std::pair<std::size_t, std::shared_ptr<void>>> ports_;

private:
	friend class fifo;

	/* Gives data as one record to a function for one rank, ... */
	template <class Call, class R>
	void record(Call call, const char *function, int to,
	            std::size_t offset, const R &data)
	{
		auto what = detail::view(data);
		detail::check(call(handle_, to, offset, what.data(),
		                   detail::bytes(what)),
		              function);
	}

	/* ... to one that tells whether there was room, ... */
	template <class Call, class R>
	bool try_record(Call call, const char *function, int to,
	                std::size_t offset, const R &data)
	{
		auto what = detail::view(data);
		int taken = 0;
		detail::check(call(handle_, to, offset, what.data(),
		                   detail::bytes(what), &taken),
		              function);
		return taken != 0;
	}

	/* ... to one for several ranks, ... */
	template <class Call, class Ranks, class R>
	void records(Call call, const char *function, const Ranks &ranks,
	             std::size_t offset, const R &data)
	{
		auto members = numbers(ranks);
		auto what = detail::view(data);
		detail::check(call(handle_, members.data(), members.size(),
		                   offset, what.data(), detail::bytes(what)),
		              function);
	}

	/* ... and to one that reports room; returns the ranks without it. */
	template <class Call, class Ranks, class R>
	std::vector<int> try_records(Call call, const char *function,
	                             const Ranks &ranks, std::size_t offset,
	                             const R &data)
	{
		auto members = numbers(ranks);
		auto what = detail::view(data);
		std::vector<int> taken(members.size()), full;
		detail::check(call(handle_, members.data(), members.size(),
		                   offset, what.data(), detail::bytes(what),
		                   taken.data()),
		              function);
		for (std::size_t i = 0; i < taken.size(); i++)
			if (taken[i] == 0)
				full.push_back(members[i]);
		return full;
	}
};

} // namespace kumi

#endif /* KUMI_BASE_HPP */
