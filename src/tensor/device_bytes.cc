// DeviceBytes: all but one category.
#include "tensor/device_bytes.h"

namespace moraine {

int64_t device_bytes(const Arena& arena) {
  if (!arena.on_device()) return 0;
  int64_t host = 0;
  for (const Arena::Entry& e : arena.entries()) host += e.category == kHostCategory ? e.bytes : 0;
  return arena.bytes() - host;
}

}  // namespace moraine
