#!/bin/sh
# Flambeau's one command: `./go` alone lists what it can do. It needs nothing but Python 3.11+.
# This file only finds that Python; the verbs are in tools/go.py.
cd "$(dirname "$0")" || exit 1

usable='import os, sys, sysconfig, venv, ensurepip
sys.exit(sys.version_info < (3, 11)
         or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'

for python in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$python" -c "$usable" >/dev/null 2>&1; then
        exec "$python" -m tools.go "$@"
    fi
done
echo "[go] no usable Python on PATH: need 3.11 or newer with venv and its C headers" >&2
echo "hint: on Debian or Ubuntu, install python3-venv and python3-dev" >&2
exit 1
