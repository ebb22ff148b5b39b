// Random fills as routines. One stream is one sequence, so a fill is sequential; a lock keeps two
// Python threads that share a generator from mixing their draws inside one fill.
#include <mutex>
#include <type_traits>

#include "random.h"
#include "routines_internal.h"

namespace fb {
namespace {

std::mutex stream_lock;

Generator& generator(const RoutineContext& c) { return *reinterpret_cast<Generator*>(c.p[1]); }

#define FB_FILL(name, ...)                           \
  template <RandomType kType>                        \
  const char* name(const RoutineContext& c) {        \
    std::lock_guard<std::mutex> guard(stream_lock);  \
    Generator& g = generator(c);                     \
    void* out = c.p[0];                              \
    const int64_t n = c.n[0];                        \
    __VA_ARGS__;                                     \
    return nullptr;                                  \
  }

FB_FILL(normal_sequential, fill_normal_sequential(g, out, kType, n, c.s[0].d, c.s[1].d))
FB_FILL(bernoulli, fill_bernoulli(g, out, kType, n, c.s[0].d))
FB_FILL(bernoulli_from_f32, fill_bernoulli_f32(g, out, kType, n, pointer<float>(c, 2)))
FB_FILL(bernoulli_from_f64, fill_bernoulli_f64(g, out, kType, n, pointer<double>(c, 2)))
FB_FILL(randint, fill_randint(g, out, kType, n, c.s[0].i, c.s[1].i))
FB_FILL(random_range, fill_random_range(g, out, kType, n, static_cast<uint64_t>(c.s[1].i),
                                        c.s[0].i))
FB_FILL(random_full, fill_random_full(g, out, kType, n))
FB_FILL(exponential, fill_exponential(g, out, kType, n, c.s[0].d))
FB_FILL(cauchy, fill_cauchy(g, out, kType, n, c.s[0].d, c.s[1].d))
FB_FILL(log_normal, fill_log_normal(g, out, kType, n, c.s[0].d, c.s[1].d))
FB_FILL(geometric, fill_geometric(g, out, kType, n, c.s[0].d))
FB_FILL(poisson, fill_poisson(g, out, kType, n, pointer<double>(c, 2)))
FB_FILL(standard_gamma, fill_standard_gamma(g, out, kType, n, pointer<double>(c, 2)))
#undef FB_FILL

template <typename T, void (*kFill)(Generator&, T*, int64_t, double, double)>
const char* two_parameters(const RoutineContext& c) {
  std::lock_guard<std::mutex> guard(stream_lock);
  kFill(generator(c), pointer<T>(c, 0), c.n[0], c.s[0].d, c.s[1].d);
  return nullptr;
}

const char* randperm(const RoutineContext& c) {
  std::lock_guard<std::mutex> guard(stream_lock);
  fill_randperm(generator(c), pointer<int64_t>(c, 0), c.n[0]);
  return nullptr;
}

template <RandomType kType>
void add_real(RoutineList* list, const std::string& dtype) {
  list->push_back({"random_bernoulli_" + dtype, bernoulli<kType>});
  list->push_back({"random_bernoulli_from_f32_" + dtype, bernoulli_from_f32<kType>});
  list->push_back({"random_bernoulli_from_f64_" + dtype, bernoulli_from_f64<kType>});
  list->push_back({"random_randint_" + dtype, randint<kType>});
  list->push_back({"random_range_" + dtype, random_range<kType>});
  list->push_back({"random_full_" + dtype, random_full<kType>});
  if (kType != RandomType::kBool) {
    list->push_back({"random_geometric_" + dtype, geometric<kType>});
  }
}

template <RandomType kType>
void add_floating(RoutineList* list, const std::string& dtype) {
  add_real<kType>(list, dtype);
  list->push_back({"random_normal_sequential_" + dtype, normal_sequential<kType>});
  list->push_back({"random_exponential_" + dtype, exponential<kType>});
  list->push_back({"random_cauchy_" + dtype, cauchy<kType>});
  list->push_back({"random_log_normal_" + dtype, log_normal<kType>});
  list->push_back({"random_poisson_" + dtype, poisson<kType>});
}

}  // namespace

void add_random_routines(RoutineList* list) {
  add_real<RandomType::kBool>(list, "bool");
  add_real<RandomType::kUInt8>(list, "u8");
  add_real<RandomType::kInt8>(list, "i8");
  add_real<RandomType::kInt16>(list, "i16");
  add_real<RandomType::kInt32>(list, "i32");
  add_real<RandomType::kInt64>(list, "i64");
  add_floating<RandomType::kFloat16>(list, "f16");
  add_floating<RandomType::kBFloat16>(list, "bf16");
  add_floating<RandomType::kFloat32>(list, "f32");
  add_floating<RandomType::kFloat64>(list, "f64");
  list->push_back({"random_gamma_f32", standard_gamma<RandomType::kFloat32>});
  list->push_back({"random_gamma_f64", standard_gamma<RandomType::kFloat64>});
  list->push_back({"random_uniform_f32", two_parameters<float, fill_uniform_f32>});
  list->push_back({"random_uniform_f64", two_parameters<double, fill_uniform_f64>});
  list->push_back({"random_uniform_f16", two_parameters<uint16_t, fill_uniform_f16>});
  list->push_back({"random_uniform_bf16", two_parameters<uint16_t, fill_uniform_bf16>});
  list->push_back({"random_normal_f32", two_parameters<float, fill_normal_f32>});
  list->push_back({"random_normal_f64", two_parameters<double, fill_normal_f64>});
  list->push_back({"random_normal_f16", two_parameters<uint16_t, fill_normal_f16>});
  list->push_back({"random_normal_bf16", two_parameters<uint16_t, fill_normal_bf16>});
  list->push_back({"randperm", randperm});
}

}  // namespace fb
