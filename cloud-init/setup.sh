#!/bin/sh
# Installs vmsonar into /opt/vmsonar and makes it a service. Safe to run again, and on an image that has it already.
# VMSONAR_PACKAGE   what pip is to install (default: vmsonar)
# VMSONAR_WHEELS    a folder with wheels and requirements.txt: nothing is then fetched from an index
# The arguments go to `vmsonar install`.
set -eu
place=/opt/vmsonar

[ -x "$place/bin/python" ] || python3 -m venv "$place"
if [ -n "${VMSONAR_WHEELS:-}" ]; then
    "$place/bin/pip" install --quiet --no-index --find-links "$VMSONAR_WHEELS" \
        --require-hashes --requirement "$VMSONAR_WHEELS/requirements.txt"
else
    "$place/bin/pip" install --quiet --upgrade "${VMSONAR_PACKAGE:-vmsonar}"
fi
ln -sf "$place/bin/vmsonar" /usr/local/bin/vmsonar
exec "$place/bin/vmsonar" install "$@"
