"""What Streamlit's own style leaves open. Pieces of reports are shown in the app as well: the classes are theirs."""

from whence.report.shell import SEED_STRIP_STYLE

STYLE = (
    "<style>.whence {"
    + SEED_STRIP_STYLE
    + "}"
    + """
[data-testid="stMainBlockContainer"] { padding: 3.2rem clamp(1rem, 3vw, 2.5rem) 4rem; max-width: 84rem }
[data-testid="stSidebar"] { width: 13rem !important; min-width: 0 }
.whence { font-size: .95rem }
.whence table { border-collapse: collapse; width: 100% } .whence .scroll, .whence.scroll { overflow-x: auto }
.whence th, .whence td { text-align: left; padding: .4rem .8rem .4rem 0; vertical-align: top; border: 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent) }
.whence th, .whence td.cost, .whence td:first-child { white-space: nowrap }
.whence td.n { font-variant-numeric: tabular-nums; white-space: nowrap } .whence .note { opacity: .72 }
.whence .swatch { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .5em }
.whence .badge { border: 1px solid currentColor; border-radius: 1em; padding: .05em .6em; font-size: .85em }
.whence .badge { white-space: nowrap }
.whence .badge.good { color: light-dark(#00654a, #4fd8a8) } .whence .badge.bad { color: light-dark(#a04400, #ffa36b) }
.whence .badge.unsure { border-style: dashed; opacity: .8 }
.whence progress { width: 8rem; accent-color: light-dark(#0072B2, #56B4E9) }
.whence.empty { border: 1px dashed color-mix(in srgb, currentColor 35%, transparent); border-radius: .8rem }
.whence.empty { padding: 1.4rem }
.whence.empty p { margin: .3rem 0 0; opacity: .8 }
.whence .scroll::-webkit-scrollbar, .whence.scroll::-webkit-scrollbar { height: .5rem }
.whence .scroll::-webkit-scrollbar-thumb, .whence.scroll::-webkit-scrollbar-thumb {
  background: color-mix(in srgb, currentColor 30%, transparent); border-radius: .25rem }
.whence th[scope="col"] { white-space: normal }
.st-key-unseen { display: none }
.whence mark { color: inherit; background: light-dark(#ffe08a, #6b5300); border-radius: .2em; padding: 0 .15em }
</style>"""
)
