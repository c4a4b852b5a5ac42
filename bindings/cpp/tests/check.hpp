// What the parts of the test have in common.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <cstdio>
#include <cstring>

#include <kumi.hpp>

inline int failures;

inline void expect(bool holds, int line, const char *what)
{
	if (holds)
		return;
	failures++;
	std::fprintf(stderr, "line %d: %s\n", line, what);
}

#define EXPECT(condition) expect((condition), __LINE__, #condition)

/* Whether the call throws kumi::error with this number. */
template <class Call>
bool throws(kumi_error code, Call call)
{
	try {
		call();
	} catch (const kumi::error &error) {
		return error.code() == code && std::strlen(error.what()) > 0;
	}
	return false;
}

#define THROWS(code, call) EXPECT(throws(code, [&] { call; }))

/* In onesided.cpp. */
void onesided(kumi::context &job);
/* In lists.cpp. */
void lists_and_memory(kumi::context &job);
/* In groups.cpp. */
void groups(kumi::context &job);
/* In started.cpp. */
void started(kumi::context &job);
/* In requests.cpp. */
void requests(kumi::context &job);

#endif
