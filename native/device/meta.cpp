// The device "meta": tensors have a shape, a dtype and strides; nothing is compiled.
#include "device/devices.h"

namespace fb {
namespace {

constexpr DeviceRuntime kRuntime = {.name = "meta", .description = "shapes without data"};
const DeviceRegistration registration(&kRuntime);

}  // namespace
}  // namespace fb
