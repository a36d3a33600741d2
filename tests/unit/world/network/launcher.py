"""The smallest thing that runs a command with a network of its own: fork, hooks, exec, wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

from substrate.system.linux import netns
from substrate.world.network.command_network import CommandNetwork
from substrate.world.network.rules import parse


class Ran(NamedTuple):
    status: int
    out: str
    scopes: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    notice: str = ""
    failed: tuple[str, ...] = ()


def run(
    net: str, argv: list[str], *, user_namespace: bool = False, abstract: tuple[bytes, ...] = ()
) -> Ran:
    """Run `argv`, in a user namespace of its own if asked, as an ordinary user's world is.

    ``none`` for `net` runs it without any of this, to compare with.
    """
    if net == "none":
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return Ran(done.returncode, done.stdout + done.stderr)
    network = CommandNetwork(parse(net))
    network.refuse_abstract(abstract)
    network.before_fork()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(network, argv, writer, user_namespace=user_namespace)
    os.close(writer)
    network.parent(pid, ())
    with os.fdopen(reader, "rb") as pipe:
        out = pipe.read()
    _, status = os.waitpid(pid, 0)
    scopes = network.finish()
    return Ran(
        os.waitstatus_to_exitcode(status), out.decode(), scopes, network.denied, network.notice,
        network.failed,
    )  # fmt: skip


def run_with_killed_supervisor(net: str, argv: list[str]) -> Ran:
    """The supervisor is a process of its own, and is killed before the command may start."""
    held, let_go = os.pipe()
    told, tell = os.pipe()
    reader, writer = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        network = CommandNetwork(parse(net))
        network.before_fork()
        pid = os.fork()
        if pid == 0:
            os.close(let_go)
            _become(network, argv, writer, held=held)
        network.parent(pid, ())
        network._started.wait()
        os.write(tell, b"%d\n" % pid)
        signal.pause()
    os.close(writer)
    os.close(tell)
    os.read(told, 16)
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    os.close(let_go)
    with os.fdopen(reader, "rb") as pipe:
        out = pipe.read()
    for fd in (told, held):
        os.close(fd)
    return Ran(0, out.decode())


def _become(
    network: CommandNetwork, argv: list[str], out: int, *, user_namespace: bool = False,
    held: int | None = None,
) -> NoReturn:  # fmt: skip
    try:
        os.dup2(out, 1)
        os.dup2(out, 2)
        if user_namespace:
            netns.unshare(netns.CLONE_NEWUSER)
        network.in_child()
        if held is not None:
            os.read(held, 1)
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"not started: {error}\n")
    except BaseException:  # noqa: BLE001 - a forked child must end here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(99)


def python(code: str, *words: object) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *map(str, words)]


def compiled(directory: Path, name: str, source: str, *flags: str) -> str:
    """A small C program, for what libc or Python would not do."""
    code, program = directory / f"{name}.c", directory / name
    code.write_text(source)
    subprocess.run(["gcc", "-O1", "-o", program, code, *flags], check=True, capture_output=True)
    return str(program)
