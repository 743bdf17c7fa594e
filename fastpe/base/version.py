"""The version of fastpe, in a module that imports nothing, so that every other module may read it."""

VERSION = "0.2.0"
