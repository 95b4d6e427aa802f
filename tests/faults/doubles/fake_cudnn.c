/* A fake cuDNN that convolves on the CPU, compiled from NVIDIA's headers of its version (cuDNN 7 from those of 8.5,
 * the oldest that an index has): every prototype and every number here is the real one. Built once per file of a
 * real one: PART_BASE (handle and versions: graph in 9, ops_infer in 8), PART_DESC (descriptors), PART_CONV (forward
 * and backward-data), PART_TRAIN (backward-filter), CHECK_NAME (this part's version check); cuDNN 7 has all but the
 * last in one file. VERSION is the number that cudnnGetVersion gives, BASE the file that holds it.
 *
 * Whatever it is given is checked: kinds of descriptors, shapes, types, scalars, sizes and places of device memory.
 * RTBUILD_DOUBLE_ALGORITHM is what the heuristics choose (1); it is off by RTBUILD_DOUBLE_ROUNDING in one element. */
#define _GNU_SOURCE
#include "double.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <math.h>

#if VERSION >= 90000
#define MISMATCH CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH
#define NO_MEMORY CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
#else
#define MISMATCH CUDNN_STATUS_VERSION_MISMATCH
#define NO_MEMORY CUDNN_STATUS_ALLOC_FAILED
#endif

enum { HANDLE = 0x68616e64, TENSOR = 0x74656e73, FILTER = 0x66696c74, CONVOLUTION = 0x636f6e76 };

struct cudnnContext { int kind; };
struct cudnnTensorStruct { int kind, set; cudnnDataType_t type; int dims[4]; };
struct cudnnFilterStruct { int kind, set; cudnnDataType_t type; int dims[4]; };
struct cudnnConvolutionStruct { int kind, set, pad[2], stride[2], dilation[2]; };

#define CALL(function) \
    do { int code = double_fault("RTBUILD_DOUBLE_CUDNN", #function); if (code > 0) return code; } while (0)
#define BAD(function, condition, ...) REFUSE(condition, CUDNN_STATUS_BAD_PARAM, #function, __VA_ARGS__)
#define KIND(function, object, wanted) \
    BAD(function, !(object) || (object)->kind != (wanted), "%s is no %s", #object, #wanted)
#define READY(function, object, wanted) \
    do { KIND(function, object, wanted); BAD(function, !(object)->set, "%s was not set", #object); } while (0)

/* Every part of a real cuDNN 9 compares VERSION somewhere in its code. */
EXPORT int rtbuild_double_version(void) { return VERSION; }

#ifdef PART_BASE
EXPORT size_t cudnnGetVersion(void) { double_fault("RTBUILD_DOUBLE_CUDNN", "cudnnGetVersion"); return VERSION; }
EXPORT size_t cudnnGetCudartVersion(void) { return CUDART; }
#if VERSION >= 8600
EXPORT size_t cudnnGetMaxDeviceVersion(void) { return 1210; }
#endif

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*start)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    CALL(cudnnCreate);
    BAD(cudnnCreate, !handle, "no place for the handle");
    if (!start || start(0)) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = malloc(sizeof **handle);
    if (!*handle) return NO_MEMORY;
    (*handle)->kind = HANDLE;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch ((int)status) {
#define X(known) case known: return #known;
#include "status_names.inc"
#undef X
    }
    return "CUDNN_UNKNOWN_STATUS";
}
#if VERSION >= 90000
EXPORT void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "said by a test double"); }
#endif
#endif

#ifdef CHECK_NAME
EXPORT cudnnStatus_t CHECK_NAME(void) {
    void *base = dlopen(BASE, RTLD_LAZY);
    size_t (*version)(void) = base ? (size_t (*)(void))dlsym(base, "cudnnGetVersion") : NULL;
    return version && version() == VERSION ? CUDNN_STATUS_SUCCESS : MISMATCH;
}
#endif

#ifdef PART_DESC
#define MAKE(function, descriptor, wanted) \
    CALL(function); \
    BAD(function, !(descriptor), "no place for the descriptor"); \
    *(descriptor) = calloc(1, sizeof **(descriptor)); \
    if (!*(descriptor)) return NO_MEMORY; \
    (*(descriptor))->kind = wanted; \
    return CUDNN_STATUS_SUCCESS

EXPORT cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *d) { MAKE(cudnnCreateTensorDescriptor, d, TENSOR); }
EXPORT cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *d) { MAKE(cudnnCreateFilterDescriptor, d, FILTER); }

/* Only what the fake can compute; a real cuDNN takes other layouts and types, too. */
#define SET(function, d, wanted, type_, format, n, c, h, w) \
    CALL(function); \
    KIND(function, d, wanted); \
    BAD(function, (type_) != CUDNN_DATA_FLOAT && (type_) != CUDNN_DATA_HALF, "type %d", (int)(type_)); \
    BAD(function, (format) != CUDNN_TENSOR_NCHW, "layout %d", (int)(format)); \
    BAD(function, (n) <= 0 || (c) <= 0 || (h) <= 0 || (w) <= 0, "shape %d x %d x %d x %d", n, c, h, w); \
    (d)->set = 1; \
    (d)->type = type_; \
    memcpy((d)->dims, (int[]){n, c, h, w}, sizeof (d)->dims); \
    return CUDNN_STATUS_SUCCESS

EXPORT cudnnStatus_t cudnnSetTensor4dDescriptor(
    cudnnTensorDescriptor_t d, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
    SET(cudnnSetTensor4dDescriptor, d, TENSOR, type, format, n, c, h, w);
}
EXPORT cudnnStatus_t cudnnSetFilter4dDescriptor(
    cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c, int h, int w) {
    SET(cudnnSetFilter4dDescriptor, d, FILTER, type, format, k, c, h, w);
}
#endif

#ifdef PART_CONV
EXPORT cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *d) {
    CALL(cudnnCreateConvolutionDescriptor);
    BAD(cudnnCreateConvolutionDescriptor, !d, "no place for the descriptor");
    *d = calloc(1, sizeof **d);
    if (!*d) return NO_MEMORY;
    (*d)->kind = CONVOLUTION;
    return CUDNN_STATUS_SUCCESS;
}
EXPORT cudnnStatus_t cudnnSetConvolution2dDescriptor(
    cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u, int v, int dil_h, int dil_w,
    cudnnConvolutionMode_t mode, cudnnDataType_t type) {
    CALL(cudnnSetConvolution2dDescriptor);
    KIND(cudnnSetConvolution2dDescriptor, d, CONVOLUTION);
    BAD(cudnnSetConvolution2dDescriptor, pad_h < 0 || pad_w < 0, "padding %d, %d", pad_h, pad_w);
    BAD(cudnnSetConvolution2dDescriptor, u < 1 || v < 1 || dil_h < 1 || dil_w < 1, "stride or dilation below 1");
    BAD(cudnnSetConvolution2dDescriptor, mode != CUDNN_CROSS_CORRELATION, "mode %d", (int)mode);
    BAD(cudnnSetConvolution2dDescriptor, type != CUDNN_DATA_FLOAT, "computing in type %d", (int)type);
    *d = (struct cudnnConvolutionStruct){CONVOLUTION, 1, {pad_h, pad_w}, {u, v}, {dil_h, dil_w}};
    return CUDNN_STATUS_SUCCESS;
}
#endif

#if defined(PART_CONV) || defined(PART_TRAIN)
static int extent(cudnnConvolutionDescriptor_t d, int axis, int input, int kernel) {
    return (input + 2 * d->pad[axis] - ((kernel - 1) * d->dilation[axis] + 1)) / d->stride[axis] + 1;
}
#endif

#ifdef PART_CONV
EXPORT cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(
    cudnnConvolutionDescriptor_t d, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, int *n, int *k, int *p, int *q) {
    CALL(cudnnGetConvolution2dForwardOutputDim);
    READY(cudnnGetConvolution2dForwardOutputDim, d, CONVOLUTION);
    READY(cudnnGetConvolution2dForwardOutputDim, x, TENSOR);
    READY(cudnnGetConvolution2dForwardOutputDim, w, FILTER);
    BAD(cudnnGetConvolution2dForwardOutputDim, x->dims[1] != w->dims[1], "%d channels, filters of %d", x->dims[1], w->dims[1]);
    BAD(cudnnGetConvolution2dForwardOutputDim, !n || !k || !p || !q, "no place for the shape");
    *n = x->dims[0];
    *k = w->dims[0];
    *p = extent(d, 0, x->dims[2], w->dims[2]);
    *q = extent(d, 1, x->dims[3], w->dims[3]);
    return CUDNN_STATUS_SUCCESS;
}
#endif

#if defined(PART_CONV) || defined(PART_TRAIN)
static float load(const void *data, cudnnDataType_t type, size_t index) {
    uint16_t half;
    int exponent;
    float value;
    if (type == CUDNN_DATA_FLOAT) return ((const float *)data)[index];
    half = ((const uint16_t *)data)[index];
    exponent = half >> 10 & 31;
    if (exponent == 31) return NAN;
    value = ldexpf((float)(half & 1023) / 1024.0f + (exponent ? 1.0f : 0.0f), exponent ? exponent - 15 : -14);
    return half >> 15 ? -value : value;
}

/* Numbers below 65536, cut off after ten bits of fraction; what is below 2^-14 becomes zero. */
static void store(void *data, cudnnDataType_t type, size_t index, float value) {
    int exponent;
    float fraction = frexpf(fabsf(value), &exponent);
    uint16_t half = value < 0 ? 0x8000 : 0;
    if (type == CUDNN_DATA_FLOAT) { ((float *)data)[index] = value; return; }
    if (isnan(value)) half = 0x7e00;
    else if (value != 0 && exponent > -14) half |= (uint16_t)((exponent + 14) << 10 | (int)((fraction * 2.0f - 1.0f) * 1024.0f));
    ((uint16_t *)data)[index] = half;
}

static size_t count(const int *dims) { return (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)dims[3]; }
static size_t bytes_of(cudnnDataType_t type, const int *dims) { return count(dims) * (type == CUDNN_DATA_FLOAT ? 4 : 2); }
static size_t workspace_of(int algorithm) { return algorithm ? 4096 : 0; }

/* The bytes behind a device address, asked of the fake driver; NULL for an address of the host. */
static void *device(const void *address, size_t size) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *(*bytes)(uint64_t, size_t) = driver ? (void *(*)(uint64_t, size_t))dlsym(driver, "rtbuild_device_bytes") : NULL;
    int (*current)(void) = driver ? (int (*)(void))dlsym(driver, "rtbuild_context_is_current") : NULL;
    return bytes && current && current() ? bytes((uint64_t)(uintptr_t)address, size) : NULL;
}

typedef struct { cudnnTensorDescriptor_t x, y; cudnnFilterDescriptor_t w; cudnnConvolutionDescriptor_t d; } Problem;

#define PROBLEM(function, p) \
    KIND(function, handle, HANDLE); \
    READY(function, (p).x, TENSOR); \
    READY(function, (p).y, TENSOR); \
    READY(function, (p).w, FILTER); \
    READY(function, (p).d, CONVOLUTION); \
    BAD(function, (p).x->type != (p).w->type || (p).x->type != (p).y->type, "three types"); \
    BAD(function, (p).x->dims[1] != (p).w->dims[1] || (p).y->dims[1] != (p).w->dims[0] || (p).x->dims[0] != (p).y->dims[0] || \
        (p).y->dims[2] != extent((p).d, 0, (p).x->dims[2], (p).w->dims[2]) || \
        (p).y->dims[3] != extent((p).d, 1, (p).x->dims[3], (p).w->dims[3]), "shapes that do not go together")

typedef void (*Tap)(size_t x, size_t w, size_t y, void *state);

static void each_tap(const Problem *problem, Tap tap, void *state) {
    const int *x = problem->x->dims, *w = problem->w->dims, *y = problem->y->dims;
    const struct cudnnConvolutionStruct *d = problem->d;
    for (int n = 0; n < x[0]; n++)
    for (int k = 0; k < w[0]; k++)
    for (int p = 0; p < y[2]; p++)
    for (int q = 0; q < y[3]; q++)
    for (int c = 0; c < w[1]; c++)
    for (int r = 0; r < w[2]; r++)
    for (int s = 0; s < w[3]; s++) {
        int row = p * d->stride[0] + r * d->dilation[0] - d->pad[0];
        int column = q * d->stride[1] + s * d->dilation[1] - d->pad[1];
        if (row < 0 || column < 0 || row >= x[2] || column >= x[3]) continue;
        tap(((size_t)(n * x[1] + c) * (size_t)x[2] + (size_t)row) * (size_t)x[3] + (size_t)column,
            ((size_t)(k * w[1] + c) * (size_t)w[2] + (size_t)r) * (size_t)w[3] + (size_t)s,
            ((size_t)(n * y[1] + k) * (size_t)y[2] + (size_t)p) * (size_t)y[3] + (size_t)q, state);
    }
}

typedef struct { const void *a, *b; cudnnDataType_t type; float *sums; } Job;

/* The sums that are given out in place of the right ones, by what was given out for this function and type before. */
static void perturb(float *sums, size_t size, int fault, cudnnDataType_t type) {
    static float *kept[2];
    static int calls[2];
    int of = type == CUDNN_DATA_FLOAT, first;
    if (!fault) return;
    first = !calls[of]++;
    if (fault == WRONG || (fault == FIRST_WRONG && calls[of] % 2)) sums[size / 2] += 1.0f;
    if (fault == NAN_CORNER) sums[size - 1] = NAN;
    if (fault != STALE && fault != STORED) return;
    if (first) kept[of] = calloc(size, sizeof(float));
    if (!kept[of]) abort();
    for (size_t index = 0; index < size; index++) {
        float right = sums[index];
        if (!first) sums[index] = kept[of][index];
        if (first || fault == STALE) kept[of][index] = right;
    }
}

static int run(const Problem *problem, const void *a, const void *b, void *out, size_t size, float alpha, float beta,
               Tap tap, int wrong, int algorithm) {
    Job job = {a, b, problem->x->type, calloc(size, sizeof(float))};
    const char *rounding = getenv("RTBUILD_DOUBLE_ROUNDING");
    if (!job.sums) return NO_MEMORY;
    each_tap(problem, tap, &job);
    if (wrong == UNWRITTEN) { free(job.sums); return CUDNN_STATUS_SUCCESS; }
    perturb(job.sums, size, wrong, problem->x->type);
    if (rounding && algorithm == (int)double_number("RTBUILD_DOUBLE_ALGORITHM", 1)) job.sums[size / 2] += strtof(rounding, NULL);
    for (size_t index = 0; index < size; index++)
        store(out, job.type, index, alpha * job.sums[index] + (beta != 0 ? beta * load(out, job.type, index) : 0));
    free(job.sums);
    return CUDNN_STATUS_SUCCESS;
}

#define RUN(function, a_dims, a, b_dims, b, out_dims, out, most, tap) \
    char one_algorithm[64]; \
    int code = double_fault("RTBUILD_DOUBLE_CUDNN", #function); \
    cudnnDataType_t type; \
    void *from_a, *from_b, *to; \
    size_t needed = workspace_of((int)algo); \
    snprintf(one_algorithm, sizeof one_algorithm, #function "#%d", (int)algo); \
    if (!code) code = double_fault("RTBUILD_DOUBLE_CUDNN", one_algorithm); \
    if (code > 0) return code; \
    PROBLEM(function, p); \
    type = p.x->type; \
    from_a = device(a, bytes_of(type, a_dims)); \
    from_b = device(b, bytes_of(type, b_dims)); \
    to = device(out, bytes_of(type, out_dims)); \
    BAD(function, (int)algo < 0 || (int)algo >= (most), "no algorithm %d", (int)algo); \
    BAD(function, !from_a || !from_b || !to, "data that is not on the device, or not all of it"); \
    BAD(function, to == from_a || to == from_b, "the output lies in an operand"); \
    BAD(function, !alpha || !beta, "no scalars"); \
    BAD(function, device(alpha, 1) || device(beta, 1), "scalars on the device"); \
    BAD(function, size < needed, "%zu bytes of workspace, %zu are needed", size, needed); \
    BAD(function, needed && !device(space, needed), "a workspace that is not on the device"); \
    return run(&p, from_a, from_b, to, count(out_dims), *(const float *)alpha, *(const float *)beta, tap, code, (int)algo)

/* Offers one algorithm, 1 unless told otherwise, that wants a workspace; number 0 always works without. */
#define HEURISTIC(direction, A, B, C, algo_t, perf_t, most, ...) \
    EXPORT cudnnStatus_t cudnnGetConvolution##direction##Algorithm_v7( \
        cudnnHandle_t handle, const A a, const B b, const cudnnConvolutionDescriptor_t d, const C c, int wanted, \
        int *found, perf_t *rows) { \
        Problem p = {__VA_ARGS__, d}; \
        int algorithm = (int)double_number("RTBUILD_DOUBLE_ALGORITHM", 1); \
        CALL(cudnnGetConvolution##direction##Algorithm_v7); \
        PROBLEM(cudnnGetConvolution##direction##Algorithm_v7, p); \
        BAD(cudnnGetConvolution##direction##Algorithm_v7, wanted < 1 || !found || !rows, "no room for an answer"); \
        memset(rows, 0xa5, (size_t)wanted * sizeof *rows); \
        *found = 1; \
        rows[0] = (perf_t){ \
            .algo = (algo_t)algorithm, .status = CUDNN_STATUS_SUCCESS, .time = 0.1f, .memory = workspace_of(algorithm), \
            .determinism = CUDNN_DETERMINISTIC, .mathType = CUDNN_DEFAULT_MATH}; \
        return CUDNN_STATUS_SUCCESS; \
    } \
    EXPORT cudnnStatus_t cudnnGetConvolution##direction##WorkspaceSize( \
        cudnnHandle_t handle, const A a, const B b, const cudnnConvolutionDescriptor_t d, const C c, algo_t algo, \
        size_t *size) { \
        Problem p = {__VA_ARGS__, d}; \
        CALL(cudnnGetConvolution##direction##WorkspaceSize); \
        PROBLEM(cudnnGetConvolution##direction##WorkspaceSize, p); \
        BAD(cudnnGetConvolution##direction##WorkspaceSize, (int)algo < 0 || (int)algo >= (most), "no algorithm %d", (int)algo); \
        BAD(cudnnGetConvolution##direction##WorkspaceSize, !size, "no place for the size"); \
        *size = workspace_of((int)algo); \
        return CUDNN_STATUS_SUCCESS; \
    }
#endif

#ifdef PART_CONV
HEURISTIC(Forward, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t,
          cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, a, c, b)
HEURISTIC(BackwardData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,
          cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, c, b, a)

static void forward(size_t x, size_t w, size_t y, void *state) {
    Job *job = state;
    job->sums[y] += load(job->a, job->type, x) * load(job->b, job->type, w);
}
static void backward_data(size_t x, size_t w, size_t y, void *state) {
    Job *job = state;
    job->sums[x] += load(job->a, job->type, w) * load(job->b, job->type, y);
}

EXPORT cudnnStatus_t cudnnConvolutionForward(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t xd, const void *x,
    const cudnnFilterDescriptor_t wd, const void *w, const cudnnConvolutionDescriptor_t d, cudnnConvolutionFwdAlgo_t algo,
    void *space, size_t size, const void *beta, const cudnnTensorDescriptor_t yd, void *y) {
    Problem p = {xd, yd, wd, d};
    RUN(cudnnConvolutionForward, p.x->dims, x, p.w->dims, w, p.y->dims, y, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, forward);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t wd, const void *w,
    const cudnnTensorDescriptor_t yd, const void *y, const cudnnConvolutionDescriptor_t d,
    cudnnConvolutionBwdDataAlgo_t algo, void *space, size_t size, const void *beta, const cudnnTensorDescriptor_t xd,
    void *x) {
    Problem p = {xd, yd, wd, d};
    RUN(cudnnConvolutionBackwardData, p.w->dims, w, p.y->dims, y, p.x->dims, x, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
        backward_data);
}
#endif

#ifdef PART_TRAIN
HEURISTIC(BackwardFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
          cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, a,
          b, c)

static void backward_filter(size_t x, size_t w, size_t y, void *state) {
    Job *job = state;
    job->sums[w] += load(job->a, job->type, x) * load(job->b, job->type, y);
}

EXPORT cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t xd, const void *x,
    const cudnnTensorDescriptor_t yd, const void *y, const cudnnConvolutionDescriptor_t d,
    cudnnConvolutionBwdFilterAlgo_t algo, void *space, size_t size, const void *beta, const cudnnFilterDescriptor_t wd,
    void *w) {
    Problem p = {xd, yd, wd, d};
    RUN(cudnnConvolutionBackwardFilter, p.x->dims, x, p.y->dims, y, p.w->dims, w, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT,
        backward_filter);
}
#endif
