"""What a matrix resolves to, fixed by content: base digests, wheels and Debian packages by sha256.

Three modules talk to the outside and do not know one another: :mod:`.index` (Python packages),
:mod:`.registry` (container images), :mod:`.debian` (Debian packages). :mod:`.resolve` receives them and turns
a cell into a :class:`~builder.model.Pinned`; :mod:`.file` keeps those in the lock file beside the matrix.
"""
