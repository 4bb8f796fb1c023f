"""Durable state: the state of a circuit in files that stay valid after a crash at any moment.

A *version* is the state after one micro-batch. Its *manifest* is a small file that lists the files
with its data; renaming the manifest to its final name is the commit::

    store, memory_store      versions in a directory, or the last version in memory
    versions, manifest       the manifests of a directory; one manifest
    writer, reader           write the next version; load the newest one
    segment, parquet         the formats of the data files
    segment_references       which parts of the data are merged, and when
    version_rewrite, offline_compaction   write the newest version of a stopped query again
    writable_directory, batch_order   open a directory as its writer; the version to continue from
    records                  rejected rows, metrics, and other files beside the versions
    verified_files, checksums   detect damaged files
    files, local_files, ...  the operations of a file system
    object_store             the same on S3

Nothing here depends on Spark.
"""
