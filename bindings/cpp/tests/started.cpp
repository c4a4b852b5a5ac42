// The part of the test for collectives that are requests.
#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <kumi.hpp>

#include "check.hpp"

namespace {

using numbers = std::vector<std::int64_t>;

numbers block(int member, std::size_t length)
{
	numbers all(length);
	for (std::size_t i = 0; i < length; i++)
		all[i] = 1000000 * (member + 1) + static_cast<std::int64_t>(i);
	return all;
}

/* Starts one of each, and compares with those that wait. */
void reductions(const kumi::group &group, std::size_t length)
{
	const int me = group.member(), last = group.members() - 1;
	const auto times = static_cast<std::size_t>(group.members());
	numbers sum = block(me, length), rooted = sum, scan = sum, before = sum;
	numbers whole = block(me, length * times), part(length);
	numbers sum2 = sum, rooted2 = sum, scan2 = sum, before2 = sum;
	numbers part2(length);

	std::vector<kumi::request> all;
	all.push_back(group.iallreduce(sum, kumi::op::sum));
	all.push_back(group.ireduce(last, rooted, kumi::op::max));
	all.push_back(group.iscan(scan, kumi::op::sum));
	all.push_back(group.iexclusive_scan(before, kumi::op::sum));
	all.push_back(group.ireduce_scatter(whole, part, kumi::op::sum));
	/* One that waits, among those that are under way. */
	group.allreduce(sum2, kumi::op::sum);
	kumi::wait_all(all);
	group.reduce(last, rooted2, kumi::op::max);
	group.scan(scan2, kumi::op::sum);
	group.exclusive_scan(before2, kumi::op::sum);
	group.reduce_scatter(whole, part2, kumi::op::sum);
	EXPECT(sum == sum2 && scan == scan2 && before == before2);
	EXPECT(rooted == rooted2 && part == part2);
	double one = 0.5;
	kumi::request halves = group.iallreduce(one, kumi::op::sum);
	EXPECT(halves && halves.wait().error == KUMI_OK);
	EXPECT(one == 0.5 * group.members());
	THROWS(KUMI_ERR_REQUEST, halves.wait());
	THROWS(KUMI_ERR_OPERATION, group.iallreduce(one, kumi::op::bit_or).wait());
}

void blocks(const kumi::group &group, std::size_t length)
{
	const int me = group.member(), last = group.members() - 1;
	const auto times = static_cast<std::size_t>(group.members());
	const numbers mine = block(me, length), whole = block(me, length * times);
	numbers all(length * times), exchanged(all.size()), part(length);
	numbers exchanged2(all.size()), part2(length), copied = mine;

	auto gathered = group.igather_vector(last, mine);
	auto everywhere = group.iallgather_vector(mine);
	kumi::request gather = group.igather(0, mine, all);
	kumi::request alltoall = group.ialltoall(whole, exchanged);
	kumi::request scatter = group.iscatter(last, whole, part);
	kumi::request broadcast = group.ibroadcast(last, copied);
	group.ibarrier().wait();
	broadcast.wait();
	scatter.wait();
	alltoall.wait();
	gather.wait();
	const numbers wanted = group.allgather(mine);
	EXPECT(everywhere.get() == wanted);
	EXPECT(gathered.get() == (me == last ? wanted : numbers()));
	EXPECT(all == (me == 0 ? wanted : numbers(all.size())));
	group.alltoall(whole, exchanged2);
	group.scatter(last, whole, part2);
	EXPECT(exchanged == exchanged2 && part == part2);
	EXPECT(copied == block(last, length));
	THROWS(KUMI_ERR_REQUEST, gathered.get());
	/* Data that is no number moves, too. */
	struct {
		std::int32_t member;
		char letter;
	} pair{me, 'x'};
	auto pairs = group.iallgather_vector(pair).get();
	EXPECT(pairs.size() == times && pairs.back().member == last &&
	       pairs.back().letter == 'x');
	part.pop_back();
	THROWS(KUMI_ERR_LENGTH, group.ireduce_scatter(whole, part, kumi::op::sum).wait());
	THROWS(KUMI_ERR_LENGTH, group.iallgather(mine, part).wait());
	THROWS(KUMI_ERR_LENGTH, group.ialltoall(whole, part).wait());
	THROWS(KUMI_ERR_RANK, group.ibroadcast(last + 1, copied).wait());
}

/* Ends that are told by a completion and a queue; memory of a window. */
void reports(kumi::context &job, const kumi::group &group)
{
	kumi::completion completion(job);
	kumi::completion_queue queue(job);
	kumi::window<std::int32_t> window(job, 8);
	window[0] = 1;
	window[1] = job.rank();
	group.iallreduce(window.piece(), kumi::op::sum,
	                 kumi::report{&completion});
	group.ibarrier(kumi::report{nullptr, &queue, 7});
	EXPECT(queue.wait().word == 7);
	completion.wait(1);
	EXPECT(window[0] == job.size() &&
	       window[1] == job.size() * (job.size() - 1) / 2);
	THROWS(KUMI_ERR_QUEUE, group.ibarrier(kumi::report{}));
	job.barrier();
}

/* Of three, two of which call something else than the first. */
void disagreements(kumi::context &job, const kumi::group &everyone)
{
	if (job.size() < 2)
		return;
	auto pair = everyone.split(job.rank() < 2 ? 0 : KUMI_NO_COLOUR);
	if (pair) {
		numbers data(2), shorter(1);
		kumi::group other = pair->duplicate(), length = pair->duplicate();
		if (job.rank() == 0) {
			other.ibroadcast(0, data).wait();
			length.ibroadcast(0, data).wait();
		} else {
			kumi::request barrier = other.ibarrier();
			kumi::request cut = length.ibroadcast(0, shorter);
			THROWS(KUMI_ERR_DISAGREE, barrier.wait());
			THROWS(KUMI_ERR_REQUEST, barrier.wait());
			THROWS(KUMI_ERR_LENGTH, cut.wait());
		}
		/* Others go on. */
		EXPECT(pair->allreduce(1, kumi::op::sum) == 2);
	}
	job.barrier();
}

/* One that is given up gives its memory back, and a group may end before its
 * requests. */
void endings(kumi::context &job, const kumi::group &everyone)
{
	numbers data(1000, 1), whole(1000, 1);
	kumi::request sum;
	{
		kumi::group copy = everyone.duplicate();
		sum = copy.iallreduce(data, kumi::op::sum);
		kumi::group other = everyone.duplicate();
		kumi::request left = other.iallreduce(whole, kumi::op::sum);
	}
	sum.wait();
	EXPECT(data == numbers(1000, job.size()));
	EXPECT(job.requests() == 0);
	job.barrier();
}

/* The second where it is odd: neither commutative nor the library's own. */
void later(void *into, const void *other, std::size_t count, kumi_type,
           void *calls)
{
	auto *to = static_cast<std::int64_t *>(into);
	auto *from = static_cast<const std::int64_t *>(other);
	for (std::size_t i = 0; i < count; i++)
		to[i] = from[i] % 2 == 1 ? from[i] : to[i];
	/* No call of the library is its to make. */
	if (kumi_progress() == KUMI_ERR_WRONG_THREAD)
		*static_cast<bool *>(calls) = true;
}

/* A program's operation, which any thread calls. */
void operations(kumi::context &job)
{
	bool called = false;
	kumi_op op = KUMI_SUM;
	numbers data(3000);
	for (std::size_t i = 0; i < data.size(); i++)
		data[i] = 10 * job.rank() + (job.rank() == job.size() / 2);
	kumi_request request = KUMI_REQUEST_NONE;
	EXPECT(kumi_op_create(later, &called, 0, &op) == KUMI_OK);
	EXPECT(kumi_iallreduce(data.data(), data.data(), data.size(), KUMI_I64, op,
	                       nullptr, &request) == KUMI_OK);
	EXPECT(kumi_op_free(op) == KUMI_OK);
	EXPECT(kumi_request_wait(&request, nullptr) == KUMI_OK);
	EXPECT(data == numbers(3000, 10 * (job.size() / 2) + 1));
	EXPECT(called || job.size() == 1 || job.rank() > 0);
	job.barrier();
}

} // namespace

void started(kumi::context &job)
{
	kumi::group everyone(job);
	auto half = everyone.split(job.rank() % 2);
	for (std::size_t length : {1, 40, 9000}) {
		for (const kumi::group *group : {&everyone, &*half}) {
			reductions(*group, length);
			blocks(*group, length);
		}
	}
	reports(job, everyone);
	disagreements(job, everyone);
	endings(job, everyone);
	operations(job);
}
