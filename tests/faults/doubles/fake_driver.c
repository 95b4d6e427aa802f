/* A fake libcuda.so.1, compiled from NVIDIA's cuda.h, so that every prototype here is the real one. What it says
 * without a device, before cuInit and of unknown codes is what the real driver says; a test compares.
 *
 * A device address is never a host pointer: it lies in memory that nobody may touch, between two more such pages,
 * and the bytes are somewhere else. RTBUILD_DOUBLE_CUDA makes any call return any code. Set up by
 * RTBUILD_DOUBLE_DRIVER (12080), _DEVICES, _CAPABILITY (90), _MODE, _FREE; bytes from card _BAD_CARD come back changed. */
#define _GNU_SOURCE
#include "double.h"

#include <cuda.h>
#include <sys/mman.h>

#define GUARD ((size_t)1 << 16)
#define MOST 4096

typedef struct { CUdeviceptr address; size_t size, reserved; unsigned char *bytes; int card; } Block;

static int started;
static char contexts[16];
static CUcontext current;
static Block blocks[MOST];

static int device_count(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (!*visible || !strcmp(visible, "-1"))) return 0;
    return (int)double_number("RTBUILD_DOUBLE_DEVICES", 1);
}

static size_t total_memory(void) { return (size_t)8 << 30; }
static size_t free_memory(void) { return (size_t)double_number("RTBUILD_DOUBLE_FREE", 7L << 30); }

#define CALL(function) \
    do { int code = double_fault("RTBUILD_DOUBLE_CUDA", #function); if (code > 0) return code; } while (0)
#define STARTED(function) \
    do { CALL(function); if (!started) return CUDA_ERROR_NOT_INITIALIZED; } while (0)
#define BAD(function, condition, ...) REFUSE(condition, CUDA_ERROR_INVALID_VALUE, #function, __VA_ARGS__)
#define DEVICE(function, device) \
    REFUSE((device) < 0 || (device) >= device_count(), CUDA_ERROR_INVALID_DEVICE, #function, "no device %d", (int)(device))
#define CONTEXT(function) \
    do { STARTED(function); REFUSE(!current, CUDA_ERROR_INVALID_CONTEXT, #function, "no current context"); } while (0)

static Block *block_of(CUdeviceptr address, size_t size) {
    for (Block *block = blocks; block < blocks + MOST; block++)
        if (block->bytes && address >= block->address && address - block->address <= block->size &&
            size <= block->size - (address - block->address))
            return block;
    return NULL;
}

/* For the fake cuDNN: the bytes behind a device address, or NULL where they were not allocated, all of them. */
EXPORT void *rtbuild_device_bytes(uint64_t address, size_t size) {
    Block *block = block_of(address, size);
    return block ? block->bytes + (address - block->address) : NULL;
}
EXPORT int rtbuild_context_is_current(void) { return current != NULL; }

EXPORT CUresult cuInit(unsigned flags) {
    CALL(cuInit);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!device_count()) return CUDA_ERROR_NO_DEVICE;
    started = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    CALL(cuDriverGetVersion);
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = (int)double_number("RTBUILD_DOUBLE_DRIVER", 12080);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    STARTED(cuDeviceGetCount);
    BAD(cuDeviceGetCount, !count, "no place for the number");
    *count = device_count();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    STARTED(cuDeviceGet);
    BAD(cuDeviceGet, !device, "no place for the device");
    DEVICE(cuDeviceGet, ordinal);
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    STARTED(cuDeviceGetName);
    BAD(cuDeviceGetName, !name || length <= 0, "no room for the name");
    DEVICE(cuDeviceGetName, device);
    snprintf(name, (size_t)length, "rtbuild test double");
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    long capability = double_number("RTBUILD_DOUBLE_CAPABILITY", 90);
    STARTED(cuDeviceGetAttribute);
    BAD(cuDeviceGetAttribute, !value, "no place for the value");
    DEVICE(cuDeviceGetAttribute, device);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = (int)(capability / 10); break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = (int)(capability % 10); break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *value = (int)double_number("RTBUILD_DOUBLE_MODE", CU_COMPUTEMODE_DEFAULT); break;
    default:
        BAD(cuDeviceGetAttribute, attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX, "no attribute %d", (int)attribute);
        *value = 1;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    STARTED(cuDeviceTotalMem_v2);
    BAD(cuDeviceTotalMem_v2, !bytes, "no place for the size");
    DEVICE(cuDeviceTotalMem_v2, device);
    *bytes = total_memory();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    STARTED(cuDevicePrimaryCtxRetain);
    BAD(cuDevicePrimaryCtxRetain, !context, "no place for the context");
    DEVICE(cuDevicePrimaryCtxRetain, device);
    *context = (CUcontext)&contexts[device];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    STARTED(cuCtxSetCurrent);
    REFUSE(context && ((char *)context < contexts || (char *)context >= contexts + device_count()), CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent", "not a context");
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) { CONTEXT(cuCtxSynchronize); return CUDA_SUCCESS; }

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    CONTEXT(cuMemGetInfo_v2);
    BAD(cuMemGetInfo_v2, !available || !total, "no place for the sizes");
    *available = free_memory();
    *total = total_memory();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    Block *block = blocks;
    void *fence;
    size_t used = 0;
    CONTEXT(cuMemAlloc_v2);
    BAD(cuMemAlloc_v2, !address || !size, "%zu bytes, to be told at %p", size, (void *)address);
    for (Block *taken = blocks; taken < blocks + MOST; taken++) used += taken->bytes ? taken->size : 0;
    if (size > free_memory() - used) return CUDA_ERROR_OUT_OF_MEMORY;
    while (block < blocks + MOST && block->bytes) block++;
    if (block == blocks + MOST) return CUDA_ERROR_OUT_OF_MEMORY;
    block->reserved = (size + GUARD - 1) / GUARD * GUARD + 2 * GUARD;
    fence = mmap(NULL, block->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    block->bytes = malloc(size);
    if (fence == MAP_FAILED || !block->bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(block->bytes, 0xa5, size);
    block->size = size;
    block->card = (int)((char *)current - contexts);
    block->address = *address = (CUdeviceptr)(uintptr_t)fence + GUARD;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    Block *block;
    CONTEXT(cuMemFree_v2);
    block = block_of(address, 0);
    BAD(cuMemFree_v2, !block || block->address != address, "0x%llx was not allocated", (unsigned long long)address);
    munmap((void *)(uintptr_t)(address - GUARD), block->reserved);
    free(block->bytes);
    block->bytes = NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    Block *block;
    STARTED(cuPointerGetAttribute);
    BAD(cuPointerGetAttribute, !value, "no place for the value");
    block = block_of(address, 0);
    if (!block) return CUDA_ERROR_INVALID_VALUE; /* memory of the host, which CUDA has never seen */
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) *(unsigned *)value = CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)value = block->card;
    else BAD(cuPointerGetAttribute, 1, "attribute %d", (int)attribute);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    void *bytes;
    CONTEXT(cuMemcpyHtoD_v2);
    bytes = rtbuild_device_bytes(to, size);
    BAD(cuMemcpyHtoD_v2, !bytes || !from, "%zu bytes at 0x%llx were not allocated", size, (unsigned long long)to);
    memcpy(bytes, from, size);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    void *bytes;
    int code = double_fault("RTBUILD_DOUBLE_CUDA", "cuMemcpyDtoH_v2");
    if (code > 0) return code;
    if (!started) return CUDA_ERROR_NOT_INITIALIZED;
    REFUSE(!current, CUDA_ERROR_INVALID_CONTEXT, "cuMemcpyDtoH_v2", "no current context");
    bytes = rtbuild_device_bytes(from, size);
    BAD(cuMemcpyDtoH_v2, !bytes || !to, "%zu bytes at 0x%llx were not allocated", size, (unsigned long long)from);
    memcpy(to, bytes, size);
    if (double_number("RTBUILD_DOUBLE_BAD_CARD", -1) == (char *)current - contexts) code = WRONG;
    if (code == WRONG && size) *(unsigned char *)to ^= 0x40;
    return CUDA_SUCCESS;
}

/* ERROR_NAMES is written out of cuda.h: X(CUDA_ERROR_NO_DEVICE) for each code. */
EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = NULL;
    switch ((int)code) {
#define X(known) case known: *name = #known; return CUDA_SUCCESS;
#include "error_names.inc"
#undef X
    }
    return CUDA_ERROR_INVALID_VALUE;
}
