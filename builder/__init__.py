"""rtbuild: images of CUDA, cuDNN, framework and Python that are known to work."""

__version__ = "0.2.0"
