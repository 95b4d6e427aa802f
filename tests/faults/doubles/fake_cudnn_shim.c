/* The file that programs open of a fake cuDNN 8 or 9: like the real one it needs nothing at load time, opens the
 * sub-libraries by their bare names at the first call, and prints and aborts where that fails. */
#define _GNU_SOURCE
#include "double.h"

#include <dlfcn.h>

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)

static void *open_part(const char *part, const char *symbol) {
    char name[64];
    void *handle;
    snprintf(name, sizeof name, "lib%s.so." NUMBER(MAJOR), part);
    handle = dlopen(name, RTLD_LAZY);
    if (handle) return handle;
#if MAJOR >= 9
    fprintf(stderr, "Unable to load any of {lib%s.so." NUMBER(MAJOR) ".0.0, lib%s.so." NUMBER(MAJOR)
            ".0, lib%s.so." NUMBER(MAJOR) ", lib%s.so}\nInvalid handle. Cannot load symbol %s\n",
            part, part, part, part, symbol);
#else
    fprintf(stderr, "Could not load library %s. Error: %s\nPlease make sure %s is in your library path!\n", name,
            dlerror(), name);
    (void)symbol;
#endif
    abort();
}

static void *find(const char *part, const char *symbol) {
    void *function = dlsym(open_part(part, symbol), symbol);
    if (function) return function;
    fprintf(stderr, "Could not load symbol %s. Error: %s\n", symbol, dlerror());
    abort();
}

/* __builtin_apply hands on whatever arguments came, in registers and on the stack. */
#define FORWARD(part, symbol) \
    EXPORT void *symbol(void) { \
        void *function = find(part, #symbol); \
        __builtin_return(__builtin_apply((void (*)())function, __builtin_apply_args(), 128)); \
    }

#if MAJOR >= 9
#define BASE_PART "cudnn_graph"
#define DESC_PART "cudnn_ops"
#define CONV_PART "cudnn_cnn"
#define TRAIN_PART "cudnn_cnn"
FORWARD("cudnn_graph", cudnnGraphVersionCheck)
FORWARD("cudnn_ops", cudnnOpsVersionCheck)
FORWARD("cudnn_cnn", cudnnCnnVersionCheck)
FORWARD("cudnn_adv", cudnnAdvVersionCheck)
FORWARD(BASE_PART, cudnnGetLastErrorString)
#else
#define BASE_PART "cudnn_ops_infer"
#define DESC_PART "cudnn_ops_infer"
#define CONV_PART "cudnn_cnn_infer"
#define TRAIN_PART "cudnn_cnn_train"
FORWARD("cudnn_ops_infer", cudnnOpsInferVersionCheck)
FORWARD("cudnn_ops_train", cudnnOpsTrainVersionCheck)
FORWARD("cudnn_cnn_infer", cudnnCnnInferVersionCheck)
FORWARD("cudnn_cnn_train", cudnnCnnTrainVersionCheck)
FORWARD("cudnn_adv_infer", cudnnAdvInferVersionCheck)
FORWARD("cudnn_adv_train", cudnnAdvTrainVersionCheck)
#endif
FORWARD(BASE_PART, cudnnGetVersion)
FORWARD(BASE_PART, cudnnGetCudartVersion)
#if VERSION >= 8600
FORWARD(BASE_PART, cudnnGetMaxDeviceVersion)
#endif
FORWARD(BASE_PART, cudnnCreate)
FORWARD(BASE_PART, cudnnGetErrorString)
FORWARD(DESC_PART, cudnnCreateTensorDescriptor)
FORWARD(DESC_PART, cudnnSetTensor4dDescriptor)
FORWARD(DESC_PART, cudnnCreateFilterDescriptor)
FORWARD(DESC_PART, cudnnSetFilter4dDescriptor)
FORWARD(CONV_PART, cudnnCreateConvolutionDescriptor)
FORWARD(CONV_PART, cudnnDestroyConvolutionDescriptor)
FORWARD(CONV_PART, cudnnSetConvolution2dDescriptor)
FORWARD(CONV_PART, cudnnGetConvolution2dForwardOutputDim)
FORWARD(CONV_PART, cudnnGetConvolutionForwardAlgorithm_v7)
FORWARD(CONV_PART, cudnnGetConvolutionForwardWorkspaceSize)
FORWARD(CONV_PART, cudnnConvolutionForward)
FORWARD(CONV_PART, cudnnGetConvolutionBackwardDataAlgorithm_v7)
FORWARD(CONV_PART, cudnnGetConvolutionBackwardDataWorkspaceSize)
FORWARD(CONV_PART, cudnnConvolutionBackwardData)
FORWARD(TRAIN_PART, cudnnGetConvolutionBackwardFilterAlgorithm_v7)
FORWARD(TRAIN_PART, cudnnGetConvolutionBackwardFilterWorkspaceSize)
FORWARD(TRAIN_PART, cudnnConvolutionBackwardFilter)
