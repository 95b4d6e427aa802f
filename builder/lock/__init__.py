"""What a matrix resolves to, fixed by content: base digests, wheels and Debian packages by sha256.

:mod:`.resolve` turns a cell into a :class:`~builder.model.Pinned`, with the clients of the package index, the
container registries and the Debian archive that it is given; :mod:`.file` keeps the answers in the lock file
beside the matrix.
"""
