//! From a model name to files on disk: catalogue, pull with progress, cache, checksums
