/*
 * kumi/request.hpp - operations that go on after their call has returned, and
 * their ends.  Programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_REQUEST_HPP
#define KUMI_REQUEST_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <kumi.h>
#include <kumi/data.hpp>

namespace kumi {

class context;
class completion;
class completion_queue;
class group;
template <class T>
class future;

/* When a put has ended: its data may change, or it is in place. */
enum class put_end : int { sent = KUMI_PUT_SENT, placed = KUMI_PUT_PLACED };

/* Where the end of a request is told, in place of a kumi::request: a completion
 * rises, or a queue gets an entry with `word`.  Memory that the request was
 * given is lent until then. */
struct report {
	const completion *done = nullptr;
	const completion_queue *queue = nullptr;
	std::uint64_t word = 0;
};

/* Not for programs. */
namespace detail {

/* The same bytes as another type. */
template <class To, class From>
To bits(const From &from) noexcept
{
	static_assert(sizeof(To) == sizeof(From));
	To to;
	std::memcpy(&to, &from, sizeof to);
	return to;
}

template <class R>
struct is_span : std::false_type {};
template <class T>
struct is_span<span<T>> : std::true_type {};

/* Whether an argument's elements outlive the call. */
template <class R>
inline constexpr bool outlives =
    std::is_lvalue_reference_v<R> || is_span<std::remove_cv_t<R>>::value;

/* The error of a request. */
inline void ended(int code, const char *function, const kumi_result &result)
{
	if (code == KUMI_ERR_TRUNCATED)
		throw truncated(function, result.length);
	check(code, function);
}

/* A report as C takes it. */
inline kumi_report described(const report &where, const char *function);

} // namespace detail

/* ------------------------------------------------------------------------
 * Requests
 * ------------------------------------------------------------------------ */

/* An operation that was started, or none.  The memory that it was given is lent
 * until wait() or test() tell its end.  A request that goes out of scope before
 * gives the memory back at once, as release() does.  If even that fails (in the
 * wrong thread, say) it ends the program (std::terminate): the library would
 * write to memory that is gone. */
class [[nodiscard]] request {
public:
	request() noexcept = default;

	~request()
	{
		if (*this && !detail::freed(kumi_request_release(&handle_),
		                            "kumi_request_release"))
			std::terminate();
	}

	request(const request &) = delete;
	request &operator=(const request &) = delete;

	request(request &&other) noexcept { swap(other); }
	/* The previous request of this object ends with `other`. */
	request &operator=(request &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Whether there is a request whose end was not told. */
	explicit operator bool() const noexcept
	{
		return handle_ != KUMI_REQUEST_NONE && !alive_.expired();
	}

	/* Waits for the end.  Throws the error of the request. */
	kumi_result wait()
	{
		kumi_result result{};
		detail::ended(kumi_request_wait(&handle_, &result),
		              "kumi_request_wait", result);
		return result;
	}

	/* The same without waiting: nothing while it is under way. */
	[[nodiscard]] std::optional<kumi_result> test()
	{
		kumi_result result{};
		int done = 0;
		detail::ended(kumi_request_test(&handle_, &done, &result),
		              "kumi_request_test", result);
		if (done == 0)
			return std::nullopt;
		return result;
	}

	/* Stops it if nothing has happened yet: whether it did.  Its end is
	 * still to be waited for. */
	bool cancel()
	{
		int cancelled = 0;
		detail::check(kumi_request_cancel(handle_, &cancelled),
		              "kumi_request_cancel");
		return cancelled != 0;
	}

	/* Gives the memory back now and forgets the request. */
	void release()
	{
		detail::check(kumi_request_release(&handle_),
		              "kumi_request_release");
	}

	/* For functions of kumi.h; it still belongs to this object. */
	kumi_request handle() const noexcept
	{
		return alive_.expired() ? kumi_request{KUMI_REQUEST_NONE}
		                        : handle_;
	}

private:
	friend class context;
	friend class group;
	friend class request_list;
	template <class>
	friend class future;
	template <class>
	friend class window;

	explicit request(const std::weak_ptr<const bool> &alive) : alive_(alive)
	{
	}

	void swap(request &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(alive_, other.alive_);
	}

	kumi_request handle_ = KUMI_REQUEST_NONE;
	std::weak_ptr<const bool> alive_;
};

/* The value of an atomic operation that was started, and ... */
template <class T>
class [[nodiscard]] future {
public:
	/* Waits for the value.  Throws the error of the request. */
	T get()
	{
		using word = std::conditional_t<sizeof(T) == 4, std::uint32_t,
		                                std::uint64_t>;
		return detail::bits<T>(
		    static_cast<word>(under_way_.wait().value));
	}

	/* The request: moved to a list, to be waited for among others, it tells
	 * the value there. */
	request &pending() noexcept { return under_way_; }

private:
	template <class>
	friend class window;
	explicit future(request &&under_way) : under_way_(std::move(under_way))
	{
	}

	request under_way_;
};

/* ... the elements of a get or a gather, whose memory belongs to the future. */
template <class T>
class [[nodiscard]] future<std::vector<T>> {
public:
	future(future &&other) noexcept { swap(other); }
	/* The previous get of this object ends with `other`, and so do the
	 * elements that it fills. */
	future &operator=(future &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Waits for the elements.  Throws the error of the request. */
	std::vector<T> get()
	{
		under_way_.wait();
		return std::move(elements_);
	}

	/* The request, to look at.  It cannot be moved out, since it ends with
	 * the elements. */
	const request &pending() const noexcept { return under_way_; }

private:
	friend class group;
	template <class>
	friend class window;
	future(request &&under_way, std::vector<T> &&elements)
	    : elements_(std::move(elements)), under_way_(std::move(under_way))
	{
	}

	void swap(future &other) noexcept
	{
		elements_.swap(other.elements_);
		under_way_.swap(other.under_way_);
	}

	std::vector<T> elements_;
	/* Ends before the elements. */
	request under_way_;
};

/* ------------------------------------------------------------------------
 * Lists
 * ------------------------------------------------------------------------ */

/* One of a list that has ended. */
struct ended_request {
	std::size_t index;
	kumi_result result;
};

/* Not for programs: the handles of requests for functions of C. */
class request_list {
public:
	explicit request_list(std::vector<request> &all) : all_(all)
	{
		for (const request &one : all)
			handles_.push_back(one.handle());
	}

	/* C has emptied those that have ended. */
	~request_list()
	{
		for (std::size_t i = 0; i < handles_.size(); i++)
			if (handles_[i] == KUMI_REQUEST_NONE)
				all_[i].handle_ = KUMI_REQUEST_NONE;
	}

	request_list(const request_list &) = delete;
	request_list &operator=(const request_list &) = delete;

	kumi_request *data() noexcept { return handles_.data(); }
	std::size_t size() const noexcept { return handles_.size(); }

private:
	std::vector<request> &all_;
	std::vector<kumi_request> handles_;
};

/* Waits until all have ended; returns their results.  Throws the error of the
 * first one that failed; all have ended then, too. */
inline std::vector<kumi_result> wait_all(std::vector<request> &requests)
{
	request_list list(requests);
	std::vector<kumi_result> results(list.size());
	detail::check(kumi_request_wait_all(list.data(), list.size(),
	                                    results.data()),
	              "kumi_request_wait_all");
	return results;
}

/* Waits until one has ended, and returns it.  Throws its error. */
inline ended_request wait_any(std::vector<request> &requests)
{
	request_list list(requests);
	ended_request one{};
	int code = kumi_request_wait_any(list.data(), list.size(), &one.index,
	                                 &one.result);
	detail::ended(code, "kumi_request_wait_any", one.result);
	return one;
}

/* Waits until one or more have ended, and returns these.  Throws the error of the
 * first of them that failed. */
inline std::vector<ended_request> wait_some(std::vector<request> &requests)
{
	request_list list(requests);
	std::size_t count = 0;
	std::vector<std::size_t> indices(list.size());
	std::vector<kumi_result> results(list.size());
	detail::check(kumi_request_wait_some(list.data(), list.size(), &count,
	                                     indices.data(), results.data()),
	              "kumi_request_wait_some");
	std::vector<ended_request> some;
	for (std::size_t i = 0; i < count; i++)
		some.push_back({indices[i], results[i]});
	return some;
}

/* ------------------------------------------------------------------------
 * Claims
 * ------------------------------------------------------------------------ */

/* A message that is set aside: nobody else receives it.  A claim that goes out of
 * scope puts it back. */
class claim {
public:
	~claim()
	{
		if (!alive_.expired())
			detail::freed(kumi_claim_free(handle_),
			              "kumi_claim_free");
	}

	claim(const claim &) = delete;
	claim &operator=(const claim &) = delete;

	claim(claim &&other) noexcept { swap(other); }
	claim &operator=(claim &&other) noexcept
	{
		swap(other);
		return *this;
	}

	/* Sender, tag and number of bytes. */
	const kumi_status &status() const noexcept { return status_; }

	/* Receives it into one object or a range, which may be longer.
	 * Throws truncated if the message is longer; it is lost then. */
	template <class R>
	kumi_status recv(R &&into)
	{
		static_assert(detail::is_output<R>, "kumi: give a variable");
		auto where = detail::target(into);
		kumi_status status = status_;
		int code = kumi_claim_recv(std::exchange(handle_, nullptr),
		                           where.data(), detail::bytes(where),
		                           &status);
		if (code == KUMI_ERR_TRUNCATED)
			throw truncated("kumi_claim_recv", status.length);
		detail::check(code, "kumi_claim_recv");
		return status;
	}

private:
	friend class context;
	explicit claim(const std::weak_ptr<const bool> &alive) : alive_(alive) {}

	void swap(claim &other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(status_, other.status_);
		std::swap(alive_, other.alive_);
	}

	kumi_claim *handle_ = nullptr;
	kumi_status status_{};
	std::weak_ptr<const bool> alive_;
};

} // namespace kumi

#endif /* KUMI_REQUEST_HPP */
