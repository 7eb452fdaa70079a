// Fuzz: a gzip stream (test_stream_fuzz.h).
#include "data/gzip_reader.h"
#include "data/test_stream_fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) { testing::read_stream<GzipReader>(input); }

}  // namespace moraine
