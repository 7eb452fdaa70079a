// Fuzz: a zstd stream (test_stream_fuzz.h).
#include "data/test_stream_fuzz.h"
#include "data/zstd_reader.h"

namespace moraine {

void fuzz_one(std::string_view input) { testing::read_stream<ZstdReader>(input); }

}  // namespace moraine
