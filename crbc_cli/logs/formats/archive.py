"""Members of a zip archive, also zstd ones (method 93), which `zipfile` reads since Python 3.14."""

import struct
import zipfile
import zlib
from pathlib import Path

from crbc_cli.errors import InputError

__all__ = ["Archive"]

_ZSTD = 93
_LOCAL_HEADER = 30  # bytes before the name; APPNOTE.TXT 4.3.7


class Archive:
    """A zip archive that is open for reading.

    Args:
      path: the file.
      name: its name for messages.
    Raises:
      InputError: no zip archive.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        try:
            with zipfile.ZipFile(path) as opened:
                self._members = {info.filename: info for info in opened.infolist()}
        except (zipfile.BadZipFile, OSError) as error:
            raise InputError(
                f"cannot be read as a zip archive ({error})", name, "check that it is whole"
            ) from error

    @property
    def names(self) -> list[str]:
        """Names of the members, in the order of the archive."""
        return list(self._members)

    def read(self, member: str) -> bytes:
        """Content of a member.

        Raises:
          InputError: it is damaged.
        """
        info = self._members[member]
        try:
            if info.compress_type != _ZSTD:
                with zipfile.ZipFile(self._path) as opened:
                    return opened.read(info)
            content = _unpack(self._raw(info))
        except (zipfile.BadZipFile, zlib.error, OSError, ValueError, struct.error) as error:
            raise InputError(
                f"member {member} is damaged ({error})", self._name, "check that it is whole"
            ) from error
        if zlib.crc32(content) != info.CRC:
            raise InputError(f"member {member} is damaged (checksum)", self._name)
        return content

    def _raw(self, info: zipfile.ZipInfo) -> bytes:
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            name, extra = struct.unpack("<26xHH", file.read(_LOCAL_HEADER))
            file.seek(name + extra, 1)
            return file.read(info.compress_size)


def _unpack(packed: bytes) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        content: bytes = stream.read()
        return content
