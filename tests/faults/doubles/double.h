/* What every test double shares: the mark by which the probe knows it, and faults chosen by environment.
 *
 * RTBUILD_DOUBLE_CUDA and RTBUILD_DOUBLE_CUDNN hold "function=fault" pairs, separated by commas; a fault is a
 * status number to return, or one of: wrong, hang, abort, segv, kill.
 */
#ifndef RTBUILD_DOUBLE_H
#define RTBUILD_DOUBLE_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define WRONG (-1)

EXPORT int rtbuild_test_double = 1;

__attribute__((unused)) static int double_fault(const char *variable, const char *function) {
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
            return atoi(fault);
        }
        text = strchr(text, ',');
        if (text) text++;
    }
    return 0;
}

__attribute__((unused)) static long double_number(const char *variable, long otherwise) {
    const char *text = getenv(variable);
    return text && *text ? atol(text) : otherwise;
}

#endif
