// PTX by hand: fails if an instruction has another result than PTX's specification says, if lanes that part do not meet
// again, if a fault of a kernel is not named, or if an opcode that is not known runs all the same.
#include "testing/ptx/run.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/emulate.h"
#include "testing/ptx/syntax.h"

namespace moraine::testing {
namespace {

constexpr uint64_t kIn = 0x10000000, kOut = 0x20000000;  // addresses of the two buffers

// Registers of every type, the thread in %r0, the buffers in %rd0 and %rd1, then `body`.
std::string module_of(const std::string& body, const std::string& shared = "") {
  return ".version 7.0\n.target sm_80\n.address_size 64\n" + shared +
         ".visible .entry k(.param .align 8 .b8 k_param_0[16])\n.maxntid 128, 1, 1\n{\n"
         ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 "
         "%rd<9>; "
         ".reg .f64 %fd<9>;\n"
         "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [k_param_0]; ld.param.u64 %rd1, "
         "[k_param_0+8];\n" +
         body + "\n}\n";
}

struct PtxRun {
  std::vector<uint32_t> out;
  std::string error;
};

PtxRun run(const std::string& text, int threads, const std::vector<uint64_t>& in = {0},
           bool descending = false) {
  PtxRun r;
  PtxMemory memory;
  const int64_t in_bytes = static_cast<int64_t>(in.size()) * 8, out_bytes = 4 * threads;
  memory.add(kIn, in_bytes);
  memory.add(kOut, out_bytes);
  std::memcpy(memory.find(kIn, in_bytes), in.data(), static_cast<size_t>(in_bytes));
  const uint64_t arguments[] = {kIn, kOut};
  try {
    const PtxProgram program = make_ptx_program(parse_ptx(text), "k");
    run_ptx(program,
            {.grid = {.blocks_x = 1, .threads = threads},
             .arguments = arguments,
             .rule = gpu::MatrixRule::kSm80,
             .descending = descending},
            memory);
  } catch (const Error& error) {
    r.error = error.what();
  }
  r.out.resize(static_cast<size_t>(threads));
  std::memcpy(r.out.data(), memory.find(kOut, out_bytes), static_cast<size_t>(out_bytes));
  return r;
}

// %r10 of a thread to its place of the output.
constexpr const char* kStore =
    "mul.wide.s32 %rd8, %r0, 4; add.s64 %rd8, %rd1, %rd8; st.global.u32 [%rd8], %r10; ret;";

uint64_t bits(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t bits(double v) { return std::bit_cast<uint64_t>(v); }
constexpr uint64_t kNan = 0x7fc12345, kOurNan = 0x7fffffff;

// `a` and `b` come as %rd2 and %rd3 (whole), %r2 and %r3, %rs2 and %rs3, %f2 and %f3, %fd2 and %fd3; `result` is read.
struct Arithmetic {
  const char* instruction;
  const char* result;
  uint64_t a, b, want;
};

uint64_t compute(const Arithmetic& c) {
  const std::string load =
      "ld.global.u64 %rd2, [%rd0]; ld.global.u64 %rd3, [%rd0+8]; ld.global.u32 %r2, [%rd0]; "
      "ld.global.u32 %r3, [%rd0+8]; ld.global.u16 %rs2, [%rd0]; ld.global.u16 %rs3, [%rd0+8]; "
      "ld.global.f32 %f2, [%rd0]; ld.global.f32 %f3, [%rd0+8]; ld.global.f64 %fd2, [%rd0]; "
      "ld.global.f64 %fd3, [%rd0+8];\n";
  const std::string result = c.result;
  const std::string how = result == "%p" ? "selp.b32 %r10, 1, 0, %p1; st.global.u32 [%rd1], %r10;"
                          : result == "%rs" ? "st.global.u16 [%rd1], %rs1;"
                          : result == "%r"  ? "st.global.u32 [%rd1], %r1;"
                          : result == "%f"  ? "st.global.f32 [%rd1], %f1;"
                          : result == "%fd" ? "st.global.f64 [%rd1], %fd1;"
                                            : "st.global.u64 [%rd1], %rd7;";
  // Only thread 0 stores.
  const PtxRun r = run(module_of(load + c.instruction + " setp.ne.s32 %p8, %r0, 0; @%p8 bra END; " +
                                 how + " END: ret;"),
                       32, {c.a, c.b});
  EXPECT_EQ(r.error, "") << c.instruction;
  return r.out[0] | uint64_t{r.out[1]} << 32;
}

void expect_as_specified(const std::vector<Arithmetic>& cases) {
  for (const Arithmetic& c : cases) {
    const std::string result = c.result;
    const uint64_t mask = result == "%rs"                      ? 0xffff
                          : result == "%rd" || result == "%fd" ? ~uint64_t{0}
                                                               : 0xffffffff;
    EXPECT_EQ(compute(c) & mask, c.want) << c.instruction << " of " << c.a << " and " << c.b;
  }
}

TEST(PtxRun, ArithmeticIsAsTheSpecificationSays) {
  const double tie = 16777217.0;  // between two f32
  const std::vector<Arithmetic> cases = {
      {"add.s32 %r1, %r2, %r3;", "%r", 0xffffffff, 2, 1},
      {"sub.s16 %rs1, %rs2, %rs3;", "%rs", 1, 2, 0xffff},
      {"mul.lo.s32 %r1, %r2, %r3;", "%r", 0x10001, 0x10001, 0x20001},
      {"mul.wide.s16 %r1, %rs2, %rs3;", "%r", 0xffff, 5, 0xfffffffb},
      {"mul.wide.u16 %r1, %rs2, %rs3;", "%r", 0xffff, 5, 0x4fffb},
      {"mul.wide.s32 %rd7, %r2, %r3;", "%rd", 0xffffffff, 5, 0xfffffffffffffffb},
      {"mad.lo.s32 %r1, %r2, %r3, 7;", "%r", 6, 7, 49},
      {"div.u32 %r1, %r2, %r3;", "%r", 0xfffffffe, 3, 0x55555554},
      {"rem.u32 %r1, %r2, %r3;", "%r", 0xfffffffe, 3, 2},
      {"div.s64 %rd7, %rd2, %rd3;", "%rd", uint64_t(-7), 2, uint64_t(-3)},
      {"div.s64 %rd7, %rd2, %rd3;", "%rd", uint64_t{1} << 63, uint64_t(-1), uint64_t{1} << 63},
      {"rem.s64 %rd7, %rd2, %rd3;", "%rd", uint64_t(-7), 2, uint64_t(-1)},
      {"shl.b32 %r1, %r2, %r3;", "%r", 5, 32, 0},
      {"shl.b32 %r1, %r2, %r3;", "%r", 5, 31, 0x80000000},
      {"shr.u32 %r1, %r2, %r3;", "%r", 0x80000000, 300, 0},
      {"shr.s32 %r1, %r2, %r3;", "%r", 0x80000000, 300, 0xffffffff},
      {"shr.s16 %rs1, %rs2, 3;", "%rs", 0x8000, 0, 0xf000},
      {"bfe.u32 %r1, %r2, 4, 8;", "%r", 0x12345678, 0, 0x67},
      {"bfe.u32 %r1, %r2, 28, 8;", "%r", 0x92345678, 0, 9},
      {"bfe.u32 %r1, %r2, 40, 8;", "%r", 0xffffffff, 0, 0},
      {"cvt.s8.s32 %rs1, %r2;", "%rs", 0x1ff, 0, 0xffff},
      {"cvt.s32.s16 %r1, %rs2;", "%r", 0x8001, 0, 0xffff8001},
      {"cvt.u64.u32 %rd7, %r2;", "%rd", 0xffffffff, 0, 0xffffffff},
      {"cvt.s64.s8 %rd7, %rd2;", "%rd", 0x1080, 0, 0xffffffffffffff80},
      {"mov.b32 {%rs4, %rs1}, %r2;", "%rs", 0x12345678, 0, 0x1234},
      {"mov.b32 %r1, {%rs2, %rs3};", "%r", 0x1111, 0x2222, 0x22221111},
      {"{ .reg .b16 tmp; mov.b32 {tmp, %rs1}, %r2; }", "%rs", 0x12345678, 0, 0x1234},
      {"add.rn.f32 %f1, %f2, %f3;", "%f", 1, 2, 3},  // subnormals
      {"mul.rn.f32 %f1, %f2, %f3;", "%f", bits(0x1p-100f), bits(0x1p-49f), 1},
      {"add.rn.f32 %f1, %f2, %f3;", "%f", bits(0x1p24f), bits(1.0f), bits(0x1p24f)},
      {"add.rn.f32 %f1, %f2, %f3;", "%f", kNan, bits(1.0f), kOurNan},
      {"fma.rn.f32 %f1, %f2, %f2, %f3;", "%f", bits(1 + 0x1p-23f), bits(-1.0f),
       bits(0x1p-22f + 0x1p-46f)},
      {"div.rn.f32 %f1, %f2, %f3;", "%f", bits(1.0f), bits(3.0f), 0x3eaaaaab},
      {"div.rn.f32 %f1, %f2, %f3;", "%f", 0, 0, kOurNan},
      {"rcp.rn.f32 %f1, %f2;", "%f", bits(3.0f), 0, 0x3eaaaaab},
      {"sqrt.rn.f32 %f1, %f2;", "%f", bits(2.0f), 0, 0x3fb504f3},
      {"sqrt.rn.f64 %fd1, %fd2;", "%fd", bits(2.0), 0, 0x3ff6a09e667f3bcd},
      {"neg.f32 %f1, %f2;", "%f", 0, 0, 0x80000000},
      {"max.f32 %f1, %f2, %f3;", "%f", kNan, bits(2.0f), bits(2.0f)},
      {"max.f32 %f1, %f2, %f3;", "%f", bits(2.0f), kNan, bits(2.0f)},
      {"max.f32 %f1, %f2, %f3;", "%f", kNan, kNan, kOurNan},
      {"max.f32 %f1, %f2, %f3;", "%f", 0x80000000, 0, 0},
      {"max.f32 %f1, %f2, %f3;", "%f", 0, 0x80000000, 0},
      {"cvt.rn.f32.f64 %f1, %fd2;", "%f", bits(tie), 0, bits(16777216.0f)},
      {"cvt.rn.f32.s64 %f1, %rd2;", "%f", 16777219, 0, bits(16777220.0f)},
      {"cvt.rzi.s64.f32 %rd7, %f2;", "%rd", bits(-1.9f), 0, uint64_t(-1)},
      {"cvt.rzi.s64.f32 %rd7, %f2;", "%rd", kNan, 0, 0},
      {"cvt.rzi.s64.f32 %rd7, %f2;", "%rd", bits(0x1p70f), 0, 0x7fffffffffffffff},
      {"setp.lt.f32 %p1, %f2, %f3;", "%p", bits(1.0f), kNan, 0},
      {"setp.ltu.f32 %p1, %f2, %f3;", "%p", bits(1.0f), kNan, 1},
      {"setp.num.f32 %p1, %f2, %f3;", "%p", bits(1.0f), kNan, 0},
      {"setp.gt.u32 %p1, %r2, %r3;", "%p", 0xffffffff, 1, 1},
      {"setp.gt.s32 %p1, %r2, %r3;", "%p", 0xffffffff, 1, 0},
      {"setp.eq.s64 %p2, %rd2, 7; mov.pred %p3, -1; and.pred %p1, %p2, %p3;", "%p", 7, 0, 1},
      {"mov.f32 %f1, 0f3F800000;", "%f", 0, 0, 0x3f800000},
      {"setp.ne.s32 %p1, %r0, 0; mov.u32 %r1, 1; @!%p1 mov.u32 %r1, 2;", "%r", 0, 0, 2},
  };
  expect_as_specified(cases);
}

TEST(PtxRun, WholeNumbersAndComparisonsAreAsTheSpecificationSays) {
  expect_as_specified({
      {"setp.leu.f32 %p1, %f2, %f3;", "%p", bits(1.0f), kNan, 1},
      {"setp.leu.f32 %p1, %f2, %f3;", "%p", bits(1.0f), bits(1.0f), 1},
      {"setp.leu.f32 %p1, %f2, %f3;", "%p", bits(2.0f), bits(1.0f), 0},
      {"setp.ge.s32 %p1, %r2, %r3;", "%p", 0xffffffff, 0, 0},
      {"setp.ge.s32 %p1, %r2, %r3;", "%p", 5, 5, 1},
      {"dp4a.s32.s32 %r1, %r2, %r3, 7;", "%r", 0x80ff017f, 0x80027f80,
       0x4000 - 2 + 127 - 16256 + 7},
      {"dp4a.s32.s32 %r1, %r2, %r3, 0x7fffffff;", "%r", 1, 1, 0x80000000},
      {"max.s32 %r1, %r2, %r3;", "%r", 0xffffffff, 2, 2},
      {"max.u32 %r1, %r2, %r3;", "%r", 0xffffffff, 2, 0xffffffff},
      {"not.b32 %r1, %r2;", "%r", 0x0f, 0, 0xfffffff0},
      {"not.b64 %rd7, %rd2;", "%rd", 0x0f, 0, 0xfffffffffffffff0},
      {"div.u64 %rd7, %rd2, %rd3;", "%rd", uint64_t(-2), 3, 0x5555555555555554},
      {"setp.le.s32 %p1, %r2, %r3;", "%p", 0xffffffff, 0, 1},
      {"setp.le.s32 %p1, %r2, %r3;", "%p", 5, 5, 1},
      {"setp.le.u32 %p1, %r2, %r3;", "%p", 0xffffffff, 0, 0},
      {"setp.le.s32 %p1, %r2, %r3;", "%p", 1, 0xffffffff, 0},
      {"cvt.s8.s64 %rs1, %rd2;", "%rs", 0x100000180, 0, 0xff80},
      {"cvt.u16.u64 %rs1, %rd2;", "%rs", 0x123456789, 0, 0x6789},
  });
}

// Lane l goes round l + 1 times, and odd lanes do more in between; the shuffle needs all of them at one place.
TEST(PtxRun, LanesThatPartMeetAgain) {
  const std::string text = module_of(
      std::string(
          "mov.u32 %r10, 0; mov.u32 %r1, 0; and.b32 %r2, %r0, 1; setp.eq.s32 %p1, %r2, 0;\n"
          "LOOP: add.s32 %r1, %r1, 1; @%p1 bra EVEN; add.s32 %r10, %r10, 100; bra.uni NEXT;\n"
          "EVEN: add.s32 %r10, %r10, 1;\n"
          "NEXT: setp.gt.u32 %p2, %r1, %r0; @!%p2 bra LOOP;\n"
          "shfl.sync.bfly.b32 %r10, %r10, 1, 0x1f, 0xffffffff;\n") +
      kStore);
  const PtxRun r = run(text, 32);
  EXPECT_EQ(r.error, "");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t other = lane ^ 1;
    EXPECT_EQ(r.out[lane], (other + 1) * (other % 2 == 0 ? 1 : 100)) << lane;
  }
}

TEST(PtxRun, AShuffleKeepsToItsSegment) {
  const std::string shuffle = "shfl.sync.bfly.b32 %r10, %r0, ";
  const PtxRun whole = run(module_of(shuffle + "16, 0x1f, 0xffffffff; " + kStore), 32),
               // Segments of 8: 16 lies beyond, and a lane has its own.
      eights = run(module_of(shuffle + "16, 0x1807, 0xffffffff; " + kStore), 32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(whole.out[lane], lane ^ 16);
    EXPECT_EQ(eights.out[lane], lane < 16 ? lane : lane ^ 16);
  }
}

// One element of a and one of b are not 0: where the product comes out. Rows and columns are read from the figures of
// PTX's documentation of mma.m16n8k16 with bf16, not computed.
struct OneProduct {
  int a_lane, a_element, b_lane,
      b_element;          // elements count halves of registers, the low one first
  int c_lane, c_element;  // -1: they do not meet
};

TEST(PtxRun, AProductOfTilesHasTheLayoutOfTheDocumentation) {
  const OneProduct cases[] = {
      {0, 0, 0, 0, 0, 0},     // a[0][0] b[0][0]
      {13, 7, 21, 3, 14, 3},  // a[11][11] b[11][5]
      {31, 2, 3, 0, 28, 2},   // a[15][6] b[6][0]
      {4, 5, 12, 3, 5, 1},    // a[1][9] b[9][3]
      {4, 5, 12, 1, -1, 0},   // a[1][9] b[1][3]
      {18, 3, 30, 1, 19, 3},  // a[12][5] b[5][7]
      {7, 4, 31, 2, 7, 1},    // a[1][14] b[14][7]
  };
  for (const OneProduct& c : cases) {
    const auto place = [](const char* name, int lane, int element) {
      return "setp.ne.s32 %p1, %r0, " + std::to_string(lane) + "; @!%p1 mov.u32 " + name +
             std::to_string(element / 2) + (element % 2 == 0 ? ", 0x4000; " : ", 0x40000000; ");
    };
    std::string body;
    for (int i = 0; i < 8; ++i) body += "mov.u32 %r" + std::to_string(11 + i) + ", 0; ";
    for (int i = 1; i <= 4; ++i) body += "mov.f32 %f" + std::to_string(i) + ", 0f3F800000; ";
    // a in %r11 to 14, b in %r15 and 16: names are without their last digit.
    const auto digit = [](int base, int element) { return base * 2 + element; };
    body += place("%r1", c.a_lane, digit(1, c.a_element));
    body += place("%r1", c.b_lane, digit(5, c.b_element));
    body +=
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, "
        "{%r11, %r12, %r13, %r14}, {%r15, %r16}, {%f1, %f2, %f3, %f4};\n";
    for (int element = 0; element < 4; ++element) {
      const PtxRun r = run(
          module_of(body + "mov.b32 %r10, %f" + std::to_string(element + 1) + "; " + kStore), 32);
      EXPECT_EQ(r.error, "");
      for (int lane = 0; lane < 32; ++lane) {
        const bool here = lane == c.c_lane && element == c.c_element;
        EXPECT_EQ(r.out[static_cast<size_t>(lane)], bits(here ? 5.0f : 1.0f))
            << "lane " << lane << " element " << element << " of a " << c.a_lane;
      }
    }
  }
}

constexpr const char* kArray = ".shared .align 4 .b8 array[512];\n";
const std::string kPlace =
    "mov.u64 %rd4, array; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd6, %rd4, %rd5; ";

// Every thread writes its own place and reads that of `other`.
std::string exchange(const std::string& between, int other) {
  return module_of(kPlace + "st.shared.u32 [%rd6], 99; bar.sync 0; st.shared.u32 [%rd6], %r0; " +
                       between + " xor.b32 %r1, %r0, " + std::to_string(other) +
                       "; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd4, %rd5; "
                       "ld.shared.u32 %r10, [%rd6]; " +
                       kStore,
                   kArray);
}

TEST(PtxRun, WhatIsSharedNeedsABarrierWhateverTheOrder) {
  for (const bool descending : {false, true}) {
    const auto error = [&](const std::string& between, int other) {
      const PtxRun r = run(exchange(between, other), 64, {0}, descending);
      if (r.error.empty()) {
        for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(r.out[t], t ^ static_cast<uint32_t>(other));
      }
      return r.error;
    };
    EXPECT_EQ(error("bar.sync 0;", 32), "");
    EXPECT_EQ(error("bar.warp.sync 0xffffffff;", 1), "");
    EXPECT_NE(error("bar.warp.sync 0xffffffff;", 32).find("race on byte"), std::string::npos);
    EXPECT_NE(error("", 1).find("race on byte"), std::string::npos);
    // A shuffle makes lanes meet; their memory does not.
    EXPECT_NE(error("shfl.sync.bfly.b32 %r5, %r0, 1, 0x1f, 0xffffffff;", 1).find("race on byte"),
              std::string::npos);
  }
}

// Warp 0 copies 16 bytes to the begin of the array; every thread reads word 3 of it.
constexpr const char* kCopy =
    "mov.u64 %rd4, array; setp.gt.u32 %p1, %r0, 0; @%p1 bra MEET; "
    "cp.async.cg.shared.global [%rd4], [%rd0], 16, %r2; cp.async.commit_group; ";

TEST(PtxRun, ACopyIsThereWhenItsGroupWasWaitedFor) {
  const auto copied = [](const std::string& wait, const std::string& bytes) {
    return run(module_of("mov.u32 %r2, " + bytes + "; " + kCopy + wait +
                             " MEET: bar.sync 0; ld.shared.u32 %r10, [%rd4+12];\n" + kStore,
                         kArray),
               64, {1, uint64_t{7} << 32});
  };
  const PtxRun whole = copied("cp.async.wait_group 0;", "16");
  EXPECT_EQ(whole.error, "");
  for (const uint32_t v : whole.out) EXPECT_EQ(v, 7u);
  EXPECT_EQ(copied("cp.async.wait_group 0;", "0").out[40], 0u);
  EXPECT_EQ(copied("cp.async.wait_group 1;", "16").out[40], 0xffffffffu);
  EXPECT_EQ(copied("cp.async.commit_group; cp.async.wait_group 1;", "16").out[40], 7u);
  EXPECT_NE(copied("cp.async.wait_group 0;", "17").error.find("17 bytes of a chunk"),
            std::string::npos);
}

// Thread l writes row l, its elements 8 l to 8 l + 7; the matrices are eight rows each.
TEST(PtxRun, MatricesAreLoadedByTheirRows) {
  const std::string rows =
      "mov.u64 %rd4, array; mul.wide.u32 %rd5, %r0, 16; add.s64 %rd6, %rd4, %rd5;\n"
      "mul.lo.s32 %r1, %r0, 524296; add.s32 %r1, %r1, 65536;\n"  // 8 l and 8 l + 1 in two halves
      "st.shared.u32 [%rd6], %r1; add.s32 %r2, %r1, 131074; st.shared.u32 [%rd6+4], %r2;\n"
      "add.s32 %r2, %r1, 262148; st.shared.u32 [%rd6+8], %r2;\n"
      "add.s32 %r2, %r1, 393222; st.shared.u32 [%rd6+12], %r2;\nbar.warp.sync 0xffffffff;\n";
  for (const bool transposed : {false, true}) {
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const std::string load = std::string("ldmatrix.sync.aligned.m8n8.x4.") +
                               (transposed ? "trans." : "") +
                               "shared.b16 {%r4, %r5, %r6, %r7}, [%rd6]; mov.u32 %r10, %r" +
                               std::to_string(4 + matrix) + "; ";
      const PtxRun r = run(module_of(rows + load + kStore, kArray), 32);
      EXPECT_EQ(r.error, "");
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t major = lane / 4, minor = 2 * (lane % 4);
        const uint32_t low = transposed ? 8 * minor + major : 8 * major + minor;
        const uint32_t high = low + (transposed ? 8 : 1), base = 64 * matrix;
        EXPECT_EQ(r.out[lane], (base + low) | (base + high) << 16) << lane;
      }
    }
  }
}

struct PtxFault {
  std::string body;
  const char* said;
};

TEST(PtxRun, FaultsOfAKernelAreNamed) {
  const std::string half = "setp.gt.u32 %p1, %r0, 15; ", whole = "setp.gt.u32 %p1, %r0, 31; ";
  const std::vector<PtxFault> faults = {
      {"mul.wide.u32 %rd5, %r0, 8; add.s64 %rd6, %rd1, %rd5; st.global.u32 [%rd6], %r0; ret;",
       "`st.global.u32`: thread 32 of block (0, 0): 4 bytes of global memory at 0x20000100: 256 "
       "bytes from the begin of a buffer of 256"},
      {"ld.global.u32 %r1, [%rd0+8]; ret;", "8 bytes from the begin of a buffer of 8"},
      {"mov.u64 %rd5, 0; ld.f32 %f1, [%rd5+16]; ret;", "near null"},
      {"ld.global.u32 %r1, [%rd0+2]; ret;", "0x10000002 is not a multiple of 4"},
      {"ld.param.u64 %rd5, [k_param_0+16]; ret;", "8 bytes at 16 of the parameters, which have 16"},
      {kPlace + "st.shared.u32 [%rd6+260], %r0; ret;", "byte 512 of shared array, which has 512"},
      {kPlace + "ld.shared.u32 %r1, [%rd6]; ret;", "was never written"},
      {kPlace + "st.shared.u32 [%rd4], %r0; ret;", "this one writes it, and no barrier is between"},
      {"div.u32 %r1, %r0, %r0; ret;", "thread 0 of block (0, 0): division by zero"},
      {half + "@%p1 bra END; bar.sync 0; END: ret;", "threads do not meet: 0 waits for its warp"},
      {half + "@%p1 bra END; shfl.sync.bfly.b32 %r1, %r0, 1, 0x1f, 0xffffffff; END: ret;",
       "16 has ended"},
      {half + "@%p1 bra B; bar.warp.sync 0xffffffff; ret;\n B: bar.warp.sync 0xffffffff; ret;",
       "0 waits for its warp at line 10, 16 at line 11"},
      {whole + "@%p1 bra END; bar.sync 0; END: ret;",
       "threads do not meet: 0 waits for the block at line 10, 32 has ended"},
  };
  for (const PtxFault& f : faults) {
    const PtxRun r = run(module_of(f.body, kArray), 64);
    EXPECT_NE(r.error.find(f.said), std::string::npos) << f.body << "\n" << r.error;
  }
}

TEST(PtxRun, WhatIsNotKnownIsRefusedByLineAndOpcode) {
  const std::vector<PtxFault> faults = {
      {"ex2.approx.f32 %f1, %f2; ret;", "ptx line 9 `ex2.approx.f32`: no such opcode"},
      {"add.rn.ftz.f32 %f1, %f2, %f3; ret;", "`add.rn.ftz.f32`: no such opcode"},
      {"add.s32 %rd2, %r1, %r2; ret;", "%rd2 has 8 bytes, wanted 4"},
      {"add.s32 %r1, %r2; ret;", "2 operands, wanted 3"},
      {"add.s32 %r1, %r2, %r99; ret;", "no register %r99"},
      {"bra NOWHERE;", "no label NOWHERE"},
      {"bar.sync 1; ret;", "other members or barriers are not known"},
      {"bar.warp.sync 0x0000ffff; ret;", "other members or barriers are not known"},
      {"@%p1 bar.sync 0; ret;", "a guard where all lanes are to come"},
      {"ld.global.u64 %r1, [%rd0]; ret;", "not known here with registers of 4 bytes"},
      {"ld.global.nc.f32 %f1, [%rd0]; ret;", "no such opcode"},
      {"mov.u64 %rd2, nothing; ret;", "no variable nothing"},
      {"add.s32 %r1, %r2, %r3;", "does not end with ret or bra"},
      {".local .b8 x[4]; ret;", "ptx line 9: `x`: wanted `;`"},
      {".branchtargets; ret;", "`.branchtargets`: not an instruction that is known here"},
      {"mov.f32 %f1, 0f3F8; ret;", "wanted the bits of a float"},
      {"add.s32 %r1, %r2, %r3", "ptx line 10: `}`: wanted `;`"},
  };
  for (const PtxFault& f : faults) {
    const PtxRun r = run(module_of(f.body), 32);
    EXPECT_NE(r.error.find(f.said), std::string::npos) << f.body << "\n" << r.error;
  }
}

}  // namespace
}  // namespace moraine::testing
