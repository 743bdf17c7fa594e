"""The atlas: one HTML page of all encodings, with search and filters.

page      the page: introduction, filters, list of names, and a card for each encoding
card      one encoding: pictures, formula, facts, options, theory and studies
drawing   small SVG figures of the numbers that `fastpe show` computes
prose     an encoding's page (its docstring) as HTML
findings  results of the studies of this repository, from the file that `bench/findings.py` writes
"""
