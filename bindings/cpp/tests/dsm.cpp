// Shared memory in C++, for any number of ranks.
#include <kumi_dsm.hpp>

#include <cstdio>
#include <numeric>
#include <stdexcept>

static int failures;

#define EXPECT(condition)                                                     \
	do {                                                                  \
		if (!(condition)) {                                           \
			failures++;                                           \
			std::fprintf(stderr, "line %d: %s\n", __LINE__,       \
			             #condition);                             \
		}                                                             \
	} while (0)

template <class Call>
static kumi_error code_of(Call call)
{
	try {
		call();
	} catch (const kumi::error &error) {
		return error.code();
	}
	return KUMI_OK;
}

static void arrays(kumi::context &job, kumi::shared_memory &memory)
{
	kumi::shared<int> numbers(memory, 5000, kumi::home::round_robin(1));
	kumi::shared<long> sum(memory, 1, kumi::home::at(job.size() - 1).updated());
	kumi::shared<char> none(memory, 0, kumi::home::first_touch());
	auto ranks = static_cast<std::size_t>(job.size());

	EXPECT(none.empty() && none.begin() == none.end());
	for (auto at = static_cast<std::size_t>(job.rank()); at < numbers.size();
	     at += ranks)
		numbers[at] = static_cast<int>(at);
	for (int i = 0; i < 20; i++) {
		kumi::shared_lock held(memory, 3);
		sum[0] += 1;
		if (i % 2)
			held.unlock();
	}
	memory.barrier();
	EXPECT(std::accumulate(numbers.begin(), numbers.end(), 0) ==
	       4999 * 2500);
	EXPECT(sum.at(0) == 20 * job.size());
	EXPECT(memory.statistics("locks") == 20);
	numbers.bring();
	try {
		sum.at(1) = 7;
		failures++;
	} catch (const std::out_of_range &) {
	}
	memory.wait();
}

static void errors(kumi::context &job, kumi::shared_memory &memory)
{
	EXPECT(code_of([&] { kumi::shared_memory second(job); }) ==
	       KUMI_ERR_SHARED_ALREADY);
	EXPECT(code_of([&] {
		       kumi::shared<int> wrong(memory, 1,
		                               kumi::home::at(job.size()));
	       }) == KUMI_ERR_RANK);
	EXPECT(code_of([&] {
		       kumi::shared<long> wrong(memory,
		                                static_cast<std::size_t>(-1) / 4);
	       }) == KUMI_ERR_EXHAUSTED);
	kumi::shared_lock held(memory, 9 + static_cast<unsigned>(job.rank()));
	EXPECT(code_of([&] {
		       kumi::shared_lock twice(
		           memory, 9 + static_cast<unsigned>(job.rank()));
	       }) == KUMI_ERR_HELD_ALREADY);
}

static void conditions(kumi::context &job, kumi::shared_memory &memory)
{
	kumi::shared<int> cell(memory, 1);

	if (job.rank() == 0) {
		cell[0] = 5;
		memory.set_condition(2);
	}
	memory.wait_condition(2);
	EXPECT(cell[0] == 5);
	memory.barrier();
	if (job.rank() == 0)
		memory.reset_condition(2);
}

int main()
{
	try {
		kumi::context job;
		kumi::shared_memory memory(job);
		arrays(job, memory);
		errors(job, memory);
		conditions(job, memory);
		if (failures == 0)
			std::printf("rank %d of %d\n", job.rank(), job.size());
	} catch (const kumi::error &error) {
		std::fprintf(stderr, "%s\n", error.what());
		return 1;
	}
	return failures != 0;
}
