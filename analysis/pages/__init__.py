"""Pages that stand alone, and their figures.

A page is one file of HTML: `page.py` fills a template of `templates/` with readings from `analysis.readings`,
and with figures from `figures/`. The other files are a page each.
"""
