/*
 * kumi/group.hpp - groups of ranks and collective operations on them.  Programs
 * include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_GROUP_HPP
#define KUMI_GROUP_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <kumi.hpp>

namespace kumi {

/* Not for programs. */
namespace detail {

/* The type of an object, or of a range's elements. */
template <class R>
using element_of = std::remove_cv_t<std::remove_pointer_t<decltype(
    view(std::declval<std::remove_reference_t<R> &>()).data())>>;

} // namespace detail

/* Some ranks of the job in an order, its members, which are numbered from 0.
 * All members call the functions of a group in the same order, with the same
 * root, operation and length; roots are members' numbers.  Groups that share
 * members never mix.  Functions that communicate throw error KUMI_ERR_DISAGREE
 * if another member has called another one. */
class group {
public:
	/* The group of all ranks. */
	explicit group(context &job) : handle_(KUMI_JOB), alive_(job.alive_) {}

	~group()
	{
		if (handle_ != KUMI_JOB && !alive_.expired())
			detail::freed(kumi_group_free(handle_),
			              "kumi_group_free");
	}

	group(const group &) = delete;
	group &operator=(const group &) = delete;

	group(group &&other) noexcept { swap(other); }
	/* The previous group of this object ends with `other`. */
	group &operator=(group &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Of the members with the same colour (0 or more), ordered by key and
	 * then by their numbers here; nothing for KUMI_NO_COLOUR. */
	std::optional<group> split(int colour, std::int64_t key = 0) const
	{
		kumi_group *made = nullptr;
		detail::check(kumi_group_split(handle_, colour, key, &made),
		              "kumi_group_split");
		return wrap(made);
	}

	/* Of these members, in this order, at which all give the same list;
	 * nothing at the others. */
	std::optional<group> subset(const std::vector<int> &members) const
	{
		kumi_group *made = nullptr;
		detail::check(kumi_group_subset(handle_, members.data(),
		                                members.size(), &made),
		              "kumi_group_subset");
		return wrap(made);
	}

	/* With the same members, for a library's calls. */
	group duplicate() const
	{
		kumi_group *made = nullptr;
		detail::check(kumi_group_duplicate(handle_, &made),
		              "kumi_group_duplicate");
		return group(made, alive_);
	}

	/* This rank's number in the group. */
	int member() const
	{
		return number(kumi_group_member(handle_), "kumi_group_member");
	}

	int members() const
	{
		return number(kumi_group_members(handle_),
		              "kumi_group_members");
	}

	/* The rank of a member. */
	int rank(int of) const
	{
		return number(kumi_group_rank(handle_, of), "kumi_group_rank");
	}

	/* The number of a rank, if it is a member. */
	std::optional<int> find(int rank) const
	{
		int found = -1;
		detail::check(kumi_group_find(handle_, rank, &found),
		              "kumi_group_find");
		return found < 0 ? std::nullopt : std::optional<int>(found);
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_group *handle() const noexcept
	{
		return alive_.expired() ? nullptr : handle_;
	}

	void barrier() const
	{
		detail::check(kumi_group_barrier(handle_), "kumi_group_barrier");
	}

	/* Copies the root's data to all. */
	template <class R>
	void broadcast(int root, R &&data) const
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto all = detail::target(data);
		using unit = detail::moved<detail::element_of<R>>;
		detail::check(kumi_group_broadcast(handle_, root, all.data(),
		                                   all.size() * unit::units,
		                                   unit::type()),
		              "kumi_group_broadcast");
	}

	/* Reduces the elements of `data`, a range: at the root they become
	 * the result, elsewhere they stay. */
	template <class R>
	void reduce(int root, R &&data, op how) const
	{
		auto all = detail::target(data);
		detail::check(
		    kumi_group_reduce(handle_, root, all.data(), all.data(),
		                      all.size(), type<R>(), operation(how)),
		    "kumi_group_reduce");
	}

	/* The same, with the result at all members. */
	template <class R>
	std::enable_if_t<detail::range<R>> allreduce(R &&data, op how) const
	{
		in_place<R>(kumi_group_allreduce, data, how,
		            "kumi_group_allreduce");
	}

	/* Reduces one number. */
	template <class T>
	std::enable_if_t<!detail::range<T>, T> allreduce(const T &value,
	                                                 op how) const
	{
		T result = value;
		allreduce(span<T>(&result, 1), how);
		return result;
	}

	/* The elements of `data` become the reduction of those of the members
	 * up to this one. */
	template <class R>
	void scan(R &&data, op how) const
	{
		in_place<R>(kumi_group_scan, data, how, "kumi_group_scan");
	}

	/* The same of the members before this one; at the first they stay. */
	template <class R>
	void exclusive_scan(R &&data, op how) const
	{
		in_place<R>(kumi_group_exclusive_scan, data, how,
		            "kumi_group_exclusive_scan");
	}

	/* The data of all members, in their order, at the root; nothing
	 * elsewhere. */
	template <class R>
	std::vector<detail::element_of<const R>> gather(int root,
	                                                const R &data) const
	{
		using T = detail::element_of<const R>;
		auto mine = detail::view(data);
		std::vector<T> all(member() == root ? times(mine.size()) : 0);
		detail::check(kumi_group_gather(handle_, root, mine.data(),
		                                all.data(), units<T>(mine.size()),
		                                detail::moved<T>::type()),
		              "kumi_group_gather");
		return all;
	}

	/* The part of the root's data that is this member's; others' `data`
	 * is not used.  Throws error KUMI_ERR_LENGTH, before anything is sent,
	 * if the root has not one block for every member. */
	template <class R, class S>
	void scatter(int root, const R &data, S &&into) const
	{
		using T = detail::element_of<const R>;
		static_assert(detail::same<T, detail::element_of<S>>,
		              "kumi: two types");
		auto what = detail::view(data);
		auto where = detail::target(into);
		detail::require(member() != root ||
		                    what.size() == times(where.size()),
		                "kumi_group_scatter",
		                "the root needs one block for every member");
		detail::check(kumi_group_scatter(handle_, root, what.data(),
		                                 where.data(),
		                                 units<T>(where.size()),
		                                 detail::moved<T>::type()),
		              "kumi_group_scatter");
	}

	/* The data of all members, in their order, at all members. */
	template <class R>
	std::vector<detail::element_of<const R>> allgather(const R &data) const
	{
		using T = detail::element_of<const R>;
		auto mine = detail::view(data);
		std::vector<T> all(times(mine.size()));
		detail::check(kumi_group_allgather(handle_, mine.data(),
		                                   all.data(),
		                                   units<T>(mine.size()),
		                                   detail::moved<T>::type()),
		              "kumi_group_allgather");
		return all;
	}

	/* The same with data of different lengths, which all members know. */
	template <class R>
	std::vector<detail::element_of<const R>>
	allgatherv(const R &data, std::vector<std::size_t> counts) const
	{
		using T = detail::element_of<const R>;
		auto mine = detail::view(data);
		std::size_t all_of = scale<T>(counts, "kumi_group_allgatherv");
		auto own = counts[static_cast<std::size_t>(member())];
		detail::require(own == units<T>(mine.size()),
		                "kumi_group_allgatherv",
		                "the own count is not the length of the data");
		std::vector<T> all(all_of);
		detail::check(kumi_group_allgatherv(handle_, mine.data(),
		                                    all.data(), counts.data(),
		                                    detail::moved<T>::type()),
		              "kumi_group_allgatherv");
		return all;
	}

	/* Both ranges have one block for every member, all of one length.
	 * Throws error KUMI_ERR_LENGTH, before anything is sent, if they have
	 * not. */
	template <class R, class S>
	void alltoall(const R &data, S &&into) const
	{
		using T = detail::element_of<const R>;
		static_assert(detail::same<T, detail::element_of<S>>,
		              "kumi: two types");
		auto what = detail::view(data);
		auto where = detail::target(into);
		auto block = what.size() / times(1);
		detail::require(what.size() == where.size() &&
		                    what.size() == times(block),
		                "kumi_group_alltoall",
		                "both arrays need one block for every member");
		detail::check(kumi_group_alltoall(handle_, what.data(),
		                                  where.data(), units<T>(block),
		                                  detail::moved<T>::type()),
		              "kumi_group_alltoall");
	}

	/* Reduces `data`, which has one block for every member, over all
	 * members; `into` becomes the block of this one.
	 * Throws error KUMI_ERR_LENGTH, before anything is sent, if the lengths
	 * do not fit. */
	template <class R, class S>
	void reduce_scatter(const R &data, S &&into, op how) const
	{
		using T = detail::element_of<const R>;
		static_assert(detail::same<T, detail::element_of<S>>,
		              "kumi: two types");
		auto what = detail::view(data);
		auto where = detail::target(into);
		detail::require(what.size() == times(where.size()),
		                "kumi_group_reduce_scatter",
		                "the data needs one block for every member");
		detail::check(kumi_group_reduce_scatter(handle_, what.data(),
		                                        where.data(),
		                                        where.size(), type<R>(),
		                                        operation(how)),
		              "kumi_group_reduce_scatter");
	}

	/* Collectives as requests.  Each starts the function without the i and
	 * returns a request at once; it ends when this member's part is over.
	 * With a report as the last argument it returns nothing.  Members start
	 * them in the same order as all others of the group; up to 128 are under
	 * way at a time.  Data and results must outlive the request.  One that
	 * goes before its end is given up, and others may wait for ever. */
	template <class... Where>
	auto ibarrier(const Where &...where) const;
	template <class R, class... Where>
	auto ibroadcast(int root, R &&data, const Where &...where) const;

	/* In place, as the reductions that follow: of a range, or one number. */
	template <class R, class... Where>
	auto ireduce(int root, R &&data, op how, const Where &...where) const;
	template <class R, class... Where>
	auto iallreduce(R &&data, op how, const Where &...where) const;
	template <class R, class... Where>
	auto iscan(R &&data, op how, const Where &...where) const;
	template <class R, class... Where>
	auto iexclusive_scan(R &&data, op how, const Where &...where) const;

	/* At the root, `into` has one block for every member; elsewhere it is
	 * not used.  Throws error KUMI_ERR_LENGTH, as the others of blocks, if
	 * lengths do not fit. */
	template <class R, class S, class... Where>
	auto igather(int root, R &&data, S &&into, const Where &...where) const;

	/* The same with a result that belongs to the future. */
	template <class R>
	auto igather_vector(int root, R &&data) const;
	template <class R, class S, class... Where>
	auto iscatter(int root, R &&data, S &&into, const Where &...where) const;
	template <class R, class S, class... Where>
	auto iallgather(R &&data, S &&into, const Where &...where) const;

	/* The same with a result that belongs to the future. */
	template <class R>
	auto iallgather_vector(R &&data) const;
	template <class R, class S, class... Where>
	auto ialltoall(R &&data, S &&into, const Where &...where) const;
	template <class R, class S, class... Where>
	auto ireduce_scatter(R &&data, S &&into, op how,
	                     const Where &...where) const;

private:
	using alive = std::weak_ptr<const bool>;

	group(kumi_group *handle, alive job)
	    : handle_(handle), alive_(std::move(job))
	{
	}

	std::optional<group> wrap(kumi_group *made) const
	{
		if (made == nullptr)
			return std::nullopt;
		return group(made, alive_);
	}

	static int number(int value, const char *function)
	{
		detail::check(value, function);
		return value;
	}

	static kumi_op operation(op how) { return static_cast<kumi_op>(how); }

	template <class R>
	static kumi_type type()
	{
		return type_of<detail::element_of<R>>();
	}

	std::size_t times(std::size_t block) const
	{
		return block * static_cast<std::size_t>(members());
	}

	template <class T>
	static std::size_t units(std::size_t count)
	{
		return count * detail::moved<T>::units;
	}

	/* Converts counts, one for every member, to the units of moved<T>;
	 * returns the number of elements. */
	template <class T>
	std::size_t scale(std::vector<std::size_t> &counts,
	                  const char *function) const
	{
		detail::require(counts.size() == times(1), function,
		                "there must be one count for every member");
		std::size_t all = 0;
		for (std::size_t &count : counts) {
			detail::require(count <= SIZE_MAX / sizeof(T) - all,
			                function, "the counts are too large");
			all += count;
			count = units<T>(count);
		}
		return all;
	}

	template <class R, class Call, class Data>
	void in_place(Call call, Data &&data, op how, const char *function) const
	{
		static_assert(detail::is_output<Data>, "kumi: give a variable");
		auto all = detail::target(data);
		detail::check(call(handle_, all.data(), all.data(), all.size(),
		                   type<R>(), operation(how)),
		              function);
	}

	/* Starts a request, by a call that takes a report and a handle. */
	template <class Call>
	request start(const char *function, Call call) const
	{
		request started(alive_);
		detail::check(call(static_cast<const kumi_report *>(nullptr),
		                   &started.handle_),
		              function);
		return started;
	}

	template <class Call>
	void start(const char *function, Call call, const report &where) const
	{
		const kumi_report told = detail::described(where, function);
		detail::check(call(&told, static_cast<kumi_request *>(nullptr)),
		              function);
	}

	template <class Call, class T, class... Where>
	auto start_in_place(Call call, const char *function, span<T> all, op how,
	                    const Where &...where) const
	{
		return start(
		    function,
		    [&](auto... end) {
			    return call(handle_, all.data(), all.data(),
			                all.size(), type_of<T>(), operation(how),
			                end...);
		    },
		    where...);
	}

	/* Memory that a request uses. */
	template <class R>
	static auto lent_view(const std::remove_reference_t<R> &data) noexcept
	{
		static_assert(detail::outlives<R>,
		              "kumi: the data of a request must outlive it");
		return detail::view(data);
	}

	template <class R>
	static auto lent_target(std::remove_reference_t<R> &data) noexcept
	{
		static_assert(detail::outlives<R>,
		              "kumi: the memory of a request must outlive it");
		return detail::target(data);
	}

	/* Checks the types and the lengths of data and a result. */
	template <class R, class S>
	static void fits(bool lengths, const char *function)
	{
		static_assert(detail::same<detail::element_of<const R>,
		                           detail::element_of<S>>,
		              "kumi: two types");
		detail::require(lengths, function,
		                "there must be one block for every member");
	}

	void swap(group &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(alive_, other.alive_);
	}

	/* Null when it was moved to another object. */
	kumi_group *handle_ = nullptr;
	alive alive_;
};

} // namespace kumi

#include <kumi/started.hpp>

#endif /* KUMI_GROUP_HPP */
