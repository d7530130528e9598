"""Image folders packed into checksummed shards of decoded images, which are read by memory map."""
