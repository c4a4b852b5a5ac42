// Random look-ups in a table that is shared out over all ranks: first one after
// the other, then many at once.  A queue tells which have come; each answer makes
// room for the next question.
//
// The table's entries follow from their numbers, so each answer is checked.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include <kumi.hpp>

namespace {

constexpr int exit_usage = 64;
/* Entries of the table at each rank. */
constexpr std::size_t entries = 1 << 16;

struct options {
	std::size_t count = 20'000; /* look-ups of each rank */
	std::size_t depth = 64;     /* at once */
	bool help = false;
	const char *wrong = nullptr;
};

/* A number from 1 to `most`, or 0. */
std::size_t number(const char *text, long most)
{
	char *end = nullptr;
	long value = text == nullptr ? 0 : std::strtol(text, &end, 10);

	if (value < 1 || value > most || *end != '\0')
		return 0;
	return static_cast<std::size_t>(value);
}

options parse(int argc, char **argv)
{
	options chosen;

	for (int i = 1; i < argc && chosen.wrong == nullptr; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : nullptr;

		if (std::strcmp(argv[i], "--help") == 0) {
			chosen.help = true;
			return chosen;
		}
		if (std::strcmp(argv[i], "--count") == 0) {
			chosen.count = number(value, 100'000'000);
			if (chosen.count == 0)
				chosen.wrong = "--count takes 1 to 100000000";
		} else if (std::strcmp(argv[i], "--depth") == 0) {
			chosen.depth = number(value, 100'000);
			if (chosen.depth == 0)
				chosen.wrong = "--depth takes 1 to 100000";
		} else {
			chosen.wrong = "unknown option";
		}
	}
	return chosen;
}

void print_usage(const options &chosen)
{
	std::FILE *out = chosen.help ? stdout : stderr;

	if (!chosen.help)
		std::fprintf(out, "lookup: %s\n", chosen.wrong);
	std::fprintf(out,
	             "lookup: random look-ups in a shared table, many at once\n"
	             "Usage: kumi run -n RANKS lookup [--count N] [--depth N]\n"
	             "  --count N  look-ups of each rank (default 20000)\n"
	             "  --depth N  how many are under way (default 64)\n"
	             "Last line: RESULT name=lookup ... verified=yes|no ...\n"
	             "Exit code: 0 verified, 1 not verified or failed, 64 "
	             "usage.\n");
	std::fflush(out);
}

/* What the table has at a place. */
std::uint64_t entry(std::uint64_t place)
{
	place *= 0x9e37'79b9'7f4a'7c15U;
	return place ^ (place >> 29);
}

/* The places that a rank looks up, one after the other. */
class places {
public:
	places(int rank, int ranks)
	    : state_(static_cast<std::uint64_t>(rank) + 1),
	      all_(entries * static_cast<std::uint64_t>(ranks))
	{
	}

	std::uint64_t next()
	{
		state_ = state_ * 6'364'136'223'846'793'005U +
		         1'442'695'040'888'963'407U;
		return (state_ >> 20) % all_;
	}

private:
	std::uint64_t state_, all_;
};

class table {
public:
	explicit table(kumi::context &job) : job_(job), part_(job, entries)
	{
		const std::uint64_t first =
		    entries * static_cast<std::uint64_t>(job.rank());

		for (std::size_t i = 0; i < entries; i++)
			part_[i] = entry(first + i);
	}

	/* Both return how many answers were wrong. */
	std::size_t one_by_one(std::size_t count)
	{
		places all(job_.rank(), job_.size());
		std::size_t wrong = 0;

		for (std::size_t i = 0; i < count; i++) {
			const std::uint64_t place = all.next();
			wrong += part_.get(rank(place), offset(place)) !=
			         entry(place);
		}
		return wrong;
	}

	std::size_t many_at_once(std::size_t count, std::size_t depth)
	{
		places all(job_.rank(), job_.size());
		std::size_t wrong = 0, asked = 0;
		std::vector<std::uint64_t> answers(depth), asked_for(depth);
		kumi::completion_queue queue(job_);
		auto ask = [&](std::size_t slot) {
			const std::uint64_t place = asked_for[slot] = all.next();
			part_.iget(rank(place), offset(place), answers[slot],
			           kumi::report{nullptr, &queue, slot});
			asked++;
		};

		while (asked < std::min(count, depth))
			ask(asked);
		for (std::size_t answered = 0; answered < count; answered++) {
			const kumi_result came = queue.wait();
			wrong += came.error != KUMI_OK ||
			         answers[came.word] !=
			             entry(asked_for[came.word]);
			if (asked < count)
				ask(came.word);
		}
		return wrong;
	}

private:
	static int rank(std::uint64_t place)
	{
		return static_cast<int>(place / entries);
	}

	static std::size_t offset(std::uint64_t place)
	{
		return place % entries;
	}

	kumi::context &job_;
	kumi::window<std::uint64_t> part_;
};

int run(kumi::context &job, const options &chosen)
{
	table all(job);

	job.barrier();
	double begin = job.time();
	std::size_t wrong = all.one_by_one(chosen.count);
	job.barrier();
	double middle = job.time();
	wrong += all.many_at_once(chosen.count, chosen.depth);
	job.barrier();
	double seconds = job.time() - middle;
	bool verified = job.allreduce(wrong, kumi::op::sum) == 0;

	if (job.rank() == 0) {
		std::printf("%zu look-ups of each rank: %.6f s one by one, %.6f "
		            "s with %zu at once\n",
		            chosen.count, middle - begin, seconds,
		            chosen.depth);
		double all_ranks = static_cast<double>(chosen.count) * job.size();
		std::printf("RESULT name=lookup class=- verified=%s seconds=%.6f "
		            "mops=%.2f ranks=%d repeat=1\n",
		            verified ? "yes" : "no", seconds,
		            seconds > 0.0 ? all_ranks / seconds / 1e6 : 0.0,
		            job.size());
		std::fflush(stdout);
	}
	job.barrier();
	return verified ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
	const options chosen = parse(argc, argv);
	const bool asks = chosen.help || chosen.wrong != nullptr;

	try {
		kumi::context job;
		int code = chosen.help ? 0 : exit_usage;
		if (!asks)
			code = run(job, chosen);
		else if (job.rank() == 0)
			print_usage(chosen);
		job.barrier();
		job.finalize();
		return code;
	} catch (const kumi::error &error) {
		/* Outside a job this process is all there is, and may ask. */
		if (error.code() == KUMI_ERR_NOT_LAUNCHED && asks) {
			print_usage(chosen);
			return chosen.help ? 0 : exit_usage;
		}
		std::fprintf(stderr, "lookup: %s\n", error.what());
	} catch (const std::exception &error) {
		std::fprintf(stderr, "lookup: %s\n", error.what());
	}
	return 1;
}
