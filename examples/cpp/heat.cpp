// Heat in a square plate whose edges are kept at 0, by explicit steps on a
// grid.  Each rank has some rows; after each step it puts its outer rows into
// the windows of its neighbours, which wait for the notification only.
//
// The beginning is a sum of two modes of the grid's Laplacian.  Every step
// multiplies each mode by a known number, so the end is known for any number of
// ranks, and the program compares its result with it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include <kumi.hpp>

namespace {

constexpr int exit_usage = 64;
constexpr double pi = 3.14159265358979323846;
/* Time step by the square of the grid's distance; stable up to 1/4. */
constexpr double ratio = 0.2;

struct options {
	std::size_t points = 64; /* inner grid points in each direction */
	std::size_t steps = 200;
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

	for (int i = 1; i < argc && chosen.wrong == nullptr; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : nullptr;

		if (std::strcmp(argv[i], "--help") == 0) {
			chosen.help = true;
			return chosen;
		}
		if (std::strcmp(argv[i], "--points") == 0) {
			chosen.points = number(value, 1 << 14);
			if (chosen.points == 0)
				chosen.wrong = "--points takes 1 to 16384";
		} else if (std::strcmp(argv[i], "--steps") == 0) {
			chosen.steps = number(value, 100000000);
			if (chosen.steps == 0)
				chosen.wrong = "--steps takes 1 to 100000000";
		} else {
			chosen.wrong = "unknown option";
		}
		i++;
	}
	return chosen;
}

void print_usage(const options &chosen, const char *wrong)
{
	std::FILE *out = chosen.help ? stdout : stderr;

	if (!chosen.help)
		std::fprintf(out, "heat: %s\n", wrong);
	std::fprintf(out,
	             "heat: heat in a plate, with put-with-notify\n"
	             "Usage: kumi run -n RANKS heat [--points N] [--steps N]\n"
	             "  --points N  inner grid points in each direction "
	             "(default 64), at least RANKS\n"
	             "  --steps N   time steps (default 200)\n"
	             "Last line: RESULT name=heat ... verified=yes|no ...\n"
	             "Exit code: 0 verified, 1 not verified or failed, 64 "
	             "usage.\n");
	std::fflush(out);
}

/* Ends a run that has nothing to compute: rank 0 says why. */
int leave(kumi::context &job, const options &chosen, const char *wrong)
{
	if (job.rank() == 0)
		print_usage(chosen, wrong);
	job.barrier();
	job.finalize();
	return chosen.help ? 0 : exit_usage;
}

/* This rank's rows of the plate. */
class plate {
public:
	plate(kumi::context &job, std::size_t points)
	    : job_(job), points_(points), width_(points + 2),
	      first_(begin_of(job.rank())),
	      rows_(begin_of(job.rank() + 1) - first_),
	      old_(job, (rows_ + 2) * width_), now_(job, (rows_ + 2) * width_)
	{
		for (std::size_t row = 0; row < rows_ + 2; row++)
			for (std::size_t column = 0; column < width_; column++)
				now_[row * width_ + column] =
				    exact(first_ + row, column, 0);
	}

	/* One step. */
	void step()
	{
		std::swap(old_, now_);
		for (std::size_t row = 1; row <= rows_; row++)
			compute(row);
		steps_++;
		exchange();
	}

	/* The largest difference from what is known, at this rank. */
	double error() const
	{
		double worst = 0.0;

		for (std::size_t row = 1; row <= rows_; row++)
			for (std::size_t column = 1; column <= points_; column++)
				worst = std::max(
				    worst,
				    std::fabs(now_[row * width_ + column] -
				              exact(first_ + row, column,
				                    steps_)));
		return worst;
	}

private:
	/* Rows before those of a rank. */
	std::size_t begin_of(int rank) const
	{
		return points_ * static_cast<std::size_t>(rank) /
		       static_cast<std::size_t>(job_.size());
	}

	/* The temperature after some steps: row and column count from the
	 * upper left corner, which is 0. */
	double exact(std::size_t row, std::size_t column, std::size_t steps) const
	{
		double h = pi / static_cast<double>(points_ + 1);
		double y = h * static_cast<double>(row);
		double x = h * static_cast<double>(column);
		double slow = 1 - 4 * ratio * (1 - std::cos(h));
		double fast =
		    1 - 2 * ratio * (2 - std::cos(2 * h) - std::cos(3 * h));
		double n = static_cast<double>(steps);

		return std::pow(slow, n) * std::sin(y) * std::sin(x) +
		       std::pow(fast, n) * std::sin(2 * y) * std::sin(3 * x);
	}

	void compute(std::size_t row)
	{
		const double *above = &old_[(row - 1) * width_];
		const double *here = above + width_;
		const double *below = here + width_;
		double *next = &now_[row * width_];

		for (std::size_t i = 1; i <= points_; i++)
			next[i] = here[i] + ratio * (above[i] + below[i] +
			                             here[i - 1] + here[i + 1] -
			                             4 * here[i]);
	}

	/* Gives the outer rows to the neighbours and waits for theirs.
	 *
	 * The two windows take turns, so each has one exchange in two steps,
	 * and a neighbour's row of the step after next cannot come too early:
	 * it is sent only after this rank's row of the next step, which this
	 * rank sends after it has used what came now. */
	void exchange()
	{
		const int up = job_.rank() - 1, down = job_.rank() + 1;
		const std::uint64_t turn = (steps_ + 1) / 2;
		kumi::span<double> all = now_.piece();

		if (up >= 0) {
			std::size_t theirs = first_ - begin_of(up);
			now_.put_notify(up, (theirs + 1) * width_,
			                all.subspan(width_, width_), from_below);
		}
		if (down < job_.size())
			now_.put_notify(down, 0,
			                all.subspan(rows_ * width_, width_),
			                from_above);
		if (up >= 0)
			now_.wait_notify(from_above, turn);
		if (down < job_.size())
			now_.wait_notify(from_below, turn);
	}

	static constexpr unsigned from_above = 0, from_below = 1;

	kumi::context &job_;
	std::size_t points_, width_, first_, rows_;
	std::size_t steps_ = 0;
	/* Rows 0 and rows_ + 1 are those of the neighbours. */
	kumi::window<double> old_, now_;
};

int run(kumi::context &job, const options &chosen)
{
	plate mine(job, chosen.points);

	job.barrier();
	double begin = job.time();
	for (std::size_t step = 0; step < chosen.steps; step++)
		mine.step();
	double seconds = job.time() - begin;
	// The ranks agree on the time while they look at the result.
	kumi::request slowest =
	    kumi::group(job).iallreduce(seconds, kumi::op::max);
	double error = mine.error();
	slowest.wait();
	error = job.allreduce(error, kumi::op::max);
	bool verified = error < 1e-12;

	if (job.rank() == 0) {
		double updates = static_cast<double>(chosen.points) *
		                 static_cast<double>(chosen.points) *
		                 static_cast<double>(chosen.steps);
		std::printf("largest error %.3g after %zu steps\n", error,
		            chosen.steps);
		std::printf("RESULT name=heat class=- verified=%s seconds=%.6f "
		            "mops=%.2f ranks=%d repeat=1\n",
		            verified ? "yes" : "no", seconds,
		            seconds > 0.0 ? updates / seconds / 1e6 : 0.0,
		            job.size());
		std::fflush(stdout);
	}
	return verified ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
	const options chosen = parse(argc, argv);

	try {
		kumi::context job;
		if (chosen.help || chosen.wrong != nullptr)
			return leave(job, chosen, chosen.wrong);
		if (chosen.points < static_cast<std::size_t>(job.size()))
			return leave(job, chosen, "more ranks than rows");
		int code = run(job, chosen);
		job.finalize();
		return code;
	} catch (const kumi::error &error) {
		/* Outside a job this process is all there is, and may ask. */
		if (error.code() == KUMI_ERR_NOT_LAUNCHED &&
		    (chosen.help || chosen.wrong != nullptr)) {
			print_usage(chosen, chosen.wrong);
			return chosen.help ? 0 : exit_usage;
		}
		std::fprintf(stderr, "heat: %s\n", error.what());
	} catch (const std::exception &error) {
		std::fprintf(stderr, "heat: %s\n", error.what());
	}
	return 1;
}
