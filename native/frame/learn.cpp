// From a dry run to an explanation: the plan of its stream, the sources of that plan's tensors and
// the recipe of the result.
//
// The stream must be one that tier 1 ran before: the recorder finds its Instance under the same
// key, or there is no explanation. So a mistake of the dry run cannot give another program.
#include <unordered_map>
#include <unordered_set>

#include "frame/frame.h"

namespace fb {

namespace {

std::nullptr_t refuse(const char* why) {
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, why);
  return nullptr;
}

bool has_items(PyObject* dict) { return dict && PyDict_GET_SIZE(dict) > 0; }

class Builder {
 public:
  Builder(Explanation* explanation, Recorder* recorder) : x_(explanation), r_(recorder) {
    arguments_ = x_->pattern.tensors();
    for (size_t i = 0; i < arguments_.size(); ++i) {
      sources_.emplace(arguments_[i], static_cast<int32_t>(i));
    }
  }

  // Tensors that guards lead to.
  bool add_constants(PyObject* tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      Tensor* t = tensor_of(PyTuple_GET_ITEM(tuple, i));
      if (!sources_.emplace(t, ~static_cast<int32_t>(x_->constants.size())).second) {
        return refuse("an argument is also reached otherwise") != nullptr;
      }
      x_->constants.push_back(share(t));
      x_->constant_guards.push_back(TensorGuard::of(t));
    }
    return true;
  }

  bool find_program() {
    if (r_->refused) return refuse("it needs a value, or memory of others") != nullptr;
    if (!r_->copies.empty() || r_->lasting) {
      return refuse("it reads or writes memory of others") != nullptr;
    }
    if (!find_history()) return false;
    for (int32_t value : live_) reached_.push_back(!is_new(value));
    x_->versions.resize(live_.size(), 0);
    for (Tensor* t : r_->externals) {
      if (sources_.find(t) == sources_.end() && !add_alias(t)) return false;
      x_->sources.push_back(sources_.find(t)->second);
    }
    if (!read_writes()) return false;
    for (const Record& record : r_->records) {
      x_->scalars.insert(x_->scalars.end(), record.scalars.begin(), record.scalars.end());
      x_->scalar_is_float.insert(x_->scalar_is_float.end(), record.scalar_is_float.begin(),
                                 record.scalar_is_float.end());
      for (PyObject* object : record.objects) {
        if (object && object != Py_None) return refuse("it has a generator of its own") != nullptr;
        x_->generators.push_back(Py_None);
      }
    }
    if (r_->records.empty()) return live_.empty();
    x_->instance = steal(record_lookup(r_, live_, region_.words));
    // Where calls recorded copies of memory of others, this program is none of theirs.
    if (!x_->instance && r_->outside && region_.words.empty()) {
      x_->instance = steal(record_instance(r_, live_, {}, nullptr, nullptr));
      if (PyErr_Occurred()) return false;
    }
    if (!x_->instance) return refuse(kOtherProgram) != nullptr;
    return fits(x_->instance->plan);
  }

  // Indices are right in every call, or are looked at.
  bool read_indices() {
    for (const LookedAt& looked : r_->looked) {
      int32_t id = r_->records[looked.record].operands[looked.slot], root = root_of(id);
      while (const Record* choice = choice_of(root)) {
        id = choice->operands[0];  // all its elements are looked at
        root = root_of(id);
      }
      if (r_->values[root].kind == Value::External) {
        add_index(looked, id, root);
      } else if (!reads_no_input(root)) {
        return refuse("an index is computed of data") != nullptr;
      }
    }
    return true;
  }

  // Masks whose true elements were counted: inputs, or views of them.
  bool read_masks() {
    for (const CountedMask& counted : r_->counted) {
      int32_t source;
      if (!source_over(counted.mask.get(), &source)) return false;
      x_->masks.push_back({source, counted.mask->offset, counted.mask->numel, counted.count});
    }
    return true;
  }

  // Reads the result. `identical`: what it holds itself; `built`: objects with their parts;
  // `numbers`: the last one says which of them it shows.
  bool read_result(PyObject* value, PyObject* identical, PyObject* built, PyObject* numbers) {
    identical_ = identical;
    built_ = built;
    shown_ = PyTuple_GET_ITEM(numbers, PyTuple_GET_SIZE(numbers) - 1);
    return read_result(value);
  }
  bool read_result(PyObject* value) {
    if (is_tensor(value)) return read_tensor(tensor_of(value));
    if (is_identical(value)) {
      x_->recipe.push_back({RecipeItem::Object, 0, share(value)});
      return true;
    }
    if (PyTuple_CheckExact(value)) return read_items(RecipeItem::Tuple, value);
    if (PyList_CheckExact(value)) return read_items(RecipeItem::List, value);
    if (PyDict_CheckExact(value)) return read_dict(value);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shown_); ++i) {
      PyObject* entry = PyList_GET_ITEM(shown_, i);
      if (PyTuple_GET_ITEM(entry, 0) != value) continue;
      x_->recipe.push_back({RecipeItem::Number, PyLong_AsSsize_t(PyTuple_GET_ITEM(entry, 1)), {}});
      return true;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(built_); ++i) {
      PyObject* entry = PyTuple_GET_ITEM(built_, i);
      if (PyTuple_GET_ITEM(entry, 0) == value) return read_built(entry);
    }
    x_->recipe.push_back({RecipeItem::Object, 0, share(value)});
    return true;
  }
  // The gradients that the dry run reached: (tensor, before, whether that was read, after) each.
  bool read_gradients(PyObject* list) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      PyObject* entry = PyList_GET_ITEM(list, i);
      PyObject *before = PyTuple_GET_ITEM(entry, 1), *after = PyTuple_GET_ITEM(entry, 3);
      const bool read = PyLong_AsLong(PyTuple_GET_ITEM(entry, 2)) != 0;
      const auto source = sources_.find(tensor_of(PyTuple_GET_ITEM(entry, 0)));
      if (source == sources_.end()) {
        return refuse("a gradient is of no argument or parameter") != nullptr;
      }
      const Tensor* t = x_->input(source->second, arguments_.data());
      if (!x_->gradient_guards[static_cast<size_t>(i)].holds(t, *x_)) {
        return refuse("a gradient has hooks") != nullptr;
      }
      if (read && before == after) continue;
      x_->gradients.push_back(source->second);
      if (!read_result(after)) return false;
    }
    if (!x_->taken.empty() && !x_->inputs_hold(arguments_.data())) {
      return refuse("gradients share memory") != nullptr;
    }
    return true;
  }
  // Those that are no constants are inputs: a later call may have others.
  bool add_gradients(PyObject* list) {
    x_->arguments = static_cast<int32_t>(arguments_.size());
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      PyObject* entry = PyList_GET_ITEM(list, i);
      PyObject* before = PyTuple_GET_ITEM(entry, 1);
      const bool read = PyLong_AsLong(PyTuple_GET_ITEM(entry, 2)) != 0;
      const auto source = sources_.find(tensor_of(PyTuple_GET_ITEM(entry, 0)));
      if (source == sources_.end()) {
        return refuse("a gradient is of no argument or parameter") != nullptr;
      }
      GradientGuard guard{read ? GradientGuard::None : GradientGuard::Any, source->second, -1};
      if (read && before != Py_None && !add_gradient(&guard, tensor_of(before))) return false;
      x_->gradient_guards.push_back(guard);
    }
    return true;
  }

  bool add_leaves(PyObject* list) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      const Tensor* t = tensor_of(PyList_GET_ITEM(list, i));
      const auto source = sources_.find(t);
      if (source == sources_.end()) {  // one that the call makes
        if (LeafGuard::of(0, t).hooks) return refuse("a gradient has hooks") != nullptr;
        continue;
      }
      x_->leaf_guards.push_back(LeafGuard::of(source->second, t));
      if (!x_->leaf_guards.back().holds(t)) return refuse("a gradient has hooks") != nullptr;
    }
    return true;
  }

  // (cleared, lookups, casts): see autocast_learnt. Casts that were there are inputs, as gradients
  // are.
  bool add_casts(PyObject* casts) {
    PyObject *lookups, *left;
    int cleared;
    if (!PyArg_ParseTuple(casts, "pO!O!", &cleared, &PyList_Type, &lookups, &PyList_Type, &left)) {
      return false;
    }
    x_->clears_casts = cleared != 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lookups); ++i) {
      PyObject* entry = PyList_GET_ITEM(lookups, i);
      PyObject* cached = PyTuple_GET_ITEM(entry, 1);
      CastGuard guard{-1, -1};
      if (!find_parameter(PyTuple_GET_ITEM(entry, 0), &guard.source)) return false;
      if (cached != Py_None) {
        Tensor* t = tensor_of(cached);
        guard.index = static_cast<int32_t>(arguments_.size());
        if (x_->clears_casts || !sources_.emplace(t, guard.index).second) {
          return refuse("a cached cast is also reached otherwise") != nullptr;
        }
        arguments_.push_back(t);
        x_->taken.push_back(TensorGuard::of(t));
      }
      x_->cast_guards.push_back(guard);
    }
    return true;
  }
  bool read_casts(PyObject* casts) {
    PyObject* left = PyTuple_GET_ITEM(casts, 2);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(left); ++i) {
      PyObject* entry = PyList_GET_ITEM(left, i);
      int32_t source;
      if (!find_parameter(PyTuple_GET_ITEM(entry, 0), &source)) return false;
      const Storage* storage = x_->input(source, arguments_.data())->storage;
      if (std::find(r_->writes.begin(), r_->writes.end(), storage) != r_->writes.end()) {
        return refuse("a parameter is written after its cast") != nullptr;
      }
      x_->casts.push_back(source);
      if (!read_result(PyTuple_GET_ITEM(entry, 1))) return false;
    }
    return true;
  }

  // (dict, key, value) each, (list, index or None, value), or (cell, None, value).
  bool read_effects(PyObject* list) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      PyObject* entry = PyList_GET_ITEM(list, i);
      PyObject *container = PyTuple_GET_ITEM(entry, 0), *key = PyTuple_GET_ITEM(entry, 1);
      x_->effects.push_back({share(container), share(key)});
      if (!read_result(PyTuple_GET_ITEM(entry, 2))) return false;
    }
    return true;
  }

  // (counters, items, steps, conditions, uses, shown): see capture/frame/numbers.py.
  bool read_numbers(PyObject* parts) {
    PyObject *counters, *items, *steps, *conditions, *uses, *shown;
    if (!PyArg_ParseTuple(parts, "O!O!O!O!O!O!", &PyList_Type, &counters, &PyList_Type, &items,
                          &PyList_Type, &steps, &PyList_Type, &conditions, &PyList_Type, &uses,
                          &PyList_Type, &shown)) {
      return false;
    }
    std::vector<int32_t> constants;
    std::unordered_set<const Storage*> storages;
    for (const Tensor* t : r_->externals) storages.insert(t->storage);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(counters); ++i) {
      const Tensor* t = tensor_of(PyList_GET_ITEM(counters, i));
      const auto source = sources_.find(t);
      if (source == sources_.end() || source->second >= 0 || !is_counter(t) ||
          !storages.insert(t->storage).second) {
        return refuse("a counter is no number of its own") != nullptr;
      }
      constants.push_back(~source->second);
    }
    return x_->numbers.read(items, steps, conditions, constants) && read_uses(uses);
  }

  bool complete() const {
    return std::find(reached_.begin(), reached_.end(), false) == reached_.end();
  }
  void take_stream() {  // last of all
    if (x_->replay) x_->replay->take_stream(r_);
  }

 private:
  bool find_parameter(PyObject* t, int32_t* result) const {
    const auto source = sources_.find(tensor_of(t));
    if (source == sources_.end()) return refuse("it casts a tensor of its own") != nullptr;
    *result = source->second;
    return true;
  }

  // The one input, and no alias of another one, that has a tensor's memory.
  bool source_over(const Tensor* t, int32_t* result) const {
    const auto same = sources_.find(t);
    if (same != sources_.end()) {
      *result = same->second;
      return true;
    }
    const int32_t first_alias = x_->arguments + static_cast<int32_t>(x_->taken.size());
    int count = 0;
    for (const auto& [input, source] : sources_) {
      if (source >= first_alias || input->storage != t->storage) continue;
      *result = source;
      ++count;
    }
    return count == 1 || refuse("a tensor comes from no argument or guard") != nullptr;
  }

  // A tensor without a history over the memory of one input.
  bool add_alias(Tensor* t) {
    int32_t over;
    if (!source_over(t, &over)) return false;
    const auto* object = reinterpret_cast<const PyObject*>(t);
    if (t->autograd || Py_TYPE(object) != TensorType || has_items(t->dict) ||
        (t->flags & (kLazy | kInference)) != 0 || t->weakrefs) {
      return refuse("a tensor comes from no argument or guard") != nullptr;
    }
    sources_.emplace(t, static_cast<int32_t>(arguments_.size()));
    arguments_.push_back(t);
    x_->aliases.push_back({over,
                           {-1,
                            t->dtype,
                            t->ndim,
                            {t->dims, t->dims + 2 * t->ndim},
                            t->offset,
                            false,
                            (t->flags & kIsView) != 0}});
    return true;
  }

  bool add_gradient(GradientGuard* guard, Tensor* gradient) {
    const auto added = sources_.emplace(gradient, static_cast<int32_t>(arguments_.size()));
    const int32_t source = added.first->second;
    guard->kind = source < 0 ? GradientGuard::Same : GradientGuard::Input;
    guard->index = source < 0 ? ~source : source;
    if (!added.second)
      return source < 0 || refuse("a gradient is an argument, or of two leaves") != nullptr;
    arguments_.push_back(gradient);
    x_->taken.push_back(TensorGuard::of(gradient));
    return true;
  }

  // (placeholder, step) each: every use is one number of the plan.
  bool read_uses(PyObject* uses) {
    std::unordered_multimap<double, size_t> steps;  // placeholders are exact as floats
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(uses); ++i) {
      double value;
      Py_ssize_t step;
      if (!PyArg_ParseTuple(PyList_GET_ITEM(uses, i), "dn", &value, &step)) return false;
      steps.emplace(value, static_cast<size_t>(step));
    }
    for (size_t k = 0; !steps.empty() && k < x_->scalars.size(); ++k) {
      const Scalar& scalar = x_->scalars[k];
      const auto use =
          steps.find(x_->scalar_is_float[k] ? scalar.d : static_cast<double>(scalar.i));
      if (use == steps.end()) continue;
      if (x_->numbers.steps[use->second].integer == (x_->scalar_is_float[k] != 0)) break;
      x_->numbers.uses.push_back({k, use->second});
    }
    return x_->numbers.uses.size() == steps.size() ||
           refuse("a number is used in another way") != nullptr;
  }

  bool is_new(int32_t value) const { return r_->states[r_->values[value].state].fresh; }

  bool read_writes() {
    for (const Storage* storage : r_->writes) {
      const auto& externals = r_->externals;
      const auto at = std::find_if(externals.begin(), externals.end(),
                                   [&](const Tensor* t) { return t->storage == storage; });
      if (at == externals.end()) return refuse("what it writes is no argument") != nullptr;
      const int32_t source = x_->sources[static_cast<size_t>(at - externals.begin())];
      const auto same = std::find_if(x_->writes.begin(), x_->writes.end(),
                                     [&](const WriteGuard& w) { return w.source == source; });
      if (same != x_->writes.end()) {
        ++same->counts;
      } else {
        x_->writes.push_back({source, 1});
      }
    }
    for (const auto& constant : x_->constants) {
      x_->constant_storages.push_back(constant->storage);
      if (!x_->taken.empty()) x_->constant_memory.insert(constant->storage);
    }
    return true;
  }

  // What tier 1 gives the results for a history at the region's end, and what must be computed.
  bool find_history() {
    if (!r_->taped.empty() && region_examine(r_, &region_)) {
      x_->replay = steal(new Replay());
      live_ = region_.live;
      return x_->replay->read(r_, region_) ||
             refuse("gradients leave it where no argument is") != nullptr;
    }
    region_ = {};
    record_drop_taped(r_);  // a result may have a history that a backward left nothing of
    live_ = record_live(r_);
    return true;
  }

  int32_t root_of(int32_t id) const {
    while (r_->values[id].kind == Value::Alias) id = r_->values[id].source;
    return id;
  }
  // The call that chose a value's elements from its first operand; null: none.
  const Record* choice_of(int32_t id) const {
    const Value& v = r_->values[id];
    if (v.kind != Value::New || r_->states[v.state].written) return nullptr;
    for (const Record& record : r_->records) {
      const auto& results = record.results;
      if (std::find(results.begin(), results.end(), id) == results.end()) continue;
      return record.instance->plan->chooses ? &record : nullptr;
    }
    return nullptr;
  }
  void add_index(const LookedAt& looked, int32_t id, int32_t root) {
    const Value& v = r_->values[id];
    const auto ndim = static_cast<int>(v.geometry.size() / 2);
    int64_t numel = 1;
    for (int i = 0; i < ndim; ++i) numel *= v.geometry[static_cast<size_t>(i)];
    x_->indices.push_back({x_->sources[static_cast<size_t>(r_->values[root].source)],
                           ndim,
                           {v.geometry.begin(), v.geometry.end()},
                           v.offset,
                           numel,
                           looked.range});
  }

  // Whether a value is the same in every run: no tensor from outside is read for it, nothing drawn.
  bool reads_no_input(int32_t id) const {
    const Value& v = r_->values[id];
    if (v.kind == Value::Alias) return reads_no_input(v.source);
    if (v.kind != Value::New || r_->states[v.state].written) return false;
    for (const Record& record : r_->records) {
      if (std::find(record.results.begin(), record.results.end(), id) == record.results.end()) {
        continue;
      }
      return record.objects.empty() &&
             std::all_of(record.operands.begin(), record.operands.end(),
                         [&](int32_t operand) { return operand < 0 || reads_no_input(operand); });
    }
    return false;
  }

  bool fits(const Plan* plan) {
    const size_t count = plan->outputs.size();  // those that only the backward reads come last
    if (plan->elsewhere ||
        (x_->replay ? !plan->backward || count < live_.size() : count != live_.size())) {
      return refuse("its program has other results") != nullptr;
    }
    for (size_t k = 0; k < count; ++k) {
      const bool makes = k >= live_.size() || is_new(live_[k]);
      if (plan->outputs[k].kind != (makes ? OutputSpec::New : OutputSpec::Input)) {
        return refuse("its program gives views") != nullptr;
      }
    }
    return plan->tensors == static_cast<int32_t>(x_->sources.size()) &&
           plan->numbers == static_cast<int32_t>(x_->scalars.size()) &&
           plan->generators == static_cast<int32_t>(x_->generators.size());
  }

  // A tensor of the dry run that has nothing but its elements and, perhaps, a base.
  bool plain(const Tensor* t) const {
    const auto* object = reinterpret_cast<const PyObject*>(t);
    return Py_TYPE(object) == TensorType && !has_items(t->dict) && !t->weakrefs && !t->count &&
           (t->flags & kLazy) == 0 && t->record_epoch == r_->epoch && t->value_id >= 0;
  }

  // The output that holds a value; -1: none does.
  Py_ssize_t output_of(int32_t value) const {
    while (r_->values[value].kind == Value::Alias &&
           std::find(live_.begin(), live_.end(), value) == live_.end()) {
      value = r_->values[value].source;
    }
    const auto at = std::find(live_.begin(), live_.end(), value);
    return at == live_.end() ? -1 : at - live_.begin();
  }

  // Whether autograd sees a view as `tape_mark_view` leaves it.
  bool plain_view(const Tensor* t, Py_ssize_t output) const {
    const Autograd* a = t->autograd;
    if (!a) return true;
    const Tensor* base = a->base;
    const bool bits = base && t->dtype != base->dtype && t->ndim == base->ndim;
    const auto creation = bits ? ViewCreation::Bits : ViewCreation::Default;
    return base && !a->grad && !a->node && !a->requires_grad && !a->retains_grad && !a->hooks &&
           !a->post_accumulate_hooks && plain(base) && !base->autograd &&
           base->value_id == live_[static_cast<size_t>(output)] &&
           a->view_creation == static_cast<uint8_t>(creation);
  }

  bool read_tensor(Tensor* t) {
    const auto source = sources_.find(t);
    if (source != sources_.end()) {
      const int32_t index = source->second;
      const auto kind = index < 0 ? RecipeItem::Constant : RecipeItem::Argument;
      x_->recipe.push_back({kind, index < 0 ? ~index : index, {}});
      return true;
    }
    int32_t value = -1;  // of an alias that no operator read yet
    if (t->storage->pending && t->storage->recorder == r_) record_resolve(r_, t, &value);
    const Py_ssize_t output = plain(t) ? output_of(t->value_id) : -1;
    if (output < 0) return refuse("a result is not one of its operators") != nullptr;
    reached_[static_cast<size_t>(output)] = true;
    x_->versions[static_cast<size_t>(output)] = t->storage->version;
    const bool detached = (t->flags & kIsView) != 0;
    if (detached || t->value_id != live_[static_cast<size_t>(output)]) return read_view(t, output);
    const int32_t root = root_of(t);
    if (t->autograd && root < 0 && !is_spent(t)) {
      return refuse("its results' history is left as it is") != nullptr;
    }
    if (outputs_.emplace(output, t).first->second != t) {
      return refuse("two results share memory") != nullptr;
    }
    x_->recipe.push_back({RecipeItem::Output, output, {}, root});
    x_->recipe.back().inference = (t->flags & kInference) != 0;
    if (t->autograd && root < 0) {
      x_->recipe.back().spent = share(t->autograd->node);
      x_->recipe.back().spent_output = t->autograd->output_index;
    }
    return true;
  }

  // Whether a backward has freed all that the history of a tensor saved, which calls share then.
  bool is_spent(const Tensor* t) const {
    const Autograd* a = t->autograd;
    if (!a->node || a->base || a->grad || a->retains_grad || a->requires_grad) return false;
    std::vector<Node*> nodes{a->node};
    for (size_t i = 0; i < nodes.size(); ++i) {  // grows while it is walked
      if (!is_spent(nodes[i])) return false;
      for (size_t k = 0; k < nodes[i]->edge_count; ++k) {
        Node* next = nodes[i]->edge(k).node;
        if (next && std::find(nodes.begin(), nodes.end(), next) == nodes.end()) {
          nodes.push_back(next);
        }
      }
    }
    return true;
  }
  bool is_spent(const Node* node) const {
    if (node_observed(node) || node->kind == NodeKind::Function) return false;
    if (node->kind == NodeKind::Accumulate) {
      const auto source = sources_.find(tensor_of(node->object));
      return source != sources_.end() && source->second < 0;  // that of an argument would be owned
    }
    return record_has(node) && (node->released || node->saved_count == 0);
  }

  // Its number among the results that get the region's node; -1: it is none of them.
  int32_t root_of(const Tensor* t) const {
    const auto at = std::find(region_.roots.begin(), region_.roots.end(), t);
    return at == region_.roots.end() ? -1 : static_cast<int32_t>(at - region_.roots.begin());
  }

  bool read_view(Tensor* t, Py_ssize_t output) {
    const int32_t root = root_of(t);
    if ((root < 0 && !plain_view(t, output)) || !views_.insert(t).second) {
      return refuse("a result is a view of a kind that is not built again") != nullptr;
    }
    x_->recipe.push_back({RecipeItem::View, static_cast<Py_ssize_t>(x_->views.size()), {}, root});
    x_->recipe.back().inference = (t->flags & kInference) != 0;
    x_->views.push_back({output,
                         t->dtype,
                         t->ndim,
                         {t->dims, t->dims + 2 * t->ndim},
                         t->offset,
                         root < 0 && t->autograd != nullptr,
                         (t->flags & kIsView) != 0});
    return true;
  }

  bool read_items(RecipeItem::Kind kind, PyObject* value, PyObject* make = nullptr) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
    x_->recipe.push_back({kind, count, share(make)});
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!read_result(PySequence_Fast_ITEMS(value)[i])) return false;
    }
    return true;
  }

  // (object, function that makes it, parts)
  bool read_built(PyObject* entry) {
    return read_items(RecipeItem::Built, PyTuple_GET_ITEM(entry, 2), PyTuple_GET_ITEM(entry, 1));
  }

  bool read_dict(PyObject* value) {
    PyObject *key, *entry;
    x_->recipe.push_back(
        {RecipeItem::Dict, PyDict_GET_SIZE(value), steal(PySequence_Tuple(value))});
    if (!x_->recipe.back().object) return false;
    for (Py_ssize_t place = 0; PyDict_Next(value, &place, &key, &entry);) {
      if (!read_result(entry)) return false;
    }
    return true;
  }

  bool is_identical(PyObject* value) const {
    PyObject** items = PySequence_Fast_ITEMS(identical_);
    PyObject** end = items + PyTuple_GET_SIZE(identical_);
    return std::find(items, end, value) != end;
  }

  Explanation* x_;
  Recorder* r_;
  Region region_;                                     // empty: no result needs a gradient
  PyObject *identical_ = nullptr, *built_ = nullptr;  // tuples
  PyObject* shown_ = nullptr;                         // a list
  std::vector<int32_t> live_;
  std::vector<Tensor*> arguments_;
  std::unordered_map<const Tensor*, int32_t> sources_;
  std::unordered_map<Py_ssize_t, const Tensor*> outputs_;
  std::unordered_set<const Tensor*> views_;
  std::vector<bool> reached_;
};

}  // namespace

Ref<Explanation> explain_recorded(const Arguments& arguments, PyObject* result, PyObject* guards) {
  PyObject *parts, *constants, *identical, *built, *text, *gradients, *leaves, *casts;
  PyObject *effects, *numbers;
  int ranged;
  if (!PyArg_ParseTuple(guards, "O!O!O!O!O!O!O!O!O!O!p", &PyTuple_Type, &parts, &PyTuple_Type,
                        &constants, &PyTuple_Type, &identical, &PyTuple_Type, &built, &PyList_Type,
                        &text, &PyList_Type, &gradients, &PyList_Type, &leaves, &PyTuple_Type,
                        &casts, &PyList_Type, &effects, &PyTuple_Type, &numbers, &ranged)) {
    return {};
  }
  auto explanation = steal(new Explanation());
  Explanation* x = explanation.get();
  x->modes = Modes::now();
  x->changes = record_changes();
  x->text = share(text);
  x->ranged = ranged != 0;
  if (!explains(x->modes.interceptors) || x->modes.functions_disabled || x->modes.dry) {
    refuse("a mode sees its operators");
    return {};
  }
  if (!x->pattern.read(arguments)) {
    refuse("it has too many arguments");
    return {};
  }
  Builder builder(x, active_recorder);
  const bool fine =
      x->guards.read(parts) && builder.add_constants(constants) &&
      builder.add_gradients(gradients) && builder.add_leaves(leaves) && builder.add_casts(casts) &&
      builder.find_program() && builder.read_indices() && builder.read_masks() &&
      builder.read_result(result, identical, built, numbers) && builder.read_gradients(gradients) &&
      builder.read_casts(casts) && builder.read_effects(effects) && builder.read_numbers(numbers) &&
      builder.complete();
  x->pattern.forget_tensors();
  if (!fine) refuse("a value outlives it that is no result");
  if (fine) builder.take_stream();
  return fine ? explanation : Ref<Explanation>();
}

}  // namespace fb
