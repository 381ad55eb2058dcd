"""The constant tensors of exported programs, each storage once, as storages of the program."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import torch

from coilpack.compiler.bundle import StorageContent
from coilpack.compiler.capture.bindings import WeightRef
from coilpack.runtime.dtypes import DType
from coilpack.runtime.errors import UnsupportedError
from coilpack.runtime.program import ir


@dataclass
class Weights:
    """Storages collected so far.

    Tensors that share memory share a storage, and so do tensors with equal bytes, whatever function they come from.

    Args:
        elsewhere: SHA-256 digests (hex) of contents that are on disk already; other contents are kept with the storage.

    Attributes:
        storages: what was found, by name.
    """

    elsewhere: frozenset[str] = frozenset()
    storages: dict[str, StorageContent] = field(default_factory=dict)
    _by_content: dict[tuple[int, str], ir.Storage] = field(default_factory=dict)
    _by_address: dict[tuple[int, int], ir.Storage] = field(default_factory=dict)
    _alive: list[torch.Tensor] = field(default_factory=list)  # keeps addresses from being used again

    def add(self, name: str, tensor: torch.Tensor) -> WeightRef:
        """Where `tensor` lies; adds its storage, named `name`, if its bytes are not there yet.

        Raises:
            UnsupportedError: the tensor is not a plain CPU tensor.
        """
        check_plain(name, tensor)
        memory = tensor.untyped_storage()
        address = (memory.data_ptr(), memory.nbytes())
        if address not in self._by_address:
            self._by_address[address] = self._store(name, tensor)
            self._alive.append(tensor)
        return WeightRef(self._by_address[address], int(tensor.storage_offset()) * tensor.element_size())

    def _store(self, name: str, tensor: torch.Tensor) -> ir.Storage:
        view = _bytes_of(tensor)
        digest = hashlib.sha256(view).hexdigest()
        content = (view.nbytes, digest)
        if content not in self._by_content:
            unique = self._unique(name)
            self._by_content[content] = ir.Storage(unique, view.nbytes)
            data = None if digest in self.elsewhere else bytes(view)
            self.storages[unique] = StorageContent(*_described(tensor, view.nbytes), digest, data)
        return self._by_content[content]

    def _unique(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self.storages:
            candidate, number = f"{name}_{number}", number + 1
        return candidate


def check_plain(name: str, tensor: torch.Tensor) -> None:
    """Raises `UnsupportedError` unless the weight or state `name` is a plain CPU tensor."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or type(tensor).__name__ == "FakeTensor":
        kind = f"{tensor.layout} tensor on {tensor.device}"
        raise UnsupportedError(f"weight {name!r} is a {kind}; export dense tensors on the CPU")


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """All bytes of the tensor's storage, without a copy."""
    flat = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return flat.numpy().data.cast("B") if flat.numel() else memoryview(b"")


def _described(tensor: torch.Tensor, nbytes: int) -> tuple[DType, tuple[int, ...]]:
    """Type and shape under which a storage is listed: the tensor's if it fills it, else plain bytes."""
    whole = tensor.is_contiguous() and tensor.numel() * tensor.element_size() == nbytes
    try:
        dtype = DType.from_numpy_name(str(tensor.dtype).removeprefix("torch."))
    except KeyError:
        whole = False
    return (dtype, tuple(tensor.shape)) if whole else (DType.ui8, (nbytes,))
