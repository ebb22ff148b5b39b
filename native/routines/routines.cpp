// Native routines: the algorithms that are not loops over elements (sorting, scattering, searching,
// random streams). A Launch names one; the table says what it is handed.
//
// <t> is a dtype name of the IR: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128 ("real" leaves
// out the complex ones). Every tensor operand is contiguous unless strides are passed; indices are
// i64. Strides count elements. Flags are 0 or 1. A `?` operand may be left out of `p`.
//
// name                       p (buffers)                     n (sizes)                s (scalars)
// -------------------------------------------------------------------------------------------------
// sort_<t real>              x, values, indices              rows, length, descending
//     Along the last axis of [rows, length]; stable; NaN counts as the largest value.
// argsort_<t real>           x, indices                      rows, length, descending
// select_<t real>            x, values, indices              rows, length, first, count,
//     Elements first .. first + count of the          descending, which of equal elements (Ties)
//     stable sort of each row: [rows, count].
// searchsorted_<t real>      sorted, values, out             rows, length, count, right,
//     sorted: [rows, length] (or [length] with            sorted row stride
//     row stride 0), values, out(i64): [rows, count].
// true_indices               mask, out(i64)                  rows, length, count, ndim,
//     out: [rows, ndim, count], the indices of a row's     sizes[ndim]
//     first true elements; -1 where there are fewer.
// compress                   x, mask, out                    length, count, bytes of an entry
//     The entries of x whose element of the mask is true; zeros where there are fewer.
// scatter_<mode>_<t>         out, index, source              ndim, axis, index sizes[ndim],
//     out[.., index[i], ..] (mode)= source[i] in        out strides[ndim], index strides[ndim],
//     row-major order of i; a stride of 0 in the        source strides[ndim], out size
//     source broadcasts. `out` holds the base.          mode: set add mul max min (NaN wins)
// put_<mode>_<t>             out, source, index...           count, outer, inner, d, D[0..d)
//     out: [outer, D0..Dd-1, inner] holding the base, source: [outer, count, inner], d index
//     tensors of [count]; applied in increasing position, so equal targets are deterministic.
// take_add_<t>               out, source, index              count, outer, inner, 1, D
//     The transpose of `take`; the same as put_add_<t> with d = 1.
// bag_sum_<f32|f64>          out, table, index, starts,      bags, width, indices, has_shares
//     ends, shares?: out[b] is the sum of table[index[i]] (times shares[i]), starts[b] <= i <
//     ends[b], in this order; an index of -1 counts as none.
// solve_<t>, triangular_solve_<t>, cholesky_<t>, lu_<t>, qr_<t>, eigh_<t>, eig_<t>, svd_<t>,
// fft_<c64|c128>: the table in flambeau/compiler/schedule/routines.py (t: f32 f64 c64 c128).
// geqrf_<t>                  a, packed, tau                  batch, M, N
// ldl_<t>, ldl_solve_<t>: the same table.
// random_uniform_<half|f32|f64>      out, generator          numel            low, high
// random_normal_<half|f32|f64>       out, generator          numel            mean, std
// random_normal_sequential_<float>   out, generator          numel            mean, std
// random_bernoulli_<t real>          out, generator          numel            probability
// random_bernoulli_from_<f32|f64>_<t real>   out, generator, probabilities    numel
// random_randint_<t real>            out, generator          numel            low, high (integers)
// random_full_<t real>               out, generator          numel
// random_from_<t real>               out, generator          numel            low, top (integers;
//                                                                             top included)
// random_exponential_<float>         out, generator          numel            lambda
// random_cauchy_<float>              out, generator          numel            median, sigma
// random_log_normal_<float>          out, generator          numel            mean, std
// random_geometric_<t real, no bool> out, generator          numel            probability
// random_poisson_<float>             out, generator, rates   numel            (rates: f64)
// random_standard_gamma_<f32|f64>    out, generator, shapes  numel            (shapes: f64)
// random_binomial_<f32|f64>          out, generator, counts, probabilities  numel   (both: f64)
// randperm                           out, generator          numel            (out: i64)
// python                             any                     call, count, bytes of each buffer
//     Calls the function of `set_python_routine` with the number of the call and memoryviews.
// random_places                      out, generator          heads, rows, columns, step (out: i32)
// kept_elements                      out, places             heads, rows, columns, step
//                                      (out: bool)                              probability
//
// Scalars are doubles unless marked "(integers)". `generator` is a ("generator", slot) buffer;
// `error` an ("error", message) buffer: int64 {flag, value, size, dimension}, see docs/design.md.
#include <unordered_map>

#include "call/op_internal.h"
#include "device/devices.h"
#include "random/random_binding.h"
#include "routines/routines_internal.h"
#include "routines/routines_python.h"
#include "runtime/profile.h"

namespace fb {
namespace {

using AddRoutines = void (*)(RoutineList* list);

std::vector<AddRoutines>& files() {  // grows while static objects are constructed
  static auto& all = *new std::vector<AddRoutines>();
  return all;
}

const std::unordered_map<std::string, RoutineFunction>& registry() {
  static const auto* const table = [] {
    RoutineList list;
    for (AddRoutines add : files()) add(&list);
    auto* made = new std::unordered_map<std::string, RoutineFunction>();
    for (const RoutineEntry& entry : list) made->emplace(entry.name, entry.function);
    return made;
  }();
  return *table;
}

// ---- calling a routine from Python (host ops)

// Of the first operand that is not in host memory; else the host.
Device device_of(PyObject* operands) {
  const auto fast = steal(PySequence_Fast(operands, "[call_routine] tensors must be a sequence"));
  for (Py_ssize_t i = 0; fast && i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject* object = PySequence_Fast_GET_ITEM(fast.get(), i);
    if (is_tensor(object) && !on_host(tensor_of(object)->device)) return tensor_of(object)->device;
  }
  PyErr_Clear();  // it is raised where they are read
  return Device{};
}

// A call's operands where the routine runs.
struct Operands {
  const Device device;
  std::vector<char*> pointers = {};
  std::vector<uint8_t> states = {};  // as in DeviceLaunch
  std::vector<Ref<Storage>> held = {};
  std::vector<std::pair<Tensor*, Ref<Tensor>>> copies = {};  // operands of another device

  bool add(PyObject* object) {
    states.push_back(!is_tensor(object));
    if (!is_tensor(object)) {
      pointers.push_back(generator_address(object, device));
      return pointers.back() != nullptr;
    }
    Tensor* t = tensor_of(object);
    auto here = steal(tensor_placed(t, device, "a host op"));
    if (!here) return false;
    held.push_back(share(here->storage));
    pointers.push_back(here->data());
    if (here.get() != t) copies.emplace_back(t, std::move(here));
    return true;
  }
  // Only the caller knows the operands that are results, so all storages count as written.
  bool finish(const char* name, bool fine) {
    for (const auto& storage : held) ++storage->writes;
    for (const auto& [original, copy] : copies) {
      if (fine) fine = tensor_copy_bytes(original, copy.get(), name);
    }
    return fine;
  }
};

bool read_operands(PyObject* tensors, Operands* operands) {
  const auto fast = steal(PySequence_Fast(tensors, "[call_routine] tensors must be a sequence"));
  for (Py_ssize_t i = 0; fast && i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    if (!operands->add(PySequence_Fast_GET_ITEM(fast.get(), i))) return false;
  }
  return static_cast<bool>(fast);
}

bool read_sizes(PyObject* sizes, std::vector<int64_t>* out) {
  const auto fast = steal(PySequence_Fast(sizes, "[call_routine] sizes must be a sequence"));
  for (Py_ssize_t i = 0; fast && i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    out->push_back(PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast.get(), i)));
  }
  return !PyErr_Occurred();
}

bool read_scalars(PyObject* scalars, std::vector<Scalar>* out) {
  const auto fast = steal(PySequence_Fast(scalars, "[call_routine] scalars must be a sequence"));
  for (Py_ssize_t i = 0; fast && i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    PyObject* object = PySequence_Fast_GET_ITEM(fast.get(), i);
    Scalar value;
    if (PyLong_Check(object)) {
      value.i = PyLong_AsLongLong(object);
    } else {
      value.d = PyFloat_AsDouble(object);
    }
    out->push_back(value);
  }
  return !PyErr_Occurred();
}

// Bytes of the tensors among the operands.
int64_t bytes_of(PyObject* operands) {
  int64_t total = 0;
  for (Py_ssize_t i = 0; i < PySequence_Size(operands); ++i) {
    const auto operand = steal(PySequence_GetItem(operands, i));
    if (operand && is_tensor(operand.get())) {
      const Tensor* t = tensor_of(operand.get());
      total += t->numel * item_size(t->dtype);
    }
  }
  return total;
}

const char* run_profiled(const char* name, RoutineFunction routine, const RoutineContext& context,
                         int64_t bytes) {
  LaunchClock clock;
  ProfiledBody pieces{nullptr, nullptr, name, &clock};
  profiled_routine = &pieces;
  const int64_t start = profile_now();
  const char* error = routine(context);
  const int64_t end = profile_now();
  profiled_routine = nullptr;
  const int64_t busy = clock.busy.load(std::memory_order_relaxed);
  profile_launch(
      {name, start, end, bytes, 0, 0, busy > 0 ? busy : end - start, clock.threads(), 1});
  return error;
}

bool run_here(const char* name, RoutineFunction routine, const Operands& operands,
              const std::vector<int64_t>& n, const std::vector<Scalar>& s, PyObject* tensors) {
  ErrorKind kind = ErrorKind::Runtime;
  const RoutineContext context{operands.pointers.data(), n.data(), s.data(), &kind};
  const int64_t bytes = profiling() ? bytes_of(tensors) : -1;
  const char* error;
  Py_BEGIN_ALLOW_THREADS error =
      bytes < 0 ? routine(context) : run_profiled(name, routine, context, bytes);
  Py_END_ALLOW_THREADS return device_fine(name, {error, kind});
}

bool run_elsewhere(const char* name, RoutineFunction routine, const Operands& operands,
                   const std::vector<int64_t>& n, const std::vector<Scalar>& s) {
  const Device device = operands.device;
  const int64_t stream = current_stream(device);
  const DeviceLaunch launch{name,
                            nullptr,
                            routine,
                            operands.pointers.data(),
                            operands.states.data(),
                            operands.pointers.size(),
                            n.data(),
                            n.size(),
                            s.data(),
                            s.size(),
                            0,
                            0};
  return device_fine(name, runtime_of(device).launch(device.index, stream, launch)) &&
         device_synchronize(device, stream, name);
}

PyObject* call_routine(PyObject*, PyObject* args) {
  const char* name;
  PyObject *tensors, *sizes, *scalars = nullptr;
  if (!PyArg_ParseTuple(args, "sOO|O", &name, &tensors, &sizes, &scalars)) return nullptr;
  const RoutineFunction routine = find_routine(name);
  if (!routine) {
    PyErr_Format(PyExc_NotImplementedError, "[%s] no native routine has this name", name);
    return nullptr;
  }
  Operands operands{device_of(tensors)};
  std::vector<int64_t> n;
  std::vector<Scalar> s;
  if (!read_operands(tensors, &operands) || !read_sizes(sizes, &n) ||
      (scalars && !read_scalars(scalars, &s)))
    return nullptr;
  const bool fine = on_host(operands.device) ? run_here(name, routine, operands, n, s, tensors)
                                             : run_elsewhere(name, routine, operands, n, s);
  if (!operands.finish(name, fine)) return nullptr;
  Py_RETURN_NONE;
}

PyObject* routine_names(PyObject*, PyObject*) {
  auto list = steal(PyList_New(0));
  for (const auto& [name, function] : registry()) {
    if (!list || !append_item(list.get(), PyUnicode_FromString(name.c_str()))) return nullptr;
  }
  return PyList_Sort(list.get()) < 0 ? nullptr : list.release();
}

PyMethodDef methods[] = {
    {"call_routine", call_routine, METH_VARARGS,
     "call_routine(name, tensors and generators, sizes, scalars=()): runs a native routine."},
    {"routine_names", routine_names, METH_NOARGS, "Names of all native routines, sorted."},
    {"set_python_routine", set_python_routine, METH_O,
     "set_python_routine(function): called as (call, buffers) by launches of `python`."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

RoutineRegistration::RoutineRegistration(AddRoutines add) { files().push_back(add); }

RoutineFunction find_routine(const char* name) {
  const auto found = registry().find(name);
  return found == registry().end() ? find_random_routine(name) : found->second;
}

bool init_routines(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace fb
