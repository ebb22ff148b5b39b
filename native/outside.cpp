// Memory that is shared with the outside: foreign memory (NumPy's, DLPack's, shared or mapped
// memory, buffers), and memory of ours that somebody was given.
//
// Recording must not be observable, so a recorded op reads such memory, and writes to it, when it
// is called (record_call.cpp). A storage counts the objects through which others reach it while
// they live: Python's storage objects (NumPy arrays and memoryviews hold one) and DLPack capsules.
// An address as a number (`data_ptr`) has no lifetime:
// - One that was asked for inside of a compiled region is about to be used: from then on the memory
//   is shared for good.
// - One that was asked for outside of regions is most often compared (tied weights) and thrown
// away.
//   It is taken as serious all the same, except that parameters are still read when their stream
//   runs: copies of all weights at each call would make such models several times slower.
#include "record.h"
#include "tensor_internal.h"

namespace fb {

namespace {

bool foreign(Storage* storage) {
  if (!storage->release || storage->alone) return false;
  storage->alone = buffer_alone(storage);  // what nobody reaches any more nobody ever will
  return !storage->alone;
}

}  // namespace

bool others_write(Storage* storage) {
  if (storage->exports > 0 || storage->reach == Reach::Always) return true;
  return (storage->reach == Reach::Address && !storage->parameter) || foreign(storage);
}

bool others_read(Storage* storage) {
  return storage->exports > 0 || storage->reach != Reach::Nobody || foreign(storage);
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
  if (!active_recorder) {
    if (storage->reach == Reach::Nobody) storage->reach = Reach::Address;
    return true;
  }
  if (!record_settle_reads(storage, "data_ptr()")) return false;
  storage->reach = Reach::Always;
  return true;
}

}  // namespace fb
