"""The atlas: one HTML page of all encodings, with search and filters.

page      the whole page: introduction, filters, list of names, and a card for each encoding
card      one encoding: pictures, formula, facts, options, theory and studies
drawing   small SVG figures of the panels that `fastpe show` computes
prose     an encoding's page (its docstring) as HTML
findings  results of this repository's studies, from a file that `bench/findings.py` writes
"""
