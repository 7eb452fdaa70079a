// Patience: a flag of each thread that says whether it works in the background.
#include "comm/patience.h"

namespace moraine {
namespace {

thread_local bool background = false;

}  // namespace

void set_background_thread() { background = true; }
bool is_background_thread() { return background; }

}  // namespace moraine
