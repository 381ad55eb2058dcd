"""What a kernel image says of itself: PTX text or a cubin, its target, its kernels and their parameters."""

from __future__ import annotations

from coilpack.runtime.errors import InvalidFileError
from coilpack.runtime.images.cubin import describe_cubin
from coilpack.runtime.images.model import ImageInfo, ImageKind, ParamInfo
from coilpack.runtime.images.ptx import describe_ptx
from coilpack.schemas import wire

__all__ = ["ImageInfo", "ImageKind", "ParamInfo", "describe_image"]


def describe_image(
    image: bytes | memoryview, *, file: str = "image", where: str = "", kernels: bool = True
) -> ImageInfo:
    """Reads the header facts of a kernel image; whether it is PTX or a cubin is told from its bytes.

    Args:
        image: the whole image.
        file: the name of the file that holds it, for messages.
        where: the field that holds it, for messages.
        kernels: whether to look for the kernels, which takes most of the time; without them `entries` is empty.

    Raises:
        InvalidFileError: it is neither, or what it says of itself cannot be read.
    """
    if bytes(image[:4]) == wire.ELF_MAGIC:
        return describe_cubin(image, file=file, where=where, kernels=kernels)
    if not len(image):
        raise InvalidFileError(file, where, "the image is empty")
    return describe_ptx(image, file=file, where=where, kernels=kernels)
