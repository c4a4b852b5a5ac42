// The part of the test for atomic operations, completions, strided and multicast
// puts, FIFOs and signals.
#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <kumi.hpp>

#include "check.hpp"

namespace {

/* Every operation on rank 0's element 1, one after the other. */
template <class T>
void atomics(kumi::context &job)
{
	kumi::window<T> window(job, 2);
	const T most = static_cast<T>(~T{0});

	if (job.rank() == 0) {
		EXPECT(window.swap(0, 1, T{12}) == 0);
		EXPECT(window.fetch_and(0, 1, T{10}) == 12);
		EXPECT(window.fetch_or(0, 1, T{3}) == 8);
		EXPECT(window.fetch_xor(0, 1, most) == 11);
		EXPECT(window.fetch_add(0, 1, T{12}) == static_cast<T>(~T{11}));
		EXPECT(window.compare_swap(0, 1, T{1}, T{5}) == 0);
		EXPECT(window.compare_swap(0, 1, T{0}, T{5}) == 0);
		EXPECT(window[1] == 5 && window[0] == 0);
	}
	job.barrier();
	for (int i = 0; i < 50; i++) {
		T seen = window.get(0, 0);
		for (;;) {
			T before = window.compare_swap(0, 0, seen, seen + 1);
			if (before == seen)
				break;
			seen = before;
		}
	}
	job.barrier();
	EXPECT(window.get(0, 0) == static_cast<T>(50 * job.size()));
	THROWS(KUMI_ERR_BOUNDS, window.swap(0, 2, 1));
	THROWS(KUMI_ERR_BOUNDS, window.fetch_or(0, SIZE_MAX, 1));
	THROWS(KUMI_ERR_RANK, window.fetch_xor(job.size(), 0, 1));
	job.barrier();
}

/* Bytes of any type are swapped. */
void swaps(kumi::context &job)
{
	kumi::window<float> window(job, 1);

	EXPECT(window.swap(job.rank(), 0, 1.5F) == 0.0F);
	EXPECT(window.compare_swap(job.rank(), 0, 1.5F, -2.0F) == 1.5F);
	EXPECT(window[0] == -2.0F);
	job.barrier();
}

void completions(kumi::context &job)
{
	const auto ranks = static_cast<std::uint64_t>(job.size());
	kumi::window<int> window(job, ranks);
	kumi::completion first(job), done(std::move(first));

	EXPECT(first.handle() == nullptr && done.done() == 0);
	for (int rank = 0; rank < job.size(); rank++)
		window.put(rank, static_cast<std::size_t>(job.rank()), rank,
		           kumi::after{5, &done});
	EXPECT(done.wait(1) >= 1);
	done.wait_all();
	EXPECT(done.done() == ranks);
	EXPECT(window.wait_notify(5, ranks) == ranks);
	for (int value : window)
		EXPECT(value == job.rank());
	window.put(job.rank(), 0, 0, kumi::after{});
	THROWS(KUMI_ERR_LENGTH, done.wait(ranks + 1));
	THROWS(KUMI_ERR_COMPLETION, first.done());
	THROWS(KUMI_ERR_COMPLETION,
	       window.put(job.rank(), 0, 1, kumi::after{5, &first}));
	THROWS(KUMI_ERR_COMPLETION,
	       window.put_strided(job.rank(), {0, 1, 1, 1}, 1, {5, &first}));
	THROWS(KUMI_ERR_NOTIFY, window.put(0, 0, 1, kumi::after{64}));
	job.barrier();
	first = std::move(done);
	EXPECT(first.done() == ranks);
}

/* Columns of a matrix of 40 rows, one for each rank. */
void strided(kumi::context &job)
{
	const auto me = static_cast<std::size_t>(job.rank());
	const auto ranks = static_cast<std::size_t>(job.size());
	const int next = (job.rank() + 1) % job.size();
	kumi::window<std::int32_t> window(job, 40 * ranks);
	const kumi::blocks column{me, ranks, 1, 40};
	std::vector<std::int32_t> given(40), taken(40, -1);

	std::iota(given.begin(), given.end(), 100 * job.rank());
	for (int rank = 0; rank < job.size(); rank++)
		window.put_strided(rank, column, given, {1});
	window.wait_notify(1, ranks);
	for (std::size_t i = 0; i < window.size(); i++)
		EXPECT(window[i] == int(100 * (i % ranks) + i / ranks));
	kumi::completion done(job);
	window.put_strided(next, column, given,
	                   {KUMI_NO_NOTIFY, &done});
	done.wait_all();
	window.get_strided(next, column, taken);
	EXPECT(given == taken);
	job.barrier(); /* The neighbour has all columns, too. */
	given.resize(20 * ranks);
	window.get_strided(next, {0, 2 * ranks, ranks, 20}, given);
	for (std::size_t i = 0; i < given.size(); i++)
		EXPECT(given[i] == int(100 * (i % ranks) + 2 * (i / ranks)));
	THROWS(KUMI_ERR_LENGTH, window.put_strided(next, column, 1));
	THROWS(KUMI_ERR_LENGTH,
	       window.put_strided(next, {0, 1, SIZE_MAX, 2}, taken));
	THROWS(KUMI_ERR_LENGTH, window.put_strided(next, {0, 1, 2, 20}, taken));
	THROWS(KUMI_ERR_BOUNDS,
	       window.get_strided(next, {20 * ranks + 1, ranks, ranks, 20},
	                          given));
	job.barrier();
}

void multicasts(kumi::context &job)
{
	const auto ranks = static_cast<std::size_t>(job.size());
	kumi::window<double> window(job, ranks);
	std::vector<int> everybody(ranks);

	std::iota(everybody.begin(), everybody.end(), 0);
	window.multicast(everybody, static_cast<std::size_t>(job.rank()),
	                 job.rank() + 0.5, 9);
	window.wait_notify(9, ranks);
	for (std::size_t i = 0; i < ranks; i++)
		EXPECT(window[i] == double(i) + 0.5);
	window.multicast(std::vector<int>(), 0, 1.0);
	THROWS(KUMI_ERR_RANK, window.multicast(job.size(), 0, 1.0));
	THROWS(KUMI_ERR_BOUNDS, window.multicast(everybody, ranks, 1.0));
	job.barrier();
}

struct task {
	int rank;
	std::int16_t number;
};

constexpr std::size_t capacity = 128;

/* More records than there is room for, from all ranks to rank 0. */
void fifos(kumi::context &job)
{
	kumi::window<char> window(job, KUMI_FIFO_OVERHEAD + capacity);
	std::vector<std::int16_t> next(static_cast<std::size_t>(job.size()));

	EXPECT(kumi::fifo::max_record() >= 256);
	if (job.rank() == 0) {
		kumi::fifo first(window, 0, capacity, 3);
		kumi::fifo tasks(std::move(first));
		std::array<task, 2> two{};
		EXPECT(tasks.offset() == 0 && first.handle() == nullptr);
		EXPECT(!tasks.try_pop(two));
		job.barrier();
		for (int i = 0; i < 30 * (job.size() - 1); i++) {
			task taken = tasks.pop_value<task>();
			auto from = static_cast<std::size_t>(taken.rank);
			EXPECT(taken.number == next[from]);
			next[from]++;
		}
		window.append(0, 0, two);
		std::size_t needed = 0;
		try {
			tasks.pop(next[0]);
		} catch (const kumi::truncated &error) {
			needed = error.bytes();
		}
		EXPECT(needed == sizeof two);
		kumi::record taken = tasks.pop(two);
		EXPECT(taken.source == 0 && taken.bytes == sizeof two);
		window.append(0, 0, 'c');
		THROWS(KUMI_ERR_LENGTH, tasks.pop_value<int>());
		while (window.try_append(0, 0, two))
			;
		THROWS(KUMI_ERR_FULL, window.append(0, 0, two));
		EXPECT(tasks.try_pop(two)->bytes == sizeof two);
		THROWS(KUMI_ERR_FIFO, kumi::fifo(window, 64, 64));
		tasks.free();
		THROWS(KUMI_ERR_FIFO, tasks.pop(two));
		THROWS(KUMI_ERR_FIFO, window.append(0, 0, two));
	} else {
		job.barrier();
		for (std::int16_t i = 0; i < 30; i++)
			window.append(0, 0, task{job.rank(), i});
	}
	job.barrier();
	/* The window ends first: the FIFO is freed once. */
	kumi::fifo late(window, 0, capacity);
	window.free();
	THROWS(KUMI_ERR_FIFO, late.pop_value<int>());
}

void signals(kumi::context &job)
{
	kumi::window<char> window(job, KUMI_FIFO_OVERHEAD + capacity);
	std::atomic<int> sum{0}, wrong{0}, refused{0};
	const auto main_thread = std::this_thread::get_id();

	window.on_signal(0, capacity,
	                 [&](int source, kumi::span<const unsigned char> data) {
		                 wrong += data.size() != 1 || data[0] != source ||
		                          std::this_thread::get_id() ==
		                              main_thread;
		                 refused += throws(KUMI_ERR_WRONG_THREAD,
		                                   [&] { job.barrier(); });
		                 sum++;
	                 });
	job.barrier();
	for (int rank = 0; rank < job.size(); rank++)
		window.signal(rank, 0, static_cast<unsigned char>(job.rank()));
	while (sum < job.size())
		std::this_thread::yield();
	EXPECT(wrong == 0 && refused == job.size());
	job.barrier();
	kumi::window<char> moved(std::move(window));
	while (!moved.try_signal(job.rank(), 0,
	                         static_cast<unsigned char>(job.rank())))
		;
	moved.remove_signal(0);
	THROWS(KUMI_ERR_FIFO, moved.signal(job.rank(), 0, 'c'));
	THROWS(KUMI_ERR_FIFO, moved.remove_signal(0));
	THROWS(KUMI_ERR_FIFO,
	       moved.on_signal(8, capacity, [](int, auto) {}));
	job.barrier();
}

/* What fails leaves the ports their handlers, and the objects what they are. */
void failed_ends(kumi::context &job)
{
	constexpr std::size_t port = KUMI_FIFO_OVERHEAD + capacity;
	const int me = job.rank();
	std::atomic<int> sum{0};
	std::weak_ptr<int> held[2];
	kumi::window<char> window(job, 3 * port), lost(job, port);
	kumi::fifo fifo(window, 2 * port, capacity);
	kumi::window<char> *both[] = {&window, &lost};

	for (int i = 0; i < 2; i++) {
		auto more = std::make_shared<int>(1);
		held[i] = more;
		both[i]->on_signal(0, capacity,
		                   [&sum, more](int, auto) { sum += *more; });
	}
	std::thread([&] {
		THROWS(KUMI_ERR_WRONG_THREAD, fifo.free());
		THROWS(KUMI_ERR_WRONG_THREAD, window.free());
		kumi::window<char> gone(std::move(lost));
	}).join();
	/* A port that the object knows nothing of. */
	EXPECT(kumi_signal_handle(
	           window.handle(), port, capacity,
	           [](void *, int, const void *, std::size_t) {}, nullptr) ==
	       KUMI_OK);
	window.remove_signal(port);
	EXPECT(!held[0].expired() && !held[1].expired());
	window.signal(me, 0, 'a');
	while (sum < 1)
		std::this_thread::yield();
	window.append(me, 2 * port, 5);
	EXPECT(fifo.pop_value<int>() == 5);
	fifo.free();
	EXPECT(window.size() == 3 * port);
	window.free();
	EXPECT(held[0].expired() && window.size() == 0);
	job.barrier();
}

} // namespace

void onesided(kumi::context &job)
{
	atomics<std::int32_t>(job);
	atomics<std::uint32_t>(job);
	atomics<std::int64_t>(job);
	atomics<std::uint64_t>(job);
	swaps(job);
	completions(job);
	strided(job);
	multicasts(job);
	fifos(job);
	signals(job);
	failed_ends(job);
}
