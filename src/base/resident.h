// Resident: memory of this process and of the machine under it, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

// Bytes of this process's largest resident set so far.
int64_t peak_resident_bytes();

// Bytes that could still be taken without swapping: what the machine has available (caches that can
// be dropped count), less if a control group allows less. INT64_MAX where the kernel does not say.
int64_t available_memory_bytes();
// What the control group (version 2) of this folder allows beyond what it uses, its caches of files not counted.
int64_t group_available_bytes(const std::string& folder);

}  // namespace moraine
