// The syntax tree of a template. Nodes are owned by the Tree and point at each other; each knows
// its height, which the parser bounds, so that walks over it may recurse.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace kvasir::text::jinja {

enum class NodeKind : uint8_t {
  // expressions
  kConst,         // constant
  kName,          // symbol, name
  kTuple,         // items
  kList,          // items
  kDict,          // items: key, value, key, value, ...
  kNot,           // a
  kNegate,        // a
  kPlus,          // a
  kBinary,        // a op b
  kCompare,       // a, then compares[i] items[i]
  kAnd,           // a, b
  kOr,            // a, b
  kConcat,        // items
  kCondition,     // b if a else c (may be null)
  kAttribute,     // a.name
  kItem,          // a[b]
  kSlice,         // a:b:c, each may be null; only inside kItem
  kCall,          // a(items, named, *b, **c)
  kFilter,        // a | name(items, named, *b, **c); a null: the text of a filter or set block
  kTest,          // a is name(items, named, *b, **c)
  kNamespaceRef,  // symbol.name as the target of set
  // statements
  kText,         // constant
  kPrint,        // a
  kFor,          // a: target, b: iterable, c: filter or null, body, otherwise; flag: recursive
  kIf,           // a: condition, body, elifs (kIf each), otherwise
  kSet,          // a: target, b: value
  kSetBlock,     // a: target, b: filter or null, body
  kMacro,        // symbol, name, items: parameters (kName), defaults (of the last ones), body
  kCallBlock,    // a: call, items: parameters, defaults, body
  kFilterBlock,  // a: filter, body
  kWith,         // items: targets, defaults: values, body
  kScope,        // body with variables of its own (generation)
  kBreak,
  kContinue,
  kRefused,  // name: why this statement fails when it is reached
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

using FilterFunction = Value (*)(Runtime&, const Value& subject, Arguments&);
using TestFunction = bool (*)(Runtime&, const Value& subject, Arguments&);

struct Node {
  NodeKind kind;
  Operator op = Operator::kAdd;
  bool flag = false;
  bool uses_caller = false;   ///< of what is called: the body reads `caller`
  bool uses_kwargs = false;   ///< ... `kwargs`
  bool uses_varargs = false;  ///< ... `varargs`
  int line = 0;
  int height = 1;
  int symbol = -1;
  Str* name = nullptr;
  Value constant;
  Node* a = nullptr;
  Node* b = nullptr;
  Node* c = nullptr;
  std::vector<Node*> items;
  std::vector<Operator> compares;
  std::vector<std::pair<Str*, Node*>> named;
  std::vector<Node*> body;
  std::vector<Node*> elifs;
  std::vector<Node*> otherwise;
  std::vector<Node*> defaults;
  std::vector<int> hidden;            ///< symbols that start undefined in the scope of `body`
  std::vector<int> otherwise_hidden;  ///< ... of `otherwise`, where that is a scope (kFor)
  FilterFunction filter = nullptr;    ///< of kFilter; null: no such filter
  TestFunction test = nullptr;        ///< of kTest; null: no such test

  /// Calls `visit` with each child that is there.
  template <typename Visit>
  void ForEachChild(const Visit& visit) const {
    for (Node* child : {a, b, c}) {
      if (child != nullptr) visit(child);
    }
    for (const auto* list : {&items, &defaults, &body, &elifs, &otherwise}) {
      for (Node* child : *list) visit(child);
    }
    for (const auto& [key, child] : named) visit(child);
  }
};

struct Tree {
  std::vector<std::unique_ptr<Str>> strings;  ///< before the nodes, whose values point to them
  std::vector<std::unique_ptr<Node>> nodes;
  std::unordered_map<std::string, Str*> interned;
  std::unordered_map<std::string, int> symbols;
  std::vector<Str*> symbol_names;
  std::vector<Node*> body;
  std::vector<int> hidden;  ///< symbols that the context cannot set

  [[nodiscard]] Str* Intern(std::string_view text);
  [[nodiscard]] int Symbol(std::string_view name);
};

}  // namespace kvasir::text::jinja
