// Fuzz: a tokenizer.json: loaded, and used on a text with everything that is hard in it.
#include "tokenizer/tokenizer.h"

#include "testing/fuzz.h"

namespace moraine {

void fuzz_one(std::string_view input) {
  testing::parses_or_throws_error([&] {
    const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::parse(std::string(input), "fuzz");
    const std::vector<int32_t> ids = tokenizer->encode(
        "Hello  World 123\n\t\xc3\xa9\xe2\x96\x81\xf0\x9f\x98\x80 \xff <s> it's", true);
    tokenizer->decode(ids, false);
    for (const int32_t id : {-1, 0, 1, 1 << 30}) tokenizer->decode({&id, 1}, true);
  });
}

}  // namespace moraine
