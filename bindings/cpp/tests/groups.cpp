// The part of the test for groups and their collectives.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <kumi.hpp>

#include "check.hpp"

namespace {

/* An element of a member's block. */
std::int64_t element(int member, std::size_t index)
{
	return 1000000 * (member + 1) + static_cast<std::int64_t>(index);
}

std::vector<std::int64_t> block(int member, std::size_t length)
{
	std::vector<std::int64_t> all(length);
	for (std::size_t i = 0; i < length; i++)
		all[i] = element(member, i);
	return all;
}

/* What the members before `end` have at an index together. */
std::int64_t sum(int end, std::size_t index)
{
	std::int64_t all = 0;
	for (int member = 0; member < end; member++)
		all += element(member, index);
	return all;
}

void reductions(const kumi::group &group, std::size_t length)
{
	const int me = group.member(), members = group.members();
	auto data = block(me, length);
	group.allreduce(data, kumi::op::sum);
	auto scanned = block(me, length), before = block(me, length);
	group.scan(scanned, kumi::op::sum);
	group.exclusive_scan(before, kumi::op::sum);
	auto rooted = block(me, length);
	group.reduce(members - 1, rooted, kumi::op::sum);
	for (std::size_t i = 0; i < length; i++) {
		EXPECT(data[i] == sum(members, i));
		EXPECT(scanned[i] == sum(me + 1, i));
		EXPECT(before[i] == (me == 0 ? element(0, i) : sum(me, i)));
		EXPECT(rooted[i] ==
		       (me == members - 1 ? sum(members, i) : element(me, i)));
	}
	EXPECT(group.allreduce(std::uint16_t{1}, kumi::op::sum) == members);
	std::vector<std::int64_t> part(length);
	group.reduce_scatter(
	    block(me, length * static_cast<std::size_t>(members)), part,
	    kumi::op::sum);
	for (std::size_t i = 0; i < length; i++)
		EXPECT(part[i] ==
		       sum(members, static_cast<std::size_t>(me) * length + i));
}

/* Data that is no number moves too. */
struct pair_of {
	std::int32_t member;
	char letter;
};

void blocks(const kumi::group &group, std::size_t length)
{
	const int me = group.member(), members = group.members();
	std::vector<std::int64_t> all;
	for (int member = 0; member < members; member++) {
		auto part = block(member, length);
		all.insert(all.end(), part.begin(), part.end());
	}
	auto mine = block(me, length);
	EXPECT(group.allgather(mine) == all);
	auto gathered = group.gather(0, mine);
	EXPECT(me == 0 ? gathered == all : gathered.empty());
	std::vector<std::int64_t> part(length);
	group.scatter(0, all, part);
	EXPECT(part == mine);
	group.broadcast(members - 1, part);
	EXPECT(part == block(members - 1, length));
	auto exchanged = all;
	group.alltoall(all, exchanged);
	for (std::size_t i = 0; i < exchanged.size(); i++)
		EXPECT(exchanged[i] == (length == 0 ? 0 : element(me, i % length)));
	std::vector<std::size_t> counts(static_cast<std::size_t>(members));
	std::iota(counts.begin(), counts.end(), length);
	auto longer = block(me, length + static_cast<std::size_t>(me));
	auto different = group.allgatherv(longer, counts);
	EXPECT(different.size() ==
	       std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
	EXPECT(different.back() ==
	       element(members - 1, length + counts.size() - 2) ||
	       length + counts.size() < 2);
	counts.pop_back();
	THROWS(KUMI_ERR_LENGTH, group.allgatherv(longer, counts));
	auto pairs = group.allgather(pair_of{me, 'x'});
	EXPECT(pairs.size() == static_cast<std::size_t>(members));
	EXPECT(pairs.back().member == members - 1 && pairs.back().letter == 'x');
}

} // namespace

void groups(kumi::context &job)
{
	kumi::group everyone(job);
	EXPECT(everyone.members() == job.size());
	EXPECT(everyone.member() == job.rank());
	auto half = everyone.split(job.rank() % 2, -job.rank());
	EXPECT(half && half->rank(half->members() - 1) == job.rank() % 2);
	EXPECT(half->find(job.rank()) == half->member());
	EXPECT(!everyone.split(KUMI_NO_COLOUR));
	auto first = everyone.subset({0});
	EXPECT(first.has_value() == (job.rank() == 0));
	THROWS(KUMI_ERR_GROUP, everyone.subset({0, 0}));
	for (std::size_t length : {1, 40, 9000}) {
		for (const kumi::group *group : {&everyone, &*half}) {
			reductions(*group, length);
			blocks(*group, length);
		}
	}
	kumi::group copy = half->duplicate();
	kumi::group moved = std::move(copy);
	moved.barrier();
	THROWS(KUMI_ERR_GROUP, copy.barrier());
	THROWS(KUMI_ERR_RANK, moved.rank(moved.members()));
	started(job);
}
