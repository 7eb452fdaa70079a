// StudyText: four digits, which is what seeds can tell apart.
#include "study/study_text.h"

#include <fmt/format.h>

#include <cmath>

namespace moraine {

std::string with_digits(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

std::string with_error(double mean, double error) {
  return std::isnan(error) ? with_digits(mean, 4) : fmt::format("{:.4f} ± {:.4f}", mean, error);
}

std::string signed_with_error(double mean, double error) {
  if (std::isnan(mean)) return "-";
  return std::isnan(error) ? fmt::format("{:+.4f}", mean)
                           : fmt::format("{:+.4f} ± {:.4f}", mean, error);
}

}  // namespace moraine
