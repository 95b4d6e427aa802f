/* A fake libcuda.so.1: device memory is host memory. Also the stub driver of the tests: RTBUILD_DOUBLE_CUDA makes
 * any call return any code. Set up by RTBUILD_DOUBLE_DRIVER (12080), _DEVICES, _CAPABILITY (90), _MODE, _FREE. */
#include "double.h"

#define CALL(function) \
    do { int code = double_fault("RTBUILD_DOUBLE_CUDA", #function); if (code > 0) return code; } while (0)

static int device_count(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (!*visible || !strcmp(visible, "-1"))) return 0;
    return (int)double_number("RTBUILD_DOUBLE_DEVICES", 1);
}

static size_t total_memory(void) { return (size_t)8 << 30; }
static size_t free_memory(void) { return (size_t)double_number("RTBUILD_DOUBLE_FREE", 7L << 30); }

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    CALL(cuInit);
    return device_count() ? 0 : 100;
}

EXPORT int cuDriverGetVersion(int *version) {
    CALL(cuDriverGetVersion);
    *version = (int)double_number("RTBUILD_DOUBLE_DRIVER", 12080);
    return 0;
}

EXPORT int cuDeviceGetCount(int *count) { CALL(cuDeviceGetCount); *count = device_count(); return 0; }

EXPORT int cuDeviceGet(int *device, int ordinal) {
    CALL(cuDeviceGet);
    if (ordinal < 0 || ordinal >= device_count()) return 101;
    *device = ordinal;
    return 0;
}

EXPORT int cuDeviceGetName(char *name, int length, int device) {
    (void)device;
    CALL(cuDeviceGetName);
    snprintf(name, (size_t)length, "rtbuild test double");
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    long capability = double_number("RTBUILD_DOUBLE_CAPABILITY", 90);
    (void)device;
    CALL(cuDeviceGetAttribute);
    switch (attribute) {
    case 75: *value = (int)(capability / 10); break;
    case 76: *value = (int)(capability % 10); break;
    case 20: *value = (int)double_number("RTBUILD_DOUBLE_MODE", 0); break;
    default: *value = 1;
    }
    return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    CALL(cuDeviceTotalMem_v2);
    *bytes = total_memory();
    return 0;
}

EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device) { memset(uuid, device, 16); return 0; }

EXPORT int cuDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, (size_t)length, "0000:%02x:00.0", device);
    return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    CALL(cuDevicePrimaryCtxRetain);
    *context = &rtbuild_test_double;
    return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
EXPORT int cuCtxSetCurrent(void *context) { (void)context; CALL(cuCtxSetCurrent); return 0; }
EXPORT int cuCtxSynchronize(void) { CALL(cuCtxSynchronize); return 0; }

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total) {
    CALL(cuMemGetInfo_v2);
    *available = free_memory();
    *total = total_memory();
    return 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t size) {
    void *memory;
    CALL(cuMemAlloc_v2);
    if (size > free_memory()) return 2;
    memory = malloc(size);
    *address = (uint64_t)(uintptr_t)memory;
    return memory ? 0 : 2;
}

EXPORT int cuMemFree_v2(uint64_t address) { CALL(cuMemFree_v2); free((void *)(uintptr_t)address); return 0; }

EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    CALL(cuMemcpyHtoD_v2);
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}

EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    int code = double_fault("RTBUILD_DOUBLE_CUDA", "cuMemcpyDtoH_v2");
    if (code > 0) return code;
    memcpy(to, (const void *)(uintptr_t)from, size);
    if (code == WRONG && size) *(unsigned char *)to ^= 0x40;
    return 0;
}

EXPORT int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t size) {
    memset((void *)(uintptr_t)to, value, size);
    return 0;
}

EXPORT int cuGetErrorName(int code, const char **name) { (void)code; *name = "CUDA_TEST_DOUBLE"; return 0; }
EXPORT int cuGetErrorString(int code, const char **text) { (void)code; *text = "test double"; return 0; }
