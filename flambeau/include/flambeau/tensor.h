// `at::Tensor`: a reference to a tensor. Its methods call the operators of the package, which
// autograd records as it does calls from Python. Called with the interpreter's lock held; loops
// over `data_ptr` and accessors need no lock.
#pragma once
#include "casts.h"

namespace at {
using namespace c10;
using flambeau::Object;

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType dtype) : dtype_(dtype) {}
  TensorOptions(Device device) : device_(device) {}
  TensorOptions dtype(ScalarType value) const {
    TensorOptions changed = *this;
    changed.dtype_ = value;
    return changed;
  }
  TensorOptions device(Device value) const {
    TensorOptions changed = *this;
    changed.device_ = value;
    return changed;
  }
  TensorOptions device(DeviceType value) const { return device(Device(value)); }
  TensorOptions requires_grad(bool value) const {
    TensorOptions changed = *this;
    changed.requires_grad_ = value;
    return changed;
  }
  flambeau::Options options() const {
    flambeau::Options named;
    if (dtype_) named.emplace_back("dtype", flambeau::object_of(*dtype_));
    if (device_) named.emplace_back("device", flambeau::object_of(*device_));
    if (requires_grad_) named.emplace_back("requires_grad", flambeau::object_of(true));
    return named;
  }

 private:
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  bool requires_grad_ = false;
};

template <typename T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1) {
      return static_cast<T&>(data_[i * strides_[0]]);
    } else {
      return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
    }
  }
  int64_t size(int64_t dim) const { return sizes_[dim]; }
  int64_t stride(int64_t dim) const { return strides_[dim]; }
  IntArrayRef sizes() const { return {sizes_, N}; }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Object object) : object_(std::move(object)) {}

  bool defined() const { return static_cast<bool>(object_); }
  PyObject* object() const {
    TORCH_CHECK(defined(), "[Tensor] the tensor is undefined\nhint: assign a tensor first");
    return object_.get();
  }
  bool is_same(const Tensor& other) const { return object_.get() == other.object_.get(); }

  // What a tensor is. References stay valid while the handle, or a copy of it, lives.
  IntArrayRef sizes() const { return geometry("shape", geometry_->sizes); }
  IntArrayRef strides() const {
    read_calling("stride", geometry_->strides);
    return geometry_->strides;
  }
  int64_t size(int64_t d) const { return sizes()[wrapped(d)]; }
  int64_t stride(int64_t d) const { return strides()[wrapped(d)]; }
  int64_t dim() const { return static_cast<int64_t>(sizes().size()); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return value<int64_t>("numel"); }
  int64_t storage_offset() const { return value<int64_t>("storage_offset"); }
  int64_t element_size() const { return value<int64_t>("element_size"); }
  ScalarType scalar_type() const { return read<ScalarType>("dtype"); }
  ScalarType dtype() const { return scalar_type(); }
  TensorOptions options() const { return TensorOptions(scalar_type()); }
  Device device() const {
    TORCH_CHECK(read<bool>("is_cpu"), "[Tensor] C++ code runs on the CPU\nhint: x.cpu()");
    return Device();
  }
  bool is_contiguous() const { return value<bool>("is_contiguous"); }
  bool is_cuda() const { return read<bool>("is_cuda"); }
  bool is_cpu() const { return read<bool>("is_cpu"); }
  bool is_floating_point() const { return value<bool>("is_floating_point"); }
  bool requires_grad() const { return read<bool>("requires_grad"); }
  Tensor grad() const;

  template <typename T>
  T* data_ptr() const {
    TORCH_CHECK(CppTypeToScalarType<std::remove_const_t<T>>::value == scalar_type(),
                "expected scalar type ", CppTypeToScalarType<std::remove_const_t<T>>::value,
                " but found ", scalar_type());
    return static_cast<T*>(data_ptr());
  }
  template <typename T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <typename T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  void* data_ptr() const {
    device();
    return reinterpret_cast<void*>(static_cast<uintptr_t>(value<int64_t>("data_ptr")));
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const {
    TORCH_CHECK(dim() == static_cast<int64_t>(N), "TensorAccessor expected ", N,
                " dims but tensor has ", dim());
    T* const data = data_ptr<T>();
    strides();
    return {data, geometry_->sizes.data(), geometry_->strides.data()};
  }
  template <typename T>
  T item() const {
    return flambeau::Cast<T>::load(invoke("item").get());
  }
  Scalar item() const { return flambeau::Cast<Scalar>::load(invoke("item").get()); }

  // Any method by name: `x.method("cumsum", 0)`.
  template <typename... Args>
  Tensor method(const char* name, const Args&... args) const {
    return Tensor(invoke(name, args...));
  }
  template <typename... Args>
  Object invoke(const char* name, const Args&... args) const {
    return flambeau::call(flambeau::attribute(object(), name), {flambeau::object_of(args)...});
  }

#define FLAMBEAU_METHOD(name)              \
  template <typename... Args>              \
  Tensor name(const Args&... args) const { \
    return method(#name, args...);         \
  }
#define FLAMBEAU_METHODS(_)                                                                       \
  _(abs)                                                                                          \
  _(acos) _(add) _(add_) _(addmm) _(all) _(amax) _(amin) _(any) _(argmax) _(argmin) _(argsort)    \
      _(asin) _(atan) _(baddbmm) _(bernoulli) _(bmm) _(ceil) _(clamp) _(clamp_) _(clamp_min) _(   \
          clamp_max) _(clone) _(contiguous) _(copy_) _(cos) _(cosh) _(cpu) _(cumprod) _(cumsum)   \
          _(detach) _(diag) _(diagonal) _(div) _(div_) _(dot) _(eq) _(erf) _(exp) _(exp_) _(      \
              expand_as) _(fill_) _(flatten) _(floor) _(fmod) _(gather) _(ge) _(gt) _(index_add_) \
              _(index_copy_) _(index_select) _(isfinite) _(isnan) _(le) _(lerp) _(log) _(log1p)   \
                  _(log2) _(log_softmax) _(logical_and) _(logical_not) _(logical_or) _(logsumexp) \
                      _(lt) _(masked_fill) _(masked_fill_) _(masked_select) _(matmul) _(mean)     \
                          _(mm) _(mul) _(mul_) _(mv) _(narrow) _(ne) _(neg) _(neg_)               \
                              _(nonzero) _(norm) _(pow) _(pow_) _(prod) _(reciprocal) _(relu)     \
                                  _(relu_) _(remainder) _(repeat_interleave) _(requires_grad_)    \
                                      _(reshape_as) _(round) _(rsqrt) _(scatter_) _(scatter_add)  \
                                          _(scatter_add_) _(select) _(sigmoid) _(sigmoid_)        \
                                              _(sign) _(sin) _(sinh) _(slice) _(softmax) _(sqrt)  \
                                                  _(sqrt_) _(square) _(squeeze) _(std) _(sub)     \
                                                      _(sub_) _(t) _(tan) _(tanh) _(tanh_)        \
                                                          _(transpose) _(tril) _(triu) _(trunc)   \
                                                              _(type_as) _(unsqueeze) _(uniform_) \
                                                                  _(normal_) _(var) _(view_as)    \
                                                                      _(where) _(zero_)
  FLAMBEAU_METHODS(FLAMBEAU_METHOD)
#undef FLAMBEAU_METHOD

#define FLAMBEAU_SHAPED(name) \
  Tensor name(IntArrayRef sizes) const { return method(#name, sizes); }
  FLAMBEAU_SHAPED(view)
  FLAMBEAU_SHAPED(reshape)
  FLAMBEAU_SHAPED(expand)
  FLAMBEAU_SHAPED(permute)
  FLAMBEAU_SHAPED(repeat)
  FLAMBEAU_SHAPED(flip)
  FLAMBEAU_SHAPED(new_empty)
  FLAMBEAU_SHAPED(new_zeros)
#undef FLAMBEAU_SHAPED
  Tensor sum() const { return method("sum"); }
  Tensor sum(ScalarType dtype) const { return with("sum", {}, {{"dtype", object_of(dtype)}}); }
  Tensor sum(IntArrayRef dims, bool keepdim = false) const { return method("sum", dims, keepdim); }
  Tensor max() const { return method("max"); }
  Tensor min() const { return method("min"); }
  std::tuple<Tensor, Tensor> max(int64_t d, bool keepdim = false) const {
    return pair("max", d, keepdim);
  }
  std::tuple<Tensor, Tensor> min(int64_t d, bool keepdim = false) const {
    return pair("min", d, keepdim);
  }
  std::tuple<Tensor, Tensor> topk(int64_t k, int64_t d = -1) const { return pair("topk", k, d); }
  std::tuple<Tensor, Tensor> sort(int64_t d = -1, bool descending = false) const {
    return pair("sort", d, descending);
  }
  std::vector<Tensor> chunk(int64_t chunks, int64_t d = 0) const {
    return list("chunk", chunks, d);
  }
  std::vector<Tensor> split(int64_t size, int64_t d = 0) const { return list("split", size, d); }
  std::vector<Tensor> unbind(int64_t d = 0) const { return list("unbind", d); }
  Tensor to(ScalarType dtype) const { return method("to", dtype); }
  Tensor to(Device device) const { return method("to", device); }
  Tensor toType(ScalarType dtype) const { return to(dtype); }
  Tensor set_requires_grad(bool value) const { return method("requires_grad_", value); }
  void backward() const { invoke("backward"); }
  void backward(const Tensor& gradient) const { invoke("backward", gradient); }
  void resize_(IntArrayRef sizes) const { invoke("resize_", sizes); }

  Tensor operator[](int64_t i) const { return select(int64_t{0}, i); }
  Tensor operator-() const { return neg(); }
#define FLAMBEAU_IN_PLACE(symbol, name)                 \
  template <typename T>                                 \
  const Tensor& operator symbol(const T& other) const { \
    name(other);                                        \
    return *this;                                       \
  }
  FLAMBEAU_IN_PLACE(+=, add_)
  FLAMBEAU_IN_PLACE(-=, sub_)
  FLAMBEAU_IN_PLACE(*=, mul_)
  FLAMBEAU_IN_PLACE(/=, div_)
#undef FLAMBEAU_IN_PLACE

 private:
  struct Geometry {
    std::vector<int64_t> sizes, strides;
  };
  template <typename T>
  static Object object_of(const T& value) {
    return flambeau::object_of(value);
  }
  size_t wrapped(int64_t d) const {
    const int64_t count = dim();
    TORCH_CHECK_INDEX(-count <= d && d < count,
                      "Dimension out of range (expected to be in range of [", -count, ", ",
                      count - 1, "], but got ", d, ")");
    return static_cast<size_t>(d < 0 ? d + count : d);
  }
  template <typename T>
  T read(const char* name) const {
    return flambeau::Cast<T>::load(flambeau::attribute(object(), name).get());
  }
  template <typename T>
  T value(const char* name) const {
    return flambeau::Cast<T>::load(invoke(name).get());
  }
  // Equal numbers are not written again: references to them stay valid.
  static void store(std::vector<int64_t> numbers, std::vector<int64_t>& place) {
    if (numbers != place) place = std::move(numbers);
  }
  IntArrayRef geometry(const char* name, std::vector<int64_t>& place) const {
    store(read<std::vector<int64_t>>(name), place);
    return place;
  }
  void read_calling(const char* name, std::vector<int64_t>& place) const {
    store(value<std::vector<int64_t>>(name), place);
  }
  Tensor with(const char* name, std::vector<Object> args, const flambeau::Options& options) const {
    return Tensor(flambeau::call(flambeau::attribute(object(), name), std::move(args), options));
  }
  template <typename... Args>
  std::vector<Tensor> list(const char* name, const Args&... args) const;
  template <typename... Args>
  std::tuple<Tensor, Tensor> pair(const char* name, const Args&... args) const;

  Object object_;
  std::shared_ptr<Geometry> geometry_ = std::make_shared<Geometry>();
};

}  // namespace at

namespace flambeau {

inline PyObject* tensor_type() {
  static PyObject* const type = attribute(package(), "Tensor").release();
  return type;
}
template <>
struct Cast<at::Tensor> {
  static constexpr const char* schema = "Tensor";
  static at::Tensor load(PyObject* object) {
    if (!PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(tensor_type())))
      wrong_type("Tensor", object);
    return at::Tensor(Object::borrowed(object));
  }
  static Object make(const at::Tensor& value) {
    return Object::borrowed(value.defined() ? value.object() : Py_None);
  }
};
// A function of the package by its name.
template <typename... Args>
at::Tensor function(const char* name, const Args&... args) {
  return at::Tensor(call(attribute(package(), name), {object_of(args)...}));
}
inline at::Tensor created(const char* name, std::vector<Object> args,
                          const at::TensorOptions& options) {
  return at::Tensor(call(attribute(package(), name), std::move(args), options.options()));
}

}  // namespace flambeau

namespace at {

template <typename... Args>
std::vector<Tensor> Tensor::list(const char* name, const Args&... args) const {
  return flambeau::Cast<std::vector<Tensor>>::load(invoke(name, args...).get());
}
template <typename... Args>
std::tuple<Tensor, Tensor> Tensor::pair(const char* name, const Args&... args) const {
  const std::vector<Tensor> both = list(name, args...);
  return {both.at(0), both.at(1)};
}
inline Tensor Tensor::grad() const {
  const Object value = flambeau::attribute(object(), "grad");
  return value.get() == Py_None ? Tensor() : Tensor(value);
}

#define FLAMBEAU_OPERATOR(symbol, name, reflected)                                      \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) { return a.name(b); } \
  inline Tensor operator symbol(const Scalar& a, const Tensor& b) { return reflected; }
FLAMBEAU_OPERATOR(+, add, b.add(a))
FLAMBEAU_OPERATOR(-, sub, b.neg().add(a))
FLAMBEAU_OPERATOR(*, mul, b.mul(a))
FLAMBEAU_OPERATOR(/, div, b.reciprocal().mul(a))
FLAMBEAU_OPERATOR(==, eq, b.eq(a))
FLAMBEAU_OPERATOR(!=, ne, b.ne(a))
FLAMBEAU_OPERATOR(<, lt, b.gt(a))
FLAMBEAU_OPERATOR(<=, le, b.ge(a))
FLAMBEAU_OPERATOR(>, gt, b.lt(a))
FLAMBEAU_OPERATOR(>=, ge, b.le(a))
#undef FLAMBEAU_OPERATOR

#define FLAMBEAU_CREATION(name)                                              \
  inline Tensor name(IntArrayRef sizes, const TensorOptions& options = {}) { \
    return flambeau::created(#name, {flambeau::object_of(sizes)}, options);  \
  }
FLAMBEAU_CREATION(empty)
FLAMBEAU_CREATION(zeros)
FLAMBEAU_CREATION(ones)
FLAMBEAU_CREATION(rand)
FLAMBEAU_CREATION(randn)
#undef FLAMBEAU_CREATION
#define FLAMBEAU_CREATION(name)                                               \
  inline Tensor name(const Tensor& like, const TensorOptions& options = {}) { \
    return flambeau::created(#name, {flambeau::object_of(like)}, options);    \
  }
FLAMBEAU_CREATION(empty_like)
FLAMBEAU_CREATION(zeros_like)
FLAMBEAU_CREATION(ones_like)
FLAMBEAU_CREATION(rand_like)
FLAMBEAU_CREATION(randn_like)
#undef FLAMBEAU_CREATION
inline Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options = {}) {
  return flambeau::created("full", {flambeau::object_of(sizes), flambeau::object_of(value)},
                           options);
}
inline Tensor full_like(const Tensor& like, const Scalar& value) {
  return flambeau::function("full_like", like, value);
}
inline Tensor arange(const Scalar& end, const TensorOptions& options = {}) {
  return flambeau::created("arange", {flambeau::object_of(end)}, options);
}
inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {}) {
  return flambeau::created("arange", {flambeau::object_of(start), flambeau::object_of(end)},
                           options);
}
template <typename T>
Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {}) {
  return flambeau::created("tensor", {flambeau::object_of(values)}, options);
}
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0) {
  return flambeau::function("cat", tensors, dim);
}
inline Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0) {
  return flambeau::function("stack", tensors, dim);
}
inline Tensor linear(const Tensor& x, const Tensor& weight) { return x.matmul(weight.t()); }
inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return x.matmul(weight.t()).add(bias);
}
#define FLAMBEAU_FUNCTION(name)                           \
  template <typename... Args>                             \
  Tensor name(const Tensor& first, const Args&... args) { \
    return flambeau::function(#name, first, args...);     \
  }
#define FLAMBEAU_FUNCTIONS(_)                                                                      \
  _(abs)                                                                                           \
  _(add) _(addmm) _(all) _(any) _(argmax) _(argmin) _(baddbmm) _(bmm) _(clamp) _(clone) _(cos)     \
      _(cumsum) _(div) _(dot) _(eq) _(erf) _(exp) _(flatten) _(gather) _(ge) _(gt) _(index_select) \
          _(isnan) _(le) _(log) _(log_softmax) _(logsumexp) _(lt) _(masked_select) _(matmul)       \
              _(maximum) _(mean) _(minimum) _(mm) _(mul) _(mv) _(narrow) _(ne) _(neg) _(norm)      \
                  _(outer) _(pow) _(prod) _(relu) _(reshape) _(rsqrt) _(sigmoid) _(sign) _(sin)    \
                      _(softmax) _(sqrt) _(square) _(squeeze) _(sub) _(sum) _(t) _(tanh)           \
                          _(transpose) _(tril) _(triu) _(unsqueeze) _(where)
FLAMBEAU_FUNCTIONS(FLAMBEAU_FUNCTION)
#undef FLAMBEAU_FUNCTION

inline int get_num_threads() { return 1; }
// Runs on the calling thread.
template <typename F>
void parallel_for(int64_t begin, int64_t end, int64_t, const F& body) {
  if (begin < end) body(begin, end);
}

constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short,
                     kInt = ScalarType::Int, kLong = ScalarType::Long, kHalf = ScalarType::Half,
                     kFloat = ScalarType::Float, kDouble = ScalarType::Double,
                     kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16, kUInt8 = kByte,
                     kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong,
                     kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble;
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }

}  // namespace at

#define FLAMBEAU_CASE(type, name, ...)      \
  case ::c10::ScalarType::name: {           \
    using scalar_t [[maybe_unused]] = type; \
    return __VA_ARGS__();                   \
  }
#define FLAMBEAU_DISPATCH(TYPE, NAME, CASES, ...)                                                \
  [&] {                                                                                          \
    const ::c10::ScalarType chosen_type = TYPE;                                                  \
    switch (chosen_type) {                                                                       \
      CASES(__VA_ARGS__)                                                                         \
      default:                                                                                   \
        throw ::c10::Error(PyExc_NotImplementedError,                                            \
                           ::c10::str('"', NAME, "\" not implemented for '", chosen_type, "'")); \
    }                                                                                            \
  }()
#define FLAMBEAU_FLOATING(...) \
  FLAMBEAU_CASE(float, Float, __VA_ARGS__) FLAMBEAU_CASE(double, Double, __VA_ARGS__)
#define FLAMBEAU_INTEGRAL(...)                                                        \
  FLAMBEAU_CASE(uint8_t, Byte, __VA_ARGS__)                                           \
  FLAMBEAU_CASE(int8_t, Char, __VA_ARGS__) FLAMBEAU_CASE(int16_t, Short, __VA_ARGS__) \
      FLAMBEAU_CASE(int32_t, Int, __VA_ARGS__) FLAMBEAU_CASE(int64_t, Long, __VA_ARGS__)
#define FLAMBEAU_REDUCED(...)                   \
  FLAMBEAU_CASE(::c10::Half, Half, __VA_ARGS__) \
  FLAMBEAU_CASE(::c10::BFloat16, BFloat16, __VA_ARGS__)
#define FLAMBEAU_FLOATING_AND_HALF(...) \
  FLAMBEAU_FLOATING(__VA_ARGS__) FLAMBEAU_CASE(::c10::Half, Half, __VA_ARGS__)
#define FLAMBEAU_FLOATING_AND_REDUCED(...) \
  FLAMBEAU_FLOATING(__VA_ARGS__) FLAMBEAU_REDUCED(__VA_ARGS__)
#define FLAMBEAU_ALL(...) FLAMBEAU_FLOATING(__VA_ARGS__) FLAMBEAU_INTEGRAL(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  FLAMBEAU_DISPATCH(TYPE, NAME, FLAMBEAU_FLOATING, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  FLAMBEAU_DISPATCH(TYPE, NAME, FLAMBEAU_FLOATING_AND_HALF, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES_AND2(FIRST, SECOND, TYPE, NAME, ...) \
  FLAMBEAU_DISPATCH(TYPE, NAME, FLAMBEAU_FLOATING_AND_REDUCED, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  FLAMBEAU_DISPATCH(TYPE, NAME, FLAMBEAU_INTEGRAL, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  FLAMBEAU_DISPATCH(TYPE, NAME, FLAMBEAU_ALL, __VA_ARGS__)
