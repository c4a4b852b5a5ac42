/*
 * kumi.hpp - Kumi for C++17: kumi.h with objects, types and exceptions.
 *
 * A program includes this header and links with -lkumi (`pkg-config --cflags
 * --libs kumi`); there is no other library.  kumi.h describes each function,
 * its errors and its effects on other ranks in full; this header describes only
 * the differences.
 *
 * Errors.  Functions throw kumi::error with the number that kumi.h returns.
 * Destructors never throw: they report errors on standard error.  In a child
 * that the rank makes with fork() they do nothing.
 *
 * Data.  Where a function takes data, it takes one object or a contiguous
 * range (array, std::array, std::vector, std::string, kumi::span) of a
 * trivially copyable type that is not a pointer.  It never allocates or resizes
 * for the caller, unless it returns a std::vector.
 *
 * Units.  Counts, sizes, offsets and strides are elements, not bytes; offsets
 * count from 0.  Only FIFOs and signal ports, which are no arrays, are placed by
 * bytes.
 *
 * Requests.  Functions that begin with i (iput, iget, isend, irecv, ifetch_add,
 * ...) start an operation and return a kumi::request or a kumi::future at once.
 * Data given to them must outlive it; temporary objects do not compile.
 *
 * Lifetimes.  One kumi::context at a time, made and used by one thread, or by all
 * with kumi::threads::multiple; its end belongs to the thread that made it.  Every
 * kumi::window, kumi::fifo and kumi::completion should end before its context,
 * a FIFO before its window, as it does when it is declared after it; an object
 * that outlives its context or window is empty from then on.  The program's own
 * memory of a window must outlive the window.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_HPP
#define KUMI_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <kumi.h>
#include <kumi/data.hpp>
#include <kumi/request.hpp>

namespace kumi {

/* ------------------------------------------------------------------------
 * The job
 * ------------------------------------------------------------------------ */

/* State of a node some seconds ago: see kumi_node_load(). */
struct node_load {
	double load;    /* ranks that compute or could, per processor */
	double memory;  /* share in use, 0 to 1 */
	double network; /* bytes a second */
	double age;     /* seconds */
};

/* Which threads may use the context and what was made of it: the one that made
 * it, or all at the same time. */
enum class threads : int {
	single = KUMI_THREAD_SINGLE,
	multiple = KUMI_THREAD_MULTIPLE
};

/* This rank's part in the job, from construction (kumi_init) to destruction
 * (kumi_finalize). */
class context {
public:
	context() { detail::check(kumi_init(), "kumi_init"); }

	explicit context(threads which)
	{
		detail::check(kumi_init_threads(static_cast<int>(which)),
		              "kumi_init_threads");
	}

	~context()
	{
		if (alive_)
			detail::freed(kumi_finalize(), "kumi_finalize");
	}

	context(const context &) = delete;
	context &operator=(const context &) = delete;

	/* Ends the part before the destructor would, which cannot throw: the
	 * way to learn that something was not received.  Nothing else may be
	 * called afterwards.  In a wrong thread, in a child of the rank and while
	 * other threads are in calls it fails and ends nothing. */
	void finalize()
	{
		int code = kumi_finalize();
		if (code != KUMI_ERR_WRONG_THREAD && code != KUMI_ERR_FORKED &&
		    code != KUMI_ERR_BUSY)
			alive_.reset();
		detail::check(code, "kumi_finalize");
	}

	int rank() const { return number(kumi_rank(), "kumi_rank"); }
	int size() const { return number(kumi_size(), "kumi_size"); }
	int node() const { return number(kumi_node(), "kumi_node"); }

	std::uint64_t job() const
	{
		number(kumi_rank(), "kumi_job");
		return kumi_job();
	}

	/* Seconds. */
	double time() const
	{
		number(kumi_rank(), "kumi_time");
		return kumi_time();
	}

	/* Information from the cluster's daemons: the number of nodes, 0 where
	 * nothing is disclosed, ... */
	int cluster_nodes() const
	{
		return number(kumi_cluster_nodes(), "kumi_cluster_nodes");
	}

	/* ... the last report about one of them, ... */
	std::optional<node_load> load(int node) const
	{
		number(kumi_rank(), "kumi_node_load");
		node_load now{kumi_node_load(node), kumi_node_memory(node),
		              kumi_node_network(node), kumi_node_age(node)};
		if (now.load < 0 || now.memory < 0 || now.network < 0 ||
		    now.age < 0)
			return std::nullopt;
		return now;
	}

	/* ... and whether a rank has a processor, as far as this node knows. */
	bool runs(int rank) const
	{
		return number(kumi_rank_runs(rank), "kumi_rank_runs") != 0;
	}

	/* Sends data to rank `to`. */
	template <class R>
	void send(int to, int tag, const R &data)
	{
		auto what = detail::view(data);
		detail::check(kumi_message_send(to, tag, what.data(),
		                                detail::bytes(what)),
		              "kumi_message_send");
	}

	/* Waits for a message and stores it in `into`, which may be longer;
	 * the result gives sender, tag and number of bytes.
	 * Throws truncated if the message is longer. */
	template <class R>
	kumi_status recv(int from, int tag, R &&into)
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto where = detail::target(into);
		kumi_status status{};
		int code = kumi_message_recv(from, tag, where.data(),
		                             detail::bytes(where), &status);
		received(code, "kumi_message_recv", status);
		return status;
	}

	/* Waits for a message that is one T.
	 * Throws error KUMI_ERR_LENGTH if it is shorter. */
	template <class T>
	T recv_value(int from, int tag)
	{
		T value{};
		kumi_status status = recv(from, tag, value);
		detail::require(status.length == sizeof(T), "kumi_message_recv",
		                "the message is shorter than the type");
		return value;
	}

	/* send() and recv() at once. */
	template <class R, class S>
	kumi_status sendrecv(int to, int send_tag, const R &data, int from,
	                     int recv_tag, S &&into)
	{
		static_assert(detail::is_output<S>, "kumi: give a variable");
		auto what = detail::view(data);
		auto where = detail::target(into);
		kumi_status status{};
		int code = kumi_message_sendrecv(
		    to, send_tag, what.data(), detail::bytes(what), from,
		    recv_tag, where.data(), detail::bytes(where), &status);
		received(code, "kumi_message_sendrecv", status);
		return status;
	}

	/* The message that recv() would find now, if there is one. */
	std::optional<kumi_status> probe(int from, int tag)
	{
		kumi_status status{};
		int found = 0;
		detail::check(kumi_message_probe(from, tag, &found, &status),
		              "kumi_message_probe");
		if (found == 0)
			return std::nullopt;
		return status;
	}

	/* Starts send() and returns at once; `data` must outlive the request. */
	template <class R>
	request isend(int to, int tag, R &&data)
	{
		request started(alive_);
		send_request(to, tag, std::forward<R>(data), nullptr,
		             &started.handle_);
		return started;
	}

	/* The same with a report in place of a request. */
	template <class R>
	void isend(int to, int tag, R &&data, const report &where)
	{
		kumi_report told = detail::described(where, "kumi_message_isend");
		send_request(to, tag, std::forward<R>(data), &told, nullptr);
	}

	/* Starts recv() into `into`, which must outlive the request.  The
	 * request's result has sender, tag and number of bytes. */
	template <class R>
	request irecv(int from, int tag, R &&into)
	{
		request started(alive_);
		recv_request(from, tag, std::forward<R>(into), nullptr,
		             &started.handle_);
		return started;
	}

	/* The same with a report in place of a request. */
	template <class R>
	void irecv(int from, int tag, R &&into, const report &where)
	{
		kumi_report told = detail::described(where, "kumi_message_irecv");
		recv_request(from, tag, std::forward<R>(into), &told, nullptr);
	}

	/* Waits for a message as recv() does, and leaves it there. */
	kumi_status wait_message(int from, int tag)
	{
		kumi_status status{};
		detail::check(kumi_message_await(from, tag, &status),
		              "kumi_message_await");
		return status;
	}

	/* Sets the message aside that recv() would find now, if there is one. */
	[[nodiscard]] std::optional<kumi::claim> claim(int from, int tag)
	{
		kumi::claim found(alive_);
		int is = 0;
		detail::check(kumi_message_claim(from, tag, &is, &found.handle_,
		                                 &found.status_),
		              "kumi_message_claim");
		if (is == 0)
			return std::nullopt;
		return found;
	}

	/* Requests under way, or whose end was not told. */
	std::size_t requests() const
	{
		std::size_t count = 0;
		detail::check(kumi_request_count(&count), "kumi_request_count");
		return count;
	}

	void progress() { detail::check(kumi_progress(), "kumi_progress"); }

	/* Waits until all messages and puts to rank `to`, or to all, have
	 * arrived. */
	void flush(int to = KUMI_ALL)
	{
		detail::check(kumi_flush(to), "kumi_flush");
	}

	/* Operations on windows at rank `to`, or at each rank, that follow take
	 * effect there after all earlier ones. */
	void fence(int to = KUMI_ALL)
	{
		detail::check(kumi_fence(to), "kumi_fence");
	}

	void barrier() { detail::check(kumi_barrier(), "kumi_barrier"); }

	/* Copies the root's data to all. */
	template <class R>
	void broadcast(int root, R &&data)
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto all = detail::target(data);
		using unit = detail::moved<element<R>>;
		detail::check(kumi_broadcast(root, all.data(),
		                             all.size() * unit::units,
		                             unit::type()),
		              "kumi_broadcast");
	}

	/* Reduces the elements of `data`, a range: at the root they become
	 * the result, elsewhere they stay. */
	template <class R>
	std::enable_if_t<detail::range<R>> reduce(int root, R &&data, op how)
	{
		auto all = detail::target(data);
		detail::check(kumi_reduce(root, all.data(), all.data(),
		                          all.size(), type_of<element<R>>(),
		                          static_cast<kumi_op>(how)),
		              "kumi_reduce");
	}

	/* Reduces one number: the root gets the result, the others `value`. */
	template <class T>
	std::enable_if_t<!detail::range<T>, T> reduce(int root, const T &value,
	                                              op how)
	{
		T result = value;
		reduce(root, span<T>(&result, 1), how);
		return result;
	}

	/* Reduces the elements of `data`, a range, which become the result at
	 * every rank. */
	template <class R>
	std::enable_if_t<detail::range<R>> allreduce(R &&data, op how)
	{
		auto all = detail::target(data);
		detail::check(kumi_allreduce(all.data(), all.data(), all.size(),
		                             type_of<element<R>>(),
		                             static_cast<kumi_op>(how)),
		              "kumi_allreduce");
	}

	/* Reduces one number: every rank gets the result. */
	template <class T>
	std::enable_if_t<!detail::range<T>, T> allreduce(const T &value, op how)
	{
		T result = value;
		allreduce(span<T>(&result, 1), how);
		return result;
	}

	/* The data of all ranks, in their order, at the root; nothing
	 * elsewhere. */
	template <class R>
	auto gather(int root, const R &data)
	{
		using T = element<const R>;
		using unit = detail::moved<T>;
		auto mine = detail::view(data);
		/* A vector of bool has no contiguous elements. */
		constexpr bool flags = std::is_same_v<T, bool>;
		static_assert(!flags || sizeof(T) == 1);
		std::vector<std::conditional_t<flags, unsigned char, T>> all;
		if (rank() == root)
			all.resize(mine.size() *
			           static_cast<std::size_t>(size()));
		detail::check(kumi_gather(root, mine.data(), all.data(),
		                          mine.size() * unit::units,
		                          unit::type()),
		              "kumi_gather");
		if constexpr (flags)
			return std::vector<bool>(all.begin(), all.end());
		else
			return all;
	}

	/* Both ranges have one block for every rank, all of one length.
	 * Throws error KUMI_ERR_LENGTH, before anything is sent, if they have
	 * not. */
	template <class R, class S>
	void alltoall(const R &data, S &&into)
	{
		using T = element<const R>;
		using unit = detail::moved<T>;
		static_assert(detail::same<T, element<S>>, "kumi: two types");
		auto what = detail::view(data);
		auto where = detail::target(into);
		auto ranks = static_cast<std::size_t>(size());
		detail::require(what.size() == where.size() &&
		                    what.size() % ranks == 0,
		                "kumi_alltoall",
		                "both arrays need one block for every rank");
		detail::check(kumi_alltoall(what.data(), where.data(),
		                            what.size() / ranks * unit::units,
		                            unit::type()),
		              "kumi_alltoall");
	}

	/* Blocks of different lengths, without gaps, which fill both ranges.
	 * Throws error KUMI_ERR_LENGTH, before anything is sent, if the counts
	 * do not add up to their sizes. */
	template <class R, class S>
	void alltoallv(const R &data, std::vector<std::size_t> counts, S &&into,
	               std::vector<std::size_t> into_counts)
	{
		using T = element<const R>;
		static_assert(detail::same<T, element<S>>, "kumi: two types");
		auto what = detail::view(data);
		auto where = detail::target(into);
		blocks<T>(counts, what.size());
		blocks<T>(into_counts, where.size());
		detail::check(kumi_alltoallv(what.data(), counts.data(),
		                             where.data(), into_counts.data(),
		                             detail::moved<T>::type()),
		              "kumi_alltoallv");
	}

private:
	template <class>
	friend class window;
	friend class completion;
	friend class group;
	friend class completion_queue;

	template <class R>
	void send_request(int to, int tag, R &&data, const kumi_report *told,
	                  kumi_request *handle)
	{
		static_assert(detail::outlives<R>,
		              "kumi: the data of a request must outlive it");
		auto what = detail::view(data);
		detail::check(kumi_message_isend(to, tag, what.data(),
		                                 detail::bytes(what), told,
		                                 handle),
		              "kumi_message_isend");
	}

	template <class R>
	void recv_request(int from, int tag, R &&into, const kumi_report *told,
	                  kumi_request *handle)
	{
		static_assert(detail::outlives<R>,
		              "kumi: the memory of a request must outlive it");
		auto where = detail::target(into);
		detail::check(kumi_message_irecv(from, tag, where.data(),
		                                 detail::bytes(where), told,
		                                 handle),
		              "kumi_message_irecv");
	}

	/* The type of an object, or of a range's elements. */
	template <class R>
	using element = std::remove_cv_t<std::remove_pointer_t<decltype(
	    detail::view(std::declval<std::remove_reference_t<R> &>()).data())>>;

	static int number(int value, const char *function)
	{
		detail::check(value, function);
		return value;
	}

	static void received(int code, const char *function,
	                     const kumi_status &status)
	{
		if (code == KUMI_ERR_TRUNCATED)
			throw truncated(function, status.length);
		detail::check(code, function);
	}

	/* Checks the blocks' lengths and converts them to the units of
	 * moved<T>. */
	template <class T>
	void blocks(std::vector<std::size_t> &counts, std::size_t whole) const
	{
		std::size_t rest = whole;
		bool fits = counts.size() == static_cast<std::size_t>(size());
		for (std::size_t &count : counts) {
			fits = fits && count <= rest;
			rest -= fits ? count : 0;
			count *= fits ? detail::moved<T>::units : 0;
		}
		detail::require(fits && rest == 0, "kumi_alltoallv",
		                "there must be one count for every rank, and "
		                "they must add up to the array's size");
	}

	/* Tells windows whether the library still knows them. */
	std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

} // namespace kumi

#include <kumi/completion.hpp>
#include <kumi/group.hpp>
#include <kumi/base.hpp>
#include <kumi/window.hpp>
#include <kumi/fifo.hpp>

#endif /* KUMI_HPP */
