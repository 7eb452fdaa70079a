// Fails if a config.json of weights that another program has packed is taken for one of plain weights, or the message
// does not say what to do instead.
#include "model/public_config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace moraine {
namespace {

const ModelConfig kConfig;

TEST(PublicConfig, WeightsPackedByAnotherProgramAreRefusedByName) {
  for (const Layout layout : {Layout::kNative, Layout::kLegacy}) {
    const std::string plain = write_public_config(kConfig, layout, "bfloat16");
    EXPECT_EQ(read_public_config(plain, "config.json").layout, layout);
    struct Case {
      const char *key, *value, *named;
    };
    for (const Case& c :
         {Case{"quantization_config", R"({"quant_method":"mxfp4"})", "\"mxfp4\""},
          Case{"quantization_config", R"("fp8")", "\"fp8\""},
          Case{"quantization_config",
               R"({"quant_method":"compressed-tensors","format":"pack-quantized"})",
               "pack-quantized"},
          Case{"quantization_config",
               R"({"quant_method":"compressed-tensors","format":"mixed-precision",)"
               R"("config_groups":{"a":{"format":"float-quantized"},)"
               R"("b":{"format":"nvfp4-pack-quantized"}}})",
               "nvfp4-pack-quantized"},
          Case{"quantization_config",
               R"({"quant_method":"compressed-tensors","format":"float-quantized",)"
               R"("config_groups":{"a":{"weights":{"block_structure":[128,96]}}}})",
               "block_structure [128,96]"},
          Case{"quantization_config",
               R"({"quant_method":"compressed-tensors","format":"float-quantized",)"
               R"("transform_config":{"config_groups":{"a":1}}})",
               "transform_config"},
          Case{"quantization_config", R"({"quant_method":"compressed-tensors","config_groups":[]})",
               "without a format"},
          Case{"quantization", R"({"bits":4,"group_size":64})", "\"bits\":4"}}) {
      Json json = parse_json(plain, "config.json");
      json[c.key] = parse_json(c.value, c.key);
      try {
        read_public_config(json_text(json), "config.json");
        ADD_FAILURE() << c.value;
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Code::kInvalidArgument);
        const std::string what = e.what();
        EXPECT_NE(what.find(std::string("config.json: ") + c.key), std::string::npos) << what;
        EXPECT_NE(what.find(c.named), std::string::npos) << what;
        EXPECT_NE(what.find("moraine quantize"), std::string::npos) << what;
      }
    }
    Json json = parse_json(plain, "config.json");
    json["quantization_config"] = nullptr;
    EXPECT_EQ(read_public_config(json_text(json), "config.json").layout, layout);
  }
}

TEST(PublicConfig, AFormatIsShownSafelyAndNoExpertsAreRefused) {
  Json json = parse_json(write_public_config(kConfig, Layout::kLegacy, "bfloat16"), "plain");
  const auto error = [&] {
    try {
      read_public_config(json_text(json), "config.json");
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  for (const std::string& format :
       {std::string("float-quantized\0x", 17), std::string(200000, 'x')}) {
    json["quantization_config"] = {{"quant_method", "compressed-tensors"}, {"format", format}};
    EXPECT_NE(error().find("moraine quantize"), std::string::npos);
  }
  json.erase("quantization_config");
  json["num_experts"] = 0;
  EXPECT_NE(error().find("num_experts = 0"), std::string::npos);
}

TEST(PublicConfig, Fp8AndMxfp4OfCompressedTensorsAreRead) {
  for (
      const char* how :
      {R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{}})",
       R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized"})",
       R"({"quant_method":"compressed-tensors","format":"mixed-precision",)"
       R"("config_groups":{"a":{"format":"float-quantized"},"b":{"format":"mxfp4-pack-quantized"}}})"}) {
    Json json = parse_json(write_public_config(kConfig, Layout::kNative, "bfloat16"), "plain");
    json["quantization_config"] = parse_json(how, "how");
    EXPECT_EQ(read_public_config(json_text(json), "config.json").layout, Layout::kNative) << how;
  }
}

}  // namespace
}  // namespace moraine
