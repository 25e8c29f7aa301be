"""Trees of sysfs and procfs as real cards show them: an MI250, an integrated AMD, an Intel i915 and an xe."""

from tests.collectors.gpu.conftest import Machine

GIB = 1 << 30


def card(
    machine: Machine, number: int, driver: str, address: str, pci_id: str, files: dict[str, str | int]
) -> None:
    """One card; names that begin with `card/` are beside its device."""
    root = machine.host.sys / f"class/drm/card{number}"
    uevent = f"DRIVER={driver}\nPCI_CLASS=38000\nPCI_ID={pci_id}\nPCI_SLOT_NAME={address}"
    machine.write(root / "device", {"uevent": uevent})
    # connectors stand beside the cards
    machine.write(machine.host.sys / f"class/drm/card{number}-DP-1", {"status": "disconnected"})
    for name, content in files.items():
        folder, name = (
            (root, name.removeprefix("card/")) if name.startswith("card/") else (root / "device", name)
        )
        machine.write(folder, {name: content})


def mi250(machine: Machine) -> None:
    """Two dies of one MI250, each a card and a KFD node of its own; only the first has the power of both."""
    for number, address, unique in (
        (1, "0000:31:00.0", "9c5d4b2f1a0e7733"),
        (2, "0000:34:00.0", "51d2cc9f80b3a4e1"),
    ):
        power: dict[str, str | int] = {"hwmon/hwmon4/power1_average": 312_000_000} if number == 1 else {}
        card(
            machine,
            number,
            "amdgpu",
            address,
            "1002:740C",
            {
                "unique_id": unique,
                "product_name": "AMD INSTINCT MI250 (MCM) OAM AC MBA",
                "vbios_version": "113-D65208-073",
                "power/runtime_status": "active",
                "gpu_busy_percent": 98,
                "mem_busy_percent": 41,
                "mem_info_vram_total": 64 * GIB,
                "mem_info_vram_used": 20 * GIB,
                "pp_dpm_sclk": "0: 500Mhz\n1: 800Mhz *\n2: 1700Mhz",
                "pp_dpm_mclk": "0: 400Mhz\n1: 1600Mhz *",
                "ras/umc_err_count": "ue: 1\nce: 4",
                "ras/sdma_err_count": "ue: 0\nce: 3",
                "ras/features": "feature mask: 0x7",
                "hwmon/hwmon4/name": "amdgpu",
                "hwmon/hwmon4/power1_cap": 560_000_000,
                "hwmon/hwmon4/power1_cap_min": 0,
                "hwmon/hwmon4/power1_cap_max": 560_000_000,
                "hwmon/hwmon4/temp1_input": 54_000,
                "hwmon/hwmon4/freq1_input": 1_650_000_000,
                "hwmon/hwmon4/freq2_input": 1_600_000_000,
                **power,
            },
        )
    machine.write(machine.host.sys, {"module/amdgpu/version": "6.7.0"})
    _kfd(machine)


def _kfd(machine: Machine) -> None:
    topology = "class/kfd/kfd/topology/nodes"
    machine.write(
        machine.host.sys, {f"{topology}/0/gpu_id": 0, f"{topology}/0/properties": "cpu_cores_count 64"}
    )
    for node, gpu_id, location in ((1, 51001, 0x3100), (2, 51002, 0x3400)):
        facts = f"simd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\nlocation_id {location}\ndomain 0"
        machine.write(
            machine.host.sys, {f"{topology}/{node}/gpu_id": gpu_id, f"{topology}/{node}/properties": facts}
        )


def kfd_process(machine: Machine, pid: int, gpu_id: int, memory: int, occupied: int | None) -> None:
    files: dict[str, str | int] = {f"vram_{gpu_id}": memory, f"sdma_{gpu_id}": 12}
    if occupied is not None:
        files[f"stats_{gpu_id}/cu_occupancy"] = occupied
    machine.write(machine.host.sys / f"class/kfd/kfd/proc/{pid}", files)


def integrated_amd(machine: Machine) -> None:
    """A Phoenix APU: memory carved out of the system's, power as input, no unique id."""
    card(
        machine,
        0,
        "amdgpu",
        "0000:c1:00.0",
        "1002:15BF",
        {
            "power/runtime_status": "active",
            "gpu_busy_percent": 7,
            "mem_info_vram_total": 4 * GIB,
            "mem_info_vram_used": 512 << 20,
            "hwmon/hwmon2/name": "amdgpu",
            "hwmon/hwmon2/power1_input": 9_080_000,
            "hwmon/hwmon2/temp1_input": 43_000,
            "hwmon/hwmon2/freq1_input": 800_000_000,
        },
    )


def i915(machine: Machine) -> None:
    """An Arc A770 on i915."""
    card(
        machine,
        0,
        "i915",
        "0000:03:00.0",
        "8086:56A0",
        {
            "card/gt/gt0/rps_act_freq_mhz": 2100,
            "card/gt/gt0/rps_RP0_freq_mhz": 2400,
            "hwmon/hwmon3/name": "i915",
            "hwmon/hwmon3/energy1_input": 123_456_789_012,
            "hwmon/hwmon3/power1_max": 190_000_000,
            "hwmon/hwmon3/power1_rated_max": 190_000_000,
        },
    )


def xe(machine: Machine) -> None:
    """A Battlemage B580 on xe, with its limit switched off."""
    card(
        machine,
        1,
        "xe",
        "0000:04:00.0",
        "8086:E20B",
        {
            "tile0/gt0/freq0/act_freq": 2850,
            "tile0/gt0/freq0/rp0_freq": 2900,
            "hwmon/hwmon5/name": "xe",
            "hwmon/hwmon5/energy1_input": 987_654_321,
            "hwmon/hwmon5/power1_max": 0,
            "hwmon/hwmon5/temp2_input": 48_000,
        },
    )


def client(machine: Machine, pid: int, descriptor: int, **facts: str | int) -> None:
    """A descriptor open on a DRM device; `drm_pdev` stands for `drm-pdev`."""
    folder = machine.host.proc / str(pid)
    text = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t450\n"
    text += "".join(f"{key.replace('_', '-')}:\t{value}\n" for key, value in facts.items())
    machine.write(folder / "fdinfo", {str(descriptor): text})
    link = folder / "fd" / str(descriptor)
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to("/dev/dri/renderD128")
