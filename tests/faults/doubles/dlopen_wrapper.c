/* What a profiler's LD_PRELOADed dlopen does to $ORIGIN: the loader takes this file for the one that asks, so the
 * run path of the real caller does not count (https://github.com/bloomberg/memray/issues/212). */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *name, int flags) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next(name, flags);
}
