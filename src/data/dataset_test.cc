// Datasets: the same files whatever the thread count, nothing half-written, no manifest believed.
#include "data/dataset.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_document.h"
#include "base/random.h"
#include "data/build_dataset.h"
#include "data/failing_file_system.h"
#include "data/inspect_dataset.h"
#include "data/test_dataset.h"
#include "testing/rig.h"

namespace moraine {
namespace {

// Bytes as tokens, and 300 for a space: enough to tell documents apart.
void encode_bytes(std::string_view text, std::vector<int32_t>* tokens) {
  tokens->clear();
  for (const char c : text) tokens->push_back(c == ' ' ? 300 : static_cast<unsigned char>(c));
}

class DatasetTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return join_path(folder_.path(), name); }
  std::string write(const std::string& name, const std::string& content) {
    files_.write_atomic(at(name), content);
    return at(name);
  }
  BuildOptions options(const std::string& out, std::vector<std::string> inputs) {
    BuildOptions o;
    o.inputs = std::move(inputs);
    o.out = at(out);
    o.meaning = {.vocabulary_size = 301, .eos_id = 256, .tokenizer_hash = {7, 8}};
    o.encode = encode_bytes;
    return o;
  }
  // A .jsonl of `documents` texts "d<i> <random letters>".
  std::string write_corpus(int64_t documents) {
    std::string lines;
    for (int64_t d = 0; d < documents; ++d) {
      lines += fmt::format("{{\"text\":\"d{} ", d);
      const uint64_t n = random_below(400, 1, Stream::kTest, 50, static_cast<uint64_t>(d));
      for (uint64_t i = 0; i < n; ++i) {
        lines += static_cast<char>(
            'a' + random_below(26, 1, Stream::kTest, 51 + static_cast<uint64_t>(d), i));
      }
      lines += "\"}\n";
    }
    return write("corpus.jsonl", lines);
  }
  std::string text_of(const Dataset& dataset, int64_t document) {
    std::vector<int32_t> tokens;
    dataset.read_document(document, &tokens);
    EXPECT_EQ(tokens.back(), 256);
    std::string text;
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      text += static_cast<char>(tokens[i] == 300 ? ' ' : tokens[i]);
    return text;
  }
  std::string all_bytes(const std::string& folder) {
    std::string all;
    for (const std::string& name : files_.list(folder)) {
      if (name != kDatasetManifestName) all += name + ":" + files_.read(join_path(folder, name));
    }
    return all;
  }

  FileSystem& files_ = posix_file_system();
  testing::TempFolder folder_;
  Pool one_{1}, two_{2}, three_{3};
};

TEST_F(DatasetTest, BuildAndReadBack) {
  const std::string novel = write("b.txt", "first\n\f\nsecond one\n");
  const std::string lines = write("a.jsonl", "{\"text\":\"third\"}\n{\"text\":\"\"}\n");
  BuildOptions o = options("out", {novel, lines});
  o.text.separator = "\f";
  int64_t calls = 0;
  BuildProgress last;
  o.progress = [&](const BuildProgress& p) { ++calls, last = p; };
  o.chat_template = "{{ messages }}";
  const BuildResult result = build_dataset(files_, two_, o);
  EXPECT_EQ(files_.read(at("out/chat_template.jinja")), o.chat_template);
  EXPECT_EQ(read_chat_template(files_, at("out")), o.chat_template);
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_GE(calls, 1);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(last.documents, 3);

  const Dataset dataset(files_, at("out"));
  ASSERT_EQ(dataset.num_documents(), 3);
  EXPECT_EQ(text_of(dataset, 0), "first\n");
  EXPECT_EQ(text_of(dataset, 1), "second one\n");
  EXPECT_EQ(text_of(dataset, 2), "third");
  EXPECT_EQ(dataset.document_source_bytes(1), 11);
  EXPECT_EQ(dataset.document_tokens(1), 12);
  EXPECT_EQ(dataset.manifest().source_bytes, 6 + 11 + 5);
  EXPECT_EQ(dataset.num_tokens(), 22 + 3);
  EXPECT_EQ(dataset.manifest().meaning, o.meaning);
  EXPECT_EQ(last.tokens, dataset.num_tokens());
}

TEST_F(DatasetTest, ThreadCountChangesNothing) {
  const std::string corpus = write_corpus(3000);
  std::string want;
  for (Pool* pool : {&one_, &two_, &three_}) {
    const std::string name = fmt::format("t{}", pool->threads());
    BuildOptions o = options(name, {corpus});
    o.valid_fraction = 0.2;
    o.shard_bytes = 100000;
    build_dataset(files_, *pool, o);
    const std::string got = all_bytes(at(name + "/train")) + all_bytes(at(name + "/valid"));
    if (want.empty()) want = got;
    EXPECT_EQ(hash_hex(hash_bytes(got.data(), static_cast<int64_t>(got.size()))),
              hash_hex(hash_bytes(want.data(), static_cast<int64_t>(want.size()))));
  }
  const Dataset train(files_, at("t2/train"));
  EXPECT_GE(train.num_shards(), 3);
  for (int64_t d = 0; d < train.num_documents(); ++d) {
    ASSERT_EQ(text_of(train, d).size(), static_cast<size_t>(train.document_source_bytes(d)));
  }
}

TEST_F(DatasetTest, SplitIsDisjointAndComplete) {
  const std::string corpus = write_corpus(2000);
  BuildOptions o = options("s", {corpus});
  o.valid_fraction = 0.1;
  o.seed = 3;
  build_dataset(files_, two_, o);
  std::vector<int> seen(2000, 0);
  const Dataset train(files_, at("s/train")), valid(files_, at("s/valid"));
  for (const Dataset* dataset : {&train, &valid}) {
    for (int64_t d = 0; d < dataset->num_documents(); ++d) {
      ++seen[static_cast<size_t>(std::stol(text_of(*dataset, d).substr(1)))];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(2000, 1));
  EXPECT_NEAR(static_cast<double>(valid.num_documents()), 200,
              5 * 13.4);  // binomial, five deviations
  o.out = at("other");
  o.seed = 4;
  EXPECT_NE(build_dataset(files_, two_, o).valid.tokens, valid.num_tokens());
}

TEST_F(DatasetTest, WideVocabularyTakes32Bits) {
  BuildOptions o = options("w", {write("a.txt", "hello")});
  o.meaning = {.vocabulary_size = 262272, .eos_id = 262271, .tokenizer_hash = {1, 1}};
  build_dataset(files_, one_, o);
  std::vector<int32_t> tokens;
  Dataset(files_, at("w")).read_document(0, &tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'h', 'e', 'l', 'l', 'o', 262271}));
  o.out = at("none");
  o.meaning.eos_id = -1;
  build_dataset(files_, one_, o);
  EXPECT_EQ(Dataset(files_, at("none")).num_tokens(), 5);
}

TEST_F(DatasetTest, UserErrorsAreErrors) {
  const std::string text = write("a.txt", "hello"), empty = write("e.txt", "");
  const auto code = [&](const BuildOptions& o) {
    try {
      build_dataset(files_, two_, o);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kDevice;  // none of those expected
  };
  EXPECT_EQ(code(options("x", {})), Code::kInvalidArgument);
  EXPECT_EQ(code(options("x", {empty})), Code::kInvalidArgument);
  EXPECT_EQ(code(options("x", {at("missing.txt")})), Code::kNotFound);
  EXPECT_EQ(code(options("x", {text, text})), Code::kInvalidArgument);  // would be learnt twice
  BuildOptions o = options("x", {text});
  o.valid_fraction = 1;
  EXPECT_EQ(code(o), Code::kInvalidArgument);
  o.valid_fraction = 0.5;  // one document cannot be on both sides
  EXPECT_EQ(code(o), Code::kInvalidArgument);
  o = options("x", {text});
  o.encode = [](std::string_view, std::vector<int32_t>* tokens) { *tokens = {301}; };
  EXPECT_EQ(code(o), Code::kInvalidArgument);
  o.encode = [](std::string_view, std::vector<int32_t>*) {
    throw_error(Code::kIo, "from the encoder");
  };
  EXPECT_EQ(code(o), Code::kIo);
  EXPECT_FALSE(files_.exists(at("x/dataset.json")));

  build_dataset(files_, two_, options("x", {text}));
  EXPECT_EQ(code(options("x", {text})), Code::kInvalidArgument);  // is there already
  o = options("x", {write("b.txt", "other")});
  o.overwrite = true;
  build_dataset(files_, two_, o);
  EXPECT_EQ(text_of(Dataset(files_, at("x")), 0), "other");
  EXPECT_THROW(Dataset(files_, at("nowhere")), Error);
}

TEST_F(DatasetTest, AFullDiskLeavesNoDatasetAndTheNextBuildSucceeds) {
  const std::string corpus = write_corpus(300);
  BuildOptions o = options("f", {corpus});
  o.shard_bytes = 20000;
  o.overwrite = true;
  bool finished = false;
  for (int64_t n = 0; !finished; ++n) {
    ASSERT_LT(n, 300);
    testing::FailingFileSystem failing(files_, n);
    try {
      build_dataset(failing, two_, o);
      finished = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo);
    }
    // Whenever a manifest is there, all of the dataset is.
    if (files_.exists(at("f/dataset.json"))) {
      EXPECT_EQ(Dataset(files_, at("f")).num_documents(), 300);
    } else {
      EXPECT_THROW(Dataset(files_, at("f")), Error);
    }
  }
  const Dataset dataset(files_, at("f"));
  EXPECT_GE(dataset.num_shards(), 2);
  EXPECT_EQ(static_cast<int64_t>(files_.list(at("f")).size()),
            dataset.num_shards() + 1);  // no rubble
}

TEST_F(DatasetTest, DamagedManifestsAreRefused) {
  testing::write_dataset(
      files_, at("m"), {.vocabulary_size = 10},
      {{5, 6, 7, 8}, 2, [](int64_t d, int64_t t) { return static_cast<int32_t>((d + t) % 10); }});
  const std::string path = at("m/dataset.json"), whole = files_.read(path);
  const auto opens = [&] {
    try {
      const Dataset dataset(files_, at("m"));
      EXPECT_EQ(dataset.num_tokens(), 26);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << error.what();
      EXPECT_NE(std::string(error.what()).find(at("m")), std::string::npos) << error.what();
    }
    return false;
  };
  EXPECT_TRUE(opens());
  for (size_t size = 0; size + 2 < whole.size(); size += 3) {  // without the last "}\n"
    testing::write_file(files_, path, whole.substr(0, size));
    EXPECT_FALSE(opens()) << "cut to " << size;
  }
  for (uint64_t i = 0; i < 400;
       ++i) {  // a flip may hide in white space or the `source`; else it is found
    std::string bad = whole;
    const uint64_t byte = random_below(whole.size(), 5, Stream::kTest, 0, i);
    bad[byte] = static_cast<char>(bad[byte] ^ (1 << random_below(8, 5, Stream::kTest, 1, i)));
    testing::write_file(files_, path, bad);
    opens();  // asserts inside: right content or kCorrupt
  }
  const auto edited = [&](const std::function<void(Json&)>& edit) {
    Json json = parse_json(whole, path);
    edit(json);
    files_.write_atomic(path, json_text(json));
    return opens();
  };
  using J = Json&;
  EXPECT_TRUE(edited([](J) {}));
  EXPECT_FALSE(edited([](J j) { j["version"] = 2; }));
  EXPECT_FALSE(edited([](J j) { j["format"] = "else"; }));
  EXPECT_FALSE(edited([](J j) { j["vocabulary_size"] = 11; }));
  EXPECT_FALSE(edited([](J j) { j["eos_id"] = 9; }));
  EXPECT_FALSE(edited([](J j) { j["tokens"] = 27; }));
  EXPECT_FALSE(edited([](J j) { j["tokens"] = -1; }));
  EXPECT_FALSE(edited([](J j) { j["tokenizer_hash"] = "x"; }));
  EXPECT_FALSE(edited([](J j) { j["shards"] = 3; }));
  EXPECT_FALSE(edited([](J j) { j["shards"][0] = 3; }));
  EXPECT_FALSE(edited([](J j) { j["shards"][0]["file"] = "../m/shard-00000.bin"; }));
  EXPECT_FALSE(edited([](J j) { j["shards"][0]["file"] = "shard-00009.bin"; }));
  files_.make_directories(at("m/x"));
  EXPECT_FALSE(
      edited([](J j) { j["shards"][0]["file"] = "x/../shard-00000.bin"; }));  // would be found
  EXPECT_FALSE(edited([](J j) { std::swap(j["shards"][0]["file"], j["shards"][1]["file"]); }));
  EXPECT_FALSE(edited([](J j) { j["shards"][0]["tokens"] = int64_t{1} << 62; }));
  EXPECT_FALSE(edited([](J j) {
    for (int i = 0; i < 8; ++i) j["shards"].push_back(j["shards"][0]);
    for (auto& shard : j["shards"]) shard["tokens"] = int64_t{1} << 62;  // a sum that wraps around
  }));
  files_.write_atomic(path, std::string(200000, '['));
  EXPECT_FALSE(opens());
}

TEST_F(DatasetTest, AShardOfAnotherBuildIsNoticed) {
  for (const int32_t base : {0, 1}) {  // equal counts, other tokens
    testing::write_dataset(
        files_, at(base == 0 ? "one" : "two"), {.vocabulary_size = 10},
        {{5, 6}, 9, [&](int64_t, int64_t t) { return base + static_cast<int32_t>(t); }});
  }
  testing::write_file(files_, at("one/shard-00000.bin"), files_.read(at("two/shard-00000.bin")));
  EXPECT_THROW(Dataset(files_, at("one")), Error);
  EXPECT_EQ(verify_dataset(files_, two_, at("one")).problems.size(), 1u);
}

// What a build that was killed leaves is its own; anything else of that name is somebody's.
TEST_F(DatasetTest, ForeignShardsAreNotRemoved) {
  BuildOptions o = options("g", {write("g.txt", "a text")});
  files_.make_directories(at("g"));
  write("g/shard-00007.bin", "mine");
  const std::vector<std::string> others = {"shard-1.bin", "shard-00007.bin.old", "shard-mine.bin"};
  for (const std::string& other : others) write("g/" + other, "mine too");
  try {
    build_dataset(files_, two_, o);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("shard-00007.bin"), std::string::npos);
  }
  EXPECT_EQ(files_.read(at("g/shard-00007.bin")), "mine");
  o.overwrite = true;
  build_dataset(files_, two_, o);
  EXPECT_FALSE(files_.exists(at("g/shard-00007.bin")));
  for (const std::string& other : others) EXPECT_EQ(files_.read(at("g/" + other)), "mine too");

  // Cut at each call: the next build goes on without being allowed to overwrite.
  o = options("h", {at("g.txt")});
  bool finished = false;
  for (int64_t n = 0; !finished; ++n) {
    ASSERT_LT(n, 100);
    testing::FailingFileSystem failing(files_, n);
    try {
      build_dataset(failing, two_, o);
      finished = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo) << error.what();
    }
    if (!finished && files_.exists(at("h/dataset.json"))) {  // cut behind its end
      files_.remove_all(at("h"));
    }
  }
  EXPECT_EQ(text_of(Dataset(files_, at("h")), 0), "a text");
}

TEST_F(DatasetTest, TwoBuildsIntoOneFolderAreRefused) {
  BuildOptions o = options("l", {write("l.txt", "a text")});
  std::string inner;
  const auto encode = o.encode;
  o.encode = [&](std::string_view text, std::vector<int32_t>* tokens) {
    BuildOptions again = o;
    again.encode = encode;
    again.overwrite = true;
    Pool one(1);
    try {
      build_dataset(files_, one, again);
    } catch (const Error& error) {
      inner = error.what();
    }
    encode(text, tokens);
  };
  build_dataset(files_, two_, o);
  EXPECT_NE(inner.find("works in it already"), std::string::npos) << inner;
  EXPECT_EQ(text_of(Dataset(files_, at("l")), 0), "a text");
}

TEST_F(DatasetTest, InspectionDescribesAndFindsDamage) {
  testing::write_dataset(files_, at("i"), {.vocabulary_size = 10},
                         {{5, 6, 70000, 8}, 1, [](int64_t d, int64_t t) {
                            return static_cast<int32_t>((d + t) % 10);
                          }});
  const Inspection described = describe_dataset(Dataset(files_, at("i")));
  const JsonDocument json(described.json);
  EXPECT_EQ(json.root().integer("documents"), 4);
  EXPECT_EQ(json.root().integer("tokens"), 70019);
  EXPECT_EQ(json.root().at("document_tokens").integer("max"), 70000);
  EXPECT_NE(described.text.find("70019"), std::string::npos);
  EXPECT_TRUE(verify_dataset(files_, two_, at("i")).problems.empty());

  for (const char* name : {"i/shard-00000.bin", "i/shard-00002.bin"}) {
    std::string bytes = files_.read(at(name));
    bytes[70] = static_cast<char>(bytes[70] ^ 1);
    files_.write_atomic(at(name), bytes);
  }
  const Verification found = verify_dataset(files_, two_, at("i"));
  ASSERT_EQ(found.problems.size(), 2u);
  EXPECT_NE(found.problems[0].find("shard-00000.bin: at byte 0"), std::string::npos)
      << found.problems[0];
  EXPECT_NE(found.problems[1].find("shard-00002.bin"), std::string::npos);
  EXPECT_FALSE(JsonDocument(found.report().json).root().at("ok").boolean());
  EXPECT_THROW(verify_dataset(files_, two_, at("nowhere")), Error);
}

// A line "ab|cd": what stands behind "|" is a target; "!" is refused.
void encode_halves(std::string_view line, EncodedLine* encoded) {
  if (line.find('!') != std::string_view::npos)
    throw_error(Code::kInvalidArgument, "no exclamations, please");
  bool behind = false;
  for (const char c : line) {
    if (c == '|') {
      behind = true;
      continue;
    }
    encoded->tokens.push_back(static_cast<unsigned char>(c));
    encoded->is_target.push_back(behind);
  }
  encoded->source_bytes = static_cast<int64_t>(encoded->tokens.size());
}

TEST_F(DatasetTest, LinesWithMarks) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += i % 4 == 3 ? "nothing\n\n" : "abc|de\nfg|h@\n";
  const std::string input = write("a.jsonl", lines);
  for (const int threads : {1, 3}) {
    BuildOptions o = options("d" + std::to_string(threads), {input});
    o.encode = nullptr;
    o.encode_line = encode_halves;
    o.meaning.eos_id = '@';
    o.shard_bytes = 400;
    Pool pool(threads);
    const BuildResult result = build_dataset(files_, pool, o);
    EXPECT_EQ(result.documents_without_target, 10);
    EXPECT_EQ(result.train.documents, 60);
    EXPECT_EQ(result.train.targets, 30 * 4);
    EXPECT_GT(result.train.shards.size(), 2u);
  }
  const Dataset dataset(files_, at("d1"));
  EXPECT_EQ(dataset.hash(), Dataset(files_, at("d3")).hash());
  EXPECT_EQ(dataset.num_targets(), 120);
  EXPECT_EQ(dataset.num_tokens(), 30 * (6 + 4));
  std::vector<int32_t> tokens;
  std::vector<uint8_t> marks(6);
  dataset.read_document(0, &tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', '@'}));
  dataset.read_targets(0, 6, marks.data());
  EXPECT_EQ(marks, (std::vector<uint8_t>{0, 0, 0, 1, 1, 0}));  // the added end is not learnt
  dataset.read_document(1, &tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'f', 'g', 'h', '@'}));
  dataset.read_targets(6, 4, marks.data());
  EXPECT_EQ((std::vector<uint8_t>{marks[2], marks[3]}),
            (std::vector<uint8_t>{1, 1}));  // its own is
  EXPECT_NE(describe_dataset(dataset).text.find("targets     120 (40.0 % of the tokens)"),
            std::string::npos)
      << describe_dataset(dataset).text;
  Pool pool(1);
  EXPECT_TRUE(verify_dataset(files_, pool, at("d1")).problems.empty());

  const auto refused = [&](const std::string& text, const std::string& piece) {
    BuildOptions o = options("bad", {write("b.jsonl", text)});
    o.encode = nullptr;
    o.encode_line = encode_halves;
    try {
      build_dataset(files_, pool, o);
      ADD_FAILURE() << piece;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  refused("a|b\n\nno!\n", "b.jsonl, line 3: no exclamations");
  refused("a\nb\n", "none of 2 documents has a token to learn");
}

// A manifest and shards that say different things of targets are two builds.
TEST_F(DatasetTest, TargetsOfManifestAndShardAgree) {
  BuildOptions o = options("t", {write("t.jsonl", "ab|cd\n")});
  o.encode = nullptr;
  o.encode_line = encode_halves;
  Pool pool(1);
  build_dataset(files_, pool, o);
  const std::string manifest = join_path(at("t"), kDatasetManifestName);
  const Json json = parse_json(files_.read(manifest), manifest);
  for (const int forged : {1, 99, -1}) {
    Json other = json;
    if (forged < 0) {
      other["shards"][0].erase("targets");
    } else {
      other["shards"][0]["targets"] = forged;
    }
    files_.write_atomic(manifest, json_text(other));
    try {
      const Dataset dataset(files_, at("t"));
      ADD_FAILURE() << forged;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kCorrupt);
      EXPECT_NE(std::string(e.what()).find("targets"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace moraine
