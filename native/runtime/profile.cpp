// The profiler's buffer of events. Every thread has a log of its own, so that threads do not wait
// for each other; a log's lock is only ever contended while the events are taken out.
//
// An event remembers the event it is inside of, so the tree needs no guessing from times. A profile
// that ends while events are open leaves them without an end: they end when it does. The end of an
// event of an earlier profile is ignored, by the profile's number.
#include "runtime/profile.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "call/op_internal.h"
#include "runtime/fork.h"
#include "tape/tape.h"
#if defined(__linux__)
#include <sys/syscall.h>
#endif

namespace fb {

constinit FB_THREAD_LOCAL bool profile_muted = false;
std::atomic<uint32_t> profile_flags{0};
constinit FB_THREAD_LOCAL ProfiledBody* profiled_routine = nullptr;

namespace {

constexpr size_t kMaxEvents = size_t{1} << 22;  // per thread: about 700 MB
constexpr int kMaxFrames = 64;
constexpr int64_t kSamePiece = 2000;  // ns: a worker's pieces this near are shown as one

struct Event {
  EventKind kind;
  std::string name;
  int64_t start = 0, end = -1;
  int32_t parent = -1;  // in the same log
  int32_t threads = 1, group = 1;
  int64_t bytes = 0, flops = 0, work = 0, busy = 0;
  int64_t memory = 0;             // allocated minus released by this thread, while it was open
  int64_t total = 0;              // Memory: bytes held by all threads since the profile's start
  int64_t sequence = -1;          // of the tape's node that belongs to it
  PyObject* arguments = nullptr;  // owned
  PyObject* frames = nullptr;     // owned: (code, line) innermost first
};

using Guard = std::lock_guard<ForkSafe<std::mutex>>;

struct Log {
  ForkSafe<std::mutex> lock{kReset};
  std::vector<Event> events;
  std::vector<uint32_t> open;  // innermost last
  int64_t held = 0;            // bytes this thread has taken minus those it gave back
  int64_t thread = 0;          // the system's number
  size_t dropped = 0;
  bool ended = false;  // the thread is gone
};

// Replaced in a forked child, where locks may be held for ever.
struct Registry {
  ForkSafe<std::mutex> lock{kReset};
  std::vector<Log*> logs;  // positions are stable: events are addressed by number
  std::atomic<uint32_t> session{0};
  std::atomic<int64_t> held{0};
  uint32_t flags = 0;  // of the profile that runs, also while it is paused
  bool running = false;
};

std::atomic<Registry*> registry{nullptr};

struct OwnLog {
  Registry* owner = nullptr;
  Log* log = nullptr;
  int32_t number = -1;
  ~OwnLog() {
    if (!log || owner != registry.load()) return;
    const Guard guard(log->lock);
    log->ended = true;
  }
};
thread_local OwnLog own_log;

int64_t thread_number() {
#if defined(__linux__)
  return static_cast<int64_t>(syscall(SYS_gettid));
#else
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pthread_self()));
#endif
}

// While threads hold the GIL. Whether launches are watched is none of a profile's business.
void set_flags(uint32_t flags) { profile_flags.store(flags | (profile_flags.load() & kWatching)); }

void forget_profile() {  // in a forked child: its parent's profile is none of its business
  set_flags(0);
  auto* fresh = new Registry();
  fresh->session.store(registry.load()->session.load() + 1);  // its open ranges are strangers here
  registry.store(fresh);
  own_log = OwnLog();
  profiled_routine = nullptr;
}

Registry* the_registry() { return registry.load(std::memory_order_acquire); }

// This thread's log; null when memory is exhausted.
OwnLog* my_log() {
  Registry* const all = the_registry();
  if (own_log.owner == all) return &own_log;
  Log* log = new (std::nothrow) Log();
  if (!log) return nullptr;
  log->thread = thread_number();
  const Guard guard(all->lock);
  const auto free = std::find(all->logs.begin(), all->logs.end(), nullptr);
  const auto number = free - all->logs.begin();
  if (free == all->logs.end()) {
    all->logs.push_back(log);
  } else {
    *free = log;
  }
  own_log.owner = all;
  own_log.log = log;
  own_log.number = static_cast<int32_t>(number);
  return &own_log;
}

// Appends; null when the log or the memory is full. Call with the log's lock held.
Event* append(Log* log, EventKind kind, const char* name) {
  const bool fits = log->events.size() < kMaxEvents && grow([&] {
                      log->open.reserve(log->open.size() + 1);
                      Event event;
                      event.kind = kind;
                      event.name = name;
                      event.parent =
                          log->open.empty() ? -1 : static_cast<int32_t>(log->open.back());
                      log->events.push_back(std::move(event));
                    });
  log->dropped += !fits;
  return fits ? &log->events.back() : nullptr;
}

Log* log_at(int32_t number) {
  Registry* const all = the_registry();
  const Guard guard(all->lock);
  const auto at = static_cast<size_t>(number);
  return number >= 0 && at < all->logs.size() ? all->logs[at] : nullptr;
}

// Calls `change` on an open or ended event of the profile that runs, under its log's lock.
template <typename Change>
void with_event(const EventPlace& place, Change change) {
  if (place.log < 0 || place.session != the_registry()->session.load()) return;
  Log* log = own_log.number == place.log ? own_log.log : log_at(place.log);
  if (!log) return;
  const Guard guard(log->lock);
  if (place.session != the_registry()->session.load() || place.index >= log->events.size()) return;
  change(log, &log->events[place.index]);
}

// ---------------------------------------------------------------- what an event remembers
PyObject* current_frames() {
  auto list = steal(PyList_New(0));
  auto frame = steal(list ? PyThreadState_GetFrame(PyThreadState_Get()) : nullptr);
  for (int depth = 0; frame && depth < kMaxFrames; ++depth) {
    PyObject* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(frame.get()));
    if (!append_item(list.get(), Py_BuildValue("(Ni)", code, PyFrame_GetLineNumber(frame.get())))) {
      PyErr_Clear();
    }
    frame = steal(PyFrame_GetBack(frame.get()));
  }
  if (!list) PyErr_Clear();
  return list.release();
}

PyObject* describe_argument(PyObject* value, bool nested) {
  if (value && is_tensor(value)) {
    const auto* t = reinterpret_cast<const Tensor*>(value);
    PyObject* sizes = size_object(t->ndim, t->sizes());
    return sizes ? Py_BuildValue("(sN)", dtype_name(t->dtype), sizes) : nullptr;
  }
  const bool sequence = value && (PyList_Check(value) || PyTuple_Check(value));
  if (!sequence || nested) return Py_NewRef(Py_None);
  auto list = steal(PyList_New(0));
  bool any = false;
  for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(value); ++i) {
    PyObject* entry = describe_argument(PySequence_Fast_GET_ITEM(value, i), true);
    any |= entry != Py_None;
    if (!append_item(list.get(), entry)) return nullptr;
  }
  return list && !any ? Py_NewRef(Py_None) : list.release();
}

}  // namespace

int64_t profile_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void set_watching(bool on) {
  if (on) {
    profile_flags.fetch_or(kWatching);
  } else {
    profile_flags.fetch_and(~uint32_t{kWatching});
  }
}

EventPlace profile_begin(EventKind kind, const char* name) {
  OwnLog* own = profile_muted ? nullptr : my_log();
  if (!own) return {};
  Ref<> frames;
  if (kind <= EventKind::Region && profile_flags.load(std::memory_order_relaxed) & kProfileStacks) {
    frames = steal(current_frames());
  }
  EventPlace place;
  {
    const Guard guard(own->log->lock);
    if (Event* event = append(own->log, kind, name)) {
      event->frames = frames.release();
      event->memory = -own->log->held;
      place = {own->number, the_registry()->session.load(),
               static_cast<uint32_t>(own->log->events.size() - 1)};
      own->log->open.push_back(place.index);
      event->start = profile_now();  // last: what the profiler does itself is not counted
    }
  }
  return place;
}

void profile_end(const EventPlace& place) {
  const int64_t end = profile_now();
  with_event(place, [&](Log* log, Event* event) {
    if (event->end >= 0) return;
    event->end = end;
    event->memory += log->held;
    const auto at = std::find(log->open.rbegin(), log->open.rend(), place.index);
    if (at != log->open.rend()) log->open.erase(std::next(at).base());
  });
}

void profile_note_arguments(const EventPlace& place, PyObject* const* values, size_t count) {
  if (!(profile_flags.load(std::memory_order_relaxed) & kProfileShapes)) return;
  auto list =
      steal(build_list(count, [&](size_t i) { return describe_argument(values[i], false); }));
  if (!list) PyErr_Clear();
  with_event(place, [&](Log*, Event* event) { std::swap(event->arguments, *list.slot()); });
}

// Links a forward op to its node of the tape.
void profile_note_result(const EventPlace& place, PyObject* result) {
  if (PyTuple_Check(result) && PyTuple_GET_SIZE(result) > 0) result = PyTuple_GET_ITEM(result, 0);
  if (!is_tensor(result)) return;
  const Autograd* a = reinterpret_cast<const Tensor*>(result)->autograd;
  if (a && a->node && a->node->kind != NodeKind::Accumulate) {
    profile_note_sequence(place, a->node->sequence);
  }
}

void profile_note_sequence(const EventPlace& place, uint64_t sequence) {
  with_event(place, [&](Log*, Event* event) { event->sequence = static_cast<int64_t>(sequence); });
}

void profile_launch(const LaunchRecord& launch) {
  OwnLog* own = my_log();
  if (!own) return;
  const Guard guard(own->log->lock);
  Event* event = append(own->log, EventKind::Launch, launch.name);
  if (!event) return;
  event->start = launch.start, event->end = launch.end;
  event->bytes = launch.bytes, event->flops = launch.flops;
  event->work = launch.work, event->busy = launch.busy;
  event->threads = launch.threads, event->group = launch.group;
}

void profile_piece(const char* name, int64_t start, int64_t end) {
  OwnLog* own = my_log();
  if (!own) return;
  const Guard guard(own->log->lock);
  std::vector<Event>& events = own->log->events;
  if (!events.empty() && events.back().kind == EventKind::Piece &&
      start - events.back().end < kSamePiece && events.back().name == name) {
    events.back().end = end;
    return;
  }
  Event* event = append(own->log, EventKind::Piece, name);
  if (event) event->start = start, event->end = end;
}

void profiled_body(void* context, int64_t begin, int64_t end, int worker) {
  const auto* wrapped = static_cast<const ProfiledBody*>(context);
  ProfiledBody* const outer =
      std::exchange(profiled_routine, nullptr);  // pieces inside of this one
  const int64_t start = profile_now();
  wrapped->body(wrapped->context, begin, end, worker);
  const int64_t finish = profile_now();
  profiled_routine = outer;
  wrapped->clock->add(finish - start, worker);
  if (worker > 0) profile_piece(wrapped->name, start, finish);
}

void profile_memory(int64_t nbytes, const void* block) {
  if (!(profile_flags.load(std::memory_order_relaxed) & kProfileMemory)) return;
  OwnLog* own = my_log();
  if (!own) return;
  const int64_t total = the_registry()->held.fetch_add(nbytes) + nbytes;
  const Guard guard(own->log->lock);
  own->log->held += nbytes;
  Event* event = append(own->log, EventKind::Memory, "[memory]");
  if (!event) return;
  event->start = event->end = profile_now();
  event->bytes = nbytes;
  event->total = total;
  event->work = static_cast<int64_t>(reinterpret_cast<uintptr_t>(block));
}

// ---------------------------------------------------------------- Python
namespace {

// Takes all events out; logs of threads that are gone are freed.
std::vector<std::pair<int64_t, std::vector<Event>>> take_events(Registry* all, size_t* dropped) {
  std::vector<std::pair<int64_t, std::vector<Event>>> taken;
  const Guard guard(all->lock);
  all->session.fetch_add(1);  // whoever ends an event from now on is too late
  for (Log*& log : all->logs) {
    taken.emplace_back();
    if (!log) continue;
    bool ended;
    {
      const Guard inner(log->lock);
      taken.back() = {log->thread, std::move(log->events)};
      log->events = {};
      log->open.clear();
      *dropped += std::exchange(log->dropped, 0);
      log->held = 0;
      ended = log->ended;
    }
    if (ended) {
      delete log;
      log = nullptr;
    }
  }
  return taken;
}

void release(std::vector<Event>* events) {
  for (Event& event : *events) {
    drop(event.arguments);
    drop(event.frames);
  }
}

PyObject* tuple_of_event(const Event& e, int64_t first, int log, int64_t thread, int64_t now) {
  const int64_t end = e.end < 0 ? now : e.end;
  const int64_t memory = e.end < 0 ? 0 : e.memory;
  const int64_t parent = e.parent < 0 ? -1 : first + e.parent;
  return Py_BuildValue(
      "(LiNiLLLLLLLiiLLLOO)", static_cast<long long>(parent), static_cast<int>(e.kind),
      PyUnicode_DecodeUTF8(e.name.data(), static_cast<Py_ssize_t>(e.name.size()), "replace"), log,
      static_cast<long long>(thread), static_cast<long long>(e.start), static_cast<long long>(end),
      static_cast<long long>(e.bytes), static_cast<long long>(e.flops),
      static_cast<long long>(e.work), static_cast<long long>(e.busy), e.threads, e.group,
      static_cast<long long>(memory), static_cast<long long>(e.total),
      static_cast<long long>(e.sequence), e.arguments ? e.arguments : Py_None,
      e.frames ? e.frames : Py_None);
}

PyObject* profile_start(PyObject*, PyObject* argument) {
  const unsigned long flags = PyLong_AsUnsignedLong(argument);
  if (PyErr_Occurred()) return nullptr;
  Registry* const all = the_registry();
  if (all->running) {
    PyErr_SetString(PyExc_RuntimeError,
                    "[profiler] Profiler is already enabled: a process has one profile at a time\n"
                    "hint: end the other profile first");
    return nullptr;
  }
  size_t dropped = 0;
  for (auto& [thread, events] : take_events(all, &dropped)) release(&events);
  all->held.store(0);
  all->running = true;
  all->flags = static_cast<uint32_t>(flags) | kProfileOn;
  set_flags(all->flags);
  Py_RETURN_NONE;
}

// (events, how many there was no room for)
PyObject* profile_stop(PyObject*, PyObject*) {
  Registry* const all = the_registry();
  const int64_t now = profile_now();
  set_flags(0);
  all->running = false;
  size_t dropped = 0;
  auto taken = take_events(all, &dropped);
  auto list = steal(PyList_New(0));
  int64_t first = 0;
  for (size_t i = 0; i < taken.size(); ++i) {
    auto& [thread, events] = taken[i];
    for (const Event& event : events) {
      if (list && !append_item(list.get(),
                               tuple_of_event(event, first, static_cast<int>(i), thread, now))) {
        list = {};
      }
    }
    first += static_cast<int64_t>(events.size());
    release(&events);
  }
  if (!list) return nullptr;
  return Py_BuildValue("(Nn)", list.release(), static_cast<Py_ssize_t>(dropped));
}

PyObject* profile_pause(PyObject*, PyObject* argument) {
  const int pause = PyObject_IsTrue(argument);
  if (pause < 0) return nullptr;
  Registry* const all = the_registry();
  if (all->running) set_flags(pause ? 0 : all->flags);
  Py_RETURN_NONE;
}

PyObject* profile_running(PyObject*, PyObject*) { return PyBool_FromLong(the_registry()->running); }

// A range's token: (log, profile, number), or None while nothing is recorded.
PyObject* profile_enter(PyObject*, PyObject* name) {
  if (!profiling()) Py_RETURN_NONE;
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  const EventPlace place = profile_begin(EventKind::Range, text);
  return Py_BuildValue("(iII)", place.log, place.session, place.index);
}

PyObject* profile_exit(PyObject*, PyObject* token) {
  if (token == Py_None) Py_RETURN_NONE;
  EventPlace place;
  if (!PyArg_ParseTuple(token, "iII", &place.log, &place.session, &place.index)) return nullptr;
  profile_end(place);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"profile_start", profile_start, METH_O,
     "profile_start(flags): starts a profile; flags: 2 shapes, 4 stacks, 8 memory."},
    {"profile_stop", profile_stop, METH_NOARGS, "Ends it: (events, number of lost events)."},
    {"profile_pause", profile_pause, METH_O, "Stops recording for a while (True), or goes on."},
    {"profile_running", profile_running, METH_NOARGS, "Whether a profile was started."},
    {"profile_enter", profile_enter, METH_O, "Begins a named range; gives its token."},
    {"profile_exit", profile_exit, METH_O, "Ends the range of a token."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool init_profile(PyObject* module) {
  if (!the_registry()) {
    registry.store(new Registry());
    in_forked_child(forget_profile);
  }
  return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace fb
