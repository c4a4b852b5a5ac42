/*
 * kumi_dsm.hpp - kumi_dsm.h for C++17: arrays that all ranks see, and locks.
 *
 *   kumi::context job;
 *   kumi::shared_memory memory(job);
 *   kumi::shared<double> sums(memory, 1000, kumi::home::blocks());
 *   {
 *     kumi::shared_lock held(memory, 7);
 *     sums[3] += 1;
 *   }
 *   memory.barrier();
 *
 * kumi_dsm.h says what a rank sees of the writes of others.  kumi.hpp has the
 * conventions: errors are exceptions, sizes are elements.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_DSM_HPP
#define KUMI_DSM_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <kumi.hpp>
#include <kumi_dsm.h>

namespace kumi {

/* Where the pages of an array have their homes. */
class home {
public:
	/* Each rank has one part, all alike long. */
	static home blocks() { return home(kumi_dsm_blocks()); }

	/* Blocks of pages go to the ranks in turn. */
	static home round_robin(std::uint32_t block_pages, int first_rank = 0)
	{
		return home(kumi_dsm_round_robin(block_pages, first_rank));
	}

	/* All at one rank. */
	static home at(int rank) { return home(kumi_dsm_at(rank)); }

	/* The rank that touches a page first. */
	static home first_touch() { return home(kumi_dsm_first_touch()); }

	/* The same homes; what somebody writes comes to all copies. */
	home updated() const { return home(kumi_dsm_updated(home_)); }

	kumi_dsm_home get() const { return home_; }

private:
	explicit home(kumi_dsm_home of) : home_(of) {}

	kumi_dsm_home home_;
};

/* The job's shared memory, from construction (all ranks: kumi_dsm_start) to
 * destruction (all ranks: kumi_dsm_end).  Declare it after its context. */
class shared_memory {
public:
	explicit shared_memory(context &job) : rank_(job.rank())
	{
		detail::check(kumi_dsm_start(), "kumi_dsm_start");
	}

	~shared_memory() { detail::freed(kumi_dsm_end(), "kumi_dsm_end"); }

	shared_memory(const shared_memory &) = delete;
	shared_memory &operator=(const shared_memory &) = delete;

	/* Waits for all ranks; what was written before is visible then. */
	void barrier() { detail::check(kumi_dsm_barrier(), "kumi_dsm_barrier"); }

	/* The same without effect on memory. */
	void wait() { detail::check(kumi_dsm_wait(), "kumi_dsm_wait"); }

	/* Conditions: see kumi_dsm_set_condition(). */
	void set_condition(std::uint32_t condition)
	{
		detail::check(kumi_dsm_set_condition(condition),
		              "kumi_dsm_set_condition");
	}

	void reset_condition(std::uint32_t condition)
	{
		detail::check(kumi_dsm_reset_condition(condition),
		              "kumi_dsm_reset_condition");
	}

	void wait_condition(std::uint32_t condition)
	{
		detail::check(kumi_dsm_wait_condition(condition),
		              "kumi_dsm_wait_condition");
	}

	/* A counter: see kumi_dsm_statistics(). */
	std::uint64_t statistics(const std::string &name) const
	{
		std::uint64_t value = 0;
		detail::check(kumi_dsm_statistics(name.c_str(), &value),
		              "kumi_dsm_statistics");
		return value;
	}

	int rank() const { return rank_; }

private:
	int rank_;
};

/* A lock, held while the object lives. */
class shared_lock {
public:
	shared_lock(shared_memory &, std::uint32_t lock) : lock_(lock)
	{
		detail::check(kumi_dsm_lock(lock), "kumi_dsm_lock");
	}

	~shared_lock()
	{
		if (held_)
			detail::freed(kumi_dsm_unlock(lock_), "kumi_dsm_unlock");
	}

	shared_lock(const shared_lock &) = delete;
	shared_lock &operator=(const shared_lock &) = delete;

	/* Gives it back before the destructor would, which cannot throw. */
	void unlock()
	{
		held_ = false;
		detail::check(kumi_dsm_unlock(lock_), "kumi_dsm_unlock");
	}

private:
	std::uint32_t lock_;
	bool held_ = true;
};

/* An array of `size` elements that all ranks see at the same address, all bytes
 * zero at first.  All ranks make the same arrays in the same order.  Its memory
 * stays until that of the job ends; copies of the object are the same array. */
template <class T>
class shared {
	static_assert(std::is_trivially_copyable<T>::value,
	              "kumi: elements of shared memory are trivially copyable");

public:
	using value_type = T;

	shared(shared_memory &, std::size_t size, home where = home::blocks())
	    : size_(size)
	{
		void *start = nullptr;
		if (size > std::numeric_limits<std::size_t>::max() / sizeof(T))
			throw error(KUMI_ERR_EXHAUSTED, "kumi_dsm_allocate",
			            "the array has more bytes than there are");
		detail::check(kumi_dsm_allocate(size * sizeof(T), where.get(),
		                                &start),
		              "kumi_dsm_allocate");
		data_ = static_cast<T *>(start);
	}

	T *data() const { return data_; }
	std::size_t size() const { return size_; }
	bool empty() const { return size_ == 0; }
	T *begin() const { return data_; }
	T *end() const { return data_ + size_; }

	/* Unchecked. */
	T &operator[](std::size_t at) const { return data_[at]; }

	/* Checked. */
	T &at(std::size_t at) const
	{
		if (at >= size_)
			throw std::out_of_range("kumi::shared: no such element");
		return data_[at];
	}

	/* Makes it usable by system calls: see kumi_dsm_bring(). */
	void bring() const
	{
		detail::check(kumi_dsm_bring(data_, size_ * sizeof(T)),
		              "kumi_dsm_bring");
	}

private:
	T *data_ = nullptr;
	std::size_t size_;
};

} // namespace kumi

#endif // KUMI_DSM_HPP
