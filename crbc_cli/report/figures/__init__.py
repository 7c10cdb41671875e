"""Reports as pictures: Vega-Lite specifications, rendered by vl-convert.

A figure is drawn from rows of plain values, which are its data as CSV too. Each module makes the
figure of one report; `draw` writes it in the format that a file's suffix names.
"""
