#!/usr/bin/env bash
# Build the image in which scripts/podman/run.sh tries worlds. ENGINE=docker takes Docker.
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
exec "${ENGINE:-podman}" build -t substrate-world -f "$here/Containerfile" "$here"
