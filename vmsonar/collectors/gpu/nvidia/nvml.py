"""The one gate to NVML (nvml.h, through nvidia-ml-py): an error says whether a value, a GPU or the driver failed."""

import _ctypes
import ctypes
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from struct import Struct
from typing import Any

from vmsonar_archive.system.errors import way_to_add

from vmsonar.collectors.gpu.collector import DeviceFault, DriverFault, GpuFault, UnsupportedFault, ValueFault

#: nvmlReturn_t of nvml.h: how far an error reaches, and its word.
_FAULTS: dict[int, tuple[type[GpuFault], str]] = {
    0: (ValueFault, "no_data"),
    1: (DriverFault, "uninitialized"),
    2: (ValueFault, "invalid_argument"),
    3: (UnsupportedFault, "not_supported"),
    4: (ValueFault, "no_permission"),
    6: (ValueFault, "not_found"),
    8: (DeviceFault, "insufficient_power"),
    9: (DriverFault, "driver_not_loaded"),
    10: (DriverFault, "timeout"),
    11: (DeviceFault, "irq_issue"),
    12: (DriverFault, "library_not_found"),
    13: (UnsupportedFault, "function_not_found"),
    15: (DeviceFault, "gpu_is_lost"),
    16: (DeviceFault, "reset_required"),
    17: (DeviceFault, "operating_system"),
    18: (DriverFault, "library_version_mismatch"),
    21: (ValueFault, "no_data"),
    28: (DeviceFault, "gpu_not_found"),
    999: (ValueFault, "unknown_error"),
}
_NO_GPUS_IS_FINE = 1
_LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE, _FUNCTION_NOT_FOUND = 7, 13
_TRIES = 4
#: nvmlProcessInfo_v2_t, which is that of version 3 too: process, bytes, and the numbers of its MIG instances.
_PROCESS = Struct("@IQ8x")


def _fault_of(code: int) -> GpuFault:
    kind, word = _FAULTS.get(code, (ValueFault, f"nvml_error_{code}"))
    return kind(word)


def at_opening(fault: GpuFault) -> DriverFault:
    """Whatever goes wrong while the driver is opened is the driver's fault."""
    return fault if isinstance(fault, DriverFault) else DriverFault(fault.reason, fault.detail)


class Nvml:
    """The library, opened late and closed again; used by one thread only."""

    def __init__(self, library: Path | None = None) -> None:
        self._library = str(library or _LIBRARY)
        self._module: Any = None
        self._error: type[Exception] = Exception
        self._functions: dict[str, Callable[..., Any]] = {}
        self._hold: ctypes.CDLL | None = None
        self._buffer = ctypes.create_string_buffer(64 * _PROCESS.size)

    def open(self) -> None:
        """Loads and initialises the library, or raises DriverFault."""
        try:
            self._module = import_module("pynvml")
        except ImportError:
            raise DriverFault(
                "missing_extra", f"NVIDIA GPUs need an extra that is not installed: {way_to_add('gpu')}"
            ) from None
        self._error = self._module.NVMLError
        try:
            if self._module.nvmlLib is None:
                self._module.nvmlLib = ctypes.CDLL(self._library)
            # held on to: it must outlast a call of ours that hangs in it
            self._hold = ctypes.CDLL(self._library)
        except OSError:
            raise DriverFault("library_not_found") from None
        try:
            self.call("nvmlInitWithFlags", _NO_GPUS_IS_FINE)
        except GpuFault as fault:
            # the library of an upgraded driver can be loaded only once the old one is dropped
            self._unload()
            raise at_opening(fault) from None

    def call(self, name: str, *arguments: Any) -> Any:
        """What the function returns; raises ValueFault, DeviceFault or DriverFault."""
        function = self._functions.get(name)
        if function is None:
            function = getattr(self._module, name, None)
            if function is None:
                raise _fault_of(_FUNCTION_NOT_FOUND)
            self._functions[name] = function
        try:
            return function(*arguments)
        except self._error as error:
            raise _fault_of(getattr(error, "value", 999)) from None
        except UnicodeDecodeError:
            raise ValueFault("unknown_error") from None

    def processes(self, name: str, handle: Any) -> list[tuple[int, int]]:
        """Ids and bytes of the processes that a function lists; pynvml's own way asks twice and costs threefold."""
        function = getattr(self._module.nvmlLib, name, None)
        if function is None:
            raise _fault_of(_FUNCTION_NOT_FOUND)
        for _ in range(_TRIES):
            count = ctypes.c_uint(len(self._buffer) // _PROCESS.size)
            code = function(handle, ctypes.byref(count), self._buffer)
            if code != _INSUFFICIENT_SIZE:
                break
            # more may start before the next call
            self._buffer = ctypes.create_string_buffer((count.value * 2 + 8) * _PROCESS.size)
        if code != 0:
            raise _fault_of(code)
        found = memoryview(self._buffer)[: count.value * _PROCESS.size]
        return list(_PROCESS.iter_unpack(found))

    def close(self) -> None:
        """Shuts the library down; a driver that is gone cannot stop us from that."""
        if self._module is not None:
            with suppress(GpuFault):
                self.call("nvmlShutdown")
            self._let_go()

    def _unload(self) -> None:
        module = self._module
        self._let_go()
        library, module.nvmlLib = module.nvmlLib, None
        getattr(module, "_nvmlGetFunctionPointer_cache", {}).clear()
        if library is not None:
            _ctypes.dlclose(library._handle)

    def _let_go(self) -> None:
        self._module = None
        if self._hold is not None:
            _ctypes.dlclose(self._hold._handle)
            self._hold = None
