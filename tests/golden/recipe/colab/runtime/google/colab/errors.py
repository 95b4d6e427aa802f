"""Exceptions of this module, under the names that Colab's own has."""


class Error(Exception):
    """Base of the others."""


class RuntimeManagementError(Error):
    """Raised where a runtime cannot be managed from inside."""


class LocalRuntimeError(Error, ImportError):
    """Something that only Google's own machines can do, with what to do instead.

    An ImportError, too, so that ``try: from google.colab import … except ImportError:`` goes on as it does
    anywhere outside Colab.
    """
