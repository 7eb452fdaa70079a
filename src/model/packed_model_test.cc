// Fails if a packed model computes another bit than the model it was made from, if ranks get another's experts, or if
// a file that is damaged, cut, foreign or of another model gets further than an error that names it.
#include "model/packed_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/test_folder.h"
#include "checkpoint/describe.h"
#include "checkpoint/faulty_file_system.h"
#include "checkpoint/test_checkpoint.h"
#include "kernels/quantised.h"
#include "model/loaded_model.h"
#include "model/model_memory.h"
#include "model/test_packed.h"
#include "model/write_model.h"
#include "testing/places.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using testing::disk;
using testing::FaultyFileSystem;
using testing::pack_model;
using testing::Rig;
using testing::TestFolder;

std::string golden(const std::string& name) { return testing::source_path("tests/golden/" + name); }

std::string message_of(Code code, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no Error";
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
}

void expect_piece(const std::string& text, const std::string& piece) {
  EXPECT_NE(text.find(piece), std::string::npos) << "wanted " << piece << "\ngot " << text;
}

std::unique_ptr<LoadedModel> load(const std::string& path, const std::string& dtype = "") {
  return LoadedModel::open(
      ModelDirectory::open(disk(), path),
      {.dtype = dtype, .threads = 2, .tokens = 40, .positions = 64, .cache = {}, .ranks = {}});
}

std::vector<float> hidden_of(LoadedModel& m) {
  std::vector<int32_t> token(40), position(token.size());
  for (size_t i = 0; i < token.size(); ++i)
    token[i] = static_cast<int32_t>(static_cast<int64_t>(i * 53) % m.config().vocab_size);
  Batch batch{.token = make_tensor(token.data(), DType::kI32, {40}),
              .position = make_tensor(position.data(), DType::kI32, {40}),
              .segments = {}};
  set_documents(batch, {0, 17});
  const Tensor hidden = m.model().forward(m.ctx(), batch);
  const Tensor logits = m.model().logits(m.ctx(), hidden);
  return {logits.as<float>(), logits.as<float>() + logits.count()};
}

class Packed : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder.file(name); }
  TestFolder folder;

  // What a packed model has, to be changed and written again as one whose manifest is whole.
  struct Content {
    CheckpointInfo info;
    std::vector<CheckpointTensor> tensors;
    int64_t page_bytes = kPackPage;
  };
  std::string rewritten(const Checkpoint& good, const std::function<void(Content&)>& change) {
    Content content{.info = good.info(), .tensors = {}};
    std::vector<std::vector<uint8_t>> memory;
    for (const CheckpointEntry& e : good.entries()) {
      memory.emplace_back(static_cast<size_t>(e.bytes));
      Tensor t = make_tensor(memory.back().data(), e.dtype, {});
      t.rank = static_cast<int>(e.shape.size());
      std::copy(e.shape.begin(), e.shape.end(), t.dims);
      good.read(e.name, t);
      content.tensors.push_back({e.name, t});
    }
    change(content);
    const std::string root = file("changed");
    disk().remove_all(root);
    const CheckpointOptions options{.max_file_bytes = INT64_MAX, .page_bytes = content.page_bytes};
    return write_checkpoint(disk(), root,
                            {.info = content.info, .tensors = content.tensors, .options = options})
        .directory;
  }
};

TEST_F(Packed, ComputesTheBitsOfTheModelThatItWasMadeFrom) {
  for (const char* name : {"native-tiny", "legacy-tiny", "native-swa", "native-tiny-bf16"}) {
    for (const char* type : {"bf16", "f32"}) {
      SCOPED_TRACE(std::string(name) + " " + type);
      folder.clear();
      pack_model(disk(), ModelDirectory::open(disk(), golden(name)), file("m"), type);
      const ModelDirectory packed = ModelDirectory::open(disk(), file("m"));
      EXPECT_TRUE(packed.packed());
      EXPECT_STREQ(dtype_name(packed.compute_dtype()), type);
      const std::unique_ptr<LoadedModel> got = load(file("m")), want = load(golden(name), type);
      EXPECT_EQ(hidden_of(*got), hidden_of(*want));
      // What was mapped is no memory that was taken, and there is no master.
      EXPECT_GT(got->arena().mapped_bytes(), 0);
      EXPECT_EQ(want->arena().mapped_bytes(), 0);
      EXPECT_LT(got->arena().bytes() + got->arena().mapped_bytes(), want->arena().bytes());
    }
  }
}

// An integer has no NaN: the block that it is in would be NaN for every token.
TEST_F(Packed, AWeightThatIsNotFiniteIsNotQuantised) {
  const ModelDirectory from = ModelDirectory::open(disk(), golden("native-tiny"));
  const ParameterTable table = build_parameters(from.config());
  const int64_t bad = pack_sources(from.config(), table).back().begin + 5;
  Rig rig(Backend::kCpu, 2);
  const auto pack = [&](const char* type) {
    const auto weights = [&](int64_t begin, const Tensor& t) {
      from.read_elements(table, begin, t);
      if (begin <= bad && bad < begin + t.count()) t.as<float>()[bad - begin] = NAN;
    };
    write_packed_model(rig.ctx, disk(), file(type),
                       {.config = from.config(),
                        .weights = weights,
                        .type = *find_pack_type(type),
                        .language_files = {}});
  };
  pack("bf16");
  for (const char* type : {"q8", "q4"}) {
    expect_piece(message_of(Code::kCorrupt, [&] { pack(type); }), "is infinite or NaN");
    EXPECT_FALSE(disk().exists(file(type)));
  }
}

// Every block that a comparison can be made of has its packs.
TEST_F(Packed, AnyShapeCanBePacked) {
  std::vector<ModelConfig> shapes(4);
  shapes[1].router = RouterKind::kLinear;
  shapes[2].attention = AttentionKind::kGqa, shapes[2].residual = ResidualKind::kPlain;
  shapes[3].experts = 0;
  for (ModelConfig& c : shapes) {
    folder.clear();
    c.vocab_size = 67, c.hidden = 40, c.layers = 2, c.head_dim = 10, c.rotary_fraction = 0.4;
    c.expert_hidden = 23, c.router_hidden = 9, c.max_positions = 64;
    const ParameterTable table = build_parameters(c);
    const InitialValues values{table, c, 3};
    write_model_directory(
        disk(), file("m"),
        {.config = c,
         .weights = [&](int64_t begin,
                        const Tensor& out) { initialize_elements(values, begin, out); },
         .dtype = DType::kF32,
         .language_files = {}});
    pack_model(disk(), ModelDirectory::open(disk(), file("m")), file("p"));
    EXPECT_EQ(hidden_of(*load(file("p"))), hidden_of(*load(file("m"), "bf16")));
    pack_model(disk(), ModelDirectory::open(disk(), file("m")), file("q"), "q4");
    EXPECT_EQ(hidden_of(*load(file("q"))).size(), static_cast<size_t>(40 * c.vocab_size));
  }
}

// What a pack of bf16 says of its weights is what they were, in any pieces.
TEST_F(Packed, RoundedWeightsComeBackFromPacks) {
  for (const char* name : {"native-tiny-bf16", "native-swa"}) {
    SCOPED_TRACE(name);
    folder.clear();
    const ModelDirectory from = ModelDirectory::open(disk(), golden(name));
    pack_model(disk(), from, file("m"));
    const std::unique_ptr<PackedModel> packed =
        ModelDirectory::open(disk(), file("m")).open_packed();
    packed->check_weights();
    int64_t verified = 0, to_verify = -1;
    packed->verify([&](int64_t done, int64_t total) {
      EXPECT_GE(done, verified);
      verified = done, to_verify = total;
    });
    EXPECT_EQ(verified, to_verify);
    const ParameterTable table = build_parameters(from.config());
    Rig rig;
    const Tensor want = rig.zeros({table.total_count}, DType::kF32),
                 got = rig.zeros({table.total_count}, DType::kF32);
    from.read_weights(want);
    for (const Parameter& p : table.all) {
      if (p.kind == Parameter::Kind::kBalance) continue;  // stays as it is
      for (float& w : std::span(want.as<float>() + p.offset, static_cast<size_t>(p.count())))
        w = round_bf16(w);
    }
    for (const int64_t piece : {table.total_count, int64_t{4097}}) {
      for (int64_t at = 0; at < table.total_count; at += piece)
        packed->read_elements(at, got.rows(at, std::min(at + piece, table.total_count)));
      EXPECT_SAME_BITS(got, want);
    }
    pack_model(disk(), from, file("q"), "q8");
    EXPECT_THROW(ModelDirectory::open(disk(), file("q")).open_packed()->check_weights(), Error);
  }
}

WeightFormat format_in(const std::string& type, const PackSource& source) {
  if (!source.served) return WeightFormat::kPlain;
  switch (*source.served) {
    case ServedMatrix::kQkv:
    case ServedMatrix::kOutput:
      return WeightFormat::kQ8;
    case ServedMatrix::kGateUp:
      return type == "q8"   ? WeightFormat::kQ8
             : type == "q6" ? WeightFormat::kQ6
                            : WeightFormat::kQ4;
    case ServedMatrix::kDown:
    case ServedMatrix::kHead:
      return type == "q8" ? WeightFormat::kQ8 : WeightFormat::kQ6;
    case ServedMatrix::kEmbedding:
      return WeightFormat::kQ8;
  }
  return WeightFormat::kPlain;
}

// Which matrices have few bits, and that weights come back as their blocks allow.
TEST_F(Packed, QuantisedPacksAreThoseOfTheirMatrices) {
  const ModelDirectory from = ModelDirectory::open(disk(), golden("native-tiny"));
  const ParameterTable table = build_parameters(from.config());
  for (const char* type : {"q8", "q6", "q4"}) {
    SCOPED_TRACE(type);
    folder.clear();
    pack_model(disk(), from, file("m"), type);
    const ModelDirectory directory = ModelDirectory::open(disk(), file("m"));
    const std::unique_ptr<PackedModel> packed = directory.open_packed();
    std::vector<PackSource> sources = pack_sources(from.config(), table);
    EXPECT_EQ(packed->has_embedding(), type != std::string("q8"));
    if (packed->has_embedding()) sources.push_back(embedding_source(from.config(), table));
    for (const PackSource& source : sources) {
      SCOPED_TRACE(source.name);
      const PackedMatrix pack = packed->pack(source);
      EXPECT_EQ(pack.format, format_in(type, source));
      EXPECT_EQ(pack.dtype, DType::kBF16);
      std::vector<float> row(static_cast<size_t>(source.k)), want(row.size());
      const int64_t group = source.groups - 1, n = source.n - 1;
      read_packed_row(pack, group, n, row.data());
      from.read_elements(table, source.begin + (group * source.n + n) * source.k,
                         make_tensor(want.data(), DType::kF32, {source.k}));
      double error = 0, size = 0;
      for (size_t i = 0; i < row.size(); ++i)
        error += std::pow(row[i] - want[i], 2), size += std::pow(want[i], 2);
      const double most = pack.format == WeightFormat::kQ4   ? 0.15
                          : pack.format == WeightFormat::kQ6 ? 0.04
                                                             : 0.01;
      EXPECT_LT(std::sqrt(error / size), most);
    }
  }
}

// A row's bits depend on its own inputs: the second document alone is what it is behind the first.
TEST_F(Packed, QuantisedRowsDoNotMeet) {
  for (const char* type : {"q8", "q4"}) {
    SCOPED_TRACE(type);
    folder.clear();
    pack_model(disk(), ModelDirectory::open(disk(), golden("native-tiny")), file("m"), type);
    const std::unique_ptr<LoadedModel> m = load(file("m"));
    const auto V = static_cast<size_t>(m->config().vocab_size);
    const std::vector<float> both = hidden_of(*m);
    std::vector<int32_t> token, position;
    for (int64_t i = 17; i < 40; ++i) {
      token.push_back(static_cast<int32_t>(i * 53 % m->config().vocab_size));
      position.push_back(0);
    }
    const auto n = static_cast<int64_t>(token.size());
    Batch batch{.token = make_tensor(token.data(), DType::kI32, {n}),
                .position = make_tensor(position.data(), DType::kI32, {n}),
                .segments = {}};
    set_documents(batch, {0});
    const Tensor logits = m->model().logits(m->ctx(), m->model().forward(m->ctx(), batch));
    EXPECT_TRUE(std::equal(logits.as<float>(), logits.as<float>() + logits.count(),
                           both.begin() + static_cast<int64_t>(17 * V)));
  }
}

// What is measured on random weights is a mixture of experts only if they are all used.
TEST_F(Packed, InitialWeightsSendTokensToManyExperts) {
  ModelConfig c;
  c.vocab_size = 512, c.layers = 4, c.experts = 16;
  const ParameterTable table = build_parameters(c);
  const InitialValues values{table, c, 1};
  write_model_directory(
      disk(), file("m"),
      {.config = c,
       .weights = [&](int64_t begin,
                      const Tensor& out) { initialize_elements(values, begin, out); },
       .dtype = DType::kBF16,
       .language_files = {}});
  const std::unique_ptr<LoadedModel> m = load(file("m"));
  hidden_of(*m);  // 40 tokens
  const Tensor load = m->model().acts(c.layers - 1).load;
  int64_t used = 0, most = 0;
  for (int64_t e = 0; e < c.classes(); ++e) {
    used += load.as<int64_t>()[e] > 0;
    most = std::max(most, load.as<int64_t>()[e]);
  }
  EXPECT_GE(used, c.experts / 2);
  EXPECT_LE(most, 20);
}

TEST_F(Packed, ARankMapsItsOwnExperts) {
  const ModelDirectory from = ModelDirectory::open(disk(), golden("native-tiny"));
  pack_model(disk(), from, file("m"));
  const ModelConfig& c = from.config();
  const ParameterTable whole = build_parameters(c), some = build_parameters(c, {1, c.experts - 1});
  const PackedModel packed(disk(), file("m"), c);
  const std::vector<PackSource> all = pack_sources(c, whole), held = pack_sources(c, some);
  ASSERT_EQ(all.size(), held.size());
  int64_t experts = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const PackedMatrix a = packed.pack(all[i]), b = packed.pack(held[i]);
    const bool divided = all[i].groups != held[i].groups;
    experts += divided;
    const int64_t before = divided ? packed_bytes(a) / a.groups : 0;
    EXPECT_EQ(static_cast<uint8_t*>(a.data) + before, b.data) << all[i].name;
    EXPECT_EQ(b.groups, a.groups - (divided ? 2 : 0));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % kPackPage, 0u) << all[i].name;
  }
  EXPECT_EQ(experts, 2 * c.layers);
}

TEST_F(Packed, HasNoWeightsToReadAndOneType) {
  pack_model(disk(), ModelDirectory::open(disk(), golden("native-tiny")), file("m"));
  const ModelDirectory packed = ModelDirectory::open(disk(), file("m"));
  std::vector<float> master(static_cast<size_t>(build_parameters(packed.config()).total_count));
  const Tensor flat =
      make_tensor(master.data(), DType::kF32, {static_cast<int64_t>(master.size())});
  expect_piece(message_of(Code::kInvalidArgument, [&] { packed.read_weights(flat); }),
               "this is a packed model");
  expect_piece(message_of(Code::kInvalidArgument, [&] { load(file("m"), "f32"); }),
               "packed for bf16");
  EXPECT_NO_THROW(load(file("m"), "bf16"));
}

TEST_F(Packed, AFullDiskOrADeathLeavesNoHalfModel) {
  const ModelDirectory from = ModelDirectory::open(disk(), golden("native-tiny"));
  FaultyFileSystem full(disk());
  full.disk_full(100'000);
  message_of(Code::kIo, [&] { pack_model(full, from, file("m")); });
  EXPECT_TRUE(disk().list(folder.path()).empty());
  // Asked before anything is computed, it wants what is written, and headers.
  FaultyFileSystem small(disk());
  const PackedToWrite model = {
      .config = from.config(), .weights = {}, .type = *find_pack_type("q4"), .language_files = {}};
  small.say_free(1000);
  message_of(Code::kIo, [&] { check_packed_room(small, file("m"), model); });
  pack_model(disk(), from, file("q4"), "q4");
  int64_t bytes = 0;
  for (const std::string& name : disk().list(file("q4")))
    bytes += disk().file_bytes(file("q4/" + name));
  small.say_free(bytes - 1);
  message_of(Code::kIo, [&] { check_packed_room(small, file("m"), model); });
  small.say_free(bytes + (int64_t{2} << 20));
  check_packed_room(small, file("m"), model);
  disk().remove_all(file("q4"));
  FaultyFileSystem dies(disk());
  dies.kill_at(60);
  try {
    pack_model(dies, from, file("m"));
  } catch (const Error&) {  // a dead process writes nothing more, and reads what is not there
  }
  EXPECT_TRUE(dies.fired());
  EXPECT_FALSE(disk().exists(file("m")));
  pack_model(disk(), from, file("m"));
  EXPECT_EQ(disk().list(folder.path()), std::vector<std::string>{"m"});
  EXPECT_TRUE(describe(disk(), file("m")).problems.empty());
}

// It was read until the kernel ended the program.
TEST_F(Packed, AModelThatIsReadNeedsRoomForF32AndPacks) {
  const ModelDirectory directory = ModelDirectory::open(disk(), golden("native-tiny"));
  LoadOptions options;
  options.dtype = "bf16";
  options.threads = 1;
  const auto plan = LoadedModel::plan(directory, options);
  const ModelMemory memory = planned_memory(plan->arena());
  const int64_t parameters = plan->model().table().total_count;
  EXPECT_GE(memory.weight_bytes, read_model_bytes(parameters, DType::kBF16));
  options.host_free = plan->arena().bytes();
  LoadedModel::open(directory, options);
  const auto refused = [&](int64_t free) {
    options.host_free = free;
    return message_of(Code::kInvalidArgument, [&] { LoadedModel::open(directory, options); });
  };
  expect_piece(refused(plan->arena().bytes() - 1), "activations of 512 rows take");
  options.unread = "do without";
  const std::string weights = refused(memory.weight_bytes - 1);
  expect_piece(weights, "open model " + directory.path() + ": " + std::to_string(parameters) +
                            " parameters take 0.0 GiB, as f32 and packed as bf16, and 0.0 are");
  expect_piece(weights, "are free; do without");
  EXPECT_EQ(model_shortage({.parameters = 8'840'488'784,
                            .compute = DType::kBF16,
                            .weight_bytes = read_model_bytes(8'840'488'784, DType::kBF16)},
                           int64_t{24} << 30, "do without"),
            "8840488784 parameters take 49.4 GiB, as f32 and packed as bf16, and 24.0 are free; do "
            "without");
}

TEST_F(Packed, AllElseNeedsRoomBesideWeightsThatAreRead) {
  const auto shortage = [](const ModelMemory& m, int64_t available) {
    return model_shortage(m, available, "");
  };
  ModelMemory m = {.weight_bytes = 800,
                   .guest_bytes = 10,
                   .cache_bytes = 100,
                   .table_bytes = 50,
                   .row_bytes = 30,
                   .head_bytes = 10};
  EXPECT_EQ(shortage(m, 1000), "");
  EXPECT_NE(shortage(m, 999), "");
  constexpr int64_t kGib = int64_t{1} << 30;
  m = {.cached_positions = 1 << 20, .cache_bytes = 40 * kGib};  // packs are mapped
  const std::string remedy = "a shorter context, fewer sequences or a smaller cache take less",
                    positions = "keys and values of 1048576 positions take 40.0 GiB";
  EXPECT_EQ(shortage(m, 24 * kGib), positions + ", and 24.0 are free; " + remedy);
  m.weight_bytes = kGib;
  EXPECT_EQ(shortage(m, 24 * kGib),
            positions + " beside 1.0 of weights, and 24.0 are free; " + remedy);
  m.cache_bytes = INT64_MAX;
  EXPECT_NE(shortage(m, INT64_MAX - 1), "");
  m = {.positions = 1 << 30, .table_bytes = 256 * kGib};
  EXPECT_EQ(shortage(m, 24 * kGib),
            "rotary tables of 1073741824 positions take 256.0 GiB, and 24.0 are free; a shorter "
            "context, or a smaller max_positions of the model, takes less");
  m = {.ranks = 2, .weight_bytes = 2 * kGib, .cache_bytes = 3 * kGib, .rows = 8192};
  m.row_bytes = 20 * kGib;
  EXPECT_EQ(shortage(m, 24 * kGib),
            "activations of 8192 rows on 2 ranks of this host take 20.0 GiB beside 2.0 of weights, "
            "3.0 of keys and values, and 24.0 are free; fewer rows at a time take less");
  m = {.weight_bytes = 8 * kGib, .head_bytes = kGib};
  EXPECT_EQ(shortage(m, 9 * kGib - 1),
            "weights of the head in 8 bits take 1.0 GiB beside 8.0 of weights, and 9.0 are free; "
            "--head full does without");
}

TEST_F(Packed, DamageIsFoundAndNamed) {
  pack_model(disk(), ModelDirectory::open(disk(), golden("native-tiny")), file("m"));
  const std::string data = file("m/data-00000-00000.safetensors");
  const std::string whole = disk().read(data);
  const Checkpoint checkpoint = Checkpoint::open(disk(), file("m"));
  const auto flip = [&](int64_t at) {
    std::string changed = whole;
    changed[static_cast<size_t>(at)] ^= 1;
    folder.write("m/data-00000-00000.safetensors", changed);
  };
  // A pack: by `inspect` and by who takes weights from it, not by who maps it.
  const std::string pack = "packs.model.layers.1.mlp.experts.down_proj";
  flip(checkpoint.mapped(pack).offset + 77);
  EXPECT_NO_THROW(load(file("m")));
  const Description damaged = describe(disk(), file("m"));
  ASSERT_EQ(damaged.problems.size(), 1u);
  expect_piece(damaged.problems[0], "'" + pack + "'");
  const std::unique_ptr<PackedModel> source = ModelDirectory::open(disk(), file("m")).open_packed();
  expect_piece(message_of(Code::kCorrupt, [&] { source->verify(); }), pack);
  // A vector, and the header: at once.
  flip(checkpoint.mapped("vectors.model.norm.weight").offset);
  expect_piece(message_of(Code::kCorrupt, [&] { load(file("m")); }), "model.norm.weight");
  flip(20);
  message_of(Code::kCorrupt, [&] { load(file("m")); });
  folder.write("m/data-00000-00000.safetensors", whole.substr(0, whole.size() - 1));
  expect_piece(message_of(Code::kCorrupt, [&] { load(file("m")); }), "the manifest says");
}

// Manifests that are whole, and say what no `quantize` says.
TEST_F(Packed, ForeignAndContradictingLayoutsAreErrors) {
  pack_model(disk(), ModelDirectory::open(disk(), golden("native-tiny")), file("m"));
  const Checkpoint good = Checkpoint::open(disk(), file("m"));
  const std::string pack = "packs.model.layers.0.self_attn.qkv_proj";
  const auto refused = [&](Code code, const std::function<void(Content&)>& change) {
    return message_of(code, [&] { load(rewritten(good, change)); });
  };
  const auto tensor = [&](Content& c, const std::string& name) {
    return std::find_if(c.tensors.begin(), c.tensors.end(),
                        [&](const CheckpointTensor& t) { return t.name == name; });
  };
  expect_piece(refused(Code::kNotFound, [&](Content& c) { c.tensors.erase(tensor(c, pack)); }),
               pack);
  expect_piece(
      refused(Code::kInvalidArgument, [&](Content& c) { c.info.values[pack] = "q3 [1, 96, 64]"; }),
      "format that this program does not know; it knows f32, bf16");
  expect_piece(
      refused(Code::kInvalidArgument, [&](Content& c) { c.info.values[pack] = "bf16 [1, 2, 3]"; }),
      "wanted \"bf16 [1, ");
  expect_piece(refused(Code::kInvalidArgument, [&](Content& c) { c.info.values.erase(pack); }),
               pack);
  expect_piece(
      refused(Code::kInvalidArgument, [](Content& c) { c.info.values[kPackedLayoutKey] = "2"; }),
      "layout \"2\"");
  expect_piece(
      refused(Code::kInvalidArgument, [](Content& c) { c.info.values[kPackedTypeKey] = ""; }),
      "packed.type");
  expect_piece(
      refused(Code::kCorrupt, [&](Content& c) { tensor(c, pack)->tensor.dims[0] -= kPackPage; }),
      "wanted u8 [");
  expect_piece(refused(Code::kCorrupt, [](Content& c) { c.page_bytes = 0; }), "multiple of 4096");
  expect_piece(refused(Code::kInvalidArgument,
                       [](Content& c) {
                         static float one = 1;
                         c.tensors.push_back({"weights.x", make_tensor(&one, DType::kF32, {1})});
                       }),
               "weights.x does not belong");
  expect_piece(refused(Code::kInvalidArgument,
                       [](Content& c) {
                         static float one = 1;
                         c.tensors.push_back({"packs.x", make_tensor(&one, DType::kF32, {1})});
                         c.info.values["packs.x"] = "1 x 1 x 1 bf16";
                       }),
               "packs.x does not belong");
  expect_piece(
      refused(Code::kInvalidArgument,
              [&](Content& c) { tensor(c, "vectors.model.norm.weight")->tensor.dims[0] -= 1; }),
      "vectors.model.norm.weight");
  const std::string wide = "expert_hidden = ";
  expect_piece(refused(Code::kInvalidArgument,
                       [&](Content& c) {
                         c.info.config.replace(c.info.config.find(wide) + wide.size(), 1, "9");
                       }),
               "for its config");
}

// Of a model of integers, and of one of bf16 in which some matrices are integers: their bytes are as many in a file's
// pages as those of blocks of 64 were.
TEST_F(Packed, BlocksOf64AreRefusedByTheirLayout) {
  const ModelDirectory from = ModelDirectory::open(disk(), golden("native-tiny"));
  struct Case {
    const char *type, *layout;
  };
  for (const auto& [type, layout] : {Case{"q4", "3"}, Case{"q8", "2"}, Case{"bf16", "2"}}) {
    SCOPED_TRACE(type);
    folder.clear();
    const ParameterTable table = build_parameters(from.config());
    PackedToWrite model = {
        .config = from.config(),
        .weights = [&](int64_t begin, const Tensor& t) { from.read_elements(table, begin, t); },
        .type = *find_pack_type(type),
        .language_files = {}};
    model.matrix[static_cast<size_t>(ServedMatrix::kQkv)] = find_pack_type("q8");
    Rig rig(Backend::kCpu, 2);
    write_packed_model(rig.ctx, disk(), file("m"), model);
    expect_piece(description_text(describe(disk(), file("m"), {.verify = false, .hash = false})),
                 fmt::format("packed.layout = {}", layout));
    load(file("m"));
    const std::string old = rewritten(Checkpoint::open(disk(), file("m")),
                                      [](Content& c) { c.info.values[kPackedLayoutKey] = "1"; });
    expect_piece(
        message_of(Code::kInvalidArgument, [&] { load(old); }),
        fmt::format("layout \"1\", this program knows \"{}\" of such packs: make it anew", layout));
  }
}

// Tokens have rows of their own beside a head of few bits, and those of the head in models from before.
TEST_F(Packed, TokensHaveRowsOfTheirOwnOrThoseOfTheHead) {
  const std::string rows = "packs.model.embed_tokens.embedding";
  pack_model(disk(), ModelDirectory::open(disk(), golden("native-tiny")), file("m"), "q4");
  const Checkpoint good = Checkpoint::open(disk(), file("m"));
  const std::unique_ptr<LoadedModel> own = load(file("m"));
  EXPECT_EQ(own->model().weights().token_rows.format, WeightFormat::kQ8);
  const auto without = [&](Content& c) {
    std::erase_if(c.tensors, [&](const CheckpointTensor& t) { return t.name == rows; });
  };
  expect_piece(message_of(Code::kNotFound, [&] { load(rewritten(good, without)); }), rows);
  const std::unique_ptr<LoadedModel> head = load(rewritten(good, [&](Content& c) {
    without(c);
    c.info.values.erase(rows);
    c.info.values[kPackedLayoutKey] = "2";
  }));
  EXPECT_EQ(head->model().weights().token_rows.data, head->model().weights().head.forward.data);
  EXPECT_NE(hidden_of(*own), hidden_of(*head));
}

TEST_F(Packed, InspectShowsWhatAPackIs) {
  pack_model(disk(), ModelDirectory::open(disk(), golden("native-tiny")), file("m"));
  const Description d = describe(disk(), file("m"), {.verify = false, .hash = false});
  const std::string text = description_text(d);
  expect_piece(text, "packed.layout = 1");
  expect_piece(text, "]  bf16 [");
  EXPECT_EQ(text.find("value        packs."), std::string::npos);
  expect_piece(description_json(d), "\"note\": \"bf16 [");
}

}  // namespace
}  // namespace moraine
