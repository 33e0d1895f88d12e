"""Tuples as columns of Arrow and back: types by name, schemas, and the tuples that do not fit.

Shared by `ab.parquet`, both ends of Spark, and pipelines as jobs of Spark.
"""
