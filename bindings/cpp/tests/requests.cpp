// The part of the test for requests, queues and claims.
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <kumi.hpp>

#include "check.hpp"

namespace {

static_assert(!std::is_copy_constructible_v<kumi::request> &&
              std::is_nothrow_move_constructible_v<kumi::request> &&
              std::is_nothrow_move_assignable_v<kumi::request>);

void puts_and_gets(kumi::context &job)
{
	const int me = job.rank(), ranks = job.size();
	const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
	kumi::window<double> window(job, 40'000);
	std::vector<double> data(20'000), back(20'000);

	std::iota(data.begin(), data.end(), 1000.0 * me);
	kumi::request put = window.iput(next, 100, data, 4);
	EXPECT(put && put.handle() != KUMI_REQUEST_NONE);
	kumi_result result = put.wait();
	EXPECT(result.error == KUMI_OK && !put);
	window.wait_notify(4, 1);
	EXPECT(window[100] == 1000.0 * before && window[99] == 0.0);

	/* In place when it has ended: a get that follows sees it. */
	kumi::request get = window.iget(next, 100, back);
	kumi::future<std::vector<double>> some = window.iget_vector(next, 101, 3);
	get.wait();
	EXPECT(back == data);
	EXPECT(some.get() ==
	       std::vector<double>(data.begin() + 1, data.begin() + 4));
	THROWS(KUMI_ERR_REQUEST, get.wait());
	THROWS(KUMI_ERR_REQUEST, some.get());

	/* A span is fine, and so is one object. */
	double one = 7.5;
	window.iput(next, 0, one, KUMI_NO_NOTIFY, kumi::put_end::sent).wait();
	kumi::request moved =
	    window.iput(next, 1, kumi::span<double>(data.data(), 2));
	kumi::request holder = std::move(moved);
	EXPECT(!moved && holder);
	holder.wait();
	job.flush();
	job.barrier();
	EXPECT(window[0] == 7.5 && window[1] == 1000.0 * before);
	THROWS(KUMI_ERR_RANK, window.iput(ranks, 0, one).wait());
	THROWS(KUMI_ERR_NOTIFY, window.iput(next, 0, one, 64).wait());
	THROWS(KUMI_ERR_BOUNDS, window.iget(next, 40'000, one).wait());
	THROWS(KUMI_ERR_BOUNDS, window.iget(next, SIZE_MAX, one).wait());
	job.barrier();
}

/* The elements of a get stay as long as its request, also when another future
 * takes its place. */
void futures(kumi::context &job)
{
	using elements = kumi::future<std::vector<int>>;
	static_assert(!std::is_copy_constructible_v<elements> &&
	              std::is_nothrow_move_constructible_v<elements> &&
	              std::is_nothrow_move_assignable_v<elements>);
	/* A request that was moved out would fill elements that are gone. */
	static_assert(!std::is_constructible_v<
	              kumi::request,
	              decltype(std::move(std::declval<elements &>().pending()))>);
	const int next = (job.rank() + 1) % job.size();
	constexpr std::size_t length = 50'000;
	kumi::window<int> window(job, length);

	for (std::size_t i = 0; i < length; i++)
		window[i] = static_cast<int>(i) + job.rank();
	job.barrier();
	elements first = window.iget_vector(next, 0, length);
	EXPECT(first.pending() &&
	       first.pending().handle() != KUMI_REQUEST_NONE);
	elements second = window.iget_vector(next, 100, 2);
	first = std::move(second);
	/* The get that was under way is `second` now. */
	EXPECT((first.get() == std::vector<int>{100 + next, 101 + next}));
	std::vector<int> all = second.get();
	EXPECT(all.size() == length && all[0] == next &&
	       all.back() == static_cast<int>(length) - 1 + next);
	/* A future that goes takes its get with it. */
	for (std::size_t i = 0; i < 40; i++)
		first = window.iget_vector(next, i, length - i);
	elements last = std::move(first);
	EXPECT(!first.pending() && last.pending());
	EXPECT(last.get().size() == length - 39);
	kumi::future<int> value = window.ifetch_add(next, 0, 0);
	std::vector<kumi::request> list;
	list.push_back(std::move(value.pending()));
	EXPECT(kumi::wait_any(list).result.value == std::uint64_t(next));
	job.barrier();
}

template <class T>
void atomics(kumi::context &job)
{
	kumi::window<T> window(job, 2);
	const T ranks = static_cast<T>(job.size());
	std::vector<kumi::future<T>> all;
	T sum{0};

	for (int i = 0; i < 40; i++)
		all.push_back(window.ifetch_add(0, 1, T{1}));
	for (auto &one : all) {
		T old = one.get();
		EXPECT(old >= sum);
		sum = old;
	}
	job.barrier();
	if (job.rank() == 0) {
		EXPECT(window[1] == static_cast<T>(40 * ranks));
		EXPECT(window.iswap(0, 0, static_cast<T>(-4)).get() == 0);
		EXPECT(window.icompare_swap(0, 0, static_cast<T>(-4), T{12})
		           .get() == static_cast<T>(-4));
		EXPECT(window.ifetch_and(0, 0, T{10}).get() == 12);
		EXPECT(window.ifetch_or(0, 0, T{3}).get() == 8);
		EXPECT(window.ifetch_xor(0, 0, T{1}).get() == 11);
		EXPECT(window[0] == 10);
	}
	job.barrier();
}

void messages(kumi::context &job)
{
	const int me = job.rank(), ranks = job.size();
	std::vector<std::vector<int>> into(static_cast<std::size_t>(ranks));
	std::vector<kumi::request> receives, sends;
	std::vector<int> mine(5'000, me);

	for (int rank = 0; rank < ranks; rank++) {
		auto &place = into[static_cast<std::size_t>(rank)];
		place.resize(5'000);
		receives.push_back(job.irecv(rank, 6, place));
		sends.push_back(job.isend(rank, 6, mine));
	}
	for (int left = ranks; left > 0; left--) {
		kumi::ended_request one = kumi::wait_any(receives);
		EXPECT(one.result.source == static_cast<int>(one.index));
		EXPECT(into[one.index] == std::vector<int>(5'000, one.result.source));
		EXPECT(!receives[one.index]);
	}
	THROWS(KUMI_ERR_REQUEST, kumi::wait_any(receives));
	for (const kumi_result &result : kumi::wait_all(sends))
		EXPECT(result.error == KUMI_OK);
	EXPECT(job.requests() == 0);

	/* Some at a time. */
	std::array<int, 8> eight{};
	for (int i = 0; i < 8; i++)
		receives.push_back(
		    job.irecv(me, i, eight[static_cast<std::size_t>(i)]));
	for (int i = 8; i-- > 0;)
		job.send(me, i, i * i);
	for (std::size_t left = 8; left > 0;) {
		auto some = kumi::wait_some(receives);
		EXPECT(!some.empty() && some.size() <= left);
		left -= some.size();
	}
	for (int i = 0; i < 8; i++)
		EXPECT(eight[static_cast<std::size_t>(i)] == i * i);
	job.barrier();
}

/* Requests that go out of scope give their memory back. */
void ends(kumi::context &job)
{
	const int me = job.rank();
	{
		auto gone = std::make_unique<int>(0);
		kumi::request receive = job.irecv(me, 9, *gone);
		EXPECT(job.requests() == 1 && !receive.test());
		EXPECT(receive.cancel());
		EXPECT(receive.wait().cancelled == 1);
		receive = job.irecv(me, 9, *gone);
	}
	EXPECT(job.requests() == 0);
	job.send(me, 9, 31);
	EXPECT(job.recv_value<int>(me, 9) == 31);

	int small = 0;
	job.send(me, 9, std::array<int, 2>{1, 2});
	std::size_t needed = 0;
	try {
		job.irecv(me, 9, small).wait();
	} catch (const kumi::truncated &error) {
		needed = error.bytes();
	}
	EXPECT(needed == 2 * sizeof(int));
	kumi::request none;
	EXPECT(!none);
	THROWS(KUMI_ERR_REQUEST, none.wait());
	THROWS(KUMI_ERR_REQUEST, none.cancel());
	THROWS(KUMI_ERR_REQUEST, none.release());
}

/* A window is not freed below a request. */
void lent_windows(kumi::context &job)
{
	const int me = job.rank();
	kumi::window<int> window(job, 16);
	kumi::span<int> place(window.data() + 8, 1);

	kumi::request receive = job.irecv(me, 10, place);
	THROWS(KUMI_ERR_LENT, window.free());
	EXPECT(window.size() == 16 && window.handle() != nullptr);
	job.send(me, 10, 5);
	receive.wait();
	EXPECT(place[0] == 5);
	receive = job.irecv(me, 10, place);
	THROWS(KUMI_ERR_LENT, window.free());
	receive = kumi::request();
	window.free();
	EXPECT(window.handle() == nullptr);
	job.barrier();
}

void reports(kumi::context &job)
{
	const int me = job.rank();
	kumi::window<std::uint32_t> window(job, 8);
	kumi::completion done(job);
	kumi::completion_queue first(job), queue(std::move(first));
	std::uint32_t value = 5, back = 0;

	EXPECT(!queue.poll() && first.handle() == nullptr);
	window.iput(me, 3, value, kumi::report{&done});
	done.wait(1);
	window.iget(me, 3, back, kumi::report{nullptr, &queue, 1});
	job.irecv(me, 2, value, kumi::report{nullptr, &queue, 2});
	job.isend(me, 2, back, kumi::report{nullptr, &queue, 4});
	std::uint64_t words = 0;
	for (int i = 0; i < 3; i++) {
		kumi_result result = queue.wait();
		EXPECT(result.error == KUMI_OK && (words & result.word) == 0);
		words |= result.word;
	}
	EXPECT(words == 7 && back == 5 && value == 5);
	THROWS(KUMI_ERR_REQUEST, queue.wait());
	THROWS(KUMI_ERR_QUEUE, job.isend(me, 2, back, kumi::report{}));
	THROWS(KUMI_ERR_QUEUE,
	       job.isend(me, 2, back, kumi::report{nullptr, &first, 0}));
	/* A failed request is an entry. */
	std::array<std::uint32_t, 2> two{};
	job.send(me, 2, two);
	job.irecv(me, 2, value, kumi::report{nullptr, &queue, 9});
	kumi_result failed = queue.wait();
	EXPECT(failed.word == 9 && failed.error == KUMI_ERR_TRUNCATED);
	job.barrier();
}

void claims(kumi::context &job)
{
	const int next = (job.rank() + 1) % job.size();
	std::vector<int> given(static_cast<std::size_t>(job.rank()) + 1, 3);

	job.send(next, 8, given);
	kumi_status status = job.wait_message(KUMI_ANY_SOURCE, 8);
	auto claim = job.claim(status.source, 8);
	EXPECT(claim && claim->status().length == status.length);
	EXPECT(!job.claim(status.source, 8));
	std::vector<int> taken(status.length / sizeof(int));
	EXPECT(claim->recv(taken).length == status.length);
	EXPECT(taken[0] == 3);
	THROWS(KUMI_ERR_CLAIM, claim->recv(taken));
	job.barrier();
	/* One that goes out of scope puts the message back. */
	job.send(job.rank(), 8, 4);
	{
		auto unused = job.claim(job.rank(), 8);
		EXPECT(unused && !job.probe(job.rank(), 8));
	}
	EXPECT(job.recv_value<int>(job.rank(), 8) == 4);
	job.barrier();
}

} // namespace

void requests(kumi::context &job)
{
	puts_and_gets(job);
	futures(job);
	atomics<std::int32_t>(job);
	atomics<std::uint64_t>(job);
	messages(job);
	ends(job);
	lent_windows(job);
	reports(job);
	claims(job);
}
