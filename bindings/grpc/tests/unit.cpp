// kumi_grpc.hpp: values of all kinds, futures, exceptions.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <unistd.h>

#include "expect.hpp"
#include "kumi_grpc.hpp"
#include "server.h"

namespace {

namespace grpc = kumi::grpc;

void products()
{
    const std::vector<double> a{1, 2, 3, 4};
    const std::array<double, 4> b{5, 6, 7, 8};
    const std::vector<double> product{19, 22, 43, 50};
    std::vector<double> c(4);
    grpc::call("dmmul", 2, a, b, c);
    EXPECT(c == product);
    double matrix[2][2] = {{1, 2}, {3, 4}};
    double result[2][2] = {};
    grpc::handle dmmul("dmmul");
    dmmul.call(2, matrix, b, result);
    EXPECT(result[0][0] == 19 && result[0][1] == 22 && result[1][0] == 43 && result[1][1] == 50);
    // By columns: what is sent and what comes back is converted.
    std::vector<double> columns{1, 3, 2, 4};
    std::vector<double> back(4);
    dmmul.call(2, grpc::shaped(columns, {2, 2}, grpc::order::fortran), b, grpc::shaped(back, {2, 2}, grpc::order::fortran));
    EXPECT((back == std::vector<double>{19, 43, 22, 50}));
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`A`", [&] { dmmul.call(3, a, b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "4 arguments (n, A, B, C), 2 were", [&] { dmmul.call(3, a); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "float", [&] { dmmul.call(2, std::vector<float>(4), b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`C` comes back", [&] { dmmul.call(2, a, b, a); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`C` comes back",
                                 [&] { dmmul.call(2, a, b, std::vector<double>(4)); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "shape",
                                 [&] { dmmul.call(2, grpc::shaped(columns, {4, 1}), b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`n`", [&] { dmmul.call("two", a, b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`A`", [&] { dmmul.call(2, 1.0, b, c); });
}

// What other libraries call a span.
template <class T>
struct view {
    T *first;
    std::size_t count;
    T *data() const { return first; }
    std::size_t size() const { return count; }
};

void views()
{
    std::vector<double> a{2};
    std::vector<double> c{0};
    grpc::call("dmmul", 1, view<const double>{a.data(), 1}, view<double>{a.data(), 1}, view<double>{c.data(), 1});
    EXPECT(c[0] == 4);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`C` comes back",
                                 [&] { grpc::call("dmmul", 1, a, a, view<const double>{c.data(), 1}); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`C` comes back",
                                 [&] { grpc::call("dmmul", 1, a, a, std::array<double, 1>{}); });
}

void numbers()
{
    double sum = 0;
    grpc::call("addall", std::int8_t{-1}, std::int16_t{-2}, -3, std::int64_t{-4}, std::uint8_t{5}, std::uint16_t{6}, 7U,
               std::uint64_t{8}, 0.5F, 0.25, sum);
    EXPECT(sum == 16.75);
    // Any type that holds the value.
    grpc::call("addall", -1, -2L, std::int8_t{-3}, -4, 5, 6, 7, 8, 0.5, 1, sum);
    EXPECT(sum == 17.5);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`a`",
                                 [&] { grpc::call("addall", 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, sum); });
    float narrow = 0;
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`sum` comes back as double",
                                 [&] { grpc::call("addall", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, narrow); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`sum` comes back",
                                 [&] { grpc::call("addall", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0); });
    std::int8_t a = 0;
    std::uint64_t h = 0;
    float i = 0;
    grpc::call("spread", 100, a, grpc::defaulted, grpc::defaulted, grpc::defaulted, grpc::defaulted, grpc::defaulted,
               grpc::defaulted, h, i, grpc::defaulted);
    EXPECT(a == 100 && h == 100 && i == 100);
    int number = 40;
    grpc::call("count", number, 2);
    EXPECT(number == 42);
    grpc::call("count", number, grpc::defaulted);
    EXPECT(number == 43);
    std::vector<std::complex<double>> z{{1, 2}, {3, -4}};
    grpc::call("conjugate", 2, z);
    EXPECT(z[0] == std::complex<double>(1, -2) && z[1] == std::complex<double>(3, 4));
    std::vector<int> none;
    grpc::call("negate", 0, none);
}

void texts()
{
    std::string answer = "before";
    grpc::call("shout", "hello", answer);
    EXPECT(answer == "hello!");
    grpc::call("shout", std::string_view(answer), answer);
    EXPECT(answer == "hello!!");
    grpc::call("shout", answer, answer);
    EXPECT(answer == "hello!!!");
    grpc::call("shout", std::string(), answer);
    EXPECT(answer == "!");
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`text`", [&] { grpc::call("shout", 5, answer); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`answer`", [&] { grpc::call("shout", "a", "b"); });
}

void futures()
{
    grpc::handle nap("nap");
    std::vector<grpc::future> many(8);
    std::array<int, 8> slept{};
    for (int index = 0; index < 8; index++) {
        many[index] = nap.async(5, slept[index]);
    }
    int told = 0;
    for (std::size_t index; (index = grpc::wait_any(many)) < many.size(); told++) {
        EXPECT(many[index].ready() && slept[index] == 5);
        many[index].get();
        EXPECT(!many[index].valid());
    }
    EXPECT(told == 8);
    // Also one whose end another wait has reported, and none that was left out.
    many.clear();
    many.resize(2);
    many[1] = nap.async(1, slept[1]);
    EXPECT(grpc_wait(many[1].session()) == GRPC_NO_ERROR && grpc::wait_any(many) == 1 && grpc::wait_any(many) == 1);
    many[1].get();
    EXPECT(grpc::wait_any(many) == 2);
    int late = -1;
    grpc::future one = nap.async(60000, late);
    EXPECT(!one.ready());
    one.cancel();
    EXPECT(!one.valid() && late == -1);
    {
        // Cancelled where it goes: later calls have the slots.
        const grpc::future dropped = nap.async(60000, late);
        grpc::future replaced = nap.async(60000, late);
        replaced = nap.async(60000, late);
    }
    nap.call(1, late);
    EXPECT(late == 1);
    one = nap.async(60000, late);
    EXPECT(grpc_cancel(one.session()) == GRPC_NO_ERROR);
    throws<grpc::cancelled>(GRPC_CANCELED_NP, "cancelled", [&] { one.get(); });
    throws<grpc::error>(GRPC_INVALID_SESSION_ID, "session", [&] { one.get(); });
    nap.limit(std::chrono::milliseconds(50));
    throws<grpc::timed_out>(GRPC_TIMEOUT_NP, "", [&] { nap.call(60000, late); });
    nap.limit(std::chrono::milliseconds(0));
    nap.call(100, late);
}

void failures()
{
    throws<grpc::routine_not_found>(GRPC_FUNCTION_NOT_FOUND, "dmmul", [] { grpc::call("dmul"); });
    throws<grpc::connection_error>(GRPC_SERVER_NOT_FOUND, "127.0.0.1:1", [] { grpc::handle("127.0.0.1:1", "noop"); });
    throws<grpc::crashed_error>(GRPC_CRASHED_NP, "crash", [] { grpc::call("crash"); });
    throws<grpc::refused_error>(GRPC_NOT_RUNNABLE_NP, "absent", [] { grpc::call("absent"); });
    std::vector<double> seen(1);
    int info = 0;
    throws<grpc::status_error>(GRPC_STATUS_NP, "info", [&] { grpc::call("judge", 3, seen, info); });
    EXPECT(info == 3 && seen[0] == 3);
    throws<grpc::error>(GRPC_ALREADY_INITIALIZED, "", [] { grpc::library(); });
}

// What must not compile, with the header's own words: `make check` tries each.
#ifdef WRONG
void wrong()
{
    double number = 0;
    std::vector<long double> wide(1);
    bool flag = false;
    struct {
        int a;
    } thing{};
#if WRONG == 1
    grpc::call("noop", &number);
#elif WRONG == 2
    grpc::call("noop", wide);
#elif WRONG == 3
    grpc::call("noop", flag);
#elif WRONG == 4
    grpc::call("noop", thing);
#elif WRONG == 5
    static_cast<void>(grpc::handle("noop").async([&](double x) { number = x; }));
#elif WRONG == 6
    grpc::call("noop", [](bool) {});
#elif WRONG == 7
    grpc::transaction().call(grpc::handle("noop"), std::vector<double>(1));
#endif
}
#endif

void square(double x, double *y)
{
    *y = x * x;
}

void functions()
{
    double sum = 0;
    int calls = 0;
    grpc::call("integrate", 4, square, sum);
    EXPECT(sum == 0.328125);
    grpc::call("integrate", 4, &square, sum);
    const auto counted = [&calls](double x, double *y) {
        calls++;
        *y = x;
    };
    grpc::call("integrate", 4, counted, sum);
    EXPECT(sum == 0.5 && calls == 4);
    std::function<void(double, double *)> other = counted;
    grpc::future later = grpc::handle("integrate").async(4, other, sum);
    later.get();
    EXPECT(calls == 8);
    std::vector<double> x{1, 2, 3};
    std::int64_t total = 0;
    std::string said;
    const auto visit = [](int k, const char *text, double *all, float w, std::int64_t *count, char *back) {
        all[k - 1] *= w;
        *count += static_cast<std::int64_t>(std::string(text).size());
        std::snprintf(back, 8, "yes");
    };
    grpc::call("visit", 3, visit, x, total, said);
    EXPECT(x[2] == 7.5 && total == 44 && said == "yes");
    throws<grpc::callback_error>(GRPC_CALLBACK_FAILED_NP, "no point", [&] {
        grpc::call("integrate", 4, [](double, double *) { throw std::runtime_error("no point"); }, sum);
    });
    // Both slots wait for functions, which the wait for another call runs.
    std::vector<grpc::future> both(2);
    std::array<double, 2> sums{};
    grpc::handle integrate("integrate");
    calls = 0;
    both[0] = integrate.async(4, other, sums[0]);
    both[1] = integrate.async(4, other, sums[1]);
    int number = 1;
    grpc::handle("count").async(number, 1).get();
    EXPECT(number == 2 && calls >= 4);
    while (grpc::wait_any(both) < both.size()) {
        both[grpc::wait_any(both)].get();
    }
    EXPECT(calls == 8 && sums[0] == 0.5 && sums[1] == 0.5);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`f` is declared with 2 arguments", [&] {
        grpc::call("integrate", 4, [](double) {}, sum);
    });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "its argument `x`", [&] {
        grpc::call("integrate", 4, [](float, double *) {}, sum);
    });
    throws<grpc::file_error>(GRPC_FILE_NP, "/not/there", [&] { grpc::call("capitals", "/not/there", "/tmp/x", said); });
}

std::int64_t total(grpc::object &counter)
{
    std::int64_t sum = -1;
    counter.call("total", sum);
    return sum;
}

void objects(const std::string &server)
{
    grpc::object one("counter");
    grpc::object two(server, "counter");
    static_assert(!std::is_copy_constructible_v<grpc::object> && std::is_nothrow_move_assignable_v<grpc::object>);
    one.call("add", 40);
    two.call("add", grpc::defaulted);
    std::int64_t sum = 0;
    grpc::future first = one.async("add", 2);
    grpc::future second = one.async("total", sum);
    first.get();
    second.get();
    EXPECT(sum == 42 && total(two) == 1);
    const std::vector<double> x{1, 2};
    std::vector<double> y(2);
    const std::vector<double> columns{1, 3, 2, 4};
    one.call("keep", 2, grpc::shaped(columns, {2, 2}, grpc::order::fortran));
    one.call("times", 2, x, y);
    EXPECT((y == std::vector<double>{5, 11}));
    one.call("ask", [](std::int64_t so_far, std::int64_t *more) { *more = -so_far; }, sum);
    EXPECT(sum == 0);
    // What it was moved to is the same object; what it was moved from is none.
    grpc::object moved(std::move(two));
    EXPECT(total(moved) == 1);
    throws<grpc::error>(GRPC_INVALID_FUNCTION_HANDLE, "", [&] { two.call("add", 1); });
    two = std::move(moved);
    EXPECT(total(two) == 1 && two.ready());
    throws<grpc::routine_not_found>(GRPC_FUNCTION_NOT_FOUND, "counter", [] { grpc::object("conter"); });
    throws<grpc::routine_not_found>(GRPC_FUNCTION_NOT_FOUND, "counter.add", [&] { one.call("ad", 1); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "double", [&] { one.call("times", 2, std::vector<float>(2), y); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "object of `counter`", [] { grpc::call("counter.add", 1); });
    EXPECT(total(one) == 0);
    throws<grpc::crashed_error>(GRPC_CRASHED_NP, "crash", [&] { one.call("crash"); });
    throws<grpc::object_lost>(GRPC_OBJECT_LOST_NP, "", [&] { total(one); });
    while (one.ready()) {
    }
    throws<grpc::object_lost>(GRPC_OBJECT_LOST_NP, "make another", [&] { one.async("add", 1).get(); });
    one = grpc::object("counter");
    EXPECT(total(one) == 0);
    // What runs when its time is over ends with its object.
    char path[4096];
    temporary(path, sizeof path, ("kumi-grpc-cpp-" + std::to_string(getpid())).c_str());
    two.limit(std::chrono::milliseconds(50));
    throws<grpc::timed_out>(GRPC_TIMEOUT_NP, "", [&] { two.call("later", path, 1); });
    while (two.ready()) {
    }
    static_cast<void>(std::remove((path + std::string(".begun")).c_str()));
}

void held()
{
    const std::vector<double> a{1, 2, 3, 4};
    const std::vector<double> b{5, 6, 7, 8};
    std::vector<double> c(4);
    grpc::handle dmmul("dmmul");
    grpc::held_array ab;
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "holds no array yet", [&] { dmmul.call(2, ab, a, c); });
    dmmul.call(2, a, b, ab);
    EXPECT(ab.bytes() == 32 && (ab.fetch<double>() == std::vector<double>{19, 22, 43, 50}));
    dmmul.async(2, ab, a, c).get();
    EXPECT((c == std::vector<double>{85, 126, 193, 286}));
    ab.put(dmmul, a);
    dmmul.call(2, ab, b, ab);
    EXPECT((ab.fetch<double>() == std::vector<double>{19, 22, 43, 50}));
    grpc::held_array moved = std::move(ab);
    const grpc::held_array &only_read = moved;
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "comes back", [&] { dmmul.call(2, a, b, only_read); });
    dmmul.call(2, only_read, a, moved);
    EXPECT(moved.fetch<double>() == c);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "travels in pieces", [&] { grpc::call("negate", 4, moved); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "no held array", [&] { dmmul.call(2, ab, a, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "is a scalar", [&] { dmmul.call(moved, a, b, c); });
}

// Calls through a metaserver run where their arrays are.
void placed()
{
    const std::vector<double> a{1, 2, 3, 4};
    const std::vector<double> b{5, 6, 7, 8};
    std::vector<double> c(4);
    struct server meta;
    struct server below;
    server_start_meta(&meta);
    server_start_at(&below, meta.address);
    for (int i = 0; i < 600; i++) {
        try {
            grpc::handle(meta.address, "dmmul");
            break;
        } catch (const grpc::routine_not_found &) {
            // The server has not registered yet.
            usleep(100000);
        }
    }
    {
        grpc::handle dmmul(meta.address, "dmmul");
        grpc::held_array ab;
        throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "a metaserver chooses", [&] { ab.put(dmmul, a); });
        dmmul.call(2, a, b, ab);
        dmmul.async(2, ab, a, ab).get();
        EXPECT((ab.fetch<double>() == std::vector<double>{85, 126, 193, 286}));
        dmmul.call(2, ab, std::vector<double>{1, 0, 0, 1}, c);
        EXPECT(c == ab.fetch<double>());
        server_end(&below, SIGKILL);
        throws<grpc::held_lost>(GRPC_HELD_LOST_NP, "`dmmul`: `A` is `C` of `dmmul` at ", [&] { dmmul.call(2, ab, a, c); });
        throws<grpc::held_lost>(GRPC_HELD_LOST_NP, below.address, [&] { ab.fetch<double>(); });
    }
    server_end(&meta, SIGTERM);
}

void prints()
{
    grpc::handle say("say");
    grpc::output output;
    say.output(output);
    say.call(3, 0);
    say.async(1, 0).get();
    const grpc::printed printed = output.take();
    EXPECT(printed.text == "0000000\n0000001\n0000002\n0000000\n" && !printed.is_cut);
    grpc::object counter("counter");
    counter.output(output);
    counter.call("say", "of a method");
    EXPECT(output.take().text == "of a method\n" && output.take().text.empty());
}

// What functions of a call and the routines that they call have left of its time.
void deadlines()
{
    EXPECT(!grpc::remaining());
    grpc::handle integrate("integrate");
    double sum = 0;
    double own = 0;
    double routine = 0;
    const auto looks = [&](double x, double *y) {
        own = grpc::remaining().value().count();
        grpc::call("left", routine);
        *y = x;
    };
    integrate.limit(std::chrono::hours(1));
    integrate.call(1, looks, sum);
    EXPECT(own > 1800 && own <= 3600 && routine > 1800 && routine <= own && !grpc::remaining());
    const auto outlasts = [&](double x, double *y) {
        while (grpc::remaining().value().count() > 0) {
            usleep(1000);
        }
        throws<grpc::timed_out>(GRPC_TIMEOUT_NP, "was not begun", [&] { grpc::call("left", routine); });
        own = grpc::remaining().value().count();
        *y = x;
    };
    integrate.limit(std::chrono::milliseconds(200));
    throws<grpc::timed_out>(GRPC_TIMEOUT_NP, "it waited for `f`", [&] { integrate.call(1, outlasts, sum); });
    EXPECT(own == 0 && !grpc::remaining());
}

void traces()
{
    const std::string first = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const std::string second = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const std::size_t trace = 35;
    const auto found = [] {
        std::string parent;
        grpc::call("traced", parent);
        return parent;
    };
    EXPECT(found().empty());
    {
        const grpc::traced one(first);
        const std::string outer = found();
        EXPECT(outer.substr(0, trace) == first.substr(0, trace) && outer != first);
        {
            const grpc::traced two(second);
            EXPECT(found().substr(0, trace) == second.substr(0, trace));
        }
        EXPECT(found().substr(0, trace) == first.substr(0, trace));
        throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "a traceparent is `00-`", [] { grpc::traced("00-1-2-3"); });
        EXPECT(found().substr(0, trace) == first.substr(0, trace));
    }
    EXPECT(found().empty());
}

// What a server of two slots gives.
void resources()
{
    grpc::handle threads("threads");
    int count = 0;
    threads.resources({2});
    threads.call(count);
    EXPECT(count == 2);
    threads.async(count).get();
    EXPECT(count == 2);
    threads.resources({3});
    throws<grpc::refused_error>(GRPC_TOO_LARGE_NP, "3 threads", [&] { threads.call(count); });
    threads.resources({0, std::uint64_t{1} << 30});
    throws<grpc::refused_error>(GRPC_TOO_LARGE_NP, "1073741824 bytes", [&] { threads.call(count); });
    threads.resources({});
    threads.call(count);
    EXPECT(count == 1);
    grpc::object wide("counter", grpc::resources{2});
    wide.call("threads", count);
    EXPECT(count == 2);
    throws<grpc::refused_error>(GRPC_TOO_LARGE_NP, "3 threads", [] { grpc::object("counter", grpc::resources{3}); });
    throws<grpc::error>(GRPC_SERVER_NOT_FOUND, "127.0.0.1:1", [] { grpc::object("127.0.0.1:1", "counter", grpc::resources{2}); });
}

} // namespace

int main()
{
    server server;
    server_start(&server, 2, 64, "127.0.0.1:0");
    setenv("KUMI_CALL_SERVER", server.address, 1);
    throws<grpc::error>(GRPC_CONFIGFILE_NOT_FOUND, "/not/there", [] { grpc::library("/not/there"); });
    throws<grpc::error>(GRPC_NOT_INITIALIZED, "grpc_initialize", [] { grpc::call("noop"); });
    {
        const grpc::library grpc;
        grpc::call("noop");
        products();
        views();
        numbers();
        texts();
        futures();
        failures();
        functions();
        objects(server.address);
        held();
        placed();
        prints();
        deadlines();
        traces();
        resources();
    }
    server_end(&server, SIGTERM);
    return 0;
}
