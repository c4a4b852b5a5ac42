// The part of the test for lists of pieces, records for the FIFOs and ports of
// many ranks, and windows on the program's own memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <kumi.hpp>

#include "check.hpp"

namespace {

std::vector<int> everybody(kumi::context &job)
{
	std::vector<int> ranks(static_cast<std::size_t>(job.size()));
	std::iota(ranks.begin(), ranks.end(), 0);
	return ranks;
}

/* Every rank's pieces go between those of the others, at every rank. */
void lists(kumi::context &job)
{
	const auto me = static_cast<std::size_t>(job.rank());
	const auto ranks = static_cast<std::size_t>(job.size());
	constexpr std::size_t rows = 300;
	kumi::window<std::int32_t> window(job, 3 * rows * ranks);
	std::vector<kumi::piece> mine;
	std::vector<std::int32_t> given(3 * rows), taken(3 * rows);

	/* Rows of three elements, the last row first, in halves that are none
	 * of the data's. */
	std::iota(given.begin(), given.end(), 1000 * job.rank());
	for (std::size_t row = rows; row-- > 0;) {
		std::size_t start = 3 * (row * ranks + me);
		mine.insert(mine.end(), {{start, 1}, {start, 0}, {start + 1, 2}});
	}
	kumi::completion done(job);
	for (int rank : everybody(job))
		window.put_list(rank, mine, given, {4, &done});
	done.wait_all();
	EXPECT(done.done() == ranks && window.wait_notify(4, ranks) == ranks);
	for (std::size_t i = 0; i < window.size(); i++) {
		std::size_t row = i / 3 / ranks, from = i / 3 % ranks;
		EXPECT(window[i] ==
		       int(1000 * from + 3 * (rows - 1 - row) + i % 3));
	}
	job.barrier();
	for (int rank : everybody(job)) {
		window.get_list(rank, mine, taken);
		EXPECT(given == taken);
		taken.assign(taken.size(), -1);
		std::array<kumi::span<std::int32_t>, 3> parts{
		    {{taken.data(), 4}, {}, {taken.data() + 4, 3 * rows - 4}}};
		window.get_lists(rank, mine, parts);
		EXPECT(given == taken);
	}
	job.barrier();
	std::vector<std::vector<std::int32_t>> parts{{7, 8}, {}, {9}};
	window.put_lists(job.rank(), {{5, 1}, {0, 2}}, parts);
	EXPECT(window[5] == 7 && window[0] == 8 && window[1] == 9);
	window.put_list(job.rank(), {{0, 2}, {1, 2}}, std::array{1, 2, 3, 4});
	EXPECT(window[0] == 1 && window[1] == 3 && window[2] == 4);
	window.put_list(job.rank(), {{9, 1}}, 5);
	int one = 0;
	window.get_list(job.rank(), {{9, 1}}, one);
	EXPECT(one == 5);
	window.put_list(job.rank(), {}, std::vector<std::int32_t>(), {4});
	EXPECT(window.notified(4) == ranks + 1);
	job.barrier();
}

void wrong_lists(kumi::context &job)
{
	const int me = job.rank();
	kumi::window<std::int64_t> window(job, 8);
	kumi::completion done(job), moved(std::move(done));
	std::array<std::int64_t, 4> four{1, 2, 3, 4};
	using list = std::vector<kumi::piece>;
	const list beyond{{0, 1}, {6, 3}}, far{{SIZE_MAX / 8 + 1, 4}},
	    endless{{0, SIZE_MAX / 8}, {0, SIZE_MAX / 8}, {0, 8}};

	for (const list &wrong : {beyond, far}) {
		THROWS(KUMI_ERR_BOUNDS, window.put_list(me, wrong, four));
		THROWS(KUMI_ERR_BOUNDS, window.get_list(me, wrong, four));
	}
	for (const list &wrong : {list{{0, 3}}, list{{0, 3}, {4, 2}},
	                          list{{0, SIZE_MAX}}, endless, list{}}) {
		THROWS(KUMI_ERR_LENGTH, window.put_list(me, wrong, four));
		THROWS(KUMI_ERR_LENGTH, window.get_list(me, wrong, four));
	}
	using part = kumi::span<std::int64_t>;
	std::array<part, 2> overlapping{{{&four[0], 2}, {&four[1], 2}}};
	window.put_lists(me, {{0, 4}}, overlapping);
	EXPECT(window[1] == 2 && window[2] == 2);
	THROWS(KUMI_ERR_LENGTH, window.get_lists(me, {{0, 4}}, overlapping));
	THROWS(KUMI_ERR_LENGTH,
	       window.get_lists(me, {{0, 4}}, std::vector<part>{{&four[0], 3}}));
	THROWS(KUMI_ERR_RANK, window.put_list(job.size(), {{0, 4}}, four));
	THROWS(KUMI_ERR_RANK, window.get_list(-1, {{0, 4}}, four));
	THROWS(KUMI_ERR_NOTIFY, window.put_list(me, {{4, 4}}, four, {64}));
	THROWS(KUMI_ERR_COMPLETION,
	       window.put_list(me, {{4, 4}}, four, {0, &done}));
	for (std::size_t i = 4; i < 8; i++)
		EXPECT(window[i] == 0);
	EXPECT(four[2] == 3);
	job.barrier();
	window.free();
	THROWS(KUMI_ERR_WINDOW, window.put_list(me, {{0, 4}}, four));
}

constexpr std::size_t capacity = 128;

/* Every rank appends to all; each takes those of one rank in order. */
void records(kumi::context &job)
{
	constexpr std::int16_t each = 20;
	const std::vector<int> all = everybody(job);
	std::vector<std::int16_t> next(all.size());
	kumi::window<char> window(job, KUMI_FIFO_OVERHEAD + capacity);
	kumi::fifo fifo(window, 0, capacity, 3);
	int taken = 0;
	auto take = [&](const std::array<std::int16_t, 2> &record) {
		auto from = static_cast<std::size_t>(record[0]);
		EXPECT(record[1] == next[from]);
		next[from]++;
		taken++;
	};

	job.barrier();
	std::array<std::int16_t, 2> record{};
	for (std::int16_t i = 0; i < each; i++) {
		std::vector<int> rest = all;
		while (!rest.empty()) {
			rest = window.try_multicast_append(
			    rest, 0,
			    std::array{static_cast<std::int16_t>(job.rank()), i});
			while (fifo.try_pop(record))
				take(record);
		}
	}
	while (taken < each * job.size()) {
		fifo.pop(record);
		take(record);
	}
	job.barrier();
	EXPECT(window.wait_notify(3, all.size()) == each * all.size());
	/* Each rank is written once. */
	const std::array twice{job.rank(), job.rank()};
	window.multicast_append(twice, 0, 'c');
	EXPECT(fifo.pop_value<char>() == 'c' && !fifo.try_pop(record));
	EXPECT(window.try_multicast_append(std::vector<int>(), 0, 'c').empty());
	while (window.try_append(job.rank(), 0, record))
		;
	EXPECT(window.try_multicast_append(twice, 0, record).size() == 2);
	THROWS(KUMI_ERR_FULL, window.multicast_append(twice, 0, record));
	THROWS(KUMI_ERR_RANK, window.multicast_append(job.size(), 0, 'c'));
	THROWS(KUMI_ERR_RANK, window.multicast_append(-1, 0, 'c'));
	THROWS(KUMI_ERR_FIFO, window.multicast_append(twice, 64, 'c'));
	THROWS(KUMI_ERR_FIFO, window.multicast_signal(twice, 0, 'c'));
	THROWS(KUMI_ERR_LENGTH,
	       window.multicast_append(
	           twice, 0,
	           std::vector<char>(kumi::fifo::max_record() + 1)));
	job.barrier();
}

void signals(kumi::context &job)
{
	const std::vector<int> all = everybody(job);
	kumi::window<char> window(job, KUMI_FIFO_OVERHEAD + capacity);
	std::atomic<int> sum{0}, wrong{0};

	window.on_signal(0, capacity,
	                 [&](int source, kumi::span<const unsigned char> data) {
		                 wrong += data.size() != 1 || data[0] != source;
		                 sum++;
	                 });
	job.barrier();
	const auto me = static_cast<unsigned char>(job.rank());
	window.multicast_signal(all, 0, me);
	while (sum < job.size())
		std::this_thread::yield();
	job.barrier();
	std::vector<int> rest{job.rank()};
	while (!rest.empty())
		rest = window.try_multicast_signal(rest, 0, me);
	window.remove_signal(0);
	EXPECT(wrong == 0);
	THROWS(KUMI_ERR_FIFO, window.multicast_signal(job.rank(), 0, 'c'));
	job.barrier();
}

/* All operations on memory of every second rank's own. */
void own_memory(kumi::context &job)
{
	const auto me = static_cast<std::size_t>(job.rank());
	const auto ranks = static_cast<std::size_t>(job.size());
	const int next = (job.rank() + 1) % job.size();
	std::vector<std::int64_t> memory(4 * ranks, -1);
	{
		kumi::window<std::int64_t> made =
		    me % 2 == 0 ? kumi::window<std::int64_t>(job, memory)
		                : kumi::window<std::int64_t>(job, 4 * ranks);
		kumi::window<std::int64_t> window(std::move(made));
		EXPECT(window.size() == 4 * ranks);
		EXPECT((window.data() == memory.data()) == (me % 2 == 0));
		EXPECT(window[0] == (me % 2 == 0 ? -1 : 0));
		std::fill(window.begin(), window.end(), 0);
		job.barrier();
		for (int rank : everybody(job)) {
			window.put_notify(rank, 4 * me,
			                  std::int64_t{job.rank()}, 1);
			window.put_list(rank, {{4 * me + 2, 1}, {4 * me + 1, 1}},
			                std::array<std::int64_t, 2>{2, 1});
		}
		window.wait_notify(1, ranks);
		EXPECT(window.fetch_add(next, 4 * me + 3, 3) == 0);
		job.flush();
		job.barrier();
		for (std::size_t i = 0; i < 4 * ranks; i++) {
			std::size_t rank = i / 4;
			bool mine = (rank + 1) % ranks == me;
			std::int64_t is[] = {std::int64_t(rank), 1, 2, mine ? 3 : 0};
			EXPECT(window[i] == is[i % 4]);
		}
		EXPECT(window.get(next, 4 * me + 3) == 3);
		job.barrier();
	}
	/* It stays as it was when the window ended. */
	EXPECT(memory[0] == (me % 2 == 0 ? 0 : -1));
}

/* Stack, FIFOs in it, rights, nothing, and what is refused at all ranks. */
void kinds_of_memory(kumi::context &job)
{
	const int me = job.rank();
	alignas(KUMI_FIFO_ALIGNMENT)
	    std::array<std::uint8_t, KUMI_FIFO_OVERHEAD + capacity> room{};
	{
		kumi::window<std::uint8_t> window(job, room);
		kumi::fifo fifo(window, 0, capacity);
		job.barrier();
		window.multicast_append(everybody(job), 0, me);
		std::vector<int> sources;
		for (int i = 0; i < job.size(); i++)
			sources.push_back(fifo.pop_value<int>());
		std::sort(sources.begin(), sources.end());
		EXPECT(sources == everybody(job));
		job.barrier();
	}
	double numbers[3] = {1, 2, 3};
	kumi::window<double> readable(job, kumi::span<double>(numbers, 2),
	                              KUMI_RIGHT_READ);
	kumi::window<double> writable(job, 1, KUMI_RIGHT_WRITE);
	job.barrier();
	EXPECT(readable.get(0, 1) == 2.0);
	THROWS(KUMI_ERR_RIGHT, readable.put(me, 0, 5.0));
	THROWS(KUMI_ERR_BOUNDS, readable.get(me, 2));
	THROWS(KUMI_ERR_RIGHT, writable.get(me, 0));
	writable.put(me, 0, 5.0);
	EXPECT(numbers[0] == 1.0 && writable[0] == 5.0);
	job.barrier();
	readable.free();
	EXPECT(readable.size() == 0);
	THROWS(KUMI_ERR_WINDOW, readable.get(me, 0));

	kumi::window<int> empty(job, kumi::span<int>());
	EXPECT(empty.size() == 0);
	THROWS(KUMI_ERR_BOUNDS, empty.put(me, 0, 1));
	THROWS(KUMI_ERR_MEMORY,
	       kumi::window<int>(job, kumi::span<int>(nullptr, 1)));
	alignas(8) char bytes[16] = "";
	kumi::span<char> odd(bytes + 1, 8);
	THROWS(KUMI_ERR_MEMORY, kumi::window<char>(job, odd));
	THROWS(KUMI_ERR_RIGHT, kumi::window<char>(job, odd, 8));
	kumi::window<char> plain(job, odd, KUMI_RIGHT_WRITE | KUMI_RIGHT_READ);
	plain.put(me, 7, 'c');
	EXPECT(bytes[8] == 'c');
	job.barrier();
}

} // namespace

void lists_and_memory(kumi::context &job)
{
	lists(job);
	wrong_lists(job);
	records(job);
	signals(job);
	own_memory(job);
	kinds_of_memory(job);
}
