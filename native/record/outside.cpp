// Memory that is shared with the outside: foreign memory (NumPy's, DLPack's, shared or mapped
// memory, buffers), and memory of ours that somebody was given.
//
// Recording must not be observable, so a recorded op reads such memory, and writes to it, when it
// is called (record_call.cpp). A storage counts the objects through which others reach it while
// they live: Python's storage objects (NumPy arrays and memoryviews hold one) and DLPack capsules.
// An address as a number (`data_ptr`) has no lifetime: once it was handed out, others reach the
// memory for good.
#include "record/record.h"
#include "tensor/tensor_internal.h"

namespace fb {

namespace {

bool foreign(Storage* storage) {
  if (!storage->release || storage->alone) return false;
  storage->alone = buffer_alone(storage);  // what nobody reaches any more nobody ever will
  return !storage->alone;
}

}  // namespace

bool others_reach(Storage* storage) {
  return storage->exports > 0 || storage->reached || foreign(storage);
}

bool storage_export(Storage* storage, const char* reason) {
  if (!record_settle_reads(storage, reason)) return false;
  ++storage->exports;
  return true;
}

void storage_take_back(Storage* storage, bool written) {
  --storage->exports;
  if (written) ++storage->writes;  // nobody saw them
}

bool storage_give_address(Storage* storage) {
  if (!record_settle_reads(storage, "data_ptr()")) return false;
  storage->reached = true;
  return true;
}

}  // namespace fb
