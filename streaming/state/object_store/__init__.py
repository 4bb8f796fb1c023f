"""Object store: a state directory on S3, or on a service with the same protocol.

``object_files`` implements `streaming.state.files.AtomicFiles` with the library obstore;
``local_cache`` keeps copies of the files on the local disk. Other file systems have no place here.
"""
