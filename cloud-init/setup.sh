#!/bin/sh
# Installs vmsonar into /opt/vmsonar and makes it a service. Safe to run again, and on an image that has it already.
# One of these says what is installed; nothing is taken whose hash was not given:
# VMSONAR_SINGLE    a single-file build, by its full path or https:// URL, with its hash in VMSONAR_SHA256
# VMSONAR_WHEELS    a folder with wheels and requirements.txt, as `make wheelhouse` makes it: nothing is fetched
# VMSONAR_INDEX     the URL of a package index that is yours, with a file of versions and hashes in VMSONAR_REQUIREMENTS
# The arguments go to `vmsonar install`.
set -eu
place=/opt/vmsonar

# refuse REASON: one line, and nothing is installed.
refuse() {
    echo "vmsonar-setup: $1" >&2
    exit 2
}

# fetch FROM SHA256 TO: within five minutes, and nothing else than what was meant.
fetch() {
    python3 -I - "$@" <<'END'
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
    [ -n "${VMSONAR_SHA256:-}" ] || refuse "VMSONAR_SINGLE needs VMSONAR_SHA256, which sha256sum prints"
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
    [ -f "$VMSONAR_WHEELS/requirements.txt" ] ||
        refuse "there is no $VMSONAR_WHEELS/requirements.txt: build the folder with make wheelhouse and put it on the image"
    # Its own pip does where Debian's python3-venv is not installed.
    pip=$(find "$VMSONAR_WHEELS" -name 'pip-*.whl')
    [ -x "$place/bin/python" ] || python3 -I -m venv ${pip:+--without-pip} "$place"
    repair=--force-reinstall
    if "$place/bin/vmsonar" --version >/dev/null 2>&1; then repair=; fi
    PYTHONPATH=$pip "$place/bin/python" -P -m pip install --quiet ${repair:+"$repair"} --disable-pip-version-check --no-index \
        --find-links "$VMSONAR_WHEELS" --require-hashes --requirement "$VMSONAR_WHEELS/requirements.txt"
    rm -f "$place/single-file.sha256"
elif [ -n "${VMSONAR_INDEX:-}" ]; then
    [ -f "${VMSONAR_REQUIREMENTS:-}" ] || refuse "VMSONAR_INDEX needs VMSONAR_REQUIREMENTS, a file of versions with their hashes"
    [ -x "$place/bin/python" ] || python3 -I -m venv "$place"
    # No other index by a configuration, and nothing that would be built with what nobody gave the hash of.
    PIP_CONFIG_FILE=/dev/null "$place/bin/python" -P -m pip --isolated install --quiet --disable-pip-version-check --index-url \
        "$VMSONAR_INDEX" --only-binary :all: --require-hashes --requirement "$VMSONAR_REQUIREMENTS"
    rm -f "$place/single-file.sha256"
else
    refuse "say what to install by VMSONAR_WHEELS, VMSONAR_SINGLE or VMSONAR_INDEX: no name is looked up in a public index"
fi
ln -sf "$place/bin/vmsonar" /usr/local/bin/vmsonar
exec "$place/bin/vmsonar" install "$@"
