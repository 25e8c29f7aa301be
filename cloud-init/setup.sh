#!/bin/sh
# Installs vmsonar into /opt/vmsonar and makes it a service. Safe to run again, and on an image that has it already.
# One of these says what is installed:
# VMSONAR_SINGLE    a single-file build, by its full path or https:// URL, with its hash in VMSONAR_SHA256
# VMSONAR_WHEELS    a folder with wheels and requirements.txt: nothing is then fetched from an index
# VMSONAR_PACKAGE   what pip is to install (default: vmsonar)
# The arguments go to `vmsonar install`.
set -eu
place=/opt/vmsonar

# fetch FROM SHA256 TO: within five minutes, and nothing else than what was meant.
fetch() {
    python3 - "$@" <<'END'
import hashlib, signal, sys, urllib.request
source, wanted, target = sys.argv[1:]
shown = source.split("?")[0]
signal.alarm(300)
try:
    if not source.startswith(("/", "https://")):
        sys.exit(f"vmsonar-setup: {shown} is neither a full path nor https://")
    opened = open(source, "rb") if source[0] == "/" else urllib.request.urlopen(source, timeout=30)
    digest, size = hashlib.sha256(), 0
    with opened, open(target, "wb") as file:
        while size <= 1 << 30 and (chunk := opened.read(1 << 20)):
            size += file.write(chunk)
            digest.update(chunk)
except OSError as error:
    sys.exit(f"vmsonar-setup: cannot get {shown}: {error}")
if digest.hexdigest() != wanted:
    sys.exit(f"vmsonar-setup: {shown} is not what was meant: its SHA-256 is {digest.hexdigest()}")
END
}

if [ -n "${VMSONAR_SINGLE:-}" ]; then
    stamp="$place/single-file.sha256"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$VMSONAR_SHA256" ] || ! "$place/bin/vmsonar" --version >/dev/null 2>&1; then
        folder=$(mktemp -d)
        trap 'rm -rf "$folder"' EXIT
        fetch "$VMSONAR_SINGLE" "$VMSONAR_SHA256" "$folder/vmsonar.pyz"
        python3 -I "$folder/vmsonar.pyz" "$@"
        echo "$VMSONAR_SHA256" >"$stamp"
        exit
    fi
elif [ -n "${VMSONAR_WHEELS:-}" ]; then
    # Its own pip does where Debian's python3-venv is not installed.
    pip=$(find "$VMSONAR_WHEELS" -name 'pip-*.whl')
    [ -x "$place/bin/python" ] || python3 -m venv ${pip:+--without-pip} "$place"
    repair=--force-reinstall
    if "$place/bin/vmsonar" --version >/dev/null 2>&1; then repair=; fi
    PYTHONPATH=$pip "$place/bin/python" -m pip install --quiet ${repair:+"$repair"} --disable-pip-version-check --no-index \
        --find-links "$VMSONAR_WHEELS" --require-hashes --requirement "$VMSONAR_WHEELS/requirements.txt"
    rm -f "$place/single-file.sha256"
else
    [ -x "$place/bin/python" ] || python3 -m venv "$place"
    "$place/bin/pip" install --quiet --upgrade "${VMSONAR_PACKAGE:-vmsonar}"
    rm -f "$place/single-file.sha256"
fi
ln -sf "$place/bin/vmsonar" /usr/local/bin/vmsonar
exec "$place/bin/vmsonar" install "$@"
