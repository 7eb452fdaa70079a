#!/usr/bin/env bash
# Compiles every GPU kernel for every target, in one image each as the build does, and holds registers, spills, stack and shared memory
# to the table below.
#   scripts/gpu_compile.sh [FOLDER]     FOLDER: where the code objects go; default: build/gpu
# AMD: linked code objects by clang 19 without ROCm, read back by llvm-readelf. NVIDIA: PTX by the same clang without NVIDIA's
# headers, assembled by ptxas, and for sm_90 by nvcc too, where those are. Nothing is run: no GPU is needed, none is looked for.
# Exit: 0; 1 for a kernel that does not compile or is past its row; 77 where clang 19 is missing: skipped, and it says so.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/gpu}

# kernel: registers of a thread at most for gfx90a gfx942 sm_80 sm_90, bytes of shared memory. No kernel may spill or have a
# stack: an array that is not in registers is a loop that was not unrolled (MR_UNROLL); but attention_dkv_128, a word or two: as
# two kernels, which need no stack, it took 1.3 times as long on an H100; and linear_weight_bf16_large on sm_80, to be mended. On AMD up to 128 registers leave four
# waves for each vector unit, up to 168 three, up to 256 two; on NVIDIA 64 registers leave 1024 threads, 128 leave 512, 168 leave 384.
ceilings='
residual_norm_f32   32  32  40  40     32
residual_norm_bf16  32  32  40  40     32
residual_norm_along 24  24  40  40     32
residual_norm_rows_f32 32 32 40 40      0
residual_norm_rows_bf16 40 40 40 40     0
residual_norm_sums  32  32  40  40      0
swiglu_f32          24  24  32  32      0
swiglu_bf16         24  24  32  32      0
swiglu_backward_f32 24  24  32  32      0
swiglu_backward_bf16 24 24  32  32      0
linear_f32         136 136  96  96  20480
linear_bf16          112 104 120 120  49152
linear_bf16_narrow    72  72  96  96  49152
linear_bf16_large    256 256 224 224  49152
linear_bf16_to_f32   112 104 120 120  49152
linear_bf16_to_f32_narrow   72  72  96  96  49152
linear_bf16_to_f32_large  256 256 255 255  49152
linear_q8_f32           80  80  80  80  17152
linear_q8_bf16          80  80  80  80  17152
linear_q8_bf16_to_f32   80  80  80  80  17152
linear_q6_f32           88  88  80  80  17152
linear_q6_bf16          88  88  80  80  17152
linear_q6_bf16_to_f32   88  88  80  80  17152
linear_q4_f32           80  80  80  80  17152
linear_q4_bf16          80  80  80  80  17152
linear_q4_bf16_to_f32   80  80  80  80  17152
matmul_f32         136 136  56  56  20480
matmul_bf16           96  88 112 112  49152
matmul_bf16_large    192 192 224 216  49152
linear_weight_f32   88  88  56  56  18432
linear_weight_bf16   144 144 136 128  49152
linear_weight_bf16_large  248 248 255 240  49152
pack_f32            24  24  32  32      0
pack_bf16           24  24  32  32      0
squares_f32         24  24  32  32   2048
squares_bf16        24  24  32  32   2048
adamw               24  24  32  32      0
momentum_f32        24  24  32  32      0
momentum_bf16       24  24  32  32      0
decay               24  24  32  32      0
normalise           24  24  40  40      0
transpose           24  24  32  32   4224
attention_64         136 136 104  96  21504
attention_rows_f32  56  56  64  64   8464
attention_rows_bf16 56  56  64  64   8464
attention_128        200 200 168 160  37888
attention_part_64    136 136 112 120  21504
attention_part_128   200 200 168 176  37888
attention_part_rows_f32 56 56 64 64    8464
attention_part_rows_bf16 56 56 64 64   8464
attention_merge_rows  16  16  32  32      0
attention_part_dq_64  136 144 136 136  13312
attention_part_dq_128  216 216 248 248  21504
attention_part_dk_64  128 128 128 136  26880
attention_part_dk_128  184 184 168 168  43264
attention_part_dv_64   96  96  96 112  18688
attention_part_dv_128  128 136 168 168  26880
attention_part_dq_rows_f32 56 56 72 72  12544
attention_part_dq_rows_bf16 56 56 72 72  12544
attention_part_dkv_rows_f32 48 48 72 72  16896
attention_part_dkv_rows_bf16 48 48 72 72  16896
attention_dq_64      136 144 152 144  13312
attention_dq_128     216 216 248 248  21504
attention_dkv_64     144 144 168 168  26880
attention_dkv_128    224 224 255 255  43264
attention_dq_rows_f32 56 56  72  72   12544
attention_dq_rows_bf16 56 56 72  72   12544
attention_dkv_rows_f32 48 48 72  72   16896
attention_dkv_rows_bf16 48 48 72 72   16896
attention_delta_f32  24  24  32  32       0
attention_delta_bf16 24  24  32  32       0
zero_elements        16  16  16  16      0
add_into_f32         16  16  16  16      0
add_into_bf16        16  16  16  16      0
scale_f32             8   8  16  16      0
scale_bf16            8   8  16  16      0
move_rows_elements   24  24  32  32      0
round_copy_elements  16  16  24  24      0
embedding_f32        24  24  24  24      0
embedding_bf16       24  24  24  24      0
embedding_rows_f32   16  16  24  24      0
embedding_rows_bf16  16  16  24  24      0
embedding_q8_f32     16  16  24  24      0
embedding_q8_bf16    16  16  24  24      0
embedding_q6_f32     16  24  24  32      0
embedding_q6_bf16    16  24  24  32      0
embedding_q4_f32     16  16  24  24      0
embedding_q4_bf16    16  16  24  24      0
cca_conv_f32         32  32  32  32      0
cca_conv_bf16        32  32  32  32      0
qk_norm_rope_f32     32  32  64  64      8
qk_norm_rope_bf16    32  32  72  72      8
value_shift_f32      24  24  24  24      0
value_shift_bf16     24  24  24  24      0
router_state_f32     24  24  40  40     32
router_state_bf16    40  40  40  40     32
gelu_f32             32  32  24  24      0
gelu_bf16            32  32  24  24      0
router_choice_f32    32  32  32  32    528
dispatch_load        24  24  32  32    512
dispatch_place       32  32  32  32    512
dispatch_f32         24  24  32  32      0
dispatch_bf16        24  24  32  32      0
combine_f32          24  24  24  24      0
combine_bf16         24  24  32  32      0
cross_entropy_f32    32  32  40  40     64
cross_entropy_bf16   40  40  40  40     64
gelu_backward_f32            32  32  24  24      0
gelu_backward_bf16           32  32  24  24      0
dispatch_backward_f32        16  16  32  32      0
dispatch_backward_bf16       16  16  32  32      0
combine_backward_f32         32  32  32  32     32
combine_backward_bf16        32  32  32  32     32
value_shift_backward_f32     16  16  24  24      0
value_shift_backward_bf16    16  16  24  24      0
embedding_links              24  24  32  32     32
embedding_sums_f32           16  16  24  24      0
embedding_sums_bf16          16  16  24  24      0
router_choice_backward_f32   24  24  24  24      0
router_choice_backward_bf16  24  24  24  24      0
router_state_along_f32       16  16  32  32     32
router_state_along_bf16      16  16  32  32     32
router_state_rows_f32        24  24  32  32      0
router_state_rows_bf16       32  32  32  32      0
row_sums                      8   8  32  32      0
cca_conv_backward_f32        32  32  32  32      0
cca_conv_backward_bf16       32  32  40  40      0
qk_rope_backward_f32         16  16  32  32      0
qk_rope_backward_bf16        16  16  32  32      0
qk_norm_along_f32            24  24  56  56      8
qk_norm_along_bf16           24  24  64  64      8
qk_norm_temp_rows            16  16  24  24      0
qk_norm_rope_backward_f32    56  56  80  80      0
qk_norm_rope_backward_bf16   56  56  80  80      0
pack_transposed_f32   16  16  32  32   4224
pack_transposed_bf16   16  16  32  32   4224
'

clang=$(command -v clang++-19 || true)
readelf=$(command -v llvm-readelf-19 || true)
if [ -z "$clang" ] || [ -z "$readelf" ] || ! command -v ld.lld-19 >/dev/null; then
  echo "gpu_compile: SKIPPED: want clang 19, lld 19, llvm 19 (scripts/setup.sh gpu), found ${clang:-no clang++-19}" >&2
  exit 77
fi
ptxas=$(command -v ptxas || true)
nvcc=$(command -v nvcc || true)
[ -n "$ptxas" ] || echo "gpu_compile: SKIPPED: registers of sm_80 and sm_90: no ptxas; the PTX is compiled" >&2
[ -n "$nvcc" ] || echo "gpu_compile: SKIPPED: nvcc: none here" >&2

mkdir -p "$out"
common=(-std=c++20 -O3 -Isrc)
flags=("${common[@]}" -Wall -Wextra -Werror -Wno-unknown-cuda-version -ffp-contract=off)

source=$out/kernels.cu
for kernels in src/kernels/gpu/*.cu; do echo "#include \"${kernels#src/}\""; done > "$source"

# Lines "kernel target registers spilled stack shared".
amd() { # target
  local object=$out/kernels.$1
  "$clang" -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib --offload-arch="$1" "${flags[@]}" "$source" -o "$object"
  "$readelf" --notes "$object" | awk -v target="$1" '
    /^    \.name:/ { name = $2 }
    /\.group_segment_fixed_size:/ { shared = $2 }
    /\.private_segment_fixed_size:/ { stack = $2 }
    /\.sgpr_spill_count:/ { spilled = $2 }
    /\.vgpr_count:/ { registers = $2 }
    /\.vgpr_spill_count:/ { print name, target, registers, spilled + $2, stack, shared }'
}
nvidia() { # target
  local object=$out/kernels.$1
  "$clang" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-path=/nonexistent --cuda-gpu-arch="$1" "${flags[@]}" -S "$source" -o "$object.ptx"
  [ -z "$nvcc" ] || [ "$1" = sm_80 ] || "$nvcc" -cubin -arch="$1" -fmad=false -Werror all-warnings "${common[@]}" "$source" -o "$object.nvcc.cubin"
  [ -n "$ptxas" ] || return 0
  "$ptxas" -arch="$1" -v "$object.ptx" -o "$object.cubin" 2>&1 | awk -v target="$1" -v q="'" '
    /error|warning/ { print > "/dev/stderr" }
    /Compiling entry function/ { split($0, part, q); name = part[2] }
    /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
      shared = 0
      for (i = 2; i <= NF; ++i) {
        if ($i == "Used") registers = $(i + 1)
        if ($i ~ /^smem/) shared = $(i - 2)
      }
      print name, target, registers, spilled, stack, shared
    }'
}

rows() { # target
  case $1 in
    gfx*) amd "$1" ;;
    *) nvidia "$1" ;;
  esac
}
running=()
for target in gfx90a gfx942 sm_80 sm_90; do
  rows "$target" > "$out/$target.rows" &
  running+=($!)
done
for job in "${running[@]}"; do wait "$job"; done
measured=$(cat "$out"/*.rows)

awk -v ceilings="$ceilings" '
  BEGIN {
    split("gfx90a gfx942 sm_80 sm_90", targets, " ")
    n = split(ceilings, lines, "\n")
    for (i = 1; i <= n; ++i) {
      if (split(lines[i], f, " ") != 6) continue
      for (t = 1; t <= 4; ++t) most[f[1], targets[t]] = f[1 + t]
      shared[f[1]] = f[6]; known[f[1]] = 1
    }
    printf "%-24s %-7s %9s %7s %7s %6s %7s\n", "kernel", "target", "registers", "at most", "spilled", "stack", "shared"
  }
  function problem(text) { print "gpu_compile: " $1 " for " $2 ": " text > "/dev/stderr"; failed = 1 }
  {
    printf "%-24s %-7s %9d %7d %7d %6d %7d\n", $1, $2, $3, most[$1, $2], $4, $5, $6
    seen[$1] = 1
    if (!($1 in known)) { problem("no row in the table of scripts/gpu_compile.sh"); next }
    if ($3 > most[$1, $2]) problem($3 " registers, at most " most[$1, $2])
    known_spill = $1 == "attention_dkv_128" ? 16 : $1 == "linear_weight_bf16_large" && $2 == "sm_80" ? 64 : 0
    if ($4 > known_spill) problem($4 " spilled")
    if ($5 > known_spill / 2) problem($5 " bytes of stack")
    if ($6 > shared[$1]) problem($6 " bytes of shared memory, at most " shared[$1])
  }
  END {
    for (k in known) if (!(k in seen)) { print "gpu_compile: no kernel " k > "/dev/stderr"; failed = 1 }
    exit failed
  }' <<<"$measured"
echo "gpu_compile: $(wc -l <<<"$measured") kernels compiled, none run"
