// StudyPage: the result of a study as one HTML page that loads nothing.
//
// A table; the differences from the base with their intervals as a picture; held-out loss against flops, each variant
// beside the base, with the standard error as pale lines.
#pragma once

#include <string>
#include <vector>

#include "study/study_result.h"

namespace moraine {

std::string study_page(const std::vector<VariantResult>& results);

}  // namespace moraine
