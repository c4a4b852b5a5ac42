/*
 * kumi/completion.hpp - completions, and the arguments of puts and gets beside
 * the data: notifications, blocks and pieces.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_COMPLETION_HPP
#define KUMI_COMPLETION_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <kumi.hpp>

namespace kumi {

/* ------------------------------------------------------------------------
 * Completions
 * ------------------------------------------------------------------------ */

/* Counts those puts of this rank that were given to it and are in place.  Code
 * after a wait for it runs after these puts, and need not wait for others.
 * Throws error KUMI_ERR_REFUSED once for each target that has refused some. */
class completion {
public:
	explicit completion(context &job) : alive_(job.alive_)
	{
		detail::check(kumi_completion_create(&handle_),
		              "kumi_completion_create");
	}

	~completion()
	{
		if (!alive_.expired())
			detail::freed(kumi_completion_free(handle_),
			              "kumi_completion_free");
	}

	completion(const completion &) = delete;
	completion &operator=(const completion &) = delete;

	completion(completion &&other) noexcept { swap(other); }
	/* The previous completion of this object ends with `other`. */
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

	/* Waits until at least so many are in place; returns their number.
	 * Throws error KUMI_ERR_LENGTH if there are fewer. */
	std::uint64_t wait(std::uint64_t at_least) const
	{
		std::uint64_t count = 0;
		detail::check(kumi_completion_wait(handle_, at_least, &count),
		              "kumi_completion_wait");
		return count;
	}

	/* Waits for all puts that were given to it. */
	void wait_all() const
	{
		detail::check(kumi_completion_wait_all(handle_),
		              "kumi_completion_wait_all");
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_completion *handle() const noexcept
	{
		return alive_.expired() ? nullptr : handle_;
	}

private:
	void swap(completion &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(alive_, other.alive_);
	}

	kumi_completion *handle_ = nullptr;
	std::weak_ptr<const bool> alive_;
};

/* Ends of requests in the order in which they happen. */
class completion_queue {
public:
	explicit completion_queue(context &job) : alive_(job.alive_)
	{
		detail::check(kumi_queue_create(&handle_), "kumi_queue_create");
	}

	~completion_queue()
	{
		if (!alive_.expired())
			detail::freed(kumi_queue_free(handle_), "kumi_queue_free");
	}

	completion_queue(const completion_queue &) = delete;
	completion_queue &operator=(const completion_queue &) = delete;

	completion_queue(completion_queue &&other) noexcept { swap(other); }
	completion_queue &operator=(completion_queue &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Takes the oldest entry, if there is one.  A request that failed is an
	 * entry with result.error, not an exception. */
	[[nodiscard]] std::optional<kumi_result> poll() const
	{
		kumi_result result{};
		int found = 0;
		int code = kumi_queue_poll(handle_, &found, &result);
		if (found == 0) {
			detail::check(code, "kumi_queue_poll");
			return std::nullopt;
		}
		return result;
	}

	/* Takes the oldest entry, and waits for one.
	 * Throws error KUMI_ERR_REQUEST if there will be none. */
	kumi_result wait() const
	{
		kumi_result result{};
		int code = kumi_queue_wait(handle_, &result);
		if (result.error == KUMI_OK)
			detail::check(code, "kumi_queue_wait");
		return result;
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_queue *handle() const noexcept
	{
		return alive_.expired() ? nullptr : handle_;
	}

private:
	void swap(completion_queue &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(alive_, other.alive_);
	}

	kumi_queue *handle_ = nullptr;
	std::weak_ptr<const bool> alive_;
};

/* Counters that go up by 1 when a put is in place: the target's counter `notify`
 * and the caller's completion. */
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

/* A piece of a window: `length` elements (or none) from `offset` on. */
struct piece {
	std::size_t offset;
	std::size_t length;
};

/* Not for programs. */
namespace detail {

inline kumi_completion *handle(const after &then, const char *function)
{
	if (then.done == nullptr)
		return nullptr;
	/* C takes null as no completion, but there should be one. */
	if (then.done->handle() == nullptr)
		throw error(KUMI_ERR_COMPLETION, function,
		            "the completion was moved to another object, or "
		            "its job has ended");
	return then.done->handle();
}

inline kumi_report described(const report &where, const char *function)
{
	kumi_report told{nullptr, nullptr, where.word};
	if (where.done != nullptr)
		told.completion = handle({KUMI_NO_NOTIFY, where.done}, function);
	if (where.queue != nullptr) {
		told.queue = where.queue->handle();
		if (told.queue == nullptr)
			throw error(KUMI_ERR_QUEUE, function,
			            "the queue was moved to another object, or "
			            "its job has ended");
	}
	return told;
}

/* The pieces of a window of T, in bytes. */
template <class T>
std::vector<kumi_piece> scaled(const std::vector<piece> &pieces)
{
	std::vector<kumi_piece> bytes;
	bytes.reserve(pieces.size());
	for (const piece &one : pieces)
		bytes.push_back({scaled<T>(one.offset), scaled<T>(one.length)});
	return bytes;
}

/* The memory of elements, as C takes it for puts and gets alike. */
template <class T>
kumi_buffer buffer(span<T> memory) noexcept
{
	const void *data = memory.data();
	return {const_cast<void *>(data), bytes(memory)};
}

} // namespace detail

} // namespace kumi

#endif /* KUMI_COMPLETION_HPP */
