// Compiled models for C++ programs, without Python: the packages that
// `torch._inductor.aoti_compile_and_package` writes. Header-only; needs C++17, a POSIX system, and
// `-ldl -pthread` where these are libraries of their own.
//
//     flambeau::Package model("model.pt2");
//     flambeau::Array x = flambeau::Array::of<float>({4, 3}, {...});
//     std::vector<flambeau::Array> results = model.run({x});
//     const float* values = results[0].values<float>();
#pragma once
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model.h"

namespace flambeau {

// PyTorch's numbers of element types.
enum class DType : int32_t {
  UInt8 = 0,
  Int8 = 1,
  Int16 = 2,
  Int32 = 3,
  Int64 = 4,
  Float16 = 5,
  Float32 = 6,
  Float64 = 7,
  Complex32 = 8,
  Complex64 = 9,
  Complex128 = 10,
  Bool = 11,
  BFloat16 = 15,
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::UInt8> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, DType::Int8> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<DType, DType::Int16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::Int32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::Int64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::Float32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::Float64> {};
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::Bool> {};

// Bytes of an element; 0 for a number that is no type.
inline int64_t item_size(int32_t dtype) {
  switch (dtype) {
    case 0:
    case 1:
    case 11:
      return 1;
    case 2:
    case 5:
    case 15:
    case 27:
      return 2;
    case 3:
    case 6:
    case 8:
    case 28:
      return 4;
    case 4:
    case 7:
    case 9:
    case 29:
      return 8;
    case 10:
      return 16;
    default:
      return (dtype >= 23 && dtype <= 26) || dtype == 44 || dtype == 45 ? 1 : 0;
  }
}

// A tensor: memory of its own, or somebody's.
struct Array {
  std::shared_ptr<void> memory;
  std::vector<int64_t> sizes, strides;  // strides in elements
  int32_t dtype = 6;

  // Memory for a tensor of these strides; contiguous without.
  static Array empty(std::vector<int64_t> sizes, int32_t dtype, std::vector<int64_t> strides = {}) {
    if (strides.size() != sizes.size()) strides = contiguous(sizes);
    int64_t last = 0, count = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      last += (sizes[d] - 1) * strides[d];
      count *= sizes[d];
    }
    const int64_t bytes = count > 0 ? (last + 1) * item_size(dtype) : 1;
    void* data = nullptr;
    if (posix_memalign(&data, 64, static_cast<size_t>(bytes)) != 0) throw std::bad_alloc();
    return {{data, std::free}, std::move(sizes), std::move(strides), dtype};
  }
  // A contiguous copy of values.
  template <typename T>
  static Array of(std::vector<int64_t> sizes, const std::vector<T>& values) {
    Array array = empty(std::move(sizes), static_cast<int32_t>(DTypeOf<T>::value));
    if (static_cast<int64_t>(values.size()) != array.count()) {
      throw std::invalid_argument("[package] there are " + std::to_string(values.size()) +
                                  " values for " + std::to_string(array.count()) + " elements");
    }
    std::copy(values.begin(), values.end(), array.values<T>());
    return array;
  }
  // Memory that somebody else owns, for as long as the array is used.
  static Array view(void* data, std::vector<int64_t> sizes, int32_t dtype,
                    std::vector<int64_t> strides = {}) {
    if (strides.size() != sizes.size()) strides = contiguous(sizes);
    return {{data, [](void*) {}}, std::move(sizes), std::move(strides), dtype};
  }
  static std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size());
    int64_t step = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      strides[d] = step;
      step *= sizes[d] > 0 ? sizes[d] : 1;
    }
    return strides;
  }

  template <typename T>
  T* values() const {
    return static_cast<T*>(memory.get());
  }
  int64_t count() const {
    int64_t product = 1;
    for (int64_t size : sizes) product *= size;
    return product;
  }
  flambeau_array as_argument() const {
    return {memory.get(), sizes.data(), strides.data(), static_cast<int32_t>(sizes.size()), dtype};
  }
};

// A file in memory, read only.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) : path_(path) {
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (file_ < 0 || fstat(file_, &status) != 0) refuse("it cannot be opened");
    size_ = static_cast<size_t>(status.st_size);
    if (size_ == 0) refuse("it is empty");
    void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
    if (data == MAP_FAILED) refuse("it cannot be mapped");
    data_ = static_cast<const unsigned char*>(data);
  }
  ~MappedFile() {
    if (data_) munmap(const_cast<unsigned char*>(data_), size_);
    if (file_ >= 0) close(file_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[noreturn]] void refuse(const std::string& problem) const {
    throw std::runtime_error("[package] " + path_ + ": " + problem +
                             "\nhint: pass a file of aoti_compile_and_package");
  }
  // The bytes of a stored record of a zip archive, whatever folder it is in.
  std::pair<const unsigned char*, size_t> record(const std::string& name) const {
    const size_t end = directory_end();
    size_t count = number(end + 10, 2), at = number(end + 16, 4);
    if (count == 0xffff || at == 0xffffffff) wide(end, &count, &at);
    for (; count > 0; --count) {
      if (number(at, 4) != 0x02014b50) refuse("it is damaged");
      const size_t method = number(at + 10, 2), name_bytes = number(at + 28, 2);
      const size_t extra_bytes = number(at + 30, 2), comment_bytes = number(at + 32, 2);
      size_t packed = number(at + 20, 4), size = number(at + 24, 4), begin = number(at + 42, 4);
      check(at + 46, name_bytes + extra_bytes);
      const std::string full(reinterpret_cast<const char*>(data_) + at + 46, name_bytes);
      widen(at + 46 + name_bytes, extra_bytes, &size, &packed, &begin);
      at += 46 + name_bytes + extra_bytes + comment_bytes;
      const size_t slash = full.find('/');
      if (slash == std::string::npos || full.substr(slash + 1) != name) continue;
      if (method != 0 || packed != size) refuse("the record " + name + " is compressed");
      if (number(begin, 4) != 0x04034b50) refuse("it is damaged");
      const size_t data = begin + 30 + number(begin + 26, 2) + number(begin + 28, 2);
      check(data, size);
      return {data_ + data, size};
    }
    refuse("there is no record " + name);
  }

 private:
  void check(size_t at, size_t bytes) const {
    if (at > size_ || bytes > size_ - at) refuse("it is damaged");
  }
  size_t number(size_t at, size_t bytes) const {
    check(at, bytes);
    size_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | data_[at + i];
    return value;
  }
  size_t directory_end() const {
    for (size_t back = 22; back <= size_ && back <= 22 + 0xffff; ++back) {
      if (number(size_ - back, 4) == 0x06054b50) return size_ - back;
    }
    refuse("it is no zip archive");
  }
  // Numbers of large archives.
  void wide(size_t end, size_t* count, size_t* at) const {
    if (end < 20 || number(end - 20, 4) != 0x07064b50) refuse("it is damaged");
    const size_t place = number(end - 12, 8);
    if (number(place, 4) != 0x06064b50) refuse("it is damaged");
    *count = number(place + 32, 8);
    *at = number(place + 48, 8);
  }
  void widen(size_t at, size_t bytes, size_t* size, size_t* packed, size_t* begin) const {
    while (bytes >= 4) {
      const size_t kind = number(at, 2), length = number(at + 2, 2);
      if (length > bytes - 4) refuse("it is damaged");
      size_t field = at + 4, left = length;
      for (size_t* value : {size, packed, begin}) {
        if (kind != 1 || *value != 0xffffffff || left < 8) continue;
        *value = number(field, 8);
        field += 8;
        left -= 8;
      }
      at += 4 + length;
      bytes -= 4 + length;
    }
  }

  std::string path_;
  int file_ = -1;
  const unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

// A loaded package. Several threads may call it; they run one after the other.
class Package {
 public:
  // threads: how many run the model; 0: one per core. name: of the model in the package.
  explicit Package(const std::string& path, int threads = 0, const std::string& name = "model") {
    const MappedFile file(path);
    const std::string folder = "data/aotinductor/" + name + "/";
    load_library(file, file.record(folder + "model.so"));
    table_ = interface_(path);
    if (const char* lacking = table_->missing()) {
      throw std::runtime_error("[package] this processor has no " + std::string(lacking) +
                               "\nhint: compile the package on such a machine");
    }
    model_ = {table_->create(), table_->destroy};
    if (!model_) throw std::bad_alloc();
    if (threads > 0) set_threads(threads);
    const auto [bytes, size] = file.record(folder + "constants.bin");
    for (int32_t k = 0; k < table_->constants; ++k) {
      const flambeau_slot& slot = table_->constant[k];
      if (slot.offset < 0 || slot.nbytes < 0 || static_cast<size_t>(slot.offset) > size ||
          static_cast<size_t>(slot.nbytes) > size - static_cast<size_t>(slot.offset)) {
        file.refuse("its constants are damaged");
      }
      const std::vector<int64_t> sizes(slot.sizes, slot.sizes + slot.rank);
      Array constant = Array::empty(sizes, slot.dtype);
      if (slot.nbytes != constant.count() * item_size(slot.dtype))
        file.refuse("its constants are damaged");
      std::memcpy(constant.memory.get(), bytes + slot.offset, static_cast<size_t>(slot.nbytes));
      table_->set_constant(model_.get(), k, constant.memory.get());
      constants_.push_back(std::move(constant));
    }
  }
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  // The results, in memory of their own. Throws std::invalid_argument for another number of
  // arguments, std::runtime_error for tensors that the model was not exported for,
  // std::out_of_range for an index in the data.
  std::vector<Array> run(const std::vector<Array>& inputs) {
    if (static_cast<int32_t>(inputs.size()) != table_->inputs) {
      throw std::invalid_argument("[package] there are " + std::to_string(inputs.size()) +
                                  " arguments, expected " + std::to_string(table_->inputs));
    }
    std::vector<flambeau_array> arguments, results;
    for (const Array& input : inputs) arguments.push_back(input.as_argument());
    size_t words = 1;
    for (int32_t k = 0; k < table_->outputs; ++k)
      words += 2 * static_cast<size_t>(table_->output[k].rank);
    std::vector<int64_t> geometry(words);
    raise(table_->prepare(model_.get(), arguments.data(), geometry.data()));
    std::vector<Array> outputs;
    const int64_t* at = geometry.data();
    for (int32_t k = 0; k < table_->outputs; ++k) {
      const int32_t rank = table_->output[k].rank;
      std::vector<int64_t> sizes(at, at + rank), strides(at + rank, at + 2 * rank);
      at += 2 * rank;
      outputs.push_back(
          Array::empty(std::move(sizes), table_->output[k].dtype, std::move(strides)));
    }
    for (const Array& output : outputs) results.push_back(output.as_argument());
    raise(table_->run(model_.get(), arguments.data(), results.data()));
    return outputs;
  }

  // Names of what the model holds, of its arguments and of its results.
  std::vector<std::string> constant_names() const {
    return names(table_->constant, table_->constants);
  }
  std::vector<std::string> input_names() const { return names(table_->input, table_->inputs); }
  std::vector<std::string> output_names() const { return names(table_->output, table_->outputs); }

  // A constant as it is now.
  const Array& constant(const std::string& name) const { return constants_[find(name)]; }
  // Copies other values over constants. Nothing else may run the model meanwhile.
  void update_constants(const std::map<std::string, Array>& values) {
    for (const auto& [name, value] : values) {
      const Array& own = constants_[find(name)];
      if (value.sizes != own.sizes || value.dtype != own.dtype ||
          value.strides != Array::contiguous(value.sizes)) {
        throw std::invalid_argument("[package] the new value of " + name +
                                    " has other sizes, another type, or is not contiguous");
      }
    }
    for (const auto& [name, value] : values) {
      const size_t k = find(name);
      std::memcpy(constants_[k].memory.get(), value.memory.get(),
                  static_cast<size_t>(table_->constant[k].nbytes));
      table_->set_constant(model_.get(), static_cast<int32_t>(k), constants_[k].memory.get());
    }
  }
  // How many threads run the model; results do not depend on it.
  void set_threads(int threads) { table_->set_threads(model_.get(), threads); }

 private:
  static std::vector<std::string> names(const flambeau_slot* slots, int32_t count) {
    std::vector<std::string> all;
    for (int32_t k = 0; k < count; ++k) all.emplace_back(slots[k].name);
    return all;
  }
  size_t find(const std::string& name) const {
    for (int32_t k = 0; k < table_->constants; ++k) {
      if (name == table_->constant[k].name) return static_cast<size_t>(k);
    }
    throw std::invalid_argument("[package] the model has no constant " + name);
  }
  void raise(int code) const {
    if (code == FLAMBEAU_OK) return;
    const std::string text = table_->error();
    if (code == FLAMBEAU_MEMORY_ERROR) throw std::bad_alloc();
    if (code == FLAMBEAU_INDEX_ERROR) throw std::out_of_range(text);
    if (code == FLAMBEAU_VALUE_ERROR) throw std::invalid_argument(text);
    throw std::runtime_error(text);
  }
  // The loader reads libraries from files: a temporary one, whose name is gone at once.
  void load_library(const MappedFile& file, std::pair<const unsigned char*, size_t> bytes) {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder ? folder : "/tmp") + "/flambeau-XXXXXX";
    const int out = mkstemp(path.data());
    if (out < 0) file.refuse("there is no folder for temporary files");
    size_t done = 0;
    while (done < bytes.second) {
      const ssize_t count = write(out, bytes.first + done, bytes.second - done);
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    close(out);
    if (done == bytes.second) library_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    unlink(path.c_str());
    if (!library_) {
      const char* reason = done == bytes.second ? dlerror() : "no space for a temporary file";
      file.refuse(reason ? reason : "its library cannot be loaded");
    }
  }
  const flambeau_interface* interface_(const std::string& path) const {
    using Function = const flambeau_interface* (*)();
    const auto function =
        reinterpret_cast<Function>(dlsym(library_.get(), "flambeau_model_interface"));
    const flambeau_interface* table = function ? function() : nullptr;
    if (!table || table->version != FLAMBEAU_MODEL_VERSION) {
      throw std::runtime_error("[package] " + path + " has another interface than this header" +
                               "\nhint: compile the package and the program with one release");
    }
    return table;
  }

  // Destroyed from the last to the first: the library outlives its model.
  std::unique_ptr<void, int (*)(void*)> library_{nullptr, dlclose};
  const flambeau_interface* table_ = nullptr;
  std::vector<Array> constants_;
  std::unique_ptr<flambeau_model, void (*)(flambeau_model*)> model_{nullptr, nullptr};
};

}  // namespace flambeau
