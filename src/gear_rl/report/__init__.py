"""`gear report`: one self-contained HTML page that shows where the credit went; and the same as PNG or JSON.

sources      a run folder, record or messages  comparable   which runs may stand on one page
collect      reads the records once            packing      how tokens travel inside the page
shares       praise and blame by turn, kind …  scales       one scale per colouring
kinds        what kind of token it is          curves       metrics and alarms
clusters     blamed steps that are alike       from_messages  transcripts, logs, traces
measured     what `gear credit --check` found  figure       the PNG and the SVG, drawn by a headless browser
page         the HTML                          notes        what a reader wrote, in a file beside the run
watch        the page of a running training
web/         the page's own style and script
"""

from __future__ import annotations

from gear_rl.report.collect import Collection, collect
from gear_rl.report.page import html_page, summary
from gear_rl.report.sources import Source, open_source

__all__ = ["Collection", "Source", "collect", "html_page", "open_source", "summary"]
