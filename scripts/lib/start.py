"""Start a program with default signals, on request as another user.

    start.py [--as UID:GID:HOME] PROGRAM ARG…

A job in the background, `nohup` and many supervisors ignore SIGINT, SIGQUIT or SIGHUP, and every
descendant inherits that: a test that ends something by such a signal would wait for ever.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings  # noqa: F401 (exec imports it, and the other user may not be able to read it)

argv = sys.argv[1:]
environment = dict(os.environ)
# Python itself ignores the last two.
for number in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGPIPE", "SIGXFSZ"):
    signal.signal(getattr(signal, number), signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
if argv[0] == "--as":
    uid, gid, home = argv[1].split(":", 2)
    argv = argv[2:]
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
    path = f"{os.path.dirname(argv[0])}:/usr/local/bin:/usr/bin:/bin"
    environment = {name: environment[name] for name in ("CI", "TZ") if name in environment}
    environment |= {"HOME": home, "PATH": path, "LANG": "C.UTF-8", "SHELL": "/bin/bash"}
os.execvpe(argv[0], argv, environment)
