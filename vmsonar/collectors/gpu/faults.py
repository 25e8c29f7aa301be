"""What an error of a driver means for us: one value is missing, one device is in trouble, or the whole driver is."""

from enum import Enum, auto


class Scope(Enum):
    """How far an error reaches."""

    VALUE = auto()
    DEVICE = auto()
    DRIVER = auto()


class GpuFault(Exception):
    """A failure with the stable word that stands in rows and gaps."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


class ValueFault(GpuFault):
    """This value cannot be had; `lasting` when asking again is pointless until the driver is opened anew."""

    def __init__(self, reason: str, lasting: bool) -> None:
        super().__init__(reason)
        self.lasting = lasting


class DeviceFault(GpuFault):
    """This device cannot be read; the others can."""


class DriverFault(GpuFault):
    """No device can be read."""


NO_PERMISSION = "no_permission"


NOT_FOUND = "not_found"


TIMEOUT = "timeout"


#: nvmlReturn_t of nvml.h.
_WORDS: dict[int, tuple[str, Scope]] = {
    0: ("no_data", Scope.VALUE),
    1: ("uninitialized", Scope.DRIVER),
    2: ("invalid_argument", Scope.VALUE),
    3: ("not_supported", Scope.VALUE),
    4: (NO_PERMISSION, Scope.VALUE),
    6: (NOT_FOUND, Scope.VALUE),
    8: ("insufficient_power", Scope.DEVICE),
    9: ("driver_not_loaded", Scope.DRIVER),
    10: (TIMEOUT, Scope.DRIVER),
    11: ("irq_issue", Scope.DEVICE),
    12: ("library_not_found", Scope.DRIVER),
    13: ("function_not_found", Scope.VALUE),
    15: ("gpu_is_lost", Scope.DEVICE),
    16: ("reset_required", Scope.DEVICE),
    17: ("operating_system", Scope.DEVICE),
    18: ("library_version_mismatch", Scope.DRIVER),
    21: ("no_data", Scope.VALUE),
    28: ("gpu_not_found", Scope.DEVICE),
    999: ("unknown_error", Scope.VALUE),
}


_LASTING = {3, 13}


def fault_of(code: int) -> GpuFault:
    """The fault that an NVML return code stands for."""
    word, scope = _WORDS.get(code, (f"nvml_error_{code}", Scope.VALUE))
    if scope is Scope.VALUE:
        return ValueFault(word, lasting=code in _LASTING)
    return DeviceFault(word) if scope is Scope.DEVICE else DriverFault(word)


def at_opening(fault: GpuFault) -> DriverFault:
    """Whatever goes wrong while the driver is opened is the driver's fault."""
    return fault if isinstance(fault, DriverFault) else DriverFault(fault.reason, fault.detail)
