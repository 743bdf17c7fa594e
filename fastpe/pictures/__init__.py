"""Pictures of encodings. Their numbers become panels, which are drawn as figures, SVG or text.

From outside: `atlas.page`, `axes`, `canvas`, `colours`, `curves`, `figure`, `look`, `mathml`, `plots`, `run_figure`,
`show`, `svg`, `text`, `web`.
"""
