// Kernels with one fault each, which stands behind `fault`: without it they are right in every order.
#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/test_emulations.h"

namespace moraine::gpu {

inline namespace MR_GPU_SPACE {

// Each thread hands its number to the one before it.
MR_KERNEL(read_before_barrier, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + thread(), static_cast<float>(thread()));
  if (!a.fault) sync_block();
  store(a.y + thread(), load(s + (thread() + 1) % kFaultThreads));
}

// The same, and the array is used again.
MR_KERNEL(write_before_barrier, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + thread(), static_cast<float>(thread()));
  sync_block();
  const float v = load(s + (thread() + 1) % kFaultThreads);
  if (!a.fault) sync_block();
  store(s + thread(), 2 * v);
  store(a.y + thread(), load(s + thread()));
}

MR_KERNEL(two_writers, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + (a.fault ? 7 : thread()), 1.0f);
  sync_block();
  store(a.y + thread(), load(s + 7));
}

MR_KERNEL(barrier_in_a_branch, kFaultThreads, FaultArgs a) {
  if (a.fault && thread() >= kWave) {
    sync_block();
  } else {
    sync_block();
  }
  store(a.y + thread(), 1.0f);
}

MR_KERNEL(early_return, kFaultThreads, FaultArgs a) {
  if (a.fault && thread() == 5) return;
  sync_block();
  store(a.y + thread(), 1.0f);
}

MR_KERNEL(shuffle_in_a_branch, kFaultThreads, FaultArgs a) {
  float v = 1;
  if (!a.fault || lane() < 16) v += shuffle_xor(v, 1);
  store(a.y + thread(), v);
}

MR_KERNEL(outside, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + thread(), 1.0f);
  sync_block();
  store(a.y + thread(), load(s + thread() + (a.fault ? 1 : 0)));
}

MR_KERNEL(before_the_array, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + (thread() - (a.fault ? 1 : 0)), 1.0f);
  store(a.y + thread(), 1.0f);
}

MR_KERNEL(never_written, kFaultThreads, FaultArgs a) {
  MR_SHARED(BF16, s, 2 * kFaultThreads);
  store(s + thread(), narrow(1.0f));
  store(a.y + thread(), widen(load(s + thread() + (a.fault ? kFaultThreads : 0))));
}

// Lanes reverse their numbers through shared memory: no barrier of the block is needed.
MR_KERNEL(no_wave_barrier, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + thread(), static_cast<float>(lane()));
  if (!a.fault) sync_wave();
  store(a.y + thread(), load(s + (thread() - lane() + kWave - 1 - lane())));
}

// A shuffle meets, but orders no memory.
MR_KERNEL(shuffle_is_no_barrier, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + thread(), static_cast<float>(lane()));
  const float v = shuffle_xor(1.0f, 1);
  if (!a.fault) sync_wave();
  store(a.y + thread(), v + load(s + (thread() - lane() + kWave - 1 - lane())));
}

// Enough within a wave, not between waves.
MR_KERNEL(wave_barrier_only, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kFaultThreads);
  store(s + thread(), static_cast<float>(thread()));
  sync_wave();
  const int other = thread() ^ (a.fault ? kWave : 1);
  store(a.y + thread(), load(s + other % kFaultThreads));
}

// Chunks of eight numbers from the output's own begin, which the host has filled: with the fault nobody waits for them.
MR_KERNEL(no_wait_for_a_copy, kFaultThreads, FaultArgs a) {
  MR_SHARED(Chunk, s, kFaultThreads);
  copy_async(s + thread(), reinterpret_cast<const BF16*>(a.y), false);
  commit_copies();
  if (a.fault) {
    wait_copies<1>();
  } else {
    wait_copies<0>();
  }
  sync_block();
  store(a.y + thread(), 1 + widen(load_cell(s + (thread() + 1) % kFaultThreads, 3)));
}

// One's own copy is there behind one's own wait; another thread's behind a barrier.
MR_KERNEL(no_barrier_behind_a_copy, kFaultThreads, FaultArgs a) {
  MR_SHARED(Chunk, s, kFaultThreads);
  copy_async(s + thread(), reinterpret_cast<const BF16*>(a.y), false);
  commit_copies();
  wait_copies<0>();
  const int other = (thread() + (a.fault ? 1 : 0)) % kFaultThreads;
  store(a.y + thread(), 1 + widen(load_cell(s + other, 3)));
}

MR_KERNEL(too_much_shared, kFaultThreads, FaultArgs a) {
  MR_SHARED(float, s, kSharedBytes / 4);
  store(s + thread(), 1.0f);
  if (a.fault) {
    MR_SHARED(float, t, 1);
    store(t + thread(), 1.0f);
  }
  store(a.y + thread(), load(s + thread()));
}

inline const EmulatedEntry kFaultKernels[] = {
    MR_EMULATED(read_before_barrier, FaultArgs),
    MR_EMULATED(write_before_barrier, FaultArgs),
    MR_EMULATED(two_writers, FaultArgs),
    MR_EMULATED(barrier_in_a_branch, FaultArgs),
    MR_EMULATED(early_return, FaultArgs),
    MR_EMULATED(shuffle_in_a_branch, FaultArgs),
    MR_EMULATED(outside, FaultArgs),
    MR_EMULATED(before_the_array, FaultArgs),
    MR_EMULATED(never_written, FaultArgs),
    MR_EMULATED(no_wave_barrier, FaultArgs),
    MR_EMULATED(shuffle_is_no_barrier, FaultArgs),
    MR_EMULATED(wave_barrier_only, FaultArgs),
    MR_EMULATED(no_wait_for_a_copy, FaultArgs),
    MR_EMULATED(no_barrier_behind_a_copy, FaultArgs),
    MR_EMULATED(too_much_shared, FaultArgs),
};

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
