"""The ways out of a container that people have written up, each tried in the sandbox.

Every attack is a Python script that prints ``escaped`` if it got what it wanted, and something in any case.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sandbox_system import system

from builder.core.errors import CommandError
from builder.image.sandbox import Limits, View, bwrap, run, watch

pytestmark = pytest.mark.slow

PRELUDE = """
import ctypes, errno, os, platform, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[
        ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return result if result >= 0 else -ctypes.get_errno()
def refused(number, *arguments, by=(errno.EPERM, errno.ENOSYS)):
    result = call(number, *arguments)
    print("refused" if -result in by else f"escaped {result}")
def tried(action):
    try:
        found = action()
    except OSError as problem:
        print("refused", problem)
    else:
        print("escaped", found)
"""


def attack(tmp_path: Path, script: str, *, writable: bool = False, **limits: int) -> str:
    """What the script printed, in the sandbox of a source distribution or of a recipe's step."""
    bounds = Limits(**{"seconds": 60, **limits})
    home = tmp_path / "home"
    home.mkdir(mode=0o700, parents=True)
    return run(
        ["/usr/bin/python3", "-I", "-c", PRELUDE + script],
        View(
            root=system(home / "root"),
            writable=writable,
            folders={"/usr": Path("/usr")},
            memory={} if writable else {"/build": bounds.memory, "/tmp": bounds.memory // 4},
        ),
        what="the attack",
        env={"PATH": "/usr/bin:/bin"},
        limits=bounds,
        cancel=threading.Event(),
    ).decode()


def held(said: str) -> None:
    assert said.strip(), "it did not get to its end"
    assert "escaped" not in said


X86 = platform.machine() == "x86_64"
COLUMN = 0 if X86 else 1
NUMBERS = bwrap.refused(os.uname().machine)
NUMBERS |= bwrap._ABSENT


@pytest.mark.parametrize("name", [name for name, number in NUMBERS.items() if number is not None])
def test_a_call_is_refused_before_it_looks_at_its_arguments(tmp_path: Path, name: str) -> None:
    """With arguments for which the kernel itself would answer EFAULT, EINVAL or EBADF, if not succeed."""
    held(attack(tmp_path, f"refused({NUMBERS[name]}, -1, -1, -1, -1, -1)"))


MUST = """
    acct add_key bpf chroot clock_settime delete_module fanotify_init finit_module fsmount init_module
    io_uring_enter io_uring_register io_uring_setup kcmp kexec_file_load kexec_load keyctl memfd_create mount
    mount_setattr move_mount name_to_handle_at open_by_handle_at open_tree perf_event_open pidfd_getfd
    pivot_root process_vm_readv process_vm_writev ptrace quotactl reboot request_key setdomainname
    sethostname setns
    settimeofday shmget swapoff swapon syslog umount2 unshare userfaultfd vhangup
"""


def test_no_line_of_the_list_is_lost() -> None:
    """The tests of single calls go by the list itself."""
    assert set(MUST.split()) <= bwrap.refused("x86_64").keys() & bwrap.refused("aarch64").keys()


def test_the_numbers_are_those_of_this_machines_headers() -> None:
    header = Path(f"/usr/include/{platform.machine()}-linux-gnu/asm/unistd_64.h")
    if not header.is_file():
        pytest.skip("no headers of the kernel here")
    lines = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")]
    numbers = {words[1].removeprefix("__NR_"): int(words[2]) for words in lines}
    masked = {name: columns[COLUMN] for name, *columns, _, _ in bwrap._MASKED}
    for name, number in (NUMBERS | masked).items():
        assert numbers.get(name) == number, name


def test_a_call_that_is_newer_than_the_filter_is_not_there(tmp_path: Path) -> None:
    held(attack(tmp_path, "refused(463, -1, -1, -1, -1, -1, by=(errno.ENOSYS,))"))


def test_calls_of_another_architecture_kill(tmp_path: Path) -> None:
    if not X86:
        pytest.skip("x32 is of x86")
    with pytest.raises(CommandError):
        attack(tmp_path, "print(call(0x40000000 | 39))")


def test_it_has_no_capability_and_gets_none(tmp_path: Path) -> None:
    said = attack(
        tmp_path,
        "print([libc.prctl(23, cap, 0, 0, 0) for cap in range(41)].count(1), libc.prctl(39, 0, 0, 0, 0),"
        " libc.prctl(21, 0, 0, 0, 0), libc.prctl(47, 1, 21, 0, 0))",
    )
    bounding, no_new_privileges, seccomp_mode, ambient = said.split()
    assert (bounding, no_new_privileges, seccomp_mode) == ("0", "1", "2")
    assert ambient in ("0", "-1")


CLONES = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "time": 0x80}


@pytest.mark.parametrize("name", CLONES)
def test_no_namespace_is_made_in_it(tmp_path: Path, name: str) -> None:
    """Nested user namespaces are where most of the kernel's privileged code is reached from."""
    number = 56 if X86 else 220
    held(
        attack(
            tmp_path,
            f"result = call({number}, {CLONES[name] | 17}, 0, 0, 0, 0)\n"
            "if result == 0: os._exit(0)\n"
            "print('refused' if result == -errno.EPERM else f'escaped {result}')",
        )
    )
    script = "import subprocess; print(subprocess.run(['unshare', '-U', 'true']).returncode)"
    assert attack_again(tmp_path, script).strip() != "0"


def attack_again(tmp_path: Path, script: str) -> str:
    other = tmp_path / "again"
    other.mkdir()
    return attack(other, script)


def test_a_second_chroot_does_not_lead_out(tmp_path: Path) -> None:
    """https://filippo.io/escaping-a-chroot-jail-slash-1"""
    (tmp_path / "secret").write_text("secret")
    held(
        attack(
            tmp_path,
            "os.mkdir('/build/jail'); here = os.open('.', os.O_RDONLY)\n"
            "tried(lambda: os.chroot('/build/jail'))\n"
            "os.fchdir(here)\n"
            "[os.chdir('..') for _ in range(99)]\n"
            f"tried(lambda: open('.{tmp_path}/secret').read())",
        )
    )


def test_what_it_sees_is_its_own(tmp_path: Path) -> None:
    said = attack(tmp_path, "print(*sorted(os.listdir('/'))); print(*sorted(os.listdir('/dev')))")
    roots, devices = said.splitlines()
    assert roots.split() == ["bin", "build", "dev", "lib", "lib64", "requires", "sdist", "tmp", "usr"]
    assert devices.split() == ["full", "null", "random", "urandom", "zero"]


PATHS = [
    "/proc/self/root/etc/shadow",
    "/proc/1/root/etc/shadow",
    "/proc/1/environ",
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
    "/sys/fs/cgroup/release_agent",
    "/sys/kernel/uevent_helper",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/sda",
    "/dev/vda",
    "/dev/fuse",
    "/dev/tty",
    "/dev/shm",
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/etc/shadow",
    "/root",
    "/home",
]


def test_no_door_of_the_machine_is_there(tmp_path: Path) -> None:
    """core_pattern, uevent_helper and release_agent run a program of the attacker's as root."""
    held(attack(tmp_path, f"for path in {PATHS!r}: tried(lambda: os.stat(path))"))


MOUNTS = [
    ("proc", "/build", "proc", 0),
    ("sysfs", "/build", "sysfs", 0),
    ("cgroup", "/build", "cgroup", 0),
    ("none", "/usr", None, 32 | 4096),
    ("none", "/", None, 32 | 4096),
    ("/usr", "/build", None, 4096),
    ("none", "/", None, 1 << 18),
    ("overlay", "/build", "overlay", 0),
]


@pytest.mark.parametrize("mount", MOUNTS, ids=lambda mount: f"{mount[2]}-{mount[3]}-{mount[1].strip('/')}")
def test_nothing_is_mounted_and_nothing_made_writable(
    tmp_path: Path, mount: tuple[str, str, str | None, int]
) -> None:
    """The remount made the system of all sources writable; release_agent needs a cgroup mounted."""
    source, target, kind, flags = mount
    words = f"{source.encode()!r}, {target.encode()!r}, {kind.encode() if kind else None!r}, {flags}, None"
    held(
        attack(
            tmp_path,
            f"print('refused' if libc.mount({words}) and ctypes.get_errno() == errno.EPERM else 'escaped')\n"
            "tried(lambda: open('/usr/planted', 'w'))\n"
            "tried(lambda: open('/requires/sitecustomize.py', 'w'))\n"
            "tried(lambda: open('/sdist/planted', 'w'))\n"
            "tried(lambda: open('/planted', 'w'))",
        )
    )


@pytest.mark.parametrize("writable", [False, True], ids=["source", "step"])
def test_no_device_and_no_program_of_another_user_is_made(tmp_path: Path, *, writable: bool) -> None:
    place = "" if writable else "/build"
    said = attack(
        tmp_path,
        f"open('{place}/program', 'w').close()\n"
        f"tried(lambda: os.chmod('{place}/program', 0o4755))\n"
        f"tried(lambda: os.fchmod(os.open('{place}/program', os.O_RDONLY), 0o2755))\n"
        f"tried(lambda: os.open('{place}/other', os.O_CREAT | os.O_WRONLY, 0o4755))\n"
        f"tried(lambda: os.mknod('{place}/memory', 0o20666, os.makedev(1, 1)))\n"
        f"tried(lambda: os.mknod('{place}/disk', 0o60666, os.makedev(254, 0)))\n"
        f"tried(lambda: os.setxattr('{place}/program', 'security.capability', bytes(20)))\n"
        f"tried(lambda: os.chown('{place}/program', 1, 1))",
        writable=writable,
    )
    held(said)
    left = list((tmp_path / "home/root").iterdir())
    assert not [path for path in left if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    if writable and os.geteuid() == 0:
        assert (tmp_path / "home/root/program").stat().st_uid not in (0, 65534)


def test_only_the_owner_enters_what_a_step_left(tmp_path: Path) -> None:
    attack(tmp_path, "open('/left', 'w').close(); print('done')", writable=True)
    assert (tmp_path / "home/root/left").is_file()
    assert not (tmp_path / "home").stat().st_mode & 0o077


def test_a_step_gets_no_system_that_others_enter(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    with pytest.raises(ValueError, match="not in a folder of its own"):
        View(root=open_to_all / "root", writable=True)


def test_file_handles_open_nothing(tmp_path: Path) -> None:
    """ "Shocker": http://stealth.openwall.net/xSports/shocker.c"""
    numbers = (303, 304) if X86 else (264, 265)
    held(
        attack(
            tmp_path,
            "handle = ctypes.create_string_buffer(struct.pack('Ii8s', 8, 1, b'\\2') + bytes(120))\n"
            "number = ctypes.c_int()\n"
            f"refused({numbers[0]}, -100, b'/usr', handle, ctypes.byref(number), 0)\n"
            f"refused({numbers[1]}, os.open('/usr', os.O_RDONLY), handle, 0)",
        )
    )


def test_the_sessions_keys_are_out_of_reach(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    add_key, keyctl = (248, 250) if X86 else (217, 219)
    key = libc.syscall(add_key, b"user", b"rtbuild-test", b"secret", 6, -3)
    if key < 0:
        pytest.skip("this machine keeps no keys")
    try:
        held(
            attack(
                tmp_path,
                "data = ctypes.create_string_buffer(64)\n"
                f"refused({keyctl}, 11, {key}, data, 64)\n"
                f"refused({keyctl}, 10, -3, b'user', b'rtbuild-test', 0)\n"
                "print('escaped' if b'secret' in data.raw else 'refused')",
            )
        )
        buffer = ctypes.create_string_buffer(64)
        assert libc.syscall(keyctl, 11, key, buffer, 64) == 6, "outside, the same call reads it"
    finally:
        libc.syscall(keyctl, 9, key, -3)  # unlinked


def test_the_sessions_keyring_is_left_even_if_the_filter_lets_all_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwrap, "_filter_of", lambda _machine: bwrap._one(bwrap._RETURN, bwrap._ALLOW))
    libc = ctypes.CDLL(None, use_errno=True)
    number, session = NUMBERS["keyctl"], 0xFFFFFFFD
    ours = libc.syscall(number, 0, session, 0)
    if ours < 0:
        pytest.skip("there are no keyrings here")
    said = attack(tmp_path, f"print(libc.syscall({number}, 0, {session}, 0))")
    assert int(said) > 0
    assert int(said) != ours


def test_no_process_of_the_machine_is_reached(tmp_path: Path) -> None:
    """By signal, by ptrace, by its memory or by a handle on it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as victim:
        try:
            held(
                attack(
                    tmp_path,
                    f"for pid in ({victim.pid}, {os.getpid()}):\n"
                    "    tried(lambda: os.kill(pid, 9))\n"
                    "    tried(lambda: os.pidfd_open(pid))\n"
                    f"    refused({101 if X86 else 117}, 16, pid, 0, 0)\n"
                    f"    refused({310 if X86 else 270}, pid, 0, 0, 0, 0, 0)\n"
                    "print('refused')",
                )
            )
            said = attack_again(
                tmp_path, "import signal\nsignal.signal(15, signal.SIG_IGN)\ntried(lambda: os.kill(-1, 15))"
            )
            assert "No such process" in said
            assert victim.poll() is None
        finally:
            victim.kill()


def test_sockets_of_the_machine_are_out_of_reach(tmp_path: Path) -> None:
    """Docker's socket by its path; and abstract ones, which belong to the network namespace."""
    abstract = f"rtbuild-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two, socket.socket() as net:
        one.bind("\0" + abstract)
        two.bind(str(tmp_path / "docker.sock"))
        net.bind(("127.0.0.1", 0))
        for listening in (one, two, net):
            listening.listen()
        places = ["\0" + abstract, str(tmp_path / "docker.sock"), "/var/run/docker.sock"]
        held(
            attack(
                tmp_path,
                f"for place in {places!r}: tried(lambda: socket.socket(socket.AF_UNIX).connect(place))\n"
                f"tried(lambda: socket.create_connection(('127.0.0.1', {net.getsockname()[1]}), 2))\n"
                "tried(lambda: socket.create_connection(('192.0.2.1', 80), 2))",
            )
        )
        with socket.socket(socket.AF_UNIX) as outside:
            outside.connect("\0" + abstract)


FAMILIES = {"netlink": 16, "packet": 17, "alg": 38, "vsock": 40, "bluetooth": 31}


@pytest.mark.parametrize("name", FAMILIES)
def test_families_that_know_no_namespace_are_refused(tmp_path: Path, name: str) -> None:
    number = 41 if X86 else 198
    held(attack(tmp_path, f"refused({number}, {FAMILIES[name]}, 3, 0, by=(errno.EAFNOSUPPORT,))"))


@pytest.mark.parametrize("family", [16, 17, 30, 31, 38, 40, 44])
def test_nor_as_a_pair(tmp_path: Path, family: int) -> None:
    """The kernel makes both sockets, and loads their module, before it says that there are no such pairs."""
    asked = f"{53 if X86 else 199}, {family}, 1, 0, pair"
    script = f"pair = (ctypes.c_int * 2)()\nrefused({asked}, by=(errno.EAFNOSUPPORT,))"
    held(attack(tmp_path, script))


@pytest.mark.parametrize(
    ("kind", "protocol"), [(1, 132), (5, 132), (6, 33), (1, 262), (2, 136), (3, 255), (3, 1)]
)
def test_protocols_that_load_a_module_are_refused(tmp_path: Path, kind: int, protocol: int) -> None:
    """SCTP, DCCP, MPTCP, UDP-Lite, raw sockets."""
    number = 41 if X86 else 198
    for family in (2, 10):
        script = f"refused({number}, {family}, {kind} | 0o2000000, {protocol}, by=(errno.EAFNOSUPPORT,))"
        held(attack(tmp_path / str(family), script))


def test_the_usual_sockets_are_there(tmp_path: Path) -> None:
    said = attack(
        tmp_path,
        "for family in (1, 2, 10):\n"
        "    for kind in (1, 2): socket.socket(family, kind | socket.SOCK_CLOEXEC).close()\n"
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].close()\n"
        "print('done')",
    )
    assert said.strip() == "done"


def test_no_terminal_is_typed_into(tmp_path: Path) -> None:
    """CVE-2017-5226: TIOCSTI, also with a high half that the kernel ignores."""
    number = 16 if X86 else 29
    script = f"for code in (0x5412, 0x541c, 0x5412 | 1 << 32): refused({number}, 0, code, b'x')"
    held(attack(tmp_path, script))


def test_nothing_of_the_starting_process_is_inherited(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        os.environ["RTBUILD_TEST_SECRET"] = "hush"
        try:
            said = attack(
                tmp_path,
                "held = []\n"
                "for number in range(3, 64):\n"
                "    try: held.append(os.fstat(number).st_mode)\n"
                "    except OSError: pass\n"
                "print(held, dict(os.environ), os.getppid(), os.getsid(0), os.uname().nodename)",
            )
        finally:
            del os.environ["RTBUILD_TEST_SECRET"]
    assert said.startswith("[] ")
    assert "hush" not in said
    assert said.split()[-1] == "rtbuild"


def test_a_fork_bomb_stays_small_and_ends(tmp_path: Path) -> None:
    began = time.monotonic()
    script = "import time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)"
    with pytest.raises(CommandError, match="was not done after 3 s"):
        attack(tmp_path, script, processes=50, seconds=3)
    assert time.monotonic() - began < 60


def test_memory_is_bounded_in_sum(tmp_path: Path) -> None:
    """Each of them stays below the limit of one process."""
    with pytest.raises(CommandError, match="took more than 256 MiB of memory"):
        attack(
            tmp_path,
            "import time\n"
            "for _ in range(4):\n"
            "    if os.fork() == 0: held = bytearray(os.urandom(1 << 20) * 100); time.sleep(60)\n"
            "time.sleep(60)",
            total=256 << 20,
        )


def test_what_processes_share_counts_once(tmp_path: Path) -> None:
    said = attack(
        tmp_path,
        "import time\n"
        "held = bytearray(os.urandom(1 << 20) * 60)\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0: time.sleep(2); os._exit(0)\n"
        "for _ in range(8): os.wait()\n"
        "print('done')",
        total=256 << 20,
    )
    assert said.strip() == "done"


def test_a_source_fills_its_own_memory_and_no_disk(tmp_path: Path) -> None:
    held(
        attack(
            tmp_path,
            "def fill():\n"
            "    with open('/build/a', 'wb') as file:\n"
            "        for _ in range(64): file.write(bytes(1 << 20))\n"
            "tried(fill)\n"
            "tried(lambda: [open(f'/build/{n}', 'wb', 0).write(bytes(5000)) for n in range(9999)])",
            memory=8 << 20,
        )
    )


def test_a_step_that_fills_the_disk_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="wrote more than 64 MiB"):
        attack(
            tmp_path,
            "import time\n"
            "for number in range(256):\n"
            "    open(f'/{number}', 'wb').write(os.urandom(1 << 20)); time.sleep(0.02)\n"
            "time.sleep(60)",
            writable=True,
            disk=64 << 20,
            memory=64 << 20,
        )


def test_a_step_that_makes_files_without_end_is_stopped(tmp_path: Path) -> None:
    """Empty ones take no space, and a file system has room for only so many."""
    with pytest.raises(CommandError, match="made more than 2000 files"):
        attack(
            tmp_path,
            "import time\n"
            "os.mkdir('/build/x')\n"
            "for number in range(4000): os.mkdir(f'/build/x/{number}')\n"
            "time.sleep(60)",
            writable=True,
            files=2000,
        )


def test_memory_that_belongs_to_no_process_is_missed_by_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a control group: pages of a shared mapping that nobody maps stay, and no process has them."""
    left = iter([3 << 30, 3 << 30])
    monkeypatch.setattr(watch, "_available", lambda: next(left, (1 << 30) - 1))
    monkeypatch.setitem(run.__globals__, "control_group", lambda *_: None)
    with pytest.raises(CommandError, match="left this machine less than 1024 MiB of memory"):
        attack(tmp_path, "import time; time.sleep(60)", seconds=20)


def test_a_daemon_ends_with_its_build(tmp_path: Path) -> None:
    attack(
        tmp_path,
        "import time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        for number in range(3): os.close(number)\n"
        "        while True: open('/alive', 'a').write('x'); time.sleep(0.05)\n"
        "while not os.path.exists('/alive'): time.sleep(0.05)\n"
        "print('done')",
        writable=True,
    )
    size = (tmp_path / "home/root/alive").stat().st_size
    time.sleep(0.4)
    assert (tmp_path / "home/root/alive").stat().st_size == size


def test_what_it_prints_does_not_reach_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as raised:
        attack(tmp_path, "sys.exit('\\x1b]0;owned\\x07\\x1b[2J \\u202e\\u2066safe\\x9b')")
    shown = "\n".join(raised.value.tail)
    assert "safe" in shown
    assert shown.isprintable() or set(shown) - set(filter(str.isprintable, shown)) <= {"\n"}
