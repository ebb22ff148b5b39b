// The `device` value type. It can name every device PyTorch names; those that are registered run.
#include <cctype>

#include "core.h"
#include "device/devices.h"
#include "tensor/tensor_internal.h"

namespace fb {
// Of each thread, as in PyTorch: a `with` block does not move what other threads make.
constinit FB_THREAD_LOCAL Device default_device_value;

namespace {

// The names beside those of registered devices.
constexpr const char* kNames[] = {"cuda",  "ipu",    "xpu", "mkldnn", "opengl", "opencl",
                                  "ideep", "hip",    "ve",  "fpga",   "maia",   "xla",
                                  "lazy",  "vulkan", "mps", "hpu",    "mtia",   "privateuseone"};

struct DeviceObject {
  PyObject_HEAD const char* name;  // of the table, or of kNames
  int8_t kind;                     // -1: the device is not registered
  int8_t index;
};
PyTypeObject* device_type;
std::vector<Device>& entered_devices() {
  thread_local std::vector<Device> stack;  // `with device(...):` restores what was there before
  return stack;
}

DeviceObject* as_device(PyObject* object) { return reinterpret_cast<DeviceObject*>(object); }

PyObject* device_make(const char* name, int8_t index) {
  auto* self = reinterpret_cast<DeviceObject*>(device_type->tp_alloc(device_type, 0));
  if (!self) return nullptr;
  self->name = name;
  self->kind = static_cast<int8_t>(device_find(name));
  self->index = index;
  return reinterpret_cast<PyObject*>(self);
}

// The name itself out of the table or kNames; null when there is none.
const char* find_name(std::string_view text) {
  for (int kind = 0; kind < device_count; ++kind) {
    if (text == device_runtimes[kind]->name) return device_runtimes[kind]->name;
  }
  for (const char* name : kNames) {
    if (text == name) return name;
  }
  return nullptr;
}

std::string known_names() {
  std::string names;
  for (int kind = 0; kind < device_count; ++kind)
    names += (kind ? ", " : "") + std::string(device_runtimes[kind]->name);
  for (const char* name : kNames) {
    if (device_find(name) < 0) names += ", " + std::string(name);
  }
  return names;
}

// "cuda:1" -> name and index.
bool parse_device(const char* text, Py_ssize_t length, const char** name, int8_t* index) {
  Py_ssize_t head = 0;
  while (head < length && text[head] != ':') ++head;
  *name = find_name({text, static_cast<size_t>(head)});
  *index = -1;
  bool valid = length > 0;
  if (head < length) {
    int value = 0;
    const Py_ssize_t first = head + 1;
    valid = first < length && (text[first] != '0' || first + 1 == length);
    for (Py_ssize_t i = first; valid && i < length; ++i) {
      if (!std::isdigit(static_cast<unsigned char>(text[i]))) valid = false;
      value = value * 10 + (text[i] - '0');
      if (value > 127) valid = false;
    }
    *index = static_cast<int8_t>(value);
  }
  if (!valid) {
    PyErr_Format(PyExc_RuntimeError,
                 "[device] Invalid device string: '%s'\nhint: write a type and an optional index, "
                 "such as 'cpu' or 'cuda:0'",
                 text);
    return false;
  }
  if (!*name) {
    PyErr_Format(PyExc_RuntimeError,
                 "[device] Expected one of %s device type at start of device string: '%s'\n"
                 "hint: check the spelling",
                 known_names().c_str(), text);
    return false;
  }
  return true;
}

bool parse_index(PyObject* object, int8_t* index) {
  int64_t value;
  if (!parse_int64("device", object, &value)) return false;
  if (value < 0 || value > 127) {
    PyErr_Format(PyExc_RuntimeError,
                 "[device] Device index must be between 0 and 127: got %lld\nhint: leave it out",
                 static_cast<long long>(value));
    return false;
  }
  *index = static_cast<int8_t>(value);
  return true;
}

void refuse_lone_index(int8_t index) {
  PyErr_Format(PyExc_RuntimeError,
               "[device] Cannot access accelerator device when none is available: got index %d\n"
               "hint: device('cpu')",
               int{index});
}

PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"type", "index", nullptr};
  PyObject* type = nullptr;
  PyObject* index = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO", const_cast<char**>(names), &type, &index)) {
    return nullptr;
  }
  if (!type) {
    PyErr_SetString(PyExc_TypeError, "[device] a device type is needed\nhint: device('cpu')");
    return nullptr;
  }
  const char* name = nullptr;
  int8_t number = -1;
  if (Py_TYPE(type) == device_type) {
    name = as_device(type)->name;
    number = as_device(type)->index;
  } else if (PyUnicode_Check(type)) {
    Py_ssize_t length;
    const char* text = PyUnicode_AsUTF8AndSize(type, &length);
    if (!text || !parse_device(text, length, &name, &number)) return nullptr;
  } else if (PyLong_Check(type) && !PyBool_Check(type)) {
    if (parse_index(type, &number)) refuse_lone_index(number);
    return nullptr;
  } else {
    PyErr_Format(PyExc_TypeError,
                 "[device] expected a string, an int or a device: got %s\nhint: device('cpu')",
                 Py_TYPE(type)->tp_name);
    return nullptr;
  }
  if (index && index != Py_None) {
    if (number >= 0) {
      PyErr_SetString(PyExc_RuntimeError,
                      "[device] type (string) must not include an index because index was passed "
                      "explicitly\nhint: give the index once");
      return nullptr;
    }
    if (!parse_index(index, &number)) return nullptr;
  }
  return device_make(name, number);
}

PyObject* device_repr(PyObject* self) {
  const DeviceObject* d = as_device(self);
  if (d->index < 0) return PyUnicode_FromFormat("device(type='%s')", d->name);
  return PyUnicode_FromFormat("device(type='%s', index=%d)", d->name, int{d->index});
}
PyObject* device_str(PyObject* self) {
  const DeviceObject* d = as_device(self);
  if (d->index < 0) return PyUnicode_FromString(d->name);
  return PyUnicode_FromFormat("%s:%d", d->name, int{d->index});
}
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(a) != device_type || Py_TYPE(b) != device_type || (op != Py_EQ && op != Py_NE)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const DeviceObject *x = as_device(a), *y = as_device(b);
  const bool same = std::strcmp(x->name, y->name) == 0 && x->index == y->index;
  return PyBool_FromLong(same == (op == Py_EQ));
}
Py_hash_t device_hash(PyObject* self) {
  Py_hash_t hash = as_device(self)->index + 2;
  for (const char* at = as_device(self)->name; *at; ++at) hash = hash * 31 + *at;
  return hash;
}
PyObject* device_get_type(PyObject* self, void*) {
  return PyUnicode_FromString(as_device(self)->name);
}
PyObject* device_get_index(PyObject* self, void*) {
  if (as_device(self)->index < 0) Py_RETURN_NONE;
  return PyLong_FromLong(as_device(self)->index);
}
PyObject* device_reduce(PyObject* self, PyObject*) {
  const DeviceObject* d = as_device(self);
  if (d->index < 0) return Py_BuildValue("(O(s))", Py_TYPE(self), d->name);
  return Py_BuildValue("(O(si))", Py_TYPE(self), d->name, int{d->index});
}
PyObject* device_enter(PyObject* self, PyObject*) {
  Device device;
  if (!device_from_object(self, &device)) return nullptr;
  entered_devices().push_back(default_device_value);
  default_device_value = device;
  return Py_NewRef(self);
}
PyObject* device_exit(PyObject*, PyObject*) {
  if (!entered_devices().empty()) {
    default_device_value = entered_devices().back();
    entered_devices().pop_back();
  }
  Py_RETURN_NONE;
}

PyMethodDef device_methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, nullptr},
    {"__enter__", device_enter, METH_NOARGS, "New tensors are made on this device by default."},
    {"__exit__", device_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef device_attributes[] = {{"type", device_get_type, nullptr, "'cpu', ...", nullptr},
                                   {"index", device_get_index, nullptr, "int or None", nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};
constexpr char kDeviceDoc[] =
    "device(type, index=None): where a tensor's memory is; also a `with` block's default.\n\n"
    "device('cpu'), device('meta') (shapes without memory), device('cuda', 0), device('cuda:0').";
PyType_Slot device_slots[] = {{Py_tp_doc, const_cast<char*>(kDeviceDoc)},
                              {Py_tp_new, reinterpret_cast<void*>(device_new)},
                              {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
                              {Py_tp_str, reinterpret_cast<void*>(device_str)},
                              {Py_tp_richcompare, reinterpret_cast<void*>(device_compare)},
                              {Py_tp_hash, reinterpret_cast<void*>(device_hash)},
                              {Py_tp_methods, device_methods},
                              {Py_tp_getset, device_attributes},
                              {0, nullptr}};
PyType_Spec device_spec = {"flambeau.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT,
                           device_slots};

PyObject* py_get_default_device(PyObject*, PyObject*) {
  return device_object(default_device_value);
}
PyObject* py_set_default_device(PyObject*, PyObject* object) {
  Device device;
  if (object != Py_None && !device_from_object(object, &device)) return nullptr;
  default_device_value = device;
  Py_RETURN_NONE;
}
PyMethodDef functions[] = {
    {"get_default_device", py_get_default_device, METH_NOARGS, "Where new tensors are made."},
    {"set_default_device", py_set_default_device, METH_O, "Sets where new tensors are made."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* device_object(Device device) {
  // The objects for plain "cpu" and "meta" are used often: one of each is cached.
  static PyObject* plain[kMaxDevices];
  const char* name = runtime_of(device).name;
  if (device.index >= 0) return device_make(name, device.index);
  PyObject*& object = plain[device.kind];
  if (!object) object = device_make(name, -1);
  return Py_XNewRef(object);
}

namespace {

bool refuse_missing(const char* name) {
  // The exception types of a PyTorch that was built without the device.
  const std::string_view missing = name;
  PyErr_Format(
      missing == "cuda" || missing == "xpu" ? PyExc_AssertionError : PyExc_NotImplementedError,
      "[device] '%s' is not available: this build computes on cpu (and meta)\n"
      "hint: use device='cpu'; torch.accelerator.is_available() says whether there is another",
      name);
  return false;
}

// One CPU: "cpu:0" and "cpu" are the same place; so are "sim:0" and "sim", the current device.
bool settle_index(Device* device) {
  const DeviceRuntime& runtime = runtime_of(*device);
  if (on_host(*device)) device->index = -1;
  if (on_host(*device) || runtime.count == 0) return true;
  if (device->index < 0) device->index = 0;
  if (device->index < runtime.count) return true;
  PyErr_Format(PyExc_RuntimeError,
               "[device] invalid device ordinal: %s:%d, and there are %d\nhint: count from 0",
               runtime.name, int{device->index}, int{runtime.count});
  return false;
}

}  // namespace

bool device_from_object(PyObject* object, Device* out) {
  const char* name = nullptr;
  int8_t index = -1;
  int kind = -1;
  if (Py_TYPE(object) == device_type) {
    name = as_device(object)->name;
    index = as_device(object)->index;
    kind = as_device(object)->kind;
  } else if (PyUnicode_Check(object)) {
    Py_ssize_t length;
    const char* text = PyUnicode_AsUTF8AndSize(object, &length);
    if (!text || !parse_device(text, length, &name, &index)) return false;
  } else if (PyLong_Check(object) && !PyBool_Check(object)) {
    if (parse_index(object, &index)) refuse_lone_index(index);
    return false;
  } else {
    PyErr_Format(PyExc_TypeError,
                 "[device] expected a device, a string or an int: got %s\nhint: pass device='cpu'",
                 Py_TYPE(object)->tp_name);
    return false;
  }
  if (kind < 0) kind = device_find(name);
  if (kind < 0) return refuse_missing(name);
  *out = {static_cast<uint8_t>(kind), index};
  return settle_index(out);
}

bool init_device(PyObject* module) {
  device_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&device_spec));
  return device_type &&
         PyModule_AddObjectRef(module, "device", reinterpret_cast<PyObject*>(device_type)) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
