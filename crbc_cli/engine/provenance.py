"""How an output was made: written into its metadata, so that a file explains itself."""

from collections.abc import Sequence
from typing import Any

from crbc_cli import __version__
from crbc_cli.anchors.canonical import ANCHOR_KEY_VERSION
from crbc_cli.logs.sources import Source
from crbc_cli.notes import Notes
from crbc_cli.options import Settings
from crbc_cli.tables import REPORT_SCHEMA_VERSION

__all__ = ["provenance"]


def provenance(
    command: str, settings: Settings, sources: Sequence[Source], notes: Notes
) -> dict[str, Any]:
    """Program and encoding versions, resolved options, input digests and remarks.

    Nothing in it depends on time, machine or chunking, so that equal runs give equal bytes.
    """
    return {
        "program": "crbc",
        "version": __version__,
        "schema_version": REPORT_SCHEMA_VERSION,
        "anchor_key": ANCHOR_KEY_VERSION,
        "command": command,
        "options": settings.echo(),
        "inputs": [{"name": s.name, "xxh3_128": s.digest} for s in sources],
        "notes": notes.echo(),
    }
