"""XSpace files of the profiler, read and written with the protobuf runtime alone."""
