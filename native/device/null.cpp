// The device "null": as "meta", but every plan is compiled (compiler/target_null.py), and none
// runs.
#include "device/devices.h"

namespace fb {
namespace {

constexpr DeviceRuntime kRuntime = {
    .name = "null", .description = "programs that are compiled and not run", .compiles = true};
const DeviceRegistration registration(&kRuntime);

}  // namespace
}  // namespace fb
