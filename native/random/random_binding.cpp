// The Python type Generator, the default generator, and the random routines that plans launch.
//
// A routine may run while the GIL is released, so every generator has a mutex of its own; Python's
// methods take it too. Draws that were recorded but not run yet belong before a change or a look at
// the state: the methods flush the recorder of their thread first.
#include "random/random_binding.h"

#include <structmember.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <mutex>
#include <random>
#include <string_view>

#include "device/devices.h"
#include "random/random.h"
#include "runtime/fork.h"
#include "tensor/tensor_internal.h"

namespace fb {
namespace {

// Every Generator that leaves this file is one of these.
struct SharedGenerator : Generator {
  ForkSafe<std::mutex> mutex{0};
};

using GeneratorGuard = std::lock_guard<ForkSafe<std::mutex>>;

struct GeneratorObject {
  PyObject_HEAD SharedGenerator* generator;
  PyObject* weakrefs;
  Device device;
};
PyTypeObject* generator_type;
PyObject* default_generator;

GeneratorObject* as_generator(PyObject* object) {
  return reinterpret_cast<GeneratorObject*>(object);
}
bool flush_draws() {
  return !active_recorder || !record_draws(active_recorder) ||
         record_flush(active_recorder, "the state of a generator");
}

// ---------------------------------------------------------------- the Python type
PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", nullptr};
  PyObject* device_argument = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names),
                                   &device_argument)) {
    return nullptr;
  }
  Device device;
  if (device_argument && device_argument != Py_None &&
      !device_from_object(device_argument, &device)) {
    return nullptr;
  }
  auto self = steal(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  new (&as_generator(self.get())->device) Device(runtime_of(device).generator ? device : Device{});
  auto* generator = as_generator(self.get())->generator = new (std::nothrow) SharedGenerator;
  return generator ? self.release() : PyErr_NoMemory();
}
PyObject* generator_on(PyTypeObject* type, Device device) {
  return call_object(reinterpret_cast<PyObject*>(type), steal(device_object(device)));
}
// The default generator of a device, borrowed. Null + exception.
PyObject* default_on(Device device) {
  static PyObject* generators[kMaxDevices][kMaxDevices];
  PyObject*& generator = generators[device.kind][device.index];
  if (!generator) generator = generator_on(generator_type, device);
  return generator;
}
PyObject* generator_device(PyObject* self, void*) {
  return device_object(as_generator(self)->device);
}
void generator_dealloc(PyObject* self) {
  if (as_generator(self)->weakrefs) PyObject_ClearWeakRefs(self);
  delete as_generator(self)->generator;
  free_instance(self);
}

bool read_seed(PyObject* argument, uint64_t* seed) {
  if (!PyLong_Check(argument)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[manual_seed] manual_seed expected a long, but got %s\nhint: pass an int",
                 Py_TYPE(argument)->tp_name);
    return false;
  }
  *seed = PyLong_AsUnsignedLongLong(argument);
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();  // negative seeds count back from 2**64
  const long long value = PyLong_AsLongLong(argument);
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    PyErr_SetString(PyExc_ValueError,
                    "[manual_seed] Overflow when unpacking long long\n"
                    "hint: seeds are in [-2**63, 2**64)");
    return false;
  }
  *seed = static_cast<uint64_t>(value);
  return true;
}

PyObject* generator_manual_seed(PyObject* self, PyObject* argument) {
  uint64_t seed;
  if (!read_seed(argument, &seed) || !flush_draws()) return nullptr;
  SharedGenerator* g = as_generator(self)->generator;
  const GeneratorGuard lock(g->mutex);
  g->manual_seed(seed);
  return Py_NewRef(self);
}
PyObject* generator_seed(PyObject* self, PyObject*) {
  if (!flush_draws()) return nullptr;
  std::random_device device;
  const uint64_t seed = (static_cast<uint64_t>(device()) << 32 | device()) & ((1ull << 53) - 1);
  SharedGenerator* g = as_generator(self)->generator;
  const GeneratorGuard lock(g->mutex);
  g->manual_seed(seed);
  return PyLong_FromUnsignedLongLong(seed);
}
PyObject* generator_initial_seed(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(as_generator(self)->generator->initial_seed());
}
PyObject* generator_get_state(PyObject* self, PyObject*) {
  if (!flush_draws()) return nullptr;
  const int64_t size = Generator::kStateBytes;
  Tensor* state = tensor_empty(DType::U8, Device{}, 1, &size);
  if (!state) return nullptr;
  SharedGenerator* g = as_generator(self)->generator;
  const GeneratorGuard lock(g->mutex);
  const std::vector<uint8_t> bytes = g->get_state();
  std::memcpy(state->data(), bytes.data(), bytes.size());
  return reinterpret_cast<PyObject*>(state);
}
PyObject* generator_set_state(PyObject* self, PyObject* argument) {
  if (!is_tensor(argument) || reinterpret_cast<Tensor*>(argument)->dtype != DType::U8) {
    PyErr_Format(PyExc_TypeError,
                 "[set_state] expected a torch.ByteTensor, but got %s\n"
                 "hint: pass what get_state() returned",
                 Py_TYPE(argument)->tp_name);
    return nullptr;
  }
  Tensor* state = reinterpret_cast<Tensor*>(argument);
  if (!flush_draws() || !tensor_materialise(state, "set_state")) return nullptr;
  if (state->numel != static_cast<int64_t>(Generator::kStateBytes)) {
    PyErr_Format(PyExc_RuntimeError,
                 "[set_state] Expected a CPUGeneratorImplState of size %zu but found the input RNG "
                 "state size to be %lld\nhint: pass what get_state() returned",
                 Generator::kStateBytes, static_cast<long long>(state->numel));
    return nullptr;
  }
  std::vector<uint8_t> bytes;
  bytes.reserve(Generator::kStateBytes);
  for_each_element(state, [&](const char* at) { bytes.push_back(static_cast<uint8_t>(*at)); });
  SharedGenerator* g = as_generator(self)->generator;
  const GeneratorGuard lock(g->mutex);
  if (!g->set_state(bytes.data(), bytes.size())) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[set_state] RNG state is not valid\nhint: pass what get_state() returned");
    return nullptr;
  }
  return Py_NewRef(self);
}
PyObject* generator_clone_state(PyObject* self, PyObject*) {
  if (!flush_draws()) return nullptr;
  PyObject* copy = generator_on(Py_TYPE(self), as_generator(self)->device);
  if (!copy) return nullptr;
  SharedGenerator* g = as_generator(self)->generator;
  const GeneratorGuard lock(g->mutex);
  static_cast<Generator&>(*as_generator(copy)->generator) = *g;
  return copy;
}
PyObject* generator_offset(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError,
                  "[Generator] CPU Generator does not use offset\nhint: use get_state()");
  return nullptr;
}
PyObject* generator_reduce(PyObject* self, PyObject*) {
  auto state = steal(generator_get_state(self, nullptr));
  const auto device = steal(device_object(as_generator(self)->device));
  auto text = steal(state && device ? PyObject_Str(device.get()) : nullptr);
  if (!text) return nullptr;
  return Py_BuildValue("(O(N)N)", Py_TYPE(self), text.release(), state.release());
}
PyObject* generator_setstate(PyObject* self, PyObject* state) {
  if (!steal(generator_set_state(self, state))) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O, "Starts the stream of a seed; returns self."},
    {"seed", generator_seed, METH_NOARGS, "Seeds from the system's entropy; returns the seed."},
    {"initial_seed", generator_initial_seed, METH_NOARGS, "The seed the stream started from."},
    {"get_state", generator_get_state, METH_NOARGS, "The state as a uint8 tensor of 5056 bytes."},
    {"set_state", generator_set_state, METH_O, "Continues from a state of get_state()."},
    {"clone_state", generator_clone_state, METH_NOARGS, "A new generator in the same state."},
    {"graphsafe_get_state", generator_clone_state, METH_NOARGS, "The same as clone_state()."},
    {"get_offset", generator_offset, METH_NOARGS, "Raises: the CPU's stream has no offset."},
    {"set_offset", generator_offset, METH_O, "Raises: the CPU's stream has no offset."},
    {"__reduce__", generator_reduce, METH_NOARGS, nullptr},
    {"__setstate__", generator_setstate, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef generator_attributes[] = {
    {"device", generator_device, nullptr, "Whose draws it numbers.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef generator_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(GeneratorObject, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot generator_slots[] = {
    {Py_tp_doc, const_cast<char*>("Generator(device='cpu'): a stream of random numbers.")},
    {Py_tp_new, reinterpret_cast<void*>(generator_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(generator_dealloc)},
    {Py_tp_methods, generator_methods},
    {Py_tp_getset, generator_attributes},
    {Py_tp_members, generator_members},
    {0, nullptr}};
PyType_Spec generator_spec = {"flambeau.Generator", sizeof(GeneratorObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, generator_slots};

// ---------------------------------------------------------------- routines
SharedGenerator& generator_at(const RoutineContext& c) {
  return *static_cast<SharedGenerator*>(reinterpret_cast<Generator*>(c.p[1]));
}

// One for all messages: a buffer for every list of arguments would exhaust the memory that the
// dynamic linker has for thread-local variables of libraries loaded late.
thread_local char failure_text[256];

// The message stays valid until this thread's next failure.
template <class... Args>
const char* failure(const char* format, Args... args) {
  std::snprintf(failure_text, sizeof failure_text, format, args...);
  return failure_text;
}

template <RandomType type>
const char* uniform(const RoutineContext& c) {
  const double low = c.s[0].d, high = c.s[1].d;
  const int64_t n = c.n[0];
  if (!(low <= high)) {
    return failure(
        "[uniform_] uniform_ expects to return a [from, to) range, but found from=%g > "
        "to=%g\nhint: swap the bounds",
        low, high);
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  if constexpr (type == RandomType::kFloat16) {
    fill_uniform_f16(g, reinterpret_cast<uint16_t*>(c.p[0]), n, low, high);
  } else if constexpr (type == RandomType::kBFloat16) {
    fill_uniform_bf16(g, reinterpret_cast<uint16_t*>(c.p[0]), n, low, high);
  } else if constexpr (type == RandomType::kFloat32) {
    fill_uniform_f32(g, reinterpret_cast<float*>(c.p[0]), n, low, high);
  } else {
    fill_uniform_f64(g, reinterpret_cast<double*>(c.p[0]), n, low, high);
  }
  return nullptr;
}

const char* bad_deviation(double std) {
  return failure("[normal_] normal expects std >= 0.0, but found std %g\nhint: std is a width",
                 std);
}
template <RandomType type>
const char* normal(const RoutineContext& c) {
  const double mean = c.s[0].d, std = c.s[1].d;
  const int64_t n = c.n[0];
  if (!(std >= 0)) return bad_deviation(std);
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  if constexpr (type == RandomType::kFloat16) {
    fill_normal_f16(g, reinterpret_cast<uint16_t*>(c.p[0]), n, mean, std);
  } else if constexpr (type == RandomType::kBFloat16) {
    fill_normal_bf16(g, reinterpret_cast<uint16_t*>(c.p[0]), n, mean, std);
  } else if constexpr (type == RandomType::kFloat32) {
    fill_normal_f32(g, reinterpret_cast<float*>(c.p[0]), n, mean, std);
  } else {
    fill_normal_f64(g, reinterpret_cast<double*>(c.p[0]), n, mean, std);
  }
  return nullptr;
}
template <RandomType type>
const char* normal_sequential(const RoutineContext& c) {
  if (!(c.s[1].d >= 0)) return bad_deviation(c.s[1].d);
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_normal_sequential(g, c.p[0], type, c.n[0], c.s[0].d, c.s[1].d);
  return nullptr;
}

template <RandomType type>
const char* bernoulli(const RoutineContext& c) {
  const double p = c.s[0].d;
  if (!(p >= 0 && p <= 1)) {
    return failure(
        "[bernoulli_] bernoulli_ expects p to be in [0, 1], but got p=%g\n"
        "hint: p is the probability of 1",
        p);
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_bernoulli(g, c.p[0], type, c.n[0], p);
  return nullptr;
}
const char* places(const RoutineContext& c) {
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_places(g, reinterpret_cast<uint32_t*>(c.p[0]), c.n[0], c.n[1], c.n[2], c.n[3]);
  return nullptr;
}
const char* kept_elements(const RoutineContext& c) {
  const auto* place = reinterpret_cast<const uint32_t*>(c.p[1]);
  bool* out = reinterpret_cast<bool*>(c.p[0]);
  Generator generator;
  for (int64_t head = 0; head < c.n[0]; ++head) {
    for (int64_t row = 0; row < c.n[1]; row += c.n[3], place += Generator::kPlaceWords) {
      const int64_t count = std::min(c.n[3], c.n[1] - row) * c.n[2];
      generator.restore_place(place);
      fill_bernoulli(generator, out, RandomType::kBool, count, c.s[0].d);
      out += count;
    }
  }
  return nullptr;
}
template <class Real>
const char* check_probabilities(const Real* p, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!(p[i] >= 0 && p[i] <= 1)) {
      return failure(
          "[bernoulli] Expected p_in >= 0 && p_in <= 1: element %lld is %g\n"
          "hint: probabilities are in [0, 1]",
          static_cast<long long>(i), static_cast<double>(p[i]));
    }
  }
  return nullptr;
}
template <RandomType type>
const char* bernoulli_from_f32(const RoutineContext& c) {
  const auto* p = reinterpret_cast<const float*>(c.p[2]);
  if (const char* error = check_probabilities(p, c.n[0])) return error;
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_bernoulli_f32(g, c.p[0], type, c.n[0], p);
  return nullptr;
}
template <RandomType type>
const char* bernoulli_from_f64(const RoutineContext& c) {
  const auto* p = reinterpret_cast<const double*>(c.p[2]);
  if (const char* error = check_probabilities(p, c.n[0])) return error;
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_bernoulli_f64(g, c.p[0], type, c.n[0], p);
  return nullptr;
}

// Whether the type holds low and the largest value drawn. Floating types round the others.
template <RandomType type>
const char* check_range(int64_t low, int64_t top) {
  constexpr int64_t kLimits[10] = {1, 255, 127, 32767, 2147483647, INT64_MAX, 65504, 0, 0, 0};
  constexpr int64_t limit = kLimits[static_cast<int>(type)];
  if constexpr (limit != 0 && limit != INT64_MAX) {
    constexpr bool is_signed = type != RandomType::kBool && type != RandomType::kUInt8;
    const int64_t least = !is_signed ? 0 : type == RandomType::kFloat16 ? -limit : -limit - 1;
    const bool first = low < least || low > limit;
    if (first || top < least || top > limit) {
      return failure(
          "[random_] %s is out of bounds for the dtype: %lld is not in [%lld, %lld]\n"
          "hint: choose a wider dtype",
          first ? "from" : "to - 1", static_cast<long long>(first ? low : top),
          static_cast<long long>(least), static_cast<long long>(limit));
    }
  }
  return nullptr;
}

template <RandomType type>
const char* randint(const RoutineContext& c) {
  const int64_t low = c.s[0].i, high = c.s[1].i;
  if (low >= high) {
    return failure(
        "[random_] random_ expects 'from' to be less than 'to', but got from=%lld >= "
        "to=%lld\nhint: the range is [from, to)",
        static_cast<long long>(low), static_cast<long long>(high));
  }
  if (const char* error = check_range<type>(low, high - 1)) return error;
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_randint(g, c.p[0], type, c.n[0], low, high);
  return nullptr;
}
// random_(low, None): from low to the largest value of the type.
template <RandomType type>
const char* random_from(const RoutineContext& c) {
  const int64_t low = c.s[0].i;
  const uint64_t top = static_cast<uint64_t>(c.s[1].i);  // the largest value, included
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_random_range(g, c.p[0], type, c.n[0], top - static_cast<uint64_t>(low) + 1, low);
  return nullptr;
}
template <RandomType type>
const char* full_range(const RoutineContext& c) {
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_random_full(g, c.p[0], type, c.n[0]);
  return nullptr;
}

template <RandomType type>
const char* exponential(const RoutineContext& c) {
  const double lambda = c.s[0].d;
  if (!(lambda > 0)) {
    return failure(
        "[exponential_] exponential_ expects lambda > 0.0, but found lambda=%g\n"
        "hint: lambda is a rate",
        lambda);
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_exponential(g, c.p[0], type, c.n[0], lambda);
  return nullptr;
}
template <RandomType type>
const char* cauchy(const RoutineContext& c) {
  if (!(c.s[1].d > 0)) {
    return failure(
        "[cauchy_] cauchy_ expects sigma > 0.0, but found sigma=%g\n"
        "hint: sigma is a width",
        c.s[1].d);
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_cauchy(g, c.p[0], type, c.n[0], c.s[0].d, c.s[1].d);
  return nullptr;
}
template <RandomType type>
const char* log_normal(const RoutineContext& c) {
  if (!(c.s[1].d > 0)) {
    return failure(
        "[log_normal_] log_normal_ expects std > 0.0, but found std=%g\n"
        "hint: std is a width",
        c.s[1].d);
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_log_normal(g, c.p[0], type, c.n[0], c.s[0].d, c.s[1].d);
  return nullptr;
}
template <RandomType type>
const char* geometric(const RoutineContext& c) {
  const double p = c.s[0].d;
  if (!(p > 0 && p < 1)) {
    return failure(
        "[geometric_] geometric_ expects p to be in (0, 1), but got p=%g\n"
        "hint: p is the probability of success",
        p);
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_geometric(g, c.p[0], type, c.n[0], p);
  return nullptr;
}

// One double parameter per element.
template <RandomType type>
const char* poisson(const RoutineContext& c) {
  const auto* rates = reinterpret_cast<const double*>(c.p[2]);
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (!(rates[i] >= 0)) {
      return failure(
          "[poisson] invalid Poisson rate, expected rate to be non-negative: element "
          "%lld is %g\nhint: rates are expected counts",
          static_cast<long long>(i), rates[i]);
    }
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_poisson(g, c.p[0], type, c.n[0], rates);
  return nullptr;
}
template <RandomType type>
const char* binomial(const RoutineContext& c) {
  const auto* counts = reinterpret_cast<const double*>(c.p[2]);
  for (int64_t i = 0; i < c.n[0]; ++i) {
    if (counts[i] == std::numeric_limits<double>::infinity()) {
      return failure("[binomial] element %lld of count is infinite\nhint: a number of trials",
                     static_cast<long long>(i));
    }
  }
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_binomial(g, c.p[0], type, c.n[0], counts, reinterpret_cast<const double*>(c.p[3]));
  return nullptr;
}
template <RandomType type>
const char* standard_gamma(const RoutineContext& c) {
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_standard_gamma(g, c.p[0], type, c.n[0], reinterpret_cast<const double*>(c.p[2]));
  return nullptr;
}
const char* permutation(const RoutineContext& c) {
  SharedGenerator& g = generator_at(c);
  const GeneratorGuard lock(g.mutex);
  fill_randperm(g, reinterpret_cast<int64_t*>(c.p[0]), c.n[0]);
  return nullptr;
}

// ---------------------------------------------------------------- the table
struct Family {
  const char* name;             // followed by "_<dtype>"
  RoutineFunction by_type[10];  // in the order of RandomType; null: not for this type
};
#define FB_FLOATS(f)                                                             \
  nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, f<RandomType::kFloat16>, \
      f<RandomType::kBFloat16>, f<RandomType::kFloat32>, f<RandomType::kFloat64>
#define FB_NUMBERS(f)                                                          \
  nullptr, f<RandomType::kUInt8>, f<RandomType::kInt8>, f<RandomType::kInt16>, \
      f<RandomType::kInt32>, f<RandomType::kInt64>, f<RandomType::kFloat16>,   \
      f<RandomType::kBFloat16>, f<RandomType::kFloat32>, f<RandomType::kFloat64>
#define FB_ALL(f)                                                                           \
  f<RandomType::kBool>, f<RandomType::kUInt8>, f<RandomType::kInt8>, f<RandomType::kInt16>, \
      f<RandomType::kInt32>, f<RandomType::kInt64>, f<RandomType::kFloat16>,                \
      f<RandomType::kBFloat16>, f<RandomType::kFloat32>, f<RandomType::kFloat64>
constexpr Family kFamilies[] = {
    {"random_uniform", {FB_FLOATS(uniform)}},
    {"random_normal", {FB_FLOATS(normal)}},
    {"random_normal_sequential", {FB_FLOATS(normal_sequential)}},
    {"random_bernoulli", {FB_ALL(bernoulli)}},
    {"random_bernoulli_from_f32", {FB_ALL(bernoulli_from_f32)}},
    {"random_bernoulli_from_f64", {FB_ALL(bernoulli_from_f64)}},
    {"random_randint", {FB_ALL(randint)}},
    {"random_from", {FB_ALL(random_from)}},
    {"random_full", {FB_ALL(full_range)}},
    {"random_exponential", {FB_FLOATS(exponential)}},
    {"random_cauchy", {FB_FLOATS(cauchy)}},
    {"random_log_normal", {FB_FLOATS(log_normal)}},
    {"random_geometric", {FB_NUMBERS(geometric)}},
    {"random_poisson", {FB_FLOATS(poisson)}},
    {"random_binomial", {FB_FLOATS(binomial)}},
    {"random_standard_gamma", {FB_FLOATS(standard_gamma)}},
};
#undef FB_FLOATS
#undef FB_NUMBERS
#undef FB_ALL
constexpr std::string_view kTypes[10] = {"bool", "u8",  "i8",   "i16", "i32",
                                         "i64",  "f16", "bf16", "f32", "f64"};

}  // namespace

RoutineFunction find_random_routine(const char* name) {
  const std::string_view text(name);
  if (text == "randperm") return permutation;
  if (text == "random_places") return places;
  if (text == "kept_elements") return kept_elements;
  const size_t cut = text.rfind('_');
  if (cut == std::string_view::npos) return nullptr;
  const std::string_view head = text.substr(0, cut), type = text.substr(cut + 1);
  for (const Family& family : kFamilies) {
    if (head != family.name) continue;
    for (int t = 0; t < 10; ++t) {
      if (type == kTypes[t]) return family.by_type[t];
    }
  }
  return nullptr;
}

// The generator behind an object, for draws on a device. Null + exception.
static SharedGenerator* generator_for(PyObject* object, Device device) {
  if (!object || object == Py_None) object = default_generator;
  if (object == default_generator && !on_host(device)) object = default_on(device);
  if (!object) return nullptr;
  if (!PyObject_TypeCheck(object, generator_type)) {
    PyErr_Format(PyExc_TypeError,
                 "[generator] expected a Generator or None, but got %s\nhint: torch.Generator()",
                 Py_TYPE(object)->tp_name);
    return nullptr;
  }
  const Device own = as_generator(object)->device;
  if (own.kind == device.kind && own.index == device.index) return as_generator(object)->generator;
  PyErr_Format(PyExc_RuntimeError,
               "[generator] Expected a '%s' device type for generator but found '%s'\n"
               "hint: torch.Generator(device=...)",
               runtime_of(device).name, runtime_of(own).name);
  return nullptr;
}

Generator* generator_of(PyObject* object) { return generator_for(object, Device{}); }

char* generator_address(PyObject* object, Device device) {
  const DeviceRuntime& runtime = runtime_of(device);
  if (!runtime.generator) {
    PyErr_Format(PyExc_NotImplementedError,
                 "[generator] device %s draws no random numbers\nhint: draw on cpu", runtime.name);
    return nullptr;
  }
  Generator* generator = generator_for(object, device);
  return generator ? runtime.generator(device.index, generator) : nullptr;
}

PyObject* generator_copy(PyObject* object) {
  const bool usual = !object || object == Py_None;
  return generator_clone_state(usual ? default_generator : object, nullptr);
}

// Those of all devices that have memory of their own.
static PyObject* device_generators(PyObject*, PyObject*) {
  auto list = steal(PyList_New(0));
  for (int kind = 1; list && kind < device_count; ++kind) {
    const DeviceRuntime& runtime = *device_runtimes[kind];
    for (int8_t index = 0; runtime.generator && index < runtime.count; ++index) {
      PyObject* generator = default_on({static_cast<uint8_t>(kind), index});
      if (!generator || PyList_Append(list.get(), generator) < 0) return nullptr;
    }
  }
  return list.release();
}
static PyMethodDef functions[] = {{"device_generators", device_generators, METH_NOARGS,
                                   "The default generators of all devices but the CPU."},
                                  {nullptr, nullptr, 0, nullptr}};

bool init_random(PyObject* module) {
  generator_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&generator_spec));
  if (!generator_type) return false;
  default_generator = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(generator_type));
  return default_generator &&
         PyModule_AddObjectRef(module, "Generator", (PyObject*)generator_type) == 0 &&
         PyModule_AddObjectRef(module, "default_generator", default_generator) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace fb
