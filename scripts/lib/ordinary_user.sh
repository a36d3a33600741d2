# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034  # $python and $root come from the script that sources this one
# The tests as an ordinary user, when root runs them. Source it after venv.sh.
#
#   as_ordinary_user run_tests WORD…
#                                1. makes a user, and a place that the user can read: a copy of the
#                                   checkout, and a venv on a Python that the user can execute
#                                2. calls run_tests with that user's python, in the copy
#                                3. removes all of it
# Sets $user_python, $user_words (what starts a program as the user) and $user_place for run_tests.

as_ordinary_user() {
    local run=$1 status=0
    shift
    user_name='' user_place='' user_ids=''
    trap remove_user_place EXIT
    make_user_place || return 1
    if ! find_user_python; then
        remove_user_place
        say "no Python 3.11 or later that an ordinary user can execute: these tests do not run"
        say "Debian and Ubuntu: apt-get install python3 python3-venv"
        # Without CI it may be so on this machine; in CI these tests must not be left out.
        [ -z "${CI:-}" ]
        return
    fi
    { make_user_venv && "$run" "$@"; } || status=$?
    remove_user_place
    return "$status"
}

make_user_place() {
    # A short name: the paths of sockets have 108 bytes.
    user_place=$(mktemp -d /tmp/su.XXXXXX) || return 1
    chmod 755 "$user_place"
    if command -v useradd >/dev/null && useradd --system --no-create-home \
        --home-dir "$user_place/home" --shell /bin/bash "substrate-test-$$" 2>/dev/null; then
        user_name=substrate-test-$$
        user_ids=$(id -u "$user_name"):$(id -g "$user_name")
    else
        user_ids=$(free_uid)
        user_ids=$user_ids:$user_ids
    fi
    mkdir "$user_place/home" "$user_place/t"
    chown "$user_ids" "$user_place/home" "$user_place/t"
    user_words=("$python" "$root/scripts/lib/start.py" --as "$user_ids:$user_place/home")
}

# A number that belongs to no account: as good as one, but for its name.
free_uid() {
    local number=58000
    while getent passwd "$number" >/dev/null || getent group "$number" >/dev/null; do
        number=$((number + 1))
    done
    printf '%s\n' "$number"
}

find_user_python() {
    local candidate
    for candidate in /usr/bin/python3 /usr/local/bin/python3 "$(command -v "$python")"; do
        try_user_python "$candidate" && return 0
    done
    command -v apt-get >/dev/null || return 1
    say "installing python3 and python3-venv for the ordinary user"
    apt-get install -qq -y python3 python3-venv >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -qq -y python3 python3-venv; } >/dev/null 2>&1
    try_user_python /usr/bin/python3
}

try_user_python() {
    "${user_words[@]}" "$1" -c '
import ensurepip, sqlite3, sys, venv
sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || return 1
    user_base_python=$1
}

# The checkout may be shut to the user, so a copy is tested. The package is installed by root, as a
# system's package is.
make_user_venv() {
    say "installing everything for the ordinary user ($user_base_python)"
    mkdir "$user_place/checkout"
    tar -C "$root" --exclude=./.git --exclude='./.venv*' --exclude=./dist --exclude=__pycache__ \
        --exclude='./.*_cache' --exclude=./.hypothesis -cf - . |
        tar -C "$user_place/checkout" --no-same-owner -xf - || return 1
    "$user_base_python" -m venv "$user_place/venv" || return 1
    pip_install "$user_place/venv" --require-hashes -r requirements-dev.lock || return 1
    pip_install "$user_place/venv" --no-deps --no-build-isolation --no-index "$root" || return 1
    chmod -R a+rX "$user_place/venv" "$user_place/checkout"
    chown -R "$user_ids" "$user_place/checkout"
    user_python=$user_place/venv/bin/python
}

# Everything that runs as this user was started by its tests.
remove_user_place() {
    trap - EXIT
    [ -n "$user_place" ] || return 0
    [ -z "$user_ids" ] || pkill -KILL -u "${user_ids%%:*}" || true
    [ -z "$user_name" ] || userdel "$user_name" || say "could not remove the user $user_name"
    rm -rf --one-file-system -- "$user_place" || say "could not remove all of $user_place"
}
