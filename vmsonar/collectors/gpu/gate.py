"""The one gate to NVML (nvml.h, through nvidia-ml-py): every error comes out as a fault of known reach."""

import _ctypes
import ctypes
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from vmsonar.collectors.gpu.faults import DriverFault, GpuFault, ValueFault, at_opening, fault_of


class Nvml:
    """The library, opened late and closed again; used by one thread only."""

    def __init__(self, library: Path | None = None) -> None:
        self._library = library
        self._module: Any = None
        self._error: type[Exception] = Exception
        self._functions: dict[str, Callable[..., Any] | None] = {}

    def open(self) -> None:
        """Loads and initialises the library, or raises DriverFault."""
        self._module = self._import()
        self._error = self._module.NVMLError
        self._preload()
        try:
            self.call("nvmlInitWithFlags", 0)
        except GpuFault as fault:
            # the library of an upgraded driver can be loaded only once the old one is dropped
            self._unload()
            raise at_opening(fault) from None

    def call(self, name: str, *arguments: Any) -> Any:
        """What the function returns; raises ValueFault, DeviceFault or DriverFault."""
        function = self._functions.get(name)
        if function is None:
            function = self._find(name)
        try:
            return function(*arguments)
        except self._error as error:
            raise fault_of(getattr(error, "value", 999)) from None
        except UnicodeDecodeError:
            raise ValueFault("unknown_error", lasting=False) from None

    def close(self) -> None:
        """Shuts the library down; a driver that is gone cannot stop us from that."""
        if self._module is None:
            return
        with suppress(GpuFault):
            self.call("nvmlShutdown")
        self._module = None

    def _unload(self) -> None:
        module, self._module = self._module, None
        library = getattr(module, "nvmlLib", None)
        if library is None:
            return
        module.nvmlLib = None
        getattr(module, "_nvmlGetFunctionPointer_cache", {}).clear()
        _ctypes.dlclose(library._handle)

    def _import(self) -> Any:
        try:
            return import_module("pynvml")
        except ImportError:
            raise DriverFault(
                "missing_extra", "NVIDIA GPUs need an extra that is not installed: pip install 'vmsonar[gpu]'"
            ) from None

    def _preload(self) -> None:
        if self._library is None or self._module.nvmlLib is not None:
            return
        try:
            self._module.nvmlLib = ctypes.CDLL(str(self._library))
        except OSError:
            raise DriverFault("library_not_found") from None

    def _find(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(self._module, name, None)
        if function is None:
            raise fault_of(13)
        self._functions[name] = function
        return function
