// StudyText: numbers of a study as its table and its page write them; "-" where nothing is known.
#pragma once

#include <string>

namespace moraine {

std::string with_digits(double value, int digits);
std::string with_error(double mean,
                       double error);  // "3.1416 ± 0.0027"; without an error, the mean alone
std::string signed_with_error(double mean, double error);  // "+0.0100 ± 0.0027"

}  // namespace moraine
