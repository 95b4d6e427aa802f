"""One table of all checks, and one of what proves each cause: two pages are made from them.

A check that fails may name the causes of its own row, and those of :data:`JUDGED`, which the judge finds by
counter-tests and the loader's answers. A test holds that no report names another.
"""

from collections import namedtuple

CheckRow = namedtuple("CheckRow", "id title needs decides causes")

CHECKS = (
    CheckRow("E01", "machine and interpreter", "nothing", "the module _ctypes loads", "python-incomplete"),
    CheckRow(
        "E02", "variables", "/proc for --pid", "known values of variables", "check-disabled env-set-too-late"
    ),
    CheckRow("E03", "copies of the CUDA family", "nothing", "never fails", ""),
    CheckRow(
        "E04",
        "files are whole",
        "nothing is loaded",
        "ELF headers, DT_SONAME, mount options",
        "cudnn-file-corrupt file-access-denied noexec-mount",
    ),
    CheckRow(
        "E05",
        "sets are complete",
        "nothing is loaded",
        "the parts of each release",
        "cudnn-sublibrary-missing",
    ),
    CheckRow(
        "E06",
        "which file each program gets",
        "nothing is loaded",
        "the loader's search, worked out",
        "cudnn-missing cudnn-major-mismatch",
    ),
    CheckRow(
        "E07", "unversioned names", "nothing is loaded", "the loader's search", "unversioned-name-missing"
    ),
    CheckRow(
        "P01",
        "pins",
        "METADATA",
        "Requires-Dist with its markers",
        "package-pin-mismatch cudnn-missing nvrtc-missing ptxas-missing toolkit-library-missing",
    ),
    CheckRow(
        "P02",
        "files of packages",
        "RECORD",
        "size, mode, holes of zeros; hashes by --thorough and after a crash",
        "package-overwritten ptxas-missing file-access-denied",
    ),
    CheckRow(
        "P03",
        "a build for CUDA",
        "a framework that imports",
        "the framework's own word",
        "framework-cpu-build package-pin-mismatch",
    ),
    CheckRow("D01", "device nodes", "a device node", "open() of each", "device-access-denied"),
    CheckRow(
        "D02",
        "the driver's library",
        "a trace of a GPU",
        "dlopen, and its path",
        "driver-missing driver-error driver-stub driver-capabilities container-no-gpu",
    ),
    CheckRow(
        "D03",
        "cuInit",
        "libcuda.so.1",
        "its result",
        "driver-error driver-stub device-busy device-access-denied device-node-missing "
        "driver-library-mismatch compat-unsupported fabric-not-ready no-device container-no-gpu "
        "out-of-memory device-hidden",
    ),
    CheckRow("D04", "devices", "cuInit", "number, compute mode", "no-device device-busy device-hidden"),
    CheckRow(
        "D05",
        "context, memory, a copy",
        "a device",
        "results, and the bytes that come back",
        "driver-error driver-stub out-of-memory device-busy no-device",
    ),
    CheckRow("R01", "the driver's age", "cuInit", "cuDriverGetVersion", "driver-too-old"),
    CheckRow(
        "R02",
        "CUDA's libraries, NVRTC",
        "no GPU",
        "dlopen of each, NVRTC compiles a kernel",
        "toolkit-library-missing nvrtc-missing toolkit-mixed cudnn-missing cudnn-sublibrary-missing "
        "framework-silent-cpu no-temporary-space",
    ),
    CheckRow("C01", "cuDNN opens", "no GPU", "dlopen, cudnnGetVersion", "cudnn-missing"),
    CheckRow("C02", "the CUDA of cuDNN", "no GPU", "cudnnGetCudartVersion", "cudnn-cuda-flavour"),
    CheckRow(
        "C03",
        "cuDNN's own version checks",
        "no GPU",
        "cudnn*VersionCheck",
        "cudnn-known-bad cudnn-sublibrary-mismatch",
    ),
    CheckRow("C04", "descriptors", "no GPU", "the output's dimensions", "wrong-result"),
    CheckRow("C05", "what is mapped", "/proc", "/proc/PID/maps", "stale-process cudnn-shadowed"),
    CheckRow(
        "C06",
        "a handle",
        "a GPU",
        "cudnnCreate",
        "out-of-memory driver-too-old cudnn-arch-dropped cudnn-cuda-flavour",
    ),
    CheckRow(
        "C07", "three convolutions", "a GPU", "numbers", "wrong-result out-of-memory cudnn-arch-dropped"
    ),
    CheckRow("C08", "cuDNN serves this GPU", "a GPU", "compute capability", "cudnn-arch-dropped"),
    CheckRow("C09", "times", "a GPU", "never fails", ""),
    CheckRow("F01", "import", "no GPU", "the exception or signal", ""),
    CheckRow(
        "F02",
        "compiled and loaded cuDNN",
        "no GPU, but for JAX and CuPy",
        "NVIDIA's rule",
        "cudnn-too-old cudnn-major-mismatch cudnn-not-equal",
    ),
    CheckRow("F03", "architectures", "a GPU", "machine code or PTX for it", "framework-arch-missing"),
    CheckRow(
        "F04",
        "the device",
        "a GPU; variables without",
        "where results lie",
        "framework-silent-cpu device-hidden cudnn-missing toolkit-library-missing cudnn-sublibrary-missing "
        "nvrtc-missing",
    ),
    CheckRow(
        "F05",
        "convolutions",
        "a GPU; on the CPU the framework alone",
        "numbers",
        "wrong-result framework-arch-missing cudnn-arch-dropped driver-too-old",
    ),
    CheckRow(
        "F06",
        "frameworks in one process",
        "two frameworks",
        "the cuDNN that each gets",
        "import-order-conflict",
    ),
    CheckRow(
        "F07",
        "training",
        "a GPU; on the CPU the framework alone",
        "the loss falls",
        "training-loss framework-silent-cpu framework-arch-missing cudnn-arch-dropped driver-too-old",
    ),
    CheckRow("H01", "a call that does not come back", "nothing", "the limit of the stage", "hang"),
    CheckRow("H02", "a process that dies in a framework", "nothing", "signal, exit status", ""),
    CheckRow("X01", "the expectation", "--expect", "every difference", "expect-mismatch"),
)

# How each cause is known: a counter-test by its name, or what is read. Every cause has a row.
PROOFS = {
    "cudnn-missing": "the loader's search for the very program finds no file of that name",
    "cudnn-sublibrary-missing": "the list of parts of that release; `dlopen` of the part",
    "cudnn-sublibrary-mismatch": "counter-test `preloaded`; cuDNN's own version checks; `dlopen` of the part",
    "cudnn-shadowed": "counter-test `cleared-path`, for several variables `cleared-env`",
    "cudnn-too-old": "both version numbers, after counter-test `cleared-path`",
    "cudnn-not-equal": "both version numbers",
    "cudnn-major-mismatch": "both version numbers, or the name that is opened and those that are there",
    "cudnn-cuda-flavour": "cudnnGetCudartVersion, after counter-test `cleared-path`",
    "cudnn-file-corrupt": "ELF header and DT_SONAME; `dlopen` of the file",
    "cudnn-known-bad": "the exact version number",
    "toolkit-library-missing": "the loader's search; `dlopen` of the library",
    "toolkit-mixed": "counter-test `cleared-path`; `dlopen` names the symbol",
    "nvrtc-missing": "NVRTC itself compiles a kernel, or cannot",
    "unversioned-name-missing": "the name with a number resolves, the one without does not",
    "package-overwritten": "RECORD: size, or sha256",
    "package-pin-mismatch": "Requires-Dist; for other packages also an exception that names them",
    "ptxas-missing": "RECORD lists the tool and it is gone, or no ptxas lies where XLA looks",
    "startup-preload": "counter-test `no-site`",
    "system-library-missing": "the loader's search, and no RECORD lists the file",
    "file-access-denied": "access() of the file, or EACCES",
    "python-incomplete": "the import of _ctypes",
    "libc-too-old": "`dlopen` names the GLIBC version",
    "check-disabled": "the variable's value",
    "expect-mismatch": "what was asked for beside what was found",
    "execution-failed": "no counter-test applies: what is left if all others are refuted",
    "wrong-result": "numbers beside those of plain Python",
    "crash": "no counter-test applies: what is left if all others and RECORD's hashes are refuted",
    "hang": "the watchdog, and the call in flight",
    "framework-cpu-build": "the framework's own word",
    "framework-silent-cpu": "the device of a result, after counter-test `visible`; or the variable",
    "framework-import": "no counter-test applies: what is left of an exception in an import",
    "variable-breaks-framework": "counter-test `cleared-settings`, then each variable alone",
    "module-shadowed": "counter-test `unshadowed`, or the module's file is not pip's",
    "import-order-conflict": "each alone imports, in a process of its own",
    "training-loss": "the losses",
    "framework-arch-missing": "the wheel's list; or a launch that fails where cuDNN's own convolution ran",
    "cudnn-arch-dropped": "compute capability and version; or the status, where a context works",
    "compat-unsupported": "cuInit, and the path of the library",
    "driver-missing": "a device node or kernel module without a library",
    "driver-too-old": "cuDriverGetVersion beside what was built",
    "driver-error": "the result of the call, or the loader's answer",
    "driver-stub": "cuInit, or the path of the library",
    "driver-capabilities": "the variable beside the nodes",
    "driver-library-mismatch": "cuInit",
    "fabric-not-ready": "cuInit",
    "device-node-missing": "cuInit, and the nodes",
    "device-access-denied": "open() of the node",
    "device-hidden": "counter-test `visible`",
    "no-device": "cuInit, after counter-test `visible`",
    "container-no-gpu": "the kernel module without nodes, in a container",
    "preload-interference": "counter-test `cleared-preload`, for /etc/ld.so.preload `no-preload-file`",
    "host-memory": "counter-test `unlimited`; or the errno, and the limit",
    "noexec-mount": "statvfs of the file",
    "no-temporary-space": "a file written in each folder, and an exception about one",
    "env-set-too-late": "the stage with the variables of the process's start, and with those of now",
    "stale-process": "/proc/PID/maps marks the file as deleted",
    "device-busy": "the result of the call, and the compute mode",
    "out-of-memory": "counter-test `small`; an allocation that fails",
}

# What the judge may find for a failed check of any stage that loads something.
JUDGED = frozenset(
    "preload-interference startup-preload cudnn-shadowed toolkit-mixed variable-breaks-framework "
    "module-shadowed host-memory noexec-mount no-temporary-space file-access-denied "
    "package-pin-mismatch package-overwritten system-library-missing cudnn-missing "
    "cudnn-sublibrary-missing cudnn-sublibrary-mismatch cudnn-file-corrupt nvrtc-missing "
    "toolkit-library-missing unversioned-name-missing driver-missing libc-too-old crash hang "
    "execution-failed framework-import out-of-memory driver-too-old".split()
)
LOADING = frozenset("D02 D03 D04 D05 R02 C01 C02 C03 C04 C05 C06 C07 F01 F02 F04 F05 F06 F07 H02".split())


def may_name(check, cause):
    """Whether the table lets a check name a cause; both by their ids."""
    own = [cause for row in CHECKS if row.id == check for cause in row.causes.split()]
    return cause in own or (check in LOADING and cause in JUDGED)


def checks_page():
    """The table as Markdown: ``docs/checks.md`` is this text."""
    lines = [
        "# Checks",
        "",
        "Generated from `builder/probe/checks_table.py`; tests compare, and hold that",
        "",
    ]
    lines[2] += (
        " no report names a cause that its check may not name. **judged**: the causes at the end, too."
    )
    lines += ["| check | looks at | needs | decides on | causes |", "|---|---|---|---|---|"]
    for row in CHECKS:
        causes = ["[`%s`](causes.md#%s)" % (cause, cause) for cause in row.causes.split()]
        causes += ["**judged**"] if row.id in LOADING else []
        lines.append("| %s | %s | %s | %s | %s |" % (row[:4] + (", ".join(causes),)))
    lines += [
        "",
        "## Judged",
        "",
        "A check that loads something has the cause that a counter-test, the loader's",
    ]
    lines[-1] += " answer, the machine or a package proves:"
    lines += ["", ", ".join("[`%s`](causes.md#%s)" % (cause, cause) for cause in sorted(JUDGED)) + "."]
    return "\n".join(lines) + "\n"
