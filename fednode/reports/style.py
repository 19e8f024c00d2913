"""The page's one style sheet: a screen, a phone, dark and light, and paper. It asks nothing of the network."""

_LIGHT = """
  --paper: #ffffff; --ink: #1c2530; --soft: #5b6673; --line: #d9dee4; --tint: #f4f6f8;
  --first: #1f5fa8; --second: #8a5a00; --limit: #b3261e; --good: #1d6b3a; --warn: #8a5a00;
"""
_DARK = """
  --paper: #12171d; --ink: #e6eaee; --soft: #a3adb8; --line: #333c46; --tint: #1a2129;
  --first: #7fb3f0; --second: #e3b04b; --limit: #ff8a80; --good: #7fd39b; --warn: #e3b04b;
"""
_PAPER = """
  --paper: #ffffff; --ink: #000000; --soft: #444444; --line: #bbbbbb; --tint: #ffffff;
  --first: #1f5fa8; --second: #8a5a00; --limit: #b3261e; --good: #1d6b3a; --warn: #8a5a00;
"""
_EVERYWHERE = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 60rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
p { margin: 0 0 .8rem; }
ul, ol { padding-left: 1.3rem; margin: 0 0 .8rem; }
li { margin-bottom: .35rem; overflow-wrap: anywhere; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
.sub { color: var(--soft); margin-bottom: 1.25rem; }
.whole { white-space: nowrap; }
.outcome { font-weight: 600; border-left: .3rem solid var(--warn); padding: .1rem 0 .1rem .75rem; }
.outcome.finished { border-color: var(--good); }
.statement {
  font-size: 1.06rem; line-height: 1.65; margin: 1.25rem 0; padding: 1.1rem 1.25rem;
  background: var(--tint); border: 1px solid var(--line); border-radius: .5rem;
}
.statement p { margin: 0; }
.sign {
  display: grid; grid-template-columns: 2fr 1fr 3fr; gap: 1.25rem;
  margin-top: 2.6rem; color: var(--soft); font-size: .85rem;
}
.sign span { border-top: 1px solid var(--soft); padding-top: .3rem; }
.cards { display: grid; grid-template-columns: repeat(3, 1fr); gap: .75rem; margin: 1.25rem 0; }
.cards div { border: 1px solid var(--line); border-radius: .5rem; padding: .65rem .8rem; min-width: 0; }
.cards dt { color: var(--soft); font-size: .82rem; }
.cards dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.3; }
.cards small { display: block; color: var(--soft); font-size: .8rem; font-weight: 400; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem 1.5rem; }
figure { margin: 0; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .25rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; }
.facts th { width: 32%; font-weight: 500; color: var(--soft); overflow-wrap: anywhere; }
.grid th, .grid td { padding: .35rem .45rem; }
.grid thead th { color: var(--soft); font-weight: 600; font-size: .82rem; vertical-align: bottom; }
.claims td:first-child { width: 7rem; font-weight: 600; }
.numbers th, .numbers td { text-align: right; font-variant-numeric: tabular-nums; }
.numbers td { white-space: nowrap; }
"""
_PHONE = """
  h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
  .statement { padding: .9rem 1rem; font-size: 1rem; }
  .sign { grid-template-columns: 1fr; gap: 2rem; }
  .cards { grid-template-columns: 1fr 1fr; }
  .facts tr, .facts th, .facts td, .grid tbody, .grid td { display: block; width: auto; }
  .facts th { border: 0; padding: .5rem 0 0; font-size: .85rem; }
  .facts td { padding: 0 0 .5rem; }
  .grid thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .grid tr {
    display: block; border: 1px solid var(--line); border-radius: .5rem; padding: .45rem .7rem; margin-bottom: .6rem;
  }
  .grid td, .claims td:first-child { border: 0; padding: .1rem 0; width: auto; text-align: left; }
  .grid td::before {
    content: attr(data-label); display: block; color: var(--soft); font-size: .78rem; font-weight: 400;
  }
  .grid.numbers tr { display: grid; grid-template-columns: 1fr 1fr 1fr; gap: .1rem .6rem; }
"""
_PRINT = """
  @page { size: A4; margin: 16mm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .plots { grid-template-columns: 1fr 1fr; }
  .numbers { font-size: 7.5pt; }
  h2, figcaption { break-after: avoid; }
  figure, tr, li, .statement, .cards div { break-inside: avoid; }
  thead { display: table-header-group; }
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
{_EVERYWHERE}
@media screen and (max-width: 44rem) {{ {_PHONE} }}
@media print {{ :root {{ color-scheme: light; {_PAPER} }} {_PRINT} }}
"""
"""Everything the page looks like."""
