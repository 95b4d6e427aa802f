"""The CUDA libraries that TensorFlow opens by name, which differ between minor versions of CUDA."""

from .versions import numbers

# Libraries that TensorFlow opens before it registers a GPU, by CUDA version: gpu_device.cc, dso_loader.cc in
# https://github.com/tensorflow/tensorflow
_TF_OPENS = (
    ((13, 0), "cudart.so.13 cublas.so.13 cublasLt.so.13 cufft.so.12 cusolver.so.12 cusparse.so.12"),
    ((12, 0), "cudart.so.12 cublas.so.12 cublasLt.so.12 cufft.so.11 cusolver.so.11 cusparse.so.12"),
    ((11, 1), "cudart.so.11.0 cublas.so.11 cublasLt.so.11 cufft.so.10 cusolver.so.11 cusparse.so.11"),
    ((11, 0), "cudart.so.11.0 cublas.so.11 cublasLt.so.11 cufft.so.10 cusolver.so.10 cusparse.so.11"),
    ((10, 1), "cudart.so.10.1 cublas.so.10 cufft.so.10 cusolver.so.10 cusparse.so.10"),
    ((10, 0), "cudart.so.10.0 cublas.so.10.0 cufft.so.10.0 cusolver.so.10.0 cusparse.so.10.0"),
)


def tf_table(rows, version):
    """The entry of the newest row that is not newer than ``version``; None for an older one."""
    for since, entry in rows:
        if version and version >= since:
            return entry
    return None


def tensorflow_opens(cuda):
    """File names for a build for this CUDA version (text); [] if the minor version is not known."""
    version = numbers(cuda)[:2]
    if len(version) < 2 and (not version or version[0] < 12):
        return []
    return ["lib%s" % name for name in (tf_table(_TF_OPENS, version + (0,)) or "").split()]
