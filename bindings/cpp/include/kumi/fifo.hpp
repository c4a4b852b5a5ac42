/*
 * kumi/fifo.hpp - FIFOs.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_FIFO_HPP
#define KUMI_FIFO_HPP

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <kumi.hpp>

namespace kumi {

/* A record taken out of a FIFO. */
struct record {
	int source;        /* rank that appended it */
	std::size_t bytes; /* its length */
};

/* The owner's end of a FIFO in a window's memory: the queue of records that
 * others append with window::append().  It ends before its window. */
class fifo {
public:
	/* Makes it in this rank's piece, at byte `offset` (a multiple of
	 * KUMI_FIFO_ALIGNMENT); it takes KUMI_FIFO_OVERHEAD + `capacity` bytes,
	 * which are overwritten.  With every record this rank's counter `notify`
	 * of the window goes up by 1.  Not collective. */
	fifo(window_base &inside, std::size_t offset, std::size_t capacity,
	     unsigned notify = 0)
	    : offset_(offset), alive_(inside.alive_), window_(inside.here_)
	{
		detail::check(kumi_fifo_create(inside.handle(), offset, capacity,
		                               notify, &handle_),
		              "kumi_fifo_create");
	}

	~fifo()
	{
		detail::freed(release(), "kumi_fifo_free");
	}

	fifo(const fifo &) = delete;
	fifo &operator=(const fifo &) = delete;

	fifo(fifo &&other) noexcept { swap(other); }
	/* The previous FIFO of this object ends with `other`. */
	fifo &operator=(fifo &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Frees it before the destructor would, which cannot throw.  An error
	 * leaves it unchanged. */
	void free() { detail::check(release(), "kumi_fifo_free"); }

	/* Bytes of the longest record in this job. */
	static std::size_t max_record()
	{
		std::size_t bytes = 0;
		detail::check(kumi_fifo_max_record(&bytes),
		              "kumi_fifo_max_record");
		return bytes;
	}

	/* Its offset in the window, in bytes, for ranks that append. */
	std::size_t offset() const noexcept { return offset_; }

	/* Waits for the next record and stores it in `into`, one object or a
	 * range, which may be longer.
	 * Throws truncated if the record is longer: it stays. */
	template <class R>
	record pop(R &&into)
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto where = detail::target(into);
		record taken{};
		int code = kumi_fifo_pop(handle_, where.data(),
		                         detail::bytes(where), &taken.bytes,
		                         &taken.source);
		received(code, "kumi_fifo_pop", taken);
		return taken;
	}

	/* The same without waiting, if there is a record. */
	template <class R>
	std::optional<record> try_pop(R &&into)
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto where = detail::target(into);
		record taken{};
		int found = 0;
		int code = kumi_fifo_try_pop(handle_, where.data(),
		                             detail::bytes(where), &found,
		                             &taken.bytes, &taken.source);
		received(code, "kumi_fifo_try_pop", taken);
		if (found == 0)
			return std::nullopt;
		return taken;
	}

	/* Waits for a record that is one T.
	 * Throws error KUMI_ERR_LENGTH if it is shorter, and lost. */
	template <class T>
	T pop_value()
	{
		T value{};
		record taken = pop(value);
		detail::require(taken.bytes == sizeof(T), "kumi_fifo_pop",
		                "the record is shorter than the type");
		return value;
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_fifo *handle() const noexcept { return ended() ? nullptr : handle_; }

private:
	static void received(int code, const char *function, const record &taken)
	{
		if (code == KUMI_ERR_TRUNCATED)
			throw truncated(function, taken.bytes);
		detail::check(code, function);
	}

	/* The end of its window, or of the job, has freed it already. */
	bool ended() const noexcept
	{
		return alive_.expired() || window_.expired();
	}

	int release() noexcept
	{
		int code = ended() ? int(KUMI_OK) : kumi_fifo_free(handle_);
		if (code == KUMI_OK)
			handle_ = nullptr;
		return code;
	}

	void swap(fifo &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(offset_, other.offset_);
		std::swap(alive_, other.alive_);
		std::swap(window_, other.window_);
	}

	kumi_fifo *handle_ = nullptr;
	std::size_t offset_ = 0;
	std::weak_ptr<const bool> alive_, window_;
};

} // namespace kumi

#endif /* KUMI_FIFO_HPP */
