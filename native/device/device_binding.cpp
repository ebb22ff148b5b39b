// Devices for Python: registration, copies, streams, events, statistics.
#include "call/op_internal.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

constexpr const char* kEventName = "flambeau.event";

PyObject* register_device(PyObject*, PyObject* address) {
  const void* table = PyLong_AsVoidPtr(address);
  if (!table && PyErr_Occurred()) return nullptr;
  const auto* runtime = static_cast<const DeviceRuntime*>(table);
  const char* problem = runtime ? device_register(runtime) : "there is no table";
  if (!problem) return PyUnicode_FromString(runtime->name);
  PyErr_Format(PyExc_ValueError, "[register_device] the device is not added: %s", problem);
  return nullptr;
}

const char* memory_name(DeviceMemory memory) {
  return memory == DeviceMemory::None ? "none" : memory == DeviceMemory::Host ? "host" : "own";
}

PyObject* device_properties(PyObject*, PyObject* object) {
  Device device;
  if (!device_from_object(object, &device)) return nullptr;
  const DeviceRuntime& runtime = runtime_of(device);
  return Py_BuildValue("(sssOOi)", runtime.name, runtime.description, memory_name(runtime.memory),
                       runtime.compiles ? Py_True : Py_False, runtime.launches ? Py_True : Py_False,
                       int{runtime.count});
}

PyObject* device_memory(PyObject*, PyObject* object) {
  Device device;
  if (device_from_object(object, &device))
    return PyUnicode_FromString(memory_name(runtime_of(device).memory));
  if (!PyErr_ExceptionMatches(PyExc_AssertionError) &&
      !PyErr_ExceptionMatches(PyExc_NotImplementedError))
    return nullptr;
  PyErr_Clear();  // a fake tensor may claim a device that this build has not
  return PyUnicode_FromString("absent");
}

PyObject* device_statistics(PyObject*, PyObject* object) {
  Device device;
  if (!device_from_object(object, &device)) return nullptr;
  DeviceStatistics statistics;
  if (runtime_of(device).statistics) runtime_of(device).statistics(device.index, &statistics);
  return Py_BuildValue("(LLL)", static_cast<long long>(statistics.allocated),
                       static_cast<long long>(statistics.peak),
                       static_cast<long long>(statistics.allocations));
}

PyObject* tensor_to_device(PyObject*, PyObject* args) {
  PyObject *tensor, *object;
  Device device;
  if (!PyArg_ParseTuple(args, "O!O", TensorType, &tensor, &object) ||
      !device_from_object(object, &device))
    return nullptr;
  return reinterpret_cast<PyObject*>(
      tensor_placed(reinterpret_cast<Tensor*>(tensor), device, "to"));
}

// ---------------------------------------------------------------- streams
// (device, ...) with streams; false + exception.
bool parse_stream(PyObject* args, Device* device, long long* stream) {
  PyObject* object;
  if (!PyArg_ParseTuple(args, "OL", &object, stream) || !device_from_object(object, device))
    return false;
  if (runtime_of(*device).stream_new) return true;
  PyErr_Format(PyExc_RuntimeError, "[Stream] device %s has no streams\nhint: nothing to wait for",
               runtime_of(*device).name);
  return false;
}

PyObject* stream_new(PyObject*, PyObject* object) {
  Device device;
  if (!device_from_object(object, &device)) return nullptr;
  const DeviceRuntime& runtime = runtime_of(device);
  const int64_t stream = runtime.stream_new ? runtime.stream_new(device.index) : -1;
  if (stream >= 0) return PyLong_FromLongLong(stream);
  PyErr_Format(PyExc_RuntimeError, "[Stream] device %s gives no stream\nhint: use another device",
               runtime.name);
  return nullptr;
}
PyObject* stream_delete(PyObject*, PyObject* args) {
  Device device;
  long long stream;
  if (!parse_stream(args, &device, &stream)) return nullptr;
  runtime_of(device).stream_delete(device.index, stream);
  Py_RETURN_NONE;
}
PyObject* stream_idle(PyObject*, PyObject* args) {
  Device device;
  long long stream;
  if (!parse_stream(args, &device, &stream)) return nullptr;
  return PyBool_FromLong(runtime_of(device).stream_idle(device.index, stream));
}
PyObject* stream_synchronize(PyObject*, PyObject* args) {
  Device device;
  long long stream;
  if (!parse_stream(args, &device, &stream) || !device_synchronize(device, stream, "synchronize"))
    return nullptr;
  Py_RETURN_NONE;
}
PyObject* stream_current(PyObject*, PyObject* object) {
  Device device;
  if (!device_from_object(object, &device)) return nullptr;
  return PyLong_FromLongLong(current_stream(device));
}
PyObject* stream_set_current(PyObject*, PyObject* args) {
  Device device;
  long long stream;
  if (!parse_stream(args, &device, &stream)) return nullptr;
  set_current_stream(device, stream);
  Py_RETURN_NONE;
}

// ---------------------------------------------------------------- events
const DeviceRuntime& event_runtime(PyObject* capsule) {
  return *static_cast<const DeviceRuntime*>(PyCapsule_GetContext(capsule));
}
void delete_event(PyObject* capsule) {
  event_runtime(capsule).event_delete(PyCapsule_GetPointer(capsule, kEventName));
}
PyObject* event_new(PyObject*, PyObject* object) {
  Device device;
  if (!device_from_object(object, &device)) return nullptr;
  const DeviceRuntime& runtime = runtime_of(device);
  void* event = runtime.event_new ? runtime.event_new(device.index) : nullptr;
  if (!event) {
    PyErr_Format(PyExc_RuntimeError, "[Event] device %s has no events\nhint: use another device",
                 runtime.name);
    return nullptr;
  }
  PyObject* capsule = PyCapsule_New(event, kEventName, delete_event);
  if (!capsule || PyCapsule_SetContext(capsule, const_cast<DeviceRuntime*>(&runtime)) < 0) {
    if (!capsule) runtime.event_delete(event);
    return nullptr;
  }
  return capsule;
}
// The event of a capsule on `device`; null + exception.
void* event_of(PyObject* capsule, Device device) {
  void* event = PyCapsule_GetPointer(capsule, kEventName);
  if (!event || &event_runtime(capsule) == &runtime_of(device)) return event;
  PyErr_SetString(PyExc_RuntimeError,
                  "[Event] the event is of another device\nhint: record it there");
  return nullptr;
}
template <bool record>
PyObject* event_enqueue(PyObject*, PyObject* args) {
  PyObject *capsule, *object;
  long long stream;
  Device device;
  if (!PyArg_ParseTuple(args, "OOL", &capsule, &object, &stream) ||
      !device_from_object(object, &device))
    return nullptr;
  void* event = event_of(capsule, device);
  if (!event) return nullptr;
  const DeviceRuntime& runtime = runtime_of(device);
  (record ? runtime.event_record : runtime.event_wait)(event, device.index, stream);
  Py_RETURN_NONE;
}
PyObject* event_done(PyObject*, PyObject* capsule) {
  void* event = PyCapsule_GetPointer(capsule, kEventName);
  return event ? PyBool_FromLong(event_runtime(capsule).event_done(event)) : nullptr;
}
PyObject* event_synchronize(PyObject*, PyObject* capsule) {
  void* event = PyCapsule_GetPointer(capsule, kEventName);
  if (!event) return nullptr;
  const DeviceRuntime& runtime = event_runtime(capsule);
  Py_BEGIN_ALLOW_THREADS runtime.event_synchronize(event);
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}
PyObject* event_milliseconds(PyObject*, PyObject* args) {
  PyObject *from, *to;
  if (!PyArg_ParseTuple(args, "OO", &from, &to)) return nullptr;
  void* first = PyCapsule_GetPointer(from, kEventName);
  void* second = first ? PyCapsule_GetPointer(to, kEventName) : nullptr;
  if (!second) return nullptr;
  return PyFloat_FromDouble(event_runtime(from).event_milliseconds(first, second));
}

PyMethodDef functions[] = {
    {"register_device", register_device, METH_O,
     "register_device(address of a DeviceRuntime): adds a device; returns its name."},
    {"device_properties", device_properties, METH_O,
     "(name, description, where memory is, whether plans are compiled, and run, count)."},
    {"device_memory", device_memory, METH_O,
     "Where elements of a device's tensors are: 'none', 'host', 'own'; 'absent': no such device."},
    {"device_statistics", device_statistics, METH_O, "(bytes in use, at most, allocations)."},
    {"tensor_to_device", tensor_to_device, METH_VARARGS,
     "tensor_to_device(tensor, device): a copy with the same strides; itself if it is there."},
    {"stream_new", stream_new, METH_O, "The number of a new stream of a device."},
    {"stream_delete", stream_delete, METH_VARARGS, "stream_delete(device, stream)."},
    {"stream_idle", stream_idle, METH_VARARGS, "stream_idle(device, stream): no work is left."},
    {"stream_synchronize", stream_synchronize, METH_VARARGS,
     "stream_synchronize(device, stream): waits; -1: for all streams."},
    {"stream_current", stream_current, METH_O, "The stream of this thread's work on a device."},
    {"stream_set_current", stream_set_current, METH_VARARGS, "stream_set_current(device, stream)."},
    {"event_new", event_new, METH_O, "An event of a device."},
    {"event_record", event_enqueue<true>, METH_VARARGS, "event_record(event, device, stream)."},
    {"event_wait", event_enqueue<false>, METH_VARARGS,
     "event_wait(event, device, stream): later work of the stream waits."},
    {"event_done", event_done, METH_O, "Whether what was recorded is done."},
    {"event_synchronize", event_synchronize, METH_O, "Waits until it is done."},
    {"event_milliseconds", event_milliseconds, METH_VARARGS, "Time from one event to another."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool init_devices(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace fb
