#include "text/jinja/analysis.h"

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
  explicit FreeVariables(const Tree& tree) { Analyze({}, tree.body, {}, nullptr); }

  [[nodiscard]] const Names& free() const { return free_; }
  [[nodiscard]] const Names& shadowed() const { return shadowed_; }

 private:
  struct Scope {
    Names known;   // has a meaning in this scope
    Names stored;  // is assigned in this scope
    Names hidden;  // is assigned before it is read
    const Scope* parent = nullptr;
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
    if (scope.parent == nullptr && !scope.known.contains(name)) scope.hidden.insert(name);
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

  // A scope of `body`, with `parameters` assigned at its start.
  void Analyze(const Names& parameters, const std::vector<Node*>& body,
               const std::vector<const Node*>& expressions, const Scope* parent) {
    Scope scope;
    scope.parent = parent;
    scope.known = parameters;
    scope.stored = parameters;
    std::vector<const Node*> inner;
    for (const Node* node : expressions) Visit(scope, node, inner);
    for (const Node* node : body) Visit(scope, node, inner);
    if (parent == nullptr) shadowed_ = scope.hidden;
    for (const Node* node : inner) VisitInner(node, scope);
  }

  void Visit(Scope& scope, const Node* node, std::vector<const Node*>& inner) {
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
        for (const Node* value : node->defaults) Visit(scope, value, inner);
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
        node->ForEachChild([&](const Node* child) { Visit(scope, child, inner); });
    }
  }

  // A name that only some of the branches assign may still come from the context.
  void VisitIf(Scope& scope, const Node* node, std::vector<const Node*>& inner) {
    Visit(scope, node->a, inner);
    const Names known_before = scope.known;
    Scope branches[3] = {scope, scope, scope};
    for (const Node* child : node->body) Visit(branches[0], child, inner);
    for (const Node* child : node->elifs) Visit(branches[1], child, inner);
    for (const Node* child : node->otherwise) Visit(branches[2], child, inner);
    std::map<std::string, int> stored;
    for (const Scope& branch : branches) {
      for (const std::string& name : branch.stored) {
        if (!scope.stored.contains(name)) ++stored[name];
      }
    }
    for (const Scope& branch : branches) {
      scope.known.insert(branch.known.begin(), branch.known.end());
      scope.stored.insert(branch.stored.begin(), branch.stored.end());
    }
    for (const auto& [name, count] : stored) {
      if (count == 3 && scope.parent == nullptr && !known_before.contains(name)) {
        scope.hidden.insert(name);
      }
      if (count < 3 && !Knows(scope.parent, name) && !IsGlobal(name)) free_.insert(name);
    }
  }

  void VisitInner(const Node* node, const Scope& parent) {
    switch (node->kind) {
      case NodeKind::kFor: {
        Scope names;
        names.parent = &parent;
        StoreTarget(names, node->a);
        if (node->c != nullptr) Analyze(names.known, {}, {node->c}, &parent);
        names.known.insert("loop");
        Analyze(names.known, node->body, {}, &parent);
        Analyze({}, node->otherwise, {}, &parent);
        return;
      }
      case NodeKind::kMacro:
      case NodeKind::kCallBlock: {
        Names names;
        for (const Node* parameter : node->items) names.insert(parameter->name->text);
        if (node->uses_caller) names.insert("caller");
        if (node->uses_kwargs) names.insert("kwargs");
        if (node->uses_varargs) names.insert("varargs");
        Analyze(names, node->body, {node->defaults.begin(), node->defaults.end()}, &parent);
        return;
      }
      case NodeKind::kWith: {
        Scope names;
        names.parent = &parent;
        for (const Node* target : node->items) StoreTarget(names, target);
        Analyze(names.known, node->body, {}, &parent);
        return;
      }
      case NodeKind::kSetBlock: {
        std::vector<const Node*> filter;
        if (node->b != nullptr) filter.push_back(node->b);
        Analyze({}, node->body, filter, &parent);
        return;
      }
      default:
        Analyze({}, node->body, {}, &parent);
    }
  }

  Names free_;
  Names shadowed_;
};

void Walk(const Node* node, const std::function<void(const Node*)>& visit) {
  visit(node);
  node->ForEachChild([&](const Node* child) { Walk(child, visit); });
}

// Follows which variables hold the messages, one message, and its content, without regard to
// scopes, and finds a loop over content.
class ContentLoops {
 public:
  explicit ContentLoops(const Tree& tree) : tree_(tree) {
    messages_.insert("messages");
    // Each round follows one assignment further; there are no more rounds than names.
    for (std::size_t size = 0; size != Known();) {
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

  void NoteAssignment(const Node* target, const Node* value) {
    if (target->kind != NodeKind::kName) return;
    const std::string& name = target->name->text;
    if (IsMessages(value)) messages_.insert(name);
    if (IsMessage(value)) message_.insert(name);
    if (IsContent(value)) content_.insert(name);
  }

  void NoteMacroCall(const Node* call) {
    if (call->a->kind != NodeKind::kName) return;
    const std::string& name = call->a->name->text;
    for (const Node* root : tree_.body) {
      Walk(root, [&](const Node* macro) {
        if (macro->kind != NodeKind::kMacro || macro->name->text != name) return;
        for (std::size_t i = 0; i < std::min(call->items.size(), macro->items.size()); ++i) {
          NoteAssignment(macro->items[i], call->items[i]);
        }
      });
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
        NoteMacroCall(node);
        return;
      default:
        return;
    }
  }

  const Tree& tree_;
  Names messages_;
  Names message_;
  Names content_;
  bool found_ = false;
};

}  // namespace

Analysis Analyze(const Tree& tree) {
  Analysis analysis;
  TemplateFacts& facts = analysis.facts;
  const FreeVariables variables(tree);
  facts.free_variables = variables.free();
  analysis.shadowed = variables.shadowed();
  facts.content_form = ContentLoops(tree).found() ? ContentForm::kParts : ContentForm::kString;
  for (const Node* root : tree.body) {
    Walk(root, [&](const Node* node) {
      facts.tests_for_string |= node->kind == NodeKind::kTest && node->name->text == "string";
      facts.mentions_developer |= node->kind == NodeKind::kConst && node->constant.string() &&
                                  node->constant.Text().find("developer") != std::string::npos;
    });
  }
  return analysis;
}

}  // namespace kvasir::text::jinja
