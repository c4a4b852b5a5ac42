/*
 * kumi/started.hpp - how kumi::group starts collectives as requests.  Part of
 * kumi/group.hpp, which includes it: programs include <kumi.hpp>.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#ifndef KUMI_STARTED_HPP
#define KUMI_STARTED_HPP

#include <utility>
#include <vector>

#include <kumi/group.hpp>

namespace kumi {

template <class... Where>
auto group::ibarrier(const Where &...where) const
{
	return start(
	    "kumi_group_ibarrier",
	    [&](auto... end) { return kumi_group_ibarrier(handle_, end...); },
	    where...);
}

template <class R, class... Where>
auto group::ibroadcast(int root, R &&data, const Where &...where) const
{
	auto all = lent_target<R>(data);
	using unit = detail::moved<detail::element_of<R>>;
	return start(
	    "kumi_group_ibroadcast",
	    [&](auto... end) {
		    return kumi_group_ibroadcast(
		        handle_, root, all.data(),
		        all.size() * unit::units, unit::type(), end...);
	    },
	    where...);
}

template <class R, class... Where>
auto group::ireduce(int root, R &&data, op how, const Where &...where) const
{
	auto all = lent_target<R>(data);
	return start(
	    "kumi_group_ireduce",
	    [&](auto... end) {
		    return kumi_group_ireduce(
		        handle_, root, all.data(), all.data(),
		        all.size(), type<R>(), operation(how), end...);
	    },
	    where...);
}

template <class R, class... Where>
auto group::iallreduce(R &&data, op how, const Where &...where) const
{
	return start_in_place(kumi_group_iallreduce,
	                      "kumi_group_iallreduce",
	                      lent_target<R>(data), how, where...);
}

template <class R, class... Where>
auto group::iscan(R &&data, op how, const Where &...where) const
{
	return start_in_place(kumi_group_iscan, "kumi_group_iscan",
	                      lent_target<R>(data), how, where...);
}

template <class R, class... Where>
auto group::iexclusive_scan(R &&data, op how, const Where &...where) const
{
	return start_in_place(kumi_group_iexclusive_scan,
	                      "kumi_group_iexclusive_scan",
	                      lent_target<R>(data), how, where...);
}

template <class R, class S, class... Where>
auto group::igather(int root, R &&data, S &&into, const Where &...where) const
{
	using T = detail::element_of<const R>;
	auto what = lent_view<R>(data);
	auto where_to = lent_target<S>(into);
	fits<R, S>(member() != root || where_to.size() == times(what.size()),
	           "kumi_group_igather");
	return start(
	    "kumi_group_igather",
	    [&](auto... end) {
		    return kumi_group_igather(
		        handle_, root, what.data(), where_to.data(),
		        units<T>(what.size()),
		        detail::moved<T>::type(), end...);
	    },
	    where...);
}

template <class R>
auto group::igather_vector(int root, R &&data) const
{
	using T = detail::element_of<const R>;
	std::vector<T> all(
	    member() == root ? times(detail::view(data).size()) : 0);
	request started = igather(root, std::forward<R>(data), all);
	return future<std::vector<T>>(std::move(started), std::move(all));
}

template <class R, class S, class... Where>
auto group::iscatter(int root, R &&data, S &&into, const Where &...where) const
{
	using T = detail::element_of<const R>;
	auto what = lent_view<R>(data);
	auto where_to = lent_target<S>(into);
	fits<R, S>(member() != root || what.size() == times(where_to.size()),
	           "kumi_group_iscatter");
	return start(
	    "kumi_group_iscatter",
	    [&](auto... end) {
		    return kumi_group_iscatter(
		        handle_, root, what.data(), where_to.data(),
		        units<T>(where_to.size()),
		        detail::moved<T>::type(), end...);
	    },
	    where...);
}

template <class R, class S, class... Where>
auto group::iallgather(R &&data, S &&into, const Where &...where) const
{
	using T = detail::element_of<const R>;
	auto what = lent_view<R>(data);
	auto where_to = lent_target<S>(into);
	fits<R, S>(where_to.size() == times(what.size()),
	           "kumi_group_iallgather");
	return start(
	    "kumi_group_iallgather",
	    [&](auto... end) {
		    return kumi_group_iallgather(
		        handle_, what.data(), where_to.data(),
		        units<T>(what.size()),
		        detail::moved<T>::type(), end...);
	    },
	    where...);
}

template <class R>
auto group::iallgather_vector(R &&data) const
{
	using T = detail::element_of<const R>;
	std::vector<T> all(times(detail::view(data).size()));
	request started = iallgather(std::forward<R>(data), all);
	return future<std::vector<T>>(std::move(started), std::move(all));
}

template <class R, class S, class... Where>
auto group::ialltoall(R &&data, S &&into, const Where &...where) const
{
	using T = detail::element_of<const R>;
	auto what = lent_view<R>(data);
	auto where_to = lent_target<S>(into);
	auto block = what.size() / times(1);
	fits<R, S>(what.size() == where_to.size() &&
	               what.size() == times(block),
	           "kumi_group_ialltoall");
	return start(
	    "kumi_group_ialltoall",
	    [&](auto... end) {
		    return kumi_group_ialltoall(
		        handle_, what.data(), where_to.data(),
		        units<T>(block),
		        detail::moved<T>::type(), end...);
	    },
	    where...);
}

template <class R, class S, class... Where>
auto group::ireduce_scatter(R &&data, S &&into, op how,
                     const Where &...where) const
{
	auto what = lent_view<R>(data);
	auto where_to = lent_target<S>(into);
	fits<R, S>(what.size() == times(where_to.size()),
	           "kumi_group_ireduce_scatter");
	return start(
	    "kumi_group_ireduce_scatter",
	    [&](auto... end) {
		    return kumi_group_ireduce_scatter(
		        handle_, what.data(), where_to.data(),
		        where_to.size(), type<R>(), operation(how),
		        end...);
	    },
	    where...);
}

} // namespace kumi

#endif /* KUMI_STARTED_HPP */
