/* The C interface of a compiled model: the library in a package that
   `torch._inductor.aoti_compile_and_package` writes. It needs no Python, and nothing of Flambeau.

   `flambeau_model` returns the table. A model is made, gets the memory of its constants, and is run
   by any number of threads, one after the other. `package.h` does this for C++ programs. */
#ifndef FLAMBEAU_MODEL_H
#define FLAMBEAU_MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLAMBEAU_MODEL_VERSION 1

/* A tensor in somebody's memory. */
typedef struct {
  void* data;             /* of its first element */
  const int64_t* sizes;   /* `rank` of them */
  const int64_t* strides; /* in elements */
  int32_t rank;
  int32_t dtype; /* PyTorch's number of the element type: 6 is float32, 4 is int64 */
} flambeau_array;

/* A tensor that a model takes, gives or holds. */
typedef struct {
  const char* name;
  int32_t dtype;
  int32_t rank;
  int64_t nbytes;       /* of a constant */
  int64_t offset;       /* of a constant in the file of constants */
  const int64_t* sizes; /* of a constant; it is contiguous */
} flambeau_slot;

typedef struct flambeau_model flambeau_model;

/* What went wrong: the result of functions that may fail. */
enum {
  FLAMBEAU_OK = 0,
  FLAMBEAU_INDEX_ERROR = 1,
  FLAMBEAU_RUNTIME_ERROR = 2,
  FLAMBEAU_VALUE_ERROR = 3,
  FLAMBEAU_LINALG_ERROR = 4,
  FLAMBEAU_MEMORY_ERROR = 5
};

typedef struct {
  int32_t version; /* FLAMBEAU_MODEL_VERSION */
  int32_t inputs, outputs, constants;
  const flambeau_slot* input;
  const flambeau_slot* output;
  const flambeau_slot* constant;
  /* Null, or the instruction that this processor lacks. */
  const char* (*missing)(void);
  /* Null without memory. */
  flambeau_model* (*create)(void);
  void (*destroy)(flambeau_model*);
  /* The memory of a constant, aligned to 64 bytes, which lives as long as the model. Call it again
     after the memory was written: what was computed of it is computed anew. */
  void (*set_constant)(flambeau_model*, int32_t number, void* data);
  /* How many threads run a model; at least 1. Results do not depend on it. */
  void (*set_threads)(flambeau_model*, int32_t threads);
  /* Checks arguments; writes sizes, then strides, of each output one behind the other: twice the
     sum of the outputs' ranks. */
  int (*prepare)(flambeau_model*, const flambeau_array* inputs, int64_t* geometry);
  /* Computes the outputs, whose memory and geometry, as of `prepare`, the caller gives. */
  int (*run)(flambeau_model*, const flambeau_array* inputs, const flambeau_array* outputs);
  /* The text of this thread's last error. */
  const char* (*error)(void);
} flambeau_interface;

const flambeau_interface* flambeau_model_interface(void);

#ifdef __cplusplus
}
#endif

#endif
