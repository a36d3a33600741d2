"""Ways out of a world, each a function; run by a plain Python inside the world, or outside.

    python3 attacks.py FACTS.json NAME…

prints a line for each: ``NAME held: why`` or ``NAME through: how``. The same attack without a
world must print ``through``: an attack that never works proves nothing.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MNT_DETACH = 2
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
IS_X86 = os.uname().machine == "x86_64"


def syscall(number: int, *args: object) -> int:
    wide = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return -ctypes.get_errno() if result == -1 else result


def is_real(found: os.stat_result, facts: dict[str, Any]) -> bool:
    """Whether it is the file in the workspace itself, not one in a view of it."""
    return (found.st_dev, found.st_ino) == (facts["device"], facts["inode"])


def held(number: int) -> str:
    return f"held: {errno.errorcode.get(abs(number), number)}"


def unmount(facts: dict[str, Any]) -> str:
    """Take the view off and write the real file."""
    if facts["direct"]:  # no view: write access is enough
        return "through: no view"
    if libc.umount2(os.fsencode(facts["root"]), MNT_DETACH) == 0:
        return "through: unmounted"
    return held(ctypes.get_errno())


def unmount_nested(facts: dict[str, Any]) -> str:
    """The same with all capabilities in namespaces of our own."""
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        return held(ctypes.get_errno())
    return unmount(facts)


def by_handle(facts: dict[str, Any]) -> str:
    """Open the real inode by a handle from outside the world."""
    raw = bytes.fromhex(facts["handle"])
    buffer = ctypes.create_string_buffer(raw, len(raw))
    number = 304 if IS_X86 else 265
    answers = []
    for place in ("/", "/tmp", facts["base"], facts["root"]):
        fd = os.open(place, os.O_RDONLY)
        found = syscall(number, fd, ctypes.addressof(buffer), os.O_RDWR)
        os.close(fd)
        if found >= 0:
            if is_real(os.fstat(found), facts):
                return f"through: {place}"
            os.close(found)
        answers.append(found)
    return held(answers[-1])


def by_handle_nested(facts: dict[str, Any]) -> str:
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
        return held(ctypes.get_errno())
    return by_handle(facts)


def through_proc(facts: dict[str, Any]) -> str:
    """See the real workspace through another process's root, cwd or descriptors."""
    looked = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            links = ["root", "cwd", *(f"fd/{fd}" for fd in os.listdir(f"/proc/{name}/fd"))]
        except OSError:
            links = ["root", "cwd"]
        for link in links:
            looked += 1
            try:
                found = [os.stat(f"/proc/{name}/{link}{facts['root']}/kept")]
            except OSError:
                found = []
            try:
                found.append(os.stat(f"/proc/{name}/{link}/kept"))
            except OSError:
                pass
            if any(is_real(one, facts) for one in found):
                return f"through: {name}/{link}"
    return f"held: {looked} links lead nowhere"


def signal_victim(facts: dict[str, Any]) -> str:
    try:
        os.kill(facts["victim"], signal.SIGUSR1)
    except OSError as error:
        return held(error.errno or 0)
    return "through: signalled"


def inits() -> list[int]:
    """Processes whose parent is not in this world: its own init, and those of others."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{name}/stat", encoding="utf-8") as file:
            if file.read().rpartition(")")[2].split()[1] == "0":
                found.append(int(name))
    return found


def trace_init(facts: dict[str, Any]) -> str:
    """Trace the world's init, or a process outside."""
    answers = []
    for pid in (facts["victim"], *([] if facts["direct"] else inits())):
        if libc.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0:
            os.waitpid(pid, 0)
            libc.ptrace(PTRACE_DETACH, pid, 0, 0)
            return f"through: traced {pid}"
        answers.append(ctypes.get_errno())
        try:
            with open(f"/proc/{pid}/mem", "rb+"):
                return f"through: memory of {pid}"
        except OSError as error:
            answers.append(error.errno or 0)
    return held(answers[-1])


def daemon_socket(facts: dict[str, Any]) -> str:
    return _connect(facts["daemon_socket"])


def host_service(facts: dict[str, Any]) -> str:
    return _connect(facts["bus_socket"])


def terminal_server(facts: dict[str, Any]) -> str:
    return _connect(facts["tmux_socket"])


def _connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError as error:
            return held(error.errno or 0)
    return "through: connected"


def forge_history(facts: dict[str, Any]) -> str:
    try:
        with open(os.path.join(facts["root"], ".substrate-git", "secret"), "rb+"):
            return "through: opened"
    except OSError as error:
        return held(error.errno or 0)


def forge_trace(facts: dict[str, Any]) -> str:
    return _open_for_writing(os.path.join(facts["home"], "trace.jsonl"))


def change_program(facts: dict[str, Any]) -> str:
    return _open_for_writing(facts["program"])


def write_outside(facts: dict[str, Any]) -> str:
    path = os.path.join(facts["outside"], "made")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError as error:
        return held(error.errno or 0)
    return "through: written" if facts["tier"] != "full" else "held: a place of the world's own"


def _open_for_writing(path: str) -> str:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        return held(error.errno or 0)
    return "through: opened"


def read_disk(facts: dict[str, Any]) -> str:
    """Find the real blocks through a device, there or made by us."""
    tried = 0
    for name in os.listdir("/dev"):
        path = f"/dev/{name}"
        try:
            if not stat.S_ISBLK(os.stat(path).st_mode):
                continue
            os.close(os.open(path, os.O_RDONLY))
            return f"through: {path}"
        except OSError:
            tried += 1
    made = os.path.join(facts["root"], "disk")
    try:
        os.mknod(made, stat.S_IFBLK | 0o600, facts["device"])
        os.close(os.open(made, os.O_RDONLY))
    except OSError as error:
        return held(error.errno or 0)
    return "through: made"


def inherited(facts: dict[str, Any]) -> str:
    """Use a directory that was open when the command was started."""
    for fd in (0, *range(3, 20)):
        try:
            found = os.stat("kept", dir_fd=fd)
        except OSError:
            continue
        if is_real(found, facts):
            return f"through: descriptor {fd}"
    return "held: no descriptor leads to the real files"


def kernel_knobs(facts: dict[str, Any]) -> str:
    """Files that only ask for uid 0: a program named in the first is run outside, by the kernel."""
    answers = [
        _open_for_writing(path)
        for path in (
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sysrq-trigger",
            "/sys/kernel/mm/transparent_hugepage/enabled",
        )
        if os.path.exists(path)
    ]
    return next((answer for answer in answers if answer.startswith("through")), answers[0])


def capabilities(facts: dict[str, Any]) -> str:
    """Rights that root loses in a world (docs/security.md): ways to real files or the kernel."""
    lost = {2: "DAC_READ_SEARCH", 16: "SYS_MODULE", 17: "SYS_RAWIO", 19: "SYS_PTRACE",
            21: "SYS_ADMIN", 27: "MKNOD", 39: "BPF"}  # fmt: skip
    with open("/proc/self/status", encoding="ascii") as file:
        sets = {line.split()[0]: int(line.split()[1], 16) for line in file if "Cap" in line}
    have = [name for bit, name in lost.items() for held in sets.values() if held >> bit & 1]
    return f"through: {have[0]}" if have else "held: in no set"


def set_id(facts: dict[str, Any]) -> str:
    """Leave a program in a shared directory that gives its owner's rights to every caller."""
    place = facts["base"] if os.path.isdir(facts["base"]) else "/tmp"
    path = os.fsencode(os.path.join(place, f"set-id-{os.getpid()}"))
    caps = struct.pack("<5I", 0x02000001, 0x80, 0, 0, 0)
    changing: dict[str, Callable[[], object]] = {
        "chmod": lambda: libc.chmod(path, 0o4755),
        "fchmod": lambda: libc.fchmod(os.open(path, os.O_RDONLY), 0o2755),
        "fchmodat": lambda: libc.fchmodat(-100, path, 0o6755, 0),
        "fchmodat2": lambda: syscall(452, -100, ctypes.c_char_p(path), 0o4755, 0),
        "capability": partial(os.setxattr, path, "security.capability", caps),
    }
    if IS_X86:
        changing["chmod of 32 bits"] = partial(_chmod_32, path, 0o4755)
    making: dict[str, Callable[[], object]] = {
        "open": lambda: os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755),
        "creat": lambda: libc.creat(path, 0o4755),
        "mknod": partial(os.mknod, path, stat.S_IFREG | 0o4755),
        "tmpfile": partial(_link_tmpfile, place, path, 0o4755),
        "openat2": lambda: _openat2(path, 0o4755),
    }
    through = set()
    for name, way in {**changing, **making}.items():
        if name in changing:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
        with suppress(OSError):
            way()
        if os.path.exists(path):
            marked = "security.capability" in os.listxattr(path)
            if os.stat(path).st_mode & 0o6000 or marked:
                through.add(name)
            os.unlink(path)
    possible = {*changing, *making} - ({"capability"} if os.geteuid() else set())
    if facts["direct"] and possible - through:
        return f"held: {possible - through} does not even work without a world"
    return f"through: {sorted(through)}" if through else "held: EPERM"


def _link_tmpfile(place: str, path: bytes, mode: int) -> None:
    fd = os.open(place, os.O_TMPFILE | os.O_WRONLY, mode)
    follow = 0x400
    libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, path, follow)


def _openat2(path: bytes, mode: int) -> int:
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, mode, 0)
    return syscall(437, -100, ctypes.c_char_p(path), ctypes.c_char_p(how), len(how))


def _chmod_32(path: bytes, mode: int) -> None:
    """By int 0x80, whose numbers are others; the path must lie below 4 GiB."""
    low = _mmap_low()
    ctypes.memmove(low + 2048, path + b"\0", len(path) + 1)
    # push rbx; mov eax, 15; mov ebx, path; mov ecx, mode; int 0x80; pop rbx; ret
    code = b"\x53\xb8\x0f\x00\x00\x00\xbb" + struct.pack("<I", low + 2048)
    code += b"\xb9" + struct.pack("<I", mode) + b"\xcd\x80\x5b\xc3"
    ctypes.memmove(low, code, len(code))
    ctypes.CFUNCTYPE(ctypes.c_int)(low)()


def _mmap_low() -> int:
    """A page of memory that 32-bit calls can reach, to write to and to run."""
    map_32bit = 0x40
    libc.mmap.restype = ctypes.c_long
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_32bit
    found = libc.mmap(None, ctypes.c_long(4096), 7, flags, -1, ctypes.c_long(0))
    assert found > 0, "no memory below 4 GiB"
    return int(found)


def io_uring(facts: dict[str, Any]) -> str:
    params = ctypes.create_string_buffer(120)
    found = syscall(425, 4, ctypes.addressof(params))
    return f"through: ring {found}" if found >= 0 else held(found)


def thirty_two_bit(facts: dict[str, Any]) -> str:
    """getpid by int 0x80: where that works, so does every 32-bit call."""
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    found = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    return "through: called" if found == os.getpid() else held(found)


def new_namespace(facts: dict[str, Any]) -> str:
    """By clone(2) and by unshare(2): each opens half of the kernel's mount code."""
    if libc.unshare(CLONE_NEWUSER) == 0:
        return "through: unshared"
    first = ctypes.get_errno()
    child = syscall(56 if IS_X86 else 220, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
        return "through: cloned"
    return held(first)


def keyring(facts: dict[str, Any]) -> str:
    found = syscall(250 if IS_X86 else 219, 0, -3, 0)  # KEYCTL_GET_KEYRING_ID, session
    return "through: keyring" if found >= 0 or found == -errno.ENOKEY else held(found)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        facts = json.load(file)
    for name in sys.argv[2:]:
        # Each in a process of its own: some change what the next would find.
        child = os.fork()
        if child == 0:
            print(name, globals()[name](facts), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
