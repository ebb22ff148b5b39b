// `Size`: the tuple of ints that `Tensor.shape` returns, plus parsing of sizes given from Python.
#include "core.h"
#include "tensor/tensor_internal.h"

namespace fb {

PyTypeObject* SizeType = nullptr;

namespace {

PyObject* wrap_tuple(PyObject* tuple) {  // steals; any tuple -> Size
  if (!tuple || tuple == Py_NotImplemented) return tuple;
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  PyObject* result = SizeType->tp_alloc(SizeType, count);
  for (Py_ssize_t i = 0; result && i < count; ++i)
    PyTuple_SET_ITEM(result, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  Py_DECREF(tuple);
  return result;
}

PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* sequence = nullptr;
  if (!PyArg_ParseTuple(args, "|O", &sequence)) return nullptr;
  PyObject* tuple = sequence ? PySequence_Tuple(sequence) : PyTuple_New(0);
  if (!tuple) return nullptr;
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  PyObject* result = type->tp_alloc(type, count);
  for (Py_ssize_t i = 0; result && i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    PyObject* value = nullptr;
    if (PyLong_CheckExact(item) || is_registered_scalar(item)) {
      value = Py_NewRef(item);
    } else if (PyIndex_Check(item)) {
      value = PyNumber_Index(item);
    } else {
      PyErr_Format(PyExc_TypeError,
                   "[Size] torch.Size() takes an iterable of 'int' (item %zd is '%s')\n"
                   "hint: convert the items with int()",
                   i, Py_TYPE(item)->tp_name);
    }
    if (!value) {
      Py_CLEAR(result);
    } else {
      PyTuple_SET_ITEM(result, i, value);
    }
  }
  Py_DECREF(tuple);
  return result;
}

PyObject* size_repr(PyObject* self) {
  PyObject* list = PySequence_List(self);
  if (!list) return nullptr;
  PyObject* text = PyUnicode_FromFormat("torch.Size(%R)", list);
  Py_DECREF(list);
  return text;
}

PyObject* size_numel(PyObject* self, PyObject*) {
  PyObject* product = PyLong_FromLong(1);
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); ++i) {
    PyObject* next = PyNumber_Multiply(product, PyTuple_GET_ITEM(self, i));
    Py_DECREF(product);
    product = next;
  }
  return product;
}

PyObject* size_reduce(PyObject* self, PyObject*) {
  PyObject* tuple = PyTuple_GetSlice(self, 0, PyTuple_GET_SIZE(self));
  if (!tuple) return nullptr;
  if (tuple == self || Py_TYPE(tuple) != &PyTuple_Type) {  // a slice may share the subclass
    PyObject* list = PySequence_List(self);
    Py_DECREF(tuple);
    tuple = list ? PyList_AsTuple(list) : nullptr;
    Py_XDECREF(list);
    if (!tuple) return nullptr;
  }
  return Py_BuildValue("(O(N))", Py_TYPE(self), tuple);
}

// tuple + Size and Size + tuple are Sizes, as are slices and repetitions.
PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return wrap_tuple(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
PyObject* size_repeat(PyObject* self, Py_ssize_t count) {
  return wrap_tuple(PyTuple_Type.tp_as_sequence->sq_repeat(self, count));
}
PyObject* size_subscript(PyObject* self, PyObject* key) {
  PyObject* item = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
  return item && PySlice_Check(key) ? wrap_tuple(item) : item;
}

PyMethodDef methods[] = {
    {"numel", size_numel, METH_NOARGS, "Number of elements of a tensor of this size."},
    {"__reduce__", size_reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
constexpr char kSizeDoc[] = "The sizes of a tensor: a tuple of ints that can count its elements.";
PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(kSizeDoc)},
                       {Py_tp_new, reinterpret_cast<void*>(size_new)},
                       {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                       {Py_nb_add, reinterpret_cast<void*>(size_add)},
                       {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
                       {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
                       {Py_tp_methods, methods},
                       {0, nullptr}};

}  // namespace

PyObject* size_object(int ndim, const int64_t* sizes) {
  PyObject* result = SizeType->tp_alloc(SizeType, ndim);
  for (int i = 0; result && i < ndim; ++i) {
    PyObject* value = PyLong_FromLongLong(sizes[i]);
    if (!value) {
      Py_CLEAR(result);
    } else {
      PyTuple_SET_ITEM(result, i, value);
    }
  }
  return result;
}

// One size. A number beyond 64 bits is the TypeError that PyTorch raises for it.
static int64_t read_size(const char* op, PyObject* number) {
  int overflow = 0;
  const int64_t value = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
  if (overflow)
    PyErr_Format(PyExc_TypeError,
                 "[%s] a size does not fit in 64 bits: %S\nhint: sizes count elements", op, number);
  return value;
}

bool parse_int64(const char* op, PyObject* object, int64_t* out) {
  PyObject* number = PyNumber_Index(object);
  if (!number) return false;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(number, &overflow);
  Py_DECREF(number);
  if (!overflow) return true;
  PyErr_Format(PyExc_ValueError,
               "[%s] an integer does not fit in 64 bits\nhint: integers lie in [-2**63, 2**63)",
               op);
  return false;
}

int parse_sizes(const char* op, PyObject* object, int64_t* out) {
  if (PyIndex_Check(object) && !PySequence_Check(object)) {
    PyObject* number = PyNumber_Index(object);
    out[0] = read_size(op, number);
    Py_XDECREF(number);
    return out[0] == -1 && PyErr_Occurred() ? -1 : 1;
  }
  PyObject* fast = PySequence_Fast(object, "sizes must be a sequence of ints");
  if (!fast) return -1;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
  int result = static_cast<int>(count);
  if (count > kMaxDims) {
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] too many dimensions: got %zd, the limit is %d\nhint: merge some dimensions",
                 op, count, kMaxDims);
    result = -1;
  }
  for (Py_ssize_t i = 0; result >= 0 && i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(fast, i);
    if (!PyIndex_Check(item)) {
      PyErr_Format(PyExc_TypeError,
                   "[%s] sizes must be ints: item %zd is '%s'\nhint: convert the items with int()",
                   op, i, Py_TYPE(item)->tp_name);
      result = -1;
      break;
    }
    PyObject* number = PyNumber_Index(item);
    out[i] = read_size(op, number);
    Py_XDECREF(number);
    if (out[i] == -1 && PyErr_Occurred()) result = -1;
  }
  Py_DECREF(fast);
  return result;
}

bool init_size(PyObject* module) {
  PyType_Spec spec = {"flambeau.Size", static_cast<int>(PyTuple_Type.tp_basicsize),
                      static_cast<int>(PyTuple_Type.tp_itemsize),
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  PyObject* bases = PyTuple_Pack(1, &PyTuple_Type);
  if (!bases) return false;
  SizeType = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, bases));
  Py_DECREF(bases);
  return SizeType &&
         PyModule_AddObjectRef(module, "Size", reinterpret_cast<PyObject*>(SizeType)) == 0;
}

}  // namespace fb
