"""Which rules a run uses: none, a file, a preset, or the preset that a log looks like."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from crbc_cli.anchors.rulefile import RuleFile, load_rules, preset_names, preset_text
from crbc_cli.errors import OptionError
from crbc_cli.notes import Notes
from crbc_cli.options import AnchorOptions

__all__ = ["EXACT", "SAMPLE_ROWS", "choose_rules", "detect_preset"]

EXACT = RuleFile(schema=1, name="exact", title="Content as logged", key=("reply",))
SAMPLE_ROWS = 2000


def choose_rules(options: AnchorOptions, sample: Sequence[pl.DataFrame], notes: Notes) -> RuleFile:
    """The rules that `--rules` or `--preset` name; exact content without either.

    Args:
      options: names them.
      sample: frames with text columns `observation` and `action`, for `--preset auto` only.
      notes: told which preset was taken and why.
    Raises:
      OptionError: an unreadable file, an unknown preset, or a log that looks like none.
    """
    if options.rules:
        try:
            text = Path(options.rules).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"rule file cannot be read ({error})", options.rules) from error
        return load_rules(text, options.rules)
    if not options.preset:
        return EXACT
    name = options.preset
    if name == "auto":
        name = detect_preset(sample, notes)
    return load_rules(preset_text(name), f"preset {name}")


def detect_preset(sample: Sequence[pl.DataFrame], notes: Notes) -> str:
    """The preset all of whose signs are met, the one with the largest margin if there are several.

    Raises:
      OptionError: no preset's signs are met.
    """
    empty = pl.DataFrame(schema={"observation": pl.String, "action": pl.String})
    rows = pl.concat([empty, *(f.select(empty.columns).head(SAMPLE_ROWS) for f in sample)])
    found: list[tuple[float, str, str]] = []
    for name in preset_names():
        signs = load_rules(preset_text(name), name).detect
        shares = [
            (float(rows[sign.column].str.contains(sign.pattern).fill_null(False).mean() or 0), sign)  # type: ignore[arg-type]
            for sign in signs
        ]
        if shares and all(share >= sign.share for share, sign in shares):
            margin = min(share / sign.share for share, sign in shares)
            why = ", ".join(
                f"{share:.0%} of {sign.column}s match {sign.pattern!r}" for share, sign in shares
            )
            found.append((margin, name, why))
    if not found:
        raise OptionError(
            "--preset auto: the log looks like none of the presets",
            todo=f"name one of {', '.join(preset_names())}, or write --rules",
        )
    _, name, why = max(found)
    notes.say("preset", f"--preset auto takes {name}: {why}")
    return name
