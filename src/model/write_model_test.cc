// Fails if a model written in pieces has other bytes than one written from memory, if a piece of a model is not that
// part of the whole, or if a disk without room is found out too late.
#include "model/write_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/test_checkpoint.h"
#include "model/model_directory.h"
#include "testing/places.h"

namespace moraine {
namespace {

using testing::disk;
using testing::FaultyFileSystem;
using testing::TestFolder;

ModelConfig small() {
  ModelConfig c;
  c.vocab_size = 97, c.hidden = 48, c.layers = 3, c.heads = 4, c.kv_heads = 2, c.head_dim = 8;
  c.experts = 5, c.expert_hidden = 24, c.router_hidden = 12;
  return c;
}

void write_zeros(FileSystem& fs, const std::string& directory) {
  const auto zeros = [](int64_t, const Tensor& out) {
    std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
  };
  write_model_directory(
      fs, directory,
      {.config = small(), .weights = zeros, .dtype = DType::kF32, .language_files = {}});
}

void expect_same_files(const std::string& got, const std::string& want) {
  ASSERT_EQ(disk().list(got), disk().list(want));
  for (const std::string& name : disk().list(want))
    EXPECT_EQ(disk().read(join_path(got, name)), disk().read(join_path(want, name))) << name;
}

TEST(WriteModel, InitialWeightsInPiecesAreThoseThatTrainingBeginsWith) {
  const ModelConfig c = small();
  const ParameterTable table = build_parameters(c);
  std::vector<float> master(static_cast<size_t>(table.total_count));
  const Tensor flat = make_tensor(master.data(), DType::kF32, {table.total_count});
  initialize_parameters(table, c, 7, flat);
  const InitialValues values{table, c, 7};
  const auto pieces = [&](int64_t begin, const Tensor& out) {
    constexpr int64_t kBlock = 37;  // any cut gives the same
    for (int64_t at = 0; at < out.count(); at += kBlock)
      initialize_elements(values, begin + at, out.rows(at, std::min(out.count(), at + kBlock)));
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TestFolder folder;
    const std::vector<CheckpointFile> files = {{"tokenizer.json", "{}"}};
    write_model_directory(
        disk(), folder.file("memory"),
        {.config = c, .weights = weights_in(flat), .dtype = dtype, .language_files = files});
    int64_t told = 0, all = -1;
    write_model_directory(disk(), folder.file("pieces"),
                          {.config = c,
                           .weights = pieces,
                           .dtype = dtype,
                           .language_files = files,
                           .progress = [&](int64_t done, int64_t total) {
                             EXPECT_GT(done, told);
                             told = done, all = total;
                           }});
    EXPECT_EQ(told, all);
    expect_same_files(folder.file("pieces"), folder.file("memory"));
    EXPECT_EQ(disk().list(folder.path()), (std::vector<std::string>{"memory", "pieces"}));
  }
}

TEST(WriteModel, TheInitialValuesOfExpertsDoNotDependOnWhoHoldsThem) {
  const ModelConfig c = small();
  const ParameterTable whole = build_parameters(c), some = build_parameters(c, {2, 4});
  std::vector<float> all(static_cast<size_t>(whole.total_count)),
      held(static_cast<size_t>(some.total_count));
  initialize_parameters(whole, c, 7, make_tensor(all.data(), DType::kF32, {whole.total_count}));
  const Tensor flat = make_tensor(held.data(), DType::kF32, {some.total_count});
  initialize_parameters(some, c, 7, flat);
  for (const Parameter& p : some.all) {
    const Parameter& q = *whole.find(p.name);
    const int64_t begin = q.offset + p.row_begin * (q.count() / q.dims[0]);
    EXPECT_EQ(std::memcmp(view(p, flat).data, all.data() + begin,
                          static_cast<size_t>(view(p, flat).bytes())),
              0)
        << p.name;
  }
}

// Our own directory in both types, and both public layouts; the last one has an expert in each file entry.
TEST(WriteModel, PiecesOfAModelAreThoseOfTheWhole) {
  const TestFolder folder;
  std::vector<std::string> models;
  for (const char* name : {"native-tiny", "native-tiny-bf16", "legacy-tiny"}) {
    models.push_back(testing::source_path(std::string("tests/golden/") + name));
    const ModelDirectory from = ModelDirectory::open(disk(), models.back());
    const ParameterTable table = build_parameters(from.config());
    models.push_back(folder.file(name));
    write_model_directory(
        disk(), models.back(),
        {.config = from.config(),
         .weights = [&](int64_t begin,
                        const Tensor& out) { from.read_elements(table, begin, out); },
         .dtype = from.stored_dtype(),
         .language_files = {}});
  }
  for (size_t i = 0; i < models.size(); ++i) {
    const ModelDirectory model =
        ModelDirectory::open(disk(), models[i], ModelDirectory::Verify::kAsRead);
    const int64_t E = model.config().experts;
    const ParameterTable whole = build_parameters(model.config()),
                         some = build_parameters(model.config(), {1, E - 1});
    std::vector<float> all(static_cast<size_t>(whole.total_count)),
        held(static_cast<size_t>(some.total_count)), want(all);
    model.read_weights(make_tensor(all.data(), DType::kF32, {whole.total_count}));
    if (i % 2 == 1) {  // as in the folder that it was made from
      ModelDirectory::open(disk(), models[i - 1])
          .read_weights(make_tensor(want.data(), DType::kF32, {whole.total_count}));
      EXPECT_EQ(std::memcmp(all.data(), want.data(), 4 * all.size()), 0) << models[i];
    }
    model.read_weights(some, make_tensor(held.data(), DType::kF32, {some.total_count}));
    for (const Parameter& p : some.all) {
      const Parameter& q = *whole.find(p.name);
      const int64_t begin = q.offset + p.row_begin * (q.count() / q.dims[0]);
      EXPECT_EQ(std::memcmp(held.data() + p.offset, all.data() + begin,
                            static_cast<size_t>(4 * p.count())),
                0)
          << models[i] << " " << p.name;
    }
    std::vector<float> piece(777);
    for (int64_t begin = 0; begin + 777 <= whole.total_count; begin += 7919) {
      model.read_elements(whole, begin, make_tensor(piece.data(), DType::kF32, {777}));
      ASSERT_EQ(std::memcmp(piece.data(), all.data() + begin, 4 * piece.size()), 0) << begin;
    }
  }
}

TEST(WriteModel, ADiskWithoutRoomIsRefusedBeforeTheFirstByte) {
  const TestFolder folder;
  FaultyFileSystem fs(disk());
  const auto message = [&] {
    try {
      write_zeros(fs, folder.file("m"));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kIo);
      return std::string(e.what());
    }
    return std::string();
  };
  fs.say_free(1000);
  EXPECT_NE(message().find("the disk has 1000"), std::string::npos) << message();
  EXPECT_NE(message().find("; make room"), std::string::npos) << message();
  EXPECT_EQ(fs.calls(), 0);
  disk().make_directories(folder.file("m.partial"));
  EXPECT_NE(message().find("remove " + folder.file("m.partial")), std::string::npos) << message();
  disk().remove_all(folder.file("m.partial"));
  fs.say_free(int64_t{1} << 40);  // it says there is room, and there is none
  fs.disk_full(20000);
  EXPECT_NE(message().find("No space left"), std::string::npos) << message();
  EXPECT_TRUE(disk().list(folder.path()).empty());
  fs.disk_full(int64_t{1} << 40);
  write_zeros(fs, folder.file("m"));
  EXPECT_EQ(disk().list(folder.path()), std::vector<std::string>{"m"});
  ModelDirectory::open(disk(), folder.file("m")).check_weights();
}

TEST(WriteModel, WhatStandsWhereAModelIsWrittenIsNamedWithARemedy) {
  const TestFolder folder;
  const auto refused = [&](const std::string& piece) {
    try {
      write_zeros(disk(), folder.file("m"));
      ADD_FAILURE() << "it was written; wanted " << piece;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  };
  const std::string partial = folder.file("m.partial");
  folder.write("m.partial", "mine");
  refused(partial + " first, which is a file; wanted a folder, or nothing: remove it");
  EXPECT_EQ(disk().read(partial), "mine");
  disk().remove_all(partial);
  std::filesystem::create_symlink("absent", partial);
  refused(partial + " first, which is a link to nothing;");
  disk().remove_all(partial);
  ASSERT_EQ(::mkfifo(partial.c_str(), 0600), 0);
  refused(partial + " first, which is a pipe;");
  disk().remove_all(partial);
  std::filesystem::create_symlink("/dev/null", partial);
  refused(partial + " first, which is a link to what is no folder;");
  disk().remove_all(partial);
  std::filesystem::create_symlink("absent", folder.file("m"));
  refused("it exists already; remove it");
  disk().remove_all(folder.file("m"));
  disk().make_directories(folder.file("elsewhere"));
  std::filesystem::create_symlink("elsewhere", partial);
  write_zeros(disk(), folder.file("m"));
  ModelDirectory::open(disk(), folder.file("m")).check_weights();
}

TEST(WriteModel, The8BConfigHasThePublishedNumberOfParameters) {
  const std::string path = testing::source_path("configs/zaya1-8b.toml");
  const ModelConfig c =
      read_model_config(SettingsTable::parse(disk().read(path), path).table("model"));
  int64_t parameters = 0;
  for (const Parameter& p : build_parameters(c).all)
    parameters += p.kind == Parameter::Kind::kBalance ? 0 : p.count();  // a buffer there
  EXPECT_EQ(parameters, 8'840'488'784);
}

TEST(WriteModel, ANameEndsInASlashAsShellsCompleteIt) {
  const TestFolder folder;
  write_zeros(disk(), folder.file("m//"));
  EXPECT_EQ(disk().list(folder.path()), std::vector<std::string>{"m"});
  ModelDirectory::open(disk(), folder.file("m")).check_weights();
  EXPECT_THROW(write_zeros(disk(), ""), Error);
}

}  // namespace
}  // namespace moraine
