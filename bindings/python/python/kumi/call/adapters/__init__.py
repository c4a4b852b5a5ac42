"""Adapters between Kumi and clusters of Dask and Ray, in both directions: :mod:`.dask` and :mod:`.ray`."""
