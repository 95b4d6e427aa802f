"""CUDA's libraries by the names of their files, as loaders are asked for them."""

import re

_WITH_MAJOR = r"cudart|cublas|cublasLt|nvrtc|nvJitLink|nvjpeg|npp\w+"
_OTHERS = (
    r"cudnn\w*|cufftw?|cufile\w*|cupti|curand|cusolver(?:Mg)?|cusparse(?:Lt)?|cutensor\w*|nccl\w*|nvperf\w*"
    r"|nvshmem\w*|nvToolsExt|pcsampling\w*"
)
NUMBERED = re.compile(rf"lib(?:{_WITH_MAJOR})\.so\.(\d+)(?:\.\d+)*")
"""Those that have CUDA's major version in their names, which is the group."""
CUDA_LIBRARY = re.compile(rf"(lib(?:{_WITH_MAJOR}|{_OTHERS}))(?:\.so\.(\d+)[\w.]*|[.-].*)")
"""Each of them, with its stem and the first number behind ``.so``, if one follows at once: auditwheel gives
copies names of their own, such as ``libcudart-d0da41ae.so.11.0``."""
