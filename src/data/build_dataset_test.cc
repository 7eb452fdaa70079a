// A dataset that is replaced: the old one or the new one, whole, wherever the build is cut.
#include "data/build_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "data/failing_file_system.h"
#include "data/test_dataset.h"
#include "testing/rig.h"

namespace moraine {
namespace {

class ReplaceTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return join_path(folder_.path(), name); }

  // 40 documents whose tokens are all `token`, in several shards.
  BuildOptions options(int32_t token) {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "{\"text\":\"x\"}\n";
    files_.write_atomic(at("in.jsonl"), lines);
    BuildOptions o;
    o.inputs = {at("in.jsonl")};
    o.out = at("d");
    o.meaning = {.vocabulary_size = 100, .eos_id = -1, .tokenizer_hash = {7, 8}};
    o.shard_bytes = 400;
    o.overwrite = true;
    o.chat_template = token == 0 ? "" : std::to_string(token);
    o.encode = [token](std::string_view, std::vector<int32_t>* tokens) {
      *tokens = {token, token};
    };
    return o;
  }
  // The token of every document; the dataset is read to its end.
  int32_t token_of(const std::string& folder) {
    const Dataset dataset(files_, folder);
    std::vector<int32_t> all, tokens;
    for (int64_t d = 0; d < dataset.num_documents(); ++d) {
      dataset.read_document(d, &tokens);
      all.insert(all.end(), tokens.begin(), tokens.end());
    }
    EXPECT_EQ(std::count(all.begin(), all.end(), all.front()), std::ssize(all));
    return all.front();
  }
  // No file but those of the dataset, with a template.
  void expect_nothing_else(const std::string& folder) {
    EXPECT_EQ(std::ssize(files_.list(folder)), Dataset(files_, folder).num_shards() + 2) << folder;
  }
  // Builds of token 2 over token 1, one for each place where it can be cut. What is left has the mark.
  void cut_everywhere(double valid_fraction, bool killed) {
    const std::vector<std::string> folders =
        valid_fraction > 0 ? std::vector{at("d/valid"), at("d/train")} : std::vector{at("d")};
    BuildOptions old = options(1), novel = options(2);
    old.valid_fraction = novel.valid_fraction = valid_fraction;
    for (int64_t n = 0;; ++n) {
      ASSERT_LT(n, 600);
      build_dataset(files_, pool_, old);
      for (const std::string& folder : folders) expect_nothing_else(folder);
      FailingFileSystem failing(files_, n, killed);
      try {
        build_dataset(failing, pool_, novel);
        break;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kIo) << error.what();
      }
      for (const std::string& folder : folders) {
        const int32_t token = token_of(folder);
        EXPECT_EQ(read_chat_template(files_, folder), std::to_string(token)) << "cut at " << n;
        EXPECT_TRUE(token == 1 || token == 2) << token << " in " << folder << ", cut at " << n;
        if (!files_.exists(join_path(folder, kDatasetUnfinishedName))) expect_nothing_else(folder);
      }
    }
    for (const std::string& folder : folders) {
      EXPECT_EQ(token_of(folder), 2);
      EXPECT_GE(Dataset(files_, folder).num_shards(), valid_fraction > 0 ? 1 : 3);
      expect_nothing_else(folder);
    }
  }

  using FailingFileSystem = testing::FailingFileSystem;
  FileSystem& files_ = posix_file_system();
  testing::TempFolder folder_;
  Pool pool_{1};
};

TEST_F(ReplaceTest, AFailedDiskLeavesTheOldOneOrTheNew) { cut_everywhere(0, false); }
TEST_F(ReplaceTest, ADeathLeavesTheOldOneOrTheNew) { cut_everywhere(0, true); }
TEST_F(ReplaceTest, SoDoesThatOfASplit) { cut_everywhere(0.3, true); }

// A bad line at the very end, when all but the last shard is written.
TEST_F(ReplaceTest, BadInputLeavesTheOldOneAlone) {
  build_dataset(files_, pool_, options(1));
  const std::vector<std::string> before = files_.list(at("d"));
  BuildOptions o = options(2);
  files_.write_atomic(at("in.jsonl"), files_.read(at("in.jsonl")) + "{\"text\":\n");
  EXPECT_THROW(build_dataset(files_, pool_, o), Error);
  EXPECT_EQ(files_.list(at("d")), before);
  EXPECT_EQ(token_of(at("d")), 1);
  o.out = at("fresh");
  o.overwrite = false;
  EXPECT_THROW(build_dataset(files_, pool_, o), Error);
  EXPECT_TRUE(files_.list(at("fresh")).empty());
}

// What earlier versions built names no template: it is chat_template.jinja, until the new manifest is there.
TEST_F(ReplaceTest, TheTemplateOfAnEarlierVersionStaysWithItsData) {
  build_dataset(files_, pool_, options(1));
  DatasetManifest manifest = read_manifest(files_, at("d"));
  manifest.chat_template.reset();
  write_manifest(files_, at("d"), manifest);
  EXPECT_EQ(read_chat_template(files_, at("d")), "1");
  testing::write_file(files_, at("d/unfinished"), "");
  for (int64_t n = 0; read_chat_template(files_, at("d")) == "1"; ++n) {
    ASSERT_LT(n, 600);
    FailingFileSystem killed(files_, n, true);
    try {
      build_dataset(killed, pool_, options(0));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo) << error.what();
    }
    EXPECT_EQ(read_chat_template(files_, at("d")), token_of(at("d")) == 1 ? "1" : "") << n;
  }
  build_dataset(files_, pool_, options(0));
  EXPECT_EQ(read_chat_template(files_, at("d")), "");
  EXPECT_FALSE(files_.exists(at("d/chat_template.jinja")));
}

TEST_F(ReplaceTest, ATemplateThatIsGoneIsNamed) {
  build_dataset(files_, pool_, options(1));
  files_.remove_all(at("d/chat_template.jinja"));
  try {
    read_chat_template(files_, at("d"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(std::string(error.what()).find("chat_template.jinja"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("build the dataset again"), std::string::npos)
        << error.what();
  }
}

// A manifest that can not be read names no shards: none of them may be taken for rubble.
TEST_F(ReplaceTest, ShardsOfADamagedManifestStayUntilTheEnd) {
  build_dataset(files_, pool_, options(1));
  const std::string whole = files_.read(at("d/dataset.json"));
  testing::write_file(files_, at("d/dataset.json"), "{");
  testing::write_file(files_, at("d/unfinished"), "");
  BuildOptions o = options(2);
  const auto encode = o.encode;
  o.encode = [](std::string_view, std::vector<int32_t>* tokens) { *tokens = {100}; };
  EXPECT_THROW(build_dataset(files_, pool_, o), Error);
  files_.write_atomic(at("d/dataset.json"), whole);
  EXPECT_EQ(token_of(at("d")), 1);
  testing::write_file(files_, at("d/dataset.json"), "{");
  o.encode = encode;
  build_dataset(files_, pool_, o);
  EXPECT_EQ(token_of(at("d")), 2);
  expect_nothing_else(at("d"));
}

}  // namespace
}  // namespace moraine
