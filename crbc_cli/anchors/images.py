"""Pictures as anchors: what counts is the decoded pixels, not how a file compressed them."""

import base64
import binascii
import io
from pathlib import Path
from typing import Any

from crbc_cli.anchors.canonical import digest
from crbc_cli.errors import InputError, OptionError

__all__ = ["picture_named", "with_pixels"]

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_SUFFIXES = (".png", ".jpg", ".jpeg")
_DEEP = ("I", "F")


def with_pixels(value: Any) -> Any:
    """A logged value with the encoded images in it as pixels.

    PNG and JPEG bytes become (size, mode, pixel bytes); so does an object that holds such bytes in
    a member `bytes`, as image columns of data sets do. Bytes that cannot be decoded stay bytes.

    Raises:
      OptionError: an image is met and Pillow is not installed.
    """
    if isinstance(value, bytes):
        return _pixels(value) if value.startswith((_PNG, _JPEG)) else value
    if isinstance(value, dict):
        data = value.get("bytes")
        if isinstance(data, bytes) and data.startswith((_PNG, _JPEG)):
            return _pixels(data)
        return {name: with_pixels(member) for name, member in value.items()}
    if isinstance(value, list) and not {int, float, str}.issuperset(map(type, value)):
        return [with_pixels(item) for item in value]
    return value


def picture_named(text: str, folder: str) -> str:
    """A digest of the picture that a text stands for: a path that ends in .png, .jpg or .jpeg, or
    a `data:` URI; any other text as it is.

    Args:
      text: logged text.
      folder: where relative paths start, "" for the current folder.
    Raises:
      InputError: the file cannot be read or is no such picture.
      OptionError: Pillow is not installed.
    """
    if text.startswith("data:image/"):
        try:
            data = base64.b64decode(text.partition("base64,")[2], validate=True)
        except binascii.Error:
            return text
    elif text.lower().endswith(_SUFFIXES) and "\n" not in text:
        try:
            data = Path(folder, text).read_bytes()
        except OSError as error:
            raise InputError(
                f"image file cannot be read ({error.strerror})",
                str(Path(folder, text)),
                "paths start from the current folder; op image_path takes another as text",
            ) from error
    else:
        return text
    pixels = _pixels(data)
    if isinstance(pixels, bytes) and not text.startswith("data:"):
        raise InputError("is no PNG or JPEG image", str(Path(folder, text)))
    return f"image {digest(pixels)}"


def _pixels(data: bytes) -> Any:
    """Size, mode and pixels; palettes and grey become colours, an opaque alpha channel is left
    out. The bytes themselves where they are no picture."""
    try:
        from PIL import Image
    except ImportError as error:
        raise OptionError(
            "the log holds images, and Pillow is not installed",
            todo="pip install 'crbc-cli[images]'",
        ) from error
    try:
        with Image.open(io.BytesIO(data)) as image:
            picture = image if image.mode.startswith(_DEEP) else image.convert("RGBA")
            if picture.mode == "RGBA" and picture.getchannel("A").getextrema() == (255, 255):
                picture = picture.convert("RGB")
            return {"size": list(picture.size), "mode": picture.mode, "pixels": picture.tobytes()}
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return data
