// Storage lifecycle: reference counts, foreign memory, pending storages.
//
// The Storage structures themselves are recycled through a free list that the GIL guards; the bytes
// come from the caching allocator (allocator.cpp).
#include <cstring>
#include <new>

#include "core.h"
#include "device/devices.h"
#include "plan/prepacked.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

constexpr int kSpareStorages = 256;
Storage* spare[kSpareStorages];
int spare_count = 0;

[[gnu::always_inline]] inline Storage* storage_shell() {
  if (spare_count > 0) return new (spare[--spare_count]) Storage();
  auto* storage = new (std::nothrow) Storage();
  if (!storage) PyErr_NoMemory();
  return storage;
}

void storage_recycle(Storage* storage) {
  if (spare_count < kSpareStorages) {
    spare[spare_count++] = storage;
  } else {
    delete storage;
  }
}

bool out_of_memory(int64_t nbytes) {
  PyErr_Format(
      out_of_memory_error(),
      "[storage] can't allocate memory: you tried to allocate %lld bytes\nhint: free "
      "tensors you no longer need, use a smaller batch, or call flambeau.runtime.empty_cache()",
      static_cast<long long>(nbytes));
  return false;
}

bool allocate_elsewhere(Storage* storage) {
  const Device device = storage->device;
  if (!has_memory(device)) return true;
  storage->data =
      runtime_of(device).allocate(device.index, current_stream(device), storage->nbytes);
  return storage->data || out_of_memory(storage->nbytes);
}

void release_elsewhere(Storage* storage) {
  runtime_of(storage->device).release(storage->device.index, storage->data, storage->nbytes);
}

}  // namespace

bool dry_run = false;

bool storage_allocate(Storage* storage) {
  if (storage->data || storage->nbytes == 0) return true;
  if (!on_host(storage->device)) [[unlikely]]
    return allocate_elsewhere(storage);
  storage->data = block_allocate(storage->nbytes);
  if (!storage->data) return out_of_memory(storage->nbytes);
  if (dry_run) [[unlikely]] {
    std::memset(storage->data, 0, static_cast<size_t>(storage->nbytes));
  }
  return true;
}

Storage* storage_new(int64_t nbytes, Device device) {
  if (nbytes < 0) {
    PyErr_Format(PyExc_RuntimeError, "[storage] negative size: %lld bytes\nhint: check the sizes",
                 static_cast<long long>(nbytes));
    return nullptr;
  }
  Storage* storage = storage_shell();
  if (!storage) return nullptr;
  storage->nbytes = nbytes;
  storage->device = device;
  if (!storage_allocate(storage)) {
    storage_recycle(storage);
    return nullptr;
  }
  return storage;
}

Storage* storage_pending(int64_t nbytes, Device device, Recorder* recorder) {
  Storage* storage = storage_shell();
  if (!storage) return nullptr;
  storage->nbytes = nbytes;
  storage->device = device;
  storage->pending = true;
  storage->recorder = recorder;
  return storage;
}

Storage* storage_foreign(void* data, int64_t nbytes, void (*release)(void*), void* context) {
  Storage* storage = storage_shell();
  if (!storage) return nullptr;
  storage->data = data;
  storage->nbytes = nbytes;
  storage->resizable = false;
  storage->release = release;
  storage->release_context = context;
  return storage;
}

void storage_incref(Storage* storage) {
  storage->references.fetch_add(1, std::memory_order_relaxed);
}

void storage_decref(Storage* storage) {
  // The last owner needs no atomic read-modify-write: nobody else can be looking.
  if (storage->references.load(std::memory_order_acquire) != 1 &&
      storage->references.fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  if (storage->packed) packed_forget(storage);
  if (storage->release) {
    storage->release(storage->release_context);
  } else if (!on_host(storage->device)) {
    if (storage->data) release_elsewhere(storage);
  } else if (storage->data) {
    block_free(storage->data, storage->nbytes);
  }
  storage_recycle(storage);
}

bool init_storage(PyObject*) { return true; }

}  // namespace fb
