// Declarations that only the files of the Tensor type share.
#pragma once
#include "core.h"

namespace fb {

// ---------------------------------------------------------------- dtype.cpp, device.cpp
bool init_device(PyObject* module);
PyObject* strided_layout();                  // borrowed
int memory_format_number(PyObject* object);  // 0 contiguous, 1 preserve, 2/3 channels last; or -1

// ---------------------------------------------------------------- operators (operators.cpp)
// Slots of the table that `_core.set_operator(name, callable)` fills.
// clang-format off
#define FB_OPERATORS(X) \
  X(Add, "add") X(RAdd, "radd") X(Sub, "sub") X(RSub, "rsub") X(Mul, "mul") X(RMul, "rmul") \
  X(TrueDiv, "truediv") X(RTrueDiv, "rtruediv") X(FloorDiv, "floordiv") \
  X(RFloorDiv, "rfloordiv") X(Mod, "mod") X(RMod, "rmod") X(Pow, "pow") X(RPow, "rpow") \
  X(MatMul, "matmul") X(RMatMul, "rmatmul") X(And, "and") X(RAnd, "rand") X(Or, "or") \
  X(ROr, "ror") X(Xor, "xor") X(RXor, "rxor") X(LShift, "lshift") X(RLShift, "rlshift") \
  X(RShift, "rshift") X(RRShift, "rrshift") X(IAdd, "iadd") X(ISub, "isub") X(IMul, "imul") \
  X(ITrueDiv, "itruediv") X(IFloorDiv, "ifloordiv") X(IMod, "imod") X(IPow, "ipow") \
  X(IMatMul, "imatmul") X(IAnd, "iand") X(IOr, "ior") X(IXor, "ixor") X(ILShift, "ilshift") \
  X(IRShift, "irshift") X(Neg, "neg") X(Pos, "pos") X(Abs, "abs") X(Invert, "invert") \
  X(Lt, "lt") X(Le, "le") X(Eq, "eq") X(Ne, "ne") X(Gt, "gt") X(Ge, "ge") X(GetItem, "getitem") \
  X(SetItem, "setitem") X(Contains, "contains") X(Unbind, "unbind") X(Alias, "alias") \
  X(ShareMemory, "share_memory_") X(Repr, "repr") X(Reduce, "reduce_ex") X(ToDType, "to_dtype") \
  X(New, "new")
// clang-format on
enum class Operator : uint8_t {
#define FB_ENUMERATOR(id, name) id,
  FB_OPERATORS(FB_ENUMERATOR)
#undef FB_ENUMERATOR
      Count
};
PyObject* operator_object(Operator which);    // borrowed, null when none is registered
PyObject* operator_required(Operator which);  // the same, NotImplementedError when null
extern PyType_Slot operator_slots[];          // number protocol etc. of the Tensor type
extern int operator_slot_count;
bool init_operators(PyObject* module);
bool is_number(PyObject* object);             // Python, NumPy or registered scalar
bool is_registered_scalar(PyObject* object);  // a type passed to _core.register_scalar_type

// ---------------------------------------------------------------- tensor.cpp
PyObject* tensor_alloc(PyTypeObject* type);  // empty shell: storage null
// Fills a shell. Steals `storage`.
bool tensor_fill(Tensor* t, Storage* storage, DType dtype, Device device, int ndim,
                 const int64_t* sizes, const int64_t* strides, int64_t offset);
Tensor* tensor_alias_as(PyTypeObject* type, Tensor* source);
void tensor_track(Tensor* t);  // the cycle collector must now see it
// Number of bytes from storage start that the geometry needs; -1 + RuntimeError on overflow,
// negative sizes, strides or offset.
int64_t required_bytes(const char* op, DType dtype, int ndim, const int64_t* sizes,
                       const int64_t* strides, int64_t offset);
// Size list from Python: sequence of ints. -1 + exception on failure, else ndim.
int parse_sizes(const char* op, PyObject* object, int64_t* out);
bool check_sizes(const char* op, DType dtype, int ndim, const int64_t* sizes);
extern PyMethodDef attribute_methods[];  // tensor_attributes.cpp
extern PyGetSetDef attribute_getset[];
extern PyMethodDef interop_methods[];  // interop.cpp: numpy, __array__, __dlpack__, ...

// ---------------------------------------------------------------- untyped storages
PyObject* untyped_storage(Storage* storage);  // new reference
// Whether the storage holds a buffer (of an array, bytes, ...) that nobody else can still reach.
bool buffer_alone(const Storage* storage);
Storage* untyped_storage_target(PyObject* object);  // borrowed; null + TypeError
bool storage_is_shared(const Storage* storage);
bool storage_is_mapping(const Storage* storage);        // shared_memory.cpp
bool storage_resize(Storage* storage, int64_t nbytes);  // preserves what fits
bool init_untyped_storage(PyObject* module);
bool init_shared_memory(PyObject* module);
extern PyTypeObject* SizeType;  // size.cpp
bool init_size(PyObject* module);
bool init_allocator(PyObject* module);  // allocator.cpp
PyObject* out_of_memory_error();        // borrowed: RuntimeError and MemoryError

// ---------------------------------------------------------------- interop.cpp, elements.cpp
PyObject* tensor_item(Tensor* t);  // one element as a Python number
PyObject* tensor_to_list(Tensor* t);
// A copy of any data, with the rules of torch.tensor; dtype null: inferred.
Tensor* tensor_from_python(const char* op, PyObject* data, const DType* dtype);
// Element conversion like Tensor.to: never fails on values.
bool integer_fits(DType dtype, int64_t v);  // of an integer type, as the next
bool real_fits(DType dtype, double v);
bool convert_element(void* to, DType to_type, const void* from, DType from_type);

// Calls body(char* element) in row-major order.
template <typename Body>
void for_each_element(Tensor* t, Body body) {
  if (t->numel == 0) return;
  const int64_t item = item_size(t->dtype);
  int64_t index[kMaxDims] = {0};
  char* at = t->data();
  for (int64_t n = 0;;) {
    body(at);
    if (++n == t->numel) return;
    for (int d = t->ndim - 1;; --d) {
      at += t->strides()[d] * item;
      if (++index[d] < t->sizes()[d]) break;
      at -= t->strides()[d] * item * t->sizes()[d];
      index[d] = 0;
    }
  }
}

// ---------------------------------------------------------------- numpy.cpp, dlpack.cpp
bool numpy_array(PyObject* object);      // an ndarray; never imports NumPy
bool is_numpy_scalar(PyObject* object);  // a numpy.generic
bool numpy_dtype_of(const char* op, PyObject* object, DType* out);  // of an array or scalar
Tensor* tensor_from_numpy(const char* op, PyObject* array);         // shares the memory
bool init_numpy(PyObject* module);
bool init_dlpack(PyObject* module);
extern PyMethodDef numpy_methods[];
extern PyMethodDef dlpack_methods[];

}  // namespace fb
