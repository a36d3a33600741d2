"""What only Linux has: namespaces, mounts, capabilities, seccomp. Nothing here runs elsewhere.

No module here imports `ctypes` or `fcntl` at its top: an import must work everywhere. Failures
are `OSError` with the call's name.
"""
