/* A fake of any other CUDA library: loads, and as libcudart answers for its version (VERSION, as 12040). */
#include "double.h"

EXPORT int cudaRuntimeGetVersion(int *version) { *version = VERSION; return 0; }
EXPORT int cudaDriverGetVersion(int *version) { *version = (int)double_number("RTBUILD_DOUBLE_DRIVER", 12080); return 0; }
EXPORT int nvrtcVersion(int *major, int *minor) { *major = VERSION / 1000; *minor = VERSION % 1000 / 10; return 0; }
