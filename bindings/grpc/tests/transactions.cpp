// Transactions of kumi_grpc.hpp.
#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "expect.hpp"
#include "kumi_grpc.hpp"
#include "server.h"

namespace {

namespace grpc = kumi::grpc;

const std::vector<double> a{1, 2, 3, 4};
const std::vector<double> b{5, 6, 7, 8};
const std::vector<double> ab{19, 22, 43, 50};
const std::vector<double> aba{85, 126, 193, 286};

void chains(const std::string &servers, grpc::handle &dmmul)
{
    std::vector<double> c(4);
    std::vector<double> d(4);
    double e[2][2] = {};
    grpc::transaction t = servers.empty() ? grpc::transaction() : grpc::transaction(servers);
    const grpc::intermediate between = t.array();
    EXPECT(t.call(dmmul, 2, a, b, c) == 0);
    EXPECT(t.call(dmmul, 2, c, a, d) == 1);
    t.call(dmmul, 2, a, b, between);
    t.call(dmmul, 2, between, a, e);
    throws<grpc::error>(GRPC_NOT_COMPLETED, "has not ended", [&] { t.get(0); });
    EXPECT(c[0] == 0);
    t.end();
    EXPECT(c == ab && d == aba && e[0][0] == 85 && e[1][1] == 286);
    for (int call = 0; call < 4; call++) {
        t.get(call);
    }
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "no call 4", [&] { t.get(4); });
}

void shapes(grpc::handle &dmmul)
{
    std::vector<double> columns{1, 3, 2, 4};
    std::vector<double> product(4);
    std::vector<double> back(4);
    grpc::transaction t;
    t.call(dmmul, 2, grpc::shaped(columns, {2, 2}, grpc::order::fortran), b, product);
    t.call(dmmul, 2, product, a, grpc::shaped(back, {2, 2}, grpc::order::fortran));
    t.end();
    EXPECT(product == ab && (back == std::vector<double>{85, 193, 126, 286}));
}

void values()
{
    grpc::handle count("count");
    grpc::handle shout("shout");
    int number = 40;
    const std::string before = "before";
    std::string answer = before;
    // Its text does not lie in the object itself.
    answer.reserve(100);
    std::string said;
    grpc::transaction t;
    t.call(count, number, 2);
    t.call(shout, std::string("hello"), answer);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`number` is what an earlier call", [&] { t.call(count, number, 2); });
    // The text of before would go: of the variable, and of what looks into it.
    const std::string &same = answer;
    const auto none = "`text` is what an earlier call";
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, none, [&] { t.call(shout, answer, said); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, none, [&] { t.call(shout, same, said); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, none, [&] { t.call(shout, std::string_view(answer), said); });
    t.call(shout, std::string(answer), said);
    EXPECT(number == 40 && answer == before);
    t.end();
    EXPECT(number == 42 && answer == "hello!" && said == "before!");
}

// A number inside an array that an earlier call writes is not known either.
void numbers_of_arrays(grpc::handle &dmmul)
{
    std::vector<int> x{1, 2, 3, 4};
    std::vector<double> c(4);
    grpc::handle negate("negate");
    grpc::transaction t;
    t.call(negate, 4, x);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`n` is what an earlier call", [&] { t.call(dmmul, x[1], a, b, c); });
    t.call(dmmul, 2, a, b, c);
    t.end();
    EXPECT(x[0] == -1 && c == ab);
}

void refusals(const std::string &elsewhere, grpc::handle &dmmul)
{
    std::vector<double> c(4);
    double sum = 0;
    grpc::handle integrate("integrate");
    grpc::handle there(elsewhere, "dmmul");
    grpc::held_array held;
    held.put(dmmul, a);
    grpc::transaction other;
    const grpc::intermediate array = other.array();
    grpc::transaction t;
    const auto square = [](double x, double *y) { *y = x * x; };
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`n` is a scalar", [&] { t.call(dmmul, c, a, b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`C` comes back", [&] { t.call(dmmul, 2, a, b, a); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "held arrays are for other", [&] { t.call(dmmul, 2, held, b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "array of this transaction", [&] { t.call(dmmul, 2, array, b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "no functions", [&] { t.call(integrate, 4, square, sum); });
    throws<grpc::error>(GRPC_INVALID_FUNCTION_HANDLE, "make a handle there", [&] { t.call(there, 2, a, b, c); });
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`A` is no held array", [&] {
        grpc::call("dmmul", 2, grpc::shaped_array<double>{reinterpret_cast<double *>(array.get()), {2, 2}, grpc::order::c}, b, c);
    });
    dmmul.resources({2});
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "asks for threads", [&] { t.call(dmmul, 2, a, b, c); });
    dmmul.resources({});
    dmmul.priority(1);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "priority of its own", [&] { t.call(dmmul, 2, a, b, c); });
    dmmul.priority(0);
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "metaserver", [&] { t.priority(1); });
    EXPECT(t.call(dmmul, 2, a, b, c) == 0);
    t.end();
    EXPECT(c == ab);
    throws<grpc::argument_error>(GRPC_INVALID_TRANSACTION_NP, "has ended", [&] { t.call(dmmul, 2, a, b, c); });
    throws<grpc::connection_error>(GRPC_SERVER_NOT_FOUND, "127.0.0.1:1", [] { grpc::transaction("127.0.0.1:1"); });
}

// Types, sizes and shapes are compared at the end, before anything is sent.
void sizes(grpc::handle &dmmul)
{
    std::vector<double> c(4);
    const std::vector<float> narrow(4);
    const auto refused = [&](const char *text, auto &&...arguments) {
        grpc::transaction t;
        t.call(dmmul, 2, a, b, c);
        t.call(dmmul, arguments...);
        throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, text, [&] { t.end(); });
        throws<grpc::not_run>(GRPC_NOT_RUN_NP, text, [&] { t.get(0); });
    };
    refused("call 1 (`dmmul`): `A`", 3, a, b, c);
    refused("float", 2, narrow, b, c);
    refused("shape", 2, a, grpc::shaped(b, {4, 1}), c);
    EXPECT(c[0] == 0);
}

void failures(grpc::handle &dmmul)
{
    grpc::handle judge("judge");
    grpc::handle nap("nap");
    std::vector<double> seen(1);
    std::vector<double> c(4);
    std::vector<double> far(1);
    int info = 0;
    int slept = 0;
    nap.limit(std::chrono::milliseconds(50));
    grpc::transaction t;
    const grpc::intermediate lost = t.array();
    const int judged = t.call(judge, 3, lost, info);
    const int late = t.call(nap, 60000, slept);
    const int behind = t.call(dmmul, 1, lost, far, seen);
    const int apart = t.call(dmmul, 2, a, b, c);
    throws<grpc::status_error>(GRPC_STATUS_NP, "1 of 4 calls have run", [&] { t.end(); });
    throws<grpc::status_error>(GRPC_STATUS_NP, "info is 3", [&] { t.get(judged); });
    throws<grpc::timed_out>(GRPC_TIMEOUT_NP, "50 ms", [&] { t.get(late); });
    throws<grpc::not_run>(GRPC_NOT_RUN_NP, "because of 0 (judge)", [&] { t.get(behind); });
    t.get(apart);
    EXPECT(c == ab && info == 3 && seen[0] == 0);
}

// What goes without its end runs nothing, also because of an exception.
void abandoned(grpc::handle &dmmul)
{
    std::vector<double> c(4);
    {
        grpc::transaction dropped;
        dropped.call(dmmul, 2, a, b, c);
    }
    throws<grpc::argument_error>(GRPC_INVALID_ARGUMENT_NP, "`n` is a scalar", [&] {
        grpc::transaction broken;
        broken.call(dmmul, 2, a, b, c);
        broken.call(dmmul, c, a, b, c);
        broken.end();
    });
    grpc::transaction t;
    t.call(dmmul, 2, a, b, c);
    t.abandon();
    throws<grpc::argument_error>(GRPC_INVALID_TRANSACTION_NP, "was abandoned", [&] { t.end(); });
    throws<grpc::cancelled>(GRPC_CANCELED_NP, "abandoned", [&] { t.get(0); });
    EXPECT(c[0] == 0);
    static_assert(!std::is_copy_constructible_v<grpc::transaction> && std::is_nothrow_move_assignable_v<grpc::transaction>);
    grpc::transaction first;
    first.call(dmmul, 2, a, b, c);
    grpc::transaction moved(std::move(first));
    throws<grpc::argument_error>(GRPC_INVALID_TRANSACTION_NP, "no transaction", [&] { first.end(); });
    moved.end();
    EXPECT(c == ab);
}

// A handle at a metaserver, once that knows a server.
grpc::handle at(const std::string &metaserver)
{
    for (;;) {
        try {
            return grpc::handle(metaserver, "dmmul");
        } catch (const grpc::routine_not_found &) {
            usleep(1000);
        }
    }
}

} // namespace

int main()
{
    server server;
    struct server other;
    struct server meta;
    struct server below;
    server_start(&server, 2, 64, "127.0.0.1:0");
    server_start(&other, 2, 64, "127.0.0.1:0");
    server_start_meta(&meta);
    server_start_at(&below, meta.address);
    setenv("KUMI_CALL_SERVER", server.address, 1);
    {
        const grpc::library grpc;
        grpc::handle dmmul("dmmul");
        grpc::handle through = at(meta.address);
        chains("", dmmul);
        chains(server.address + std::string(",") + other.address, dmmul);
        chains(meta.address, through);
        shapes(dmmul);
        values();
        numbers_of_arrays(dmmul);
        refusals(other.address, dmmul);
        sizes(dmmul);
        failures(dmmul);
        abandoned(dmmul);
    }
    server_end(&below, SIGTERM);
    server_end(&meta, SIGTERM);
    server_end(&other, SIGTERM);
    server_end(&server, SIGTERM);
    return 0;
}
