// Random numbers on the CPU: the streams of PyTorch's CPU generator.
//
// A script that is ported from PyTorch must start from the same weights, so this file reproduces
// PyTorch 2.13's CPU generator call for call: one Mersenne Twister (mt19937) stream, the number
// of 32-bit words each distribution draws, and the transformation from words to numbers.
// docs/random.md describes every stream and says what is equal bit for bit.
//
// The file depends on nothing but the C++ standard library, so it can be tested on its own.
// Compile with -ffp-contract=off: where PyTorch's build fuses a multiply and an add, the code
// says std::fma; everywhere else two roundings are meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fb {

// Element types of the fills that serve several types. The numbers are those of DType in core.h,
// so a dtype converts with static_cast.
enum class RandomType : uint8_t {
  kBool = 0,
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBFloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
};

// One mt19937 stream with the cached second value of the Box-Muller transform.
// Not synchronised: the caller holds a lock while a fill runs.
class Generator {
 public:
  static constexpr int kWords = 624;
  static constexpr size_t kStateBytes = 5056;  // the length of torch.get_rng_state()
  static constexpr uint64_t kDefaultSeed = 67280421310721;

  explicit Generator(uint64_t seed = kDefaultSeed);

  void manual_seed(uint64_t seed);
  uint64_t initial_seed() const { return seed_; }

  uint32_t random();
  uint64_t random64();                              // first word drawn is the high half
  void random_words(uint32_t* out, int64_t count);  // `count` calls of random()
  void skip_words(int64_t count);                   // the same, and forgets them
  double normal(double mean, double std);           // Box-Muller, caches its second value

  // The state of the stream: the words, the number of the next one, and how many are left before
  // new ones are generated. Attention's dropout restores it.
  static constexpr int kPlaceWords = 640;  // some of them unused: a multiple of a cache line
  void save_place(uint32_t* out) const;
  void restore_place(const uint32_t* place);

  // The byte layout of torch.get_rng_state(). set_state returns false, and changes nothing,
  // for bytes that are not a state.
  std::vector<uint8_t> get_state() const;
  bool set_state(const uint8_t* bytes, size_t size);

 private:
  uint64_t seed_;
  uint32_t words_[kWords];
  int32_t left_;   // draws until the next block of words, counting the one that makes it
  uint32_t next_;  // index of the next word
  bool has_normal_ = false;
  double normal_ = 0.0;  // cached standard normal value of the double stream
  bool has_float_normal_ = false;
  float float_normal_ = 0.0f;  // never used by the CPU streams; carried for get/set_state

  void refill();
};

// uniform_(from, to) and rand(): [from, to). Half types are passed as their bits.
void fill_uniform_f32(Generator&, float* out, int64_t n, double from, double to);
void fill_uniform_f64(Generator&, double* out, int64_t n, double from, double to);
void fill_uniform_f16(Generator&, uint16_t* out, int64_t n, double from, double to);
void fill_uniform_bf16(Generator&, uint16_t* out, int64_t n, double from, double to);

// normal_(mean, std) and randn() of a contiguous tensor. Sixteen numbers or more take the block
// transform, fewer the one-by-one transform. `fill_normal_sequential` is the latter for any
// length: what PyTorch does for a tensor that is not contiguous.
void fill_normal_f32(Generator&, float* out, int64_t n, double mean, double std);
void fill_normal_f64(Generator&, double* out, int64_t n, double mean, double std);
void fill_normal_f16(Generator&, uint16_t* out, int64_t n, double mean, double std);
void fill_normal_bf16(Generator&, uint16_t* out, int64_t n, double mean, double std);
void fill_normal_sequential(Generator&, void* out, RandomType, int64_t n, double mean, double std);

// random_(low, high) and randint(): [low, high). The caller has checked that low < high and that
// the values fit the type.
void fill_randint(Generator&, void* out, RandomType, int64_t n, int64_t low, int64_t high);

// The same by the number of values, for ranges that an int64 `high` cannot end:
// random_(low, None) includes the type's largest value. A range of 0 means all of int64, and `low`
// is then not looked at.
void fill_random_range(Generator&, void* out, RandomType, int64_t n, uint64_t range, int64_t low);

// random_() without arguments: [0, largest value], or [0, 2**digits] for floating types.
void fill_random_full(Generator&, void* out, RandomType, int64_t n);

// randperm(n).
void fill_randperm(Generator&, int64_t* out, int64_t n);

// bernoulli_(p) with a number p, and dropout's mask: 1 with probability p.
void fill_bernoulli(Generator&, void* out, RandomType, int64_t n, double p);
// The states of the stream before every `step` rows of each of `heads` matrices of rows by columns,
// each of whose elements takes bernoulli's two words: 2.5 KB each, less than the elements of a long
// row. fill_bernoulli of a generator restored to one draws these rows again.
void fill_places(Generator&, uint32_t* out, int64_t heads, int64_t rows, int64_t columns,
                 int64_t step);
// bernoulli(probabilities): one probability per element, of type float32 or float64 (convert
// half types to float32: they draw the same words).
void fill_bernoulli_f32(Generator&, void* out, RandomType, int64_t n, const float* probabilities);
void fill_bernoulli_f64(Generator&, void* out, RandomType, int64_t n, const double* probabilities);

// exponential_(lambda), cauchy_(median, sigma), log_normal_(mean, std): floating types;
// geometric_(p): every type except bool.
void fill_exponential(Generator&, void* out, RandomType, int64_t n, double lambda);
void fill_cauchy(Generator&, void* out, RandomType, int64_t n, double median, double sigma);
void fill_log_normal(Generator&, void* out, RandomType, int64_t n, double mean, double std);
void fill_geometric(Generator&, void* out, RandomType, int64_t n, double p);

// poisson(rates) for floating types, the binomial and the standard gamma distribution for float32
// and float64 (they write nothing for others): parameters per element, converted to float64. They
// reject, so the number of words drawn depends on the values. Counts are finite or NaN.
void fill_poisson(Generator&, void* out, RandomType, int64_t n, const double* rates);
void fill_binomial(Generator&, void* out, RandomType, int64_t n, const double* counts,
                   const double* probs);
void fill_standard_gamma(Generator&, void* out, RandomType, int64_t n, const double* shapes);

}  // namespace fb
