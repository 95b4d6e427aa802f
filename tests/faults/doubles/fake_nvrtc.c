/* A fake NVRTC that, as NVIDIA's does, opens its builtins by name at the first compilation; BUILTINS is that name. */
#include "double.h"

#include <dlfcn.h>

static const char LOG[] = "nvrtc: error: failed to open " BUILTINS ".\n  Make sure that it is installed correctly.";

EXPORT int nvrtcCreateProgram(void **program, const char *source, const char *name, int count, const char *const *headers,
                              const char *const *names) {
    REFUSE(!program || !source || !name || count || headers || names, 3, "nvrtcCreateProgram", "no program");
    *program = (void *)LOG;
    return 0;
}
EXPORT int nvrtcCompileProgram(void *program, int count, const char *const *options) {
    REFUSE(program != LOG || count || options, 4, "nvrtcCompileProgram", "another program");
    return dlopen(BUILTINS, RTLD_NOW) ? 0 : 7;
}
EXPORT int nvrtcGetProgramLogSize(void *program, size_t *size) {
    REFUSE(program != LOG || !size, 4, "nvrtcGetProgramLogSize", "another program");
    *size = sizeof LOG;
    return 0;
}
EXPORT int nvrtcGetProgramLog(void *program, char *log) {
    REFUSE(program != LOG || !log, 4, "nvrtcGetProgramLog", "another program");
    memcpy(log, LOG, sizeof LOG);
    return 0;
}
