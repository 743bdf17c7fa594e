"""The terms of the score. Each file has one term: the code that adds it to a tile of scores, and its gradients.

A file has a function that adds the term to the tile in `scratch.cells`. Another function takes the gradient of the
scores, in `scratch.dcells`, adds the gradient of the term's array, and leaves in `dcells` the gradient of the first
function's input. Both return at once if the slot is not given. `attention.score` calls them in order, and
`attention.slots` has a row for each array.
"""
