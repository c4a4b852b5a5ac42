/* The functions of grpc.h that take any number of arguments: they ask which C types the routine takes, collect that
 * many arguments, and hand them over. Stable Rust can call such functions but not be one; see variadic.rs. */
#include <complex.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/* How an argument is passed, after C's promotions; Kind in variadic.rs. */
enum {
    KIND_INT = 1,
    KIND_UNSIGNED,
    KIND_INT64,
    KIND_UINT64,
    KIND_DOUBLE,
    KIND_FLOAT_COMPLEX,
    KIND_DOUBLE_COMPLEX,
    KIND_ADDRESS
};

enum { MOST_ARGUMENTS = 256 };

/* VariadicValue in variadic.rs. */
union variadic_value {
    int64_t integer;
    uint64_t natural;
    double parts[2];
    void *address;
};

struct variadic_call;

/* What is called: a function handle's routine, or a method of an object handle's class. */
struct called {
    int is_method;
    const void *handle;
    const char *method;
};

int kumi_grpc_prepare(int is_method, const void *handle, const char *method, struct variadic_call **prepared,
                      const unsigned char **kinds, size_t *count);
int kumi_grpc_start(struct variadic_call *prepared, const union variadic_value *passed, int is_session, int *session,
                    const void *attributes);
int kumi_grpc_record(struct variadic_call *prepared, const union variadic_value *passed, void *transaction, int *number);

static void collect(const unsigned char *kinds, size_t count, va_list list, union variadic_value *passed)
{
    for (size_t i = 0; i < count; i++) {
        switch (kinds[i]) {
        case KIND_INT:
            passed[i].integer = va_arg(list, int);
            break;
        case KIND_UNSIGNED:
            passed[i].natural = va_arg(list, unsigned);
            break;
        case KIND_INT64:
            passed[i].integer = va_arg(list, int64_t);
            break;
        case KIND_UINT64:
            passed[i].natural = va_arg(list, uint64_t);
            break;
        case KIND_DOUBLE:
            passed[i].parts[0] = va_arg(list, double);
            break;
        case KIND_FLOAT_COMPLEX: {
            float complex value = va_arg(list, float complex);
            passed[i].parts[0] = crealf(value);
            passed[i].parts[1] = cimagf(value);
            break;
        }
        case KIND_DOUBLE_COMPLEX: {
            double complex value = va_arg(list, double complex);
            passed[i].parts[0] = creal(value);
            passed[i].parts[1] = cimag(value);
            break;
        }
        default:
            passed[i].address = va_arg(list, void *);
            break;
        }
    }
}

/* Asks for the types, and collects the arguments. */
static int prepare(struct called called, struct variadic_call **prepared, union variadic_value *passed, va_list list)
{
    const unsigned char *kinds = NULL;
    size_t count = 0;
    int error = kumi_grpc_prepare(called.is_method, called.handle, called.method, prepared, &kinds, &count);
    if (error == 0) {
        /* A routine has no more parameters: Interface::MOST_PARAMS. */
        collect(kinds, count < MOST_ARGUMENTS ? count : MOST_ARGUMENTS, list, passed);
    }
    return error;
}

static int call(struct called called, int is_session, int *session, const void *attributes, va_list list)
{
    struct variadic_call *prepared = NULL;
    union variadic_value passed[MOST_ARGUMENTS];
    int error = prepare(called, &prepared, passed, list);
    return error != 0 ? error : kumi_grpc_start(prepared, passed, is_session, session, attributes);
}

int kumi_grpc_transaction_call(void *transaction, int *number, void *handle, ...)
{
    struct variadic_call *prepared = NULL;
    union variadic_value passed[MOST_ARGUMENTS];
    va_list list;
    va_start(list, handle);
    int error = prepare((struct called){0, handle, NULL}, &prepared, passed, list);
    va_end(list);
    return error != 0 ? error : kumi_grpc_record(prepared, passed, transaction, number);
}

int kumi_grpc_call(void *handle, ...)
{
    va_list list;
    va_start(list, handle);
    int error = call((struct called){0, handle, NULL}, 0, NULL, NULL, list);
    va_end(list);
    return error;
}

int kumi_grpc_call_async(void *handle, int *session, ...)
{
    va_list list;
    va_start(list, session);
    int error = call((struct called){0, handle, NULL}, 1, session, NULL, list);
    va_end(list);
    return error;
}

int kumi_grpc_call_with_attr(void *handle, const void *attributes, ...)
{
    va_list list;
    va_start(list, attributes);
    int error = call((struct called){0, handle, NULL}, 0, NULL, attributes, list);
    va_end(list);
    return error;
}

int kumi_grpc_call_async_with_attr(void *handle, int *session, const void *attributes, ...)
{
    va_list list;
    va_start(list, attributes);
    int error = call((struct called){0, handle, NULL}, 1, session, attributes, list);
    va_end(list);
    return error;
}

int kumi_grpc_invoke(void *handle, const char *method, ...)
{
    va_list list;
    va_start(list, method);
    int error = call((struct called){1, handle, method}, 0, NULL, NULL, list);
    va_end(list);
    return error;
}

int kumi_grpc_invoke_async(void *handle, const char *method, int *session, ...)
{
    va_list list;
    va_start(list, session);
    int error = call((struct called){1, handle, method}, 1, session, NULL, list);
    va_end(list);
    return error;
}

int kumi_grpc_invoke_with_attr(void *handle, const char *method, const void *attributes, ...)
{
    va_list list;
    va_start(list, attributes);
    int error = call((struct called){1, handle, method}, 0, NULL, attributes, list);
    va_end(list);
    return error;
}

int kumi_grpc_invoke_async_with_attr(void *handle, const char *method, int *session, const void *attributes, ...)
{
    va_list list;
    va_start(list, attributes);
    int error = call((struct called){1, handle, method}, 1, session, attributes, list);
    va_end(list);
    return error;
}
