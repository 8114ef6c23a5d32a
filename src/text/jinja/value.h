// Python-like values of one render. Strings are counted references; every container lives in the
// render's Heap until the render ends, so that cycles cost nothing and nothing recurses when it is
// freed. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kvasir::text::jinja {

using Integer = __int128;  ///< Python's int, as far as templates need it; overflow is an error

class Heap;
class Runtime;

/// An immutable UTF-8 string. Immortal ones belong to a parsed template and are shared by threads.
struct Str {
  std::string text;
  int64_t length = -1;     ///< in code points; -1: not counted yet (never in an immortal one)
  int32_t references = 0;  ///< negative: immortal
  bool markup = false;     ///< Python's Markup: `+` and `%` escape the other side
  Heap* heap = nullptr;    ///< whose memory account it is on; null where immortal
};

void FreeStr(Str* str);

/// An immortal string, for constants of a template.
[[nodiscard]] std::unique_ptr<Str> MakeImmortal(std::string text);

enum class Kind : uint8_t {
  kMissing,  ///< no value at all: a variable or argument that was never given
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kRange,
  kDictView,
  kIterator,
  kCallable,
};

/// Why a value is undefined, for the message of who uses it.
enum class Lack : uint8_t { kVariable, kAttributeOfNone, kAttribute, kElement, kForbidden, kOther };

struct Object {
  virtual ~Object() = default;
};
struct List;
struct Dict;
struct Namespace;
struct RangeObject;
struct DictView;
struct Iterator;
struct Callable;

class Value {
 public:
  Value() : integer_(0) {}
  Value(const Value& other) { CopyFrom(other); }
  Value(Value&& other) noexcept { StealFrom(other); }
  Value& operator=(const Value& other) {
    if (this != &other) {
      Release();
      CopyFrom(other);
    }
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    if (this != &other) {
      Release();
      StealFrom(other);
    }
    return *this;
  }
  ~Value() { Release(); }

  [[nodiscard]] static Value None() { return Value(Kind::kNone); }
  [[nodiscard]] static Value Bool(bool b) {
    Value v(Kind::kBool);
    v.integer_ = b ? 1 : 0;
    return v;
  }
  [[nodiscard]] static Value Int(Integer i) {
    Value v(Kind::kInt);
    v.integer_ = i;
    return v;
  }
  [[nodiscard]] static Value Size(std::size_t n) { return Int(static_cast<Integer>(n)); }
  [[nodiscard]] static Value Float(double f) {
    Value v(Kind::kFloat);
    v.float_ = f;
    return v;
  }
  [[nodiscard]] static Value String(Str* str) {
    Value v(Kind::kString);
    v.str_ = str;
    v.Retain();
    return v;
  }
  /// `name`: of the variable, attribute or (kOther) the whole message; may be null.
  [[nodiscard]] static Value Undefined(Lack lack, Str* name, Kind owner = Kind::kMissing) {
    Value v(Kind::kUndefined);
    v.str_ = name;
    v.lack_ = lack;
    v.owner_ = owner;
    v.Retain();
    return v;
  }
  [[nodiscard]] static Value Of(Kind kind, Object* object) {
    Value v(kind);
    v.object_ = object;
    return v;
  }
  [[nodiscard]] static Value Of(List* list, bool tuple = false);
  [[nodiscard]] static Value Of(Dict* dict);
  [[nodiscard]] static Value Of(Iterator* iterator);
  [[nodiscard]] static Value Of(Callable* callable);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool Is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool missing() const { return kind_ == Kind::kMissing; }
  [[nodiscard]] bool undefined() const { return kind_ == Kind::kUndefined; }
  [[nodiscard]] bool none() const { return kind_ == Kind::kNone; }
  [[nodiscard]] bool string() const { return kind_ == Kind::kString; }
  [[nodiscard]] bool sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  /// int or bool (which is an int in Python).
  [[nodiscard]] bool integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  [[nodiscard]] bool numeric() const { return integral() || kind_ == Kind::kFloat; }

  // Each needs the kind that it names.
  [[nodiscard]] bool AsBool() const { return integer_ != 0; }
  [[nodiscard]] Integer AsInt() const { return integer_; }
  [[nodiscard]] double AsDouble() const {
    return kind_ == Kind::kFloat ? float_ : static_cast<double>(integer_);
  }
  [[nodiscard]] const std::string& Text() const { return str_->text; }
  [[nodiscard]] Str* AsStr() const { return str_; }
  [[nodiscard]] bool markup() const { return string() && str_->markup; }
  [[nodiscard]] Object* AsObject() const { return object_; }
  [[nodiscard]] List& AsList() const;
  [[nodiscard]] Dict& AsDict() const;
  [[nodiscard]] Namespace& AsNamespace() const;
  [[nodiscard]] const RangeObject& AsRange() const;
  [[nodiscard]] DictView& AsView() const;
  [[nodiscard]] Iterator& AsIterator() const;
  [[nodiscard]] Callable& AsCallable() const;
  [[nodiscard]] Lack lack() const { return lack_; }
  [[nodiscard]] Kind owner() const { return owner_; }

 private:
  explicit Value(Kind kind) : kind_(kind), integer_(0) {}
  [[nodiscard]] bool HoldsStr() const {
    return kind_ == Kind::kString || (kind_ == Kind::kUndefined && str_ != nullptr);
  }
  void Retain() {
    if (HoldsStr() && str_->references >= 0) ++str_->references;
  }
  void Release() {
    if (HoldsStr() && str_->references >= 0 && --str_->references == 0) FreeStr(str_);
    kind_ = Kind::kMissing;
  }
  void CopyFrom(const Value& other) {
    CopyBits(other);
    Retain();
  }
  void StealFrom(Value& other) {
    CopyBits(other);
    other.kind_ = Kind::kMissing;
  }
  void CopyBits(const Value& other) {
    kind_ = other.kind_;
    lack_ = other.lack_;
    owner_ = other.owner_;
    integer_ = other.integer_;  // the widest member of the union
  }

  Kind kind_ = Kind::kMissing;
  Lack lack_ = Lack::kOther;
  Kind owner_ = Kind::kMissing;
  union {
    Integer integer_;
    double float_;
    Str* str_;
    Object* object_;
  };
};

/// A list, or a tuple: the Value's kind tells.
struct List : Object {
  std::vector<Value> items;
  bool group = false;  ///< a pair of groupby: has the attributes `grouper` and `list`
};

/// Insertion-ordered, keys as Python's (1 == 1.0 == True).
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<std::size_t, std::size_t> index;  ///< hash → entry; empty while small

  /// -1 where there is none.
  [[nodiscard]] int64_t Find(Runtime& runtime, const Value& key) const;
  [[nodiscard]] int64_t Find(std::string_view key) const;
  /// Null where there is none.
  [[nodiscard]] const Value* Get(std::string_view key) const {
    const int64_t at = Find(key);
    return at < 0 ? nullptr : &entries[static_cast<std::size_t>(at)].second;
  }
  void Set(Runtime& runtime, const Value& key, Value value);
  void Erase(Runtime& runtime, std::size_t entry);

 private:
  void BuildIndex(Runtime& runtime);
};

struct Namespace : Object {
  Dict attributes;
};

struct RangeObject : Object {
  Integer start = 0;
  Integer step = 1;
  std::size_t size = 0;
  Integer stop = 0;  ///< as written, for printing
  [[nodiscard]] Integer At(std::size_t i) const { return start + step * static_cast<Integer>(i); }
};

/// What dict.keys(), .values() and .items() give: live, with a length, no index.
struct DictView : Object {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  Dict* dict = nullptr;
  Part part = Part::kKeys;
};

/// Something that is gone through once: a generator.
struct Iterator : Object {
  /// False at the end.
  virtual bool Next(Runtime& runtime, Value& out) = 0;
  [[nodiscard]] virtual const char* TypeName() const { return "generator"; }
};

/// An Iterator made of a function.
struct Generator final : Iterator {
  explicit Generator(std::function<bool(Runtime&, Value&)> function) : next(std::move(function)) {}
  bool Next(Runtime& runtime, Value& out) override { return next(runtime, out); }
  std::function<bool(Runtime&, Value&)> next;
};

/// Arguments of a call. Names outlive the call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

struct Callable : Object {
  virtual Value Call(Runtime& runtime, Arguments& arguments) = 0;
  /// An attribute such as `loop.index`; missing where there is none.
  virtual Value Attribute(Runtime& runtime, std::string_view name) {
    (void)runtime, (void)name;
    return {};
  }
  [[nodiscard]] virtual const char* TypeName() const { return "function"; }
  [[nodiscard]] virtual std::string Repr() const {
    return "<" + std::string(TypeName()) + " object>";
  }
};

inline Value Value::Of(List* list, bool tuple) {
  return Of(tuple ? Kind::kTuple : Kind::kList, list);
}
inline Value Value::Of(Dict* dict) { return Of(Kind::kDict, dict); }
inline Value Value::Of(Iterator* iterator) { return Of(Kind::kIterator, iterator); }
inline Value Value::Of(Callable* callable) { return Of(Kind::kCallable, callable); }
inline List& Value::AsList() const { return static_cast<List&>(*object_); }
inline Dict& Value::AsDict() const { return static_cast<Dict&>(*object_); }
inline Namespace& Value::AsNamespace() const { return static_cast<Namespace&>(*object_); }
inline const RangeObject& Value::AsRange() const { return static_cast<RangeObject&>(*object_); }
inline DictView& Value::AsView() const { return static_cast<DictView&>(*object_); }
inline Iterator& Value::AsIterator() const { return static_cast<Iterator&>(*object_); }
inline Callable& Value::AsCallable() const { return static_cast<Callable&>(*object_); }

/// Owns the containers of one render and counts the memory of all its values.
class Heap {
 public:
  explicit Heap(std::size_t limit_bytes) : limit_(limit_bytes) {}

  template <typename T, typename... Args>
  [[nodiscard]] T* New(Args&&... args) {
    Charge(sizeof(T) + sizeof(void*));
    objects_.push_back(std::make_unique<T>(std::forward<Args>(args)...));
    return static_cast<T*>(objects_.back().get());
  }
  [[nodiscard]] Str* NewStr(std::string text);

  /// Fails the render where the limit is passed.
  void Charge(std::size_t bytes);
  void Discharge(std::size_t bytes) { used_ -= bytes; }

 private:
  std::size_t limit_;
  std::size_t used_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace kvasir::text::jinja
