// The end of an allocation that fails: `grow` of core.h, for files built without exceptions.
//
// An exception passes frames without exception tables; the containers of the standard library
// allocate before they change, so a caller finds them as they were.
#include <new>

#include "core.h"

namespace fb {

bool run_growth(void (*body)(void*), void* context) {
  try {
    body(context);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace fb
