// Numbers of an explanation that differ between calls: counters, rates, and what Python computes of
// them (capture/frame/numbers.py).
#pragma once
#include "core.h"

namespace fb {

// As Python has it: an int or a float.
struct NumberValue {
  bool integer;
  int64_t i;
  double d;

  bool read(PyObject* object);  // false: it is neither, or a large integer
  PyObject* object() const;     // new reference
};
// step: which number it is; -1: `value`. Count: of a constant; Item: of `items`.
struct NumberOperand {
  int32_t step;
  NumberValue value;
};
// One number: the value of a counter, one that a container holds, or computed of others.
struct NumberStep {
  enum Kind : uint8_t {
    Count,
    Item,
    Add,
    Subtract,
    Multiply,
    Divide,
    Power,
    FloorDivide,
    Modulo,
    SquareRoot,
    Cosine,
    Exponential,
    Float,
    Integer
  } kind;
  bool integer;
  NumberOperand left, right;
};
// Python compared two numbers, with this outcome.
struct NumberCondition {
  enum Kind : uint8_t { Less, LessEqual, Equal, NotEqual, Greater, GreaterEqual } kind;
  NumberOperand left, right;
  bool outcome;
};
// A number in a dict, in a list (the key is an index), or in a cell.
struct NumberItem {
  Ref<> container, key;
  bool integer;
};
struct NumberUse {
  size_t scalar, step;  // a number of the plan, and which one of ours it is
};
// Counters grow by 1 in every call.
struct Numbers {
  std::vector<NumberStep> steps;
  std::vector<NumberCondition> conditions;
  std::vector<NumberUse> uses;
  std::vector<NumberItem> items;

  // parts: the lists of capture/frame/numbers.py; constants: those of the counters. False +
  // exception.
  bool read(PyObject* items, PyObject* steps, PyObject* conditions,
            const std::vector<int32_t>& constants);
  // All numbers, for counters that are one higher. False: one is of another type, too large or not
  // finite, or a comparison has another outcome.
  bool compute(const std::vector<Ref<Tensor>>& constants, std::vector<NumberValue>* values) const;
  void count(const std::vector<Ref<Tensor>>& constants) const;

 private:
  bool step_value(const NumberStep& step, const std::vector<Ref<Tensor>>& constants,
                  const std::vector<NumberValue>& values, NumberValue* result) const;
};
bool is_counter(const Tensor* t);

}  // namespace fb
