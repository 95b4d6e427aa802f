/* A fake cuDNN that convolves on the CPU. Built once per file of a real one:
 *   PART_BASE (handle and versions: graph in 9, ops_infer in 8), PART_DESC (descriptors), PART_CONV (forward and
 *   backward-data), PART_TRAIN (backward-filter), CHECK_NAME (this part's version check); cuDNN 7 has all but the
 *   last in one file. VERSION is the number that cudnnGetVersion gives, BASE the file that holds it. */
#define _GNU_SOURCE
#include "double.h"

#include <dlfcn.h>

enum { FLOAT = 0, HALF = 2 };
#if VERSION >= 90000
enum { ALLOC_FAILED = 4004, MISMATCH = 1002, NOT_SUPPORTED = 3000, NOT_INITIALIZED = 1001 };
#else
enum { ALLOC_FAILED = 2, MISMATCH = 14, NOT_SUPPORTED = 9, NOT_INITIALIZED = 1 };
#endif

typedef struct { int type, dims[4]; } Tensor; /* also the filter: NCHW or KCRS */
typedef struct { int pad[2], stride[2], dilation[2]; } Convolution;
typedef struct { int algo, status; float time; size_t memory; int determinism, math_type, reserved[3]; } Perf;

#define CALL(function) \
    do { int code = double_fault("RTBUILD_DOUBLE_CUDNN", #function); if (code > 0) return code; } while (0)

#ifdef PART_BASE
EXPORT size_t cudnnGetVersion(void) { double_fault("RTBUILD_DOUBLE_CUDNN", "cudnnGetVersion"); return VERSION; }
EXPORT size_t cudnnGetCudartVersion(void) { return CUDART; }
#if VERSION >= 8000
EXPORT size_t cudnnGetMaxDeviceVersion(void) { return 1210; }
#endif

EXPORT int cudnnCreate(void **handle) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    CALL(cudnnCreate);
    if (!init || init(0)) return NOT_INITIALIZED;
    *handle = &rtbuild_test_double;
    return 0;
}

EXPORT int cudnnDestroy(void *handle) { (void)handle; return 0; }
EXPORT int cudnnSetStream(void *handle, void *stream) { (void)handle; (void)stream; return 0; }
EXPORT int cudnnSetCallback(unsigned mask, void *data, void *function) {
    (void)mask; (void)data; (void)function;
    return 0;
}
EXPORT const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_TEST_DOUBLE" : "CUDNN_STATUS_SUCCESS"; }
EXPORT int cudnnGetProperty(int type, int *value) {
    int scale = VERSION >= 90000 ? 10000 : 1000;
    *value = type == 0 ? VERSION / scale : type == 1 ? VERSION % scale / 100 : VERSION % 100;
    return 0;
}
EXPORT int cudnnQueryRuntimeError(void *handle, int *status, int mode, void *tag) {
    (void)handle; (void)mode; (void)tag;
    *status = 0;
    return 0;
}
#if VERSION >= 90000
EXPORT void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "said by a test double"); }
#endif
#endif

#ifdef CHECK_NAME
EXPORT int CHECK_NAME(void) {
    void *base = dlopen(BASE, RTLD_LAZY);
    size_t (*version)(void) = base ? (size_t (*)(void))dlsym(base, "cudnnGetVersion") : NULL;
    return version && version() == VERSION ? 0 : MISMATCH;
}
#endif

#ifdef PART_DESC
static int make(void **descriptor, size_t size) { *descriptor = calloc(1, size); return *descriptor ? 0 : ALLOC_FAILED; }
EXPORT int cudnnCreateTensorDescriptor(void **d) { CALL(cudnnCreateTensorDescriptor); return make(d, sizeof(Tensor)); }
EXPORT int cudnnCreateFilterDescriptor(void **d) { return make(d, sizeof(Tensor)); }
EXPORT int cudnnDestroyTensorDescriptor(void *d) { free(d); return 0; }
EXPORT int cudnnDestroyFilterDescriptor(void *d) { free(d); return 0; }

EXPORT int cudnnSetTensor4dDescriptor(Tensor *d, int format, int type, int n, int c, int h, int w) {
    (void)format;
    *d = (Tensor){type, {n, c, h, w}};
    return 0;
}
EXPORT int cudnnSetFilter4dDescriptor(Tensor *d, int type, int format, int k, int c, int r, int s) {
    (void)format;
    *d = (Tensor){type, {k, c, r, s}};
    return 0;
}
#endif

#ifdef PART_CONV
EXPORT int cudnnCreateConvolutionDescriptor(void **d) {
    *d = calloc(1, sizeof(Convolution));
    return *d ? 0 : ALLOC_FAILED;
}
EXPORT int cudnnDestroyConvolutionDescriptor(void *d) { free(d); return 0; }
EXPORT int cudnnSetConvolutionMathType(Convolution *d, int type) { (void)d; (void)type; return 0; }
EXPORT int cudnnSetConvolutionGroupCount(Convolution *d, int count) { (void)d; return count == 1 ? 0 : NOT_SUPPORTED; }
EXPORT int cudnnSetConvolution2dDescriptor(
    Convolution *d, int pad_h, int pad_w, int u, int v, int dil_h, int dil_w, int mode, int type) {
    (void)mode; (void)type;
    *d = (Convolution){{pad_h, pad_w}, {u, v}, {dil_h, dil_w}};
    return 0;
}
static int extent(const Convolution *d, int axis, int input, int kernel) {
    return (input + 2 * d->pad[axis] - ((kernel - 1) * d->dilation[axis] + 1)) / d->stride[axis] + 1;
}
EXPORT int cudnnGetConvolution2dForwardOutputDim(
    const Convolution *d, const Tensor *x, const Tensor *w, int *n, int *k, int *p, int *q) {
    CALL(cudnnGetConvolution2dForwardOutputDim);
    *n = x->dims[0];
    *k = w->dims[0];
    *p = extent(d, 0, x->dims[2], w->dims[2]);
    *q = extent(d, 1, x->dims[3], w->dims[3]);
    return 0;
}
#endif

#if defined(PART_CONV) || defined(PART_TRAIN)
static float load(const void *data, int type, size_t index) {
    uint16_t half;
    int exponent;
    float value;
    if (type == FLOAT) return ((const float *)data)[index];
    half = ((const uint16_t *)data)[index];
    exponent = half >> 10 & 31;
    value = (float)(half & 1023) / 1024.0f + (exponent ? 1.0f : 0.0f);
    for (exponent = exponent ? exponent - 15 : -14; exponent > 0; exponent--) value *= 2.0f;
    for (; exponent < 0; exponent++) value /= 2.0f;
    return half >> 15 ? -value : value;
}

/* Whole numbers up to 2048 and sums of them: no rounding, no subnormals. */
static void store(void *data, int type, size_t index, float value) {
    uint16_t sign = value < 0 ? 0x8000 : 0;
    int exponent = 15;
    float size = value < 0 ? -value : value;
    if (type == FLOAT) { ((float *)data)[index] = value; return; }
    if (size == 0) { ((uint16_t *)data)[index] = 0; return; }
    while (size >= 2.0f) { size /= 2.0f; exponent++; }
    while (size < 1.0f) { size *= 2.0f; exponent--; }
    ((uint16_t *)data)[index] = (uint16_t)(sign | exponent << 10 | (int)((size - 1.0f) * 1024.0f));
}

typedef void (*Tap)(size_t x, size_t w, size_t y, void *state);

static void each_tap(const Tensor *x, const Tensor *w, const Tensor *y, const Convolution *d, Tap tap, void *state) {
    for (int n = 0; n < x->dims[0]; n++)
    for (int k = 0; k < w->dims[0]; k++)
    for (int p = 0; p < y->dims[2]; p++)
    for (int q = 0; q < y->dims[3]; q++)
    for (int c = 0; c < w->dims[1]; c++)
    for (int r = 0; r < w->dims[2]; r++)
    for (int s = 0; s < w->dims[3]; s++) {
        int row = p * d->stride[0] + r * d->dilation[0] - d->pad[0];
        int column = q * d->stride[1] + s * d->dilation[1] - d->pad[1];
        if (row < 0 || column < 0 || row >= x->dims[2] || column >= x->dims[3]) continue;
        tap(((size_t)(n * x->dims[1] + c) * (size_t)x->dims[2] + (size_t)row) * (size_t)x->dims[3] + (size_t)column,
            ((size_t)(k * w->dims[1] + c) * (size_t)w->dims[2] + (size_t)r) * (size_t)w->dims[3] + (size_t)s,
            ((size_t)(n * y->dims[1] + k) * (size_t)y->dims[2] + (size_t)p) * (size_t)y->dims[3] + (size_t)q, state);
    }
}

typedef struct { const void *a, *b; void *out; int type; float *sums; } Job;

static size_t count(const Tensor *t) { return (size_t)t->dims[0] * (size_t)t->dims[1] * (size_t)t->dims[2] * (size_t)t->dims[3]; }

static int run(const Tensor *x, const Tensor *w, const Tensor *y, const Convolution *d, const Tensor *out, Job *job,
               Tap tap, int wrong) {
    size_t size = count(out);
    job->sums = calloc(size, sizeof(float));
    if (!job->sums) return ALLOC_FAILED;
    job->type = out->type;
    each_tap(x, w, y, d, tap, job);
    for (size_t index = 0; index < size; index++) store(job->out, job->type, index, job->sums[index]);
    if (wrong == WRONG) store(job->out, job->type, size / 2, job->sums[size / 2] + 1.0f);
    free(job->sums);
    return 0;
}
#define RUN(function, x, w, y, out, tap) \
    char one_algorithm[64]; \
    int code = double_fault("RTBUILD_DOUBLE_CUDNN", #function); \
    snprintf(one_algorithm, sizeof one_algorithm, #function "#%d", algo); \
    if (!code) code = double_fault("RTBUILD_DOUBLE_CUDNN", one_algorithm); \
    if (code > 0) return code; \
    return run(x, w, y, d, out, &job, tap, code)

/* Offers one algorithm, number 1, that wants a workspace; number 0 always works without. */
#define HEURISTIC(direction) \
    EXPORT int cudnnGetConvolution##direction##Algorithm_v7( \
        void *handle, void *a, void *b, void *c, void *e, int wanted, int *found, Perf *rows) { \
        (void)handle; (void)a; (void)b; (void)c; (void)e; \
        CALL(cudnnGetConvolution##direction##Algorithm_v7); \
        *found = wanted > 0; \
        if (wanted > 0) rows[0] = (Perf){1, 0, 0.1f, 4096, 1, 0, {0, 0, 0}}; \
        return 0; \
    } \
    EXPORT int cudnnGetConvolution##direction##WorkspaceSize( \
        void *handle, void *a, void *b, void *c, void *e, int algo, size_t *size) { \
        (void)handle; (void)a; (void)b; (void)c; (void)e; \
        *size = algo ? 4096 : 0; \
        return 0; \
    }
#endif

#ifdef PART_CONV
HEURISTIC(Forward)
HEURISTIC(BackwardData)

static void forward(size_t x, size_t w, size_t y, void *state) {
    Job *job = state;
    job->sums[y] += load(job->a, job->type, x) * load(job->b, job->type, w);
}
static void backward_data(size_t x, size_t w, size_t y, void *state) {
    Job *job = state;
    job->sums[x] += load(job->a, job->type, w) * load(job->b, job->type, y);
}

EXPORT int cudnnConvolutionForward(
    void *handle, const void *alpha, const Tensor *xd, const void *x, const Tensor *wd, const void *w,
    const Convolution *d, int algo, void *space, size_t size, const void *beta, const Tensor *yd, void *y) {
    Job job = {x, w, y, 0, NULL};
    (void)handle; (void)alpha; (void)space; (void)size; (void)beta;
    RUN(cudnnConvolutionForward, xd, wd, yd, yd, forward);
}

EXPORT int cudnnConvolutionBackwardData(
    void *handle, const void *alpha, const Tensor *wd, const void *w, const Tensor *yd, const void *y,
    const Convolution *d, int algo, void *space, size_t size, const void *beta, const Tensor *xd, void *x) {
    Job job = {w, y, x, 0, NULL};
    (void)handle; (void)alpha; (void)space; (void)size; (void)beta;
    RUN(cudnnConvolutionBackwardData, xd, wd, yd, xd, backward_data);
}
#endif

#ifdef PART_TRAIN
HEURISTIC(BackwardFilter)

static void backward_filter(size_t x, size_t w, size_t y, void *state) {
    Job *job = state;
    job->sums[w] += load(job->a, job->type, x) * load(job->b, job->type, y);
}

EXPORT int cudnnConvolutionBackwardFilter(
    void *handle, const void *alpha, const Tensor *xd, const void *x, const Tensor *yd, const void *y,
    const Convolution *d, int algo, void *space, size_t size, const void *beta, const Tensor *wd, void *w) {
    Job job = {x, y, w, 0, NULL};
    (void)handle; (void)alpha; (void)space; (void)size; (void)beta;
    RUN(cudnnConvolutionBackwardFilter, xd, wd, yd, wd, backward_filter);
}
#endif
