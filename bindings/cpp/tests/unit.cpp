// A user's program against kumi.hpp, for any number of ranks: exit code 0 if
// all is as documented.  With -DWRONG=n it must not compile.
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <kumi.hpp>

#include "check.hpp"

static_assert(kumi::type_of<char>() == (CHAR_MIN < 0 ? KUMI_I8 : KUMI_U8));
static_assert(kumi::type_of<unsigned char>() == KUMI_U8);
static_assert(kumi::type_of<short>() == KUMI_I16);
static_assert(kumi::type_of<std::uint16_t>() == KUMI_U16);
static_assert(kumi::type_of<int>() == KUMI_I32);
static_assert(kumi::type_of<unsigned>() == KUMI_U32);
static_assert(kumi::type_of<long long>() == KUMI_I64);
static_assert(kumi::type_of<std::size_t>() == KUMI_U64);
static_assert(kumi::type_of<float>() == KUMI_F32);
static_assert(kumi::type_of<double>() == KUMI_F64);
static_assert(!kumi::is_number<bool> && !kumi::is_number<long double>);
static_assert(!std::is_copy_constructible_v<kumi::context> &&
              !std::is_copy_constructible_v<kumi::window<int>> &&
              std::is_nothrow_move_constructible_v<kumi::window<int>>);

namespace {

struct point {
	double x;
	std::int16_t y;
	bool operator==(const point &p) const { return x == p.x && y == p.y; }
};

void spans()
{
	std::vector<int> numbers{1, 2, 3};
	kumi::span<int> all(numbers.data(), numbers.size());
	bool thrown = false;

	EXPECT(all.subspan(1, 2)[1] == 3 && all.subspan(3, 0).empty());
	for (auto [first, count] :
	     {std::pair<std::size_t, std::size_t>{2, 2}, {4, 0}, {1, SIZE_MAX}}) {
		thrown = false;
		try {
			all.subspan(first, count);
		} catch (const std::out_of_range &) {
			thrown = true;
		}
		EXPECT(thrown);
	}
}

void outside()
{
	kumi_error code = KUMI_OK;

	try {
		kumi::context job;
	} catch (const kumi::error &error) {
		code = error.code();
		EXPECT(std::strstr(error.what(), "kumi run") != nullptr);
	}
	EXPECT(code == KUMI_ERR_NOT_LAUNCHED);
}

/* Others could write to memory of a window that cannot be freed. */
[[noreturn]] void dies()
{
	std::set_terminate([] { std::_Exit(7); });
	kumi::context job;
	std::vector<int> memory(2);
	kumi::window<int> window(job, memory);
	std::thread([&] { auto gone = std::move(window); }).join();
	std::_Exit(1);
}

/* Each thread its own tag; all the same counter. */
void several_threads()
{
	constexpr int count = 4, rounds = 200;
	kumi::context job(kumi::threads::multiple);
	kumi::window<std::uint64_t> window(job, 1);
	std::vector<std::thread> threads;
	std::atomic<int> wrong{0};

	for (int me = 0; me < count; me++)
		threads.emplace_back([&, me] {
			for (int i = 0; i < rounds; i++) {
				int sent = 1000 * me + i, received = 0;
				auto old = window.ifetch_add(0, 0, 1);
				auto came = job.irecv(0, me, received);
				job.isend(0, me, sent).wait();
				came.wait();
				wrong += received != sent;
				wrong += old.get() >= count * rounds;
			}
			wrong += !throws(KUMI_ERR_WRONG_THREAD,
			                 [&] { job.finalize(); });
		});
	for (std::thread &thread : threads)
		thread.join();
	EXPECT(wrong == 0 && window[0] == count * rounds);
	job.finalize();
}

void identity(kumi::context &job)
{
	EXPECT(job.rank() >= 0 && job.rank() < job.size());
	EXPECT(job.node() >= 0);
	EXPECT(job.job() == kumi_job());
	double begin = job.time();
	EXPECT(begin >= 0.0 && job.time() >= begin);
	THROWS(KUMI_ERR_ALREADY_INITIALISED, kumi::context second);
	const int nodes = job.cluster_nodes();
	EXPECT(nodes == 0 || nodes > job.node());
	for (int node = 0; node < nodes; node++)
		if (auto known = job.load(node))
			EXPECT(known->load >= 0 && known->memory > 0 &&
			       known->memory <= 1 && known->network >= 0 &&
			       known->age >= 0);
	EXPECT(!job.load(-1) && !job.load(nodes));
	// The daemon may look late, and believe what it saw before.
	const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
	bool runs = false;
	while (!(runs = job.runs(job.rank())) &&
	       std::chrono::steady_clock::now() < end)
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	EXPECT(runs);
	THROWS(KUMI_ERR_RANK, job.runs(job.size()));
	std::thread([&] {
		THROWS(KUMI_ERR_WRONG_THREAD, job.rank());
		THROWS(KUMI_ERR_WRONG_THREAD, job.time());
		THROWS(KUMI_ERR_WRONG_THREAD, job.load(0));
		THROWS(KUMI_ERR_WRONG_THREAD, job.cluster_nodes());
		THROWS(KUMI_ERR_WRONG_THREAD, job.job());
	}).join();
	/* Nor does another thread end anything. */
	kumi::window<int> window(job, 1);
	kumi_window *handle = window.handle();
	std::thread([&] {
		THROWS(KUMI_ERR_WRONG_THREAD, job.finalize());
	}).join();
	job.barrier();
	window.free();
	EXPECT(kumi_window_base(handle) == nullptr);
}

/* Round the ring of all ranks, which may be one rank only. */
void messages(kumi::context &job)
{
	const int next = (job.rank() + 1) % job.size();
	const int last = (job.rank() + job.size() - 1) % job.size();
	std::array<point, 3> given{{{0.5, 1}, {1.5, 2}, {job.rank() * 1.0, 3}}};
	std::array<point, 4> taken{};

	job.send(next, 1, job.rank());
	EXPECT(job.recv_value<int>(last, 1) == last);
	job.send(next, 2, given);
	kumi_status status = job.recv(KUMI_ANY_SOURCE, 2, taken);
	EXPECT(status.source == last && status.tag == 2);
	EXPECT(status.length == sizeof given);
	given[2].x = last;
	EXPECT(std::equal(given.begin(), given.end(), taken.begin()));

	std::string text(10, '-');
	job.send(next, 3, std::string("from ") + std::to_string(job.rank()));
	status = job.recv(last, KUMI_ANY_TAG, text);
	text.resize(status.length);
	EXPECT(text == "from " + std::to_string(last));

	std::vector<long> numbers(5, job.rank()), others(5, -1);
	status = job.sendrecv(next, 4, numbers, last, 4, others);
	EXPECT(status.length == 5 * sizeof(long));
	EXPECT(others == std::vector<long>(5, last));

	job.send(next, 5, std::vector<char>());
	job.recv(last, 5, kumi::span<char>());
	job.barrier();
	EXPECT(!job.probe(KUMI_ANY_SOURCE, KUMI_ANY_TAG));
	job.barrier();
	job.send(job.rank(), 6, 1.0F);
	EXPECT(job.probe(job.rank(), 6)->length == sizeof(float));
	EXPECT(job.recv_value<float>(job.rank(), 6) == 1.0F);
	job.progress();
	job.flush(next);
	job.flush();
	job.fence(next);
	job.fence();
}

void bad_messages(kumi::context &job)
{
	const int me = job.rank();
	std::array<int, 4> buffer{};

	THROWS(KUMI_ERR_RANK, job.send(job.size(), 0, 1));
	THROWS(KUMI_ERR_RANK, job.send(-1, 0, 1));
	THROWS(KUMI_ERR_TAG, job.send(me, -1, 1));
	THROWS(KUMI_ERR_RANK, job.recv(-2, 0, buffer));
	THROWS(KUMI_ERR_RANK, job.flush(job.size()));
	THROWS(KUMI_ERR_RANK, job.fence(job.size()));
	THROWS(KUMI_ERR_LENGTH, job.sendrecv(me, 0, buffer, me, 0, buffer));
	job.send(me, 7, std::int16_t{3});
	THROWS(KUMI_ERR_LENGTH, job.recv_value<int>(me, 7));
	job.send(me, 8, std::array<int, 5>{});
	std::size_t needed = 0;
	try {
		job.recv(me, 8, buffer);
	} catch (const kumi::truncated &error) {
		needed = error.bytes();
		EXPECT(error.code() == KUMI_ERR_TRUNCATED);
	}
	EXPECT(needed == 5 * sizeof(int));
	EXPECT(!job.probe(me, 8));
}

void windows(kumi::context &job)
{
	const int next = (job.rank() + 1) % job.size();
	const int last = (job.rank() + job.size() - 1) % job.size();
	kumi::window<double> window(job, 8);

	EXPECT(window.size() == 8);
	for (double value : window)
		EXPECT(value == 0.0);
	job.barrier();
	std::array<double, 2> pair{job.rank() + 0.25, job.rank() + 0.5};
	window.put_notify(next, 6, pair, 63);
	EXPECT(window.wait_notify(63, 1) == 1 && window.notified(0) == 0);
	EXPECT(window[6] == last + 0.25 && window.piece()[7] == last + 0.5);
	window.put(next, 0, 1.0 * job.rank());
	job.flush(next);
	EXPECT(window.get(next, 0) == job.rank());
	std::vector<double> three(3);
	job.barrier();
	window.get(next, 5, three);
	EXPECT(three[0] == 0.0 && three[1] == job.rank() + 0.25);

	THROWS(KUMI_ERR_BOUNDS, window.get(next, 8));
	THROWS(KUMI_ERR_BOUNDS, window.get(next, SIZE_MAX / 8 + 1));
	THROWS(KUMI_ERR_BOUNDS, window.put(job.rank(), 7, three));
	THROWS(KUMI_ERR_RANK, window.put(job.size(), 0, 1.0));
	THROWS(KUMI_ERR_NOTIFY, window.put_notify(next, 0, 1.0, 64));
	THROWS(KUMI_ERR_NOTIFY, window.wait_notify(64, 0));
	THROWS(KUMI_ERR_NOTIFY, window.notified(64));
	job.barrier();
	window.free();
	EXPECT(window.size() == 0 && window.data() == nullptr);
	THROWS(KUMI_ERR_WINDOW, window.put(next, 0, 1.0));
	window.free();
	THROWS(KUMI_ERR_MEMORY, kumi::window<double>(job, SIZE_MAX / 4));
	/* What one rank alone does wrong keeps no other waiting. */
	for (int wrong = 0; wrong < job.size(); wrong++) {
		const bool mine = wrong == job.rank();
		const auto code = mine ? KUMI_ERR_RIGHT : KUMI_ERR_MEMORY;
		THROWS(code, kumi::window<int>(job, 1, mine ? 8 : 7));
		std::vector<int> memory(2);
		THROWS(code, kumi::window<int>(job, memory, mine ? 8 : 7));
		kumi_window *none = nullptr;
		EXPECT(kumi_window_create(8, mine ? nullptr : &none) ==
		       (mine ? KUMI_ERR_NULL : KUMI_ERR_MEMORY));
	}
}

/* A window that changes hands is freed once, an atomic counter is exact. */
void owners(kumi::context &job)
{
	kumi::window<std::int64_t> first(job, job.rank() == 0 ? 1 : 0);
	kumi::window<std::int64_t> second(std::move(first));

	EXPECT(first.handle() == nullptr && second.handle() != nullptr);
	EXPECT(second.size() == (job.rank() == 0 ? 1U : 0U));
	job.barrier();
	std::int64_t sum = 0;
	for (int i = 0; i < 100; i++)
		sum += second.fetch_add(0, 0, -1);
	const std::int64_t all = 100 * std::int64_t{job.size()};
	EXPECT(job.allreduce(sum, kumi::op::sum) == -all * (all - 1) / 2);
	EXPECT(second.fetch_add(0, 0, 0) == -all);
	job.barrier();
	first = std::move(second);
	EXPECT(first.fetch_add(0, 0, 0) == -all);
	job.barrier();
}

void reductions(kumi::context &job)
{
	const int ranks = job.size(), root = ranks - 1;
	std::vector<double> values(20);

	std::iota(values.begin(), values.end(), job.rank());
	job.allreduce(values, kumi::op::sum);
	for (std::size_t i = 0; i < values.size(); i++)
		EXPECT(values[i] == ranks * (double(i) + (ranks - 1) / 2.0));
	EXPECT(job.allreduce(job.rank(), kumi::op::max) == root);
	EXPECT(job.allreduce(float(job.rank()) + 1.5F, kumi::op::min) == 1.5F);
	EXPECT(job.allreduce(1ULL << job.rank(), kumi::op::bit_or) ==
	       (1ULL << ranks) - 1);
	EXPECT(job.allreduce(std::int8_t{2}, kumi::op::product) ==
	       static_cast<std::int8_t>(1 << ranks));
	int result = job.reduce(root, 1, kumi::op::sum);
	EXPECT(result == (job.rank() == root ? ranks : 1));
	std::array<std::uint16_t, 2> bits{3, 5};
	job.reduce(root, bits, kumi::op::bit_xor);
	EXPECT(bits[1] == (job.rank() == root && ranks % 2 == 0 ? 0 : 5));
	int list[3] = {1, 2, 3};
	job.allreduce(list, kumi::op::sum);
	EXPECT(list[2] == 3 * ranks);
	job.reduce(root, list, kumi::op::max);
	EXPECT(list[0] == ranks);
	const double constant = 2.0;
	EXPECT(job.allreduce(constant, kumi::op::min) == 2.0);
	EXPECT(job.reduce(root, constant, kumi::op::max) == 2.0);
	THROWS(KUMI_ERR_OPERATION, job.allreduce(1.0, kumi::op::bit_and));
	THROWS(KUMI_ERR_OPERATION, job.allreduce(1, static_cast<kumi::op>(0)));
	THROWS(KUMI_ERR_RANK, job.reduce(ranks, 1, kumi::op::sum));
}

void exchanges(kumi::context &job)
{
	const auto ranks = static_cast<std::size_t>(job.size());
	const auto me = static_cast<std::size_t>(job.rank());
	const int root = job.size() - 1;
	point place{};

	if (job.rank() == root)
		place = {2.5, 7};
	job.broadcast(root, place);
	EXPECT((place == point{2.5, 7}));
	THROWS(KUMI_ERR_RANK, job.broadcast(-1, place));

	std::vector<point> all = job.gather(root, point{double(me), 1});
	EXPECT(all.size() == (job.rank() == root ? ranks : 0));
	for (std::size_t r = 0; r < all.size(); r++)
		EXPECT((all[r] == point{double(r), 1}));

	const int pair[2] = {job.rank(), 5};
	std::vector<int> pairs = job.gather(root, pair);
	std::vector<bool> odd = job.gather(root, me % 2 == 1);
	EXPECT(odd.size() == (job.rank() == root ? ranks : 0));
	for (std::size_t r = 0; r < odd.size(); r++)
		EXPECT(odd[r] == (r % 2 == 1) && pairs[2 * r] == int(r) &&
		       pairs[2 * r + 1] == 5);
	bool flags[2] = {job.rank() == root, false};
	job.broadcast(root, flags);
	EXPECT(flags[0] && !flags[1]);

	std::vector<std::size_t> out(2 * ranks), in(2 * ranks);
	for (std::size_t i = 0; i < out.size(); i++)
		out[i] = 1000 * me + i;
	job.alltoall(out, in);
	for (std::size_t i = 0; i < in.size(); i++)
		EXPECT(in[i] == 1000 * (i / 2) + 2 * me + i % 2);
	if (ranks > 1)
		THROWS(KUMI_ERR_LENGTH,
		       job.alltoall(kumi::span(out.data(), 1),
		                    kumi::span(in.data(), 1)));
	in.pop_back();
	THROWS(KUMI_ERR_LENGTH, job.alltoall(out, in));

	/* Rank r sends s + 1 points to rank s. */
	std::vector<std::size_t> counts(ranks), mine(ranks, me + 1);
	std::iota(counts.begin(), counts.end(), 1);
	std::vector<point> given(ranks * (ranks + 1) / 2, point{double(me), 9});
	std::vector<point> taken(ranks * (me + 1));
	job.alltoallv(given, counts, taken, mine);
	for (std::size_t i = 0; i < taken.size(); i++)
		EXPECT((taken[i] == point{double(i / (me + 1)), 9}));
	mine[0]++;
	THROWS(KUMI_ERR_LENGTH, job.alltoallv(given, counts, taken, mine));
	mine[0] = SIZE_MAX;
	THROWS(KUMI_ERR_LENGTH, job.alltoallv(given, counts, taken, mine));
	mine.pop_back();
	THROWS(KUMI_ERR_LENGTH, job.alltoallv(given, counts, taken, mine));
}

/* A child that ends as C++ programs do takes nothing away, and says nothing. */
void forks(kumi::context &job)
{
	const std::size_t port = KUMI_FIFO_OVERHEAD + 64;
	const int me = job.rank();
	std::vector<char> memory(64, 'm');
	auto *window = new kumi::window<char>(job, 2 * port + 1);
	auto *lent = new kumi::window<char>(job, memory, KUMI_RIGHT_READ);
	auto *fifo = new kumi::fifo(*window, 0, 64);
	auto *done = new kumi::completion(job);
	std::atomic<int> heard{0};
	int ends[2], status = -1;
	char said = 0;

	window->on_signal(port, 64, [&](int, auto) { heard++; });
	window->append(me, 0, 7);
	EXPECT(pipe(ends) == 0);
	const pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		const bool refused =
		    throws(KUMI_ERR_FORKED, [&] { job.barrier(); }) &&
		    throws(KUMI_ERR_FORKED, [&] { job.finalize(); });
		delete done;
		delete fifo;
		delete lent;
		delete window;
		job.~context();
		_exit(refused ? 0 : 1);
	}
	close(ends[1]);
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	EXPECT(read(ends[0], &said, 1) == 0);
	close(ends[0]);
	EXPECT(fifo->pop_value<int>() == 7);
	window->put(me, 2 * port, 'x', {KUMI_NO_NOTIFY, done});
	done->wait_all();
	EXPECT((*window)[2 * port] == 'x' && lent->get(me, 3) == 'm');
	window->signal(me, port, 'x');
	while (heard == 0)
		std::this_thread::yield();
	job.barrier();
	delete done;
	delete fifo;
	delete lent;
	delete window;
}

#ifdef WRONG
void wrong(kumi::context &job, kumi::window<double> &window)
{
	const double constant = 1.0;
	double *pointer = nullptr;
	std::string text;

#if WRONG == 1
	job.send(0, 0, pointer);
#elif WRONG == 2
	job.recv(0, 0, constant);
#elif WRONG == 3
	window.put(0, 0, 1);
#elif WRONG == 4
	job.send(0, 0, std::vector<std::string>(1));
#elif WRONG == 5
	window.fetch_add(0, 0, 1.0);
#elif WRONG == 6
	job.allreduce(true, kumi::op::sum);
#elif WRONG == 7
	job.recv(0, 0, 1.0);
#elif WRONG == 8
	kumi::window<short>(job, 1).swap(0, 0, 1);
#elif WRONG == 9
	window.multicast(std::vector<long>(1), 0, 1.0);
#elif WRONG == 10
	window.put_strided(0, {0, 1, 1, 1}, 1);
#elif WRONG == 11
	kumi::fifo(window, 0, 64).pop(constant);
#elif WRONG == 12
	kumi::window<double>(job, std::vector<double>(1));
#elif WRONG == 13
	std::vector<int> integers(1);
	kumi::window<double>(job, integers);
#elif WRONG == 14
	const std::vector<double> constants(1);
	kumi::window<double>(job, constants);
#elif WRONG == 15
	window.put_list(0, {{0, 1}}, 1);
#elif WRONG == 16
	const std::vector<std::vector<double>> fixed(1);
	window.get_lists(0, {{0, 1}}, fixed);
#elif WRONG == 17
	window.multicast_append(std::vector<long>(1), 0, 1.0);
#elif WRONG == 18
	job.isend(0, 0, std::vector<int>(1)).wait();
#elif WRONG == 19
	window.iput(0, 0, 1.0).wait();
#elif WRONG == 20
	window.iget(0, 0, constant).wait();
#elif WRONG == 21
	window.ifetch_add(0, 0, 1.0).get();
#elif WRONG == 22
	kumi::group(job).iallreduce(std::vector<int>(1), kumi::op::sum).wait();
#elif WRONG == 23
	kumi::group(job).ibroadcast(0, constant).wait();
#endif
}
#endif

} // namespace

int main(int argc, char **argv)
{
	spans();
	if (argc > 1 && std::strcmp(argv[1], "outside") == 0) {
		outside();
		return failures > 0;
	}
	if (argc > 1 && std::strcmp(argv[1], "threads") == 0) {
		several_threads();
		return failures > 0;
	}
	if (argc > 1 && std::strcmp(argv[1], "dies") == 0)
		dies();
	try {
		kumi::window<int> *late = nullptr;
		kumi::fifo *queue = nullptr;
		kumi::completion *done = nullptr;
		{
			kumi::context job;
			identity(job);
			messages(job);
			bad_messages(job);
			windows(job);
			owners(job);
			reductions(job);
			exchanges(job);
			forks(job);
			onesided(job);
			lists_and_memory(job);
			groups(job);
			requests(job);
			late = new kumi::window<int>(job, 1024);
			queue = new kumi::fifo(*late, 0, 64);
			done = new kumi::completion(job);
			EXPECT(late->size() == 1024 && queue->handle() &&
			       done->handle());
			job.barrier();
			job.finalize();
			THROWS(KUMI_ERR_NOT_INITIALISED, job.barrier());
		}
		/* Freed by kumi_finalize already, and not again. */
		EXPECT(late->handle() == nullptr && late->data() == nullptr);
		EXPECT(late->piece().empty() && late->size() == 0);
		EXPECT(std::vector<int>(late->begin(), late->end()).empty());
		EXPECT(queue->handle() == nullptr && done->handle() == nullptr);
		THROWS(KUMI_ERR_NOT_INITIALISED, late->put(0, 0, 1));
		THROWS(KUMI_ERR_COMPLETION,
		       late->put(0, 0, 1, {KUMI_NO_NOTIFY, done}));
		THROWS(KUMI_ERR_NOT_INITIALISED, queue->pop_value<int>());
		delete done;
		delete queue;
		delete late;
	} catch (const std::exception &error) {
		std::fprintf(stderr, "%s\n", error.what());
		return 1;
	}
	if (failures == 0)
		std::printf("kumi.hpp holds\n");
	return failures > 0;
}
