"""One file = one table or figure of a paper that is run again; the other files are what all of them share."""
