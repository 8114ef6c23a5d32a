#include "text/jinja/analysis.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "text/jinja/functions.h"

namespace kvasir::text::jinja {
namespace {

using Names = std::set<std::string>;

// Which names Jinja's compiler resolves from the context: jinja2.idtracking's rules. Each scope is
// read whole before the scopes inside of it, since those see all of its names.
class FreeVariables {
 public:
  explicit FreeVariables(Tree& tree) : tree_(tree) {
    tree.hidden = Analyze({}, tree.body, {}, nullptr);
  }

  [[nodiscard]] const Names& names() const { return free_; }

 private:
  struct Scope {
    Names known;   // has a meaning in this scope
    Names stored;  // is assigned in this scope
    Names hidden;  // is assigned before it is read
    const Scope* parent = nullptr;
    bool branch = false;  // of an `if`: part of the parent's scope, told apart from other branches
  };

  static bool Knows(const Scope* scope, const std::string& name) {
    for (; scope != nullptr; scope = scope->parent) {
      if (scope->known.contains(name)) return true;
    }
    return false;
  }

  void Load(Scope& scope, const std::string& name) {
    if (Knows(&scope, name)) return;
    scope.known.insert(name);
    if (!IsGlobal(name)) free_.insert(name);
  }

  void Store(Scope& scope, const std::string& name) {
    if (!Knows(&scope, name)) scope.hidden.insert(name);
    scope.stored.insert(name);
    scope.known.insert(name);
  }

  void StoreTarget(Scope& scope, const Node* target) {
    if (target->kind == NodeKind::kName) {
      Store(scope, target->name->text);
    } else {
      VisitChildrenAsTargets(scope, target);
    }
  }

  void VisitChildrenAsTargets(Scope& scope, const Node* target) {
    if (target->kind == NodeKind::kNamespaceRef) {
      Load(scope, target->a->name->text);
      return;
    }
    for (const Node* item : target->items) StoreTarget(scope, item);
  }

  // A scope of `body`, with `parameters` assigned at its start. Gives the hidden names.
  std::vector<int> Analyze(const Names& parameters, const std::vector<Node*>& body,
                           const std::vector<Node*>& expressions, const Scope* parent) {
    Scope scope;
    scope.parent = parent;
    scope.known = parameters;
    scope.stored = parameters;
    std::vector<Node*> inner;
    for (Node* node : expressions) Visit(scope, node, inner);
    for (Node* node : body) Visit(scope, node, inner);
    for (Node* node : inner) VisitInner(node, scope);
    std::vector<int> hidden;
    for (const std::string& name : scope.hidden) hidden.push_back(tree_.Symbol(name));
    return hidden;
  }

  void Visit(Scope& scope, Node* node, std::vector<Node*>& inner) {
    switch (node->kind) {
      case NodeKind::kName:
        Load(scope, node->name->text);
        return;
      case NodeKind::kIf:
        VisitIf(scope, node, inner);
        return;
      case NodeKind::kFor:
        Visit(scope, node->b, inner);
        inner.push_back(node);
        return;
      case NodeKind::kMacro:
        Store(scope, node->name->text);
        inner.push_back(node);
        return;
      case NodeKind::kCallBlock:
        Visit(scope, node->a, inner);
        inner.push_back(node);
        return;
      case NodeKind::kSet:
        Visit(scope, node->b, inner);
        StoreTarget(scope, node->a);
        return;
      case NodeKind::kSetBlock:
        StoreTarget(scope, node->a);
        inner.push_back(node);
        return;
      case NodeKind::kWith:
        for (Node* value : node->defaults) Visit(scope, value, inner);
        inner.push_back(node);
        return;
      case NodeKind::kFilterBlock:
        Visit(scope, node->a, inner);
        inner.push_back(node);
        return;
      case NodeKind::kScope:
        inner.push_back(node);
        return;
      default:
        node->ForEachChild([&](Node* child) { Visit(scope, child, inner); });
    }
  }

  // Whether the scope that `scope` is (a branch of) assigns the name.
  static bool Stores(const Scope* scope, const std::string& name) {
    for (; scope != nullptr; scope = scope->branch ? scope->parent : nullptr) {
      if (scope->stored.contains(name)) return true;
    }
    return false;
  }

  static const Scope* Outer(const Scope* scope) {
    while (scope->branch) scope = scope->parent;
    return scope->parent;
  }

  // A name that only some of the branches assign may still come from the context.
  void VisitIf(Scope& scope, Node* node, std::vector<Node*>& inner) {
    Visit(scope, node->a, inner);
    Scope branches[3];
    const std::vector<Node*>* const bodies[3] = {&node->body, &node->elifs, &node->otherwise};
    for (std::size_t i = 0; i < 3; ++i) {
      branches[i].parent = &scope;
      branches[i].branch = true;
      for (Node* child : *bodies[i]) Visit(branches[i], child, inner);
    }
    std::map<std::string, int> stored;
    for (const Scope& branch : branches) {
      for (const std::string& name : branch.stored) {
        if (!Stores(&scope, name)) ++stored[name];
      }
    }
    for (const auto& [name, count] : stored) {
      if (count == 3 && !Knows(&scope, name)) scope.hidden.insert(name);
      if (count < 3 && !Knows(Outer(&scope), name) && !IsGlobal(name)) free_.insert(name);
    }
    for (const Scope& branch : branches) {
      scope.known.insert(branch.known.begin(), branch.known.end());
      scope.stored.insert(branch.stored.begin(), branch.stored.end());
    }
  }

  void VisitInner(Node* node, const Scope& parent) {
    switch (node->kind) {
      case NodeKind::kFor: {
        Scope names;
        names.parent = &parent;
        StoreTarget(names, node->a);
        if (node->c != nullptr) (void)Analyze(names.known, {}, {node->c}, &parent);
        names.known.insert("loop");
        node->hidden = Analyze(names.known, node->body, {}, &parent);
        node->otherwise_hidden = Analyze({}, node->otherwise, {}, &parent);
        return;
      }
      case NodeKind::kMacro:
      case NodeKind::kCallBlock: {
        Names names;
        for (const Node* parameter : node->items) names.insert(parameter->name->text);
        if (node->uses_caller) names.insert("caller");
        if (node->uses_kwargs) names.insert("kwargs");
        if (node->uses_varargs) names.insert("varargs");
        node->hidden = Analyze(names, node->body, node->defaults, &parent);
        return;
      }
      case NodeKind::kWith: {
        Scope names;
        names.parent = &parent;
        for (const Node* target : node->items) StoreTarget(names, target);
        node->hidden = Analyze(names.known, node->body, {}, &parent);
        return;
      }
      case NodeKind::kSetBlock: {
        std::vector<Node*> filter;
        if (node->b != nullptr) filter.push_back(node->b);
        node->hidden = Analyze({}, node->body, filter, &parent);
        return;
      }
      default:
        node->hidden = Analyze({}, node->body, {}, &parent);
    }
  }

  Tree& tree_;
  Names free_;
};

void Walk(const Node* node, const std::function<void(const Node*)>& visit) {
  visit(node);
  node->ForEachChild([&](const Node* child) { Walk(child, visit); });
}

// Follows which variables hold the messages, one message, and its content, without regard to
// scopes, and finds a loop over content, or a member of one of its parts.
class ContentLoops {
 public:
  explicit ContentLoops(const Tree& tree) : tree_(tree) {
    messages_.insert("messages");
    for (const Node* node : tree_.body) {
      Walk(node, [this](const Node* n) {
        if (n->kind == NodeKind::kMacro) macros_[n->name->text].push_back(n);
      });
    }
    // Each round follows the assignments that stand before what they depend on one step further.
    constexpr int kRoundsMax = 8;
    std::size_t size = 0;
    for (int round = 0; round < kRoundsMax && size != Known(); ++round) {
      size = Known();
      for (const Node* node : tree_.body) {
        Walk(node, [this](const Node* n) { Note(n); });
      }
    }
  }

  [[nodiscard]] bool found() const { return found_; }

 private:
  [[nodiscard]] std::size_t Known() const {
    return messages_.size() + message_.size() + content_.size();
  }

  // Filters, tests and slices give the thing itself, or parts of the same kind.
  static const Node* Core(const Node* node) {
    while (node != nullptr) {
      if (node->kind == NodeKind::kFilter ||
          (node->kind == NodeKind::kItem && node->b->kind == NodeKind::kSlice)) {
        node = node->a;
      } else {
        return node;
      }
    }
    return node;
  }

  static bool IsName(const Node* node, const Names& names) {
    return node != nullptr && node->kind == NodeKind::kName && names.contains(node->name->text);
  }

  [[nodiscard]] bool IsMessages(const Node* node) const { return IsName(Core(node), messages_); }

  // A variable that holds a message, or messages[i].
  [[nodiscard]] bool IsMessage(const Node* node) const {
    if (node == nullptr) return false;
    if (IsName(node, message_)) return true;
    return node->kind == NodeKind::kItem && node->b->kind != NodeKind::kSlice &&
           IsMessages(node->a);
  }

  // message.content, message['content'], message.get('content'), or a variable that holds it.
  [[nodiscard]] bool IsContent(const Node* raw) const {
    const Node* node = Core(raw);
    if (node == nullptr) return false;
    if (IsName(node, content_)) return true;
    const auto is_key = [](const Node* key) {
      return key->kind == NodeKind::kConst && key->constant.string() &&
             key->constant.Text() == "content";
    };
    if (node->kind == NodeKind::kAttribute) {
      return node->name->text == "content" && IsMessage(node->a);
    }
    if (node->kind == NodeKind::kItem) return is_key(node->b) && IsMessage(node->a);
    return node->kind == NodeKind::kCall && node->a->kind == NodeKind::kAttribute &&
           node->a->name->text == "get" && !node->items.empty() && is_key(node->items[0]) &&
           IsMessage(node->a->a);
  }

  // content[0]
  [[nodiscard]] bool IsPart(const Node* node) const {
    return node->kind == NodeKind::kItem && node->b->kind == NodeKind::kConst &&
           !node->b->constant.string() && IsContent(node->a);
  }

  // content[0]['text'] or content[0].text, but not content[0].upper().
  [[nodiscard]] bool IsMemberOfPart(const Node* node) const {
    if (node->kind == NodeKind::kItem) {
      return node->b->kind == NodeKind::kConst && node->b->constant.string() && IsPart(node->a);
    }
    return node->kind == NodeKind::kAttribute && !called_.contains(node) && IsPart(node->a);
  }

  void NoteAssignment(const Node* target, const Node* value) {
    if (target->kind != NodeKind::kName) return;
    const std::string& name = target->name->text;
    if (IsMessages(value)) messages_.insert(name);
    if (IsMessage(value)) message_.insert(name);
    if (IsContent(value)) content_.insert(name);
  }

  void NoteMacroCall(const Node* call) {
    if (call->a->kind != NodeKind::kName) return;
    const auto at = macros_.find(call->a->name->text);
    if (at == macros_.end()) return;
    for (const Node* macro : at->second) {
      for (std::size_t i = 0; i < std::min(call->items.size(), macro->items.size()); ++i) {
        NoteAssignment(macro->items[i], call->items[i]);
      }
    }
  }

  void Note(const Node* node) {
    switch (node->kind) {
      case NodeKind::kSet:
        NoteAssignment(node->a, node->b);
        return;
      case NodeKind::kFor:
        if (node->a->kind == NodeKind::kName && IsMessages(node->b)) {
          message_.insert(node->a->name->text);
        }
        if (IsContent(node->b)) found_ = true;
        return;
      case NodeKind::kCall:
        called_.insert(node->a);
        NoteMacroCall(node);
        return;
      case NodeKind::kItem:
      case NodeKind::kAttribute:
        if (IsMemberOfPart(node)) found_ = true;
        return;
      default:
        return;
    }
  }

  const Tree& tree_;
  std::set<const Node*> called_;  ///< what calls call, noted before their children
  std::map<std::string, std::vector<const Node*>> macros_;
  Names messages_;
  Names message_;
  Names content_;
  bool found_ = false;
};

}  // namespace

TemplateFacts Analyze(Tree& tree) {
  TemplateFacts facts;
  facts.free_variables = FreeVariables(tree).names();
  facts.content_form = ContentLoops(tree).found() ? ContentForm::kParts : ContentForm::kString;
  for (const Node* root : tree.body) {
    Walk(root, [&](const Node* node) {
      facts.tests_for_string |= node->kind == NodeKind::kTest && node->name->text == "string";
      facts.mentions_developer |= node->kind == NodeKind::kConst && node->constant.string() &&
                                  node->constant.Text().find("developer") != std::string::npos;
    });
  }
  return facts;
}

}  // namespace kvasir::text::jinja
