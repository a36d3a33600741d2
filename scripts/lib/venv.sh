# shellcheck shell=bash
# shellcheck disable=SC2034  # $fresh is for the script that sources this one
# Makes and reuses the virtual environments of scripts/test and scripts/tour. Source it.
#
#   say TEXT                    one line of progress
#   find_python                 sets $python to a Python of at least 3.11
#   make_venv DIR NAME INPUT…   a venv at DIR; after it, `fresh` says whether INPUTs changed
#   mark_venv DIR NAME INPUT…   remember INPUTs, once what they ask for is installed

say() { printf '%s\n' "== $*"; }

die() {
    printf '%s\n' "error: $1" >&2
    [ -z "${2:-}" ] || printf '%s\n' "hint: $2" >&2
    exit 3
}

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            return 0
        fi
    done
    die "no Python 3.11 or later on PATH" "install one, or name it: PYTHON=/path/to/python3 $0"
}

# What an installation depends on: the interpreter and the bytes of the inputs.
_fingerprint() {
    "$python" - "$@" <<'PY'
import hashlib, pathlib, sys

digest = hashlib.sha256(f"{sys.version}{sys.executable}".encode())
for name in sys.argv[1:]:
    root = pathlib.Path(name)
    files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
    for file in files:
        if "__pycache__" not in file.parts:
            data = file.read_bytes()
            digest.update(f"{file}\0{len(data)}\0".encode("utf-8", "surrogateescape") + data)
print(digest.hexdigest())
PY
}

make_venv() {
    local dir=$1 name=$2
    shift 2
    # The distribution was once called `substrate`: pip would leave its files beside the new ones.
    if [ ! -x "$dir/bin/python" ] || ! "$dir/bin/python" -c '' 2>/dev/null ||
        compgen -G "$dir/lib/python*/site-packages/substrate-[0-9]*.dist-info" >/dev/null; then
        rm -rf -- "$dir"
        "$python" -m venv "$dir" ||
            die "could not make a virtual environment at $dir" \
                "Debian and Ubuntu: apt-get install python3-venv"
    fi
    fresh=no
    [ "$(cat "$dir/.installed-$name" 2>/dev/null)" = "$(_fingerprint "$@")" ] && fresh=yes
    return 0
}

mark_venv() {
    local dir=$1 name=$2
    shift 2
    _fingerprint "$@" >"$dir/.installed-$name"
}

# Twice quiet: a warning about this machine's own pip settings is not for our reader.
pip_install() {
    local dir=$1
    shift
    "$dir/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input "$@"
}
