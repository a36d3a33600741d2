"""What only Linux has: namespaces, mounts, seccomp. Nothing here is imported elsewhere.

No module here imports `ctypes` or `fcntl` at its top: an import must work everywhere.
"""
