// Numbers of an explanation: computed in Python's order, precision and rounding.
//
// Integers are computed in 64 bits, and become floats only where that is exact; a result that does
// not fit, and all that Python raises for, leads to tier 1.
#include "frame/numbers.h"

#include <algorithm>
#include <cmath>

namespace fb {

namespace {

constexpr int64_t kLargest = int64_t{1} << 53;  // integers up to here are floats

double counted(const Tensor* t) {
  if (t->dtype == DType::F64) return *reinterpret_cast<const double*>(t->data()) + 1;
  return *reinterpret_cast<const float*>(t->data()) + 1.0F;
}

const NumberValue& operand(const NumberOperand& operand, const std::vector<NumberValue>& values) {
  return operand.step < 0 ? operand.value : values[static_cast<size_t>(operand.step)];
}

bool is_exact(const NumberValue& v) { return !v.integer || (v.i <= kLargest && v.i >= -kLargest); }
double as_double(const NumberValue& v) { return v.integer ? static_cast<double>(v.i) : v.d; }

// False: the result does not fit, or Python raises.
bool integers(NumberStep::Kind kind, int64_t a, int64_t b, int64_t* result) {
  switch (kind) {
    case NumberStep::Add:
      return !__builtin_add_overflow(a, b, result);
    case NumberStep::Subtract:
      return !__builtin_sub_overflow(a, b, result);
    case NumberStep::Multiply:
      return !__builtin_mul_overflow(a, b, result);
    case NumberStep::FloorDivide:
    case NumberStep::Modulo: {
      if (b == 0 || (a == INT64_MIN && b == -1)) return false;
      const bool down = a % b != 0 && ((a < 0) != (b < 0));  // C rounds to zero
      *result = kind == NumberStep::Modulo ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
      return true;
    }
    default:
      return false;
  }
}

double floats(NumberStep::Kind kind, double a, double b) {
  switch (kind) {
    case NumberStep::Add:
      return a + b;
    case NumberStep::Subtract:
      return a - b;
    case NumberStep::Multiply:
      return a * b;
    case NumberStep::Divide:
      return b == 0 ? std::nan("") : a / b;
    case NumberStep::Power:
      return std::pow(a, b);
    case NumberStep::SquareRoot:
      return std::sqrt(a);
    case NumberStep::Cosine:
      return std::cos(a);
    case NumberStep::Exponential:
      return std::exp(a);
    case NumberStep::Float:
      return a;
    default:
      return std::nan("");
  }
}

template <class Type>
bool compared(NumberCondition::Kind kind, Type a, Type b) {
  switch (kind) {
    case NumberCondition::Less:
      return a < b;
    case NumberCondition::LessEqual:
      return a <= b;
    case NumberCondition::Equal:
      return a == b;
    case NumberCondition::NotEqual:
      return a != b;
    case NumberCondition::Greater:
      return a > b;
    case NumberCondition::GreaterEqual:
      return a >= b;
  }
  return false;
}

bool holds(const NumberCondition& condition, const std::vector<NumberValue>& values) {
  const NumberValue &a = operand(condition.left, values), &b = operand(condition.right, values);
  if (a.integer && b.integer) return compared(condition.kind, a.i, b.i) == condition.outcome;
  return is_exact(a) && is_exact(b) &&
         compared(condition.kind, as_double(a), as_double(b)) == condition.outcome;
}

// Borrowed; null: there is none.
PyObject* item_object(const NumberItem& item) {
  PyObject* container = item.container.get();
  if (PyCell_Check(container)) return PyCell_GET(container);
  if (PyList_CheckExact(container)) {
    const Py_ssize_t index = PyLong_AsSsize_t(item.key.get());
    return index < PyList_GET_SIZE(container) ? PyList_GET_ITEM(container, index) : nullptr;
  }
  PyObject* value = PyDict_GetItemWithError(container, item.key.get());
  if (!value) PyErr_Clear();
  return value;
}

bool read_operand(PyObject* pair, NumberOperand* result) {
  PyObject* value;
  return PyArg_ParseTuple(pair, "iO", &result->step, &value) && result->value.read(value);
}

}  // namespace

bool NumberValue::read(PyObject* object) {
  *this = {false, 0, 0};
  if (PyFloat_CheckExact(object)) {
    d = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  integer = true;
  i = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

PyObject* NumberValue::object() const {
  return integer ? PyLong_FromLongLong(i) : PyFloat_FromDouble(d);
}

bool is_counter(const Tensor* t) {
  return (t->dtype == DType::F32 || t->dtype == DType::F64) && t->numel == 1 &&
         on_host(t->device) && !t->storage->pending && !t->count && !(t->flags & kLazy);
}

bool Numbers::read(PyObject* item_list, PyObject* step_list, PyObject* condition_list,
                   const std::vector<int32_t>& constants) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(item_list); ++i) {
    PyObject *container, *key;
    int integer;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(item_list, i), "OOp", &container, &key, &integer)) {
      return false;
    }
    items.push_back({share(container), share(key), integer != 0});
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(step_list); ++i) {
    int kind, integer;
    PyObject *left, *right;
    NumberStep step{};
    if (!PyArg_ParseTuple(PyList_GET_ITEM(step_list, i), "ipOO", &kind, &integer, &left, &right) ||
        !read_operand(left, &step.left) || !read_operand(right, &step.right)) {
      return false;
    }
    step.kind = static_cast<NumberStep::Kind>(kind);
    step.integer = integer != 0;
    if (step.kind == NumberStep::Count) {
      step.left.step = constants[static_cast<size_t>(step.left.step)];
    }
    steps.push_back(step);
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(condition_list); ++i) {
    int kind, outcome;
    PyObject *left, *right;
    NumberCondition condition{};
    if (!PyArg_ParseTuple(PyList_GET_ITEM(condition_list, i), "iOOp", &kind, &left, &right,
                          &outcome) ||
        !read_operand(left, &condition.left) || !read_operand(right, &condition.right)) {
      return false;
    }
    condition.kind = static_cast<NumberCondition::Kind>(kind);
    condition.outcome = outcome != 0;
    conditions.push_back(condition);
  }
  return true;
}

bool Numbers::step_value(const NumberStep& step, const std::vector<Ref<Tensor>>& constants,
                         const std::vector<NumberValue>& values, NumberValue* result) const {
  const auto index = static_cast<size_t>(step.left.step);
  if (step.kind == NumberStep::Count) {
    *result = {false, 0, counted(constants[index].get())};
    return true;
  }
  if (step.kind == NumberStep::Item) {
    PyObject* object = item_object(items[index]);
    return object && result->read(object) && result->integer == items[index].integer;
  }
  const NumberValue &a = operand(step.left, values), &b = operand(step.right, values);
  *result = {step.integer, a.i, 0};
  if (step.kind == NumberStep::Integer) {
    if (!a.integer) result->i = std::fabs(a.d) < kLargest ? static_cast<int64_t>(a.d) : INT64_MAX;
    return result->i != INT64_MAX;
  }
  if (step.integer) return integers(step.kind, a.i, b.i, &result->i);
  result->d = floats(step.kind, as_double(a), as_double(b));
  return is_exact(a) && is_exact(b);
}

bool Numbers::compute(const std::vector<Ref<Tensor>>& constants,
                      std::vector<NumberValue>* values) const {
  values->clear();
  values->reserve(steps.size());
  for (const NumberStep& step : steps) {
    NumberValue value{};
    if (!step_value(step, constants, *values, &value)) return false;
    if (!value.integer && !std::isfinite(value.d)) return false;  // Python raises, perhaps
    values->push_back(value);
  }
  return std::all_of(conditions.begin(), conditions.end(),
                     [&](const NumberCondition& condition) { return holds(condition, *values); });
}

void Numbers::count(const std::vector<Ref<Tensor>>& constants) const {
  for (const NumberStep& step : steps) {
    if (step.kind != NumberStep::Count) continue;
    Tensor* t = constants[static_cast<size_t>(step.left.step)].get();
    const double value = counted(t);
    if (t->dtype == DType::F64) {
      *reinterpret_cast<double*>(t->data()) = value;
    } else {
      *reinterpret_cast<float*>(t->data()) = static_cast<float>(value);
    }
    tensor_bump_version(t);
  }
}

}  // namespace fb
