// Operations: which operations of src/kernels have kernels for GPUs.
#pragma once

#include <span>
#include <string_view>

namespace moraine::gpu {

bool has_operation(std::string_view name);

// Errors: kInvalidArgument, with the names of all that have none; `who` wants them: "a model that is trained".
void require_operations(std::span<const char* const> names, std::string_view who);

}  // namespace moraine::gpu
