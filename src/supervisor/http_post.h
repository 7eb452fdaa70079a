// HttpPost: one POST by http or https with a deadline for all of it but the look-up of a name.
//
// Errors:  kIo, kTimeout: it was not answered with 2xx; the message names the host only.
// Threads: any. OpenSSL writes without MSG_NOSIGNAL: the caller has SIGPIPE blocked or ignored.
#pragma once

#include <string>

#include "supervisor/webhook.h"

namespace moraine {

void post_json(const WebhookAddress& address, const std::string& json, double seconds);

}  // namespace moraine
