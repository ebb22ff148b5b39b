// Entry point of the extension module `flambeau._core`: each file of the core adds its part.
#include "baseline/block_program.h"
#include "baseline/functions.h"
#include "core.h"
#include "device/devices.h"
#include "frame/frame.h"
#include "plan/plan_watch.h"
#include "runtime/profile.h"
#include "runtime/traceback.h"
#include "tensor/indexing.h"
#include "tensor/tensor_internal.h"

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "flambeau._core",
                          "The native core: tensors, memory, plans, autograd tape, threads.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

// Order matters: dtypes and sizes before tensors, tensors before everything that makes them.
constexpr bool (*kParts[])(PyObject*) = {
    fb::init_dtype,    fb::init_allocator,       fb::init_storage,        fb::init_tensor,
    fb::init_interop,  fb::init_threads,         fb::init_random,         fb::init_plan,
    fb::init_op,       fb::init_routines,        fb::init_tape,           fb::init_record,
    fb::init_indexing, fb::init_traceback,       fb::init_profile,        fb::init_lapack,
    fb::init_devices,  fb::init_block_functions, fb::init_block_programs, fb::init_plan_watch,
    fb::init_frame,
};

}  // namespace

PyMODINIT_FUNC PyInit__core() {
  auto module = fb::steal(PyModule_Create(&definition));
  if (!module) return nullptr;
  for (auto* part : kParts) {
    if (part(module.get())) continue;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "flambeau._core: a part failed");
    return nullptr;
  }
  return module.release();
}
