"""Drawing one group: where its anchors stand, as data for the page and as SVG."""
