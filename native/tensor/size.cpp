// `Size`: the tuple of ints that `Tensor.shape` returns, plus parsing of sizes from Python.
#include "core.h"
#include "tensor/tensor_internal.h"

namespace fb {

PyTypeObject* SizeType = nullptr;

namespace {

template <typename Entry>
PyObject* build_size(PyTypeObject* type, Py_ssize_t count, Entry entry) {
  return fill_tuple(type->tp_alloc(type, count), entry);
}

PyObject* wrap_tuple(PyObject* result) {  // steals; any tuple -> Size
  const auto tuple = steal(result);
  if (!tuple || result == Py_NotImplemented) return Py_XNewRef(result);
  return build_size(SizeType, PyTuple_GET_SIZE(result), [&](size_t i) {
    return Py_NewRef(PyTuple_GET_ITEM(result, static_cast<Py_ssize_t>(i)));
  });
}

PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* sequence = nullptr;
  if (!PyArg_ParseTuple(args, "|O", &sequence)) return nullptr;
  const auto tuple = steal(sequence ? PySequence_Tuple(sequence) : PyTuple_New(0));
  if (!tuple) return nullptr;
  return build_size(type, PyTuple_GET_SIZE(tuple.get()), [&](size_t i) -> PyObject* {
    PyObject* item = PyTuple_GET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i));
    if (PyLong_CheckExact(item) || is_registered_scalar(item)) return Py_NewRef(item);
    if (PyIndex_Check(item)) return PyNumber_Index(item);
    PyErr_Format(PyExc_TypeError,
                 "[Size] torch.Size() takes an iterable of 'int' (item %zu is '%s')\n"
                 "hint: convert the items with int()",
                 i, Py_TYPE(item)->tp_name);
    return nullptr;
  });
}

PyObject* size_repr(PyObject* self) {
  const auto list = steal(PySequence_List(self));
  return list ? PyUnicode_FromFormat("torch.Size(%R)", list.get()) : nullptr;
}

PyObject* size_numel(PyObject* self, PyObject*) {
  auto product = steal(PyLong_FromLong(1));
  for (Py_ssize_t i = 0; product && i < PyTuple_GET_SIZE(self); ++i) {
    product = steal(PyNumber_Multiply(product.get(), PyTuple_GET_ITEM(self, i)));
  }
  return product.release();
}

PyObject* size_reduce(PyObject* self, PyObject*) {
  PyObject* tuple = build_tuple(static_cast<size_t>(PyTuple_GET_SIZE(self)), [self](size_t i) {
    return Py_NewRef(PyTuple_GET_ITEM(self, static_cast<Py_ssize_t>(i)));
  });
  return tuple ? Py_BuildValue("(O(N))", Py_TYPE(self), tuple) : nullptr;
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
  return build_size(SizeType, ndim, [&](size_t i) { return PyLong_FromLongLong(sizes[i]); });
}

// One size. A number beyond 64 bits is the TypeError that PyTorch raises for it.
static bool read_size(const char* op, PyObject* object, int64_t* out) {
  const auto number = steal(PyNumber_Index(object));
  if (!number) return false;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (overflow) {
    PyErr_Format(PyExc_TypeError,
                 "[%s] a size does not fit in 64 bits: %S\nhint: sizes count elements", op,
                 number.get());
  }
  return !overflow;
}

bool parse_int64(const char* op, PyObject* object, int64_t* out) {
  const auto number = steal(PyNumber_Index(object));
  if (!number) return false;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (!overflow) return true;
  PyErr_Format(PyExc_ValueError,
               "[%s] an integer does not fit in 64 bits\nhint: integers lie in [-2**63, 2**63)",
               op);
  return false;
}

int parse_sizes(const char* op, PyObject* object, int64_t* out) {
  if (PyIndex_Check(object) && !PySequence_Check(object)) {
    return read_size(op, object, out) ? 1 : -1;
  }
  const auto fast = steal(PySequence_Fast(object, "sizes must be a sequence of ints"));
  if (!fast) return -1;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast.get());
  if (count > kMaxDims) {
    PyErr_Format(PyExc_RuntimeError,
                 "[%s] too many dimensions: got %zd, the limit is %d\nhint: merge some dimensions",
                 op, count, kMaxDims);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (!PyIndex_Check(item)) {
      PyErr_Format(PyExc_TypeError,
                   "[%s] sizes must be ints: item %zd is '%s'\nhint: convert the items with int()",
                   op, i, Py_TYPE(item)->tp_name);
      return -1;
    }
    if (!read_size(op, item, out + i)) return -1;
  }
  return static_cast<int>(count);
}

bool init_size(PyObject* module) {
  PyType_Spec spec = {"flambeau.Size", static_cast<int>(PyTuple_Type.tp_basicsize),
                      static_cast<int>(PyTuple_Type.tp_itemsize),
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  auto* base = reinterpret_cast<PyObject*>(&PyTuple_Type);
  SizeType = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, base));
  return SizeType &&
         PyModule_AddObjectRef(module, "Size", reinterpret_cast<PyObject*>(SizeType)) == 0;
}

}  // namespace fb
