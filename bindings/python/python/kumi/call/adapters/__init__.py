"""Clusters of Dask and Ray as servers, and servers as resources of theirs: :mod:`.dask` and :mod:`.ray`."""
