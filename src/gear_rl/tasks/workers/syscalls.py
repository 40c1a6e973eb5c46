"""Two filters of Linux on x86_64 and aarch64: a process under them computes, reads Python's own files, answers, and no more.

seccomp: the list says what is allowed. No network, no new process or thread, no program, no file opened for writing, no signal
to another process, no look into another process's memory: all of these fail with EPERM.
Landlock (Linux 5.13): of files, only those that Python and its packages are made of can be read. Keys and tokens lie elsewhere,
in home folders and in /proc/PID/environ.
"""

import ctypes
import os
import platform
import struct
import sys
import sysconfig

# Name: number on x86_64, on aarch64 (None: that machine has no such call).
_ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "poll": (7, None), "ppoll": (271, 73), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "access": (21, None), "sched_yield": (24, 124),
    "mremap": (25, 216), "madvise": (28, 233), "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93),
    "uname": (63, 160), "getcwd": (79, 17), "readlink": (89, None), "gettimeofday": (96, 169), "getrusage": (98, 165),
    "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "getdents64": (217, 61), "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "newfstatat": (262, 79), "readlinkat": (267, 78),
    "faccessat": (269, 48), "faccessat2": (439, 439), "getrandom": (318, 278), "statx": (332, 291),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E, 257), "aarch64": (1, 0xC00000B7, 56)}
"""Column above, the kernel's number of the machine, and its openat."""
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER, _DIE_WITH_PARENT = 38, 22, 2, 1
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _FORBID, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _BENEATH = 444, 445, 446, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _instructions(machine: str) -> list[tuple[int, int, int, int]]:
    """Classic BPF over struct seccomp_data: number at byte 0, machine at 4, the third argument at 32."""
    column, architecture, openat = _MACHINES[machine]
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    code = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    for numbers in _ALLOWED.values():
        number = numbers[column]
        if number is not None:
            code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    code += [(_IF_EQUAL, 1, 0, openat), (_RETURN, 0, 0, _FORBID), (_LOAD, 0, 0, 32)]
    return [*code, (_IF_ANY_BIT, 0, 1, writing), (_RETURN, 0, 0, _FORBID), (_RETURN, 0, 0, _ALLOW)]


def prepare() -> "ctypes.CDLL | None":
    """What `restrict` needs, loaded while loading is still allowed; None where there is no such filter."""
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" and platform.machine() in _MACHINES else None


def readable(libc: "ctypes.CDLL | None", folders: "list[str]") -> int:
    """A ruleset of Landlock for `restrict`: `folders`, Python and its libraries can be read. −1: this kernel has none."""
    handled = struct.pack("Q", _READ_FILE | _READ_FOLDER)
    ruleset = -1 if libc is None else libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if libc is None or ruleset < 0:
        return -1
    installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    for folder in {*folders, *installed, *sysconfig.get_paths().values(), *_LIBRARIES}:
        if os.path.isdir(folder):
            opened = os.open(folder, os.O_PATH)
            libc.syscall(_ADD_RULE, ruleset, _BENEATH, struct.pack("=Qi", _READ_FILE | _READ_FOLDER, opened), 0)
            os.close(opened)
    return ruleset


def restrict(libc: "ctypes.CDLL | None", ruleset: int = -1) -> bool:
    """Put this process under the filters, for good; whether the kernel did."""
    if libc is None:
        return False
    code = _instructions(platform.machine())
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    program = _Program(len(code), packed)
    libc.prctl(_DIE_WITH_PARENT, 9, 0, 0, 0)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if ruleset >= 0:
        libc.syscall(_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)
    return libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0
