// SecretFile: the content of a file that every process of a job must know.
//
// Errors: kNotFound: no such file; kInvalidArgument: a folder, too short or too long; kIo.
#pragma once

#include <string>

namespace moraine {

// Bytes of the file. A longer secret keeps nobody out any better: it is the key of HMAC-SHA256.
constexpr int kSecretShortest = 16, kSecretLongest = 4096;

// Without white space at its end. `what` names it: --secret-file. Empty path: no secret.
std::string read_secret_file(const char* what, const std::string& path);

// One that many processes are to read. kInvalidArgument too: a pipe, whose content only the first of them gets.
void check_secret_file(const char* what, const std::string& path);

}  // namespace moraine
