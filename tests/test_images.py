"""Pictures as observations: what counts is what they show."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from anchor_scores import scores
from conftest import ROOT, crbc
from helpers import package_credit, prepared, write_log
from PIL import Image

import crbc_cli
from crbc_cli.anchors.images import with_pixels
from crbc_cli.errors import InputError, OptionError

Rows = list[dict[str, Any]]

RED, BLUE = (200, 0, 0), (0, 0, 200)


def picture(*, colour: tuple[int, int, int] = RED, mode: str = "RGB") -> Image.Image:
    """Twelve by eight cells, the first of them blue."""
    image = Image.new("RGB", (12, 8), colour)
    image.putpixel((0, 0), BLUE)
    return image.convert(mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def rows_of(*observations: Any) -> Rows:
    return [
        {
            "group_id": "g",
            "rollout_id": i,
            "step": 0,
            "observation": observation,
            "action": "a",
            "done": True,
            "success": True,
        }
        for i, observation in enumerate(observations)
    ]


def anchors_of(*observations: Any, **options: Any) -> list[Any]:
    return package_credit(rows_of(*observations), **options)["anchor"]


# --- bytes ----------------------------------------------------------------------------------------


def test_compression_leaves_no_mark() -> None:
    data = [encoded(picture(), compress_level=level) for level in (0, 9)]
    assert data[0] != data[1]
    assert anchors_of(*data) == [0, 0]


def test_colour_tables_grey_and_opaque_alpha_are_other_ways_to_say_it() -> None:
    grey = Image.new("L", (12, 8), 90)
    table = picture().quantize(2)
    assert table.mode == "P"
    assert table.convert("RGB").tobytes() == picture().tobytes()
    same = [encoded(image) for image in (picture(), picture(mode="RGBA"), table)]
    assert anchors_of(*same, encoded(grey), encoded(grey.convert("RGB"))) == [0, 0, 0, 1, 1]


def test_every_pixel_counts() -> None:
    other = picture()
    other.putpixel((11, 7), BLUE)
    clear = picture(mode="RGBA")
    clear.putalpha(90)
    wide = Image.new("RGB", (8, 12), RED)
    pictures = [picture(), other, picture(colour=BLUE), clear, wide]
    assert anchors_of(*map(encoded, pictures)) == [0, 1, 2, 3, 4]


def test_jpeg_counts_as_it_decodes() -> None:
    """The same picture in two qualities shows two things; in one quality it shows one."""
    image = picture()
    best, good = (encoded(image, "JPEG", quality=quality) for quality in (95, 20))
    shown = Image.open(io.BytesIO(best))
    assert anchors_of(best, good, encoded(shown), best) == [0, 1, 0, 0]


def test_image_columns_of_data_sets() -> None:
    """A struct of bytes and a path: the name of the file says nothing."""
    cells = [
        {"bytes": encoded(picture(), compress_level=level), "path": f"{level}.png"}
        for level in (0, 9)
    ]
    assert anchors_of(*cells, {"bytes": encoded(picture(colour=BLUE)), "path": "0.png"}) == [
        0,
        0,
        1,
    ]


def test_pictures_inside_messages() -> None:
    chats = [
        [{"role": "user", "content": [{"type": "image", "image": encoded(picture(), **level)}]}]
        for level in ({"compress_level": 0}, {"compress_level": 9})
    ]
    assert anchors_of(*chats) == [0, 0]


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff", encoded(picture())[:40], b"\xff\xd8\xff\xe0 not a jpeg"]
)
def test_what_cannot_be_decoded_stays_bytes(data: bytes) -> None:
    assert with_pixels(data) == data
    assert anchors_of(data, data, data + b"!") == [0, 0, 1]


def test_ids_are_those_of_the_pixels(tmp_path: Path) -> None:
    """In Parquet, with content ids, and the same in every file."""
    found = []
    for level in (0, 9):
        log = rows_of(encoded(picture(), compress_level=level), encoded(picture(colour=BLUE)))
        path = write_log(log, tmp_path / f"{level}.parquet")
        output = tmp_path / f"{level}.credit.parquet"
        crbc_cli.annotate([str(path)], str(output), anchor_id=True)
        found.append(pl.read_parquet(output)["anchor_id"].to_list())
    assert found[0] == found[1]
    assert len(set(found[0])) == 2


# --- paths and URIs -------------------------------------------------------------------------------

RULES = """schema = 1
name = "frames"
title = "Frames"
reply = [{{ op = "image_path", text = "{folder}" }}]
"""


def with_files(folder: Path) -> tuple[list[str], str]:
    """Two files of one picture and one of another, and rules that look for them in the folder."""
    for name, image, options in (
        ("a.png", picture(), {"compress_level": 0}),
        ("b.PNG", picture(), {"compress_level": 9}),
        ("c.png", picture(colour=BLUE), {}),
    ):
        (folder / name).write_bytes(encoded(image, **options))
    rules = folder / "rules.toml"
    rules.write_text(RULES.format(folder=folder), "utf-8")
    return ["a.png", "b.PNG", "c.png"], str(rules)


def test_paths_stand_for_what_the_files_show(tmp_path: Path) -> None:
    names, rules = with_files(tmp_path)
    assert anchors_of(*names) == [0, 1, 2]
    assert anchors_of(*names, None, "plain text", rules=rules) == [0, 0, 1, None, 2]


def test_paths_start_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, _ = with_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert anchors_of(*names, preset="sokoban-rgb") == [0, 0, 1]
    assert anchors_of(*names, str(tmp_path / "a.png"), preset="sokoban-rgb") == [0, 0, 1, 0]


def test_data_uris() -> None:
    same, other = (
        f"data:image/png;base64,{base64.b64encode(encoded(picture(), compress_level=n)).decode()}"
        for n in (0, 9)
    )
    assert same != other
    assert anchors_of(same, other, "data:image/png;base64,?", preset="sokoban-rgb") == [0, 0, 1]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_missing_file_is_refused_in_one_line(suffix: str, tmp_path: Path) -> None:
    names, rules = with_files(tmp_path)
    path = write_log(rows_of(*names, "gone.png"), tmp_path / f"log{suffix}")
    line = crbc("coverage", path, "--rules", rules).refused()
    assert "gone.png: image file cannot be read (No such file or directory)" in line
    (tmp_path / "gone.png").write_text("no picture")
    assert "gone.png: is no PNG or JPEG image" in crbc("coverage", path, "--rules", rules).refused()


# --- without Pillow -------------------------------------------------------------------------------


def test_without_pillow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, rules = with_files(tmp_path)
    data = encoded(picture())
    logs = {
        "bytes": write_log(rows_of(data), tmp_path / "bytes.parquet"),
        "paths": write_log(rows_of(*names), tmp_path / "paths.jsonl"),
    }
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    with pytest.raises(OptionError, match="Pillow is not installed"):
        with_pixels(data)
    assert "crbc-cli[images]" in crbc("coverage", logs["bytes"]).refused()
    assert "crbc-cli[images]" in crbc("coverage", logs["paths"], "--rules", rules).refused()
    assert anchors_of("text", "another") == [0, 1]


# --- Sokoban frames -------------------------------------------------------------------------------

COLOURS = {
    "#": (90, 60, 30),
    "_": (240, 240, 220),
    "O": (250, 120, 120),
    "P": (60, 160, 60),
    "S": (60, 160, 160),
    "X": (200, 160, 60),
    "\u221a": (160, 60, 160),
}
LOG = pl.read_parquet(
    ROOT / "sample_logs" / "sokoban.parquet",
    columns=["group_id", "rollout_id", "step", "observation", "action", "success", "true_state"],
).head(300)


def frame(board: str) -> Image.Image:
    """The board drawn with three pixels a cell."""
    rows = [line.split(" ") for line in board.split("\n")]
    image = Image.new("RGB", (len(rows[0]), len(rows)))
    image.putdata([COLOURS[cell] for row in rows for cell in row])
    return image.resize((3 * len(rows[0]), 3 * len(rows)), Image.Resampling.NEAREST)


def nested(board: str) -> list[list[list[int]]]:
    """The frame as rows of pixels of three numbers."""
    image = frame(board)
    pixels = [list(pixel) for pixel in zip(*[iter(image.tobytes())] * 3, strict=True)]
    return [pixels[i : i + image.width] for i in range(0, len(pixels), image.width)]


@pytest.mark.parametrize("form", ["png", "nested", "json"])
def test_frames_are_states(form: str) -> None:
    draw = {
        "png": lambda board: encoded(frame(board)),
        "nested": nested,
        "json": lambda board: str(nested(board)),
    }[form]
    rows = LOG.drop("true_state").to_dicts()
    for row in rows:
        row["observation"] = draw(row["observation"])
    found = scores(prepared(rows, preset="sokoban-rgb"), LOG["true_state"].to_list())
    assert found.exact
    assert found.shared > 0.8


def test_nested_arrays_carry_their_shape() -> None:
    square, line, other = [[1, 2], [3, 4]], [[1, 2, 3, 4]], [[1, 2], [3, 5]]
    assert anchors_of(square, line, other, square) == [0, 1, 2, 0]


def test_numbers_compare_by_value_in_arrays_too() -> None:
    """Rows of integers and rows of floats are encoded on different ways."""
    assert anchors_of([[1, 2], [3, 4]]) == anchors_of([[1.0, 2.0], [3.0, 4.0]])
    rows = [rows_of([[1, 2]])[0] | {"rollout_id": 0}, rows_of([[1.0, 2.5]])[0] | {"rollout_id": 1}]
    rows.append(rows_of([[1.0, 2.0]])[0] | {"rollout_id": 2})
    assert package_credit(rows)["anchor"] == [0, 1, 0]


def test_an_unreadable_file_is_an_input_error(tmp_path: Path) -> None:
    _, rules = with_files(tmp_path)
    with pytest.raises(InputError, match=r"d\.png: image file cannot be read"):
        anchors_of("d.png", rules=rules)
