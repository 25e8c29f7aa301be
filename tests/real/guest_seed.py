"""cloud-init's NoCloud seed on a guest's disk (cloud-init documentation, "NoCloud")."""

from pathlib import Path

# Without a network there is nothing to configure, and no locale but C.UTF-8 is installed.
SETTINGS = "datasource_list: [ NoCloud ]\nlocale: C.UTF-8\n"


def write_seed(root: Path, user_data: str, instance_id: str, host_name: str) -> None:
    seed = root / "var/lib/cloud/seed/nocloud"
    seed.mkdir(parents=True, exist_ok=True)
    (seed / "user-data").write_text(user_data)
    (seed / "meta-data").write_text(f"instance-id: {instance_id}\nlocal-hostname: {host_name}\n")
    (seed / "network-config").write_text("version: 2\nethernets: {}\n")
    (root / "etc/cloud/cloud.cfg.d/90_tests.cfg").write_text(SETTINGS)
