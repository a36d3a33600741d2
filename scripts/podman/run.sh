#!/usr/bin/env bash
# Run a command in the image, with this repository at /src and what worlds need.
#
#   scripts/podman/run.sh                                    check, then the whole playbook
#   scripts/podman/run.sh bash                               a shell
#   ENGINE=docker scripts/podman/run.sh …                    Docker in the place of Podman
#   STRICT=1 scripts/podman/run.sh …                         no rights beyond the engine's defaults
#
# The project a command works on lies on a volume: an overlay (the image's own file system) cannot
# hold another overlay's upper layer.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
engine=${ENGINE:-podman}

options=(--rm -i -v "$root:/src:ro" -v substrate-scratch:/scratch -e TMPDIR=/scratch -e HOME=/scratch)
[ -t 0 ] && [ -t 1 ] && options+=(-t)
if [ -z "${STRICT:-}" ]; then
    options+=(--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined)
    case $engine in
        *podman) options+=(--security-opt unmask=ALL --security-opt label=disable) ;;
        *) options+=(--security-opt systempaths=unconfined) ;;
    esac
fi
[ $# -gt 0 ] || set -- bash -c '
    /src/scripts/check-container-prereqs
    rm -rf /scratch/src && cp -a /src /scratch/src && exec /scratch/src/scripts/validate-world'
exec "$engine" run "${options[@]}" substrate-world "$@"
