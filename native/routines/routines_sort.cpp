// Sorting along rows: sort, argsort, and the elements at some positions of the sorted row (topk,
// kthvalue, median).
//
// All of them order (key, position) pairs, which are distinct, so the result is one well-defined
// permutation whatever the algorithm: the stable sort. Where key and position fit in 32 bits each,
// a pair is one 64-bit word. Long rows take a radix sort, whose passes several threads share when
// there are fewer rows than threads; short rows a comparison sort.
#include <algorithm>
#include <bit>
#include <optional>

#include "routines/routines_keys.h"
#include "routines/variants.h"  // first: its pragmas must hold for all that is inlined

namespace fb {
namespace {

constexpr int64_t kRadixLength = 512;
constexpr int64_t kFewItems = 16;  // they need no memory but the stack
constexpr int kDigitBits = 8;
constexpr int64_t kDigits = 1 << kDigitBits;
constexpr uint64_t kDigitMask = kDigits - 1;
constexpr int64_t kRowWork = 4096;          // elements worth handing to another thread
constexpr int64_t kPieceLength = 1 << 15;   // of one long row
constexpr int64_t kSmallScratch = 1 << 20;  // bytes a thread may cache for short rows
constexpr int64_t kPackedLength = 1LL << 32;

// A key and where it stood.
struct Packed {
  uint64_t bits;
  static Packed of(uint64_t key, int64_t position) {
    return {key << 32 | static_cast<uint64_t>(position)};
  }
  uint64_t key() const { return bits >> 32; }
  int64_t position() const { return static_cast<int64_t>(bits & 0xffffffffu); }
  bool operator<(const Packed& other) const { return bits < other.bits; }
};
struct Pair {
  uint64_t word;
  int64_t place;
  static Pair of(uint64_t key, int64_t position) { return {key, position}; }
  uint64_t key() const { return word; }
  int64_t position() const { return place; }
  bool operator<(const Pair& other) const {
    return word != other.word ? word < other.word : place < other.place;
  }
};

// Keys of a row in the requested order, counted from the least.
template <typename T>
struct Keys {
  using Key = typename KeyOf<T>::Key;
  const T* row;
  Key flip, least = 0;
  uint64_t largest = static_cast<Key>(~Key(0));

  Keys(const T* x, bool descending) : row(x), flip(descending ? static_cast<Key>(~Key(0)) : 0) {}
  FB_INLINE Key operator()(int64_t i) const {
    return static_cast<Key>(static_cast<Key>(KeyOf<T>::key(row[i]) ^ flip) - least);
  }
  int bits() const { return std::bit_width(largest); }
};

template <typename T>
struct Extremes {
  static FB_INLINE void run(const T* row, int64_t n, typename KeyOf<T>::Key* low,
                            typename KeyOf<T>::Key* high) {
    using Key = typename KeyOf<T>::Key;
    Key least = static_cast<Key>(~Key(0)), most = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Key key = KeyOf<T>::key(row[i]);
      least = key < least ? key : least;
      most = key > most ? key : most;
    }
    *low = least;
    *high = most;
  }
};

// Few values (indices, labels) have few digits: keys are counted from the least one.
template <typename T>
void narrow(Keys<T>* keys, int64_t n) {
  typename KeyOf<T>::Key low, high;
  run_variant<Extremes<T>>(keys->row, n, &low, &high);
  keys->largest = static_cast<uint64_t>(high) - low;
  keys->least = static_cast<typename KeyOf<T>::Key>((keys->flip ? high : low) ^ keys->flip);
}

// Memory for items and counters: the thread's own for short rows, else a block released at once.
class Workspace {
 public:
  explicit Workspace(int64_t nbytes) {
    if (nbytes > kSmallScratch) {
      data_ = block_.emplace(nbytes).as<char>();
    } else if (nbytes > 0) {
      data_ = static_cast<char*>(worker_scratch(0, nbytes));
    }
  }
  template <typename I>
  I* as() const {
    return reinterpret_cast<I*>(data_);
  }

 private:
  std::optional<Block> block_;
  char* data_ = nullptr;
};

// ---- radix sort

// Counts of every digit of all passes, in one look at the items.
template <int kPasses, typename Item>
void count_digits(const Item* items, int64_t n, int64_t* counts) {
  std::fill(counts, counts + kPasses * kDigits, int64_t{0});
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = items[i].key();
    for (int p = 0; p < kPasses; ++p) {
      ++counts[p * kDigits + (key >> (p * kDigitBits) & kDigitMask)];
    }
  }
}

template <typename Item>
void count_all(const Item* items, int64_t n, int passes, int64_t* counts) {
  if (passes <= 1) return count_digits<1>(items, n, counts);
  if (passes == 2) return count_digits<2>(items, n, counts);
  if (passes == 3) return count_digits<3>(items, n, counts);
  if (passes == 4) return count_digits<4>(items, n, counts);
  count_digits<8>(items, n, counts);
}

// Counts become offsets: of digit d in piece p, after all smaller digits and all earlier pieces.
inline void places_of(int64_t* counts, int64_t pieces) {
  int64_t sum = 0;
  for (int64_t d = 0; d < kDigits; ++d) {
    for (int64_t p = 0; p < pieces; ++p) {
      const int64_t here = counts[p * kDigits + d];
      counts[p * kDigits + d] = sum;
      sum += here;
    }
  }
}

template <typename Item>
void move_items(const Item* from, Item* to, int64_t begin, int64_t end, int shift,
                int64_t* places) {
  for (int64_t i = begin; i < end; ++i) {
    to[places[from[i].key() >> shift & kDigitMask]++] = from[i];
  }
}

// One stable pass, the pieces of the row counted and moved independently.
template <typename Item>
void shared_pass(const Item* from, Item* to, int64_t n, int shift, int64_t pieces,
                 int64_t* counts) {
  const auto first = [=](int64_t piece) { return n * piece / pieces; };
  parallel(pieces, 1, [=](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      int64_t* count = counts + p * kDigits;
      std::fill(count, count + kDigits, int64_t{0});
      for (int64_t i = first(p); i < first(p + 1); ++i) {
        ++count[from[i].key() >> shift & kDigitMask];
      }
    }
  });
  places_of(counts, pieces);
  parallel(pieces, 1, [=](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      move_items(from, to, first(p), first(p + 1), shift, counts + p * kDigits);
    }
  });
}

// Least significant digit first; returns where the sorted items are.
template <typename Item>
Item* radix_sort(Item* items, Item* other, int64_t n, int bits, int64_t pieces, int64_t* counts) {
  const int passes = (bits + kDigitBits - 1) / kDigitBits;
  if (pieces == 1) count_all(items, n, passes, counts);
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = pass * kDigitBits;
    if (pieces > 1) {
      shared_pass(items, other, n, shift, pieces, counts);
    } else {
      int64_t* places = counts + pass * kDigits;
      places_of(places, 1);
      move_items(items, other, 0, n, shift, places);
    }
    std::swap(items, other);
  }
  return items;
}

// ---- short rows

template <typename Item>
void sort_short(Item* items, Item*, int64_t n) {
  std::sort(items, items + n);
}

FB_INLINE void order_two(uint64_t* a, uint64_t* b) {
  const uint64_t low = *a < *b ? *a : *b, high = *a < *b ? *b : *a;
  *a = low;
  *b = high;
}

// The network of 19 exchanges for eight elements (Knuth, volume 3).
FB_INLINE void order_eight(uint64_t* x) {
  constexpr int kPairs[19][2] = {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6},
                                 {3, 7}, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {2, 4}, {3, 5},
                                 {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6}};
  uint64_t v[8];
  for (int i = 0; i < 8; ++i) v[i] = x[i];
  for (const auto& pair : kPairs) order_two(v + pair[0], v + pair[1]);
  for (int i = 0; i < 8; ++i) x[i] = v[i];
}

// Merges two runs of `half` words from both ends at once: two chains without branches.
FB_INLINE void merge_runs(const uint64_t* from, uint64_t* to, int64_t half) {
  const uint64_t *a = from, *b = from + half;
  const uint64_t *y = from + half - 1, *z = from + 2 * half - 1;
  for (int64_t i = 0; i < half; ++i) {
    const bool second = *b < *a;
    to[i] = second ? *b : *a;
    b += second;
    a += !second;
    const bool last = *y < *z;
    to[2 * half - 1 - i] = last ? *z : *y;
    z -= last;
    y -= !last;
  }
}

// As for eight, with five exchanges.
FB_INLINE void order_four(uint64_t* x) {
  order_two(x, x + 2);
  order_two(x + 1, x + 3);
  order_two(x, x + 1);
  order_two(x + 2, x + 3);
  order_two(x + 1, x + 2);
}

// Words are padded to a power of two, sorted by eights, and merged. Room: twice that power.
template <>
void sort_short(Packed* items, Packed* other, int64_t n) {
  static_assert(sizeof(Packed) == sizeof(uint64_t));
  auto *words = reinterpret_cast<uint64_t*>(items), *spare = reinterpret_cast<uint64_t*>(other);
  if (n <= 4) {
    for (int64_t i = n; i < 4; ++i) words[i] = ~uint64_t{0};
    return order_four(words);
  }
  const int64_t whole = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n < 8 ? 8 : n)));
  std::fill(words + n, words + whole, ~uint64_t{0});
  for (int64_t i = 0; i < whole; i += 8) order_eight(words + i);
  for (int64_t half = 8; half < whole; half *= 2) {
    for (int64_t i = 0; i < whole; i += 2 * half) merge_runs(words + i, spare + i, half);
    std::swap(words, spare);
  }
  if (words != reinterpret_cast<uint64_t*>(items)) std::copy(words, words + n, spare);
}

// ---- rows

// How a row of this length is worked on, and the memory that takes.
struct RowWork {
  int64_t n, pieces;
  RowWork(int64_t rows, int64_t length) : n(length), pieces(1) {
    const int64_t threads = get_num_threads();
    if (rows < threads) {
      pieces = std::max<int64_t>(1, std::min(threads, length / kPieceLength));
    }
  }
  int64_t counters() const { return n < kRadixLength ? 0 : std::max<int64_t>(pieces, 8) * kDigits; }
};

// Calls emit(items in order, begin, end) for parts of the sorted row.
template <typename Item, typename T, typename Emit>
bool sort_items(const Keys<T>& keys, const RowWork& work, const Emit& emit) {
  const int64_t n = work.n;
  if (n <= kFewItems) {
    Item few[2 * kFewItems];
    for (int64_t i = 0; i < n; ++i) few[i] = Item::of(keys(i), i);
    sort_short(few, few + kFewItems, n);
    emit(few, 0, n);
    return true;
  }
  const int64_t room = std::max(n, kRadixLength);
  const Workspace space(2 * room * int64_t{sizeof(Item)} + work.counters() * int64_t{8});
  Item* items = space.as<Item>();
  if (!items) return false;
  const int64_t grain = work.pieces == 1 ? n : kPieceLength;
  parallel(n, grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) items[i] = Item::of(keys(i), i);
  });
  const Item* sorted = items;
  if (n < kRadixLength) {
    sort_short(items, items + kRadixLength, n);
  } else {
    int64_t* counts = reinterpret_cast<int64_t*>(items + 2 * n);
    sorted = radix_sort(items, items + n, n, keys.bits(), work.pieces, counts);
  }
  parallel(n, grain, [&](int64_t begin, int64_t end) { emit(sorted, begin, end); });
  return true;
}

template <typename T, typename Emit>
bool sort_row(const T* row, const RowWork& work, bool descending, const Emit& emit) {
  Keys<T> keys(row, descending);
  if (work.n >= kRadixLength) narrow(&keys, work.n);
  const bool fits = work.n < kPackedLength && keys.largest >> 32 == 0;
  return fits ? sort_items<Packed>(keys, work, emit) : sort_items<Pair>(keys, work, emit);
}

// body(row number) for all rows; a row of its own is worked on by all threads.
template <typename Body>
const char* for_rows(int64_t rows, const RowWork& work, const Body& body) {
  if (rows <= 0 || work.n <= 0) return nullptr;
  std::atomic<bool> fine{true};
  const auto some = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (!body(r)) fine = false;
    }
  };
  if (work.pieces > 1) {
    some(0, rows);
  } else {
    parallel(rows, std::max<int64_t>(1, kRowWork / work.n), some);
  }
  return fine ? nullptr : kOutOfMemory;
}

template <typename T>
const char* sort(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* values = pointer<T>(c, 1);
  int64_t* indices = pointer<int64_t>(c, 2);
  const RowWork work(c.n[0], c.n[1]);
  return for_rows(c.n[0], work, [&](int64_t r) {
    const int64_t at = r * work.n;
    return sort_row(x + at, work, c.n[2] != 0, [=](auto* items, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = items[i].position();
        values[at + i] = x[at + place];
        indices[at + i] = place;
      }
    });
  });
}

template <typename T>
const char* argsort(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  int64_t* indices = pointer<int64_t>(c, 1);
  const RowWork work(c.n[0], c.n[1]);
  return for_rows(c.n[0], work, [&](int64_t r) {
    const int64_t at = r * work.n;
    return sort_row(x + at, work, c.n[2] != 0, [=](auto* items, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) indices[at + i] = items[i].position();
    });
  });
}

// ---- selection

// Whether one of `count` keys is below a bound: most blocks of a row hold none.
template <typename T>
struct AnyBelow {
  using Key = typename KeyOf<T>::Key;
  static FB_INLINE bool run(const T* row, int64_t count, Key flip, Key bound) {
    Key found = 0;
    for (int64_t i = 0; i < count; ++i) {
      found |= static_cast<Key>(static_cast<Key>(KeyOf<T>::key(row[i]) ^ flip) < bound);
    }
    return found != 0;
  }
};

// The least `wanted` of keys [begin, end), unordered, in items[0 .. wanted): candidates are
// collected until there are twice as many (room: 2 * wanted + kSelectBlock), then the worse half
// goes.
constexpr int64_t kSelectBlock = 64;
constexpr int64_t kFewWanted = 8;  // so few are stored in order: most keys are only compared

// As `select_least`, in order, for few: each new one moves to its place from the end.
template <typename Item, typename T>
int64_t select_few(const Keys<T>& keys, int64_t begin, int64_t end, int64_t wanted, Item* items) {
  using Key = typename KeyOf<T>::Key;
  const auto put = [=](Item item, int64_t place) {
    for (; place > 0 && item < items[place - 1]; --place) items[place] = items[place - 1];
    items[place] = item;
  };
  const int64_t count = std::min(wanted, end - begin);
  for (int64_t i = 0; i < count; ++i) put(Item::of(keys(begin + i), begin + i), i);
  if (count < wanted) return count;
  Key bound = static_cast<Key>(items[wanted - 1].key());
  for (int64_t at = begin + wanted; at < end; at += kSelectBlock) {
    const int64_t length = std::min(kSelectBlock, end - at);
    if (!run_variant<AnyBelow<T>>(keys.row + at, length, keys.flip, bound)) continue;
    for (int64_t i = at; i < at + length; ++i) {
      const Key key = keys(i);
      if (key >= bound) continue;  // an equal key later in the row comes after all stored ones
      put(Item::of(key, i), wanted - 1);
      bound = static_cast<Key>(items[wanted - 1].key());
    }
  }
  return wanted;
}

template <typename Item, typename T>
int64_t select_least(const Keys<T>& keys, int64_t begin, int64_t end, int64_t wanted, Item* items) {
  if (wanted <= kFewWanted) return select_few(keys, begin, end, wanted, items);
  using Key = typename KeyOf<T>::Key;
  const int64_t head = std::min(end, begin + std::max(2 * wanted, kSelectBlock));
  int64_t count = 0;
  for (int64_t i = begin; i < head; ++i) items[count++] = Item::of(keys(i), i);
  if (count <= wanted) return count;
  std::nth_element(items, items + wanted - 1, items + count);
  count = wanted;
  Key bound = static_cast<Key>(items[wanted - 1].key());
  for (int64_t at = head; at < end; at += kSelectBlock) {
    const int64_t length = std::min(kSelectBlock, end - at);
    if (!run_variant<AnyBelow<T>>(keys.row + at, length, keys.flip, bound)) continue;
    for (int64_t i = at; i < at + length; ++i) {
      const Key key = keys(i);
      items[count] = Item::of(key, i);
      count += key < bound;  // an equal key later in the row comes after all stored ones
    }
    if (count < 2 * wanted) continue;
    std::nth_element(items, items + wanted - 1, items + count);
    count = wanted;
    bound = static_cast<Key>(items[wanted - 1].key());
  }
  std::nth_element(items, items + wanted - 1, items + count);
  return wanted;
}

// The first `wanted` of the sorted row, in order: each piece of the row gives its best.
template <typename Item, typename T, typename Emit>
bool first_items(const Keys<T>& keys, const RowWork& work, int64_t wanted, const Emit& emit) {
  const int64_t room = 2 * wanted + kSelectBlock, n = work.n;
  const Workspace space(work.pieces * (room * int64_t{sizeof(Item)} + 64));
  Item* items = space.as<Item>();
  if (!items) return false;
  int64_t* found = reinterpret_cast<int64_t*>(items + work.pieces * room);
  parallel(work.pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = n * p / work.pieces, last = n * (p + 1) / work.pieces;
      found[p] = select_least(keys, first, last, wanted, items + p * room);
    }
  });
  int64_t count = found[0];
  for (int64_t p = 1; p < work.pieces; ++p) {
    std::copy(items + p * room, items + p * room + found[p], items + count);
    count += found[p];
  }
  if (count > wanted) std::nth_element(items, items + wanted - 1, items + count);
  std::sort(items, items + wanted);
  emit(items, 0, wanted);
  return true;
}

// Item number `place` of the sorted row, selected digit by digit: only items that share the digits
// so far are looked at again.
template <typename Item, typename T, typename Emit>
bool nth_item(const Keys<T>& keys, const RowWork& work, int64_t place, const Emit& emit) {
  const int64_t n = work.n;
  const int width = n < 8192 ? 8 : 11;
  const Workspace space(n * int64_t{sizeof(Item)} + (int64_t{8} << width));
  Item* items = space.as<Item>();
  if (!items) return false;
  int64_t count = 0;
  const int shift = std::max(0, keys.bits() - width);
  if (n < kRadixLength) {
    for (int64_t i = 0; i < n; ++i) items[count++] = Item::of(keys(i), i);
  } else {
    int64_t* counts = reinterpret_cast<int64_t*>(items + n);
    std::fill(counts, counts + (1 << width), int64_t{0});
    for (int64_t i = 0; i < n; ++i) ++counts[keys(i) >> shift];
    uint64_t digit = 0;
    while (place >= counts[digit]) place -= counts[digit++];
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t key = keys(i);
      items[count] = Item::of(key, i);
      count += key >> shift == digit;
    }
  }
  std::nth_element(items, items + place, items + count);
  emit(items + place, 0, 1);
  return true;
}

// Elements first .. first + count of the sorted row.
template <typename Item, typename T, typename Emit>
bool select_items(const Keys<T>& keys, const RowWork& work, int64_t first, int64_t count,
                  const Emit& emit) {
  if (first == 0 && count <= work.n / 8) return first_items<Item>(keys, work, count, emit);
  if (count == 1) return nth_item<Item>(keys, work, first, emit);
  return sort_items<Item>(keys, work, [=](auto* items, int64_t begin, int64_t end) {
    const int64_t low = std::max(begin, first), high = std::min(end, first + count);
    if (low < high) emit(items + first, low - first, high - first);
  });
}

// The first `wanted` of the row for topk. Equal keys come in the order that PyTorch's calls of the
// C++ library leave (a partial sort for few, else a selection and a sort, which is left out where
// no order is needed), so that the same ones are taken: routers of experts have many equal scores.
// Long rows are searched for equal keys first.
template <typename Item, typename T, typename Emit>
bool topk_items(const Keys<T>& keys, const RowWork& work, int64_t wanted, bool ordered,
                const Emit& emit) {
  const int64_t n = work.n;
  const bool few = wanted <= n / 64;
  if (n >= kRadixLength && (ordered || few)) {
    std::atomic<bool> distinct{true};
    const auto look = [&](auto* items, int64_t begin, int64_t end) {
      bool differ = true;
      for (int64_t i = std::max<int64_t>(begin, 1); i < end; ++i) {
        differ &= items[i - 1].key() != items[i].key();
      }
      if (!differ) distinct = false;
      emit(items, begin, std::min(end, wanted));
    };
    if (!select_items<Item>(keys, work, 0, std::min(wanted + 1, n), look)) return false;
    if (distinct) return true;
  }
  Item short_row[kFewItems];
  const Workspace space(n <= kFewItems ? 0 : n * int64_t{sizeof(Item)});
  Item* items = n <= kFewItems ? short_row : space.as<Item>();
  if (!items) return false;
  for (int64_t i = 0; i < n; ++i) items[i] = Item::of(keys(i), i);
  const auto less = [](const Item& a, const Item& b) { return a.key() < b.key(); };
  if (few) {
    std::partial_sort(items, items + wanted, items + n, less);
  } else {
    std::nth_element(items, items + wanted - 1, items + n, less);
    if (ordered) std::sort(items, items + wanted - 1, less);
  }
  emit(items, 0, wanted);
  return true;
}

// Among equal keys: the first ones; as topk; as topk without an order.
enum Ties : int64_t { kFirst, kTopk, kUnordered };

template <typename T>
const char* select(const RoutineContext& c) {
  const T* x = pointer<T>(c, 0);
  T* values = pointer<T>(c, 1);
  int64_t* indices = pointer<int64_t>(c, 2);
  const int64_t first = c.n[2], count = c.n[3], ties = c.n[5];
  const RowWork work(c.n[0], c.n[1]);
  if (first < 0 || count < 0 || first > work.n - count) {
    return c.fail(ErrorKind::Index, "place out of the row");
  }
  if (count == 0) return nullptr;
  return for_rows(c.n[0], work, [&](int64_t r) {
    const T* row = x + r * work.n;
    const int64_t at = r * count;
    const auto emit = [=](auto* items, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = items[i].position();
        values[at + i] = row[place];
        indices[at + i] = place;
      }
    };
    Keys<T> keys(row, c.n[4] != 0);
    const int64_t looked = ties == kFirst ? count : std::min(count + 1, work.n);
    const bool whole = first != 0 || looked > work.n / 8;  // first_items takes plain keys
    if (whole && work.n >= kRadixLength) narrow(&keys, work.n);
    const bool fits = work.n < kPackedLength && keys.largest >> 32 == 0;
    if (ties != kFirst) {
      return fits ? topk_items<Packed>(keys, work, count, ties == kTopk, emit)
                  : topk_items<Pair>(keys, work, count, ties == kTopk, emit);
    }
    return fits ? select_items<Packed>(keys, work, first, count, emit)
                : select_items<Pair>(keys, work, first, count, emit);
  });
}

#define FB_MAKE(Name, function)    \
  struct Name {                    \
    template <typename T>          \
    static RoutineFunction get() { \
      return function<T>;          \
    }                              \
  }
FB_MAKE(Sort, sort);
FB_MAKE(Argsort, argsort);
FB_MAKE(Select, select);
#undef FB_MAKE

FB_ONCE void add_sort_routines(RoutineList* list) {
  add_for_real<Sort>(list, "sort_");
  add_for_real<Argsort>(list, "argsort_");
  add_for_real<Select>(list, "select_");
}

const RoutineRegistration registration{add_sort_routines};

}  // namespace

}  // namespace fb
