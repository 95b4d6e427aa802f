/* What every test double shares: the mark by which the probe knows it, faults chosen by environment, and a way to
 * say that an argument was wrong.
 *
 * RTBUILD_DOUBLE_CUDA and RTBUILD_DOUBLE_CUDNN hold "function=fault" pairs, separated by commas; a fault is a
 * status number to return, or one of: hang, abort, segv, kill, and, for a convolution, wrong, stale (the answer before),
 * stored (the first one, ever again), first-wrong (every other one), nan (in one corner), unwritten. RTBUILD_DOUBLE_LOG names a file that gets a
 * line for each wrong argument, and for each function that was called without a fault ("called cuInit").
 */
#ifndef RTBUILD_DOUBLE_H
#define RTBUILD_DOUBLE_H

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))
enum { WRONG = -1, STALE = -2, STORED = -3, FIRST_WRONG = -4, NAN_CORNER = -5, UNWRITTEN = -6 };

EXPORT int rtbuild_test_double = 1;

__attribute__((unused, format(printf, 1, 2))) static void double_note(const char *format, ...) {
    const char *path = getenv("RTBUILD_DOUBLE_LOG");
    FILE *log = path && *path ? fopen(path, "a") : NULL;
    va_list arguments;
    if (!log) return;
    va_start(arguments, format);
    vfprintf(log, format, arguments);
    va_end(arguments);
    fputc('\n', log);
    fclose(log);
}

/* Where a real library would corrupt memory or return an error without a reason: say which argument it was. */
#define REFUSE(condition, status, function, ...) \
    do { \
        if (condition) { \
            double_note("refused " function ": " __VA_ARGS__); \
            fprintf(stderr, "test double: " function ": " __VA_ARGS__); \
            fputc('\n', stderr); \
            return status; \
        } \
    } while (0)

UNUSED static int double_fault(const char *variable, const char *function) {
    const char *text = getenv(variable);
    size_t length = strlen(function);
    while (text && *text) {
        if (!strncmp(text, function, length) && text[length] == '=') {
            const char *fault = text + length + 1;
            if (!strncmp(fault, "hang", 4)) for (;;) pause();
            if (!strncmp(fault, "abort", 5)) abort();
            if (!strncmp(fault, "segv", 4)) raise(SIGSEGV);
            if (!strncmp(fault, "kill", 4)) raise(SIGKILL);
            if (!strncmp(fault, "wrong", 5)) return WRONG;
            if (!strncmp(fault, "stale", 5)) return STALE;
            if (!strncmp(fault, "stored", 6)) return STORED;
            if (!strncmp(fault, "first-wrong", 11)) return FIRST_WRONG;
            if (!strncmp(fault, "nan", 3)) return NAN_CORNER;
            if (!strncmp(fault, "unwritten", 9)) return UNWRITTEN;
            return atoi(fault);
        }
        text = strchr(text, ',');
        if (text) text++;
    }
    double_note("called %s", function);
    return 0;
}

UNUSED static long double_number(const char *variable, long otherwise) {
    const char *text = getenv(variable);
    return text && *text ? atol(text) : otherwise;
}

#endif
